// Layer normalisation and the residual sum.
#include "nn/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mha/error.h"
#include "support/executors.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

struct NormCase {
  explicit NormCase(Index rows, Index width, double mean = 0)
      : x(DType::F32, {rows, width}), gamma(DType::F32, {width}), beta(DType::F32, {width}) {
    fill_normal(x, 1);
    fill_normal(gamma, 2);
    fill_normal(beta, 3);
    for (Index i = 0; i < rows * width; ++i) x.data<float>()[i] += static_cast<float>(mean);
  }
  Tensor x, gamma, beta;
};

/// In long double, from the definition. One rounding of the result, and one of gamma * normed where beta cancels it.
void expect_normed(const ConstTensorView& x, const Tensor& gamma, const Tensor& beta, double eps, const ConstTensorView& y) {
  const Index width = x.size(1);
  for (Index r = 0; r < x.size(0); ++r) {
    long double mean = 0;
    long double variance = 0;
    for (Index d = 0; d < width; ++d) mean += static_cast<long double>(element(x, r, d)) / static_cast<long double>(width);
    for (Index d = 0; d < width; ++d) {
      const long double off = static_cast<long double>(element(x, r, d)) - mean;
      variance += off * off / static_cast<long double>(width);
    }
    for (Index d = 0; d < width; ++d) {
      const auto normed =
          static_cast<double>((static_cast<long double>(element(x, r, d)) - mean) / std::sqrt(variance + static_cast<long double>(eps)));
      const double scaled = normed * element(gamma, d);
      const double expected = scaled + element(beta, d);
      const double tolerance = unit_roundoff(y.dtype) * (std::abs(expected) + 1e-6 * std::abs(scaled)) + 1e-12;
      ASSERT_NEAR(element(y, r, d), expected, tolerance) << "row " << r << ", " << d;
    }
  }
}

TEST(LayerNorm, MatchesItsDefinition) {
  Workspace workspace;
  for (const Index width : {1, 2, 7, 8, 9, 384, 1000}) {
    NormCase c(5, width);
    Tensor y(DType::F32, {5, width});
    nn::layer_norm(c.x, c.gamma, c.beta, 1e-12, y, workspace);
    if (width > 1) expect_normed(c.x, c.gamma, c.beta, 1e-12, y);
    nn::layer_norm(c.x, c.gamma, c.beta, 1e-3, y, workspace);
    expect_normed(c.x, c.gamma, c.beta, 1e-3, y);
  }
}

// A mean 1e4 times the spread: sums in f32 would lose all of it.
TEST(LayerNorm, LargeMean) {
  Workspace workspace;
  NormCase c(3, 384, 1e4);
  Tensor y(DType::F32, {3, 384});
  nn::layer_norm(c.x, c.gamma, c.beta, 1e-12, y, workspace);
  expect_normed(c.x, c.gamma, c.beta, 1e-12, y);
}

TEST(LayerNorm, InPlaceStridedAndF64) {
  Workspace workspace;
  NormCase c(6, 50);
  Tensor wide(DType::F32, {6, 120});
  fill(wide, kMark);
  const TensorView strided(wide.data<float>() + 1, DType::F32, {6, 50}, {120, 2});
  copy(c.x, strided);
  nn::layer_norm(strided, c.gamma, c.beta, 1e-5, strided, workspace);
  expect_normed(c.x, c.gamma, c.beta, 1e-5, strided);
  for (Index i = 0; i < 120; i += 2) EXPECT_EQ(element(wide, 3, i), kMark);
  Tensor wide_x(DType::F64, {6, 50});
  copy(c.x, wide_x);
  Tensor y(DType::F64, {6, 50});
  nn::layer_norm(wide_x, c.gamma, c.beta, 1e-5, y, workspace);
  expect_normed(c.x, c.gamma, c.beta, 1e-5, y);
}

TEST(LayerNorm, SameBitsForAnyThreadsAndRowMates) {
  NormCase c(700, 384);
  Workspace serial(serial_executor());
  Tensor expected(DType::F32, {700, 384});
  nn::layer_norm(c.x, c.gamma, c.beta, 1e-12, expected, serial);
  Workspace backward(backward_executor(7));
  Tensor y(DType::F32, {7, 100, 384});
  nn::layer_norm(c.x.view().reshape({7, 100, 384}), c.gamma, c.beta, 1e-12, y, backward);
  EXPECT_TRUE(bitwise_equal(y.view().reshape({700, 384}), expected));
  Tensor alone(DType::F32, {1, 384});
  nn::layer_norm(c.x.view().slice(0, 333, 334), c.gamma, c.beta, 1e-12, alone, serial);
  EXPECT_TRUE(bitwise_equal(alone, expected.view().slice(0, 333, 334)));
}

TEST(LayerNorm, Errors) {
  Workspace workspace;
  NormCase c(3, 8);
  Tensor y(DType::F32, {3, 8});
  const Tensor short_gamma(DType::F32, {7});
  try {
    nn::layer_norm(c.x, short_gamma, c.beta, 1e-5, y, workspace);
    ADD_FAILURE();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "layer_norm: gamma has shape [7], x has width 8");
  }
  EXPECT_THROW(nn::layer_norm(c.x, c.gamma, {}, 1e-5, y, workspace), ShapeError);
  EXPECT_THROW(nn::layer_norm(c.x, c.gamma, c.beta, -1, y, workspace), ShapeError);
  Tensor other(DType::F64, {3, 8});
  EXPECT_THROW(nn::layer_norm(c.x, c.gamma, c.beta, 1e-5, other, workspace), DTypeError);
  EXPECT_THROW(nn::layer_norm(c.x, c.gamma, c.beta, 1e-5, y.view().slice(0, 0, 2), workspace), ShapeError);
}

TEST(AddInto, AddsAnyLayout) {
  Workspace workspace;
  NormCase c(4, 30);
  Tensor memory(DType::F32, {30, 4});
  fill_normal(memory, 9);
  const TensorView y = memory.view().transpose(0, 1);
  Tensor before(DType::F32, {4, 30});
  copy(y, before);
  nn::add_into(c.x, y, workspace);
  for_each_position(y.shape, [&](Index r, Index d, Index, Index) {
    EXPECT_EQ(element(y, r, d), static_cast<double>(static_cast<float>(element(before, r, d) + element(c.x, r, d))));
  });
  EXPECT_THROW(nn::add_into(c.x, y.slice(1, 0, 29), workspace), ShapeError);
}

}  // namespace
}  // namespace mha::test
