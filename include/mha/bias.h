// Position biases: something with a row of floats to add to the scores, before masking and softmax. Never scaled.
// Adding a bias: a struct here, its name in `Bias`, its lowering in src/attention/biases.cpp, its cases in tests/support/cases.h.
#pragma once

#include <cmath>
#include <variant>
#include <vector>

#include "mha/tensor.h"

namespace mha {

struct NoBias {};

/// Any floating tensor broadcastable to [batch, heads, q, k] (rank 4; axes of size 1 broadcast). -inf hides its key, by select;
/// -FLT_MAX is only a very small number.
struct DenseBias {
  ConstTensorView values;  // [batch | 1, heads | 1, q | 1, k | 1]
};

/// Attention with linear biases (Press et al. 2022): -slope of the head times the distance between the key's position and the query's.
/// Positions come from the alignment, as for masks.
struct AlibiBias {
  std::vector<float> slopes;  // one per head

  /// What is added for a key `distance` positions after the query (negative: before it).
  float at(Index head, Index distance) const { return -slopes[static_cast<std::size_t>(head)] * static_cast<float>(std::abs(distance)); }
};

/// The slopes of the paper: 2^(-8 i / n), i = 1..n, where n heads are a power of two; else those of the next lower power of two, followed
/// by every other one of twice that number. Throws ShapeError for heads < 1.
std::vector<float> alibi_slopes(Index heads);

using Bias = std::variant<NoBias, DenseBias, AlibiBias>;

}  // namespace mha
