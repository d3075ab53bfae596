// Letters for sizes: B rows of the batch, T positions, d width, V vocabulary, ...
#ifndef TALLY_IO_DOT_SYMBOLS_H_
#define TALLY_IO_DOT_SYMBOLS_H_

#include <string>
#include <vector>

#include "tally/analysis/split.h"
#include "tally/autograd/graph.h"

namespace tally::dot {

// Each letter stands for one size, found from what the sizes are used for: inputs give B and T,
// look-up tables V and d, scores the heads h and their size e, weights the rest. A size that two
// letters share is read by its axis: leading axes count (B, T, h), the last one is a width.
class SizeNames {
 public:
  SizeNames(const Graph& graph, const SplitProof& proof);

  // "f32[B,T,3d]". `weight`: every axis is a width.
  std::string Spec(const TensorSpec& spec, bool weight) const;
  // "2·B·T·d·3d" of a plain product; "" for anything else.
  std::string Formula(const Node& node, bool weight_grad) const;

  struct Letter {
    std::string letter;
    int64_t size = 0;
    std::string about;
    bool width = false;
  };
  const std::vector<Letter>& letters() const { return letters_; }

 private:
  void BindInputs();
  void BindTables();
  void BindHeads();
  void BindWeights(const SplitProof& proof);
  void Bind(const char* letter, int64_t size, const char* about, bool width);
  int64_t SizeOf(const char* letter) const;
  std::string Width(int64_t size) const;  // "" when it has no letter
  std::string Rows(int64_t size) const;
  std::string Dim(const Shape& shape, int axis, bool weight, bool number = true) const;

  const Graph& g_;
  std::vector<Letter> letters_;
};

}  // namespace tally::dot

#endif  // TALLY_IO_DOT_SYMBOLS_H_
