// Convolutions and pools on a GPU over several tiles, blocks and images.
#include "like_cpu.h"

namespace tally::conformance {
namespace {

constexpr DType kBF16 = DType::kBF16, kF16 = DType::kF16, kF32 = DType::kF32, kF64 = DType::kF64;

struct Conv {
  Shape x, w, y;
  int stride, padding, dilation, groups;
};

void ExpectConvLikeCpu(const Conv& c, std::initializer_list<DType> dtypes) {
  const std::string attrs =
      absl::StrCat("stride_h=", c.stride, " stride_w=", c.stride, " padding_h=", c.padding,
                   " padding_w=", c.padding, " dilation_h=", c.dilation, " dilation_w=", c.dilation,
                   " groups=", c.groups);
  const auto sized = [&](const Shape& of) {
    return absl::StrCat(attrs, " size_h=", of[2], " size_w=", of[3]);
  };
  ExpectLikeCpu({"conv2d", attrs, {X(c.x), X(c.w), X({c.w[0]})}}, dtypes);
  ExpectLikeCpu({"conv2d_input_grad", sized(c.x), {X(c.y), X(c.w)}}, dtypes);
  ExpectLikeCpu({"conv2d_weight_grad", sized(c.w), {X(c.y), X(c.x)}}, dtypes);
}

TEST(ConvOnGpu, RunsOverTiles) {
  ExpectConvLikeCpu({{2, 8, 19, 23}, {72, 8, 3, 3}, {2, 72, 10, 12}, 2, 1, 1, 1},
                    {kF32, kBF16, kF16});
  ExpectConvLikeCpu({{1, 6, 12, 11}, {10, 3, 2, 3}, {1, 10, 12, 9}, 1, 1, 2, 2},
                    {kF64, kF32, kF16});
}

// 3200 pixels are summed in parts.
TEST(ConvOnGpu, SplitsThePixelsOfTheGradientOfWeights) {
  const Sample sample{"conv2d_weight_grad",
                      "stride_h=1 stride_w=1 padding_h=1 padding_w=1 dilation_h=1 dilation_w=1 "
                      "groups=1 size_h=3 size_w=3",
                      {X({2, 4, 40, 40}), X({2, 3, 40, 40})}};
  ExpectLikeCpu(sample, {kF64, kF32, kBF16});
}

TEST(ConvOnGpu, RunsDepthwiseByElement) {
  ExpectConvLikeCpu({{2, 35, 17, 20}, {70, 1, 3, 3}, {2, 70, 8, 9}, 2, 0, 1, 35}, {kF32, kF16});
  ExpectConvLikeCpu({{1, 3, 9, 40}, {3, 1, 3, 3}, {1, 3, 9, 40}, 1, 1, 1, 3}, {kF64, kBF16});
}

// As depthwise ones, with more channels to add up: positions do not fit 32 bits.
TEST(ConvOnGpu, RunsLongAxesByElement) {
  ExpectConvLikeCpu({{2, 4, 3, 3}, {6, 2, 3, 3}, {2, 6, 1, 1}, 1 << 29, 0, 1, 2},
                    {kF64, kF32, kBF16});
}

TEST(PoolOnGpu, RunsOverBlocks) {
  const std::string window = "kernel_h=3 kernel_w=3 stride_h=2 stride_w=2 padding_h=1 padding_w=1";
  ExpectLikeCpu({"max_pool2d", window + " dilation_h=1 dilation_w=1", {X({2, 3, 37, 41})}},
                {kF32, kF16});
  for (const char* count : {" count_include_pad=true", " count_include_pad=false"}) {
    ExpectLikeCpu({"avg_pool2d", window + count, {X({2, 3, 37, 41})}}, {kF64, kBF16});
    ExpectLikeCpu({"avg_pool2d_grad", window + count + " size_h=37 size_w=41", {X({2, 3, 19, 21})}},
                  {kF32, kF16});
  }
}

// The same bits as the CPU: many outputs in one element, and in planes that shared memory does not
// hold.
TEST(PoolOnGpu, AddsByIndexInTheOrderOfOutputs) {
  for (const Sample& sample :
       {Sample{
            "max_pool2d_grad", "size_h=5 size_w=4", {X({2, 2, 20, 31}), Ids(20, {2, 2, 20, 31})}},
        Sample{"max_pool2d_grad",
               "size_h=160 size_w=150",
               {X({1, 18, 2, 3}), Ids(24000, {1, 18, 2, 3})}}}) {
    const Host values = HostInputs(sample);
    for (const DType dtype : {kF64, kF32, kBF16, kF16}) {
      SCOPED_TRACE(absl::StrCat(Name(dtype), " ", sample.ToString()));
      const Tensor cpu = Call(sample, MakeInputs(sample, values, dtype, kCpu), kCpu)[0];
      const Tensor gpu = Call(sample, MakeInputs(sample, values, dtype, kGpu), kGpu)[0];
      EXPECT_EQ(gpu.ToDoubles(), cpu.ToDoubles());
    }
  }
}

TEST(PoolOnGpu, TellsIndexesOutsideThePlane) {
  const Tensor x = Tensor::FromDoubles(std::vector<double>(6, 1.0), {kF32, {1, 1, 2, 3}}, kGpu);
  const Tensor index = Tensor::FromDoubles({5, 6}, {DType::kI64, {1, 1, 1, 2}}, kGpu);
  const Tensor picked = ApplyAll(*FindOp("max_pool2d_pick"), {x, index})[0];
  const absl::Status status = ExistingBackend(kGpu).Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("max_pool2d_pick"));
}

}  // namespace
}  // namespace tally::conformance
