#!/usr/bin/env python3
"""Writes reference_*.safetensors: inputs, outputs and gradients of every op, as PyTorch computes them.

Run it with a Python that has torch; the tests only read what it wrote:

    python3 tests/data/make_references.py

A case is one row below: case(op, function, inputs, **attrs). It becomes, in f64 and in f32, the
tensors NAME/in0.., NAME/out0.., NAME/dy0.. and NAME/grad0.. and one entry of the list "cases" in the
file's metadata:

    {"name", "op", "attrs": {...}, "in": [{"view": [...], "grad": bool}, ...], "out": N}

A view is applied to the stored tensor before the op, so inputs with strides are covered and
gradients are those of the stored tensor. Seeds come from names: adding a row changes no other.
"""
import json
import math
import os
import struct
import zlib

import torch
import torch.nn.functional as F

NAMES = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64", torch.int32: "I32",
         torch.bool: "BOOL"}


class In:
    """One input: its stored shape, where values come from, and the view the op gets."""

    def __init__(self, *shape, low=None, high=None, view=None, ids=None, mask=False, values=None):
        self.shape, self.low, self.high, self.view = shape, low, high, view
        self.ids, self.mask, self.values = ids, mask, values

    @property
    def grad(self):
        return self.ids is None and not self.mask

    def make(self, dtype):
        if self.values is not None:
            return torch.tensor(self.values, dtype=torch.int64)
        if self.ids is not None:
            return torch.randint(0, self.ids, self.shape)
        if self.mask:
            return torch.rand(self.shape) < 0.4
        # Made in f64, so that the f32 case has the same values, rounded.
        if self.low is not None:
            x = torch.rand(self.shape, dtype=torch.float64) * (self.high - self.low) + self.low
        else:
            x = torch.randn(self.shape, dtype=torch.float64)
        return x.to(dtype)


def apply_view(x, view):
    if view is None:
        return x
    kind, *args = view
    if kind == "transpose":
        return x.transpose(*args)
    if kind == "permute":
        return x.permute(*args)
    if kind == "expand":
        return x.expand(*args)
    axis, begin, end, step = args
    index = [slice(None)] * x.dim()
    index[axis] = slice(begin, end, step)
    return x[tuple(index)]


FILES = {}


def case(file, op, function, inputs, label="", dtypes=(torch.float64, torch.float32), **attrs):
    for dtype in dtypes:
        text = ",".join("x".join(map(str, i.shape)) + ("." + i.view[0] if i.view else "")
                        for i in inputs)
        name = f"{op}({text}){label}.{NAMES[dtype].lower()}"
        tensors, cases = FILES.setdefault(file, ({}, []))
        if any(c["name"] == name for c in cases):
            raise ValueError(f"two cases named {name}")
        torch.manual_seed(zlib.crc32(name[:-4].encode()))
        leaves = [i.make(dtype) for i in inputs]
        for leaf, i in zip(leaves, inputs):
            leaf.requires_grad_(i.grad)
        out = function(*[apply_view(leaf, i.view) for leaf, i in zip(leaves, inputs)])
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        for i, leaf in enumerate(leaves):
            tensors[f"{name}/in{i}"] = leaf
        for i, y in enumerate(outs):
            tensors[f"{name}/out{i}"] = y
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        if all(y.requires_grad for y in outs) and wanted:
            dys = [torch.randn(y.shape, dtype=torch.float64).to(y.dtype) for y in outs]
            grads = torch.autograd.grad(outs, wanted, dys, allow_unused=True)
            for i, dy in enumerate(dys):
                tensors[f"{name}/dy{i}"] = dy
            at = iter(grads)
            for i, leaf in enumerate(leaves):
                if leaf.requires_grad:
                    g = next(at)
                    tensors[f"{name}/grad{i}"] = torch.zeros_like(leaf) if g is None else g
        cases.append({"name": name, "op": op, "attrs": attrs,
                      "in": [{"view": i.view, "grad": f"{name}/grad{k}" in tensors}
                             for k, i in enumerate(inputs)],
                      "out": len(outs)})


