#include "tally/ops/einops/transform.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/ops/einops/pattern.h"
#include "tally/tensor/check.h"

namespace tally::einops {
namespace {

constexpr int64_t kUnknown = -1;

// An axis as written: by name, one of those that "..." stands for, or a number.
struct Axis {
  absl::string_view name;  // "" without one
  int ellipsis = -1;       // which of the axes under "..."
  int64_t size = kUnknown;
  Extent at;
  bool on_left = false, on_right = false;
  bool given = false;  // the size comes from the caller
};

std::string Quoted(const Axis& axis) {
  if (!axis.name.empty()) return absl::StrCat("axis '", axis.name, "'");
  if (axis.ellipsis >= 0) return absl::StrCat("axis ", axis.ellipsis, " of '...'");
  return absl::StrCat("the axis of size ", axis.size);
}

class Reader {
 public:
  Reader(TransformKind kind, absl::string_view op, absl::string_view pattern, const TensorSpec& x,
         const AxisSizes& sizes)
      : kind_(kind), op_(op), pattern_(pattern), x_(x), given_(sizes) {}

  absl::StatusOr<Transform> Read() {
    TALLY_ASSIGN_OR_RETURN(const Extent arrow, FindArrow(op_, pattern_));
    const int size = static_cast<int>(pattern_.size());
    TALLY_ASSIGN_OR_RETURN(const Side left, ParseSide(op_, pattern_, {0, arrow.begin}));
    TALLY_ASSIGN_OR_RETURN(const Side right, ParseSide(op_, pattern_, {arrow.end, size}));
    TALLY_RETURN_IF_ERROR(TakeLeft(left, arrow));
    TALLY_RETURN_IF_ERROR(TakeRight(right));
    TALLY_RETURN_IF_ERROR(CheckSides());
    TALLY_RETURN_IF_ERROR(TakeSizes());
    for (size_t i = 0; i < left_.size(); ++i) TALLY_RETURN_IF_ERROR(SolveAxis(i));
    TALLY_RETURN_IF_ERROR(CheckNewAxes());
    return Fused();
  }

 private:
  absl::Status Bad(Extent at, const std::string& message) const {
    return PatternError(op_, pattern_, at, absl::StrCat(message, ": x is ", x_.ToString()));
  }

  // -1 when there is none.
  int FindName(absl::string_view name) const {
    if (name.empty()) return -1;  // as axes without a name are
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }

  int AddAxis(Axis axis) {
    axes_.push_back(std::move(axis));
    return static_cast<int>(axes_.size()) - 1;
  }

  absl::Status TakeLeft(const Side& side, Extent arrow) {
    if (side.ellipsis != nullptr && side.ellipsis_in_group) {
      return Bad(side.ellipsis->at,
                 "'...' in parentheses on the left has no known sizes; name them");
    }
    const int rank = x_.rank(), written = static_cast<int>(side.groups.size());
    ellipsis_axes_ = side.ellipsis == nullptr ? 0 : rank - (written - 1);
    if (side.ellipsis == nullptr ? written != rank : ellipsis_axes_ < 0) {
      const int least = written - (side.ellipsis != nullptr);
      const Extent all{0, std::max(arrow.begin, 1)};
      return Bad(Trimmed(all),
                 absl::StrCat("the left side has ", side.ellipsis != nullptr ? "at least " : "",
                              least, least == 1 ? " axis" : " axes", ", x has ", rank));
    }
    has_ellipsis_ = side.ellipsis != nullptr;
    for (const Group& group : side.groups) {
      if (has_ellipsis_ && !group.items.empty() && group.items[0].kind == ItemKind::kEllipsis) {
        for (int i = 0; i < ellipsis_axes_; ++i) {
          Axis axis{.ellipsis = i, .at = group.at, .on_left = true};
          left_.push_back({AddAxis(axis)});
          left_at_.push_back(group.at);
        }
        continue;
      }
      Slot slot;
      for (const Item& item : group.items) {
        if (item.kind == ItemKind::kName && FindName(item.text) >= 0) {
          return Bad(item.at, absl::StrCat("axis '", item.text, "' stands twice on the left"));
        }
        if (item.kind == ItemKind::kNumber && kind_ != TransformKind::kReduce) {
          return Bad(item.at,
                     "on the left a number other than 1 is for reduce only; name the axis");
        }
        slot.push_back(AddAxis({.name = item.kind == ItemKind::kName ? item.text : "",
                                .size = item.kind == ItemKind::kNumber ? item.number : kUnknown,
                                .at = item.at,
                                .on_left = true}));
      }
      left_.push_back(std::move(slot));
      left_at_.push_back(group.at);
    }
    return absl::OkStatus();
  }

