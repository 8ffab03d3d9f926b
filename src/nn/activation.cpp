// Activations, element by element. The exact GELU of f32 is a leaf; the others are plain C++, computed in double and rounded once.
#include "nn/activation.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "kernels/table.h"
#include "nn/matrix_view.h"

namespace mha::nn {
namespace {

/// Phi(x) = (1 + erf(x / sqrt 2)) / 2, through erfc so that the lower tail keeps its digits.
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double gelu(double x) {
  if (x < -40) return x < -std::numeric_limits<double>::max() ? 0.0 : x * normal_cdf(x);  // -inf * 0 would be NaN; the limit is 0
  return x * normal_cdf(x);
}

/// x / 2 * (1 + tanh(u)) written as x / (1 + exp(-2 u)), which keeps its digits for negative x.
template <class T>
T gelu_tanh(T value) {
  const double x = static_cast<double>(value);
  if (x < -30) return T{0};
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return static_cast<T>(x / (1 + std::exp(-2 * u)));
}

template <class T>
T relu(T x) {
  return x < 0 ? T{0} : x;  // this way round a NaN stays
}

template <class T, class F>
void apply(const MatrixView& x, double flops, F f, Workspace& workspace) {
  for_each_row(x, flops * static_cast<double>(x.width), workspace.executor(), [&](Index b, Index r) {
    T* row = x.row<T>(b, r);
    for (Index d = 0; d < x.width; ++d) row[d * x.step] = f(row[d * x.step]);
  });
}

void gelu_rows(const MatrixView& x, Workspace& workspace, float) {
  const kernels::KernelTable& kernels = kernels::current_or_scalar();
  for_each_row(x, 30 * static_cast<double>(x.width), workspace.executor(), [&](Index b, Index r) {
    float* row = x.row<float>(b, r);
    if (x.step == 1) {
      kernels.gelu(row, x.width);
      return;
    }
    for (Index d = 0; d < x.width; ++d) kernels.gelu(row + d * x.step, 1);
  });
}
void gelu_rows(const MatrixView& x, Workspace& workspace, double) {
  apply<double>(x, 200, [](double v) { return gelu(v); }, workspace);
}

template <class T>
void activate_as(Activation activation, const MatrixView& x, Workspace& workspace) {
  switch (activation) {
    case Activation::Gelu:
      return gelu_rows(x, workspace, T{});
    case Activation::GeluTanh:
      return apply<T>(x, 200, [](T v) { return gelu_tanh(v); }, workspace);
    case Activation::Relu:
      return apply<T>(x, 4, [](T v) { return relu(v); }, workspace);
  }
}

}  // namespace

std::optional<Activation> activation_named(std::string_view name) {
  if (name == "gelu") return Activation::Gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::GeluTanh;
  if (name == "relu") return Activation::Relu;
  return std::nullopt;
}

void activate(Activation activation, TensorView x, Workspace& workspace) {
  const MatrixView matrix = matrix_view(x, "activate: x");
  check_float(x, "activate: x");
  if (element_count(x.shape) == 0) return;
  if (x.dtype == DType::F32) {
    activate_as<float>(activation, matrix, workspace);
  } else {
    activate_as<double>(activation, matrix, workspace);
  }
}

}  // namespace mha::nn
