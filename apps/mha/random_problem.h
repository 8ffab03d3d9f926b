// Random problems of attention for `mha verify`: a pure function of a seed and a number, so that any of them can be had again. Holds the
// tensors; knows nothing of what is computed from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mha/attention.h"

namespace mha::app {

/// One problem: the spec and inputs point into it.
class RandomProblem {
 public:
  RandomProblem(std::uint64_t seed, Index number);
  RandomProblem(const RandomProblem&) = delete;
  RandomProblem& operator=(const RandomProblem&) = delete;

  DType dtype() const { return dtype_; }  // of q, k, v
  const AttentionSpec& spec() const { return spec_; }
  AttentionInputs inputs() const;
  /// q, k and v in double, exactly: with them attention_forward is the reference.
  AttentionInputs double_inputs();
  Dims out_shape() const { return {sizes_.batch, sizes_.q_len, sizes_.heads, sizes_.value_dim}; }
  Dims lse_shape() const { return {sizes_.batch, sizes_.heads, sizes_.q_len}; }
  Dims weights_shape() const { return {sizes_.batch, sizes_.heads, sizes_.q_len, sizes_.kv_len}; }
  /// One line: sizes, dtype, mask, biases.
  const std::string& description() const { return description_; }

 private:
  struct Sizes {
    Index batch, q_len, kv_len, heads, kv_heads, head_dim, value_dim;
  };
  class Dice;

  void choose_sizes(Dice& dice);
  void choose_spec(Dice& dice);
  void choose_hidden(Dice& dice);
  /// [batch, length, heads, dim] of normal numbers in one of several memory layouts.
  ConstTensorView make(Dice& dice, const Dims& shape);
  /// [batch, heads, q_len, kv_len] with some axes 1, every element by `element`.
  template <class T, class Element>
  ConstTensorView make_table(Dice& dice, Element&& element);

  DType dtype_ = DType::F32;
  Sizes sizes_{};
  AttentionSpec spec_;
  ConstTensorView q_, k_, v_, allowed_;
  std::vector<Index> kv_lengths_;
  std::vector<Tensor> storage_;
  std::string description_;
};

}  // namespace mha::app
