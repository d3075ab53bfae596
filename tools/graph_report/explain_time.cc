#include "tally/tools/graph_report/explain_time.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/io/summary_time.h"
#include "tally/io/table.h"

namespace tally {
namespace {

class Explainer {
 public:
  explicit Explainer(const Report& report) : r_(report), t_(*report.roofline) {}

  Explanation Run(const ReportKey& key) {
    const std::string& figure = key.parts.back();
    const std::string& group = key.parts[1];
    if (group == "run")
      RunFigure(figure);
    else if (group == "critical")
      Critical(t_.critical[Priced(key.indexes[2])], figure);
    else if (group == "phases")
      PhaseFigure(figure);
    else if (group == "predicted")
      Predicted(figure);
    else if (group == "plans")
      Say("every node that the plan runs, again where it runs it again, each at the greatest of "
          "its "
          "three times; node after node",
          "s");
    else
      Figure(figure);
    return std::move(e_);
  }

 private:
  void Say(const std::string& formula, const std::string& unit = "") {
    e_.formula = formula;
    e_.unit = unit;
  }

  void Predicted(const std::string& figure) {
    if (figure == "floor") {
      Say("node after node, each at the best rate that any op reached on the machine", "s");
    } else if (figure == "unmeasured_nodes" || figure == "unmeasured") {
      Say("ops, forms or dtypes of which the calibration has no samples: priced by the nearest");
    } else {
      Say("node after node, each as long as its op took at its size by calibration, what recording "
          "adds, and what operands cost that are farther away than in the sample",
          "s");
    }
  }

  void Figure(const std::string& figure) {
    if (figure == "hardware") Say(absl::StrCat(t_.hardware.title, ": ", t_.hardware.source));
    if (figure == "peak") Say("the rate of most of the step's contraction FLOPs");
    if (figure == "peak_flops") Say(absl::StrCat("the peak of ", t_.peak.name), "FLOP/s");
    if (figure == "bandwidth") Say("of the device's memory", "B/s");
    if (figure == "ridge") {
      Say("peak_flops / bandwidth: contractions that do more FLOPs for each byte are compute-bound",
          "FLOPs/byte");
      e_.substituted = absl::StrFormat("%.6g / %.6g", t_.peak.flops, t_.hardware.bandwidth);
    }
    if (figure == "nodes_compute_bound") Bounds(Bound::kCompute);
    if (figure == "nodes_memory_bound") Bounds(Bound::kMemory);
    if (figure == "bound") {
      Say("the greatest of the sums of the nodes' times");
      e_.substituted = absl::StrCat("contractions ", SecondsText(t_.total.sums.matmul),
                                    ", other FLOPs ", SecondsText(t_.total.sums.vector),
                                    ", memory ", SecondsText(t_.total.sums.memory));
    }
    if (figure == "seconds") {
      Say("node after node, each at least the greatest of: contraction FLOPs / the peak of their "
          "dtype, other FLOPs / the vector peak, bytes / bandwidth",
          "s");
      Longest();
    }
    if (figure == "seconds_overlapped") {
      Say("the greatest of the sums over all nodes: contractions, other FLOPs, memory", "s");
      e_.substituted = absl::StrFormat("max(%.6g, %.6g, %.6g)", t_.total.sums.matmul,
                                       t_.total.sums.vector, t_.total.sums.memory);
    }
    if (figure == "seconds_fused") {
      Say("as seconds, with elementwise and row nodes run as one kernel with those that made what "
          "they read, which moves only what goes in and what is still needed",
          "s");
      e_.substituted = absl::StrFormat("%.6g less %.6g in fused nodes", t_.total.seconds,
                                       t_.total.seconds - t_.fused.seconds);
    }
    if (absl::StartsWith(figure, "mfu_bound")) MfuBound(figure);
    if (figure == "fused_nodes") Fused();
    if (figure == "fused_kernels") Say("kernels that the fused nodes become");
    if (figure == "fused_bytes_saved")
      Say("bytes of the fused nodes apart less those of their kernels", "B");
    if (figure == "unpriced_flops")
      Say("FLOPs of dtypes for which the hardware's maker publishes no rate; they take no time in "
          "any figure here",
          "FLOPs");
  }

