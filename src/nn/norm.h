// Row-wise pieces of a transformer block: layer normalisation and the residual sum. Called by src/model. Each row is computed by itself, so
// results do not depend on threads or batch mates.
#pragma once

#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha::nn {

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta over the last axis (Ba et al. 2016), statistics and arithmetic in double.
/// x, y: [rows, width] or [batch, rows, width], f32 or f64, any strides; gamma, beta: [width], any floating dtype. y may be x itself.
/// Throws ShapeError or DTypeError before y is touched.
void layer_norm(ConstTensorView x, ConstTensorView gamma, ConstTensorView beta, double eps, TensorView y, Workspace& workspace);

/// y += x, element by element; equal shapes of rank 1 to 3, both f32 or both f64. Throws ShapeError or DTypeError before y is touched.
void add_into(ConstTensorView x, TensorView y, Workspace& workspace);

}  // namespace mha::nn
