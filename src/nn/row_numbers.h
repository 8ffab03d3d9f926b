// The results of RowStatistics as a list, for code that treats them alike. Called by both forms of the layer and by src/model; what the
// numbers mean is in mha/statistics.h.
#pragma once

#include <array>

#include "mha/statistics.h"

namespace mha::nn {

/// All that can be asked for; `chosen` is no result.
inline constexpr std::array kRowNumbers = {&RowStatistics::max_score,    &RowStatistics::max_key,           &RowStatistics::entropy,
                                           &RowStatistics::distance,     &RowStatistics::distance_variance, &RowStatistics::first_weight,
                                           &RowStatistics::chosen_weight};
static_assert(sizeof(RowStatistics) == kRowNumbers.size() * sizeof(TensorView) + sizeof(ConstTensorView), "a result is missing");

}  // namespace mha::nn
