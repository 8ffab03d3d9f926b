// The keys and values that follow those of the input: a learned one, then one of zeros (torch's add_bias_kv and add_zero_attn). Called by
// both forms of the layer; checks nothing, which layer_checks has done.
#pragma once

#include "mha/layer.h"

namespace mha::nn {

/// [appended keys, width] in `dtype`: `learned` [width] where the config has it, then zeros where the config has them.
Tensor appended_rows(const MhaConfig& config, const ConstTensorView& learned, Index width, DType dtype);

/// Copies `appended` [n, width] to the last n rows of every batch entry of `rows` [batch, length, width].
void put_last(const Tensor& appended, const TensorView& rows);

}  // namespace mha::nn
