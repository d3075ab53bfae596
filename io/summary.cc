#include "tally/io/summary.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/analysis/provenance.h"
#include "tally/io/deviations.h"
#include "tally/io/summary_front.h"
#include "tally/io/summary_measured.h"
#include "tally/io/summary_memory.h"
#include "tally/io/summary_plans.h"
#include "tally/io/summary_polynomials.h"
#include "tally/io/summary_rules.h"
#include "tally/io/summary_time.h"
#include "tally/io/table.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;

std::string Dash(Count n) { return n == 0 ? "-" : ToGrouped(n); }

// "+ 115,964,116,992", "- 745,537,536".
std::string Signed(Count n) {
  return n < 0 ? absl::StrCat("- ", ToGrouped(-n)) : absl::StrCat("+ ", ToGrouped(n));
}

void Section(std::string& text, const std::string& title) {
  absl::StrAppend(&text, "\n", title, "\n");
}

class Writer {
 public:
  explicit Writer(const Report& report) : r_(report), p_(report.proof) {}

  std::string Write() {
    text_ += VerdictText(r_) + "\n";
    Header();
    Contractions();
    Reconciling();
    Textbook();
    Attention();
    OtherFlops();
    text_ += PolynomialsSummary(r_);
    text_ += RulesSummary(r_);
    text_ += MemorySummary(r_);
    text_ += BudgetSummary(r_);
    text_ += PlansSummary(r_);
    text_ += FrontSummary(r_);
    text_ += WorthSummary(r_);
    text_ += TimeSummary(r_);
    text_ += MeasuredSummary(r_);
    TopOps();
    TopScopes();
    Conventions();
    return std::move(text_);
  }

 private:
  void Indented(const Table& table) { absl::StrAppend(&text_, IndentedLines(table)); }
  void Line(const std::string& line) {
    absl::StrAppend(&text_, Wrapped(SanitizeForTerminal(line)));
  }
  void Header() {
    const ReportSource& s = r_.source;
    Line(absl::StrCat(s.name, ": ", s.source, ", ", s.format, "; ", s.origin));
    Line(absl::StrCat("parameters ", ToGrouped(p_.parameters), ": ",
                      ToGrouped(p_.parameters_matmul), " in contractions, ",
                      ToGrouped(p_.parameters_embedding), " in look-up tables",
                      r_.tied() ? " (tied: a table is also a weight, counted once)" : ""));
    if (p_.parameters_active != p_.parameters) {
      Line(absl::StrCat("active ", ToGrouped(p_.parameters_active),
                        " a token: of every stack of experts those that it passes"));
    }
    if (r_.phase != "forward" && p_.parameters_trained != p_.parameters) {
      Line(absl::StrCat("trained ", ToGrouped(p_.parameters_trained), ", frozen ",
                        ToGrouped(p_.parameters - p_.parameters_trained)));
    }
    std::string run = absl::StrCat("phase ", r_.phase);
    if (s.batch) absl::StrAppend(&run, ", batch ", *s.batch);
    if (s.sequence) absl::StrAppend(&run, " x sequence ", *s.sequence);
    absl::StrAppend(&run, ", ", ToGrouped(p_.tokens), p_.tokens == 1 ? " token" : " tokens");
    if (!r_.dtype.empty()) absl::StrAppend(&run, ", ", r_.dtype);
    if (!s.optimizer.empty()) absl::StrAppend(&run, ", ", s.optimizer);
    Line(run);
    if (!p_.tokens_origin.empty()) Line(absl::StrCat("tokens are ", p_.tokens_origin));
    Line(absl::StrCat(ToGrouped(static_cast<int64_t>(r_.graph.nodes.size())), " nodes, ",
                      ToGrouped(static_cast<int64_t>(r_.graph.values.size())), " values, ",
                      ToGrouped(static_cast<int64_t>(r_.graph.storages.size())), " storages"));
    if (r_.cost.declared_nodes > 0) {
      Line(absl::StrCat(r_.cost.declared_nodes,
                        " nodes are of ops unknown here; they count what the file declares"));
    }
  }