def write(path, tensors, cases):
    header, data = {"__metadata__": {"cases": json.dumps(cases, separators=(",", ":")),
                                     "made_with": "PyTorch " + torch.__version__.split("+")[0]}}, []
    offset = 0
    for name in sorted(tensors):
        t = tensors[name].detach().contiguous()
        raw = t.numpy().tobytes()
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        data.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


# Shapes that every elementwise op sees: odd sizes, size 1, size 0, a scalar, strides.
def shapes(**kw):
    return [In(5, 7, **kw), In(1, 3, **kw), In(0, 4, **kw), In(**kw), In(67, **kw),
            In(3, 5, view=["transpose", 0, 1], **kw), In(4, 9, view=["slice", 1, 1, 8, 2], **kw)]


def unary():
    rows = {
        "neg": (torch.neg, {}), "abs": (torch.abs, {}), "exp": (torch.exp, {}),
        "log": (torch.log, dict(low=0.1, high=3)), "sqrt": (torch.sqrt, dict(low=0.1, high=3)),
        "rsqrt": (torch.rsqrt, dict(low=0.1, high=3)), "sin": (torch.sin, dict(low=-9, high=9)),
        "cos": (torch.cos, dict(low=-9, high=9)), "tanh": (torch.tanh, dict(low=-4, high=4)),
        "sigmoid": (torch.sigmoid, dict(low=-8, high=8)), "relu": (torch.relu, {}),
        "gelu": (F.gelu, dict(low=-5, high=5)),
        "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), dict(low=-5, high=5)),
        "silu": (F.silu, dict(low=-8, high=8)), "erf": (torch.erf, dict(low=-3, high=3)),
        "square": (torch.square, {}), "reciprocal": (torch.reciprocal, dict(low=0.2, high=3)),
    }
    for op, (function, kw) in rows.items():
        for x in shapes(**kw):
            case("elementwise", op, function, [x])


def binary():
    positive = dict(low=0.2, high=2)
    rows = {"add": (torch.add, {}, {}), "sub": (torch.sub, {}, {}), "mul": (torch.mul, {}, {}),
            "div": (torch.div, {}, positive), "pow": (torch.pow, positive, {}),
            "maximum": (torch.maximum, {}, {}), "minimum": (torch.minimum, {}, {})}
    pairs = [((3, 5), (3, 5), None), ((3, 5), (5,), None), ((2, 1, 4), (3, 1), None),
             ((), (3, 1), None), ((0, 3), (1, 3), None), ((1,), (1,), None),
             ((5, 3), (3, 5), ["transpose", 0, 1]), ((6, 5), (3, 5), ["slice", 0, 1, 6, 2])]
    for op, (function, a_kw, b_kw) in rows.items():
        for a, b, view in pairs:
            case("elementwise", op, function, [In(*a, view=view, **a_kw), In(*b, **b_kw)])
    scalars = {"add": lambda x: x + 1.5, "sub": lambda x: x - 1.5, "mul": lambda x: x * 1.5,
               "div": lambda x: x / 1.5, "pow": lambda x: x ** 1.5,
               "maximum": lambda x: torch.clamp(x, min=1.5),
               "minimum": lambda x: torch.clamp(x, max=1.5),
               "rsub": lambda x: 1.5 - x, "rdiv": lambda x: 1.5 / x}
    for op, function in scalars.items():
        for x in [In(3, 5, **positive), In(0, 2, **positive),
                  In(4, 3, view=["transpose", 0, 1], **positive)]:
            case("elementwise", op + "_scalar", function, [x], value=1.5)
    compare = {"equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le,
               "greater": torch.gt, "greater_equal": torch.ge}
    for op, function in compare.items():
        for a, b in [((3, 5), (3, 5)), ((4, 1), (3,)), ((0,), (1,))]:
            # Rounded to integers, so that some are equal.
            case("elementwise", op, lambda x, y, f=function: f(x.round(), y.round()),
                 [In(*a), In(*b)])


