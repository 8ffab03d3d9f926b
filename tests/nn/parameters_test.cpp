// Xavier initialisation and the converters between the two forms' weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "layer_case.h"
#include "mha/error.h"
#include "support/gen.h"
#include "support/near.h"

namespace mha::test {
namespace {

const MhaConfig kSmall = {.d_model = 64, .heads = 4};

std::vector<const Tensor*> all_of(const MhaParameters& p) {
  return {&p.wq, &p.wk, &p.wv, &p.wo, &p.bq, &p.bk, &p.bv, &p.bo, &p.learned_k, &p.learned_v};
}

void expect_same(const MhaParameters& a, const MhaParameters& b) {
  for (std::size_t i = 0; i < all_of(a).size(); ++i) {
    const Tensor& x = *all_of(a)[i];
    const Tensor& y = *all_of(b)[i];
    ASSERT_EQ(static_cast<bool>(x), static_cast<bool>(y)) << i;
    EXPECT_TRUE(!x || bitwise_equal(x, y)) << i;
  }
}

/// U(-bound, bound): nothing outside, mean and variance within five standard errors.
void expect_uniform(const Tensor& weights, double bound) {
  const auto values = elements(weights);
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  double squares = 0;
  double largest = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_LE(largest, static_cast<double>(static_cast<float>(bound)));
  EXPECT_GE(largest, bound * (1 - 20 / count));  // the chance that no draw comes this near is e^-20
  const double variance = bound * bound / 3;
  EXPECT_LE(std::abs(sum / count), 5 * std::sqrt(variance / count));
  EXPECT_LE(std::abs(squares / count - variance), 5 * bound * bound * std::sqrt(4.0 / 45 / count));  // Var(x^2) = 4/45 a^4
}

TEST(Xavier, BoundsMeanAndVariance) {
  const MhaParameters p = xavier_parameters(kSmall, 1);
  // Three input projections of one shape are one matrix of 3 * 64 rows, as torch does.
  const double packed = std::sqrt(6.0 / (3 * 64 + 64));
  expect_uniform(p.wq, packed);
  expect_uniform(p.wk, packed);
  expect_uniform(p.wv, packed);
  expect_uniform(p.wo, std::sqrt(6.0 / (64 + 64)));
  for (const Tensor* bias : {&p.bq, &p.bk, &p.bv, &p.bo}) EXPECT_EQ(elements(*bias), std::vector<double>(64, 0));
}

TEST(Xavier, ShapesOfTheirOwn) {
  const MhaParameters p =
      xavier_parameters({.d_model = 48, .heads = 6, .kv_heads = 2, .head_dim = 10, .key_width = 30, .value_width = 20, .bias = false}, 1);
  EXPECT_EQ(p.wq.shape(), Dims({60, 48}));
  EXPECT_EQ(p.wk.shape(), Dims({20, 30}));
  EXPECT_EQ(p.wv.shape(), Dims({20, 20}));
  EXPECT_EQ(p.wo.shape(), Dims({48, 60}));
  EXPECT_FALSE(p.bq);
  EXPECT_FALSE(p.bo);
  expect_uniform(p.wq, std::sqrt(6.0 / (60 + 48)));
  expect_uniform(p.wk, std::sqrt(6.0 / (20 + 30)));
  expect_uniform(p.wv, std::sqrt(6.0 / (20 + 20)));
}

TEST(Xavier, LearnedKeysCountAsSquare) {
  const MhaParameters p = xavier_parameters({.d_model = 512, .heads = 8, .kv_heads = 4, .learned_key = true}, 1);
  EXPECT_EQ(p.learned_k.shape(), Dims({256}));
  expect_uniform(p.learned_k, std::sqrt(6.0 / (256 + 256)));
  expect_uniform(p.learned_v, std::sqrt(6.0 / (256 + 256)));
  EXPECT_FALSE(bitwise_equal(p.learned_k, p.learned_v));
  EXPECT_FALSE(xavier_parameters({.d_model = 512, .heads = 8, .zero_key = true}, 1).learned_k);
}

TEST(Xavier, SeedDecidesAll) {
  expect_same(xavier_parameters(kSmall, 7), xavier_parameters(kSmall, 7));
  const MhaParameters a = xavier_parameters(kSmall, 7);
  const MhaParameters b = xavier_parameters(kSmall, 8);
  EXPECT_FALSE(bitwise_equal(a.wq, b.wq));
  EXPECT_FALSE(bitwise_equal(a.wq, a.wk));
  // Independent draws: correlation within five standard errors.
  double product = 0;
  for (Index i = 0; i < 64 * 64; ++i) product += static_cast<double>(a.wq.data<float>()[i]) * static_cast<double>(b.wq.data<float>()[i]);
  const double variance = 6.0 / (3 * 64 + 64) / 3;
  EXPECT_LE(std::abs(product) / (64 * 64), 5 * variance / 64);
}

// The generator written a second time, in integers and one multiplication: the same weights on every platform.
TEST(Xavier, IsSplitmixByDefinition) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  };
  const MhaParameters p = xavier_parameters(kSmall, 42);
  std::uint64_t state = mix(mix(42) + 3);  // W_O is stream 3
  for (Index i = 0; i < 100; ++i) {
    state += 0x9E3779B97F4A7C15ULL;
    const double centred = std::ldexp(static_cast<double>(mix(state) >> 11), -52) - 1 + std::ldexp(1.0, -53);  // (-1, 1), exact
    EXPECT_NEAR(element(p.wo, i / 64, i % 64), centred * std::sqrt(6.0 / 128), unit_roundoff(DType::F32) * std::sqrt(6.0 / 128)) << i;
  }
}

