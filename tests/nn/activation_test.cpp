// Activations against their definitions in long double.
#include "nn/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "mha/error.h"
#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

using nn::Activation;

/// -20 to 20 densely, and special values.
Tensor grid(DType dtype) {
  Tensor x(dtype, {401, 100});
  for_each_position(x.shape(), [&](Index i, Index j, Index, Index) {
    set_element(x, i, j, 0, 0, static_cast<double>(i - 200) * 0.1 + static_cast<double>(j) * 0.001003);
  });
  const double special[] = {0.0, -0.0, 6.0, -6.0, 1e30, -1e30, 1e-30, -13.0, -14.2, -37.0, -45.0, std::numeric_limits<float>::min()};
  Index j = 0;
  for (const double value : special) set_element(x, 0, j++, 0, 0, value);
  return x;
}

long double gelu(long double x) { return 0.5L * x * std::erfc(-x / std::numbers::sqrt2_v<long double>); }
long double gelu_tanh(long double x) {
  const long double u = std::sqrt(2 / std::numbers::pi_v<long double>) * (x + 0.044715L * x * x * x);
  return x / (1 + std::exp(-2 * u));  // = x / 2 * (1 + tanh u)
}

/// One rounding of the result, and `own` more of the computation's dtype.
void expect_activated(Activation activation, DType dtype, long double (*definition)(long double), double own) {
  Workspace workspace;
  const Tensor x = grid(dtype);
  Tensor y = x.clone();
  nn::activate(activation, y, workspace);
  for_each_position(x.shape(), [&](Index i, Index j, Index, Index) {
    const double at = element(x, i, j);
    const auto expected = static_cast<double>(definition(at));
    const double tolerance = unit_roundoff(dtype) * (1 + own) * std::abs(expected) + 2 * subnormal_roundoff(dtype);
    ASSERT_LE(std::abs(element(y, i, j) - expected), tolerance) << "x = " << at;
  });
}

class ActivationTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, ActivationTest, testing::ValuesIn(kernel_isas()), isa_name);

/// The tail's polynomial and products are off by some roundings, exp by those of its argument x^2 / 2 and its own; below FLT_MIN the tail
/// may be 0. Rows of any length and step give the same bits.
TEST_P(ActivationTest, GeluOfF32) {
  Workspace workspace;
  const Tensor x = grid(DType::F32);
  Tensor y = x.clone();
  nn::activate(Activation::Gelu, y, workspace);
  for_each_position(x.shape(), [&](Index i, Index j, Index, Index) {
    const double at = element(x, i, j);
    const auto expected = static_cast<double>(gelu(at));
    const double tail = std::min(std::abs(expected), std::abs(expected - at));  // |x| Phi(-|x|)
    const double tolerance = unit_roundoff(DType::F32) * (std::abs(expected) + (16 + 1.5 * at * at) * tail);
    ASSERT_LE(std::abs(element(y, i, j) - expected), tolerance + 20 * static_cast<double>(std::numeric_limits<float>::min()))
        << "x = " << at;
  });
  for (const Index width : {1, 7, 16, 33}) {
    Tensor part(DType::F32, {1, width});
    copy(x.view().slice(0, 200, 201).slice(1, 0, width), part);
    nn::activate(Activation::Gelu, part, workspace);
    EXPECT_TRUE(bitwise_equal(part.view(), y.view().slice(0, 200, 201).slice(1, 0, width))) << width;
  }
  Tensor strided(DType::F32, {100, 2});
  const TensorView column(strided.data<float>(), DType::F32, {1, 100}, {200, 2});
  copy(x.view().slice(0, 250, 251), column);
  nn::activate(Activation::Gelu, column, workspace);
  EXPECT_TRUE(bitwise_equal(column, y.view().slice(0, 250, 251)));
}

TEST(Activation, GeluIsExact) {
  // erfc of a rounded argument: its relative condition is about x * x
  expect_activated(Activation::Gelu, DType::F64, gelu, 1600);
}

TEST(Activation, GeluTanh) {
  expect_activated(Activation::GeluTanh, DType::F32, gelu_tanh, 0.5);
  expect_activated(Activation::GeluTanh, DType::F64, gelu_tanh, 1e5);
}

TEST(Activation, ReluAndSpecialValues) {
  Workspace workspace;
  const float inf = std::numeric_limits<float>::infinity();
  for (const Activation activation : {Activation::Gelu, Activation::GeluTanh, Activation::Relu}) {
    float values[] = {-inf, inf, std::nanf(""), 0.0F, -1000.0F, 1000.0F};
    nn::activate(activation, TensorView(values, {6}), workspace);
    EXPECT_EQ(values[0], 0.0F);
    EXPECT_EQ(values[1], inf);
    EXPECT_TRUE(std::isnan(values[2]));
    EXPECT_EQ(values[3], 0.0F);
    EXPECT_EQ(values[4], 0.0F);
    EXPECT_EQ(values[5], 1000.0F);
  }
  float values[] = {-1.5F, 2.5F};
  nn::activate(Activation::Relu, TensorView(values, {2}), workspace);
  EXPECT_EQ(values[0], 0.0F);
  EXPECT_EQ(values[1], 2.5F);
}

TEST(Activation, Names) {
  EXPECT_EQ(nn::activation_named("gelu"), Activation::Gelu);
  EXPECT_EQ(nn::activation_named("gelu_new"), Activation::GeluTanh);
  EXPECT_EQ(nn::activation_named("gelu_pytorch_tanh"), Activation::GeluTanh);
  EXPECT_EQ(nn::activation_named("relu"), Activation::Relu);
  EXPECT_EQ(nn::activation_named("swish"), std::nullopt);
}

TEST(Activation, Errors) {
  Workspace workspace;
  Tensor halves(DType::F16, {3, 4});
  EXPECT_THROW(nn::activate(Activation::Relu, halves, workspace), DTypeError);
  EXPECT_THROW(nn::activate(Activation::Relu, {}, workspace), ShapeError);
}

}  // namespace
}  // namespace mha::test
