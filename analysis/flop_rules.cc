// The FLOP rules as they were published: what each covers, counts, and how it reads.
#include "absl/strings/str_cat.h"
#include "tally/analysis/rules_internal.h"

namespace tally {
namespace {

std::string G(Count n) { return ToGrouped(n); }

// L·H·Q·T a token times `twelve`, a third of it in forward alone.
Count AttentionFlops(const RuleSizes& s, int64_t twelve) {
  const ModelShape& m = s.shape;
  const int64_t factor = s.backward ? twelve : twelve / 3;
  return Count(factor) * m.layers * m.attention_width() * m.sequence * s.tokens;
}

// "6·124,439,808·1,024".
std::string Product(const RuleSizes& s, Count n) {
  return absl::StrCat(Factor(s), "·", G(n), "·", G(s.tokens));
}

std::string Anything(const RuleSizes&) { return ""; }

std::string NotLanguageModel(const ModelShape& m) {
  if (m.kind != ModelShape::kTransformer || !m.language_model)
    return "published for language models, with a head over every position";
  return m.sequence < 1 ? "the length of the sequences is not known" : "";
}

std::string LanguageModels(const RuleSizes& s) { return NotLanguageModel(s.shape); }

// Attention of as many keys as queries, and two matrices in each feed-forward layer.
std::string PlainLayers(const RuleSizes& s) {
  const ModelShape& m = s.shape;
  std::string why = NotLanguageModel(m);
  if (!why.empty()) return why;
  if (m.kv_heads != m.heads) return "published for as many keys and values as queries";
  if (m.matrices != 2) return "published for feed-forward layers of two matrices, not gated ones";
  if (m.experts > 0) return "published for models without experts";
  return m.window ? "published for attention without windows" : "";
}

std::string Gpt2s(const RuleSizes& s) {
  std::string why = PlainLayers(s);
  if (why.empty() && (!s.shape.learned_positions || !s.shape.tied))
    return "published for GPT-2: a table of positions, and the token table as head";
  return why;
}

// ---- N and D alone

RuleParts All(const RuleSizes& s) { return {.n = s.n}; }
std::string AllText(const RuleSizes& s) {
  return absl::StrCat(Factor(s), "·N·D = ", Product(s, s.n.total()));
}

RuleParts NonEmbedding(const RuleSizes& s) {
  RuleParts p = All(s);
  p.n.tied = p.n.tables = 0;
  return p;
}
std::string NonEmbeddingText(const RuleSizes& s) {
  return absl::StrCat(Factor(s),
                      "·(N - look-up tables)·D = ", Product(s, s.n.total() - s.n.embedding()));
}

RuleParts Matmul(const RuleSizes& s) {
  return {.n = {.layers = s.n.layers, .head = s.n.head, .tied = s.n.tied}};
}
std::string MatmulText(const RuleSizes& s) {
  return absl::StrCat(Factor(s),
                      "·N(in contractions)·D = ", Product(s, s.n.layers + s.n.head + s.n.tied));
}

RuleParts Active(const RuleSizes& s) { return {.n = s.n, .inactive = s.inactive}; }
std::string ActiveText(const RuleSizes& s) {
  return absl::StrCat(Factor(s), "·N(active)·D = ", Product(s, s.n.total() - s.inactive));
}
std::string ExpertModels(const RuleSizes& s) {
  return s.inactive == 0 ? "no expert is left out by a token" : "";
}

// ---- Kaplan, Chinchilla, PaLM

RuleParts Kaplan(const RuleSizes& s) {
  // One product of attention of n_ctx·d_attn, or both halved.
  return {.n = {.layers = s.n.layers}, .inactive = s.inactive, .attention = AttentionFlops(s, 6)};
}
std::string KaplanText(const RuleSizes& s) {
  const ModelShape& m = s.shape;
  return absl::StrCat(s.backward ? "3·" : "", "(2·N + 2·n_layer·n_ctx·d_attn)·D, N = matrices of ",
                      "the layers = ", s.backward ? "3·" : "", "(2·", G(s.n.layers - s.inactive),
                      " + 2·", m.layers, "·", m.sequence, "·", m.attention_width(), ")·",
                      G(s.tokens));
}

Count ChinchillaLayers(const ModelShape& m) {
  return Count(m.layers) * m.width * (Count(4) * m.attention_width() + Count(2) * m.inner);
}
RuleParts ChinchillaBody(const RuleSizes& s) {
  const ModelShape& m = s.shape;
  const int64_t thirds = s.backward ? 3 : 1;
  return {.n = {.layers = ChinchillaLayers(m)},
          .attention = AttentionFlops(s, 12),
          .softmax = Count(thirds) * 3 * m.layers * m.heads * m.sequence * s.tokens};
}
RuleParts ChinchillaPrinted(const RuleSizes& s) {
  RuleParts p = ChinchillaBody(s);
  const Count table = Count(s.shape.vocab) * s.shape.width;
  (s.shape.tied ? p.n.tied : p.n.head) = table;
  p.embedding_matmul = table * Factor(s) * s.tokens;
  return p;
}
std::string ChinchillaText(const RuleSizes& s) {
  const ModelShape& m = s.shape;
  return absl::StrCat(s.backward ? "3·" : "",
                      "D·L·(8·d·HQ + 4·d·f + 4·T·HQ + 3·H·T) = ", s.backward ? "3·" : "",
                      G(s.tokens), "·", m.layers, "·(8·", m.width, "·", m.attention_width(),
                      " + 4·", m.width, "·", m.inner, " + 4·", m.sequence, "·", m.attention_width(),
                      " + 3·", m.heads, "·", m.sequence, ")");
}
std::string ChinchillaPrintedText(const RuleSizes& s) {
  return absl::StrCat(ChinchillaText(s), " + ", s.backward ? "3·" : "", "D·4·V·d = ... + ",
                      s.backward ? "3·" : "", G(s.tokens), "·4·", s.shape.vocab, "·",
                      s.shape.width);
}

// "(6·N + 12·L·H·Q·T)·D = (6·... )·1,024" with N as given.
std::string PerToken(const RuleSizes& s, const char* n_words, Count n, int64_t twelve) {
  const ModelShape& m = s.shape;
  const int64_t factor = s.backward ? twelve : twelve / 3;
  return absl::StrCat("(", Factor(s), "·", n_words, " + ", factor, "·L·H·Q·T)·D = (", Factor(s),
                      "·", G(n), " + ", factor, "·", m.layers, "·", m.heads, "·", m.head_dim, "·",
                      m.sequence, ")·", G(s.tokens));
}

RuleParts Palm(const RuleSizes& s) { return {.n = s.n, .attention = AttentionFlops(s, 12)}; }
std::string PalmText(const RuleSizes& s) { return PerToken(s, "N", s.n.total(), 12); }

// ---- Megatron

Count MegatronLayers(const ModelShape& m) {
  const Count qkvo = Count(2) * m.width * (m.attention_width() + m.kv_heads * m.head_dim);
  const int64_t met = m.experts > 0 ? m.experts_per_token : 1;
  return Count(m.layers) * (qkvo + Count(m.matrices) * met * m.width * m.inner);
}
RuleParts MegatronOf(const RuleSizes& s, int64_t twelve) {
  RuleParts p{.n = {.layers = MegatronLayers(s.shape)}, .attention = AttentionFlops(s, twelve)};
  (s.shape.tied ? p.n.tied : p.n.head) = Count(s.shape.vocab) * s.shape.width;
  return p;
}
RuleParts Megatron(const RuleSizes& s) { return MegatronOf(s, 12); }
RuleParts MegatronCausal(const RuleSizes& s) { return MegatronOf(s, 6); }
RuleParts MegatronRecompute(const RuleSizes& s) {
  RuleParts p = MegatronOf(s, 12);
  p.recompute = MegatronLayers(s.shape) * 2 * s.tokens + p.attention / 3;
  return p;
}

// 72 and 12 of the paper with `thirds` of 24 and of `attention` thirds of 4.
std::string MegatronForm(const RuleSizes& s, int64_t matrices, int64_t attention) {
  const ModelShape& m = s.shape;
  const bool published = m.kv_heads == m.heads && m.matrices == 2 && m.inner == 4 * m.width &&
                         m.attention_width() == m.width && m.experts == 0;
  const std::string bs = G(s.tokens);
  const int64_t six = Factor(s);
  if (published) {
    return absl::StrCat(12 * matrices, "·B·s·l·h² + ", attention, "·B·s²·l·h + ", six,
                        "·B·s·h·V = ", bs, "·(", 12 * matrices, "·", m.layers, "·", m.width, "² + ",
                        attention, "·", m.sequence, "·", m.layers, "·", m.width, " + ", six, "·",
                        m.width, "·", m.vocab, ")");
  }
  return absl::StrCat("B·s·(", matrices, "·(matrices of the layers that a token passes) + ",
                      attention, "·s·l·H·Q + ", six, "·h·V) = ", bs, "·(", matrices, "·",
                      G(MegatronLayers(m)), " + ", attention, "·", m.sequence, "·", m.layers, "·",
                      m.attention_width(), " + ", six, "·", m.width, "·", m.vocab, ")");
}
std::string MegatronText(const RuleSizes& s) {
  return MegatronForm(s, Factor(s), s.backward ? 12 : 4);
}
std::string MegatronCausalText(const RuleSizes& s) {
  return MegatronForm(s, Factor(s), s.backward ? 6 : 2);
}
std::string MegatronRecomputeText(const RuleSizes& s) { return MegatronForm(s, 8, 16); }
std::string TrainedLanguageModels(const RuleSizes& s) {
  return s.backward ? LanguageModels(s) : "nothing runs backward, so nothing is made again";
}

// ---- Training programs

RuleParts NanoGpt(const RuleSizes& s) {
  RuleParts p = Palm(s);
  p.n.tables = 0;
  return p;
}
std::string NanoGptText(const RuleSizes& s) {
  return PerToken(s, "(N - positions)", s.n.total() - s.n.tables, 12);
}
RuleParts LlmC(const RuleSizes& s) { return {.n = s.n, .attention = AttentionFlops(s, 6)}; }
std::string LlmCText(const RuleSizes& s) { return PerToken(s, "N", s.n.total(), 6); }
RuleParts TorchTitan(const RuleSizes& s) {
  RuleParts p = NanoGpt(s);
  p.inactive = s.inactive;
  return p;
}
std::string TorchTitanText(const RuleSizes& s) {
  const ModelShape& m = s.shape;
  const int64_t six = Factor(s);
  const Count n = s.n.total() - s.inactive;
  return absl::StrCat("(", six, "·(N - N_embedding) + ", six, "·L·H·(d_qk + d_v)·T)·D = (", six,
                      "·(", G(n), " - ", G(s.n.tables), ") + ", six, "·", m.layers, "·", m.heads,
                      "·", 2 * m.head_dim, "·", m.sequence, ")·", G(s.tokens));
}

}  // namespace

const std::vector<FlopRule>& FlopRules() {
  static const std::vector<FlopRule>* const rules = new std::vector<FlopRule>{
      {"6ND", "Kaplan et al. 2020, arXiv 2001.08361; N all parameters", Anything, All, AllText},
      {"6ND_non_embedding", "Kaplan et al. 2020, arXiv 2001.08361; N without look-up tables",
       Anything, NonEmbedding, NonEmbeddingText},
      {"6ND_matmul", "6·N·D with N the weights of contractions", Anything, Matmul, MatmulText},
      {"6ND_active", "6·N·D with N the parameters that a token passes", ExpertModels, Active,
       ActiveText},
      {"kaplan", "Kaplan et al. 2020, arXiv 2001.08361, table 1, backward twice forward",
       LanguageModels, Kaplan, KaplanText, true},
      {"chinchilla", "Hoffmann et al. 2022, arXiv 2203.15556, what table A4 has: layers alone",
       PlainLayers, ChinchillaBody, ChinchillaText, true},
      {"chinchilla_as_printed", "Hoffmann et al. 2022, arXiv 2203.15556, appendix F", PlainLayers,
       ChinchillaPrinted, ChinchillaPrintedText, true},
      {"palm", "Chowdhery et al. 2022, arXiv 2204.02311, appendix B", LanguageModels, Palm,
       PalmText, true},
      {"megatron", "Narayanan et al. 2021, arXiv 2104.04473, without recomputation", LanguageModels,
       Megatron, MegatronText, true},
      {"megatron_causal", "Megatron-LM's count, half of attention", LanguageModels, MegatronCausal,
       MegatronCausalText, true},
      {"megatron_recompute", "Narayanan et al. 2021, arXiv 2104.04473, every layer recomputed",
       TrainedLanguageModels, MegatronRecompute, MegatronRecomputeText, true},
      {"nanogpt", "nanoGPT, estimate_mfu", Gpt2s, NanoGpt, NanoGptText, true},
      {"llm.c", "llm.c, gpt2_estimate_mfu", Gpt2s, LlmC, LlmCText, true},
      {"torchtitan", "torchtitan, FLOPs of dense and expert models", LanguageModels, TorchTitan,
       TorchTitanText, true},
  };
  return *rules;
}

absl::StatusOr<Count> RuleFlops(const std::string& name, const RuleSizes& sizes) {
  for (const FlopRule& rule : FlopRules()) {
    if (name != rule.name) continue;
    const std::string why = rule.refuses(sizes);
    if (!why.empty()) return absl::FailedPreconditionError(absl::StrCat(name, ": ", why));
    return Flops(rule.parts(sizes), sizes);
  }
  return absl::NotFoundError(absl::StrCat("there is no rule ", name));
}

}  // namespace tally