def select():
    for c, a, b in [((3, 5), (3, 5), (3, 5)), ((5,), (3, 1), ()), ((0, 2), (2,), (1, 1))]:
        case("elementwise", "where", torch.where, [In(*c, mask=True), In(*a), In(*b)])
    case("elementwise", "where", torch.where,
         [In(5, 3, mask=True, view=["transpose", 0, 1]), In(3, 5), In(6, 5, view=["slice", 0, 0, 6, 2])])
    for x, m in [((3, 5), (3, 5)), ((2, 3, 5), (3, 1)), ((0, 5), (5,))]:
        case("elementwise", "masked_fill", lambda x, m: x.masked_fill(m, -2.5),
             [In(*x), In(*m, mask=True)], value=-2.5)
    for x in shapes():
        case("elementwise", "contiguous", lambda x: x.contiguous(), [x])
    case("elementwise", "cast", lambda x: x.to(torch.float32), [In(3, 5)], dtypes=[torch.float64],
         dtype="f32")
    case("elementwise", "cast", lambda x: x.to(torch.float64), [In(3, 5)], dtypes=[torch.float32],
         dtype="f64")
    case("elementwise", "cast", lambda x: x.to(torch.int64), [In(3, 5, low=-9, high=9)], dtype="i64",
         label="toint")


def matmul():
    pairs = [((8,), (8,)), ((4, 8), (8,)), ((8,), (8, 3)), ((1, 1), (1, 1)), ((5, 7), (7, 3)),
             ((33, 17), (17, 19)), ((2, 5, 7), (7, 3)), ((2, 5, 7), (2, 7, 3)), ((5, 7), (2, 7, 3)),
             ((2, 1, 4, 8), (3, 8, 5)), ((3, 2, 4, 5), (1, 2, 5, 6)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)),
             ((0, 4), (4, 3)), ((3, 0), (0, 4)), ((0, 2, 3), (0, 3, 2)), ((2, 0, 3), (3, 4))]
    for a, b in pairs:
        case("matmul", "matmul", torch.matmul, [In(*a), In(*b)])
    for ta in (False, True):
        for tb in (False, True):
            if not (ta or tb):
                continue
            def f(a, b, ta=ta, tb=tb):
                return torch.matmul(a.mT if ta else a, b.mT if tb else b)
            for batch_a, batch_b in [((), ()), ((2,), (2,)), ((2, 1), (3,)), ((2,), ())]:
                a = batch_a + ((7, 5) if ta else (5, 7))
                b = batch_b + ((3, 7) if tb else (7, 3))
                case("matmul", "matmul", f, [In(*a), In(*b)], label=f"[{int(ta)}{int(tb)}]", a=ta, b=tb)
    heads = ["permute", 0, 2, 1, 3]  # [batch, seq, heads, d] seen as [batch, heads, seq, d]
    case("matmul", "matmul", torch.matmul, [In(2, 5, 3, 4, view=heads), In(2, 3, 4, 5)])
    case("matmul", "matmul", lambda q, k: q @ k.mT,
         [In(2, 5, 3, 4, view=heads), In(2, 6, 3, 4, view=heads)], label="[01]", a=False, b=True)
    case("matmul", "matmul", torch.matmul,
         [In(5, 4, view=["transpose", 0, 1]), In(5, 6, view=["slice", 1, 0, 6, 2])])
    case("matmul", "matmul", torch.matmul, [In(1, 4, 5, view=["expand", 3, 4, 5]), In(3, 5, 2)])


def linear():
    for x in [(5, 7), (2, 3, 7), (7,), (0, 7), (1, 1, 7)]:
        for bias in (False, True):
            inputs = [In(*x), In(3, 7)] + [In(3)] * bias
            case("linear", "linear", F.linear, inputs, transpose_weight=True)
            inputs = [In(*x), In(7, 3)] + [In(3)] * bias
            case("linear", "linear", lambda x, w, *b: F.linear(x, w.t(), *b), inputs, label="[in,out]",
                 transpose_weight=False)
    case("linear", "linear", F.linear,
         [In(7, 6, view=["transpose", 0, 1]), In(6, 7, view=["slice", 0, 0, 6, 2]), In(3)],
         transpose_weight=True)


