"""What the families are made of, written out so that each formula can be read.

x is [batch, sequence, width]; heads are [batch, heads, sequence, head size]; everything is f64.
"""
import math
import zlib

import torch


class Weights:
    """The parameters of one case by their published names, made when first asked for.

    Each is drawn from its own seed and holds values that f32 holds too, none of them where a wrong
    formula could hide: norm weights are not one, biases are not zero.
    """

    def __init__(self, case, adapters=None):
        self.case, self.adapters, self.tensors = case, adapters, {}

    def draw(self, name, shape, mean, spread):
        if name not in self.tensors:
            generator = torch.Generator().manual_seed(zlib.crc32(f"{self.case}/{name}".encode()))
            values = mean + spread * torch.randn(shape, generator=generator, dtype=torch.float64)
            self.tensors[name] = values.to(torch.float32).to(torch.float64).requires_grad_()
        assert list(self.tensors[name].shape) == list(shape), name
        return self.tensors[name]

    def rounded(self):
        """The same parameters in f32."""
        copy = Weights(self.case, self.adapters)
        copy.tensors = {name: value.detach().to(torch.float32).requires_grad_()
                        for name, value in self.tensors.items()}
        return copy

    def matrix(self, name, *shape, inputs=None):
        """Rows that keep the size of what they multiply; `inputs` where it is not the last axis."""
        return self.draw(name, shape, 0.0, 1 / math.sqrt(inputs or shape[-1]))

    def table(self, name, *shape):
        """Embeddings: rows of any size will do, small enough that a tied head is not all or nothing."""
        return self.draw(name, shape, 0.0, 0.5)

    def vector(self, name, size, mean=0.0):
        return self.draw(name, [size], mean, 0.3)


def linear(w, name, x, out, bias=True):
    """y = x Wᵀ + b, W [out, in]; with adapters of rank r also (alpha / r) (x Aᵀ) Bᵀ."""
    y = x @ w.matrix(name + ".weight", out, x.shape[-1]).T
    if bias:
        y = y + w.vector(name + ".bias", out)
    if w.adapters and name != "lm_head":
        rank, alpha = w.adapters
        a = w.matrix(name + ".lora_A.weight", rank, x.shape[-1])
        b = w.draw(name + ".lora_B.weight", (out, rank), 0.0, 0.2)  # adds less than W does
        y = y + (alpha / rank) * ((x @ a.T) @ b.T)
    return y


def layer_norm(w, name, x, eps):
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
    size = x.shape[-1]
    return normed * w.vector(name + ".weight", size, mean=1.0) + w.vector(name + ".bias", size)


def rms_norm(w, name, x, eps, offset=0.0):
    """The weight is `offset` + the stored one: Gemma stores what it adds to one."""
    normed = x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)
    return normed * (offset + w.vector(name + ".weight", x.shape[-1], mean=1.0 - offset))


def gelu_erf(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# By the names that config.json uses.
ACTIVATIONS = {
    "gelu": gelu_erf,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": lambda x: x.clamp(min=0),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


def split_heads(x, count):
    batch, sequence, width = x.shape
    return x.reshape(batch, sequence, count, width // count).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).flatten(2)


def visible(sequence, causal=True, window=None, documents=None):
    """Which keys j (columns) each query i (rows) sees: j <= i; i - j < window; i's document."""
    owner = [0] * sequence
    if documents:
        owner = [d for d, length in enumerate(documents) for _ in range(length)]
    return torch.tensor([[(not causal or j <= i) and (not window or i - j < window)
                          and owner[i] == owner[j]
                          for j in range(sequence)] for i in range(sequence)])


def attention(q, k, v, mask=None, scale=None, softcap=None):
    """Query head h reads key head h // (query heads / key heads)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return join_heads(weights / weights.sum(-1, keepdim=True) @ v)


def rope_frequencies(dims, theta, scaling=None):
    """Angle per position of each of the dims / 2 pairs.

    `scaling` of type linear divides all by its factor. llama3 divides those of wavelength above
    original / low_freq_factor by it, leaves those below original / high_freq_factor, and between
    the two goes from one to the other linearly in original / wavelength.
    """
    frequencies = [theta ** (-2 * i / dims) for i in range(dims // 2)]
    if scaling is None:
        return frequencies
    factor = scaling["factor"]
    if scaling["rope_type"] == "linear":
        return [f / factor for f in frequencies]
    assert scaling["rope_type"] == "llama3"
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original, scaled = scaling["original_max_position_embeddings"], []
    for f in frequencies:
        turns = original * f / (2 * math.pi)  # original / wavelength
        kept = min(max((turns - low) / (high - low), 0), 1)
        scaled.append(kept * f + (1 - kept) * f / factor)
    return scaled


def rotate(x, positions, frequencies):
    """Turns the pairs (i, i + n) of the first 2n features, n frequencies; the rest passes."""
    n = len(frequencies)
    angles = torch.tensor([[p * f for f in frequencies] for p in positions], dtype=x.dtype)
    cos, sin = torch.cos(angles), torch.sin(angles)
    a, b = x[..., :n], x[..., n:2 * n]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., 2 * n:]], dim=-1)


def cross_entropy(logits, targets):
    """Mean over all rows of logits [..., classes]."""
    picked = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (torch.logsumexp(logits, -1) - picked).mean()
