#include "tally/analysis/all_sizes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/split.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

// Batches whose traces give the polynomials; others must agree.
const std::vector<int64_t>& FitBatches() {
  static const std::vector<int64_t>* const batches = new std::vector<int64_t>{2, 3};
  return *batches;
}

// A batch that is held out.
constexpr int64_t kOtherBatch = 5;
// Further traces for peaks.
constexpr int kPeakTraces = 5;

struct PieceSizes {
  int64_t from = 0, to = 0;
  std::vector<int64_t> fit;      // T
  std::vector<StepSize> checks;  // besides the record's own
};

// Three lengths inside the piece, as many as there are; its ends and another are held out.
PieceSizes SizesOf(int64_t from, int64_t to) {
  PieceSizes sizes{from, to};
  const int64_t n = to - from;
  for (int64_t t : {from + n / 4, from + n / 2, from + n / 2 + n / 4}) {
    if (sizes.fit.empty() || sizes.fit.back() != t) sizes.fit.push_back(t);
  }
  sizes.checks.emplace_back(1, from);
  if (n > 0) sizes.checks.emplace_back(1, to);
  sizes.checks.emplace_back(kOtherBatch, from);
  if (n > 0) sizes.checks.emplace_back(kOtherBatch, from + n / 3);
  return sizes;
}

std::vector<PieceSizes> Pieces(const SizesRequest& request) {
  if (request.longest == 0) {
    const int64_t fixed = request.own.second;
    return {{fixed, fixed, {fixed}, {{1, fixed}, {kOtherBatch, fixed}}}};
  }
  std::vector<int64_t> ends;
  for (int64_t end : request.breaks) {
    if (end >= 1 && end < request.longest) ends.push_back(end);
  }
  ends.push_back(request.longest);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<PieceSizes> pieces;
  int64_t from = 1;
  for (int64_t end : ends) {
    pieces.push_back(SizesOf(from, end));
    from = end + 1;
  }
  return pieces;
}

std::string InWords(const SizesRequest& request, StepSize size) {
  if (request.own.second == 0) return absl::StrCat("batch ", ToGrouped(size.first));
  return absl::StrCat("batch ", ToGrouped(size.first), " x sequence ", ToGrouped(size.second));
}

class Prover {
 public:
  Prover(const SizesRequest& request, const StepAt& step) : request_(request), step_(step) {}

  absl::StatusOr<SizesProof> Run() {
    proof_.in_sequence = request_.longest > 0;
    for (const PieceSizes& sizes : Pieces(request_)) TALLY_RETURN_IF_ERROR(Piece(sizes));
    return std::move(proof_);
  }

 private:
  absl::StatusOr<StepCounts> Trace(StepSize size) const {
    absl::StatusOr<StepCounts> counts = step_(size.first, size.second);
    if (counts.ok()) return counts;
    return absl::Status(counts.status().code(), absl::StrCat("at ", InWords(request_, size), ": ",
                                                             counts.status().message()));
  }

  absl::Status Piece(const PieceSizes& sizes) {
    samples_.clear();
    SizesPiece piece{sizes.from, sizes.to};
    for (int64_t batch : FitBatches()) {
      for (int64_t t : sizes.fit) {
        const StepSize size(batch, t);
        TALLY_ASSIGN_OR_RETURN(StepCounts counts, Trace(size));
        samples_.emplace(size, std::move(counts));
        proof_.fitted.push_back(size);
      }
    }
    const std::vector<StepCounts::Figure>& figures = samples_.begin()->second.figures;
    for (size_t f = 0; f < figures.size(); ++f) {
      TALLY_ASSIGN_OR_RETURN(
          Polynomial polynomial,
          Fit(FitBatches(), sizes.fit, [f](const StepCounts& c) { return c.figures[f].value; }));
      piece.lines.push_back(
          {figures[f].name, figures[f].unit, std::move(polynomial), figures[f].most});
    }
    for (StepSize size : sizes.checks) TALLY_RETURN_IF_ERROR(Sample(size, piece).status());
    if (request_.own.second >= sizes.from && request_.own.second <= sizes.to) {
      Check(request_.own, request_.counts, piece);
      samples_.emplace(request_.own, request_.counts);
    }
    TALLY_RETURN_IF_ERROR(FindPeaks(sizes, piece));
    proof_.pieces.push_back(std::move(piece));
    return absl::OkStatus();
  }

