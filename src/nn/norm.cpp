// Layer normalisation and the residual sum, row by row, in plain C++ at the baseline ISA: small beside the matrix products around them.
// Statistics are sums in double, in one fixed order.
#include "nn/norm.h"

#include <array>
#include <cmath>

#include "core/arena.h"
#include "core/check.h"
#include "nn/matrix_view.h"

namespace mha::nn {
namespace {

// Sums run in this many parallel lanes, added up in one fixed order: the compiler may use vectors, and the result never depends on it.
constexpr Index kSums = 8;

template <class Term>
double sum_over(Index width, Term term) {
  std::array<double, kSums> sums{};
  Index d = 0;
  for (; d + kSums <= width; d += kSums) {
    for (Index i = 0; i < kSums; ++i) sums[static_cast<std::size_t>(i)] += term(d + i);
  }
  double total = 0;
  for (; d < width; ++d) total += term(d);
  for (const double sum : sums) total += sum;
  return total;
}

template <class T>
struct NormJob {
  MatrixView x, y;
  const double* gamma;
  const double* beta;
  double eps;

  void row(Index b, Index r) const {
    const T* in = x.row<const T>(b, r);
    T* out = y.row<T>(b, r);
    const auto at = [&](Index d) { return static_cast<double>(in[d * x.step]); };
    const double count = static_cast<double>(x.width);
    const double mean = sum_over(x.width, at) / count;
    const double variance = sum_over(x.width, [&](Index d) { return (at(d) - mean) * (at(d) - mean); }) / count;
    const double factor = 1 / std::sqrt(variance + eps);
    for (Index d = 0; d < x.width; ++d) out[d * y.step] = static_cast<T>((at(d) - mean) * factor * gamma[d] + beta[d]);
  }
};

template <class T>
void norm_rows(const NormJob<T>& job, Workspace& workspace) {
  for_each_row(job.x, 8.0 * static_cast<double>(job.x.width), workspace.executor(), [&](Index b, Index r) { job.row(b, r); });
}

template <class T>
void add_rows(const MatrixView& x, const MatrixView& y, Workspace& workspace) {
  for_each_row(x, 4.0 * static_cast<double>(x.width), workspace.executor(), [&](Index b, Index r) {
    const T* in = x.row<const T>(b, r);
    T* out = y.row<T>(b, r);
    for (Index d = 0; d < x.width; ++d) out[d * y.step] += in[d * x.step];
  });
}

void check_parameter(const ConstTensorView& parameter, Index width, const char* what) {
  MHA_CHECK(ShapeError, static_cast<bool>(parameter), "layer_norm: ", what, " is absent");
  MHA_CHECK(ShapeError, parameter.rank() == 1 && parameter.size(0) == width, "layer_norm: ", what, " has shape ",
            to_string(parameter.shape), ", x has width ", width);
}

}  // namespace

void layer_norm(ConstTensorView x, ConstTensorView gamma, ConstTensorView beta, double eps, TensorView y, Workspace& workspace) {
  const MatrixView in = matrix_view(x, "layer_norm: x");
  const MatrixView out = matrix_view(y, "layer_norm: y");
  check_float(x, "layer_norm: x");
  MHA_CHECK(DTypeError, x.dtype == y.dtype, "layer_norm: y is ", name_of(y.dtype), ", x is ", name_of(x.dtype));
  MHA_CHECK(ShapeError, x.shape == y.shape, "layer_norm: y has shape ", to_string(y.shape), ", x has ", to_string(x.shape));
  MHA_CHECK(ShapeError, eps >= 0, "layer_norm: eps is ", eps, ", must be at least 0");
  check_parameter(gamma, in.width, "gamma");
  check_parameter(beta, in.width, "beta");
  if (element_count(x.shape) == 0) return;
  const ArenaScope scope(workspace.caller_arena());
  double* parameters = workspace.caller_arena().take<double>(2 * in.width);
  copy(gamma, TensorView(parameters, {in.width}));
  copy(beta, TensorView(parameters + in.width, {in.width}));
  if (x.dtype == DType::F32) {
    norm_rows(NormJob<float>{in, out, parameters, parameters + in.width, eps}, workspace);
  } else {
    norm_rows(NormJob<double>{in, out, parameters, parameters + in.width, eps}, workspace);
  }
}

void add_into(ConstTensorView x, TensorView y, Workspace& workspace) {
  const MatrixView in = matrix_view(x, "add_into: x");
  const MatrixView out = matrix_view(y, "add_into: y");
  check_float(x, "add_into: x");
  MHA_CHECK(DTypeError, x.dtype == y.dtype, "add_into: y is ", name_of(y.dtype), ", x is ", name_of(x.dtype));
  MHA_CHECK(ShapeError, x.shape == y.shape, "add_into: y has shape ", to_string(y.shape), ", x has ", to_string(x.shape));
  if (element_count(x.shape) == 0) return;
  if (x.dtype == DType::F32) {
    add_rows<float>(in, out, workspace);
  } else {
    add_rows<double>(in, out, workspace);
  }
}

}  // namespace mha::nn
