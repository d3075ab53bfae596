#include "tally/io/layer_units.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/analysis/chain.h"

namespace tally {
namespace {

double UnitsOf(int64_t layers, double tape, int64_t length) {
  double most = 0;
  for (int64_t first = 0, j = 1; first < layers; first += length, ++j) {
    const int64_t here = std::min(length, layers - first);
    most = std::max(most, static_cast<double>(j) + static_cast<double>(here) * (1 + tape));
  }
  return most;
}

std::string Number(double units) {
  return units < 1000 ? absl::StrFormat("%.4g", units) : absl::StrFormat("%.0f", units);
}

std::string Segments(int64_t length) {
  return absl::StrCat("segments of ", length, length == 1 ? " layer" : " layers");
}

}  // namespace

LayerUnits SegmentsInUnits(int64_t layers, double tape) {
  LayerUnits units{.layers = layers, .tape = tape};
  while (units.sqrt_length * units.sqrt_length < layers) ++units.sqrt_length;
  units.best_length = units.sqrt_length;
  units.sqrt_units = units.best_units = UnitsOf(layers, tape, units.sqrt_length);
  for (int64_t length = 1; length <= layers; ++length) {
    const double here = UnitsOf(layers, tape, length);
    if (here >= units.best_units) continue;
    units.best_units = here;
    units.best_length = length;
  }
  return units;
}

std::optional<LayerUnits> LayerUnitsOf(const Graph& graph) {
  const absl::StatusOr<LayerChain> chain = FindChain(graph);
  if (!chain.ok() || !chain->by_blocks) return std::nullopt;
  std::vector<const ChainStage*> layers;
  for (const ChainStage& stage : chain->passes[0].stages) {
    if (stage.blocks.size() > 1) return std::nullopt;  // merged: no layers any more
    if (stage.blocks.size() == 1) layers.push_back(&stage);
  }
  if (layers.empty()) return std::nullopt;
  const ChainStage& middle = *layers[layers.size() / 2];
  if (middle.boundary == kNone || graph.storages[middle.boundary].bytes == 0) return std::nullopt;
  int64_t tape = 0;
  for (StorageId s : middle.tape) tape += graph.storages[s].bytes;
  return SegmentsInUnits(
      static_cast<int64_t>(layers.size()),
      static_cast<double>(tape) / static_cast<double>(graph.storages[middle.boundary].bytes));
}

std::string LayerUnitsText(const LayerUnits& u) {
  return absl::StrCat(
      "in units of a layer's boundary, of L = ", u.layers, " layers that keep a = ", Number(u.tape),
      " of tape beside it, the activations of the layers by the rule j + k(1 + a): ",
      Segments(u.sqrt_length), ", sqrt(L), take ", Number(u.sqrt_units), " against ",
      Number(u.best_units), " for the best, ", Segments(u.best_length));
}

}  // namespace tally
