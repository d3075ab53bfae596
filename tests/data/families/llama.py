"""Llama and what came of it: RMSNorm, rotary positions, gated MLPs, shared key heads, experts."""
import math

import torch

from parts import (ACTIVATIONS, attention, linear, rms_norm, rope_frequencies, rotate, split_heads,
                   visible)

EXPERT_NAMES = {"mixtral": "block_sparse_moe", "qwen3_moe": "mlp"}
# gate, up and down of one expert.
EXPERT_PARTS = {"mixtral": ("w1", "w3", "w2"), "qwen3_moe": ("gate_proj", "up_proj", "down_proj")}


def head_size(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def is_gemma(c):
    return c["model_type"] in ("gemma", "gemma2")


def norm(w, c, name, x):
    return rms_norm(w, name, x, c["rms_norm_eps"], offset=1.0 if is_gemma(c) else 0.0)


def project_qkv(w, c, name, x):
    heads, shared, size = c["num_attention_heads"], c["num_key_value_heads"], head_size(c)
    if c["model_type"] == "phi3":
        qkv = linear(w, name + "qkv_proj", x, (heads + 2 * shared) * size, bias=False)
        q, k, v = qkv.split([heads * size, shared * size, shared * size], dim=-1)
    else:
        bias = c["model_type"] == "qwen2" or c.get("attention_bias", False)
        q = linear(w, name + "q_proj", x, heads * size, bias)
        k = linear(w, name + "k_proj", x, shared * size, bias)
        v = linear(w, name + "v_proj", x, shared * size, bias)
    q, k, v = split_heads(q, heads), split_heads(k, shared), split_heads(v, shared)
    if c["model_type"] in ("qwen3", "qwen3_moe"):
        q, k = norm(w, c, name + "q_norm", q), norm(w, c, name + "k_norm", k)
    return q, k, v


def self_attention(w, c, layer, x):
    name, size, sequence = f"model.layers.{layer}.self_attn.", head_size(c), x.shape[1]
    documents = c.get("documents")
    positions = [p for length in documents or [sequence] for p in range(length)]
    frequencies = rope_frequencies(size, c["rope_theta"], c.get("rope_scaling"))
    q, k, v = project_qkv(w, c, name, x)
    q, k = rotate(q, positions, frequencies), rotate(k, positions, frequencies)
    window, scale = c.get("sliding_window"), 1 / math.sqrt(size)
    if c["model_type"] == "gemma2":
        window = window if layer % 2 == 0 else None  # every second layer sees all, not the first
        scale = 1 / math.sqrt(c["query_pre_attn_scalar"])
    mixed = attention(q, k, v, visible(sequence, window=window, documents=documents), scale,
                      c.get("attn_logit_softcapping"))
    return linear(w, name + "o_proj", mixed, c["hidden_size"], c.get("attention_bias", False))


def activation(c):
    return ACTIVATIONS[c["hidden_activation"] if is_gemma(c) else c["hidden_act"]]


def mlp(w, c, layer, x):
    name, inner, bias = f"model.layers.{layer}.mlp.", c["intermediate_size"], c.get("mlp_bias", False)
    if c["model_type"] == "phi3":
        gate, up = linear(w, name + "gate_up_proj", x, 2 * inner, bias=False).chunk(2, dim=-1)
    else:
        gate = linear(w, name + "gate_proj", x, inner, bias)
        up = linear(w, name + "up_proj", x, inner, bias)
    return linear(w, name + "down_proj", activation(c)(gate) * up, c["hidden_size"], bias)


def route(scores, count, normalise):
    """Weight of every expert for every row: the `count` largest of the softmax over all experts,
    divided by their sum where the family does; zero for the others."""
    probabilities = torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)
    order = probabilities.detach().sort(dim=-1, descending=True).values
    # A choice that rounding could change would be no reference.
    assert (order[..., count - 1] - order[..., count]).min() > 1e-3
    chosen = (probabilities >= order[..., count - 1:count]).to(scores.dtype)
    weights = probabilities * chosen
    return weights / weights.sum(-1, keepdim=True) if normalise else weights


def experts(w, c, layer, x):
    name = f"model.layers.{layer}.{EXPERT_NAMES[c['model_type']]}."
    gate_name, up_name, down_name = EXPERT_PARTS[c["model_type"]]
    if c["model_type"] == "mixtral":
        count, inner, normalise = c["num_local_experts"], c["intermediate_size"], True
    else:
        count, inner, normalise = c["num_experts"], c["moe_intermediate_size"], c["norm_topk_prob"]
    weights = route(linear(w, name + "gate", x, count, bias=False), c["num_experts_per_tok"], normalise)
    y = torch.zeros_like(x)
    for e in range(count):
        expert = f"{name}experts.{e}."
        gate = linear(w, expert + gate_name, x, inner, bias=False)
        up = linear(w, expert + up_name, x, inner, bias=False)
        out = linear(w, expert + down_name, activation(c)(gate) * up, c["hidden_size"], bias=False)
        y = y + weights[..., e:e + 1] * out
    return y


def block(w, c, layer, x):
    name = f"model.layers.{layer}."
    if c["model_type"] == "gemma2":  # a norm on either side of both branches
        mixed = self_attention(w, c, layer, norm(w, c, name + "input_layernorm", x))
        x = x + norm(w, c, name + "post_attention_layernorm", mixed)
        inner = mlp(w, c, layer, norm(w, c, name + "pre_feedforward_layernorm", x))
        return x + norm(w, c, name + "post_feedforward_layernorm", inner)
    x = x + self_attention(w, c, layer, norm(w, c, name + "input_layernorm", x))
    feed_forward = experts if c["model_type"] in EXPERT_NAMES else mlp
    return x + feed_forward(w, c, layer, norm(w, c, name + "post_attention_layernorm", x))


def llama(w, c, ids):
    width, vocab = c["hidden_size"], c["vocab_size"]
    table = w.table("model.embed_tokens.weight", vocab, width)
    x = table[ids]
    if is_gemma(c):
        x = x * math.sqrt(width)
    for layer in range(c["num_hidden_layers"]):
        x = block(w, c, layer, x)
    x = norm(w, c, "model.norm", x)
    tied = c["tie_word_embeddings"]
    logits = x @ table.T if tied else linear(w, "lm_head", x, vocab, bias=False)
    if c.get("final_logit_softcapping"):
        cap = c["final_logit_softcapping"]
        logits = cap * torch.tanh(logits / cap)
    return logits
