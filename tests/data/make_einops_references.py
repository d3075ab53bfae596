#!/usr/bin/env python3
"""Writes reference_einops.safetensors: 300 random patterns with what einops and NumPy make of them.

Run it with a Python that has numpy and einops; the tests only read what it wrote:

    python3 tests/data/make_einops_references.py

A case is one entry of the list "cases" in the file's metadata,

    {"name", "kind": "rearrange"|"reduce"|"repeat"|"einsum", "by", "pattern", "sizes", "in": N}

and the tensors NAME/in0.. (f32) and NAME/out (f64, computed in f64). Each case is drawn from a seed
of its own, so that changing how one kind is drawn changes no other.
"""
import json
import os
import random
import struct

import einops
import numpy as np

COUNTS = {"rearrange": 80, "reduce": 80, "repeat": 50, "einsum": 90}
WORDS = ["b", "t", "h", "d", "seq", "head_dim", "x1", "Y", "c", "q"]
MOST = 96  # elements of an input


class Axis:
    def __init__(self, name, size):
        self.name, self.size = name, size


def draw_axes(rng, low, high):
    axes = [Axis(name, rng.choice([1, 2, 2, 3, 3, 4])) for name in
            rng.sample(WORDS, rng.randint(low, high))]
    while np.prod([a.size for a in axes]) > MOST:
        rng.choice(axes).size = 1
    return axes


def draw_groups(rng, items, most_axes=7):
    """Items in runs: some alone, some in parentheses, with axes of size 1 strewn in."""
    groups, at = [], 0
    while at < len(items):
        take = rng.choice([1, 1, 1, 2, 2, 3])
        groups.append(items[at:at + take])
        at += take
    while len(groups) < most_axes and rng.random() < 0.15:
        groups.insert(rng.randint(0, len(groups)), [])
    return groups


def text_of(rng, groups, ellipsis_free):
    words = []
    for group in groups:
        names = [a if isinstance(a, str) else a.name for a in group]
        if len(group) == 1 and (names[0] == "..." and ellipsis_free or rng.random() < 0.9):
            words.append(names[0])
        elif not group and rng.random() < 0.5:
            words.append("1")
        else:
            if rng.random() < 0.1:
                names.insert(rng.randint(0, len(names)), "1")
            words.append("(" + " ".join(names) + ")")
    return (" " if rng.random() < 0.8 else "  ").join(words)


def draw_left(rng, axes):
    """Pattern, dims, sizes to give, and the axes that "..." hides (None without one)."""
    groups = draw_groups(rng, axes)
    hidden = None
    if rng.random() < 0.35:
        begin = rng.randint(0, len(groups))
        end = rng.randint(begin, min(len(groups), begin + 2))
        hidden = groups[begin:end]
        shown = groups[:begin] + [["..."]] + groups[end:]
    else:
        shown = groups
    dims = [int(np.prod([a.size for a in g])) for g in groups]
    sizes = {}
    for group in shown:
        named = [a for a in group if not isinstance(a, str)]
        free = rng.choice(named) if named and rng.random() < 0.9 else None
        for a in named:
            if a is not free and not a.name.isdigit():
                sizes[a.name] = a.size
    return text_of(rng, shown, True), dims, sizes, hidden, shown


def visible(shown):
    return [a for g in shown for a in g if not isinstance(a, str)]


def draw_transform(rng, kind):
    axes = draw_axes(rng, 1, 5)
    if kind == "reduce" and rng.random() < 0.3:
        axes.insert(rng.randint(0, len(axes)), Axis("2", 2))
    left, dims, sizes, hidden, shown = draw_left(rng, axes)
    right = visible(shown)
    if kind == "reduce":
        right = [a for a in right if rng.random() < 0.5 and not a.name.isdigit()]
    rng.shuffle(right)
    if kind != "rearrange" and rng.random() < 0.2:
        right = sorted(right, key=lambda a: a.name)
    if hidden is not None and (kind != "reduce" or rng.random() < 0.7):
        right.insert(rng.randint(0, len(right)), "...")
    if kind == "repeat":
        for _ in range(rng.randint(1, 2)):
            if rng.random() < 0.3:
                new = Axis(str(rng.choice([2, 3])), 0)
            else:
                name = rng.choice([w for w in WORDS if w not in [a.name for a in axes] + list(sizes)])
                new = Axis(name, rng.choice([1, 2, 3]))
                sizes[name] = new.size
            right.insert(rng.randint(0, len(right)), new)
    return left + " -> " + text_of(rng, draw_groups(rng, right), rng.random() < 0.7), dims, sizes


