#!/usr/bin/env python3
"""Writes families/CASE.safetensors: each transformer family at a tiny size, as PyTorch computes it.

Run it with a Python that has torch; the tests only read what it wrote:

    python3 tests/data/make_family_references.py [CASE...]

The families are written out in families/*.py from their published descriptions. A file holds the
parameters in f32 under the names of the published checkpoints and, made from the same values in
f64, `output`, `loss` and `grad/NAME` for every parameter; the batch is `input/NAME`. The metadata
entry "config" has the keys of the published config.json, and "documents" (lengths of the documents
that share a sequence), "lora_rank" and "lora_alpha" where a case is about these.
"""
import json
import os
import struct
import sys
import zlib

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "families"))

import check  # noqa: E402
import encoders  # noqa: E402
import gpt  # noqa: E402
import llama  # noqa: E402
from parts import Weights, cross_entropy  # noqa: E402

DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64"}

LLAMA = {"model_type": "llama", "vocab_size": 37, "hidden_size": 16, "intermediate_size": 24,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
         "hidden_act": "silu", "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False,
         "tie_word_embeddings": False}


def of_llama(model_type, drop=(), **changes):
    c = {**LLAMA, "model_type": model_type, **changes}
    return {key: value for key, value in c.items() if key not in drop}


BIASES = ("attention_bias", "mlp_bias")
OPT = {"model_type": "opt", "vocab_size": 37, "hidden_size": 16, "ffn_dim": 24,
       "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 10,
       "word_embed_proj_dim": 16, "do_layer_norm_before": True, "activation_function": "relu",
       "enable_bias": True, "tie_word_embeddings": True}

BERT = {"model_type": "bert", "vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 24, "hidden_act": "gelu",
        "max_position_embeddings": 12, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "tie_word_embeddings": True}

GPT2 = {"model_type": "gpt2", "vocab_size": 37, "n_positions": 12, "n_embd": 24, "n_layer": 2,
        "n_head": 3, "n_inner": 40, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True}
GPT_NEOX = {"model_type": "gpt_neox", "vocab_size": 37, "hidden_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 16,
            "hidden_act": "gelu", "rotary_pct": 0.5, "rotary_emb_base": 10000,
            "use_parallel_residual": True, "layer_norm_eps": 1e-5, "attention_bias": True,
            "tie_word_embeddings": False}
QWEN3_MOE = of_llama("qwen3_moe", ("mlp_bias",), head_dim=6, rms_norm_eps=1e-6, num_experts=6,
                     num_experts_per_tok=3, moe_intermediate_size=10, norm_topk_prob=True,
                     rope_theta=1000000.0)