  void Contractions() {
    Section(text_, "FLOPs of contractions (matmul)");
    Table table({{"", kLeft},
                 {"all", kRight},
                 {"with a weight", kRight},
                 {"of activations", kRight},
                 {"else", kRight}});
    const auto row = [&](const std::string& name, Count weight, Count activation, Count other) {
      table.AddRow({name, ToGrouped(weight + activation + other), Dash(weight), Dash(activation),
                    Dash(other)});
    };
    const Count weight_input = p_.input_grad - p_.activation_backward;
    row("forward", p_.weight_forward, p_.activation_forward, p_.product_forward);
    row("backward", p_.weight_grad + weight_input, p_.activation_backward, p_.other_backward);
    row("  input_grad", weight_input, p_.activation_backward, 0);
    row("  weight_grad", p_.weight_grad, 0, 0);
    if (p_.recompute != 0) table.AddRow({"recompute", ToGrouped(p_.recompute), "-", "-", "-"});
    table.AddRule();
    row("model: forward + backward", p_.weight_forward + p_.weight_grad + weight_input,
        p_.activation_forward + p_.activation_backward, p_.product_forward + p_.other_backward);
    if (p_.recompute != 0)
      table.AddRow({"hardware: + recompute", ToGrouped(r_.cost.hardware_flops()), "", "", ""});
    Indented(table);
    Line(absl::StrCat("  proof: ", p_.holds ? "holds for all of " : "DOES NOT HOLD; ",
                      ToGrouped(static_cast<int64_t>(p_.parameter_list.size())), " parameters, ",
                      ToGrouped(static_cast<int64_t>(p_.contractions.size())),
                      " weight contractions"));
    for (const std::string& failure : p_.failures) Line("    " + failure);
  }

  // What the items of a term are: "wpe.weight", "98 parameters", "24 nodes".
  std::string Items(const ProofTerm& term) const {
    std::string names;
    int64_t nodes = 0;
    for (const TermItem& item : term.items) {
      if (item.node != kNone)
        ++nodes;
      else
        absl::StrAppend(&names, names.empty() ? "" : ", ", StorageName(r_.graph, item.parameter));
    }
    const int64_t parameters = static_cast<int64_t>(term.items.size()) - nodes;
    if (nodes > 0 && parameters == 0) return absl::StrCat(nodes, nodes == 1 ? " node" : " nodes");
    if (parameters <= 2) return names;
    return absl::StrCat(parameters, " parameters");
  }

  void Reconciling() {
    for (const Reconciliation& r : p_.reconciliations) {
      const bool all = r.name == "6ND";
      if (!all && r.parameters == p_.parameters) continue;  // the same again
      Section(text_,
              absl::StrCat("Reconciliation with 6·N·D, N = ", ToGrouped(r.parameters),
                           all ? "" : " (without look-up tables)", ", D = ", ToGrouped(p_.tokens)));
      Table table({{"term", kLeft}, {"FLOPs", kRight}, {"from", kLeft}});
      for (const ProofTerm& term : r.terms) {
        const bool base = term.key == "6ND";
        table.AddRow({base ? absl::StrCat("6·", ToGrouped(r.parameters), "·", ToGrouped(p_.tokens))
                           : term.label,
                      base ? ToGrouped(term.flops) : Signed(term.flops), Items(term)});
      }
      table.AddRule();
      table.AddRow({"sum of the terms", ToGrouped(r.total), ""});
      table.AddRow({"counted, forward + backward", ToGrouped(p_.total()), ""});
      table.AddRow({"difference", ToGrouped(r.difference),
                    r.difference == 0 ? "exact" : "the proof does not hold"});
      Indented(table);
    }
  }

  void Textbook() {
    if (r_.phase == "forward") return;
    const std::vector<Deviation> deviations = Deviations(r_);
    if (deviations.empty()) return;
    Section(text_, "Backward beside the textbook, two contractions for each forward one");
    Table table({{"", kLeft}, {"FLOPs", kRight}, {"why", kLeft}});
    table.AddRow({"textbook backward, 2 x forward", ToGrouped(p_.textbook_backward())});
    for (const Deviation& d : deviations) {
      table.AddRow({"  " + d.what, Signed(-d.missing), d.reason});
    }
    table.AddRule();
    table.AddRow({"executed backward", ToGrouped(p_.backward)});
    Indented(table);
  }

  void Attention() {
    const AttentionReport& a = r_.attention;
    const AttentionCounts all = a.total();
    if (all.nominal == all.other.executed && all.nominal == all.other.full &&
        all.nominal == all.other.causal_exact) {
      return;  // nothing is hidden or made twice: every count is the same
    }
    Section(text_, "Attention's contractions counted in other ways");
    Table table({{"", kLeft}, {"forward", kRight}, {"backward", kRight}, {"both", kRight}});
    const auto row = [&](const char* name, Count forward, Count backward) {
      table.AddRow({name, ToGrouped(forward), Dash(backward), ToGrouped(forward + backward)});
    };
    const MaskedCounts &f = a.forward.other, &b = a.backward.other;
    row("nominal, as above", a.forward.nominal, a.backward.nominal);
    row("full: every pair", f.full, b.full);
    row("causal half: squares halved", f.causal_half, b.causal_half);
    row("causal exact: visible pairs", f.causal_exact, b.causal_exact);
    row("executed by the kernels", f.executed, b.executed);
    if (b.recomputed != 0) row("  of it scores made again", f.recomputed, b.recomputed);
    Indented(table);
  }

