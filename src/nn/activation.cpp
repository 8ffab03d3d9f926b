// Activations in plain C++ at the baseline ISA, computed in double and rounded once. The exact GELU of f32 goes through a table of Taylor
// series, since erfc is several times slower.
#include "nn/activation.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "nn/matrix_view.h"

namespace mha::nn {
namespace {

/// Phi(x) = (1 + erf(x / sqrt 2)) / 2, through erfc so that the lower tail keeps its digits.
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

/// Phi on [-kEdge, kEdge] by Taylor series about the middles of equal cells: several times faster than erfc. The series ends with h^7,
/// |h| <= kCell / 2 = 1/16: the rest is below 2e-8 of Phi at the lower edge and below 1e-11 of it above -3; f32 rounds at 6e-8.
class NormalCdfTable {
 public:
  static constexpr double kEdge = 6.0;
  static constexpr double kCell = 0.125;
  static constexpr std::size_t kCells = static_cast<std::size_t>(2 * kEdge / kCell);
  static constexpr std::size_t kTerms = 8;

  NormalCdfTable() {
    for (std::size_t cell = 0; cell < kCells; ++cell) {
      const double c = middle(cell);
      std::array<double, kTerms>& t = cells_[cell];
      t[0] = normal_cdf(c);
      t[1] = std::exp(-0.5 * c * c) / std::sqrt(2 * std::numbers::pi);
      // With D_n the n-th derivative: D_1' = -x D_1 gives D_{n+2} = -x D_{n+1} - n D_n; t[n] = D_n / n!.
      for (std::size_t n = 0; n + 3 <= kTerms; ++n) {
        const double order = static_cast<double>(n);
        const double before = n == 0 ? 0 : order * t[n] / (order + 1);
        t[n + 2] = -(c * t[n + 1] + before) / (order + 2);
      }
    }
  }

  /// |x| < kEdge.
  double operator()(double x) const {
    const auto cell = static_cast<std::size_t>((x + kEdge) * (1 / kCell));
    const double h = x - middle(cell);
    const std::array<double, kTerms>& t = cells_[cell];
    const double h2 = h * h;
    const double low = (t[0] + t[1] * h) + (t[2] + t[3] * h) * h2;
    const double high = (t[4] + t[5] * h) + (t[6] + t[7] * h) * h2;
    return low + high * (h2 * h2);
  }

 private:
  static double middle(std::size_t cell) { return (static_cast<double>(cell) + 0.5) * kCell - kEdge; }
  std::array<std::array<double, kTerms>, kCells> cells_{};
};

double gelu(double x) {
  if (x < -40) return x < -std::numeric_limits<double>::max() ? 0.0 : x * normal_cdf(x);  // -inf * 0 would be NaN; the limit is 0
  return x * normal_cdf(x);
}

float gelu(float x, const NormalCdfTable& table) {
  const double wide = static_cast<double>(x);
  if (std::abs(wide) < NormalCdfTable::kEdge) return static_cast<float>(wide * table(wide));
  return static_cast<float>(gelu(wide));
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
  static const NormalCdfTable table;
  apply<float>(x, 30, [](float v) { return gelu(v, table); }, workspace);
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