  absl::Status TakeRight(const Side& side) {
    if (side.ellipsis != nullptr && !has_ellipsis_) {
      return Bad(side.ellipsis->at, "'...' on the right but not on the left");
    }
    for (const Group& group : side.groups) {
      Slots slots(1);
      for (const Item& item : group.items) {
        if (item.kind == ItemKind::kEllipsis) {
          if (!group.parenthesised) slots.clear();
          for (size_t a = 0; a < axes_.size(); ++a) {
            if (axes_[a].ellipsis < 0) continue;
            axes_[a].on_right = true;
            if (!group.parenthesised) slots.emplace_back();
            slots.back().push_back(static_cast<int>(a));
          }
          continue;
        }
        TALLY_RETURN_IF_ERROR(TakeRightItem(item, &slots.back()));
      }
      for (Slot& slot : slots) right_.push_back(std::move(slot));
    }
    if (right_.size() > kMaxRank) {
      return Bad(Trimmed(side.at), absl::StrCat("the result has ", right_.size(),
                                                " axes; a tensor has at most ", kMaxRank));
    }
    return absl::OkStatus();
  }

  absl::Status TakeRightItem(const Item& item, Slot* slot) {
    if (item.kind == ItemKind::kNumber) {
      if (kind_ != TransformKind::kRepeat) {
        return Bad(item.at, "on the right a number other than 1 is for repeat only");
      }
      slot->push_back(AddAxis({.size = item.number, .at = item.at, .on_right = true}));
      return absl::OkStatus();
    }
    int axis = FindName(item.text);
    if (axis >= 0 && axes_[axis].on_right) {
      return Bad(item.at, absl::StrCat("axis '", item.text, "' stands twice on the right"));
    }
    if (axis < 0) {
      if (kind_ != TransformKind::kRepeat) {
        return Bad(item.at, absl::StrCat("axis '", item.text,
                                         "' is on the right only; repeat makes new axes"));
      }
      axis = AddAxis({.name = item.text, .at = item.at});
    }
    axes_[axis].on_right = true;
    slot->push_back(axis);
    return absl::OkStatus();
  }

  absl::Status CheckSides() const {
    if (kind_ == TransformKind::kReduce) return absl::OkStatus();
    for (const Axis& axis : axes_) {
      if (axis.on_right) continue;
      const std::string what = axis.ellipsis >= 0 ? "'...'" : Quoted(axis);
      return Bad(axis.at, absl::StrCat(what, " is on the left only; reduce drops axes"));
    }
    return absl::OkStatus();
  }

  absl::Status TakeSizes() {
    for (const AxisSize& s : given_.list()) {
      const int axis = FindName(s.name);
      if (axis < 0) {
        return Bad(
            {0, static_cast<int>(pattern_.size())},
            absl::StrCat("a size is given for '", s.name, "', which the pattern does not name"));
      }
      if (s.size < 0) {
        return Bad(axes_[axis].at, absl::StrCat(Quoted(axes_[axis]), " is given size ", s.size));
      }
      axes_[axis].size = s.size;
      axes_[axis].given = true;
    }
    return absl::OkStatus();
  }

  // The sizes of the axes that make up axis i of x.
  absl::Status SolveAxis(size_t i) {
    const int64_t dim = x_.shape[static_cast<int>(i)];
    int64_t known = 1;
    int unknown = -1;
    for (int a : left_[i]) {
      if (axes_[a].size == kUnknown) {
        if (unknown >= 0) {
          return Bad(axes_[a].at, absl::StrCat("neither '", axes_[unknown].name, "' nor '",
                                               axes_[a].name, "' has a size; give one"));
        }
        unknown = a;
      } else if (__builtin_mul_overflow(known, axes_[a].size, &known)) {
        return Bad(left_at_[i], "the sizes multiply past 2^63-1");
      }
    }
    if (unknown < 0) {
      if (known == dim) return absl::OkStatus();
      return Bad(left_at_[i],
                 absl::StrCat("axis ", i, " of x is ", dim, ", the pattern ", "wants ", known));
    }
    if (left_[i].size() == 1) {
      axes_[unknown].size = dim;
    } else if (known == 0) {
      return Bad(axes_[unknown].at,
                 absl::StrCat(Quoted(axes_[unknown]), " beside an axis of size 0",
                              " could be any size; give it"));
    } else if (dim % known != 0) {
      return Bad(left_at_[i],
                 absl::StrCat("axis ", i, " of x is ", dim, ", no multiple of ", known));
    } else {
      axes_[unknown].size = dim / known;
    }
    return absl::OkStatus();
  }

