// A tensor of rank 1 to 3 seen as batch x rows x width, for the row-wise loops of this room (linear, norm, activation). Pure arithmetic on
// views: allocates and computes nothing.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/check.h"
#include "core/executor.h"
#include "mha/tensor.h"

namespace mha::nn {

/// Row r of batch entry b begins at element b * batch_stride + r * row_stride of `data`; within a row elements are `step` apart.
struct MatrixView {
  void* data = nullptr;
  Index batch = 1;
  Index rows = 1;
  Index width = 0;
  Index batch_stride = 0;
  Index row_stride = 0;
  Index step = 1;

  template <class T>
  T* row(Index b, Index r) const {
    return static_cast<T*>(data) + b * batch_stride + r * row_stride;
  }
  /// Whether all rows lie one row_stride apart, so that batch and rows are one axis.
  bool collapsible() const { return batch == 1 || rows == 1 || batch_stride == rows * row_stride; }
  /// Batch and rows as one axis; only where collapsible.
  MatrixView collapsed() const {
    MatrixView one = *this;
    one.rows = batch * rows;
    one.row_stride = rows == 1 ? batch_stride : row_stride;
    one.batch = 1;
    one.batch_stride = 0;
    return one;
  }
};

/// The view as a matrix; throws ShapeError for rank 0 or 4. `what` names it in the message, as in "layer_norm: x".
inline MatrixView matrix_view(const TensorView& view, const char* what) {
  const int rank = view.rank();
  MHA_CHECK(ShapeError, view.data != nullptr, what, " is absent");
  MHA_CHECK(ShapeError, rank >= 1 && rank <= 3, what, " has shape ", to_string(view.shape), ", rank 1 to 3 is wanted");
  MatrixView matrix{.data = view.data, .width = view.size(rank - 1), .step = view.stride(rank - 1)};
  if (rank >= 2) {
    matrix.rows = view.size(rank - 2);
    matrix.row_stride = view.stride(rank - 2);
  }
  if (rank == 3) {
    matrix.batch = view.size(0);
    matrix.batch_stride = view.stride(0);
  }
  if (matrix.width <= 1) matrix.step = 1;
  return matrix;
}

/// A view that will only be read.
inline MatrixView matrix_view(const ConstTensorView& view, const char* what) {
  return matrix_view(TensorView(const_cast<void*>(view.data), view.dtype, view.shape, view.strides), what);
}

inline void check_float(const ConstTensorView& view, const char* what) {
  MHA_CHECK(DTypeError, view.dtype == DType::F32 || view.dtype == DType::F64, what, " is ", name_of(view.dtype), ", f32 or f64 is wanted");
}

/// Calls body(b, r) for every row, spread over threads where `flops_per_row` makes it worth it. `body` must not throw.
template <class Body>
void for_each_row(const MatrixView& shape, double flops_per_row, const Executor& executor, Body&& body) {
  const Index rows = shape.batch * shape.rows;
  const Index block = std::max<Index>(1, static_cast<Index>(1e5 / std::max(flops_per_row, 1.0)));
  const Index tasks = (rows + block - 1) / block;
  const int workers = core::workers_for(executor, tasks, flops_per_row * static_cast<double>(rows));
  core::run_tasks(executor, workers, tasks, [&](int, Index task) {
    for (Index i = task * block; i < std::min(rows, (task + 1) * block); ++i) body(i / shape.rows, i % shape.rows);
  });
}

}  // namespace mha::nn
