#include "tally/tests/fuzz/seeds.h"

#include "tally/analysis/simulate.h"
#include "tally/io/graph_json.h"
#include "tally/io/graph_text.h"
#include "tally/io/json.h"
#include "tally/io/machine_json.h"
#include "tally/io/model_config.h"
#include "tally/io/plan_text.h"
#include "tally/tests/io/sample_graph.h"
#include "tally/tests/measured_product.h"

namespace tally {
namespace {

Json Entry(const char* dtype, JsonArray shape, int begin, int end) {
  return Json::Object({{"dtype", dtype},
                       {"shape", Json::Array(std::move(shape))},
                       {"data_offsets", Json::Array({begin, end})}});
}

// A model file by hand: the header's size, the header, 32 bytes of tensors.
std::string ModelFileBytes(const Graph& graph) {
  const Json metadata = Json::Object({{"format", "tally"},
                                      {"tally.version", "1.0"},
                                      {"tally.graph", GraphJsonText(graph)},
                                      {"tally.config", "{}"}});
  std::string header = Json::Object({{"__metadata__", metadata},
                                     {"w", Entry("F32", {2, 3}, 0, 24)},
                                     {"ids", Entry("I64", {}, 24, 32)},
                                     {"mask", Entry("BOOL", {0, 4}, 32, 32)}})
                           .Dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string size(8, '\0');
  for (int i = 0; i < 8; ++i) size[i] = static_cast<char>(header.size() >> 8 * i);
  return size + header + std::string(32, '\x3f');
}

// A small mixture of experts with everything that a config of a run can say.
std::string ConfigText() {
  TransformerConfig config = MixtralDefaults();
  config.vocab = 11;
  config.width = config.inner = 8;
  config.heads = config.kv_heads = config.layers = 2;
  config.window = 3;
  return ModelConfigJson({.family = config,
                          .batch = 2,
                          .sequence = 6,
                          .policy = *FindPolicy("bf16-f32opt"),
                          .optimizer = "adamw",
                          .documents = {4, 2},
                          .lora = {.rank = 2, .targets = "q_proj"}});
}

// A machine with a product and a row.
std::string MachineSeed() {
  Calibration machine;
  machine.processor = "a processor";
  machine.bandwidth = {{32768, 6e10}, {8e7, 1.6e10}};
  Sample row;
  row.work = {.op = "softmax", .elements = 8192, .bytes = 32768, .least_bytes = 32768};
  row.seconds = 4e-6;
  machine.samples = {MeasuredProduct(7e-6), row};
  return MachineText(machine);
}

// Of the same graph: its product runs twice.
Plan PlanSeed(const Graph& graph) {
  std::vector<NodeId> runs(graph.nodes.size());
  for (size_t n = 0; n < runs.size(); ++n) runs[n] = static_cast<NodeId>(n);
  runs.insert(runs.begin() + 1, 0);
  Plan plan = PlanFromRuns(graph, runs);
  plan.name = "uniform:1";
  plan.note = "the product runs again";
  plan.segments = {{{1, 2}, true}, {{}, false}};
  return plan;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const Graph graph = SampleGraph(kMeta);
  const Plan plan = PlanSeed(graph);
  return {GraphJsonText(graph),  GraphText(graph, {.complete = true}),
          GraphText(graph),      ModelFileBytes(graph),
          ConfigText(),          MachineSeed(),
          PlanText(graph, plan), PlanJsonText(graph, plan)};
}

}  // namespace tally