def reduce():
    axes_of = [((3, 5), []), ((3, 5), [0]), ((3, 5), [1]), ((3, 5), [-1]), ((2, 3, 4), [0, 2]),
               ((2, 3, 4), [1]), ((2, 1, 5), [1]), ((4, 300), [1]), ((130, 3), [0]), ((7,), [0])]
    views = [(In(5, 3, view=["transpose", 0, 1]), [1]), (In(4, 9, view=["slice", 1, 1, 8, 2]), [0])]
    inputs = [(In(*s), a) for s, a in axes_of] + views

    def along(function):
        return lambda x, axes, keep: function(x, axes or list(range(x.dim())), keep)

    rows = {"sum": along(lambda x, a, k: torch.sum(x, a, keepdim=k)),
            "mean": along(lambda x, a, k: torch.mean(x, a, keepdim=k)),
            "max": along(lambda x, a, k: torch.amax(x, a, keepdim=k)),
            "min": along(lambda x, a, k: torch.amin(x, a, keepdim=k))}
    for op, function in rows.items():
        for x, axes in inputs:
            for keep in (False, True):
                case("reduce", op, lambda x, f=function, a=axes, k=keep: f(x, a, k), [x],
                     label=f"{axes}{'k' if keep else ''}", axes=axes, keepdim=keep)
    for x, axes in [(In(0, 4), [0]), (In(0, 4), [1]), (In(3, 0), [])]:
        case("reduce", "sum", lambda x, a=axes: rows["sum"](x, a, False), [x], label=f"{axes}",
             axes=axes, keepdim=False)
    for op in ("mean", "max", "min"):
        case("reduce", op, lambda x, f=rows[op]: f(x, [1], False), [In(0, 4)], label="[1]", axes=[1],
             keepdim=False)
    for x, axes in inputs:
        for correction in (0, 1):
            if correction == 1 and axes == [1] and x.shape == (2, 1, 5):
                continue  # one element: nan
            case("reduce", "var",
                 lambda x, a=axes, c=correction: torch.var(x, a or list(range(x.dim())), correction=c),
                 [x], label=f"{axes}c{correction}", axes=axes, correction=correction, keepdim=False)
    for x, axis in [(In(3, 5), 0), (In(3, 5), -1), (In(4, 1), 1), (In(0, 3), 1),
                    (In(5, 3, view=["transpose", 0, 1]), 1)]:
        for keep in (False, True):
            case("reduce", "argmax", lambda x, a=axis, k=keep: torch.argmax(x, a, keepdim=k), [x],
                 label=f"[{axis}]{'k' if keep else ''}", axis=axis, keepdim=keep)
    for x, shape in [((3, 5), (1, 5)), ((2, 3, 5), (3, 1)), ((2, 3), ()), ((0, 3), (1, 3))]:
        case("reduce", "sum_to", lambda x, s=shape: x.sum_to_size(*s) if s else x.sum(), [In(*x)],
             label=f"{list(shape)}", shape=list(shape))


