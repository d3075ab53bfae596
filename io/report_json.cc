#include "tally/io/report_json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/io/summary_front.h"
#include "tally/io/summary_measured.h"
#include "tally/io/summary_plans.h"
#include "tally/io/summary_polynomials.h"
#include "tally/io/summary_rules.h"
#include "tally/io/summary_time.h"

namespace tally {
namespace {

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json NumberOrNull(const std::optional<int64_t>& n) { return n ? Json(*n) : Json(); }

Json ModelJson(const Report& r) {
  Json json = Json::Object();
  json.Add("name", r.source.name).Add("source", r.source.source).Add("format", r.source.format);
  json.Add("family", r.source.family ? Json(FamilyName(*r.source.family)) : Json());
  json.Add("parameters", r.proof.parameters);
  json.Add("parameters_active", r.proof.parameters_active);
  json.Add("parameters_trained", r.proof.parameters_trained);
  json.Add("parameters_embedding", r.proof.parameters_embedding);
  return json.Add("parameters_matmul", r.proof.parameters_matmul).Add("tied", r.tied());
}

Json RunJson(const Report& r) {
  Json json = Json::Object();
  json.Add("phase", r.phase).Add("batch", NumberOrNull(r.source.batch));
  json.Add("sequence", NumberOrNull(r.source.sequence)).Add("tokens", r.proof.tokens);
  json.Add("dtype", TextOrNull(r.dtype));
  return json.Add("optimizer", TextOrNull(r.source.optimizer));
}

Json AttentionJson(const AttentionCounts& counts) {
  Json json = Json::Object();
  json.Add("nominal", counts.nominal).Add("full", counts.other.full);
  json.Add("causal_half", counts.other.causal_half).Add("causal_exact", counts.other.causal_exact);
  return json.Add("executed", counts.other.executed).Add("recomputed", counts.other.recomputed);
}

Json FlopsJson(const Report& r) {
  const PhaseCosts& cost = r.cost.cost;
  const Cost forward = cost[Phase::kForward].flops, backward = cost[Phase::kBackward].flops;
  const Cost recompute = cost[Phase::kRecompute].flops, optimizer = cost[Phase::kOptimizer].flops;
  Json f = Json::Object(), b = Json::Object(), re = Json::Object(), o = Json::Object();
  f.Add("matmul", forward.matmul).Add("weight_matmul", r.proof.weight_forward);
  f.Add("activation_matmul", r.proof.activation_forward);
  if (r.proof.product_forward != 0) f.Add("parameter_products", r.proof.product_forward);
  f.Add("other", forward.other).Add("transcendental", forward.transcendental);
  b.Add("matmul", backward.matmul).Add("input_grad", r.proof.input_grad);
  b.Add("weight_grad", r.proof.weight_grad);
  if (r.proof.other_backward != 0) b.Add("other_contractions", r.proof.other_backward);
  b.Add("other", backward.other).Add("transcendental", backward.transcendental);
  re.Add("matmul", recompute.matmul).Add("other", recompute.other);
  o.Add("other", optimizer.other);
  Json json = Json::Object();
  json.Add("forward", f).Add("backward", b).Add("recompute", re).Add("optimizer", o);
  if (!r.attention.nodes.empty()) {
    Json attention = Json::Object();
    attention.Add("forward", AttentionJson(r.attention.forward));
    json.Add("attention", attention.Add("backward", AttentionJson(r.attention.backward)));
  }
  return json.Add("model", r.cost.model_flops()).Add("hardware", r.cost.hardware_flops());
}

Json ProofJson(const Report& r) {
  Json parameters = Json::Array();
  for (const ProofParameter& p : r.proof.parameter_list) {
    Json json = Json::Object();
    json.Add("name", p.name).Add("numel", p.numel);
    if (p.groups != 1) json.Add("groups", p.groups);
    json.Add("rows", p.rows).Add("forward", p.forward);
    json.Add("input_grad", p.input_grad).Add("weight_grad", p.weight_grad);
    parameters.Append(json.Add("reason", TextOrNull(p.reason)));
  }
  Json terms = Json::Array();
  const auto add = [&](const std::string& term, Count flops) {
    Json json = Json::Object();
    json.Add("term", term).Add("flops", flops);
    terms.Append(std::move(json));
  };
  for (const ProofTerm& term : r.proof.reconciliations[0].terms) add(term.key, term.flops);
  add("difference", r.proof.reconciliations[0].difference);
  Json json = Json::Object();
  json.Add("holds", r.proof.holds).Add("parameters", std::move(parameters));
  json.Add("reconciliation", std::move(terms));
  return json.Add("polynomials", PolynomialsJson(r));
}

Json MemoryJson(const Report& r) {
  const MemoryReport& m = r.memory;
  Json live = Json::Array();
  for (const LiveStorage& s : m.at_peak) {
    Json json = Json::Object();
    json.Add("name", ReportName(r.graph, s.storage, s.value)).Add("bytes", s.bytes);
    json.Add("origin", Name(s.origin)).Add("scope", r.graph.ScopePath(s.scope));
    live.Append(std::move(json));
  }
  Json json = Json::Object();
  json.Add("parameters", r.sums.parameters_bytes).Add("gradients", r.sums.gradients_bytes);
  json.Add("optimizer", r.sums.optimizer_bytes).Add("inputs", r.sums.inputs_bytes);
  json.Add("saved", r.saved.retained).Add("saved_viewed", r.saved.viewed);
  json.Add("saved_inputs", r.saved.retained_inputs).Add("workspace", r.sums.workspace_bytes);
  json.Add("peak", m.peak_bytes)
      .Add("peak_node", m.peak_node == kNone ? Json() : Json(m.peak_node));
  json.Add("at_peak", std::move(live)).Add("recipe", TextOrNull(RecipeText(r)));
  AddBudgetKeys(r, json);
  return json;
}

}  // namespace

std::string ReportName(const Graph& graph, StorageId storage, ValueId first_value) {
  const NameId name = graph.storages[storage].name;
  if (name != kNone && !graph.name(name).empty()) return graph.name(name);
  if (first_value == kNone) return absl::StrCat("scratch ", storage);
  const NameId value_name = graph.values[first_value].name;
  if (value_name != kNone && !graph.name(value_name).empty()) return graph.name(value_name);
  return absl::StrCat("%", first_value);
}

std::string AxesText(const Graph& graph, ValueId value) {
  if (value == kNone || graph.values[value].axes == kNone) return "";
  return absl::StrCat(" (", graph.name(graph.values[value].axes), ")");
}

Json ReportToJson(const Report& report) {
  Json json = Json::Object();
  json.Add("schema", "tally.report/1").Add("model", ModelJson(report)).Add("run", RunJson(report));
  json.Add("flops", FlopsJson(report)).Add("proof", ProofJson(report));
  json.Add("memory", MemoryJson(report)).Add("rules", RulesJson(report));
  json.Add("plans", PlansJson(report)).Add("front", FrontJson(report)).Add("time", TimeJson(report));
  json.Add("measured", MeasuredJson(report));
  return json.Add("verdict", VerdictJson(report));
}

std::string ReportJsonText(const Report& report) { return ReportToJson(report).Dump(3) + "\n"; }

}  // namespace tally