# Case: sequence length, config. Sizes differ from each other, so that an exchange shows.
CASES = {
    "gpt2": (9, GPT2),
    "gpt2_packed": (9, {**GPT2, "n_embd": 16, "n_head": 2, "documents": [2, 4, 3]}),
    "gpt_neox": (9, GPT_NEOX),
    "gpt_neox_sequential": (9, {**GPT_NEOX, "hidden_size": 16, "num_attention_heads": 2,
                                "use_parallel_residual": False}),
    "llama": (10, of_llama("llama")),
    "llama3": (11, of_llama("llama", num_attention_heads=2, num_key_value_heads=1, head_dim=8,
                            max_position_embeddings=512, rope_scaling={
                                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0, "original_max_position_embeddings": 128})),
    "llama_biases": (8, of_llama("llama", num_key_value_heads=4, attention_bias=True, mlp_bias=True,
                                 tie_word_embeddings=True,
                                 rope_scaling={"rope_type": "linear", "factor": 2.0})),
    "llama_lora": (8, of_llama("llama", lora_rank=3, lora_alpha=6)),
    "llama_packed": (12, of_llama("llama", documents=[3, 5, 4])),
    "mistral": (11, of_llama("mistral", BIASES, sliding_window=4)),
    "mixtral": (8, of_llama("mixtral", BIASES, intermediate_size=12, num_local_experts=4,
                            num_experts_per_tok=2, rope_theta=1000000.0)),
    "qwen2": (9, of_llama("qwen2", BIASES, rms_norm_eps=1e-6, tie_word_embeddings=True,
                          rope_theta=1000000.0)),
    "qwen3": (9, of_llama("qwen3", ("mlp_bias",), num_attention_heads=2, num_key_value_heads=1,
                          head_dim=12, rms_norm_eps=1e-6, rope_theta=1000000.0)),
    "qwen3_moe": (7, QWEN3_MOE),
    "qwen3_moe_unnormalised": (8, {**QWEN3_MOE, "num_experts": 4, "num_experts_per_tok": 2,
                                   "norm_topk_prob": False}),
    "gemma": (9, of_llama("gemma", ("mlp_bias", "hidden_act"), hidden_size=20, intermediate_size=28,
                          num_attention_heads=2, num_key_value_heads=1, head_dim=8,
                          hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                          tie_word_embeddings=True)),
    "gemma2": (10, of_llama("gemma2", ("mlp_bias", "hidden_act"), head_dim=6, query_pre_attn_scalar=10,
                            hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                            sliding_window=3, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                            tie_word_embeddings=True)),
    "phi": (9, {"model_type": "phi", "vocab_size": 37, "hidden_size": 16, "intermediate_size": 28,
                "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16,
                "hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                "layer_norm_eps": 1e-5, "qk_layernorm": False, "tie_word_embeddings": False}),
    "phi3": (9, of_llama("phi3", BIASES + ("head_dim",), sliding_window=5)),
    "bert": (8, {**BERT, "architectures": ["BertModel"]}),
    "bert_masked_lm": (7, {**BERT, "architectures": ["BertForMaskedLM"]}),
    "opt": (8, OPT),
    "opt_post_norm": (8, {**OPT, "word_embed_proj_dim": 12, "do_layer_norm_before": False}),
    "vit": (0, {"model_type": "vit", "image_size": 12, "patch_size": 4, "num_channels": 3,
                "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                "intermediate_size": 24, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
                "qkv_bias": True, "num_labels": 7}),
}

DECODERS = {"gpt2": gpt.gpt2, "gpt_neox": gpt.gpt_neox, "phi": gpt.phi, "opt": gpt.opt}
BATCH = 2


def is_pooled(c):
    return c.get("architectures") == ["BertModel"]


def make_batch(sequence, c):
    if c["model_type"] == "vit":
        side = c["image_size"]
        images = torch.randn((BATCH, c["num_channels"], side, side), dtype=torch.float64)
        return {"images": images.to(torch.float32),
                "targets": torch.randint(0, c["num_labels"], (BATCH,))}
    ids, targets = (torch.randint(0, c["vocab_size"], (BATCH, sequence)) for _ in range(2))
    batch = {"ids": ids, "targets": targets}
    if c["model_type"] == "bert":
        batch["token_types"] = torch.randint(0, c["type_vocab_size"], (BATCH, sequence))
    if is_pooled(c):
        target = torch.randn((BATCH, c["hidden_size"]), dtype=torch.float64)
        batch["targets"] = target.to(torch.float32)
    return batch


def forward(w, c, batch):
    """-> the output (logits, or the pooled state) and the loss: mean cross entropy of all rows, or
    mean squared error of the pooled state."""
    if c["model_type"] == "vit":
        logits = encoders.vit(w, c, batch["images"])
    elif is_pooled(c):
        pooled = encoders.bert_pooled(w, c, batch["ids"], batch["token_types"])
        return pooled, ((pooled - batch["targets"]) ** 2).mean()
    elif c["model_type"] == "bert":
        logits = encoders.bert_masked_lm(w, c, batch["ids"], batch["token_types"])
    else:
        logits = DECODERS.get(c["model_type"], llama.llama)(w, c, batch["ids"])
    return logits, cross_entropy(logits, batch["targets"])


def evaluate(w, c, batch, dtype):
    """-> output, loss and the gradients in the order of the parameters."""
    batch = {name: x.to(dtype) if x.is_floating_point() else x for name, x in batch.items()}
    output, loss = forward(w, c, batch)
    return output, loss, torch.autograd.grad(loss, list(w.tensors.values()))


def check_conditioning(case, w, c, batch, gradients):
    """In f32 PyTorch itself must come well within the 1e-5 that the tests allow."""
    for name, exact, g in zip(w.tensors, gradients,
                              evaluate(w.rounded(), c, batch, torch.float32)[2]):
        largest = float(exact.abs().max())
        error = float((g.to(torch.float64) - exact).abs().max())
        assert error < 4e-6 * (largest if largest > 1e-15 else 0.01), f"{case}: {name} is off by {error}"


def make(case):
    sequence, c = CASES[case]
    torch.manual_seed(zlib.crc32(case.encode()))
    w = Weights(case, (c["lora_rank"], c["lora_alpha"]) if "lora_rank" in c else None)
    batch = make_batch(sequence, c)
    output, loss, gradients = evaluate(w, c, batch, torch.float64)
    check_conditioning(case, w, c, batch, gradients)
    tensors = {"output": output, "loss": loss}
    tensors.update({f"input/{name}": value for name, value in batch.items()})
    for (name, value), gradient in zip(w.tensors.items(), gradients):
        tensors[name] = value.to(torch.float32)
        tensors["grad/" + name] = gradient
    return tensors, c


def write(path, tensors, c):
    header = {"__metadata__": {"config": json.dumps(c, separators=(",", ":")),
                               "made_with": "PyTorch " + torch.__version__.split("+")[0]}}
    data, offset = [], 0
    # Wide elements first, so that all lie on their own size.
    for name in sorted(tensors, key=lambda n: (-tensors[n].element_size(), n)):
        t = tensors[name].detach().contiguous()
        data.append(t.numpy().tobytes())
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [offset, offset + len(data[-1])]}
        offset += len(data[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def main():
    torch.set_num_threads(1)
    check.check_all()
    for case in sys.argv[1:] or CASES:
        tensors, c = make(case)
        path = os.path.join(HERE, "families", case + ".safetensors")
        write(path, tensors, c)
        print(f"{case}: loss {float(tensors['loss'].detach()):.4f}, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
