// NaN, infinities, -FLT_MAX and empty rows, in whole and in partial tiles: what is hidden changes nothing, what is visible is never hidden.
#include <gtest/gtest.h>

#include <algorithm>
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
  std::vector<Problem> list(9, base);
  list[0].mask = causal();
  list[1].mask = causal() & window(40, 0, 3);
  list[2].mask = chunk(130);
  list[3].mask = window(6, 0, 2) & window(20, 3, 5);
  list[4].allowed = {true, {.heads = true}, 0.6};
  list[5].bias = {BiasData::Content::SomeHidden, {}, DType::F32};
  list[6].kv_lengths = {211};
  list[7].mask = causal();
  list[7].softcap = 3.0F;
  list[7].first_sink = 0.5F;
  list[8].mask = causal() & window(90);
  list[8].bias = {BiasData::Content::Alibi, {}, DType::F32};
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

struct Poison {
  double k, v;
};

/// Puts each poison into each of the keys: rows that do not see the key say, bit for bit, what they said before; of those that see it, a
/// NaN in v takes every element.
void expect_only_seen(const Problem& p, const std::vector<Index>& keys, const std::vector<Poison>& poisons) {
  const Instance clean(p);
  const Results expected = run(clean);
  const Results truth = oracle(clean);  // which pairs are visible: weight > 0, since scores are small
  for (const Index key : keys) {
    for (const Poison& poisoned_by : poisons) {
      Instance poisoned(p);
      poison(poisoned, key, poisoned_by.k, poisoned_by.v);
      const Results got = run(poisoned);
      for (Index h = 0; h < p.heads(); ++h) {
        for (Index q = 0; q < p.q_len; ++q) {
          const bool sees = element(truth.weights(), 0, h, q, key) > 0;
          const ConstTensorView row = got.out().slice(2, h, h + 1).slice(1, q, q + 1);
          if (!sees) {
            ASSERT_TRUE(bitwise_equal(row, expected.out().slice(2, h, h + 1).slice(1, q, q + 1)))
                << p << " key " << key << " holds " << poisoned_by.k << " and " << poisoned_by.v << ", query " << q;
            ASSERT_EQ(element(got.lse(), 0, h, q), element(expected.lse(), 0, h, q)) << p;
            ASSERT_EQ(element(got.weights(), 0, h, q, key), 0) << p;
          } else if (std::isnan(poisoned_by.v)) {
            for (Index d = 0; d < 5; ++d) ASSERT_TRUE(std::isnan(element(row, 0, 0, 0, d))) << p << " key " << key << " query " << q;
          }
        }
      }
    }
  }
}

TEST_P(SpecialValuesTest, WhatIsHiddenChangesNothingAndWhatIsVisibleIsNotHidden) {
  for (const Problem& p : hiding_problems()) {
    expect_only_seen(p, {0, 4, 127, 128, 133, p.kv_len - 1}, {{kNaN, kNaN}, {kInf, -kInf}, {1e38, 1e38}, {0.0, kNaN}});
  }
}

/// The other storages, and what is finite but extreme: in bf16 and f16 a tile is converted first, and f16 turns 1e38 into infinity.
TEST_P(SpecialValuesTest, InEveryDtypeToo) {
  const double denormal = static_cast<double>(FLT_MIN) / 16;
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F16, DType::F64}) {
    for (Problem p : hiding_problems()) {
      p.dtype = dtype;
      p.q_len = 33;
      p.kv_len = 140;
      p.align = Align::BottomRight;
      if (!p.kv_lengths.empty()) p.kv_lengths = {131};
      expect_only_seen(p, {1, 127, 130, 139},
                       {{-kNaN, kNaN},
                        {-kInf, kInf},
                        {-1e38, 1e38},
                        {static_cast<double>(FLT_MAX), -static_cast<double>(FLT_MAX)},
                        {denormal, -denormal},
                        {-0.0, -0.0}});
    }
  }
}

