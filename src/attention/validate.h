// First step of every call: does spec agree with the tensors? Pure; throws or does nothing.
#pragma once

#include "mha/attention.h"

namespace mha::attention {

/// Throws ShapeError or DTypeError, naming the argument and the numbers, where arguments contradict each other.
void validate(const AttentionSpec& spec, const AttentionInputs& inputs, const AttentionOutputs& outputs);

/// The same for attention_weights.
void validate_weights(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, const WeightsRegion& region,
                      const TensorView& weights);
/// For attention_received and attention_map.
void validate_received(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, const TensorView& received);
void validate_map(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, const WeightsRegion& region,
                  const WeightsMap& map);

/// Keys of batch entry b that exist, and the key position of query row 0 (Align).
Index kv_len_of(const AttentionInputs& inputs, Index b);
Index offset_of(const AttentionSpec& spec, const AttentionInputs& inputs, Index b);

}  // namespace mha::attention
