#include "tally/ops/einops/einsum_lower.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/ops/einops/einsum_layout.h"
#include "tally/tensor/check.h"

namespace tally::einops {
namespace {

// How an operand enters a step.
struct Form {
  Slots slots;
  bool transposed = false;
  Count copied = 0;
  int nodes = 0;
  int moved = 0;  // axes that change place
};
bool Cheaper(const Form& a, const Form& b) {
  return std::tie(a.copied, a.nodes, a.moved) < std::tie(b.copied, b.nodes, b.moved);
}

// One way to put a contraction. The first of the cheapest is taken.
struct Way {
  bool exchanged = false;  // the second operand stands on the left
  Form left, right;
  Slots result;
  Count copied = 0;
  int repeated = 0;  // leading axes along which an operand is repeated
  int nodes = 0;
  int moved = 0;
};
bool Cheaper(const Way& a, const Way& b) {
  return std::tie(a.copied, a.repeated, a.nodes, a.moved) <
         std::tie(b.copied, b.repeated, b.nodes, b.moved);
}

// The free axes of one operand: those that become the matrix' axis, and those that lead.
struct Split {
  Slot matrix;
  Order lead;
};

void AddNew(std::vector<Order>* orders, Order order) {
  if (std::find(orders->begin(), orders->end(), order) == orders->end()) {
    orders->push_back(std::move(order));
  }
}

class Lowering {
 public:
  Lowering(const EinsumTerms& terms, absl::Span<const TensorArg> operands)
      : t_(terms), out_(terms.out.begin(), terms.out.end()) {
    program_.operands = static_cast<int>(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      laid_.push_back(Prepare(static_cast<int>(i), *operands[i].tensor));
    }
  }

  absl::StatusOr<Program> Lower(const std::vector<Contraction>& contractions) {
    for (const Contraction& c : contractions) {
      if (std::popcount(c.result) > kMaxRank) {
        return absl::InvalidArgumentError(absl::StrCat("einsum: a result on the way has ",
                                                       std::popcount(c.result),
                                                       " axes; a tensor has at most ", kMaxRank));
      }
      last_ = &c == &contractions.back();
      laid_.push_back(c.b < 0 ? SumOut(c) : c.summed() == 0 ? Multiply(c) : Contract(c));
    }
    const Laid& result = laid_.back();
    ViewWriter writer = WriterOf(result);
    writer.Reorder(PositionsIn(result, out_));
    return std::move(program_);
  }

 private:
  ViewWriter WriterOf(const Laid& x) {
    return ViewWriter(&program_, t_.sizes, x.operand, OneEach(x.labels));
  }

  // Without broadcast axes and with diagonals taken.
  Laid Prepare(int i, const Tensor& tensor) {
    Laid x{i, {}, {}};
    Slots slots;
    for (size_t k = 0; k < t_.operands[i].size(); ++k) {
      Slot& slot = slots.emplace_back();
      if (t_.broadcast[i][k]) continue;
      slot.push_back(t_.operands[i][k]);
      x.labels.push_back(t_.operands[i][k]);
      x.strides.push_back(tensor.strides()[k]);
    }
    ViewWriter writer(&program_, t_.sizes, i, slots);
    writer.Regroup(OneEach(x.labels));
    for (size_t k = 0; k < x.labels.size(); ++k) TakeDiagonal(writer, x, k);
    x.operand = writer.operand();
    return x;
  }

  // Of the axes with the label of axis k: side by side, then as one, then each step to the next
  // element whose indexes are equal.
  void TakeDiagonal(ViewWriter& writer, Laid& x, size_t k) {
    const int label = x.labels[k];
    const auto count = static_cast<size_t>(std::count(x.labels.begin(), x.labels.end(), label));
    if (count == 1) return;
    Order order, others;
    for (size_t i = 0; i < x.labels.size(); ++i) {
      if (i < k || x.labels[i] == label) {
        order.push_back(static_cast<int>(i));
      } else {
        others.push_back(static_cast<int>(i));
      }
    }
    order.insert(order.end(), others.begin(), others.end());
    writer.Reorder(order);
    Laid moved{0, {}, {}};
    for (int i : order) {
      moved.labels.push_back(x.labels[i]);
      moved.strides.push_back(x.strides[i]);
    }
    if (!Even(moved, k, count, t_.sizes)) moved = RowMajor(0, moved.labels, t_.sizes);
    Slots merged, taken;
    int64_t size = 1, step = 0, stride = 0;
    for (size_t i = 0; i < moved.labels.size(); ++i) {
      if (i <= k || i >= k + count) {
        merged.push_back({moved.labels[i]});
        taken.push_back({moved.labels[i]});
      } else {
        merged[k].push_back(label);
      }
      if (i < k || i >= k + count) continue;
      step = step * t_.sizes[label] + 1;
      size *= t_.sizes[label];
      stride += moved.strides[i];
    }
    writer.Regroup(merged);
    writer.Apply({.kind = StepKind::kSlice,
                  .axis0 = static_cast<int>(k),
                  .end = size,
                  .step = std::max<int64_t>(step, 1)},
                 taken);
    x.labels = Flat(taken);
    x.strides.assign(moved.strides.begin(), moved.strides.end());
    x.strides.erase(x.strides.begin() + static_cast<std::ptrdiff_t>(k),
                    x.strides.begin() + static_cast<std::ptrdiff_t>(k + count - 1));
    x.strides[k] = stride;
  }

