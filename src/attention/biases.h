// Position biases as rows of floats: whatever its kind, a bias reaches the kernels as one contiguous f32 row per lane.
#pragma once

#include "attention/panel.h"

namespace mha::attention {

/// rows[lane]: what is added to the scores of one vector's rows for keys [keys.lo, keys.hi). Points into the bias itself where it can be
/// read in place, else into `scratch` (plan.row_scratch floats). Only for problems that are biased.
void find_bias_rows(const TaskContext& context, const Panel& panel, int vector, Interval keys, float* scratch, const float** rows);

}  // namespace mha::attention