TEST(Converters, RoundTripBitwise) {
  check("to_fused(to_naive(w)) == w", [] {
    LayerCase c = some_layer_case();
    c.weights = *rc::gen::element(DType::F32, DType::F64);
    const LayerInstance instance(c);
    const NaiveParameters naive = to_naive(instance.config(), instance.parameters().view());
    const MhaParameters fused = to_fused(instance.config(), naive);
    for (std::size_t i = 0; i < 10; ++i) {
      const Tensor& before = *all_of(instance.parameters())[i];
      const Tensor& after = *all_of(fused)[i];
      RC_ASSERT(static_cast<bool>(before) == static_cast<bool>(after));
      if (before) RC_ASSERT(bitwise_equal(before, after));
    }
  });
}

TEST(Converters, HeadsAreTheRowsOfTheFusedMatrices) {
  const MhaConfig config = {.d_model = 6, .heads = 4, .kv_heads = 2, .head_dim = 3, .key_width = 5};
  const MhaParameters p = xavier_parameters(config, 1);
  const NaiveParameters naive = to_naive(config, p.view());
  ASSERT_EQ(naive.heads.size(), 4U);
  for (Index h = 0; h < 4; ++h) {
    const NaiveHead& head = naive.heads[static_cast<std::size_t>(h)];
    EXPECT_EQ(head.wq.shape(), Dims({6, 3}));
    EXPECT_EQ(head.wk.shape(), Dims({5, 3}));
    for (Index d = 0; d < 3; ++d) {
      for (Index i = 0; i < 6; ++i) EXPECT_EQ(element(head.wq, i, d), element(p.wq, h * 3 + d, i));
      for (Index i = 0; i < 5; ++i) EXPECT_EQ(element(head.wk, i, d), element(p.wk, h / 2 * 3 + d, i));
    }
  }
  EXPECT_EQ(element(naive.wo, 7, 2), element(p.wo, 2, 7));
}

TEST(Converters, SixteenBitWeightsBecomeF32Exactly) {
  LayerCase c;
  c.weights = DType::Bf16;
  const LayerInstance instance(c);
  const MhaParameters fused = to_fused(instance.config(), to_naive(instance.config(), instance.parameters().view()));
  EXPECT_EQ(fused.wq.dtype(), DType::F32);
  EXPECT_EQ(elements(fused.wq), elements(instance.parameters().wq));
  EXPECT_EQ(elements(fused.bo), elements(instance.parameters().bo));
}

TEST(Converters, HeadsOfAGroupMustAgree) {
  const MhaConfig config = {.d_model = 8, .heads = 4, .kv_heads = 2};
  NaiveParameters naive = to_naive(config, xavier_parameters(config, 1).view());
  naive.heads[3].wv.data<float>()[0] += 1;
  try {
    to_fused(config, naive);
    ADD_FAILURE();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(
        error.what(),
        "layer: naive heads 2 and 3 share a kv head (heads 4, kv_heads 2) but differ in wk, wv, their biases or learned_k, learned_v");
  }
  EXPECT_THROW(NaiveMultiHeadAttention(config, std::move(naive)), ShapeError);
}

TEST(Converters, WrongNaiveShapes) {
  const MhaConfig config = {.d_model = 8, .heads = 4};
  const auto fresh = [&] { return to_naive(config, xavier_parameters(config, 1).view()); };
  NaiveParameters few = fresh();
  few.heads.pop_back();
  EXPECT_THROW(to_fused(config, few), ShapeError);
  NaiveParameters wrong = fresh();
  wrong.heads[1].wq = Tensor(DType::F32, {8, 3});
  EXPECT_THROW(to_fused(config, wrong), ShapeError);
  NaiveParameters no_bias = fresh();
  no_bias.heads[2].bk = {};
  EXPECT_THROW(to_fused(config, no_bias), ShapeError);
  NaiveParameters mixed = fresh();
  mixed.heads[0].wq = Tensor(DType::F64, {8, 2});
  EXPECT_THROW(to_fused(config, mixed), DTypeError);
  NaiveParameters no_output = fresh();
  no_output.wo = {};
  EXPECT_THROW(to_fused(config, no_output), ShapeError);
}

}  // namespace
}  // namespace mha::test
