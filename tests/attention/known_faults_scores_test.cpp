// Faults that other implementations had with what changes scores: softcap, ALiBi, sink logits. One test per line of the project's list of
// known faults, named after it.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/known_faults.h"
#include "mha/error.h"

namespace mha::test {
namespace {

class KnownFaultsScores : public KnownFaults {};
INSTANTIATE_TEST_SUITE_P(Isa, KnownFaultsScores, testing::ValuesIn(all_isas()), isa_name);

double rounding(double value) { return 16 * unit_roundoff(DType::F32) * std::max(1.0, std::abs(value)); }

TEST_P(KnownFaultsScores, A50_SinkTakesItsShare) {
  const Tensor zeros(DType::F32, {1, 4, 2, 8});
  const Tensor ones = filled_tensor(DType::F32, {1, 4, 2, 8}, 1);
  const Said said = forward({.sink_logits = {1.0F, -2.0F}}, {.q = zeros, .k = zeros, .v = ones});
  for (const auto& [head, sink] : {std::pair{0, 1.0}, std::pair{1, -2.0}}) {
    const double share = 4 / (4 + std::exp(sink));  // 0.59539 for sink 1
    EXPECT_NEAR(element(said.out.view(), 0, 3, head, 5), share, rounding(1));
    EXPECT_NEAR(element(said.weights.view(), 0, head, 2, 1), share / 4, rounding(1));
    EXPECT_NEAR(element(said.lse.view(), 0, head, 0), std::log(4 + std::exp(sink)), rounding(2));
  }
}

TEST_P(KnownFaultsScores, A51_SinkWithATileNobodySees) {
  Tensor q = filled_tensor(DType::F32, {1, 700, 1, 1}, 1);
  Tensor k = filled_tensor(DType::F32, {1, 700, 1, 1}, -1e5);
  const Tensor v = filled_tensor(DType::F32, {1, 700, 1, 1}, 3);
  const Said said = forward({.mask = window(2), .scale = 1.0F, .sink_logits = {2.0F}}, {.q = q, .k = k, .v = v});
  EXPECT_TRUE(all_zero(said.out.view()));  // the sink holds all the weight, and no row overflows
  EXPECT_TRUE(all_zero(said.weights.view()));
  EXPECT_NEAR(element(said.lse.view(), 0, 0, 699), 2, rounding(2));
}

/// A row that sees nothing gives zeros; its denominator is the sink alone.
TEST_P(KnownFaultsScores, A22_A50_EmptyRowWithASink) {
  const Tensor x = normal_tensor(DType::F32, {1, 3, 1, 4}, 1);
  const Tensor allowed = bools({1, 1, 3, 3}, {1, 1, 1, 0, 0, 0, 1, 0, 0});
  const Said said = forward({.sink_logits = {0.25F}}, {.q = x, .k = x, .v = x, .allowed = allowed});
  EXPECT_TRUE(all_zero(out_rows(said, 1, 2)));
  EXPECT_TRUE(all_zero(said.weights.view().slice(2, 1, 2)));
  EXPECT_NEAR(element(said.lse.view(), 0, 0, 1), 0.25, rounding(1));
}

TEST(AlibiSlopes, A52_HeadsThatAreNoPowerOfTwo) {
  const std::vector<float> six = {.25F, .0625F, .015625F, .00390625F, .5F, .125F};
  EXPECT_EQ(alibi_slopes(6), six);
  const std::vector<float> twelve = alibi_slopes(12);
  const std::vector<double> expected = {.5,       .25,       .125,      .0625,     .03125,   .015625,
                                        .0078125, .00390625, .70710678, .35355339, .1767767, .08838835};
  ASSERT_EQ(twelve.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(static_cast<double>(twelve[i]), expected[i], unit_roundoff(DType::F32) * expected[i] + 5e-9) << i;  // nine digits
  EXPECT_EQ(alibi_slopes(1), std::vector<float>{1.0F / 256});
  EXPECT_THROW(alibi_slopes(0), ShapeError);
}

/// Decoding with a cache: the last rows alone give what they give within the whole, since positions are absolute.
TEST_P(KnownFaultsScores, A53_AlibiOverAbsolutePositions) {
  const Tensor q = normal_tensor(DType::F32, {2, 20, 6, 8}, 1);
  const Tensor k = normal_tensor(DType::F32, {2, 20, 3, 8}, 2);
  const Tensor v = normal_tensor(DType::F32, {2, 20, 3, 8}, 3);
  const AttentionSpec spec = {.mask = causal(), .align = Align::BottomRight, .bias = AlibiBias{alibi_slopes(6)}};
  const Said whole = forward(spec, {.q = q, .k = k, .v = v});
  for (const Index rows : {1, 8}) {
    const Said last = forward(spec, {.q = q.view().slice(1, 20 - rows, 20), .k = k, .v = v});
    EXPECT_TRUE(bitwise_equal(last.out.view(), out_rows(whole, 20 - rows, 20))) << rows;
  }
}

/// ALiBi is what its formula says as a dense bias, for groups wider and narrower than a vector, and beyond one tile of keys.
TEST_P(KnownFaultsScores, A53_AlibiEqualsItsDenseForm) {
  for (const Index group : {1, 3, 20}) {
    const Tensor q = normal_tensor(DType::F32, {1, 37, 2 * group, 8}, 1);
    const Tensor k = normal_tensor(DType::F32, {1, 300, 2, 8}, 2);
    const AlibiBias alibi{alibi_slopes(2 * group)};
    Tensor dense(DType::F32, {1, 2 * group, 37, 300});
    for_each_position(dense.shape(), [&](Index b, Index h, Index i, Index j) {
      set_element(dense.view(), b, h, i, j, static_cast<double>(alibi.at(h, j - (i + 263))));
    });
    const AttentionInputs in = {.q = q, .k = k, .v = k};
    const Said by_rule = forward({.align = Align::BottomRight, .bias = alibi}, in);
    const Said written = forward({.bias = DenseBias{dense}}, in);
    EXPECT_LE(relative_error(by_rule.out.view(), written.out.view()), forward_tolerance(DType::F32)) << group;
    // The kernels add the very same floats; the reference multiplies slope and distance in double.
    if (GetParam() != "reference") {
      EXPECT_TRUE(same_said(by_rule, written)) << group;
    }
  }
}

TEST_P(KnownFaultsScores, A61_SoftcapComesBeforeMaskAndBias) {
  const Tensor q = filled_tensor(DType::F32, {1, 1, 1, 1}, 1);
  const Tensor k = tensor_of(DType::F32, {1, 2, 1, 1}, {5, 5});
  const Tensor v = tensor_of(DType::F32, {1, 2, 1, 1}, {1, 100});
  const Tensor allowed = bools({1, 1, 1, 2}, {1, 0});
  const AttentionSpec capped = {.scale = 1.0F, .softcap = 1.0F};
  const Said masked = forward(capped, {.q = q, .k = k, .v = v, .allowed = allowed});
  EXPECT_EQ(element(masked.weights.view(), 0, 0, 0, 1), 0);  // 0.2689 where the cap is taken last
  EXPECT_NEAR(element(masked.out.view(), 0, 0, 0, 0), 1, rounding(1));
  const Tensor bias = tensor_of(DType::F32, {1, 1, 1, 2}, {0, 7});
  const Said biased = forward({.bias = DenseBias{bias}, .scale = 1.0F, .softcap = 1.0F}, {.q = q, .k = k, .v = v});
  EXPECT_NEAR(element(biased.weights.view(), 0, 0, 0, 0), 1 / (1 + std::exp(7.0)), rounding(1));  // the bias is not capped
}

TEST_P(KnownFaultsScores, A61_SoftcapOfExtremeScores) {
  const Tensor q = filled_tensor(DType::F32, {1, 1, 1, 1}, 1);
  const Tensor k = tensor_of(DType::F32, {1, 3, 1, 1}, {kInfinity, 1e30, -kInfinity});
  const Tensor v = tensor_of(DType::F32, {1, 3, 1, 1}, {1, 2, 4});
  const Said said = forward({.scale = 1.0F, .softcap = 2.0F}, {.q = q, .k = k, .v = v});
  const double sum = 2 + std::exp(-4.0);
  EXPECT_NEAR(element(said.out.view(), 0, 0, 0, 0), (1 + 2 + 4 * std::exp(-4.0)) / sum, rounding(4));
}

}  // namespace
}  // namespace mha::test
