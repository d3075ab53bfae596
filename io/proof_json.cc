#include "tally/io/proof_json.h"

namespace tally {
namespace {

template <typename List, typename Fn>
Json ListOf(const List& list, const Fn& fn) {
  Json json = Json::Array();
  for (const auto& element : list) json.Append(fn(element));
  return json;
}

Json Ids(const std::vector<NodeId>& nodes) {
  return ListOf(nodes, [](NodeId n) { return Json(n); });
}

Json PartToJson(const GradientPart& part) {
  Json json = Json::Object();
  json.Add("nodes", Ids(part.nodes)).Add("flops", part.flops);
  if (!part.reason.empty()) json.Add("reason", part.reason);
  return json;
}

Json WeightToJson(const WeightContraction& c) {
  Json json = Json::Object();
  json.Add("node", c.node).Add("parameter", c.parameter).Add("operand", c.operand);
  json.Add("elements", c.elements);
  if (c.groups != 1) json.Add("groups", c.groups);
  json.Add("rows", c.rows).Add("declared", c.declared);
  json.Add("forward", c.forward).Add("weight_grad", PartToJson(c.weight_grad));
  return json.Add("input_grad", PartToJson(c.input_grad));
}

Json OtherToJson(const OtherContraction& c) {
  Json json = Json::Object();
  json.Add("node", c.node).Add("forward", c.forward);
  return json.Add("backward_nodes", Ids(c.backward_nodes)).Add("backward", c.backward);
}

Json ParameterToJson(const ProofParameter& p) {
  Json json = Json::Object();
  json.Add("storage", p.storage).Add("name", p.name).Add("numel", p.numel).Add("use", Name(p.use));
  json.Add("lookup", p.lookup).Add("watched", p.watched).Add("rows", p.rows);
  json.Add("forward", p.forward).Add("weight_grad", p.weight_grad).Add("input_grad", p.input_grad);
  if (!p.reason.empty()) json.Add("reason", p.reason);
  return json;
}

Json ItemToJson(const TermItem& item) {
  Json json = Json::Object();
  if (item.node != kNone) json.Add("node", item.node);
  if (item.parameter != kNone) json.Add("parameter", item.parameter);
  return json.Add("flops", item.flops);
}

Json TermToJson(const ProofTerm& term) {
  Json json = Json::Object();
  json.Add("key", term.key).Add("label", term.label).Add("flops", term.flops);
  return json.Add("items", ListOf(term.items, ItemToJson));
}

Json ReconciliationToJson(const Reconciliation& r) {
  Json json = Json::Object();
  json.Add("name", r.name)
      .Add("parameters", r.parameters)
      .Add("terms", ListOf(r.terms, TermToJson));
  return json.Add("total", r.total).Add("difference", r.difference);
}

Json FlopsToJson(const SplitProof& p) {
  Json json = Json::Object();
  json.Add("forward", p.forward).Add("backward", p.backward).Add("recompute", p.recompute);
  json.Add("total", p.total()).Add("textbook_backward", p.textbook_backward());
  json.Add("weight_forward", p.weight_forward).Add("activation_forward", p.activation_forward);
  json.Add("product_forward", p.product_forward).Add("weight_grad", p.weight_grad);
  json.Add("input_grad", p.input_grad).Add("activation_backward", p.activation_backward);
  return json.Add("other_backward", p.other_backward);
}

}  // namespace

Json ProofToJson(const SplitProof& proof) {
  Json json = Json::Object();
  json.Add("schema", "tally.proof/1").Add("holds", proof.holds);
  json.Add("failures", ListOf(proof.failures, [](const std::string& f) { return Json(f); }));
  json.Add("flops", FlopsToJson(proof));
  Json parameters = Json::Object();
  parameters.Add("all", proof.parameters).Add("embedding", proof.parameters_embedding);
  parameters.Add("matmul", proof.parameters_matmul).Add("active", proof.parameters_active);
  json.Add("parameters", std::move(parameters)).Add("tokens", proof.tokens);
  json.Add("tokens_origin", proof.tokens_origin);
  json.Add("parameter_list", ListOf(proof.parameter_list, ParameterToJson));
  json.Add("contractions", ListOf(proof.contractions, WeightToJson));
  json.Add("activations", ListOf(proof.activations, OtherToJson));
  json.Add("products", ListOf(proof.products, OtherToJson));
  json.Add("second_order", Ids(proof.second_order));
  json.Add("gradient_only", Ids(proof.gradient_only));
  return json.Add("reconciliations", ListOf(proof.reconciliations, ReconciliationToJson));
}

std::string ProofJsonText(const SplitProof& proof) { return ProofToJson(proof).Dump(3) + "\n"; }

}  // namespace tally
