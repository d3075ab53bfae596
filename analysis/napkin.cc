#include "tally/analysis/napkin.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

// With it 6·N·D, N times a recipe and a step's FLOPs times D all fit 128 bits.
constexpr int64_t kMost = 1'000'000'000'000'000'000;
constexpr int64_t kMostBytesPerParameter = 1'000'000;
constexpr int64_t kFlopsPerParameterAndToken = 6;

absl::Status CheckCount(const char* what, const std::optional<Count>& count) {
  if (!count || (*count > 0 && *count <= kMost)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", ToGrouped(*count), " is no number from 1 to ", ToGrouped(kMost)));
}

absl::Status CheckQuestion(const NapkinQuestion& q) {
  TALLY_RETURN_IF_ERROR(CheckCount("parameters", q.parameters));
  TALLY_RETURN_IF_ERROR(CheckCount("tokens", q.tokens));
  TALLY_RETURN_IF_ERROR(CheckCount("GPUs", Count(q.gpus)));
  if (q.memory) TALLY_RETURN_IF_ERROR(CheckCount("bytes of memory", Count(*q.memory)));
  if (q.recipe && (q.recipe->total < 1 || q.recipe->total > kMostBytesPerParameter)) {
    return absl::InvalidArgumentError(absl::StrCat("recipe: ", q.recipe->total,
                                                   " is no number of bytes from 1 to ",
                                                   ToGrouped(kMostBytesPerParameter)));
  }
  if (q.peak && !(*q.peak > 0 && std::isfinite(*q.peak)))
    return absl::InvalidArgumentError(
        absl::StrCat("peak: ", *q.peak, " is no positive number of FLOP/s"));
  if (q.mfu && !(*q.mfu > 0 && *q.mfu <= 1))
    return absl::InvalidArgumentError(
        absl::StrCat("MFU: ", *q.mfu, " is not above 0 and at most 1, as a part of the peak is"));
  return absl::OkStatus();
}

double Quotient(Count part, Count whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

absl::StatusOr<NapkinAnswer> AnswerNapkin(const NapkinQuestion& q) {
  TALLY_RETURN_IF_ERROR(CheckQuestion(q));
  NapkinAnswer a;
  if (q.parameters && q.tokens) a.flops = *q.parameters * *q.tokens * kFlopsPerParameterAndToken;
  if (q.peak && q.mfu) {
    a.rate = static_cast<double>(q.gpus) * *q.peak * *q.mfu;
    if (a.flops) {
      a.seconds = static_cast<double>(*a.flops) / *a.rate;
      a.gpu_seconds = static_cast<double>(*a.flops) / (*q.peak * *q.mfu);
    }
  }
  if (q.memory) a.memory = Count(q.gpus) * *q.memory;
  if (q.recipe) {
    if (q.parameters) a.state_bytes = *q.parameters * q.recipe->total;
    if (a.memory) a.largest_parameters = *a.memory / q.recipe->total;
  }
  if (a.state_bytes && q.memory) a.fewest_gpus = (*a.state_bytes + *q.memory - 1) / *q.memory;
  return a;
}

absl::StatusOr<NapkinComparison> CompareNapkin(const SplitProof& proof,
                                               const AttentionReport& attention, Count tokens) {
  TALLY_RETURN_IF_ERROR(CheckCount("tokens", tokens));
  if (proof.backward == 0 || proof.tokens == 0 || proof.parameters == 0) {
    return absl::InvalidArgumentError(
        "the record has no backward contractions, parameters or tokens; 6·N·D is of training");
  }
  const Reconciliation& rule = proof.reconciliations[0];
  const Count base = rule.parameters * proof.tokens * kFlopsPerParameterAndToken;
  if (proof.total() > absl::Int128Max() / tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToGrouped(tokens), " times the step's ", ToGrouped(proof.total()),
                     " FLOPs is more than 128 bits hold; compare a smaller batch or fewer tokens"));
  }
  NapkinComparison c;
  c.parameters = proof.parameters;
  c.parameters_active = proof.parameters_active;
  c.step_flops = proof.total();
  c.step_tokens = proof.tokens;
  c.tokens = tokens;
  c.rule_flops = c.parameters * tokens * kFlopsPerParameterAndToken;
  c.flops = c.step_flops * tokens / c.step_tokens;
  c.ratio = Quotient(c.step_flops, base);
  const AttentionCounts all = attention.total();
  if (all.other.causal_half != all.nominal) {
    c.flops_causal_half =
        (c.step_flops - all.nominal + all.other.causal_half) * tokens / c.step_tokens;
  }
  for (const ProofTerm& term : rule.terms) {
    if (term.key != rule.name && term.flops != 0)
      c.terms.push_back({term.label, Quotient(term.flops, base)});
  }
  std::stable_sort(c.terms.begin(), c.terms.end(), [](const auto& a, const auto& b) {
    return std::fabs(a.part) > std::fabs(b.part);
  });
  return c;
}

}  // namespace tally
