#!/usr/bin/env python3
"""Writes reference_norms.safetensors: norms, position, gating and losses as PyTorch computes them.

    python3 tests/data/make_norms_references.py

Form and helpers are those of make_references.py. Where PyTorch has no such function (rope, rms_norm
with an offset) the reference is the formula of the paper or of the published model, in PyTorch ops.
"""
import math
import os

import torch
import torch.nn.functional as F

from make_references import FILES, In, case, write

FILE = "norms"


def rms_norm(x, *weight, eps, offset):
    # As Llama and Gemma publish it: normalise, then scale by the weight or by 1 + weight.
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y * (offset + weight[0]) if weight else y


def frequencies(dim, theta, scaling=None):
    f = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if scaling is None:
        return f
    kind, factor, *rest = scaling
    if kind == "linear":
        return f / factor
    low, high, context = rest
    # The loop of Meta's apply_scaling.
    scaled = []
    for freq in f.tolist():
        wavelength = 2 * math.pi / freq
        if wavelength < context / high:
            scaled.append(freq)
        elif wavelength > context / low:
            scaled.append(freq / factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * freq / factor + smooth * freq)
    return torch.tensor(scaled, dtype=torch.float64)


def rope(x, dim, theta, interleaved, axis, offset=0, documents=None, scaling=None):
    count = x.shape[axis]
    places = (torch.cat([torch.arange(n) for n in documents]) if documents else torch.arange(count))
    angles = torch.outer((places + offset).to(torch.float64), frequencies(dim, theta, scaling))
    turned, rest = x[..., :dim], x[..., dim:]
    shape = [1] * x.dim()
    shape[axis] = count
    if interleaved:
        # Complex numbers, as Meta's apply_rotary_emb.
        shape[-1] = dim // 2
        turns = torch.polar(torch.ones_like(angles), angles).view(shape)
        pairs = torch.view_as_complex(turned.to(torch.float64).reshape(*x.shape[:-1], -1, 2))
        y = torch.view_as_real(pairs * turns).flatten(-2)
    else:
        # Halves, as Hugging Face's rotate_half.
        shape[-1] = dim
        cos = torch.cat([angles.cos(), angles.cos()], -1).view(shape)
        sin = torch.cat([angles.sin(), angles.sin()], -1).view(shape)
        x64 = turned.to(torch.float64)
        half = torch.cat([-x64[..., dim // 2:], x64[..., :dim // 2]], -1)
        y = x64 * cos + half * sin
    return torch.cat([y.to(x.dtype), rest], -1)


def norms():
    for shape in [(5, 7), (2, 3, 33), (4, 1)]:
        for eps, offset in [(1e-6, 0.0), (1e-5, 1.0)]:
            case(FILE, "rms_norm", lambda x, w, e=eps, o=offset: rms_norm(x, w, eps=e, offset=o),
                 [In(*shape), In(shape[-1])], label=f"o{offset:g}", eps=eps, offset=offset)
        case(FILE, "rms_norm", lambda x: rms_norm(x, eps=1e-6, offset=0), [In(*shape)], label="plain",
             eps=1e-6, offset=0.0)
    if hasattr(F, "rms_norm"):
        case(FILE, "rms_norm", lambda x, w: F.rms_norm(x, (12,), w, eps=1e-6), [In(3, 12), In(12)],
             label="functional", eps=1e-6, offset=0.0)


def ropes():
    llama3 = ("llama3", 8.0, 1.0, 4.0, 64)
    rows = [
        (In(2, 9, 3, 8), dict(dim=8, theta=10000.0, interleaved=False, axis=-3)),
        (In(2, 9, 3, 8), dict(dim=8, theta=10000.0, interleaved=True, axis=-3)),
        (In(2, 3, 9, 12), dict(dim=6, theta=500000.0, interleaved=False, axis=-2, offset=70)),
        (In(1, 70, 1, 10), dict(dim=10, theta=100.0, interleaved=True, axis=-3)),
        (In(2, 9, 3, 8), dict(dim=8, theta=10000.0, interleaved=False, axis=-3,
                              documents=[4, 3, 2])),
        (In(1, 20, 2, 16), dict(dim=16, theta=10000.0, interleaved=False, axis=-3,
                                scaling=("linear", 4.0))),
        (In(1, 40, 2, 16), dict(dim=16, theta=10000.0, interleaved=True, axis=-3, scaling=llama3)),
        (In(2, 3, 9, 8, view=["transpose", 1, 2]),
         dict(dim=8, theta=10000.0, interleaved=False, axis=-3)),
        (In(2, 9, 3, 16, view=["slice", 3, 4, 12, 1]),
         dict(dim=8, theta=10000.0, interleaved=False, axis=-3)),
    ]
    for i, (x, attrs) in enumerate(rows):
        case(FILE, "rope", lambda x, a=attrs: rope(x, **a), [x], label=f"#{i}", **attrs)


def gates():
    rows = {"swiglu": F.silu, "geglu": F.gelu,
            "geglu_tanh": lambda x: F.gelu(x, approximate="tanh")}
    for op, act in rows.items():
        for shape in [(5, 7), (0, 4), (67,)]:
            case(FILE, op, lambda a, b, f=act: f(a) * b, [In(*shape, low=-5, high=5), In(*shape)])
        case(FILE, op, lambda a, b, f=act: f(a) * b,
             [In(4, 18, view=["slice", 1, 0, 9, 1]), In(4, 18, view=["slice", 1, 9, 18, 1])])


def activations():
    rows = {"relu2": lambda x: F.relu(x).square(), "softplus": F.softplus,
            "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x)}
    for op, function in rows.items():
        for shape in [(5, 7), (0, 4), (), (67,)]:
            case(FILE, op, function, [In(*shape, low=-8, high=8)])


def losses():
    for axes, keep, shape in [([1], False, (3, 7)), ([0], True, (3, 7)), ([0, 1], False, (3, 7)),
                              ([1], False, (2, 5, 3)), ([0, 2], True, (2, 5, 3)), ([-1], False, (0, 4))]:
        case(FILE, "logsumexp", lambda x, a=axes, k=keep: torch.logsumexp(x, a, keepdim=k),
             [In(*shape, low=-20, high=20)], label=f"a{'_'.join(map(str, axes))}", axes=axes, keepdim=keep)
    for reduction in ["none", "mean", "sum"]:
        for shape in [(3, 5), (7,)]:
            case(FILE, "mse_loss", lambda x, t, r=reduction: F.mse_loss(x, t, reduction=r),
                 [In(*shape), In(*shape)], label=reduction, reduction=reduction)
    for reduction in ["none", "mean", "sum", "batchmean"]:
        for log_target in [False, True]:
            target = dict(low=-3, high=0) if log_target else dict(low=0.01, high=1)
            case(FILE, "kl_div",
                 lambda x, t, r=reduction, l=log_target: F.kl_div(x, t, reduction=r, log_target=l),
                 [In(4, 5, low=-4, high=0), In(4, 5, **target)],
                 label=reduction + ("log" if log_target else ""), reduction=reduction,
                 log_target=log_target)


def main():
    norms(), ropes(), gates(), activations(), losses()
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, f"reference_{FILE}.safetensors")
    write(path, *FILES[FILE])
    print(f"{path}: {len(FILES[FILE][1])} cases, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
