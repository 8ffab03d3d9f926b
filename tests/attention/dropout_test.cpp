// Dropout: a pure function of (seed, batch, head, query, key), the right fraction, survivors scaled, weights before it, and its order.
#include "attention/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "support/executors.h"
#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

using attention::dropout_factor;

TEST(DropoutFactorTest, IsZeroOrOneOverOneMinusP) {
  for (const float p : {0.1F, 0.5F, 0.9F}) {
    for (Index key = 0; key < 100; ++key) {
      const float factor = dropout_factor({p, 3}, 1, 2, 3, key);
      EXPECT_TRUE(factor == 0 ||
                  std::abs(static_cast<double>(factor) - 1 / (1 - static_cast<double>(p))) <= 1e-7 / (1 - static_cast<double>(p)));
    }
  }
}

TEST(DropoutFactorTest, ZeroKeepsAllAndOneDropsAll) {
  for (Index key = 0; key < 1000; ++key) {
    EXPECT_EQ(dropout_factor({0.0F, 3}, 0, 0, 0, key), 1.0F);
    EXPECT_EQ(dropout_factor({1.0F, 3}, 0, 0, 0, key), 0.0F);
  }
}

/// Kept fraction within 5 standard deviations of the binomial, for rows along each of the four numbers and over seeds.
TEST(DropoutFactorTest, KeepsTheRightFractionAlongEveryAxis) {
  constexpr Index kDraws = 20'000;
  for (const double p : {0.1, 0.5, 0.8}) {
    const double deviation = std::sqrt(static_cast<double>(kDraws) * p * (1 - p));
    for (int axis = 0; axis < 5; ++axis) {
      double kept = 0;
      for (Index i = 0; i < kDraws; ++i) {
        Index at[5] = {1, 2, 3, 4, 5};
        at[axis] = i;
        kept += dropout_factor({static_cast<float>(p), static_cast<std::uint64_t>(at[4])}, at[0], at[1], at[2], at[3]) > 0 ? 1 : 0;
      }
      EXPECT_NEAR(kept, static_cast<double>(kDraws) * (1 - p), 5 * deviation) << "p " << p << " axis " << axis;
    }
  }
}

/// Every one of the four numbers and the seed matters: patterns of 64 keys differ, and neighbours are uncorrelated.
TEST(DropoutFactorTest, EveryCoordinateMatters) {
  const auto pattern = [](std::uint64_t seed, Index b, Index h, Index q, Index first) {
    std::uint64_t bits = 0;
    for (Index k = 0; k < 64; ++k) bits = bits << 1 | (dropout_factor({0.5F, seed}, b, h, q, first + k) > 0 ? 1U : 0U);
    return bits;
  };
  std::set<std::uint64_t> patterns;
  int count = 0;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (Index b = 0; b < 3; ++b) {
      for (Index h = 0; h < 3; ++h) {
        for (Index q = 0; q < 3; ++q) {
          patterns.insert(pattern(seed, b, h, q, 0));
          patterns.insert(pattern(seed, b, h, q, Index{1} << 33));
          count += 2;
        }
      }
    }
  }
  EXPECT_EQ(patterns.size(), static_cast<std::size_t>(count));
  int agree = 0;
  for (Index k = 0; k < 10'000; ++k)
    agree += (dropout_factor({0.5F, 1}, 0, 0, 0, k) > 0) == (dropout_factor({0.5F, 1}, 0, 0, 0, k + 1) > 0) ? 1 : 0;
  EXPECT_NEAR(agree, 5000, 5 * std::sqrt(10'000 * 0.25));
}

class DropoutTest : public IsaTest {
 protected:
  static Problem problem(float probability) {
    return {.q_len = 37, .kv_len = 37, .group = 2, .head_dim = 16, .value_dim = 16, .mask = causal(), .dropout = {probability, 123}};
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, DropoutTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(DropoutTest, WeightsAndLseAreThoseWithoutDropout) {
  const Results with = run(Instance(problem(0.4F)));
  const Results without = run(Instance(problem(0.0F)));
  EXPECT_TRUE(bitwise_equal(with.weights(), without.weights()));
  EXPECT_TRUE(bitwise_equal(with.lse(), without.lse()));
  EXPECT_FALSE(bitwise_equal(with.out(), without.out()));
}

TEST_P(DropoutTest, OutIsWeightsTimesFactorTimesV) {
  const Problem p = problem(0.4F);
  const Instance instance(p);
  const Results got = run(instance);
  for_each_position(got.out().shape, [&](Index b, Index q, Index h, Index d) {
    double sum = 0;
    double magnitude = 0;
    for (Index k = 0; k < p.kv_len; ++k) {
      const double product = element(got.weights(), b, h, q, k) * static_cast<double>(dropout_factor(p.dropout, b, h, q, k)) *
                             element(instance.inputs().v, b, k, h / p.group, d);
      sum += product;
      magnitude += std::abs(product);
    }
    EXPECT_LE(std::abs(element(got.out(), b, q, h, d) - sum), 2 * dot_tolerance(p.kv_len + 8) * magnitude);
  });
}

TEST_P(DropoutTest, AllDroppedGivesExactlyZero) {
  const Results got = run(Instance(problem(1.0F)));
  for (const double value : elements(got.out())) EXPECT_EQ(value, 0);
}

TEST_P(DropoutTest, AnotherSeedDropsOthers) {
  Problem other = problem(0.4F);
  other.dropout.seed = 124;
  EXPECT_FALSE(bitwise_equal(run(Instance(problem(0.4F))).out(), run(Instance(other)).out()));
}

}  // namespace
}  // namespace mha::test