  // The trace at a size, made and compared with the polynomials once.
  absl::StatusOr<const StepCounts*> Sample(StepSize size, SizesPiece& piece) {
    const auto it = samples_.find(size);
    if (it != samples_.end()) return &it->second;
    TALLY_ASSIGN_OR_RETURN(StepCounts counts, Trace(size));
    Check(size, counts, piece);
    return &samples_.emplace(size, std::move(counts)).first->second;
  }

  // Through samples at these sizes.
  template <typename Value>
  absl::StatusOr<Polynomial> Fit(const std::vector<int64_t>& batches,
                                 const std::vector<int64_t>& sequences, const Value& value) const {
    std::vector<std::vector<Count>> values;
    for (int64_t batch : batches) {
      values.emplace_back();
      for (int64_t t : sequences) values.back().push_back(value(samples_.at({batch, t})));
    }
    return Interpolate(batches, sequences, values);
  }

  absl::Status FindPeaks(const PieceSizes& sizes, SizesPiece& piece) {
    PeakPiece peak{.batch_from = 1};
    TALLY_RETURN_IF_ERROR(FindPeak(FitBatches(), kOtherBatch, sizes, piece, peak));
    if (peak.greatest_of.empty()) {
      // A batch of one may be all that it does not fit.
      peak = {.batch_from = 2};
      TALLY_RETURN_IF_ERROR(FindPeak(FitBatches(), kOtherBatch, sizes, piece, peak));
      PeakPiece one{.batch_from = 1, .batch_to = 1};
      for (int64_t t : sizes.fit) TALLY_RETURN_IF_ERROR(Sample({1, t}, piece).status());
      TALLY_RETURN_IF_ERROR(FindPeak({1}, 1, sizes, piece, one));
      piece.peaks.push_back(std::move(one));
    }
    piece.peaks.push_back(std::move(peak));
    return absl::OkStatus();
  }

  // From samples at `batches`; `other` is a batch that they stand for.
  absl::Status FindPeak(const std::vector<int64_t>& batches, int64_t other, const PieceSizes& sizes,
                        SizesPiece& piece, PeakPiece& peak) {
    const StepCounts& first = samples_.at({batches[0], sizes.fit[0]});
    peak.from = sizes.from;
    TALLY_ASSIGN_OR_RETURN(const StepCounts* start, Sample({other, sizes.from}, piece));
    if (start->live_at != first.live_at && sizes.to > sizes.from) {
      ++peak.from;
      TALLY_RETURN_IF_ERROR(Sample({other, peak.from}, piece).status());
    }
    for (const auto& [size, counts] : samples_) {
      if (!Covers(peak, size) || counts.live_at == first.live_at) continue;
      peak.note = absl::StrCat("the record at ", InWords(request_, size),
                               " takes and frees storages at other nodes than that at ",
                               InWords(request_, {batches[0], sizes.fit[0]}));
      return absl::OkStatus();
    }
    for (const bool scratch : {true, false}) {
      peak.has_scratch = scratch;
      peak.greatest_of = PeakParts(batches, sizes, first, scratch);
      const std::string wrong =
          peak.greatest_of.empty() ? "live bytes are no polynomials" : PeakDiffers(peak);
      if (wrong.empty()) return absl::OkStatus();
      peak.greatest_of.clear();
      absl::StrAppend(&peak.note, scratch ? "with scratch: " : "; without: ", wrong);
    }
    return absl::OkStatus();
  }

  static bool Covers(const PeakPiece& peak, StepSize size) {
    return size.first >= peak.batch_from && (peak.batch_to == 0 || size.first <= peak.batch_to) &&
           size.second >= peak.from;
  }

  // Empty when some live bytes are no polynomial with whole coefficients.
  std::vector<PeakPart> PeakParts(const std::vector<int64_t>& batches, const PieceSizes& sizes,
                                  const StepCounts& first, bool scratch) const {
    std::vector<PeakPart> parts;
    for (size_t e = 0; e < first.live.size(); ++e) {
      absl::StatusOr<Polynomial> bytes = Fit(batches, sizes.fit, [&](const StepCounts& c) {
        return c.live[e] + (scratch ? c.scratch[e] : Count(0));
      });
      if (!bytes.ok()) return {};
      parts.push_back({*std::move(bytes), first.live_at[e]});
    }
    return Greatest(parts, sizes.from, sizes.to).value_or(std::vector<PeakPart>());
  }

