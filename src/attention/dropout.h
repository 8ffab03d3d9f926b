// Dropout as a pure function of where a weight stands: no state, no order of evaluation, the same forward, backward and on any threads.
#pragma once

#include "mha/attention.h"

namespace mha::attention {

/// What the weight of (batch, head, query, key) is multiplied by: 0, or 1 / (1 - probability). The random bits are word key % 4 of
/// Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") at counter (key / 4, query, head, batch), key = seed.
float dropout_factor(const Dropout& dropout, Index batch, Index head, Index query, Index key);

}  // namespace mha::attention
