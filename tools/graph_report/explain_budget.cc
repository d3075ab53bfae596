#include "tally/tools/graph_report/explain_budget.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/io/report_json.h"

namespace tally {
namespace {

class Explainer {
 public:
  explicit Explainer(const Report& report)
      : r_(report), s_(report.budget), first_(report.graph.storages.size(), kNone) {
    for (size_t v = report.graph.values.size(); v-- > 0;)
      first_[report.graph.values[v].storage] = static_cast<ValueId>(v);
  }

  Explanation Run(const ReportKey& key) {
    if (key.parts[0] == "verdict")
      Verdict(key);
    else if (key.parts[1] == "rank" && s_.rank)
      Rank(key, *s_.rank);
    else
      Memory(key);
    return std::move(e_);
  }

 private:
  void Say(std::string formula, const std::string& unit = "", bool adds_up = false) {
    e_.formula = std::move(formula);
    e_.unit = unit;
    e_.adds_up = adds_up;
  }

  void AddStorage(StorageId s) {
    const Graph& g = r_.graph;
    std::string what = absl::StrCat(Name(g.storages[s].origin), " ", ReportName(g, s, first_[s]));
    if (first_[s] != kNone) absl::StrAppend(&what, ", ", g.values[first_[s]].spec.ToString());
    e_.parts.push_back({ExplainedPart::kStorage, s, std::move(what), g.storages[s].bytes});
  }
  void AddFigure(std::string what, Count amount) {
    if (amount != 0) e_.parts.push_back({ExplainedPart::kFigure, kNone, std::move(what), amount});
  }
  void AddLine(const BudgetLine& line) {
    for (StorageId s : line.storages) AddStorage(s);
  }
  void AddLinesOf(const std::vector<BudgetLine>& lines, BudgetPart part) {
    for (const BudgetLine& line : lines) {
      if (line.part == part) AddLine(line);
    }
  }

  void Memory(const ReportKey& key) {
    const std::string& figure = key.parts[1];
    const ModelStates& states = s_.budget.states;
    if (figure == "recipe_name") {
      Say("the dtypes of parameters, gradients and optimizer state as recorded, and the optimizer");
    } else if (figure == "bytes_per_parameter") {
      Say("memory.states over model.parameters");
      e_.substituted = absl::StrCat(ToGrouped(states.total()), " / ", ToGrouped(states.elements));
    } else if (figure == "moments" || figure == "master") {
      const bool master = figure == "master";
      Say(master ? "optimizer state that is a copy of a parameter: its name ends in .master"
                 : "optimizer state but master weights",
          "B", true);
      AddLinesOf(states.lines, master ? BudgetPart::kMaster : BudgetPart::kMoments);
    } else if (figure == "states") {
      Say("parameters, their gradients and the optimizer's state, whole, alive at the peak or not",
          "B", true);
      for (const BudgetLine& line : states.lines) AddFigure(LineText(line), line.bytes);
    } else if (figure == "budget") {
      Part(key);
    } else if (figure == "lines") {
      Say("storages of one part and dtype that live at the peak", "B", true);
      AddLine(s_.budget.lines[key.indexes[2]]);
    } else if (figure == "growth") {
      Say("bytes that the storages alive at the peak have more where the batch is larger by one: "
          "the same step was recorded at both",
          "B");
    } else {
      Say("what one of several ranks holds and sends; --gpus says how many there are");
    }
  }

  void Part(const ReportKey& key) {
    const auto part = static_cast<BudgetPart>(key.indexes[2]);
    const std::string& side = key.parts.back();
    constexpr const char* kWords[kNumBudgetParts] = {
        "parameters",
        "gradients of parameters",
        "optimizer state but master weights",
        "master weights",
        "storages that forward made and backward still reads, forms of parameters excluded",
        "what ops made and no other part holds",
        "data and constants of the user",
        "scratch of the op that runs"};
    const std::string alive =
        absl::StrCat("alive at the peak, node ", s_.budget.peak_node, ": ", kWords[key.indexes[2]]);
    if (side == "bytes") {
      Say(alive, "B", true);
      return AddLinesOf(s_.budget.lines, part);
    }
    Say(absl::StrCat(alive,
                     side == "fixed" ? "; of them those with the same bytes"
                                     : "; of them those with other bytes",
                     " where the batch is larger by one"),
        "B");
    if (!s_.split) e_.substituted = s_.split_note;
  }

