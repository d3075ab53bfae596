#!/usr/bin/env python3
"""Writes reference_attention.safetensors: attention of every kind of mask, as PyTorch computes it.

Run it with a Python that has torch; the tests only read what it wrote:

    python3 tests/data/make_attention_references.py

Each case holds, in f64, q [B,Q,H,d], k [B,K,Hkv,d], v [B,K,Hkv,e], dy and out [B,Q,H,e] and the
gradients dq, dk, dv; the list "cases" in the metadata gives its name and options. The mask is made
pair by pair from its definition and given to scaled_dot_product_attention; with a softcap the
formula is written out.
"""
import json
import math
import os
import struct
import zlib

import torch
import torch.nn.functional as F


def mask_of(queries, keys, causal, window, documents):
    document = [n for n, length in enumerate(documents) for _ in range(length)]
    mask = torch.zeros(queries, keys, dtype=torch.bool)
    for i in range(queries):
        position = i + keys - queries
        for j in range(keys):
            sees = not documents or document[i] == document[j]
            if causal:
                sees = sees and j <= position
            if window:
                sees = sees and position - window < j and (causal or j < position + window)
            mask[i, j] = sees
    return mask


def attention(q, k, v, causal, scale, window, documents, softcap):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    mask = mask_of(q.shape[2], k.shape[2], causal, window, documents)
    if not softcap:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale or None)
    else:
        scores = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
        scores = softcap * torch.tanh(scores / softcap)
        y = torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ v
    return y.transpose(1, 2)


TENSORS, CASES = {}, []


def case(name, q, k, e=None, causal=False, scale=0.0, window=0, documents=(), softcap=0.0):
    torch.manual_seed(zlib.crc32(name.encode()))
    batch, keys, kv_heads, d = k
    e = e or d
    x = [torch.randn(s, dtype=torch.float64, requires_grad=True)
         for s in (q, k, (batch, keys, kv_heads, e))]
    options = dict(causal=causal, scale=scale, window=window, documents=list(documents),
                   softcap=softcap)
    out = attention(*x, **options)
    dy = torch.randn(out.shape, dtype=torch.float64)
    out.backward(dy)
    for part, t in zip(("q", "k", "v", "dy", "out", "dq", "dk", "dv"),
                       (*x, dy, out, *(t.grad for t in x))):
        TENSORS[f"{name}/{part}"] = t.detach().contiguous()
    CASES.append(dict(name=name, **options))


def write(path):
    header, blobs, at = {"__metadata__": {"cases": json.dumps(CASES)}}, [], 0
    for name, t in TENSORS.items():
        blob = t.numpy().tobytes()
        header[name] = {"dtype": "F64", "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    torch.set_num_threads(1)
    case("full", (2, 5, 3, 4), (2, 5, 3, 4))
    case("full, scale", (1, 5, 2, 4), (1, 5, 2, 4), scale=0.3)
    case("causal", (2, 6, 2, 4), (2, 6, 2, 4), causal=True)
    case("causal, beyond a tile", (1, 70, 1, 4), (1, 70, 1, 4), causal=True)
    case("fewer queries", (1, 3, 2, 4), (1, 8, 2, 4), causal=True)
    case("fewer keys", (1, 8, 2, 4), (1, 3, 2, 4))
    case("one query", (2, 1, 2, 4), (2, 9, 2, 4), causal=True)
    case("other size of v", (1, 5, 2, 4), (1, 5, 2, 4), e=7, causal=True)
    case("grouped", (2, 5, 6, 4), (2, 5, 2, 4), causal=True)
    case("one head of k", (1, 6, 4, 3), (1, 6, 1, 3), e=5)
    case("window", (1, 9, 2, 4), (1, 9, 2, 4), causal=True, window=3)
    case("window both ways", (1, 9, 2, 4), (1, 9, 2, 4), window=3)
    case("window, fewer queries", (1, 4, 2, 4), (1, 9, 1, 4), causal=True, window=2)
    case("documents", (2, 9, 2, 4), (2, 9, 1, 4), causal=True, documents=(2, 1, 6))
    case("documents both ways", (1, 9, 2, 4), (1, 9, 2, 4), documents=(4, 5))
    case("window in documents", (1, 10, 2, 4), (1, 10, 2, 4), causal=True, window=2, documents=(6, 4))
    case("softcap", (1, 6, 2, 4), (1, 6, 2, 4), causal=True, softcap=1.5)
    case("softcap, scale, grouped", (1, 6, 4, 4), (1, 6, 2, 4), scale=0.9, softcap=2.0, window=4)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference_attention.safetensors")
    write(path)
    print(f"{os.path.basename(path)}: {len(CASES)} cases, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