def view():
    for x, dims in [(In(3, 4), [2, -1]), (In(2, 3, 4), [6, 4]), (In(1), []), (In(0, 3), [3, 0]),
                    (In(3, 4, view=["transpose", 0, 1]), [6, 2]),
                    (In(2, 6, view=["transpose", 0, 1]), [3, 2, 2])]:
        case("view", "reshape", lambda x, d=dims: x.reshape(d), [x], label=f"{dims}", shape=dims)
    for x, a, b in [(In(3, 4), 0, 1), (In(2, 3, 4), 0, -1), (In(0, 3), 0, 1), (In(1, 5), 1, 0),
                    (In(3, 6, view=["slice", 1, 0, 6, 2]), 0, 1)]:
        case("view", "transpose", lambda x, a=a, b=b: x.transpose(a, b), [x], axis0=a, axis1=b)
    for x, axes in [(In(2, 3, 4), [2, 0, 1]), (In(2, 3, 4), [1, -1, 0]), (In(1, 0, 2), [1, 2, 0])]:
        case("view", "permute", lambda x, a=axes: x.permute(a), [x], label=f"{axes}", axes=axes)
    for x, axis, begin, end, step in [(In(3, 7), 1, 1, 6, 2), (In(3, 7), 0, 1, 2, 1), (In(5), 0, -3, 9, 1),
                                      (In(3, 7), -1, 4, 4, 1), (In(0, 3), 1, 1, 3, 1),
                                      (In(7, 3, view=["transpose", 0, 1]), 1, 0, 7, 3)]:
        def f(x, axis=axis, begin=begin, end=end, step=step):
            return apply_view(x, ["slice", axis % x.dim(), begin, end, step])
        case("view", "slice", f, [x], label=f"[{axis},{begin}:{end}:{step}]", axis=axis, begin=begin, end=end,
             step=step)
    for x, shape in [(In(3, 1), [3, 4]), (In(1), [2, 3]), (In(), [2]), (In(1, 3), [0, 3]),
                     (In(2, 1, 4), [3, 2, 5, 4])]:
        case("view", "expand", lambda x, s=shape: x.expand(s), [x], label=f"{shape}", shape=shape)
    for x, axis in [(In(3, 1), 1), (In(1, 0), 0), (In(2, 1, 3), -2)]:
        case("view", "squeeze", lambda x, a=axis: x.squeeze(a), [x], axis=axis)
    for x, axis in [(In(3, 2), 0), (In(3, 2), -1), (In(), 0), (In(0), 1)]:
        case("view", "unsqueeze", lambda x, a=axis: x.unsqueeze(a), [x], label=f"[{axis}]", axis=axis)
    for x, axis, index in [(In(3, 4), 0, 2), (In(3, 4), 1, -1), (In(5), 0, 0), (In(2, 0), 0, 1)]:
        case("view", "select", lambda x, a=axis, i=index: x.select(a, i), [x], label=f"[{axis},{index}]",
             axis=axis, index=index)


def join():
    for inputs, axis in [([In(2, 3), In(2, 1)], 1), ([In(2, 3), In(1, 3), In(0, 3)], 0), ([In(3)], 0),
                         ([In(3, 2, view=["transpose", 0, 1]), In(2, 6, view=["slice", 1, 0, 6, 2])], -1)]:
        case("view", "cat", lambda *x, a=axis: torch.cat(x, a), inputs, axis=axis)
    for inputs, axis in [([In(2, 3), In(2, 3)], 0), ([In(2, 3), In(2, 3)], -1), ([In(), In(), In()], 0),
                         ([In(0, 2), In(0, 2)], 1)]:
        case("view", "stack", lambda *x, a=axis: torch.stack(x, a), inputs, label=f"[{axis}]", axis=axis)
    for x, sizes, axis in [(In(2, 6), [1, 2, 3], 1), (In(4, 3), [2, 2], 0), (In(3), [0, 3], 0),
                           (In(6, 2, view=["transpose", 0, 1]), [3, 3], -1), (In(12), [1] * 12, 0)]:
        case("view", "split", lambda x, s=sizes, a=axis: torch.split(x, s, a), [x], label=f"{sizes}",
             sizes=sizes, axis=axis)


def gather():
    for table, ids in [((5, 3), (4,)), ((5, 1), (2, 3)), ((1, 3), ()), ((5, 3), (0,)), ((7, 300), (9,))]:
        case("view", "gather_rows", lambda t, i: t[i], [In(*table), In(*ids, ids=table[0])])
    case("view", "gather_rows", lambda t, i: t[i],
         [In(3, 5, view=["transpose", 0, 1]), In(4, 3, ids=5, view=["slice", 1, 0, 3, 2])])
    for ids, d, rows in [((6,), 3, 4), ((2, 3), 1, 5), ((), 3, 2), ((0,), 2, 3), ((9,), 300, 2)]:
        def f(u, i, d=d, rows=rows):
            return torch.zeros(rows, d, dtype=u.dtype).index_add(0, i.reshape(-1), u.reshape(-1, d))
        case("view", "scatter_add_rows", f, [In(*ids, d), In(*ids, ids=rows)], rows=rows)


def causal_mask(q, k):
    return torch.ones(q, k, dtype=torch.bool).tril(k - q)