/// Weights recomputed from lse: a hidden key weighs exactly 0 whatever it holds, and rows that do not see it keep their bits.
TEST_P(SpecialValuesTest, RecomputedWeightsOfWhatIsHidden) {
  const auto table_of = [](Instance& instance, const Results& whole) {
    Tensor table(DType::F32, {instance.problem().q_len, instance.problem().kv_len});
    Workspace workspace(serial_executor());
    AttentionInputs inputs = instance.inputs();
    inputs.v = {};
    attention_weights(instance.spec(), inputs, whole.lse(), {.head = 1, .queries = {0, table.size(0)}, .keys = {0, table.size(1)}}, table,
                      workspace);
    return table;
  };
  for (Problem p : hiding_problems()) {
    p.q_len = std::min<Index>(p.q_len, 140);
    p.kv_len = p.q_len;
    if (!p.kv_lengths.empty()) p.kv_lengths = {131};
    Instance clean(p);
    const Results truth = run(clean);
    const Tensor expected = table_of(clean, truth);
    for (const Index key : {4, 127, 130, 139}) {
      for (const double culprit : {kNaN, kInf, -kInf}) {
        Instance poisoned(p);
        poison(poisoned, key, culprit, 0);
        const Tensor got = table_of(poisoned, run(poisoned));
        for (Index q = 0; q < p.q_len; ++q) {
          if (element(truth.weights(), 0, 1, q, key) > 0) continue;
          ASSERT_TRUE(bitwise_equal(got.view().slice(0, q, q + 1), expected.view().slice(0, q, q + 1)))
              << p << " key " << key << " query " << q;
          ASSERT_EQ(element(got.view(), q, key), 0) << p;
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

/// -0, denormals and the smallest normal numbers in visible places are numbers like others; what lies below FLT_MIN may become 0.
TEST_P(SpecialValuesTest, TinyNumbersInVisiblePlaces) {
  const double tiny[] = {-0.0, static_cast<double>(FLT_MIN), -static_cast<double>(FLT_MIN) / 64, std::ldexp(1.0, -149)};
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F64}) {
    for (const Mask& mask : {Mask{}, causal(), window(20, 3)}) {
      for (const double number : tiny) {
        Instance instance({.batch = 1, .q_len = 150, .kv_len = 150, .head_dim = 5, .value_dim = 5, .dtype = dtype, .mask = mask});
        for (const Index key : {0, 64, 127, 128, 149}) poison(instance, key, number, number);
        const Results expected = oracle(instance);
        const Results got = run(instance);
        const double relative = element_tolerance(5, 150, 8, dtype);
        for_each_position(got.out().shape, [&](Index b, Index q, Index h, Index d) {
          // Values are standard normal: the largest of 150 stays below 6.
          ASSERT_NEAR(element(got.out(), b, q, h, d), element(expected.out(), b, q, h, d), 6 * relative + static_cast<double>(FLT_MIN));
        });
        fill(instance.v(), number);
        for (const double value : elements(run(instance).out())) {
          ASSERT_NEAR(value, number, relative * std::abs(number) + static_cast<double>(FLT_MIN)) << name_of(dtype);
        }
      }
    }
  }
}

/// Biases of the largest numbers: +FLT_MAX takes all of a row's weight, in equal parts; a causal row of nothing but -FLT_MAX is uniform.
TEST_P(SpecialValuesTest, BiasOfPlusAndMinusFltMaxUnderAMask) {
  const auto largest = static_cast<double>(FLT_MAX);
  for (const Mask& mask : {Mask{}, causal()}) {
    Problem p = {.batch = 1, .q_len = 140, .kv_len = 140, .mask = mask, .bias = {BiasData::Content::Finite, {.heads = true}, DType::F32}};
    Instance instance(p);
    fill(instance.bias(), -largest);
    for (Index q = 70; q < 140; ++q) {
      for (const Index key : {2, 65}) set_element(instance.bias(), 0, 0, q, key, largest);
    }
    const Results got = run(instance);
    for_each_position(got.weights().shape, [&](Index b, Index h, Index q, Index k) {
      const bool sees = mask.empty() || k <= q;
      const double seen = mask.empty() ? 140 : static_cast<double>(q + 1);
      const double exact = q >= 70 ? (k == 2 || k == 65 ? 0.5 : 0) : sees ? 1 / seen : 0;
      ASSERT_NEAR(element(got.weights(), b, h, q, k), exact, dot_tolerance(140) * exact) << "query " << q << " key " << k;
    });
  }
}

/// The output is summed before it is divided by the denominator (docs/numerics.md): values up to FLT_MAX / kv_len are always safe.
TEST_P(SpecialValuesTest, LargeValuesAreAveragedUpToFltMaxByTheNumberOfKeys) {
  Instance instance({.batch = 1, .q_len = 20, .kv_len = 140, .head_dim = 4, .value_dim = 5});
  const double largest = static_cast<double>(FLT_MAX) / 140 * (1 - dot_tolerance(2 * 140));
  fill(instance.v(), largest);
  for (const double value : elements(run(instance).out())) EXPECT_NEAR(value, largest, element_tolerance(4, 140, 8, DType::F32) * largest);
}

/// Beyond that the sum overflows where the exact average would not: to infinity, and to NaN where a larger score comes a tile later and
/// scales what has overflowed by 0. The reference (all of f64) divides first. Pins what is, so that a change of it shows.
TEST_P(SpecialValuesTest, LargerVisibleValuesOverflowTheSum) {
  const bool divides_first = current_isa() == "reference";
  const auto largest = static_cast<double>(FLT_MAX);
  for (const DType dtype : {DType::F32, DType::F64}) {
    Instance instance({.batch = 1, .q_len = 1, .kv_len = 140, .head_dim = 1, .value_dim = 5, .dtype = dtype});
    fill(instance.q(), 1);
    fill(instance.k(), 0);
    fill(instance.v(), largest);
    const bool exact = divides_first || dtype == DType::F64;
    for (const double value : elements(run(instance).out())) {
      if (exact) {
        EXPECT_NEAR(value, largest, element_tolerance(1, 140, 1, dtype) * largest);
      } else {
        EXPECT_EQ(value, kInf);
      }
    }
    fill(instance.k().slice(1, 139, 140), 1000);
    fill(instance.v().slice(1, 139, 140), 3);
    for (const double value : elements(run(instance).out())) {
      if (exact) {
        EXPECT_NEAR(value, 3, 3 * element_tolerance(1, 140, 1000, dtype));
      } else {
        EXPECT_TRUE(std::isnan(value)) << "0 times infinity: " << value;
      }
    }
  }
}

}  // namespace
}  // namespace mha::test
