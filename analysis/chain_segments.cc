#include "tally/analysis/chain_segments.h"

#include <algorithm>
#include <limits>

#include "tally/analysis/simulate.h"

namespace tally {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The peak of stages first.. as one segment, grown stage by stage, with `stored` bytes of
// boundaries before its own input.
class SegmentPeak {
 public:
  SegmentPeak(const PassModel& pass, int first, int64_t stored)
      : stages_(pass.stages),
        first_(first),
        stored_(stored),
        input_(first > 0 ? stages_[first - 1].boundary_bytes : 0) {}

  // Takes stage `r`, the next one, in. `kept` is then the peak if the segment ends with the chain
  // and is not made again, `again` if it is.
  void Grow(int r) {
    const StageModel& stage = stages_[r];
    const bool stays = r == first_ || stage.reads_in || stages_[r - 1].reads_out;
    // Beside a stage live the boundaries before the segment and what its earlier stages keep.
    const int64_t beside = r == first_ ? stored_ : stored_ + input_ + held_;
    forward_ = std::max(forward_,
                        stage.first[r == first_][0] + (r == first_ ? stored_ : stored_ + input_));
    kept_ = std::max(kept_, beside + stage.first[stays][1]);
    back_ = std::max(back_, beside + stage.back);
    const int end_run = Run(stage.reads_out ? StageRun::kBoth : StageRun::kTape);
    last_ = beside + stage.again[end_run][stays];
    base_ = stage.base;
    way_before_ = way_;
    way_ = std::max(way_, beside + stage.again[Run(StageRun::kBoth)][stays]);
    // A later stage's own figures hold its input.
    held_ += stage.tape_bytes + (r == first_ ? 0 : stages_[r - 1].boundary_bytes);
  }

  int64_t kept() const { return std::max(kept_, back_); }
  int64_t again() const {
    return std::max({forward_, back_, base_ + std::max(way_before_, last_)});
  }

 private:
  static int Run(StageRun run) { return static_cast<int>(run); }

  const std::vector<StageModel>& stages_;
  const int first_;
  const int64_t stored_, input_;
  int64_t held_ = 0;  // tapes, and boundaries inside, before the newest stage
  int64_t forward_ = 0, kept_ = 0, back_ = 0;               // in all bytes
  int64_t way_ = 0, way_before_ = 0, last_ = 0, base_ = 0;  // of runs again, beside base_
};

// Cuts with a peak of at most `most`; empty: there are none.
std::vector<int> SegmentsWithin(const PassModel& pass, int64_t most) {
  const int n = static_cast<int>(pass.stages.size());
  std::vector<int64_t> stored(n, kNever);  // least bytes of boundaries before that of each cut
  std::vector<int> from(n, 0);
  stored[0] = 0;
  for (int first = 0; first < n; ++first) {
    if (stored[first] == kNever) continue;
    SegmentPeak peak(pass, first, stored[first]);
    const int64_t with = stored[first] + (first > 0 ? pass.stages[first - 1].boundary_bytes : 0);
    for (int r = first; r < n; ++r) {
      peak.Grow(r);
      if (r + 1 == n) {
        if (peak.kept() > most) break;
        std::vector<int> cuts;
        for (int at = first; at > 0; at = from[at]) cuts.push_back(at);
        cuts.push_back(0);
        std::reverse(cuts.begin(), cuts.end());
        return cuts;
      }
      if (peak.again() <= most && with < stored[r + 1]) {
        stored[r + 1] = with;
        from[r + 1] = first;
      }
    }
  }
  return {};
}

}  // namespace

std::vector<int> LeastPeakSegments(const PassModel& pass) {
  // One segment is always possible.
  SegmentPeak whole(pass, 0, 0);
  for (size_t r = 0; r < pass.stages.size(); ++r) whole.Grow(static_cast<int>(r));
  int64_t high = whole.kept(), low = 0;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (SegmentsWithin(pass, middle).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return SegmentsWithin(pass, high);
}

Plan PlanSegmentsAt(const Graph& graph, const LayerChain& chain, const ChainModel& model,
                    const std::vector<std::vector<int>>& cuts) {
  ChainRuns runs(graph, chain, model);
  std::vector<PlanSegment> segments;
  for (size_t p = 0; p < chain.passes.size(); ++p) {
    const std::vector<ChainStage>& stages = chain.passes[p].stages;
    runs.EnterPass(p);
    for (size_t j = 0; j < stages.size(); ++j) runs.First(j);
    size_t end = stages.size();
    for (size_t i = cuts[p].size(); i-- > 0;) {
      const size_t first = cuts[p][i];
      if (i + 1 < cuts[p].size()) {
        for (size_t j = first; j < end; ++j) {
          const bool both = j + 1 < end || stages[j].reads_out;
          runs.Again(j, both ? StageRun::kBoth : StageRun::kTape);
        }
      }
      for (size_t j = end; j-- > first;) runs.Back(j);
      end = first;
    }
    if (p > 0) continue;
    for (size_t i = 0; i < cuts[p].size(); ++i) {
      PlanSegment segment;
      segment.recomputed = i + 1 < cuts[p].size();
      const size_t after = segment.recomputed ? cuts[p][i + 1] : stages.size();
      for (size_t j = cuts[p][i]; j < after; ++j) {
        segment.blocks.insert(segment.blocks.end(), stages[j].blocks.begin(),
                              stages[j].blocks.end());
      }
      if (!segment.blocks.empty()) segments.push_back(std::move(segment));
    }
  }
  Plan plan = PlanFromRuns(graph, runs.Finish());
  plan.segments = std::move(segments);
  return plan;
}

}  // namespace tally
