// One text read many times, each time with something else changed in its heads: copies of it in one batch, since batch mates change no bit.
// Called by ablation.cpp and patching.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "mha/model/transformer.h"

namespace mha::analysis {

/// What a variant does to one layer's heads: `heads`, [1, pieces, heads, head_dim], may be written.
using ChangeHeads = std::function<void(std::size_t variant, Index layer, TensorView heads)>;
/// Is given the last layer's hidden states, [1, pieces, d_model], valid until it returns.
using VisitVariant = std::function<void(std::size_t variant, ConstTensorView hidden)>;

/// Variants are visited in order, each after its run. Throws what Transformer::forward throws.
void run_variants(const Transformer& model, std::span<const Index> ids, std::size_t count, const ChangeHeads& change,
                  const VisitVariant& visit, Workspace& workspace);

}  // namespace mha::analysis