  void OtherFlops() {
    Section(text_, "FLOPs besides contractions, and bytes each node must move");
    Table table({{"", kLeft},
                 {"other", kRight},
                 {"transcendental", kRight},
                 {"bytes", kRight},
                 {"FLOPs/byte", kRight}});
    const auto row = [&](const char* name, const CostLine& line) {
      const std::optional<double> intensity = line.intensity();
      table.AddRow({name, ToGrouped(line.flops.other), ToGrouped(line.flops.transcendental),
                    ToGrouped(line.bytes()),
                    intensity ? absl::StrFormat("%.2f", *intensity) : std::string("-")});
    };
    for (Phase phase : {Phase::kForward, Phase::kBackward, Phase::kRecompute, Phase::kOptimizer}) {
      if (r_.cost.cost[phase].nodes > 0) row(Name(phase), r_.cost.cost[phase]);
    }
    table.AddRule();
    row("total", r_.cost.cost.total());
    Indented(table);
  }

  void TopOps() {
    std::vector<std::pair<std::string, CostLine>> ops;
    for (const CostReport::OpLine& line : r_.cost.by_op) {
      ops.emplace_back(absl::StrCat(line.op, line.declared ? " (declared)" : ""),
                       line.cost.total());
    }
    Top("Ops by FLOPs", "op", std::move(ops));
  }

  void TopScopes() {
    std::vector<std::pair<std::string, CostLine>> scopes;
    absl::flat_hash_map<std::string, size_t> index;
    for (size_t s = 0; s < r_.cost.by_scope.size(); ++s) {
      const CostLine own = r_.cost.by_scope[s].own.total();
      if (own.nodes == 0) continue;
      const std::string path = r_.graph.ScopePath(static_cast<ScopeId>(s));
      const std::string pattern = path.empty() ? "(no scope)" : ScopePattern(path);
      const auto [it, added] = index.try_emplace(pattern, scopes.size());
      if (added) scopes.emplace_back(pattern, CostLine());
      scopes[it->second].second += own;
    }
    if (scopes.size() > 1) Top("Scopes by FLOPs, without what is below them", "scope", scopes);
  }

  void Top(const std::string& title, const std::string& kind,
           std::vector<std::pair<std::string, CostLine>> lines) {
    Section(text_, title);
    std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
      return a.second.flops.total() > b.second.flops.total();
    });
    Table table({{kind, kLeft},
                 {"nodes", kRight},
                 {"matmul", kRight},
                 {"other", kRight},
                 {"transcendental", kRight},
                 {"share", kRight}});
    const Count all = r_.cost.cost.total().flops.total();
    const auto row = [&](const std::string& name, const CostLine& line) {
      table.AddRow({name, ToGrouped(line.nodes), ToGrouped(line.flops.matmul),
                    ToGrouped(line.flops.other), ToGrouped(line.flops.transcendental),
                    PercentText(line.flops.total(), all)});
    };
    CostLine rest;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i < kSummaryTop)
        row(lines[i].first, lines[i].second);
      else
        rest += lines[i].second;
    }
    if (lines.size() > kSummaryTop) row(absl::StrCat(lines.size() - kSummaryTop, " more"), rest);
    Indented(table);
  }

  void Conventions() {
    Section(text_, "Counted how");
    for (const char* line :
         {"matmul: contractions, (m,k)x(k,n) = 2mkn, batches as executed, attention the full",
          "  square; fused attention each packed document's own, where a window binds its visible",
          "  pairs (composed of products as they run: the whole square whatever is masked);",
          "  other: add sub mul div neg abs compare max = 1 each, a reduction of n = n-1;",
          "  transcendental: exp log sqrt rsqrt sin cos tanh erf pow = 1 each; select, cast, copy,",
          "  index, look-up = 0. input_grad: every gradient of an activation, attention's too.",
          "bytes of a node: each distinct input read once, each output written once, views none.",
          "saved: every storage kept for backward, once and whole; inputs counted, parameters not.",
          "peak: most requested bytes live at once. B = bytes, GB = 1e9, GiB = 2^30."}) {
      Line(absl::StrCat("  ", line));
    }
  }

  const Report& r_;
  const SplitProof& p_;
  std::string text_;
};

}  // namespace

std::string ScopePattern(const std::string& path) {
  std::string pattern;
  for (size_t i = 0; i < path.size(); ++i) {
    if (!absl::ascii_isdigit(path[i])) {
      pattern += path[i];
      continue;
    }
    // Digits that make up a whole part of the name: "h.3", not "ln_1".
    const size_t begin = i;
    while (i + 1 < path.size() && absl::ascii_isdigit(path[i + 1])) ++i;
    const bool starts = begin == 0 || path[begin - 1] == '.' || path[begin - 1] == '/';
    const bool ends = i + 1 == path.size() || path[i + 1] == '.' || path[i + 1] == '/';
    if (starts && ends)
      pattern += '*';
    else
      pattern += path.substr(begin, i + 1 - begin);
  }
  return pattern;
}

std::string Summary(const Report& report) { return Writer(report).Write(); }

}  // namespace tally
