// Polynomials recovered exactly, and the proof that a step follows them at every size.
#include "tally/analysis/polynomial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tally/analysis/all_sizes.h"

namespace tally {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Through the values of `f` at the given sizes.
template <typename F>
absl::StatusOr<Polynomial> Through(const std::vector<int64_t>& batches,
                                   const std::vector<int64_t>& sequences, const F& f) {
  std::vector<std::vector<Count>> values;
  for (int64_t b : batches) {
    values.emplace_back();
    for (int64_t t : sequences) values.back().push_back(f(Count(b), Count(t)));
  }
  return Interpolate(batches, sequences, values);
}

TEST(Polynomial, IsRecoveredExactly) {
  const auto f = [](Count b, Count t) {
    return b * t * 247'064'064 + b * t * t * 36'864 - t * 12 + 5;
  };
  const absl::StatusOr<Polynomial> p = Through({2, 3}, {7, 500, 1024}, f);
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_EQ(p->ToString(), "247,064,064·B·T + 36,864·B·T² + 5 - 12·T");
  for (const auto& [b, t] : {std::pair<int64_t, int64_t>{1, 1}, {1, 1024}, {512, 131'072}})
    EXPECT_EQ(*p->At(b, t), f(b, t));
  EXPECT_EQ(Through({2, 3}, {1, 2}, [](Count, Count) { return Count(0); })->ToString(), "0");
}

TEST(Polynomial, HasRationalCoefficients) {
  // Pairs below the diagonal: t (t + 1) / 2.
  const absl::StatusOr<Polynomial> p =
      Through({1, 4}, {3, 4, 9}, [](Count b, Count t) { return b * t * (t + 1) / 2; });
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(p->ToString(), "1/2·B·T + 1/2·B·T²");
  EXPECT_EQ(*p->At(2, 100), 2 * 5050);
  const Polynomial half{{{{1, 2}, 1, 0}, {{-1, 1}, 0, 0}}};
  EXPECT_EQ(half.ToString(), "1/2·B - 1");
  EXPECT_EQ(*half.At(6, 0), 2);
  EXPECT_EQ(half.At(3, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Polynomial, HoldsMoreThanSixtyFourBits) {
  // A step of a 405B model on 16.8 M tokens: 2.6e12 a token, products beyond 2^64.
  const auto f = [](Count b, Count t) {
    return b * t * Count(2'422'487'384'064) + b * t * t * 24'772'608;
  };
  const absl::StatusOr<Polynomial> p = Through({2, 3}, {32'768, 65'536, 98'304}, f);
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_EQ(*p->At(2048, 8192),
            Count(2048) * 8192 * (Count(2'422'487'384'064) + Count(24'772'608) * 8192));
  const Polynomial cube{{{{Count(1) << 100, 1}, 0, 2}}};
  EXPECT_EQ(cube.At(1, int64_t{1} << 20).status().code(), absl::StatusCode::kOutOfRange);
}

PeakPart Part(int64_t constant, int64_t bt, NodeId node) {
  PeakPart part;
  if (bt != 0) part.bytes.terms.push_back({{bt, 1}, 1, 1});
  if (constant != 0) part.bytes.terms.push_back({{constant, 1}, 0, 0});
  part.node = node;
  return part;
}

TEST(Greatest, KeepsThoseThatLead) {
  // Backward gives activations back and makes gradients: between its ends nothing leads. The ends
  // do, at one token and at many.
  const std::vector<PeakPart> all = {Part(0, 100, 0),   Part(1000, 70, 1), Part(2000, 40, 2),
                                     Part(3000, 10, 3), Part(900, 60, 4),  Part(3000, 10, 5)};
  const absl::StatusOr<std::vector<PeakPart>> kept = Greatest(all, 1, 1024);
  ASSERT_TRUE(kept.ok());
  ASSERT_EQ(kept->size(), 2u);
  EXPECT_EQ((*kept)[0].node, 0);
  EXPECT_EQ((*kept)[1].node, 3);
  // The greatest of all is that of the kept ones, by brute force.
  for (int64_t t = 1; t <= 200; ++t) {
    Count most = 0, most_kept = 0;
    for (const PeakPart& part : all) most = std::max(most, *part.bytes.At(1, t));
    for (const PeakPart& part : *kept) most_kept = std::max(most_kept, *part.bytes.At(1, t));
    EXPECT_EQ(most, most_kept) << t;
  }
}

TEST(Greatest, KeepsWhatBendsUpwards) {
  // Above the mean of the others near the crossing: it leads there.
  const absl::StatusOr<std::vector<PeakPart>> kept =
      Greatest({Part(0, 100, 0), Part(1600, 50, 1), Part(3000, 0, 2)}, 1, 1024);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->size(), 3u);
}

TEST(AllSizes, LeaveScratchInBlocksOutOfThePeak) {
  // 64 bytes of scratch for each block of 100 rows begun, live with the activations.
  const StepAt step = [](int64_t b, int64_t t) -> absl::StatusOr<StepCounts> {
    const Count scratch = 64 * ((b * t + 99) / 100);
    return StepCounts{.live = {0, Count(4) * b * t}, .scratch = {0, scratch}, .live_at = {0, 3}};
  };
  SizesRequest request{.own = {1, 1000}, .longest = 1000};
  request.counts = *step(1, 1000);
  const absl::StatusOr<SizesProof> proof = ProveForAllSizes(request, step);
  ASSERT_TRUE(proof.ok());
  ASSERT_EQ(proof->pieces[0].peaks.size(), 1u);
  const PeakPiece& peak = proof->pieces[0].peaks[0];
  EXPECT_FALSE(peak.has_scratch);
  EXPECT_THAT(peak.note, HasSubstr("with scratch: "));
  ASSERT_EQ(peak.greatest_of.size(), 1u);
  EXPECT_EQ(peak.greatest_of[0].bytes.ToString(), "4·B·T");
  EXPECT_EQ(peak.greatest_of[0].node, 3);
}

TEST(AllSizes, GiveABatchOfOneAPeakOfItsOwn) {
  // One sequence needs no sum over the batch, and one token no copy.
  const StepAt step = [](int64_t b, int64_t t) -> absl::StatusOr<StepCounts> {
    StepCounts counts{.live = {8, Count(8) + 4 * b * t}, .scratch = {0, 0}, .live_at = {0, 1}};
    if (b > 1) {
      counts.live.push_back(Count(8) + 6 * b * t);
      counts.scratch.push_back(0);
      counts.live_at.push_back(2);
    }
    if (t == 1) counts.live_at[1] = 5;
    return counts;
  };
  SizesRequest request{.own = {1, 64}, .longest = 64};
  request.counts = *step(1, 64);
  const absl::StatusOr<SizesProof> proof = ProveForAllSizes(request, step);
  ASSERT_TRUE(proof.ok());
  const std::vector<PeakPiece>& peaks = proof->pieces[0].peaks;
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_EQ(peaks[0].batch_to, 1);
  EXPECT_EQ(peaks[0].from, 2);
  EXPECT_EQ(peaks[0].greatest_of[0].bytes.ToString(), "8 + 4·T");
  EXPECT_EQ(peaks[1].batch_from, 2);
  EXPECT_EQ(peaks[1].from, 2);
  EXPECT_EQ(peaks[1].greatest_of[0].bytes.ToString(), "6·B·T + 8");
}

// A step that costs what `forward` says and keeps 4·B·T bytes beside 100.
template <typename F>
StepAt StepOf(const F& forward) {
  return [forward](int64_t b, int64_t t) -> absl::StatusOr<StepCounts> {
    StepCounts counts;
    counts.figures = {{"forward", "FLOPs", forward(Count(b), Count(t))},
                      {"saved", "B", Count(4) * b * t}};
    counts.live = {100, Count(100) + 4 * b * t, 100};
    counts.live_at = {0, 0, 1};
    counts.scratch = {0, 0, 0};
    return counts;
  };
}

SizesRequest RequestFor(const StepAt& step, int64_t longest, std::vector<int64_t> breaks = {}) {
  SizesRequest request{.own = {1, longest == 0 ? 96 : longest}};
  request.counts = *step(request.own.first, request.own.second);
  request.longest = longest;
  request.breaks = std::move(breaks);
  return request;
}

TEST(AllSizes, HoldForAStepOfPolynomials) {
  const StepAt step = StepOf([](Count b, Count t) { return b * t * 6 + b * t * t * 2; });
  const SizesRequest request = RequestFor(step, 1024);
  const absl::StatusOr<SizesProof> proof = ProveForAllSizes(request, step);
  ASSERT_TRUE(proof.ok()) << proof.status();
  EXPECT_THAT(proof->failures, IsEmpty());
  ASSERT_EQ(proof->pieces.size(), 1u);
  EXPECT_EQ(proof->pieces[0].lines[0].polynomial.ToString(), "6·B·T + 2·B·T²");
  ASSERT_EQ(proof->pieces[0].peaks.size(), 1u);
  EXPECT_EQ(proof->pieces[0].peaks[0].batch_from, 1);
  ASSERT_EQ(proof->pieces[0].peaks[0].greatest_of.size(), 1u);
  EXPECT_EQ(proof->pieces[0].peaks[0].greatest_of[0].bytes.ToString(), "4·B·T + 100");
  // Both ends, another length, and the record: none of them went into the fit.
  EXPECT_EQ(proof->checked, (std::vector<StepSize>{{1, 1}, {1, 1024}, {5, 1}, {5, 342}}));
  EXPECT_GE(static_cast<size_t>(NumTraces(request)), proof->fitted.size() + proof->checked.size());
}

TEST(AllSizes, NameTheSizeAtWhichAStepDiffers) {
  // One FLOP more at one held-out size.
  const StepAt wrong = StepOf([](Count b, Count t) { return b * t * 6 + (b == 5 && t == 342); });
  const absl::StatusOr<SizesProof> proof = ProveForAllSizes(RequestFor(wrong, 1024), wrong);
  ASSERT_TRUE(proof.ok());
  ASSERT_EQ(proof->failures.size(), 1u);
  EXPECT_EQ(proof->failures[0],
            "forward at batch 5 x sequence 342: the polynomial gives 10,260, the trace 10,261");
  // A cube is no polynomial of degree 2, nor is a batch squared.
  for (const auto& f :
       {std::function<Count(Count, Count)>([](Count b, Count t) { return b * t * t * t; }),
        std::function<Count(Count, Count)>([](Count b, Count t) { return b * b * t; })}) {
    const StepAt step = StepOf(f);
    const absl::StatusOr<SizesProof> failed = ProveForAllSizes(RequestFor(step, 64), step);
    ASSERT_TRUE(failed.ok());
    EXPECT_FALSE(failed->holds());
  }
  const StepAt broken = [](int64_t b, int64_t) -> absl::StatusOr<StepCounts> {
    if (b == 3) return absl::InvalidArgumentError("too large");
    return StepCounts{.live = {0}, .scratch = {0}, .live_at = {0}};
  };
  EXPECT_THAT(
      std::string(ProveForAllSizes({.own = {1, 8}, .longest = 8}, broken).status().message()),
      HasSubstr("at batch 3 x sequence 2: too large"));
}

TEST(AllSizes, LeaveOutWhatIsAMaximumOfSeveral) {
  // At length 6 and above the second leads: neither is the greatest at every size.
  const StepAt flops = StepOf([](Count b, Count t) { return b * t; });
  const StepAt step = [&](int64_t b, int64_t t) -> absl::StatusOr<StepCounts> {
    absl::StatusOr<StepCounts> counts = flops(b, t);
    counts->figures[1] = {"saved", "bytes", std::max(Count(b) * 30, Count(b) * 5 * t), true};
    return counts;
  };
  const absl::StatusOr<SizesProof> proof = ProveForAllSizes(RequestFor(step, 64), step);
  ASSERT_TRUE(proof.ok());
  EXPECT_TRUE(proof->holds());
  EXPECT_EQ(proof->pieces[0].lines[0].note, "");
  EXPECT_EQ(proof->pieces[0].lines[1].name, "saved");
  EXPECT_THAT(proof->pieces[0].lines[1].note, HasSubstr("at batch 1 x sequence 1: the polynomial"));
  // From 6 on one of them leads everywhere, and is the polynomial.
  const absl::StatusOr<SizesProof> above = ProveForAllSizes(RequestFor(step, 64, {5}), step);
  ASSERT_TRUE(above.ok());
  EXPECT_EQ(above->pieces[1].lines[1].note, "");
  EXPECT_EQ(above->pieces[1].lines[1].polynomial.ToString(), "5·B·T");
}

TEST(AllSizes, ArePiecewiseAtABreak) {
  // Pairs within a window of 10: t² up to there, then what a window lets through.
  const StepAt step = StepOf([](Count b, Count t) {
    Count pairs = t * t;
    if (t > 10) pairs = 10 * t - 45;
    return b * pairs;
  });
  const absl::StatusOr<SizesProof> proof = ProveForAllSizes(RequestFor(step, 50, {10}), step);
  ASSERT_TRUE(proof.ok());
  EXPECT_THAT(proof->failures, IsEmpty());
  ASSERT_EQ(proof->pieces.size(), 2u);
  EXPECT_EQ(proof->pieces[0].to, 10);
  EXPECT_EQ(proof->pieces[0].lines[0].polynomial.ToString(), "B·T²");
  EXPECT_EQ(proof->pieces[1].from, 11);
  EXPECT_EQ(proof->pieces[1].lines[0].polynomial.ToString(), "-45·B + 10·B·T");
  // Without the break the polynomial does not hold.
  EXPECT_FALSE(ProveForAllSizes(RequestFor(step, 50), step)->holds());
}

TEST(AllSizes, OfAFixedLengthAreInTheBatchAlone) {
  const StepAt step = StepOf([](Count b, Count t) { return b * t * t; });
  const absl::StatusOr<SizesProof> proof = ProveForAllSizes(RequestFor(step, 0), step);
  ASSERT_TRUE(proof.ok());
  EXPECT_THAT(proof->failures, IsEmpty());
  EXPECT_EQ(proof->pieces[0].lines[0].polynomial.ToString(), "9,216·B");  // 96²
}

}  // namespace
}  // namespace tally
