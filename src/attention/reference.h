// Attention in double, as semantics.md states it: the oracle of every other path, the way f64 tensors are computed, and all of
// attention under MHA_ISA=reference. Called by attention.cpp and by the tests, after validate(); knows no tiles, leaves or intervals.
#pragma once

#include "mha/attention.h"

namespace mha::attention {

/// attention_forward in double. Assumes validate() has passed; any dtype, so an output may be wider than q (the tests ask for f64).
void reference_forward(const AttentionSpec& spec, const AttentionInputs& inputs, const AttentionOutputs& outputs, Workspace& workspace);

/// attention_weights in double: the rectangle of the table, computed afresh and not from lse.
void reference_weights(const AttentionSpec& spec, const AttentionInputs& inputs, const WeightsRegion& region, TensorView weights,
                       Workspace& workspace);

/// attention_received and attention_map in double, likewise.
void reference_received(const AttentionSpec& spec, const AttentionInputs& inputs, TensorView received);
void reference_map(const AttentionSpec& spec, const AttentionInputs& inputs, const WeightsRegion& region, const WeightsMap& map);

}  // namespace mha::attention
