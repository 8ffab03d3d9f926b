// NaN, infinities, -FLT_MAX and empty rows, in whole and in partial tiles: what is hidden changes nothing, what is visible is never hidden.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class SpecialValuesTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, SpecialValuesTest, testing::ValuesIn(all_isas()), isa_name);

/// Problems over two and a half key tiles, each hiding keys in its own way.
std::vector<Problem> hiding_problems() {
  const Problem base = {.batch = 1, .q_len = 300, .kv_len = 300, .kv_heads = 1, .group = 2, .head_dim = 5, .value_dim = 5};
  std::vector<Problem> list(7, base);
  list[0].mask = causal();
  list[1].mask = causal() & window(40, 0, 3);
  list[2].mask = chunk(130);
  list[3].mask = window(6, 0, 2) & window(20, 3, 5);
  list[4].allowed = {true, {.heads = true}, 0.6};
  list[5].bias = {BiasData::Content::SomeHidden, {}, DType::F32};
  list[6].kv_lengths = {211};
  if (current_isa() == "reference") {
    for (Problem& p : list) p.q_len = p.kv_len = 140;
    list[6].kv_lengths = {131};
  }
  return list;
}

void poison(Instance& instance, Index key, double k_value, double v_value) {
  for (Index d = 0; d < 5; ++d) {
    set_element(instance.k(), 0, key, 0, d, k_value);
    set_element(instance.v(), 0, key, 0, d, v_value);
  }
}

TEST_P(SpecialValuesTest, WhatIsHiddenChangesNothingAndWhatIsVisibleIsNotHidden) {
  for (const Problem& p : hiding_problems()) {
    const Instance clean(p);
    const Results expected = run(clean);
    const Results truth = oracle(clean);  // which pairs are visible: weight > 0, since scores are small
    for (const Index key : {Index{0}, Index{4}, Index{127}, Index{128}, Index{133}, p.kv_len - 1}) {
      for (const auto& [k_value, v_value] : {std::pair{kNaN, kNaN}, {kInf, -kInf}, {1e38, 1e38}, {0.0, kNaN}}) {
        Instance poisoned(p);
        poison(poisoned, key, k_value, v_value);
        const Results got = run(poisoned);
        for (Index h = 0; h < p.heads(); ++h) {
          for (Index q = 0; q < p.q_len; ++q) {
            const bool sees = element(truth.weights(), 0, h, q, key) > 0;
            const ConstTensorView row = got.out().slice(2, h, h + 1).slice(1, q, q + 1);
            if (!sees) {
              ASSERT_TRUE(bitwise_equal(row, expected.out().slice(2, h, h + 1).slice(1, q, q + 1)))
                  << p << " key " << key << " holds " << k_value << " and " << v_value << ", query " << q;
              ASSERT_EQ(element(got.lse(), 0, h, q), element(expected.lse(), 0, h, q)) << p;
              ASSERT_EQ(element(got.weights(), 0, h, q, key), 0) << p;
            } else if (std::isnan(v_value)) {
              for (Index d = 0; d < 5; ++d) ASSERT_TRUE(std::isnan(element(row, 0, 0, 0, d))) << p << " key " << key << " query " << q;
            }
          }
        }
      }
    }
  }
}

TEST_P(SpecialValuesTest, NaNInAQueryPoisonsItsOwnRowOnly) {
  for (const Problem& p : hiding_problems()) {
    Instance instance(p);
    const Results clean = run(instance);
    set_element(instance.q(), 0, 70, 1, 3, kNaN);
    const Results got = run(instance);
    for (Index h = 0; h < p.heads(); ++h) {
      for (Index q = 0; q < p.q_len; ++q) {
        for (Index d = 0; d < p.value_dim; ++d) {
          const double out = element(got.out(), 0, q, h, d);
          if (h == 1 && q == 70) {
            ASSERT_TRUE(std::isnan(out)) << p;
          } else {
            ASSERT_EQ(out, element(clean.out(), 0, q, h, d)) << p << " query " << q << " head " << h;
          }
        }
      }
    }
    EXPECT_TRUE(std::isnan(element(got.lse(), 0, 1, 70))) << p;
    for (Index k = 0; k < p.kv_len; ++k) {
      const double weight = element(got.weights(), 0, 1, 70, k);
      ASSERT_TRUE(std::isnan(weight) || element(clean.weights(), 0, 1, 70, k) == 0)
          << "a visible weight of a NaN row is NaN: key " << k << " is " << weight;
    }
  }
}

TEST_P(SpecialValuesTest, NaNInOneColumnOfVStaysInItsColumn) {
  const Problem p = {.batch = 1, .q_len = 40, .kv_len = 40, .mask = causal()};
  Instance instance(p);
  const Results clean = run(instance);
  set_element(instance.v(), 0, 20, 1, 3, kNaN);
  const Results got = run(instance);
  for_each_position(got.out().shape, [&](Index b, Index q, Index h, Index d) {
    const double out = element(got.out(), b, q, h, d);
    if (h == 1 && d == 3 && q >= 20) {
      ASSERT_TRUE(std::isnan(out)) << q;
    } else {
      ASSERT_EQ(out, element(clean.out(), b, q, h, d)) << q << " " << h << " " << d;
    }
  });
}