  void Rank(const ReportKey& key, const ZeroReport& z) {
    const std::string& figure = key.parts[2];
    const auto is = [&](const char* name) { return figure == name; };
    if (is("rows")) return Row(key, z.groups[key.indexes[3]]);
    if (is("collectives")) return OneCollective(key, z, z.collectives[key.indexes[3]]);
    if (is("gpus") || is("zero")) return Say(absl::StrCat("as --", figure, " says"));
    if (is("states")) {
      Say("parameters, gradients and optimizer state that a rank allocates, padding included", "B",
          true);
      for (const FlatGroup& g : z.groups) AddFigure(GroupText(g), g.rank_bytes());
    } else if (is("padding")) {
      Say("bytes that make each row a multiple of the ranks, of all ranks together", "B", true);
      for (const FlatGroup& g : z.groups) AddFigure(GroupText(g), g.padding_bytes());
    } else if (is("gathered")) {
      Say("the most parameters whole at once beside the rank's part: those of a unit, and of the "
          "next ahead of time",
          "B");
      e_.substituted = absl::StrCat(z.gathered_unit, z.gathered_next.empty() ? "" : " and then ",
                                    z.gathered_next);
    } else if (is("unreduced")) {
      Say("the most gradients whole at once: from when they are made until their unit is done",
          "B");
      e_.substituted = z.unreduced_unit;
    } else if (is("peak")) {
      Say(absl::StrCat("the most live at once over the record with the rank's parts in place of "
                       "whole rows, at node ",
                       z.peak_node),
          "B", true);
      for (int p = 0; p < kNumBudgetParts; ++p)
        AddFigure(Name(static_cast<BudgetPart>(p)), z.parts.bytes[p]);
    } else if (is("peak_node")) {
      Say("the node that ran when the most bytes of a rank were live");
    } else if (is("sent")) {
      Say("bytes that a rank sends in a step, by ring", "B", true);
      for (const Collective& c : z.collectives)
        AddFigure(absl::StrCat(Name(c.kind), " of ", c.of, ", ", Name(c.dtype)), c.sent);
    } else if (is("seconds")) {
      Say("memory.rank.sent over the link's bytes a second one way; without latency, none of it "
          "hidden");
      if (r_.request.hardware) e_.substituted = r_.request.hardware->link_name;
    } else {
      Say("bytes of them that a rank allocates, padding included", "B", true);
      for (const FlatGroup& g : z.groups) {
        if (figure == Name(g.part)) AddFigure(GroupText(g), g.rank_bytes());
      }
    }
  }

  static std::string GroupText(const FlatGroup& g) {
    return absl::StrCat(Name(g.part), g.what.empty() ? "" : ", ", g.what, " (", Name(g.dtype), ")");
  }

  void Row(const ReportKey& key, const FlatGroup& g) {
    const std::string& figure = key.parts.back();
    if (figure == "elements") {
      Say("elements of the storages that are laid end to end", "elements");
    } else if (figure == "split") {
      Say("whether the stage splits it: 1 optimizer state, 2 and gradients, 3 and parameters");
    } else {
      Say(figure == "part" ? "elements of a rank, padding included: of the row over the ranks, up"
                           : "elements by which the parts of all ranks exceed the row",
          "elements");
      if (g.split)
        e_.substituted =
            absl::StrCat(ToGrouped(g.partition.part), "·", ToGrouped(g.partition.ranks), " = ",
                         ToGrouped(g.partition.elements), " + ", ToGrouped(g.partition.padding));
    }
  }

  void OneCollective(const ReportKey& key, const ZeroReport& z, const Collective& c) {
    const std::string& figure = key.parts.back();
    if (figure == "bytes") return Say("bytes of the row, padding included", "B");
    if (figure == "times") return Say("how often in a step: once, or for each micro-batch");
    Say("by ring each of N ranks sends (N-1)/N of the row, for an all-reduce twice", "B");
    e_.substituted = absl::StrCat(c.kind == Collective::kAllReduce ? "2·" : "", c.times, "·",
                                  ToGrouped(c.payload), "·", ToGrouped(z.options.ranks - 1), "/",
                                  ToGrouped(z.options.ranks));
  }

  void Verdict(const ReportKey& key) {
    const std::string& figure = key.parts[1];
    const auto is = [&](const char* name) { return figure == name; };
    if (is("fits")) {
      Say("whether the peak is at most verdict.usable: as recorded, or under one of the plans "
          "where "
          "--plan names them");
    } else if (is("fits_as")) {
      Say("the first of them that fits");
    } else if (is("seconds")) {
      Say("what a step takes at least on the hardware", "s");
    } else if (is("bound")) {
      Say("what takes most of that time");
    } else if (is("memory")) {
      Say(absl::StrCat("of the device, ", r_.verdict.memory_source), "B");
    } else if (is("reserve")) {
      Say("of it kept for the driver's context and libraries, which no record sees: --reserve",
          "B");
    } else if (is("usable")) {
      Say("verdict.memory less verdict.reserve", "B");
    } else if (is("cases")) {
      Say("the peak of the step, of a rank where there are several, as recorded and under each "
          "plan");
    } else if (is("remedies")) {
      Say("a change of the flags that was computed to fit");
    } else {
      Say("the largest size that fits and one more, each traced: --fit");
    }
  }

  const Report& r_;
  const BudgetSection& s_;
  std::vector<ValueId> first_;
  Explanation e_;
};

}  // namespace

bool IsBudgetKey(const ReportKey& key) {
  if (key.parts[0] == "verdict") return true;
  if (key.parts[0] != "memory" || key.parts.size() < 2) return false;
  constexpr const char* kKeys[] = {"recipe_name", "bytes_per_parameter",
                                   "moments",     "master",
                                   "states",      "budget",
                                   "lines",       "growth",
                                   "rank"};
  return std::find(std::begin(kKeys), std::end(kKeys), key.parts[1]) != std::end(kKeys);
}

Explanation ExplainBudget(const Report& report, const ReportKey& key) {
  return Explainer(report).Run(key);
}

}  // namespace tally
