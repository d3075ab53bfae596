#!/usr/bin/env python3
"""Writes reference_images.safetensors (the ops on images: values and gradients, as PyTorch computes
them, in the form of make_references.py) and reference_cnn.safetensors (one training step of a small
network, in f64 and in f32).

    python3 tests/data/make_cnn_references.py

Of the network the file holds, under "f64/" and "f32/": the inputs "x" and "targets", every parameter
by its name, "logits", "loss", "grad/NAME" and the running statistics after the step.
"""
import os

import torch
import torch.nn.functional as F

from make_references import FILES, NAMES, In, case, write


def conv():
    rows = [((2, 3, 5, 6), (4, 3, 3, 3), {}), ((1, 4, 7, 8), (6, 2, 3, 2), dict(stride=(2, 1), padding=(1, 2),
             dilation=(1, 2), groups=2)), ((2, 4, 5, 5), (4, 1, 3, 3), dict(groups=4)),
            ((2, 3, 6, 5), (6, 1, 3, 3), dict(stride=(2, 2), padding=(1, 1), groups=3)),
            ((2, 3, 6, 9), (5, 3, 2, 3), dict(stride=(2, 3))), ((2, 5, 3, 4), (2, 5, 1, 1), {}),
            ((1, 2, 4, 4), (3, 2, 4, 4), dict(padding=(2, 2)))]
    for x, w, kw in rows:
        for bias in (False, True):
            case("images", "conv2d", lambda *t, kw=kw: F.conv2d(*t, **kw), [In(*x), In(*w)] + [In(w[0])] * bias,
                 label=str(sorted(kw)), **kw)
    case("images", "conv2d", F.conv2d, [In(5, 6, 2, 3, view=["permute", 2, 3, 0, 1]), In(4, 3, 3, 3)])
    for x, w, kw in [((2, 3, 9), (4, 3, 3), {}), ((2, 4, 9), (6, 2, 3), dict(stride=2, padding=1, groups=2)),
                     ((1, 4, 12), (4, 1, 3), dict(dilation=2, groups=4))]:
        case("images", "conv1d", lambda *t, kw=kw: F.conv1d(*t, **kw), [In(*x), In(*w), In(w[0])], **kw)


def pool():
    for x, kw in [((2, 3, 4, 6), dict(kernel=(2, 2))),
                  ((2, 2, 7, 8), dict(kernel=(3, 2), stride=(2, 1), padding=(1, 1))),
                  ((1, 2, 9, 7), dict(kernel=(2, 3), stride=(1, 2), padding=(1, 1), dilation=(2, 2))),
                  ((1, 1, 5, 5), dict(kernel=(3, 3), stride=(1, 1), padding=(1, 1)))]:
        def maximum(x, kw=kw):
            return F.max_pool2d(x, kw["kernel"], kw.get("stride"), kw.get("padding", 0), kw.get("dilation", 1))
        case("images", "max_pool2d", maximum, [In(*x)], **kw)
        if "dilation" in kw:
            continue
        for pad in (False, True):
            def average(x, kw=kw, pad=pad):
                return F.avg_pool2d(x, kw["kernel"], kw.get("stride"), kw.get("padding", 0),
                                    count_include_pad=pad)
            case("images", "avg_pool2d", average, [In(*x)], label=str(pad), count_include_pad=pad, **kw)
    case("images", "max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1), [In(2, 3, 8)], kernel=3, stride=2, padding=1)
    case("images", "avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), [In(2, 3, 8)], kernel=3, stride=2, padding=1)


def norm():
    for x in [(3, 4, 2, 5), (6, 3), (2, 4, 7)]:
        case("images", "batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
             [In(*x), In(x[1]), In(x[1])])
        for groups in (1, x[1]) if x[1] % 2 else (1, 2, x[1]):
            if groups == x[1] and len(x) == 2:
                continue  # sets of one element
            case("images", "group_norm", lambda x, w, b, g=groups: F.group_norm(x, g, w, b),
                 [In(*x), In(x[1]), In(x[1])], label=str(groups), groups=groups)


SHAPES = {"conv1.weight": (8, 3, 3, 3), "conv1.bias": (8,), "bn.weight": (8,), "bn.bias": (8,),
          "conv2.weight": (12, 4, 3, 3), "conv2.bias": (12,), "gn.weight": (12,), "gn.bias": (12,),
          "fc.weight": (5, 108), "fc.bias": (5,)}


def network(dtype):
    torch.manual_seed(20)
    made = {name: torch.randn(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    for name, value in made.items():
        fan_in = value[0].numel() if value.dim() > 1 else 4
        made[name] = (value / fan_in ** 0.5 + (name in ("bn.weight", "gn.weight"))).to(dtype)
    x = torch.randn(4, 3, 12, 12, dtype=torch.float64).to(dtype)
    targets = torch.tensor([1, 4, 0, 2])
    p = {name: value.clone().requires_grad_() for name, value in made.items()}
    mean, var = torch.zeros(8, dtype=dtype), torch.ones(8, dtype=dtype)
    h = F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=1)
    h = F.relu(F.batch_norm(h, mean, var, p["bn.weight"], p["bn.bias"], training=True))
    h = F.max_pool2d(h, 2)
    h = F.conv2d(h, p["conv2.weight"], p["conv2.bias"], padding=2, dilation=2, groups=2)
    h = F.relu(F.group_norm(h, 3, p["gn.weight"], p["gn.bias"]))
    logits = F.linear(F.avg_pool2d(h, 2).flatten(1), p["fc.weight"], p["fc.bias"])
    loss = F.cross_entropy(logits, targets)
    grads = torch.autograd.grad(loss, list(p.values()))
    tensors = dict(made, x=x, targets=targets, logits=logits, loss=loss)
    tensors.update({"bn.running_mean": mean, "bn.running_var": var})
    tensors.update({f"grad/{name}": g for name, g in zip(p, grads)})
    return {f"{NAMES[dtype].lower()}/{name}": t for name, t in tensors.items()}


def main():
    torch.set_num_threads(1)
    for family in (conv, pool, norm):
        family()
    folder = os.path.dirname(os.path.abspath(__file__))
    files = {"images": FILES["images"], "cnn": ({**network(torch.float64), **network(torch.float32)}, [])}
    for name, (tensors, cases) in files.items():
        path = os.path.join(folder, f"reference_{name}.safetensors")
        write(path, tensors, cases)
        print(f"{os.path.basename(path)}: {len(tensors)} tensors, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