  Laid SumOut(const Contraction& c) {
    const Laid& x = laid_[c.a];
    ViewWriter writer = WriterOf(x);
    Order axes;
    for (size_t i = 0; i < x.labels.size(); ++i) {
      if ((c.summed() & Only(x.labels[i])) != 0) axes.push_back(static_cast<int>(i));
    }
    Step step{.kind = StepKind::kSum};
    if (axes.size() < x.labels.size()) step.axes = Axes(absl::MakeConstSpan(axes));
    const Order left = InOrder(c.result, x.labels);
    writer.Apply(std::move(step), OneEach(left));
    return RowMajor(writer.operand(), left, t_.sizes);
  }

  Form Price(const Laid& x, Slots slots, bool product) const {
    Form form;
    const Order labels = Flat(slots), order = PositionsIn(x, labels);
    Laid moved{0, labels, {}};
    for (int i : order) moved.strides.push_back(x.strides[i]);
    bool copied = false;
    size_t at = 0;
    for (const Slot& slot : slots) {
      copied |= !Even(moved, at, slot.size(), t_.sizes);
      at += slot.size();
    }
    if (!copied && !Contiguous(moved, t_.sizes)) {
      copied = !product || (slots.size() >= 2 && !TakenByProduct(moved, slots, t_.sizes));
    }
    if (copied) form.copied = Elements(t_, x.set());
    form.nodes =
        ViewWriter::NodesOfReorder(order) + ViewWriter::NodesOfRegroup(OneEach(labels), slots);
    for (size_t i = 0; i < order.size(); ++i) form.moved += order[i] != static_cast<int>(i);
    form.slots = std::move(slots);
    return form;
  }

  int Enter(const Laid& x, const Form& form) {
    ViewWriter writer = WriterOf(x);
    writer.Reorder(PositionsIn(x, Flat(form.slots)));
    writer.Regroup(form.slots);
    return writer.operand();
  }

  // Slots of an operand under leading axes, some of which it lacks.
  static Slots Leading(const Slots& lead, LabelSet own) {
    Slots slots;
    for (const Slot& slot : lead) {
      const bool has = (own & Only(slot[0])) != 0;
      if (has || !slots.empty()) slots.push_back(has ? slot : Slot());
    }
    return slots;
  }

  Laid Multiply(const Contraction& c) {
    const Laid &a = laid_[c.a], &b = laid_[c.b];
    std::vector<Order> orders;
    if (last_) AddNew(&orders, out_);
    AddNew(&orders, InOrder(c.result, a.labels, b.labels));
    AddNew(&orders, InOrder(c.result, b.labels, a.labels));
    std::optional<Way> best;
    for (const Order& order : orders) {
      Way way;
      way.result = OneEach(order);
      way.left = Price(a, Leading(way.result, a.set()), false);
      way.right = Price(b, Leading(way.result, b.set()), false);
      Keep(&best, std::move(way));
    }
    return Record(c, *best, {.kind = StepKind::kMul});
  }

  void Keep(std::optional<Way>* best, Way way) const {
    way.copied = way.left.copied + way.right.copied;
    way.moved = way.left.moved + way.right.moved;
    const Order flat = Flat(way.result);
    way.nodes += way.left.nodes + way.right.nodes +
                 ViewWriter::NodesOfRegroup(way.result, OneEach(flat)) + (last_ && flat != out_);
    if (!best->has_value() || Cheaper(way, **best)) *best = std::move(way);
  }

  Laid Record(const Contraction& c, const Way& way, Step step) {
    const Laid &a = laid_[c.a], &b = laid_[c.b];
    const int left = Enter(way.exchanged ? b : a, way.left);
    const int right = Enter(way.exchanged ? a : b, way.right);
    step.b = right;
    ViewWriter writer(&program_, t_.sizes, left, {});
    writer.Apply(std::move(step), way.result);
    const Order labels = Flat(way.result);
    writer.Regroup(OneEach(labels));
    return RowMajor(writer.operand(), labels, t_.sizes);
  }

