#!/usr/bin/env python3
"""Writes reference_optimizers.safetensors: 20 steps of PyTorch's optimizers in f64.

    python3 tests/data/make_optimizer_references.py

Every case starts from "start" and sees the rows of "gradients"; the rows of NAME/after are the
parameter after each step. The metadata's "cases" gives each case's optimizer and the options that
differ from PyTorch's defaults.
"""
import os

import torch

from make_references import write

CASES = [
    ("sgd", torch.optim.SGD, [
        {},
        dict(lr=0.1, weight_decay=0.1),
        dict(lr=0.1, momentum=0.9),
        dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.05),
        dict(lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.05),
    ]),
    ("adagrad", torch.optim.Adagrad, [
        {},
        dict(lr=0.3, lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.2, eps=1e-3),
    ]),
    ("rmsprop", torch.optim.RMSprop, [
        {},
        dict(lr=0.05, alpha=0.9, weight_decay=0.05, eps=1e-3),
        dict(lr=0.05, momentum=0.9),
        dict(lr=0.05, alpha=0.8, centered=True, eps=0.1),
        dict(lr=0.05, alpha=0.8, centered=True, momentum=0.7, weight_decay=0.05, eps=0.1),
    ]),
    ("adam", torch.optim.Adam, [
        {},
        dict(lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    ]),
    ("adamw", torch.optim.AdamW, [
        {},
        dict(lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    ]),
]


def main():
    torch.manual_seed(4)
    start = torch.randn(6, dtype=torch.float64)
    gradients = torch.randn(20, 6, dtype=torch.float64)
    gradients[:, 4] *= 1e-4
    gradients[3:7, 5] = 0
    tensors, cases = {"start": start, "gradients": gradients}, []
    for optimizer, make, all_options in CASES:
        for number, options in enumerate(all_options):
            p = start.clone().requires_grad_()
            stepper, after = make([p], foreach=False, **options), []
            for g in gradients:
                p.grad = g.clone()
                stepper.step()
                after.append(p.detach().clone())
            name = f"{optimizer}.{number}"
            tensors[f"{name}/after"] = torch.stack(after)
            cases.append({"name": name, "optimizer": optimizer, "options": options})
    folder = os.path.dirname(os.path.abspath(__file__))
    write(os.path.join(folder, "reference_optimizers.safetensors"), tensors, cases)


if __name__ == "__main__":
    main()
