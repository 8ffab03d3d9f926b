// Sums over a table of weights that need its final denominators: q and k are gone through once more with the lse of a former call, tile by
// tile; the table itself is never held. Behind attention_received and attention_map, whose arguments have been validated.
#pragma once

#include "attention/one_head.h"

namespace mha::attention {

void run_received(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, TensorView received,
                  const kernels::KernelTable& kernels, Workspace& workspace);

void run_map(const OneHead& head, const WeightsRegion& region, const WeightsMap& map, const kernels::KernelTable& kernels,
             Workspace& workspace);

}  // namespace mha::attention