  absl::Status CheckNewAxes() const {
    for (const Axis& axis : axes_) {
      if (axis.size == kUnknown) {
        return Bad(axis.at, absl::StrCat(Quoted(axis), " is new and has no size; give one"));
      }
    }
    return absl::OkStatus();
  }

  // The extent without spaces at its ends.
  Extent Trimmed(Extent at) const {
    while (at.begin < at.end && IsSpace(pattern_[at.begin])) ++at.begin;
    while (at.begin < at.end && IsSpace(pattern_[at.end - 1])) --at.end;
    return at;
  }

  // The group of `slots` that holds the axis, and where in it.
  static std::pair<int, int> Find(const Slots& slots, int axis) {
    for (size_t i = 0; i < slots.size(); ++i) {
      for (size_t k = 0; k < slots[i].size(); ++k) {
        if (slots[i][k] == axis) return {static_cast<int>(i), static_cast<int>(k)};
      }
    }
    return {-1, -1};
  }

  // Whether `next`, which follows `axis` in one group on the left, does so on the right as well.
  bool StayTogether(int axis, int next) const {
    if (!axes_[axis].on_right || !axes_[next].on_right) {
      return axes_[axis].on_right == axes_[next].on_right;
    }
    const auto [group, place] = Find(right_, axis);
    return Find(right_, next) == std::pair(group, place + 1);
  }

  absl::StatusOr<Transform> Fused() {
    Transform t;
    std::vector<int> number(axes_.size(), -1);
    const auto add = [&](const Axis& axis) {
      t.sizes.push_back(axis.size);
      t.on_left.push_back(axis.on_left);
      t.on_right.push_back(axis.on_right);
      return static_cast<int>(t.sizes.size()) - 1;
    };
    for (const Slot& slot : left_) {
      Slot& to = t.left.emplace_back();
      for (size_t k = 0; k < slot.size(); ++k) {
        const Axis& axis = axes_[slot[k]];
        if (k > 0 && StayTogether(slot[k - 1], slot[k])) {
          t.sizes[to.back()] *= axis.size;  // at most the dim of x
          continue;
        }
        to.push_back(number[slot[k]] = add(axis));
      }
    }
    for (const Slot& slot : right_) {
      Slot& to = t.right.emplace_back();
      for (int a : slot) {
        if (!axes_[a].on_left && axes_[a].size != 1) number[a] = add(axes_[a]);
        if (number[a] >= 0) to.push_back(number[a]);
      }
    }
    TALLY_RETURN_IF_ERROR(CheckResult(t));
    return t;
  }

  absl::Status CheckResult(const Transform& t) const {
    const Extent all{0, static_cast<int>(pattern_.size())};
    if (t.sizes.size() > kMaxRank) {
      return Bad(all, absl::StrCat("the pattern tells ", t.sizes.size(),
                                   " axes apart; a tensor has at most ", kMaxRank));
    }
    // Axes of size 0 count as 1, so that no part of the product overflows either.
    int64_t before = 1, after = 1;
    bool overflow = false;
    for (size_t a = 0; a < t.sizes.size(); ++a) {
      const int64_t size = std::max<int64_t>(t.sizes[a], 1);
      if (t.on_left[a]) overflow |= __builtin_mul_overflow(before, size, &before);
      if (t.on_right[a]) overflow |= __builtin_mul_overflow(after, size, &after);
    }
    if (overflow) return Bad(all, "the sizes multiply past 2^63-1");
    return absl::OkStatus();
  }

  const TransformKind kind_;
  const absl::string_view op_;
  const absl::string_view pattern_;
  const TensorSpec& x_;
  const AxisSizes& given_;
  std::vector<Axis> axes_;
  Slots left_, right_;  // by number in axes_
  std::vector<Extent> left_at_;
  bool has_ellipsis_ = false;
  int ellipsis_axes_ = 0;
};

}  // namespace

absl::StatusOr<Transform> ReadTransform(TransformKind kind, absl::string_view op,
                                        absl::string_view pattern, const TensorSpec& x,
                                        const AxisSizes& sizes) {
  return Reader(kind, op, pattern, x, sizes).Read();
}

}  // namespace tally::einops
