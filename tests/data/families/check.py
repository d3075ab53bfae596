"""Holds the parts and whole blocks against PyTorch's own modules and against loops."""
import cmath
import math

import torch
import torch.nn.functional as F

import encoders
import gpt
import llama
import parts


def close(a, b, what):
    assert a.shape == b.shape and (a - b).abs().max() < 1e-12, what


def random(*shape):
    return torch.randn(shape, dtype=torch.float64)


def check_parts():
    x = random(2, 5, 6)
    w = parts.Weights("check")
    close(parts.layer_norm(w, "n", x, 1e-5),
          F.layer_norm(x, [6], w.vector("n.weight", 6), w.vector("n.bias", 6), 1e-5), "layer_norm")
    close(parts.rms_norm(w, "n", x, 1e-6), F.rms_norm(x, [6], w.vector("n.weight", 6), 1e-6), "rms_norm")
    close(parts.rms_norm(w, "n", x, 1e-6, offset=1.0),
          F.rms_norm(x, [6], 1 + w.vector("n.weight", 6), 1e-6), "rms_norm with an offset")
    for name, function in {"gelu": F.gelu, "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
                           "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
                           "relu": F.relu, "silu": F.silu}.items():
        close(parts.ACTIVATIONS[name](x), function(x), name)
    targets = torch.randint(0, 6, (2, 5))
    close(parts.cross_entropy(x, targets), F.cross_entropy(x.flatten(0, 1), targets.flatten()),
          "cross_entropy")


def check_attention():
    q, k, v = random(2, 4, 9, 6), random(2, 2, 9, 6), random(2, 2, 9, 6)

    def pytorch(**kw):
        return parts.join_heads(F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **kw))

    close(parts.attention(q, k, v), pytorch(), "full attention")
    close(parts.attention(q, k, v, parts.visible(9), 0.3), pytorch(is_causal=True, scale=0.3), "causal")
    ones = torch.ones(9, 9, dtype=torch.bool)
    band = ones.tril() & ~ones.tril(-4)
    close(parts.attention(q, k, v, parts.visible(9, window=4)), pytorch(attn_mask=band), "window")
    block = torch.block_diag(*[torch.ones(n, n) for n in (2, 4, 3)]).bool() & ones.tril()
    close(parts.attention(q, k, v, parts.visible(9, documents=[2, 4, 3])), pytorch(attn_mask=block),
          "documents")
    # One row by hand, with a cap.
    scores = [2 * math.tanh(float(q[1, 3, 4] @ k[1, 1, j]) * 0.5 / 2) for j in range(5)]
    total = sum(math.exp(s) for s in scores)
    row = sum(math.exp(s) / total * v[1, 1, j] for j, s in enumerate(scores))
    out = parts.attention(q, k, v, parts.visible(9), 0.5, softcap=2.0)
    close(out[1, 4, 18:24], row, "capped attention")


def check_rope():
    # A pair is a complex number that is turned by the angle.
    x, frequencies = random(1, 1, 3, 8), parts.rope_frequencies(6, 10000.0)
    y = parts.rotate(x, [0, 5, 2], frequencies)
    for t, p in enumerate([0, 5, 2]):
        for i, f in enumerate([1.0, 10000 ** (-1 / 3), 10000 ** (-2 / 3)]):
            z = complex(x[0, 0, t, i], x[0, 0, t, i + 3]) * cmath.exp(1j * p * f)
            assert abs(z - complex(y[0, 0, t, i], y[0, 0, t, i + 3])) < 1e-12, "rotate"
    close(y[..., 6:], x[..., 6:], "features that are not rotated")
    assert parts.rope_frequencies(4, 100.0, {"rope_type": "linear", "factor": 4.0}) == [0.25, 0.025]
    # Wavelengths 6.28, 62.8, 628 and 6283 of 128 positions: above 128/4 kept, between 128/4 and 128
    # interpolated at 128/62.8 = 2.037 turns, longer ones divided by 8.
    scaled = parts.rope_frequencies(8, 10000.0, {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128})
    kept = (12.8 / (2 * math.pi) - 1) / 3
    for a, b in zip(scaled, [1, kept * 0.1 + (1 - kept) * 0.0125, 0.01 / 8, 0.001 / 8]):
        assert abs(a - b) < 1e-15, "llama3 frequencies"