  void MfuBound(const std::string& figure) {
    const double seconds = figure == "mfu_bound"         ? t_.total.seconds
                           : figure == "mfu_bound_fused" ? t_.fused.seconds
                                                         : t_.total.overlapped();
    Say("flops.model / (the seconds of that floor x peak_flops): no step whose nodes run one after another, unfused, is faster");
    e_.substituted =
        absl::StrFormat("%s / (%.6g x %.6g)", ToGrouped(t_.model_flops), seconds, t_.peak.flops);
  }

  void Bounds(Bound bound) {
    Say(bound == Bound::kCompute ? "nodes whose FLOPs take at least as long as their bytes"
                                 : "nodes whose bytes take longer than their FLOPs",
        "nodes");
    e_.adds_up = true;
    for (size_t n = 0; n < t_.nodes.size(); ++n) {
      if (t_.nodes[n].bound() == bound) AddNode(static_cast<NodeId>(n));
    }
  }

  void Fused() {
    Say("nodes that run as part of a kernel of several", "nodes");
    e_.adds_up = true;
    for (const FusedKernel& kernel : t_.fusion.kernels) {
      for (NodeId n : kernel.nodes) AddNode(n);
    }
  }

  void AddNode(NodeId n) {
    const Node& node = r_.graph.nodes[n];
    const std::string scope = r_.graph.ScopePath(node.scope);
    e_.parts.push_back({ExplainedPart::kNode, n,
                        absl::StrCat(node.op->name, " (", Name(node.phase), ")",
                                     scope.empty() ? "" : ", in " + scope),
                        1});
  }

  // The op that takes most of it.
  void Longest() {
    const RooflineReport::OpLine* most = nullptr;
    for (const RooflineReport::OpLine& op : t_.by_op) {
      if (most == nullptr || op.line.seconds > most->line.seconds) most = &op;
    }
    if (most == nullptr) return;
    e_.substituted = absl::StrCat("of it ", SecondsText(most->line.seconds), " in the ",
                                  ToGrouped(most->line.cost.nodes), " nodes of ", most->op);
  }

  void PhaseFigure(const std::string& figure) {
    if (figure == "seconds") Say("as time.seconds, over the nodes of the phase", "s");
    if (figure == "bound") Say("the greatest of the sums of the times of the phase's nodes");
  }

  // The list leaves out contractions without a rate.
  size_t Priced(size_t index) const {
    size_t at = 0;
    while (!t_.critical[at].priced || index-- > 0) ++at;
    return at;
  }

  void Critical(const CriticalRows& c, const std::string& figure) {
    const std::string where =
        absl::StrCat("node ", c.node, " (", r_.graph.nodes[c.node].op->name, ")");
    if (figure == "rows_now")
      Say(absl::StrCat("rows of the weight contraction at ", where));
    else
      Say(absl::StrCat("the fewest rows r at which the weight contraction at ", where,
                       " takes longer to compute than to move: 2·r·|W| / peak >= (bytes of the "
                       "weight + r · bytes a row) / bandwidth; none: at no number of rows"));
  }

  void RunFigure(const std::string& figure) {
    if (figure == "tokens") Say("--tokens", "tokens");
    if (figure == "gpus") Say("--gpus");
    if (figure == "mfu") {
      Say(r_.request.mfu > 0 ? "--mfu" : "time.mfu_bound: the most that the step's floor allows");
    }
    if (figure == "flops") {
      Say("flops.model · tokens / run.tokens", "FLOPs");
      e_.substituted = absl::StrCat(ToGrouped(r_.cost.model_flops()), "·",
                                    ToGrouped(*r_.request.tokens), "/", ToGrouped(r_.proof.tokens));
    }
    if (figure == "seconds") {
      Say("flops / (gpus x peak_flops x mfu)", "s");
      e_.substituted = absl::StrFormat("%s / (%d x %.6g x %.4g)", ToGrouped(r_.run->flops),
                                       r_.request.gpus, t_.peak.flops, RunMfu(r_).value_or(0));
    }
    if (figure == "gpu_hours") Say("seconds x gpus / 3,600", "h");
  }

  const Report& r_;
  const RooflineReport& t_;
  Explanation e_;
};

}  // namespace

Explanation ExplainTime(const Report& report, const ReportKey& key) {
  if (report.roofline) return Explainer(report).Run(key);
  Explanation e;
  e.formula = "not told without a device: --hardware=NAME (--list-hardware)";
  return e;
}

}  // namespace tally