def rows():
    for x, axis in [(In(3, 5), -1), (In(3, 5), 0), (In(2, 3, 4), 1), (In(4, 1), 1), (In(0, 3), 1), (In(7), 0),
                    (In(2, 300), -1), (In(5, 3, view=["transpose", 0, 1]), -1),
                    (In(3, 9, view=["slice", 1, 1, 8, 2]), -1)]:
        case("rows", "softmax", lambda x, a=axis: torch.softmax(x, a), [x], label=f"[{axis}]", axis=axis)
        case("rows", "log_softmax", lambda x, a=axis: torch.log_softmax(x, a), [x], label=f"[{axis}]",
             axis=axis)
    case("rows", "softmax", lambda x: torch.softmax(x * 0.35, -1), [In(3, 5)], label="[scale]", axis=-1,
         scale=0.35)
    for x in [(5, 5), (2, 4, 7), (2, 3, 6, 6), (1, 1)]:
        def f(x):
            mask = causal_mask(x.shape[-2], x.shape[-1])
            return torch.softmax((x * 0.5).masked_fill(~mask, -math.inf), -1)
        case("rows", "softmax", f, [In(*x)], label="[causal]", axis=-1, scale=0.5, causal=True)
    for n, c in [(5, 7), (1, 3), (4, 1), (9, 301)]:
        for reduction in ("mean", "sum"):
            case("rows", "cross_entropy", lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r),
                 [In(n, c), In(n, ids=c)], label=f"[{reduction}]", reduction=reduction)
            case("rows", "cross_entropy",
                 lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r, label_smoothing=0.1),
                 [In(n, c), In(n, ids=c)], label=f"[{reduction},smooth]", reduction=reduction,
                 label_smoothing=0.1)
    ignored = [3, -100, 0, 6, -100]
    for smoothing in (0.0, 0.2):
        case("rows", "cross_entropy",
             lambda x, t, s=smoothing: F.cross_entropy(x, t, label_smoothing=s),
             [In(5, 7), In(5, ids=7, values=ignored)], label=f"[ignored,{smoothing}]", reduction="mean",
             label_smoothing=smoothing)
    case("rows", "cross_entropy", lambda x, t: F.cross_entropy(x, t, ignore_index=2, reduction="sum"),
         [In(6, 4), In(6, ids=4)], label="[ignore 2]", reduction="sum", ignore_index=2)
    case("rows", "cross_entropy", lambda x, t: F.cross_entropy(x.reshape(-1, 5), t.reshape(-1)),
         [In(2, 3, 5), In(2, 3, ids=5)], label="[batch]", reduction="mean")
    case("rows", "cross_entropy", F.cross_entropy,
         [In(7, 5, view=["transpose", 0, 1]), In(5, ids=7)], label="[mean]", reduction="mean")
    for x, d in [(In(5, 7), 7), (In(2, 3, 8), 8), (In(1, 2), 2), (In(0, 4), 4), (In(3, 301), 301),
                 (In(6, 4, view=["transpose", 0, 1]), 6), (In(9), 9)]:
        case("rows", "layer_norm", lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
             [x, In(d), In(d)], eps=1e-5)


def attention():
    def sdpa(causal, scale):
        def f(q, k, v):
            mask = causal_mask(q.shape[-2], k.shape[-2]) if causal else None
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return f
    for q, k in [((2, 3, 5, 4), (2, 3, 5, 4)), ((1, 2, 3, 4), (1, 2, 7, 4)), ((1, 1, 1, 1), (1, 1, 1, 1)),
                 ((2, 2, 17, 8), (2, 2, 17, 8))]:
        for causal in (False, True):
            for scale in (None, 0.3):
                case("rows", "attention", sdpa(causal, scale), [In(*q), In(*k), In(*k)],
                     label=f"[{'causal' if causal else 'full'},{scale}]", causal=causal, scale=scale or 0)
    heads = ["permute", 0, 2, 1, 3]
    case("rows", "attention", sdpa(True, None), [In(2, 5, 3, 4, view=heads) for _ in range(3)],
         label="[heads]", causal=True, scale=0)


def main():
    torch.set_num_threads(1)
    for family in (unary, binary, select, matmul, linear, reduce, view, join, gather, rows, attention):
        family()
    folder = os.path.dirname(os.path.abspath(__file__))
    for name, (tensors, cases) in FILES.items():
        path = os.path.join(folder, f"reference_{name}.safetensors")
        write(path, tensors, cases)
        print(f"{os.path.basename(path)}: {len(cases)} cases, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