  // "" where every sample has what the polynomials give.
  std::string PeakDiffers(const PeakPiece& peak) const {
    for (const auto& [size, counts] : samples_) {
      if (!Covers(peak, size)) continue;
      Count greatest = 0;
      for (const PeakPart& part : peak.greatest_of) {
        const absl::StatusOr<Count> bytes = part.bytes.At(size.first, size.second);
        if (bytes.ok()) greatest = std::max(greatest, *bytes);
      }
      const Count traced = counts.peak(peak.has_scratch);
      if (greatest == traced) continue;
      return absl::StrCat("at ", InWords(request_, size), " they give ", ToGrouped(greatest),
                          " B, the trace ", ToGrouped(traced), " B");
    }
    return "";
  }

  void Check(StepSize size, const StepCounts& counts, SizesPiece& piece) {
    // The record's own size may be traced too: both count, the size is listed once.
    std::vector<StepSize>& checked = proof_.checked;
    if (std::find(checked.begin(), checked.end(), size) == checked.end()) checked.push_back(size);
    const auto fail = [&](SizesPiece::Line& line, const std::string& got, Count traced) {
      const std::string what =
          absl::StrCat(" at ", InWords(request_, size), ": the polynomial gives ", got,
                       ", the trace ", ToGrouped(traced));
      if (line.most)
        line.note = absl::StrCat("the most at once, which is at other moments", what);
      else
        proof_.failures.push_back(line.name + what);
    };
    for (size_t f = 0; f < piece.lines.size(); ++f) {
      if (!piece.lines[f].note.empty()) continue;
      const absl::StatusOr<Count> value = piece.lines[f].polynomial.At(size.first, size.second);
      const Count traced = f < counts.figures.size() ? counts.figures[f].value : Count(0);
      if (!value.ok())
        fail(piece.lines[f], std::string(value.status().message()), traced);
      else if (*value != traced)
        fail(piece.lines[f], ToGrouped(*value), traced);
    }
  }

  std::map<StepSize, StepCounts> samples_;  // of the piece
  const SizesRequest& request_;
  const StepAt& step_;
  SizesProof proof_;
};

}  // namespace

StepCounts CountStep(const Graph& graph) {
  const SplitProof proof = ProveSplit(graph);
  StepCounts counts;
  const auto add = [&](const char* name, const char* unit, Count value) {
    counts.figures.push_back({name, unit, value});
  };
  add("forward", "FLOPs", proof.forward);
  add("forward_weights", "FLOPs", proof.weight_forward);
  add("forward_activations", "FLOPs", proof.activation_forward);
  const bool backward = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.phase == Phase::kBackward;
  });
  if (backward) {
    add("backward", "FLOPs", proof.backward);
    add("input_grad", "FLOPs", proof.input_grad);
    add("weight_grad", "FLOPs", proof.weight_grad);
    add("saved", "bytes", ListResiduals(graph).retained);
    counts.figures.back().most = true;
  }
  std::vector<bool> live(graph.storages.size());
  for (size_t s = 0; s < live.size(); ++s) live[s] = graph.storages[s].resident;
  for (const StorageEvent& e : graph.events) {
    if (e.kind == StorageEvent::kAllocate) live[e.storage] = false;
  }
  Count bytes = 0, scratch = 0;
  const auto note = [&](NodeId at) {
    counts.live.push_back(bytes);
    counts.scratch.push_back(scratch);
    counts.live_at.push_back(at);
  };
  for (size_t s = 0; s < live.size(); ++s) bytes += live[s] ? graph.storages[s].bytes : 0;
  note(0);
  for (const StorageEvent& e : graph.events) {
    const StorageRecord& storage = graph.storages[e.storage];
    const int64_t size = e.kind == StorageEvent::kAllocate ? storage.bytes : -storage.bytes;
    if (storage.origin == Origin::kScratch) {
      scratch += size;
      counts.scratch.back() = std::max(counts.scratch.back(), scratch);
      continue;
    }
    bytes += size;
    note(e.at);
  }
  return counts;
}

Count StepCounts::peak(bool with_scratch) const {
  Count most = 0;
  for (size_t e = 0; e < live.size(); ++e)
    most = std::max(most, live[e] + (with_scratch ? scratch[e] : Count(0)));
  return most;
}

int NumTraces(const SizesRequest& request) {
  int traces = 0;
  for (const PieceSizes& sizes : Pieces(request))
    traces += static_cast<int>(FitBatches().size() * sizes.fit.size() + sizes.checks.size()) +
              kPeakTraces;
  return traces;
}

absl::StatusOr<SizesProof> ProveForAllSizes(const SizesRequest& request, const StepAt& step) {
  return Prover(request, step).Run();
}

}  // namespace tally
