"""BERT and the vision transformer: every position sees every other."""
import torch

from parts import ACTIVATIONS, attention, layer_norm, linear, split_heads


def heads_of(w, c, name, x):
    return [split_heads(linear(w, name + part, x, c["hidden_size"]), c["num_attention_heads"])
            for part in ("query", "key", "value")]


def bert(w, c, ids, token_types, root=""):
    """-> the last hidden state [batch, sequence, width]."""
    width, sequence, eps = c["hidden_size"], ids.shape[1], c["layer_norm_eps"]
    act = ACTIVATIONS[c["hidden_act"]]

    def table(kind, rows):
        return w.table(f"{root}embeddings.{kind}_embeddings.weight", rows, width)

    x = (table("word", c["vocab_size"])[ids] + table("token_type", c["type_vocab_size"])[token_types]
         + table("position", c["max_position_embeddings"])[:sequence])
    x = layer_norm(w, root + "embeddings.LayerNorm", x, eps)
    for i in range(c["num_hidden_layers"]):
        name = f"{root}encoder.layer.{i}."
        mixed = attention(*heads_of(w, c, name + "attention.self.", x))
        mixed = linear(w, name + "attention.output.dense", mixed, width)
        x = layer_norm(w, name + "attention.output.LayerNorm", x + mixed, eps)
        inner = act(linear(w, name + "intermediate.dense", x, c["intermediate_size"]))
        x = layer_norm(w, name + "output.LayerNorm", x + linear(w, name + "output.dense", inner, width),
                       eps)
    return x


def bert_pooled(w, c, ids, token_types):
    """BertModel's second output [batch, width], made of the first position."""
    first = bert(w, c, ids, token_types)[:, 0]
    return torch.tanh(linear(w, "pooler.dense", first, c["hidden_size"]))


def bert_masked_lm(w, c, ids, token_types):
    """BertForMaskedLM: a dense layer, norm, and the word table with a bias of its own."""
    x = bert(w, c, ids, token_types, root="bert.")
    x = ACTIVATIONS[c["hidden_act"]](linear(w, "cls.predictions.transform.dense", x, c["hidden_size"]))
    x = layer_norm(w, "cls.predictions.transform.LayerNorm", x, c["layer_norm_eps"])
    words = w.tensors["bert.embeddings.word_embeddings.weight"]
    return x @ words.T + w.vector("cls.predictions.bias", c["vocab_size"])


def embed_patches(w, c, images):
    """-> [batch, patches, width]. A convolution whose stride is its size is one product per patch."""
    patch, width, name = c["patch_size"], c["hidden_size"], "vit.embeddings.patch_embeddings.projection"
    channels, rows, columns = images.shape[1:]
    kernel = w.matrix(name + ".weight", width, channels, patch, patch, inputs=channels * patch * patch)
    patches = torch.stack([images[:, :, r:r + patch, s:s + patch].flatten(1)
                           for r in range(0, rows, patch) for s in range(0, columns, patch)], dim=1)
    return patches @ kernel.flatten(1).T + w.vector(name + ".bias", width)


def vit(w, c, images):
    width, eps, root = c["hidden_size"], c["layer_norm_eps"], "vit.embeddings."
    act = ACTIVATIONS[c["hidden_act"]]
    x = embed_patches(w, c, images)
    first = w.table(root + "cls_token", 1, 1, width)
    x = torch.cat([first.expand(x.shape[0], 1, width), x], dim=1)
    x = x + w.table(root + "position_embeddings", 1, x.shape[1], width)
    for i in range(c["num_hidden_layers"]):
        name = f"vit.encoder.layer.{i}."
        normed = layer_norm(w, name + "layernorm_before", x, eps)
        mixed = attention(*heads_of(w, c, name + "attention.attention.", normed))
        x = x + linear(w, name + "attention.output.dense", mixed, width)
        normed = layer_norm(w, name + "layernorm_after", x, eps)
        inner = act(linear(w, name + "intermediate.dense", normed, c["intermediate_size"]))
        x = x + linear(w, name + "output.dense", inner, width)
    x = layer_norm(w, "vit.layernorm", x, eps)
    return linear(w, "classifier", x[:, 0], c["num_labels"])