TEST_P(SpecialValuesTest, RowsOfMinusInfinityAreEmpty) {
  Problem p = {.batch = 2, .q_len = 37, .kv_len = 150, .group = 2, .bias = {BiasData::Content::Finite, {.heads = true}, DType::F32}};
  Instance instance(p);
  for (Index k = 0; k < p.kv_len; ++k) set_element(instance.bias(), 1, 0, 17, k, -kInf);
  for (Index k = 0; k < 140; ++k) set_element(instance.bias(), 0, 0, 5, k, -kInf);  // a whole tile and a part of the next
  const Results got = run(instance);
  EXPECT_EQ(mismatch(instance, got), "");
  for (Index h = 0; h < p.heads(); ++h) {
    EXPECT_EQ(element(got.lse(), 1, h, 17), -kInf);
    for (Index d = 0; d < p.value_dim; ++d) EXPECT_EQ(element(got.out(), 1, 17, h, d), 0);
    for (Index k = 0; k < p.kv_len; ++k) EXPECT_EQ(element(got.weights(), 1, h, 17, k), 0);
  }
}

TEST_P(SpecialValuesTest, RowsOfMinusFltMaxAreUniform) {
  Problem p = {.batch = 1, .q_len = 9, .kv_len = 150, .bias = {BiasData::Content::Finite, {}, DType::F32}};
  Instance instance(p);
  fill(instance.bias(), -static_cast<double>(FLT_MAX));
  const Results got = run(instance);
  for_each_position(got.weights().shape, [&](Index b, Index h, Index q, Index k) {
    ASSERT_NEAR(element(got.weights(), b, h, q, k), 1.0 / 150, dot_tolerance(150) / 150);
  });
  for_each_position(got.out().shape, [&](Index b, Index q, Index h, Index d) {
    double mean = 0;
    for (Index k = 0; k < p.kv_len; ++k) mean += element(instance.inputs().v, b, k, h, d) / 150;
    ASSERT_NEAR(element(got.out(), b, q, h, d), mean, dot_tolerance(2 * 150));
  });
}

TEST_P(SpecialValuesTest, MinusFltMaxBesideAnythingFiniteWeighsExactlyNothing) {
  Problem p = {.batch = 1, .q_len = 9, .kv_len = 150, .bias = {BiasData::Content::Finite, {}, DType::F32}};
  Instance instance(p);
  for (Index q = 0; q < p.q_len; ++q) {
    for (Index k = 0; k < p.kv_len; k += 2) {
      for (Index h = 0; h < p.heads(); ++h) set_element(instance.bias(), 0, h, q, k, k % 4 == 0 ? -static_cast<double>(FLT_MAX) : -1e30);
    }
  }
  const Results got = run(instance);
  EXPECT_EQ(mismatch(instance, got), "");
  for (Index k = 0; k < p.kv_len; k += 2) EXPECT_EQ(element(got.weights(), 0, 1, 3, k), 0);
}

TEST_P(SpecialValuesTest, InfiniteLogitsFollowSoftmax) {
  const Problem p = {.batch = 1, .q_len = 20, .kv_len = 140, .head_dim = 4, .value_dim = 4};
  for (const Index key : {0, 130}) {
    Instance instance(p);
    fill(instance.q(), 1);
    for (Index d = 0; d < 4; ++d) set_element(instance.k(), 0, key, 0, d, kInf);   // kv head 0: every row of head 0 has one +inf
    for (Index d = 0; d < 4; ++d) set_element(instance.k(), 0, key, 1, d, -kInf);  // kv head 1: one -inf
    const Results got = run(instance);
    for (Index q = 0; q < p.q_len; ++q) {
      for (Index d = 0; d < 4; ++d) {
        EXPECT_TRUE(std::isnan(element(got.out(), 0, q, 0, d))) << "inf - inf";
        EXPECT_TRUE(std::isfinite(element(got.out(), 0, q, 1, d))) << "a weight of 0";
      }
      EXPECT_TRUE(std::isnan(element(got.weights(), 0, 0, q, key)));
      EXPECT_EQ(element(got.weights(), 0, 1, q, key), 0);
    }
  }
}

TEST_P(SpecialValuesTest, NoWeightIsDenormal) {
  Problem p = {.batch = 1, .q_len = 17, .kv_len = 200, .bias = {BiasData::Content::Finite, {}, DType::F32}};
  Instance instance(p);
  fill(instance.q(), 0);
  for_each_position(instance.bias().shape,
                    [&](Index b, Index h, Index q, Index k) { set_element(instance.bias(), b, h, q, k, -0.6 * static_cast<double>(k)); });
  const Results got = run(instance);
  EXPECT_EQ(mismatch(instance, got), "");
  for (const double weight : elements(got.weights())) EXPECT_TRUE(weight == 0 || weight >= static_cast<double>(FLT_MIN)) << weight;
  EXPECT_GT(element(got.weights(), 0, 0, 0, 140), 0);
  EXPECT_EQ(element(got.weights(), 0, 0, 0, 150), 0);
}

TEST_P(SpecialValuesTest, LargeLogitsStayFinite) {
  for (const DType dtype : {DType::F32, DType::F16, DType::Bf16}) {
    const Problem p = {.batch = 1, .q_len = 9, .kv_len = 33, .head_dim = 16, .value_dim = 8, .dtype = dtype};
    Instance instance(p);
    for_each_position(instance.q().shape, [&](Index b, Index q, Index h, Index d) { set_element(instance.q(), b, q, h, d, 1000); });
    for_each_position(instance.k().shape,
                      [&](Index b, Index k, Index h, Index d) { set_element(instance.k(), b, k, h, d, k == 20 ? 200 : -200); });
    const Results got = run(instance);  // logits of +-800,000
    for_each_position(got.out().shape, [&](Index b, Index q, Index h, Index d) {
      const double value = element(instance.inputs().v, b, 20, h, d);
      EXPECT_LE(std::abs(element(got.out(), b, q, h, d) - value), 4 * unit_roundoff(DType::F32) * std::abs(value)) << name_of(dtype);
    });
  }
}

}  // namespace
}  // namespace mha::test
