// Samples of the ops on images: convolution, pooling, and the norms over channels.
#ifndef TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_IMAGES_H_
#define TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_IMAGES_H_

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "op_conformance.h"

namespace tally::conformance {

// One convolution: x [n, c, h, w], kernels [co, c/groups, kh, kw] and the size of y.
struct ConvSample {
  int64_t n, c, h, w, co, kh, kw;
  std::array<int, 2> stride, padding, dilation;
  int groups;
  int64_t out_h, out_w;

  std::string Attrs() const {
    return absl::StrCat("stride_h=", stride[0], " stride_w=", stride[1], " padding_h=", padding[0],
                        " padding_w=", padding[1], " dilation_h=", dilation[0],
                        " dilation_w=", dilation[1], " groups=", groups);
  }
};

// Plain, one tap, patches, groups, depthwise with and without stride, everything at once, sizes of
// 1 and of 0.
inline const std::vector<ConvSample>& ConvSamples() {
  static const auto* const samples = new std::vector<ConvSample>{
      {2, 3, 5, 6, 4, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1, 3, 4},
      {2, 3, 4, 5, 2, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1, 4, 5},
      {1, 4, 3, 3, 6, 1, 1, {1, 1}, {0, 0}, {1, 1}, 2, 3, 3},
      {2, 2, 7, 4, 3, 3, 2, {3, 2}, {0, 0}, {1, 1}, 1, 2, 2},
      {1, 4, 5, 5, 6, 3, 2, {2, 1}, {1, 2}, {1, 2}, 2, 3, 7},
      {2, 3, 5, 4, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3, 5, 4},
      {1, 2, 6, 11, 4, 3, 3, {2, 2}, {1, 0}, {1, 2}, 2, 3, 4},
      {1, 1, 1, 1, 1, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, 1, 1},
      {0, 2, 3, 3, 2, 2, 2, {1, 1}, {0, 0}, {1, 1}, 1, 2, 2},
  };
  return *samples;
}

inline void AddConvSamples(std::vector<Sample>& all) {
  for (const ConvSample& s : ConvSamples()) {
    const Shape x = {s.n, s.c, s.h, s.w}, w = {s.co, s.c / s.groups, s.kh, s.kw};
    const Shape y = {s.n, s.co, s.out_h, s.out_w};
    const auto sized = [&](int64_t h, int64_t w) {
      return absl::StrCat(s.Attrs(), " size_h=", h, " size_w=", w);
    };
    all.push_back({"conv2d", s.Attrs(), {X(x), X(w)}});
    all.push_back({"conv2d", s.Attrs(), {X(x), X(w), X({s.co})}});
    all.push_back({"conv2d_input_grad", sized(s.h, s.w), {X(y), X(w)}});
    all.push_back({"conv2d_weight_grad", sized(s.kh, s.kw), {X(y), X(x)}});
  }
}

// Windows side by side, overlapping, with padding, dilation and gaps; sizes of 1 and of 0.
inline void AddPoolSamples(std::vector<Sample>& all) {
  const auto window = [](int kh, int kw, int sh, int sw, int ph, int pw) {
    return absl::StrCat("kernel_h=", kh, " kernel_w=", kw, " stride_h=", sh, " stride_w=", sw,
                        " padding_h=", ph, " padding_w=", pw);
  };
  const std::vector<std::pair<std::string, Shape>> windows = {
      {window(2, 2, 2, 2, 0, 0), {2, 3, 4, 6}}, {window(3, 2, 1, 2, 1, 1), {1, 2, 5, 7}},
      {window(3, 3, 2, 1, 1, 0), {2, 1, 6, 5}}, {window(1, 1, 2, 3, 0, 0), {1, 2, 3, 4}},
      {window(2, 2, 1, 1, 1, 1), {1, 1, 1, 1}}, {window(2, 2, 2, 2, 0, 0), {0, 2, 4, 4}}};
  for (const auto& [attrs, x] : windows) {
    all.push_back({"max_pool2d", attrs + " dilation_h=1 dilation_w=1", {X(x)}});
    for (const char* count : {" count_include_pad=true", " count_include_pad=false"}) {
      all.push_back({"avg_pool2d", attrs + count, {X(x)}});
    }
  }
  all.push_back(
      {"max_pool2d", window(2, 3, 1, 2, 1, 2) + " dilation_h=3 dilation_w=2", {X({1, 2, 5, 9})}});
  const auto sized = [](const std::string& attrs, int h, int w) {
    return absl::StrCat(attrs, " size_h=", h, " size_w=", w);
  };
  all.push_back({"avg_pool2d_grad",
                 sized(window(3, 2, 1, 2, 1, 1) + " count_include_pad=false", 5, 7),
                 {X({1, 2, 5, 4})}});
  all.push_back({"avg_pool2d_grad",
                 sized(window(2, 2, 3, 2, 0, 0) + " count_include_pad=true", 6, 5),
                 {X({2, 1, 2, 2})}});
  all.push_back({"max_pool2d_grad", sized("", 3, 5), {X({2, 3, 4, 2}), Ids(15, {2, 3, 4, 2})}});
  all.push_back({"max_pool2d_grad", sized("", 1, 4), {X({1, 0, 2, 2}), Ids(4, {1, 0, 2, 2})}});
  all.push_back({"max_pool2d_pick", "", {X({2, 3, 3, 5}), Ids(15, {2, 3, 4, 2})}});
  all.push_back({"max_pool2d_pick", "", {X({2, 1, 2, 2}), Ids(4, {2, 1, 0, 2})}});
}

inline void AddChannelNormSamples(std::vector<Sample>& all) {
  for (const Shape& x : {Shape({3, 4, 2, 5}), Shape({4, 6}), Shape({2, 2, 7}), Shape({0, 2, 3})}) {
    const Shape c = {x[1]}, sets = {x[0], 2};
    const Operand stat = State(c), group_stat = State(sets);
    all.push_back({"batch_norm", "eps=1e-05", {X(x), X(c), X(c)}});
    all.push_back({"batch_norm_grad", "", {X(x), X(x), stat, stat, X(c)}});
    all.push_back({"batch_norm_param_grad", "", {X(x), X(x), stat, stat}});
    all.push_back({"group_norm", "groups=2 eps=1e-05", {X(x), X(c), X(c)}});
    all.push_back({"group_norm_grad", "", {X(x), X(x), group_stat, group_stat, X(c)}});
    all.push_back({"group_norm_param_grad", "", {X(x), X(x), group_stat, group_stat}});
  }
  all.push_back({"group_norm", "groups=1 eps=0.001", {X({2, 3, 4}), X({3}), X({3})}});
  all.push_back({"group_norm", "groups=3 eps=1e-05", {X({2, 3, 2, 3}), X({3}), X({3})}});
  all.push_back({"running_update_",
                 "momentum=0.1 eps=1e-05 count=12",
                 {X({5}), Positive({5}), State({5}), State({5})}});
}

inline void AddImageSamples(std::vector<Sample>& all) {
  AddConvSamples(all);
  AddChannelNormSamples(all);
  AddPoolSamples(all);
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_IMAGES_H_
