// Position biases: something with a row of floats to add to the scores, before masking and softmax. Never scaled.
// Adding a bias: a struct here, its name in `Bias`, its lowering in src/attention/biases.cpp, its cases in tests/support/cases.h.
#pragma once

#include <variant>

#include "mha/tensor.h"

namespace mha {

struct NoBias {};

/// Any floating tensor broadcastable to [batch, heads, q, k] (rank 4; axes of size 1 broadcast). -inf hides its key, by select;
/// -FLT_MAX is only a very small number.
struct DenseBias {
  ConstTensorView values;  // [batch | 1, heads | 1, q | 1, k | 1]
};

using Bias = std::variant<NoBias, DenseBias>;

}  // namespace mha
