"""GPT-2, GPT-NeoX, Phi and OPT: LayerNorm, biases, a plain MLP."""
import torch

from parts import (ACTIVATIONS, attention, layer_norm, linear, rope_frequencies, rotate, split_heads,
                   visible)


def conv1d(w, name, x, out):
    """GPT-2's own linear: W is [in, out]."""
    weight = w.matrix(name + ".weight", x.shape[-1], out, inputs=x.shape[-1])
    return x @ weight + w.vector(name + ".bias", out)


def gpt2(w, c, ids):
    width, sequence = c["n_embd"], ids.shape[1]
    act, eps = ACTIVATIONS[c["activation_function"]], c["layer_norm_epsilon"]
    wte = w.table("wte.weight", c["vocab_size"], width)
    wpe = w.table("wpe.weight", c["n_positions"], width)
    # Documents packed into one sequence each begin again at position 0 and see only themselves.
    documents = c.get("documents", [sequence])
    mask = visible(sequence, documents=documents)
    x = wte[ids] + torch.cat([wpe[:length] for length in documents])
    for i in range(c["n_layer"]):
        name = f"h.{i}."
        qkv = conv1d(w, name + "attn.c_attn", layer_norm(w, name + "ln_1", x, eps), 3 * width)
        q, k, v = (split_heads(part, c["n_head"]) for part in qkv.split(width, dim=-1))
        x = x + conv1d(w, name + "attn.c_proj", attention(q, k, v, mask), width)
        inner = act(conv1d(w, name + "mlp.c_fc", layer_norm(w, name + "ln_2", x, eps), c["n_inner"]))
        x = x + conv1d(w, name + "mlp.c_proj", inner, width)
    return layer_norm(w, "ln_f", x, eps) @ wte.T


def gpt_neox(w, c, ids):
    width, heads, sequence = c["hidden_size"], c["num_attention_heads"], ids.shape[1]
    size, eps, act = width // heads, c["layer_norm_eps"], ACTIVATIONS[c["hidden_act"]]
    frequencies = rope_frequencies(int(size * c["rotary_pct"]), c["rotary_emb_base"])
    positions = range(sequence)
    x = w.table("gpt_neox.embed_in.weight", c["vocab_size"], width)[ids]
    for i in range(c["num_hidden_layers"]):
        name = f"gpt_neox.layers.{i}."
        normed = layer_norm(w, name + "input_layernorm", x, eps)
        qkv = linear(w, name + "attention.query_key_value", normed, 3 * width)
        # Per head: its query, its key, its value.
        q, k, v = split_heads(qkv, heads).split(size, dim=-1)
        q, k = rotate(q, positions, frequencies), rotate(k, positions, frequencies)
        mixed = linear(w, name + "attention.dense", attention(q, k, v, visible(sequence)), width)
        # In parallel both branches read x; else the MLP reads what attention added.
        before = x if c["use_parallel_residual"] else x + mixed
        inner = linear(w, name + "mlp.dense_h_to_4h",
                       layer_norm(w, name + "post_attention_layernorm", before, eps),
                       c["intermediate_size"])
        x = x + mixed + linear(w, name + "mlp.dense_4h_to_h", act(inner), width)
    x = layer_norm(w, "gpt_neox.final_layer_norm", x, eps)
    return linear(w, "embed_out", x, c["vocab_size"], bias=False)


def phi(w, c, ids):
    width, heads, sequence = c["hidden_size"], c["num_attention_heads"], ids.shape[1]
    size, eps, act = width // heads, c["layer_norm_eps"], ACTIVATIONS[c["hidden_act"]]
    frequencies = rope_frequencies(int(size * c["partial_rotary_factor"]), c["rope_theta"])
    positions = range(sequence)
    x = w.table("model.embed_tokens.weight", c["vocab_size"], width)[ids]
    for i in range(c["num_hidden_layers"]):
        name = f"model.layers.{i}."
        normed = layer_norm(w, name + "input_layernorm", x, eps)
        q, k, v = (split_heads(linear(w, f"{name}self_attn.{p}_proj", normed, width), heads)
                   for p in "qkv")
        q, k = rotate(q, positions, frequencies), rotate(k, positions, frequencies)
        mixed = linear(w, name + "self_attn.dense", attention(q, k, v, visible(sequence)), width)
        inner = act(linear(w, name + "mlp.fc1", normed, c["intermediate_size"]))
        x = x + mixed + linear(w, name + "mlp.fc2", inner, width)
    x = layer_norm(w, "model.final_layernorm", x, eps)
    return linear(w, "lm_head", x, c["vocab_size"])


def opt(w, c, ids):
    width, heads, sequence = c["hidden_size"], c["num_attention_heads"], ids.shape[1]
    act, eps, before = ACTIVATIONS[c["activation_function"]], 1e-5, c["do_layer_norm_before"]
    narrow = c["word_embed_proj_dim"]
    root = "model.decoder."
    table = w.table(root + "embed_tokens.weight", c["vocab_size"], narrow)
    # The first two rows of the positions belong to no position.
    positions = w.table(root + "embed_positions.weight", c["max_position_embeddings"] + 2, width)
    x = table[ids]
    if narrow != width:
        x = linear(w, root + "project_in", x, width, bias=False)
    x = x + positions[2:2 + sequence]

    def branch(name, x, function):
        """Norm before the function, or after the sum."""
        if before:
            return x + function(layer_norm(w, name, x, eps))
        return layer_norm(w, name, x + function(x), eps)

    for i in range(c["num_hidden_layers"]):
        name = f"{root}layers.{i}."

        def self_attention(x):
            q, k, v = (split_heads(linear(w, f"{name}self_attn.{p}_proj", x, width), heads)
                       for p in "qkv")
            return linear(w, name + "self_attn.out_proj", attention(q, k, v, visible(sequence)), width)

        def mlp(x):
            return linear(w, name + "fc2", act(linear(w, name + "fc1", x, c["ffn_dim"])), width)

        x = branch(name + "self_attn_layer_norm", x, self_attention)
        x = branch(name + "final_layer_norm", x, mlp)
    if before:
        x = layer_norm(w, root + "final_layer_norm", x, eps)
    if narrow != width:
        x = linear(w, root + "project_out", x, narrow, bias=False)
    return x @ table.T
