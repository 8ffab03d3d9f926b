// The results of RowStatistics as one list, for code that treats them alike: checks here and in src/nn, the layer, the encoder. What the
// numbers mean is in mha/statistics.h; computing them is no matter of this list.
#pragma once

#include <array>

#include "mha/statistics.h"

namespace mha::attention {

/// How a result is laid out, and what it says of a row that sees no key.
struct RowNumber {
  const char* name;
  TensorView RowStatistics::* view;
  bool key = false;    // i64, else as wide as q is computed
  bool links = false;  // [batch, heads, q_len, links], else [batch, heads, q_len]
  double blank = 0;

  DType dtype(DType wide) const { return key ? DType::I64 : wide; }
};

/// All that can be asked for; `chosen` is no result.
inline constexpr std::array kRowNumbers = {
    RowNumber{"max_score", &RowStatistics::max_score, false, false, -__builtin_inf()},
    RowNumber{"max_key", &RowStatistics::max_key, true, false, -1},
    RowNumber{"entropy", &RowStatistics::entropy},
    RowNumber{"distance", &RowStatistics::distance},
    RowNumber{"distance_variance", &RowStatistics::distance_variance},
    RowNumber{"first_weight", &RowStatistics::first_weight},
    RowNumber{"chosen_weight", &RowStatistics::chosen_weight},
    RowNumber{"link_weights", &RowStatistics::link_weights, false, true},
    RowNumber{"link_keys", &RowStatistics::link_keys, true, true, -1},
};
static_assert(sizeof(RowStatistics) == kRowNumbers.size() * sizeof(TensorView) + sizeof(ConstTensorView), "a result is missing");

}  // namespace mha::attention
