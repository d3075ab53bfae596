#include "tally/io/dot_symbols.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tally/ops/matmul.h"

namespace tally::dot {
namespace {

bool Is(const Node& node, const char* op) {
  return node.foreign == kNone && std::strcmp(node.op->name, op) == 0;
}

}  // namespace

SizeNames::SizeNames(const Graph& graph, const SplitProof& proof) : g_(graph) {
  BindInputs();
  BindTables();
  BindHeads();
  BindWeights(proof);
}

void SizeNames::Bind(const char* letter, int64_t size, const char* about, bool width) {
  for (const Letter& known : letters_) {
    if (known.letter == letter || (known.size == size && known.width == width)) return;
  }
  letters_.push_back({letter, size, about, width});
}

int64_t SizeNames::SizeOf(const char* letter) const {
  for (const Letter& known : letters_) {
    if (known.letter == letter) return known.size;
  }
  return 0;
}

// Ids [B,T] or features [B,...,D].
void SizeNames::BindInputs() {
  for (const bool ids : {true, false}) {
    for (const Node& node : g_.nodes) {
      if (node.phase != Phase::kForward) continue;
      if (ids != Is(node, "gather_rows")) continue;
      for (ValueId v : g_.in(node)) {
        const Value& value = g_.values[v];
        const Shape& shape = value.spec.shape;
        if (value.producer != kNone || g_.storages[value.storage].origin != Origin::kInput)
          continue;
        if (IsFloat(value.spec.dtype) == ids || shape.rank() < 2) continue;
        Bind("B", shape[0], "batch", false);
        if (shape.rank() > 2 || ids) Bind("T", shape[1], "sequence", false);
        if (!ids) Bind("D", shape[-1], "input width", true);
        return;
      }
    }
  }
}

void SizeNames::BindTables() {
  for (const Node& node : g_.nodes) {
    if (!Is(node, "gather_rows") || node.num_in < 2 || node.phase != Phase::kForward) continue;
    const Shape& table = g_.values[g_.in(node)[0]].spec.shape;
    if (table.rank() != 2) continue;
    Bind("d", table[1], "width", true);
    if (g_.values[g_.in(node)[1]].spec.rank() < 2) {
      if (table[0] != SizeOf("T")) Bind("C", table[0], "context", true);
    } else {
      Bind("V", table[0], "vocabulary", true);
    }
  }
}

// Scores [B,h,T,T] are a product over the head size.
void SizeNames::BindHeads() {
  for (const Node& node : g_.nodes) {
    if (!Is(node, "matmul") || node.phase != Phase::kForward) continue;
    const Shape& a = g_.values[g_.in(node)[0]].spec.shape;
    const Shape& out = g_.values[g_.out(node)[0]].spec.shape;
    if (a.rank() != 4 || out.rank() != 4 || out[-1] != out[-2]) continue;
    Bind("h", out[1], "heads", false);
    Bind("e", a[-1], "head width", true);
    return;
  }
}

void SizeNames::BindWeights(const SplitProof& proof) {
  int64_t classes = 0;
  for (const Node& node : g_.nodes) {
    if (!Is(node, "cross_entropy") || node.num_in == 0) continue;
    const Shape& logits = g_.values[g_.in(node)[0]].spec.shape;
    if (logits.rank() > 0) classes = logits[-1];
  }
  const bool has_width = SizeOf("d") != 0;
  static constexpr const char* kHidden[] = {"H", "H2", "H3", "H4", "H5", "H6"};
  size_t hidden = 0;
  for (const WeightContraction& c : proof.contractions) {
    const Node& node = g_.nodes[c.node];
    const Shape& w = g_.values[g_.in(node)[c.operand]].spec.shape;
    if (w.rank() != 2) continue;
    const int64_t out = g_.values[g_.out(node)[0]].spec.shape[-1];
    const int64_t in = out == 0 ? 0 : w.numel() / out;
    for (const int64_t size : {in, out}) {
      const bool fourfold = has_width && size == 4 * SizeOf("d");
      if (size <= 1 || (!fourfold && !Width(size).empty())) continue;
      if (has_width) {
        Bind("ff", size, "inner width", true);
      } else if (size == classes && size != in) {
        Bind("K", size, "classes", true);
      } else if (SizeOf("D") == 0) {
        Bind("D", size, "width", true);
      } else if (hidden < 6) {
        Bind(kHidden[hidden++], size, "hidden width", true);
      }
    }
  }
}

std::string SizeNames::Width(int64_t size) const {
  for (const Letter& l : letters_) {
    if (l.width && l.size == size) return l.letter;
  }
  const int64_t d = SizeOf("d");
  for (const int times : {2, 3}) {
    if (d > 1 && size == times * d) return absl::StrCat(times, "d");
  }
  return "";
}

std::string SizeNames::Rows(int64_t size) const {
  for (const Letter& l : letters_) {
    if (!l.width && l.size == size && size > 1) return l.letter;
  }
  const int64_t b = SizeOf("B"), t = SizeOf("T");
  if (b > 0 && t > 1 && size == b * t) return "B·T";
  return "";
}

std::string SizeNames::Dim(const Shape& shape, int axis, bool weight, bool number) const {
  const int64_t size = shape[axis];
  const int rank = shape.rank();
  const int64_t b = SizeOf("B"), t = SizeOf("T");
  std::string text;
  if (weight) {
    text = Width(size);
    if (text.empty()) text = Rows(size);
  } else if (axis == 0 && rank >= 2 && b > 0 && size == b) {
    text = "B";
  } else if (axis == 0 && rank == 1 && b > 0 && size == b) {
    text = "B";
  } else if (axis == 0 && rank == 2 && t > 0 && size == b * t) {
    text = "B·T";
  } else if (axis == rank - 1) {
    // Ids count positions; so do scores.
    const bool square = rank >= 3 && shape[-2] == size;
    text = size == t && (square || !number) ? "T" : Width(size);
    if (text.empty()) text = Rows(size);
  } else {
    text = rank >= 3 && size == t ? "T" : Rows(size);
    if (text.empty()) text = Width(size);
  }
  return text.empty() || (size == 1 && text != "B") ? absl::StrCat(size) : text;
}

std::string SizeNames::Spec(const TensorSpec& spec, bool weight) const {
  std::string text = absl::StrCat(Name(spec.dtype), "[");
  for (int i = 0; i < spec.rank(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", Dim(spec.shape, i, weight, IsFloat(spec.dtype)));
  }
  return text + "]";
}

std::string SizeNames::Formula(const Node& node, bool weight_grad) const {
  const bool linear = Is(node, "linear"), matmul = Is(node, "matmul");
  if ((!linear && !matmul) || node.num_out == 0 || node.num_in < 2) return "";
  const Shape& a = g_.values[g_.in(node)[0]].spec.shape;
  const Shape& out = g_.values[g_.out(node)[0]].spec.shape;
  if (a.rank() < 2) return "";
  const bool transposed = matmul && node.attrs.As<MatMulAttrs>().transpose_a;
  std::string text = "2";
  const auto factor = [&](const std::string& dim) {
    if (dim != "1") absl::StrAppend(&text, "·", dim);
  };
  const bool as_weight = weight_grad && out.rank() == 2;
  for (int i = 0; i + 1 < out.rank(); ++i) factor(Dim(out, i, as_weight));
  factor(Dim(a, a.rank() - (transposed ? 2 : 1), false));
  if (out.rank() > 0) factor(Dim(out, out.rank() - 1, as_weight));
  return text;
}

}  // namespace tally::dot