def check_experts():
    """A loop over rows and their experts, as a router reads."""
    for kind, c in {"mixtral": {"num_local_experts": 4, "intermediate_size": 5},
                    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 5,
                                  "norm_topk_prob": False}}.items():
        c = {"model_type": kind, "hidden_act": "silu", "hidden_size": 6, "num_experts_per_tok": 2, **c}
        w, x = parts.Weights("check_" + kind), random(1, 7, 6)
        y = llama.experts(w, c, 0, x)
        name = "model.layers.0." + llama.EXPERT_NAMES[kind]
        for t in range(7):
            weight = F.softmax(w.tensors[name + ".gate.weight"] @ x[0, t], dim=0)
            top, chosen = torch.topk(weight, 2)
            if kind == "mixtral":
                top = top / top.sum()
            row = 0
            for p, e in zip(top, chosen):
                gate, up, down = (w.tensors[f"{name}.experts.{e}.{part}.weight"]
                                  for part in llama.EXPERT_PARTS[kind])
                row = row + p * (down @ (F.silu(gate @ x[0, t]) * (up @ x[0, t])))
            close(y[0, t], row, kind)


def encoder_layer(w, width, heads, inner, act, norm_first, eps, names):
    """PyTorch's TransformerEncoderLayer holding the weights of one block; `names` of q, k, v, out, the
    first norm, the two linears and the second norm."""
    layer = torch.nn.TransformerEncoderLayer(width, heads, inner, 0.0, act, eps, True, norm_first)
    layer.double()
    q, k, v, out, norm1, linear1, linear2, norm2 = names
    with torch.no_grad():
        for kind in ("weight", "bias"):
            packed = torch.cat([w.tensors[f"{name}.{kind}"] for name in (q, k, v)])
            layer.get_parameter("self_attn.in_proj_" + kind).copy_(packed)
            for theirs, name in {"self_attn.out_proj": out, "norm1": norm1, "linear1": linear1,
                                 "linear2": linear2, "norm2": norm2}.items():
                layer.get_parameter(f"{theirs}.{kind}").copy_(w.tensors[f"{name}.{kind}"])
    return layer