  static std::vector<Split> SplitsOf(const Order& free) {
    std::vector<Split> splits = {{Slot(free.begin(), free.end()), {}}};
    if (free.size() < 2) return splits;
    for (int label : free) {
      Split& split = splits.emplace_back();
      split.matrix.push_back(label);
      for (int other : free) {
        if (other != label) split.lead.push_back(other);
      }
    }
    return splits;
  }

  Laid Contract(const Contraction& c) {
    const Laid &a = laid_[c.a], &b = laid_[c.b];
    std::optional<Way> best;
    for (bool exchanged : {false, true}) {
      const Laid &x = exchanged ? b : a, &y = exchanged ? a : b;
      std::vector<Order> inner;
      AddNew(&inner, InOrder(c.summed(), x.labels));
      AddNew(&inner, InOrder(c.summed(), y.labels));
      const std::vector<Split> rows = SplitsOf(InOrder(x.set() & ~y.set(), x.labels));
      const std::vector<Split> cols = SplitsOf(InOrder(y.set() & ~x.set(), y.labels));
      for (const Split& row : rows) {
        for (const Split& col : cols) {
          for (const Slots& lead : LeadsOf(c, x, y, row, col)) {
            for (const Order& k : inner) {
              TryProduct(x, y, row, col, lead, Slot(k.begin(), k.end()), exchanged, &best);
            }
          }
        }
      }
    }
    return Record(c, *best,
                  {.kind = StepKind::kMatMul,
                   .flag_a = best->left.transposed,
                   .flag_b = best->right.transposed});
  }

  // Orders of the leading axes; where there are only shared ones, also all of them as one, for
  // operands with too many axes.
  std::vector<Slots> LeadsOf(const Contraction& c, const Laid& x, const Laid& y, const Split& row,
                             const Split& col) const {
    LabelSet set = x.set() & y.set() & c.result;
    set |= SetOf(row.lead) | SetOf(col.lead);
    std::vector<Order> orders;
    if (last_) AddNew(&orders, InOrder(set, out_));
    AddNew(&orders, InOrder(set, x.labels, y.labels));
    AddNew(&orders, InOrder(set, y.labels, x.labels));
    std::vector<Slots> leads;
    for (const Order& order : orders) leads.push_back(OneEach(order));
    if (row.lead.empty() && col.lead.empty() && std::popcount(set) > 1) {
      for (const Order& order : orders) leads.push_back({Slot(order.begin(), order.end())});
    }
    return leads;
  }

  // A matrix operand: the leading axes and the cheaper order of the other two. Without leading and
  // free axes it is a vector.
  Form MatrixForm(const Laid& x, const Slots& lead, const Slot& row, const Slot& col,
                  const Slot& free) const {
    Slots slots = Leading(lead, x.set());
    if (slots.empty() && free.empty()) return Price(x, {row.empty() ? col : row}, true);
    Slots turned = slots;
    slots.push_back(row);
    slots.push_back(col);
    turned.push_back(col);
    turned.push_back(row);
    Form form = Price(x, std::move(slots), true);
    Form other = Price(x, std::move(turned), true);
    other.transposed = true;
    return Cheaper(other, form) ? other : form;
  }

  void TryProduct(const Laid& x, const Laid& y, const Split& row, const Split& col,
                  const Slots& lead, const Slot& inner, bool exchanged,
                  std::optional<Way>* best) const {
    Way way;
    way.exchanged = exchanged;
    way.left = MatrixForm(x, lead, row.matrix, inner, row.matrix);
    way.right = MatrixForm(y, lead, inner, col.matrix, col.matrix);
    way.result = lead;
    if (way.left.slots.size() > 1) way.result.push_back(row.matrix);
    if (way.right.slots.size() > 1) way.result.push_back(col.matrix);
    if (std::max({way.left.slots.size(), way.right.slots.size(), way.result.size()}) > kMaxRank) {
      return;
    }
    // Rows of x by one matrix are rows of one product; everything else repeats an operand.
    if (way.right.slots.size() > 2) way.repeated += static_cast<int>(row.lead.size());
    way.repeated += static_cast<int>(col.lead.size());
    Keep(best, std::move(way));
  }

  const EinsumTerms& t_;
  const Order out_;
  Program program_;
  std::vector<Laid> laid_;  // by operand number
  bool last_ = false;
};

}  // namespace

absl::StatusOr<Program> LowerEinsum(const EinsumTerms& terms,
                                    const std::vector<Contraction>& contractions,
                                    absl::Span<const TensorArg> operands) {
  return Lowering(terms, operands).Lower(contractions);
}

}  // namespace tally::einops
