// The runs behind the public functions of mha/attention.h; arguments have been validated. See attention.cpp.
#pragma once

#include "attention/lower.h"
#include "attention/panel.h"

namespace mha::attention {

void run_forward(const Problem& problem, const kernels::KernelTable& kernels, Workspace& workspace);

/// Weights of the rows [queries.lo, queries.hi) of a problem of one batch entry and one head, from problem.lse.
void run_weights(const Problem& problem, const WeightsRegion& region, const WeightsTarget& target, const kernels::KernelTable& kernels,
                 Workspace& workspace);

}  // namespace mha::attention