def draw_einsum(rng):
    labels = draw_axes(rng, 2, 6)
    letters = dict(zip([a.name for a in labels], "ijklmn"))
    hidden = [rng.choice([1, 2, 3]) for _ in range(rng.randint(1, 2))] if rng.random() < 0.3 else None
    operands, shapes, used = [], [], []
    for _ in range(rng.choice([1, 2, 2, 2, 3, 3, 4])):
        axes = rng.sample(labels, rng.randint(0 if rng.random() < 0.1 else 1, min(4, len(labels))))
        if axes and rng.random() < 0.15:
            axes.insert(rng.randint(0, len(axes)), rng.choice(axes))
        small = {a.name: 1 if rng.random() < 0.08 else a.size for a in axes}
        names, dims = [a.name for a in axes], [small[a.name] for a in axes]
        if hidden is not None and rng.random() < 0.7:
            tail = [1 if rng.random() < 0.2 else n for n in hidden[rng.randint(0, len(hidden)):]]
            at = rng.randint(0, len(names))
            names.insert(at, "...")
            dims[at:at] = tail
        used += [n for n in dict.fromkeys(names) if n not in used]
        operands.append(names)
        shapes.append(dims)
    out = [n for n in used if n == "..." or rng.random() < 0.5]
    rng.shuffle(out)
    classic = ",".join("".join(letters.get(n, n) for n in names) for names in operands)
    classic += "->" + "".join(letters.get(n, n) for n in out)
    if rng.random() < 0.3:
        return classic, classic, shapes
    return ", ".join(map(" ".join, operands)) + " -> " + " ".join(out), classic, shapes


def make(kind, index):
    rng = random.Random(f"{kind} {index}")
    values = np.random.default_rng(rng.getrandbits(32))
    case = {"name": f"{kind}{index}", "kind": kind, "by": "", "sizes": {}}
    if kind == "einsum":
        case["pattern"], classic, shapes = draw_einsum(rng)
        inputs = [values.standard_normal(s).astype(np.float32) for s in shapes]
        out = np.einsum(classic, *[x.astype(np.float64) for x in inputs])
    else:
        case["pattern"], dims, case["sizes"] = draw_transform(rng, kind)
        inputs = [values.standard_normal(dims).astype(np.float32)]
        x = inputs[0].astype(np.float64)
        if kind == "reduce":
            case["by"] = ["sum", "mean", "max", "min", "prod"][index % 5]
            out = einops.reduce(x, case["pattern"], case["by"], **case["sizes"])
        else:
            out = getattr(einops, kind)(x, case["pattern"], **case["sizes"])
    case["in"] = len(inputs)
    return case, inputs, np.asarray(out, dtype=np.float64)


def main():
    cases, tensors = [], {}
    for kind, count in COUNTS.items():
        for index in range(count):
            case, inputs, out = make(kind, index)
            cases.append(case)
            for i, x in enumerate(inputs):
                tensors[f"{case['name']}/in{i}"] = x
            tensors[f"{case['name']}/out"] = out
    header = {"__metadata__": {"cases": json.dumps(cases, separators=(",", ":")),
                               "made_with": f"einops {einops.__version__}, NumPy {np.__version__}"}}
    data, offset = [], 0
    for name in sorted(tensors):
        raw = np.ascontiguousarray(tensors[name]).tobytes()
        header[name] = {"dtype": "F32" if tensors[name].dtype == np.float32 else "F64",
                        "shape": list(tensors[name].shape), "data_offsets": [offset, offset + len(raw)]}
        data.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference_einops.safetensors")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    print(f"{len(cases)} cases, {os.path.getsize(path)} bytes in {os.path.basename(path)}")


if __name__ == "__main__":
    main()
