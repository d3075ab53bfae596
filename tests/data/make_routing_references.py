#!/usr/bin/env python3
"""Writes reference_routing.safetensors: ops that choose by data, running sums and products, and a
layer of experts, as PyTorch computes them. The form is that of make_references.py.

    python3 tests/data/make_routing_references.py
"""
import os

import torch
import torch.nn.functional as F

from make_references import FILES, In, case, write


class WithZeros(In):
    """Every third element is 0."""

    def make(self, dtype):
        x = super().make(dtype).flatten()
        x[1::3] = 0
        return x.reshape(self.shape)


def topk():
    inputs = [(In(3, 5), 2), (In(2, 3, 8), 8), (In(67), 10), (In(0, 4), 1), (In(4, 200), 7),
              (In(5, 3, view=["transpose", 0, 1]), 2)]
    for x, k in inputs:
        case("routing", "topk", lambda x, k=k: torch.topk(x, k).values, [x], label=f"[{k}]", k=k)
        case("routing", "topk_indices", lambda x, k=k: torch.topk(x, k).indices, [x],
             label=f"[{k}]", k=k)


def axis_index():
    rows = [(In(3, 5), 1, (3, 2)), (In(4, 3), 0, (6, 2)), (In(2, 3, 4), 1, (2, 5, 3)),
            (In(2, 3, 4, 2), -2, (1, 3, 6, 2)), (In(7), 0, (3,)), (In(3, 5), 1, (3, 0)),
            (In(5, 3, view=["transpose", 0, 1]), 1, (3, 4))]
    for x, axis, shape in rows:
        data = [x.shape[1], x.shape[0]] if x.view else x.shape
        index = In(*shape, ids=data[axis])
        case("routing", "gather", lambda x, i, axis=axis: torch.gather(x, axis, i), [x, index],
             label=f"[{axis}]", axis=axis)
        case("routing", "scatter_add",
             lambda x, i, u, axis=axis: torch.scatter_add(x, axis, i, u), [x, index, In(*shape)],
             label=f"[{axis}]", axis=axis)
        if not x.view:
            case("routing", "scatter_add_zeros",
                 lambda i, u, axis=axis, data=tuple(data): torch.zeros(
                     data, dtype=u.dtype).scatter_add(axis, i, u), [index, In(*shape)],
                 label=f"[{axis}]", axis=axis, shape=list(data))


def running():
    def cumsum(x, axis, reverse):
        return x.flip(axis).cumsum(axis).flip(axis) if reverse else x.cumsum(axis)
    rows = [(In(7), 0), (In(3, 5), -1), (In(3, 5), 0), (In(2, 3, 4), 1), (In(0, 4), 1), (In(6, 70), 1),
            (In(5, 3, view=["transpose", 0, 1]), 1)]
    for x, axis in rows:
        for reverse in (False, True):
            case("routing", "cumsum", lambda x, a=axis, r=reverse: cumsum(x, a, r), [x],
                 label=f"[{axis},{reverse}]", axis=axis, reverse=reverse)

    def prod(x, axes, keepdim):
        for axis in sorted((a % x.dim() for a in axes or range(x.dim())), reverse=True):
            x = x.prod(axis, keepdim=keepdim)
        return x
    for kind, label in ((In, ""), (WithZeros, "zeros")):
        for shape, axes in [((7,), []), ((3, 5), []), ((3, 5), [0]), ((3, 5), [-1]),
                            ((2, 3, 4), [1]), ((2, 3, 4), [0, 2]), ((2, 3, 2, 2), [1, 2])]:
            for keepdim in (False, True):
                case("routing", "prod", lambda x, a=axes, k=keepdim: prod(x, a, k),
                     [kind(*shape)], label=f"{label}{axes}{keepdim}", axes=axes, keepdim=keepdim)


def grouped(x, w, offsets, transpose_w):
    parts = []
    for e, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist())):
        parts.append(x[begin:end] @ (w[e].T if transpose_w else w[e]))
    return torch.cat(parts)


def experts():
    for offsets in ([0, 3, 7, 9], [0, 0, 9, 9], [0, 2, 2, 9]):
        groups = In(4, values=offsets, ids=9)
        case("routing", "grouped_matmul", lambda x, w, o: grouped(x, w, o, False),
             [In(9, 5), In(3, 5, 4), groups], label=str(offsets), transpose_w=False)
        case("routing", "grouped_matmul", lambda x, w, o: grouped(x, w, o, True),
             [In(5, 9, view=["transpose", 0, 1]), In(3, 4, 5), groups], label=str(offsets),
             transpose_w=True)

    def layer(x, router, gate, up, down, k):
        weights, chosen = torch.topk(F.softmax(x @ router.T, -1), k)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for e in range(router.shape[0]):
            tokens, choice = torch.where(chosen == e)
            rows = x[tokens]
            out = (F.silu(rows @ gate[e].T) * (rows @ up[e].T)) @ down[e].T
            y = y.index_add(0, tokens, out * weights[tokens, choice, None])
        return y
    for k in (1, 2, 4):
        case("routing", "moe", lambda *x, k=k: layer(*x, k=k),
             [In(11, 6), In(4, 6), In(4, 5, 6), In(4, 5, 6), In(4, 6, 5)], label=f"[{k}]", k=k)


def main():
    torch.set_num_threads(1)
    for family in (topk, axis_index, running, experts):
        family()
    tensors, cases = FILES["routing"]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "reference_routing.safetensors")
    write(path, tensors, cases)
    print(f"{os.path.basename(path)}: {len(cases)} cases, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