def check_bert():
    c = {"vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 12, "type_vocab_size": 2,
         "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    ids, types = torch.randint(0, 37, (2, 8)), torch.randint(0, 2, (2, 8))
    w = parts.Weights("check_bert")
    hidden, t = encoders.bert(w, c, ids, types), w.tensors
    embedded = F.layer_norm(t["embeddings.word_embeddings.weight"][ids]
                            + t["embeddings.token_type_embeddings.weight"][types]
                            + t["embeddings.position_embeddings.weight"][torch.arange(8)],
                            [16], t["embeddings.LayerNorm.weight"], t["embeddings.LayerNorm.bias"], 1e-12)
    layer = encoder_layer(w, 16, 2, 24, "gelu", False, 1e-12, [
        "encoder.layer.0." + name for name in (
            "attention.self.query", "attention.self.key", "attention.self.value",
            "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense",
            "output.dense", "output.LayerNorm")])
    close(hidden, layer(embedded), "bert")


def check_opt():
    c = {"vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "ffn_dim": 24, "max_position_embeddings": 12, "word_embed_proj_dim": 12,
         "activation_function": "relu"}
    ids = torch.randint(0, 37, (2, 8))
    for before in (True, False):
        w, root = parts.Weights("check_opt"), "model.decoder."
        logits, t = gpt.opt(w, {**c, "do_layer_norm_before": before}, ids), w.tensors
        layer = encoder_layer(w, 16, 2, 24, "relu", before, 1e-5, [
            root + "layers.0." + name for name in (
                "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj",
                "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm")])
        table = t[root + "embed_tokens.weight"]
        x = F.linear(table[ids], t[root + "project_in.weight"])
        x = x + t[root + "embed_positions.weight"][torch.arange(8) + 2]
        x = layer(x, src_mask=torch.ones(8, 8).triu(1).bool())
        if before:
            x = F.layer_norm(x, [16], t[root + "final_layer_norm.weight"],
                             t[root + "final_layer_norm.bias"])
        close(logits, F.linear(x, t[root + "project_out.weight"]) @ table.T, "opt")


def check_gpt2():
    c = {"vocab_size": 37, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_inner": 24, "n_positions": 12,
         "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    ids, w = torch.randint(0, 37, (2, 8)), parts.Weights("check_gpt2")
    logits, t = gpt.gpt2(w, c, ids), w.tensors
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 24, 0.0, lambda x: F.gelu(x, approximate="tanh"), 1e-5, True, True).double()
    with torch.no_grad():
        for theirs, name in {"self_attn.in_proj_": "attn.c_attn.", "self_attn.out_proj.": "attn.c_proj.",
                             "norm1.": "ln_1.", "norm2.": "ln_2.", "linear1.": "mlp.c_fc.",
                             "linear2.": "mlp.c_proj."}.items():
            weight = t[f"h.0.{name}weight"]
            layer.get_parameter(theirs + "weight").copy_(weight.T if weight.dim() == 2 else weight)
            layer.get_parameter(theirs + "bias").copy_(t[f"h.0.{name}bias"])
    x = layer(t["wte.weight"][ids] + t["wpe.weight"][:8], src_mask=torch.ones(8, 8).triu(1).bool())
    x = F.layer_norm(x, [16], t["ln_f.weight"], t["ln_f.bias"])
    close(logits, x @ t["wte.weight"].T, "gpt2")


def check_vit():
    c = {"hidden_size": 16, "patch_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 24, "num_labels": 6, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
    w, images, root = parts.Weights("check_vit"), random(2, 3, 8, 12), "vit."
    logits, t = encoders.vit(w, c, images), w.tensors
    x = F.conv2d(images, t[root + "embeddings.patch_embeddings.projection.weight"],
                 t[root + "embeddings.patch_embeddings.projection.bias"], stride=4)
    x = torch.cat([t[root + "embeddings.cls_token"].expand(2, 1, 16), x.flatten(2).transpose(1, 2)], dim=1)
    layer = encoder_layer(w, 16, 2, 24, "gelu", True, 1e-12, [
        root + "encoder.layer.0." + name for name in (
            "attention.attention.query", "attention.attention.key", "attention.attention.value",
            "attention.output.dense", "layernorm_before", "intermediate.dense", "output.dense",
            "layernorm_after")])
    x = layer(x + t[root + "embeddings.position_embeddings"])[:, 0]
    x = F.layer_norm(x, [16], t[root + "layernorm.weight"], t[root + "layernorm.bias"], 1e-12)
    close(logits, F.linear(x, t["classifier.weight"], t["classifier.bias"]), "vit")


def check_llama():
    """The same model of PyTorch's functions, rotating complex numbers."""
    c = {"model_type": "llama", "vocab_size": 37, "hidden_size": 16, "intermediate_size": 24,
         "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
         "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 100.0, "tie_word_embeddings": False}
    ids, w = torch.randint(0, 37, (2, 8)), parts.Weights("check_llama")
    logits, t = llama.llama(w, c, ids), w.tensors

    def weight(name):
        return t[f"model.layers.0.{name}.weight"]

    def heads(name, x, count):
        return F.linear(x, weight(f"self_attn.{name}_proj")).view(2, 8, count, 6).transpose(1, 2)

    def turn(x):
        angles = torch.outer(torch.arange(8).double(), 100.0 ** (-torch.arange(0, 6, 2).double() / 6))
        z = torch.complex(*x.unflatten(-1, (2, 3)).unbind(-2)) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([z.real, z.imag], dim=-1)

    x = F.embedding(ids, t["model.embed_tokens.weight"])
    normed = F.rms_norm(x, [16], weight("input_layernorm"), 1e-5)
    q, k, v = heads("q", normed, 4), heads("k", normed, 2), heads("v", normed, 2)
    mixed = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=True)
    x = x + F.linear(mixed.transpose(1, 2).reshape(2, 8, 24), weight("self_attn.o_proj"))
    normed = F.rms_norm(x, [16], weight("post_attention_layernorm"), 1e-5)
    gate, up = F.linear(normed, weight("mlp.gate_proj")), F.linear(normed, weight("mlp.up_proj"))
    x = x + F.linear(F.silu(gate) * up, weight("mlp.down_proj"))
    x = F.rms_norm(x, [16], t["model.norm.weight"], 1e-5)
    close(logits, F.linear(x, t["lm_head.weight"]), "llama")


def check_all():
    torch.manual_seed(0)
    check_llama()
    check_parts()
    check_attention()
    check_rope()
    check_experts()
    check_bert()
    check_opt()
    check_gpt2()
    check_vit()
