#include "tally/autograd/rng_offsets.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"

namespace tally {
namespace {

// Where an op's attributes hold an offset, and of which stream; null: it draws no random words.
struct Draw {
  const AttrField* offset = nullptr;
  uint64_t seed = 0;
  uint32_t stream = 0;
};

Draw DrawOf(const OpDef& op, const Attrs& attrs) {
  Draw draw;
  if (op.attrs == nullptr) return draw;
  for (const AttrField& field : op.attrs()) {
    if (field.type == AttrType::kRngOffset) draw.offset = &field;
  }
  if (draw.offset == nullptr) return draw;
  for (const AttrField& field : op.attrs()) {
    const std::byte* const data = attrs.data() + field.offset;
    if (absl::string_view(field.name) == "seed") std::memcpy(&draw.seed, data, sizeof(uint64_t));
    if (absl::string_view(field.name) == "stream") {
      std::memcpy(&draw.stream, data, sizeof(uint32_t));
    }
  }
  return draw;
}

auto FindBase(const std::vector<RngBase>& bases, const Draw& draw) {
  return std::find_if(bases.begin(), bases.end(), [&](const RngBase& base) {
    return base.seed == draw.seed && base.stream == draw.stream;
  });
}

}  // namespace

void MakeOffsetsRelative(const OpDef& op, Attrs& attrs, std::vector<RngBase>& bases) {
  const Draw draw = DrawOf(op, attrs);
  if (draw.offset == nullptr) return;
  uint64_t value = 0;
  std::memcpy(&value, attrs.data() + draw.offset->offset, sizeof(value));
  const auto base = FindBase(bases, draw);
  if (base == bases.end()) {
    bases.push_back({draw.seed, draw.stream, value});
    value = 0;
  } else {
    value -= base->offset;
  }
  std::memcpy(attrs.data() + draw.offset->offset, &value, sizeof(value));
}

Attrs AbsoluteAttrs(const Node& node, const std::vector<RngBase>& bases) {
  Attrs attrs = node.attrs;
  const Draw draw = DrawOf(*node.op, attrs);
  if (draw.offset == nullptr) return attrs;
  const auto base = FindBase(bases, draw);
  if (base == bases.end()) return attrs;
  uint64_t value = 0;
  std::memcpy(&value, attrs.data() + draw.offset->offset, sizeof(value));
  value += base->offset;
  std::memcpy(attrs.data() + draw.offset->offset, &value, sizeof(value));
  return attrs;
}

RandomWords WordsOf(const Graph& graph, const Node& node) {
  RandomWords words;
  const Draw draw = DrawOf(*node.op, node.attrs);
  if (draw.offset == nullptr) return words;
  words.any = true;
  const auto base = FindBase(graph.rng, draw);
  if (base == graph.rng.end()) return words;
  words.base = static_cast<int32_t>(base - graph.rng.begin());
  std::memcpy(&words.end, node.attrs.data() + draw.offset->offset, sizeof(words.end));
  if (node.num_out > 0) words.end += static_cast<uint64_t>(graph.numel(graph.out(node)[0]));
  return words;
}

}  // namespace tally
