// Statistics of rows: what is known of heads built to have it, long rows, special values, determinism, and what is refused. That they agree
// with the double reference on every case and on random problems is in forward_test.cpp and decode_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mha/error.h"
#include "support/errors.h"
#include "support/executors.h"
#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

constexpr Ask kStatistics = {.lse = false, .weights = false, .statistics = true};

class StatisticsTest : public IsaTest {
 protected:
  /// Whether the double reference would take too long.
  static bool slow() { return current_isa() == "reference"; }
};
INSTANTIATE_TEST_SUITE_P(Isa, StatisticsTest, testing::ValuesIn(all_isas()), isa_name);

double at(const ConstTensorView& view, Index q, Index h = 0) { return element(view, 0, h, q); }

/// One head of `length` tokens that gives key `seen(q)` a score of 60 and all others 0.
template <class Seen>
Instance pointing(const Problem& problem, Seen&& seen) {
  Instance instance(problem);
  fill(instance.q(), 0);
  fill(instance.k(), 0);
  for (Index key = 0; key < problem.kv_len; ++key) set_element(instance.k(), 0, key, 0, key, 1);
  for (Index q = 0; q < problem.q_len; ++q) set_element(instance.q(), 0, q, 0, seen(q), 60);
  return instance;
}

Problem one_head(Index length) {
  return {.batch = 1, .q_len = length, .kv_len = length, .kv_heads = 1, .head_dim = length, .value_dim = 3, .scale = 1.0F};
}

TEST_P(StatisticsTest, OfAUniformHead) {
  for (const Mask& mask : {Mask{}, causal()}) {
    Problem problem = {.batch = 1, .q_len = 301, .kv_len = 301, .kv_heads = 1, .mask = mask};
    Instance instance(problem);
    fill(instance.k(), 0);
    const Results got = run(instance, kStatistics);
    const RowStatistics& s = got.statistics();
    for (Index q = 0; q < problem.q_len; ++q) {
      const Index keys = mask.empty() ? problem.kv_len : q + 1;
      double mean = 0;
      double square = 0;
      for (Index key = 0; key < keys; ++key) {
        mean += static_cast<double>(std::abs(q - key)) / static_cast<double>(keys);
        square += static_cast<double>((q - key) * (q - key)) / static_cast<double>(keys);
      }
      const double few = static_cast<double>(keys + 8) * unit_roundoff(DType::F32);
      ASSERT_EQ(at(s.max_score, q), 0);
      ASSERT_EQ(at(s.max_key, q), 0) << "ties go to the first key";
      ASSERT_NEAR(at(s.entropy, q), std::log(static_cast<double>(keys)), few);
      ASSERT_NEAR(at(s.distance, q), mean, few * mean);
      ASSERT_NEAR(at(s.distance_variance, q), square - mean * mean, few * square);
      ASSERT_NEAR(at(s.first_weight, q), 1.0 / static_cast<double>(keys), few / static_cast<double>(keys));
    }
  }
}

TEST_P(StatisticsTest, OfHeadsThatPointAtOneKey) {
  const Problem problem = one_head(200);
  const auto previous = [](Index q) { return q == 0 ? 0 : q - 1; };
  const auto first = [](Index) { return Index{0}; };
  const auto mirrored = [](Index q) { return 199 - q; };
  const auto expect = [&](auto&& seen) {
    const Results got = run(pointing(problem, seen), kStatistics);
    const RowStatistics& s = got.statistics();
    for (Index q = 0; q < problem.q_len; ++q) {
      const auto distance = static_cast<double>(std::abs(q - seen(q)));
      ASSERT_EQ(at(s.max_score, q), 60);
      ASSERT_EQ(at(s.max_key, q), static_cast<double>(seen(q)));
      ASSERT_NEAR(at(s.entropy, q), 0, 1e-6);  // the others weigh exp(-60)
      ASSERT_NEAR(at(s.distance, q), distance, 1e-6 * (distance + 1));
      ASSERT_NEAR(at(s.distance_variance, q), 0, 4 * 128 * 128 * unit_roundoff(DType::F32)) << q;
      ASSERT_NEAR(at(s.first_weight, q), seen(q) == 0 ? 1 : 0, 1e-6);
      ASSERT_NEAR(at(s.chosen_weight, q), seen(q) % 3 == 1 ? 1 : 0, 1e-6);
    }
  };
  expect(previous);
  expect(first);
  expect(mirrored);
}

/// Far from the row the variance of the distance is a small number beside the square of a large one.
TEST_P(StatisticsTest, VarianceIsNotLostFarAway) {
  if (slow()) GTEST_SKIP() << "the reference would take minutes";
  const Index keys = 100'000;
  Instance instance({.batch = 1, .q_len = 3, .kv_len = keys, .kv_heads = 1, .head_dim = 1, .value_dim = 1, .align = Align::BottomRight});
  fill(instance.q(), 1);
  fill(instance.k(), -100);
  for (const Index key : {Index{100}, Index{103}}) set_element(instance.k(), 0, key, 0, 0, 0);
  const Results got = run(instance, kStatistics);
  for (Index q = 0; q < 3; ++q) {
    EXPECT_NEAR(at(got.statistics().distance, q), static_cast<double>(keys - 3 + q) - 101.5, 0.01);
    EXPECT_NEAR(at(got.statistics().distance_variance, q), 2.25, 1e-4);
    EXPECT_EQ(at(got.statistics().max_key, q), 100);
  }
}

/// Keys split over tasks, sums that are folded, groups, sinks, lengths and windows, all against the oracle.
TEST_P(StatisticsTest, OfLongRows) {
  if (slow()) GTEST_SKIP() << "it is what the others are compared with";
  const Problem few = {.batch = 1, .q_len = 2, .kv_len = 5000, .kv_heads = 2, .group = 2, .head_dim = 16, .align = Align::BottomRight};
  Problem sinks = few;
  sinks.first_sink = 2.0F;
  sinks.mask = window(3000, 0, 5);
  Problem folded = {.batch = 1, .q_len = 300, .kv_len = 4500, .kv_heads = 1, .head_dim = 8, .align = Align::TopLeft};
  folded.bias = {BiasData::Content::Alibi, {}, DType::F32};
  Problem lengths = few;
  lengths.batch = 3;
  lengths.kv_lengths = {0, 4097, 1};
  lengths.dtype = DType::Bf16;
  for (const Problem& problem : {few, sinks, folded, lengths}) {
    const Instance instance(problem);
    EXPECT_EQ(mismatch(instance, run(instance, {.statistics = true})), "") << problem;
  }
}

TEST_P(StatisticsTest, OfRowsThatSeeNothing) {
  Problem problem = {.batch = 1, .q_len = 20, .kv_len = 20, .mask = window(0) & prefix(0)};
  problem.align = Align::TopLeft;
  problem.kv_lengths = {7};  // rows from 7 on see nothing
  const Results got = run(Instance(problem), kStatistics);
  const RowStatistics& s = got.statistics();
  for (Index q = 7; q < 20; ++q) {
    EXPECT_EQ(at(s.max_score, q), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(at(s.max_key, q), -1);
    for (const TensorView& view : {s.entropy, s.distance, s.distance_variance, s.first_weight, s.chosen_weight}) EXPECT_EQ(at(view, q), 0);
  }
}

/// A NaN in a visible key is told; one in a hidden key changes no bit.
TEST_P(StatisticsTest, NaNIsToldWhereItIsSeen) {
  Problem problem = {.batch = 1, .q_len = 40, .kv_len = 40, .kv_heads = 1, .mask = causal()};
  Instance instance(problem);
  const Results clean = run(instance, kStatistics);
  set_element(instance.k(), 0, 30, 0, 2, std::numeric_limits<double>::quiet_NaN());
  const Results got = run(instance, kStatistics);
  const auto views = [](const RowStatistics& s) {
    return std::vector<ConstTensorView>{s.entropy, s.distance, s.distance_variance, s.chosen_weight, s.first_weight};
  };
  for (std::size_t i = 0; i < views(got.statistics()).size(); ++i) {
    for (Index q = 0; q < 40; ++q) {
      const double value = at(views(got.statistics())[i], q);
      if (q >= 30) {
        EXPECT_TRUE(std::isnan(value)) << i << " " << q;
      } else {
        EXPECT_EQ(value, at(views(clean.statistics())[i], q)) << i << " " << q;
      }
    }
  }
  for (Index q = 30; q < 40; ++q) EXPECT_NE(at(got.statistics().max_key, q), 30) << "a NaN is passed over";
}

TEST_P(StatisticsTest, BitsDoNotDependOnThreadsOrBatchMates) {
  Problem problem = {.batch = 3, .q_len = 90, .kv_len = 90, .group = 2, .head_dim = 16, .mask = causal(), .seed = 3};
  Problem decode = {.batch = 3, .q_len = 1, .kv_len = 3000, .group = 4, .head_dim = 16, .align = Align::BottomRight, .seed = 5};
  if (slow()) decode.kv_len = 100;
  for (const Problem& p : {problem, decode}) {
    const Instance together(p);
    const Results serial = run(together, kStatistics);
    ThreadExecutor threads(3);
    Workspace workspace(threads.executor());
    const Results threaded = run(together, workspace, kStatistics);
    const RowStatistics& a = serial.statistics();
    const RowStatistics& b = threaded.statistics();
    EXPECT_TRUE(bitwise_equal(a.max_score, b.max_score) && bitwise_equal(a.max_key, b.max_key) && bitwise_equal(a.entropy, b.entropy));
    EXPECT_TRUE(bitwise_equal(a.distance, b.distance) && bitwise_equal(a.distance_variance, b.distance_variance));
    EXPECT_TRUE(bitwise_equal(a.first_weight, b.first_weight) && bitwise_equal(a.chosen_weight, b.chosen_weight));
    EXPECT_TRUE(bitwise_equal(a.link_weights, b.link_weights) && bitwise_equal(a.link_keys, b.link_keys));
    AttentionInputs alone = together.inputs();
    alone.q = alone.q.slice(0, 1, 2);
    alone.k = alone.k.slice(0, 1, 2);
    alone.v = alone.v.slice(0, 1, 2);
    Tensor out(DType::F32, {1, p.q_len, p.heads(), p.value_dim});
    Tensor entropy(DType::F32, {1, p.heads(), p.q_len});
    Workspace own(serial_executor());
    Tensor weights(DType::F32, {1, p.heads(), p.q_len, a.link_weights.size(3)}), keys(DType::I64, weights.shape());
    attention_forward(together.spec(), alone, {.out = out, .statistics = {.entropy = entropy, .link_weights = weights, .link_keys = keys}},
                      own);
    EXPECT_TRUE(bitwise_equal(weights.view(), ConstTensorView(a.link_weights).slice(0, 1, 2)));
    EXPECT_TRUE(bitwise_equal(keys.view(), ConstTensorView(a.link_keys).slice(0, 1, 2)));
    EXPECT_TRUE(bitwise_equal(entropy.view(), ConstTensorView(a.entropy).slice(0, 1, 2)));
  }
}

class StatisticsErrors : public testing::Test {
 protected:
  std::string refused(const RowStatistics& statistics, Index q_len = 4) {
    Instance instance({.batch = 2, .q_len = q_len, .kv_len = 6, .kv_heads = 2});
    Tensor out(DType::F32, {2, q_len, 2, 8});
    Workspace workspace(serial_executor());
    return text_of<Error>([&] { attention_forward({}, instance.inputs(), {.out = out, .statistics = statistics}, workspace); });
  }
  Tensor rows_{DType::F32, {2, 2, 4}};
  Tensor wrong_rows_{DType::F32, {2, 4, 2}};
  Tensor chosen_{DType::Bool, {2, 6}};
  Tensor few_chosen_{DType::Bool, {2, 5}};
};

TEST_F(StatisticsErrors, NameTheArgumentAndTheNumbers) {
  EXPECT_EQ(refused({.entropy = wrong_rows_}), "attention: entropy has shape [2, 4, 2], must be [2, 2, 4]");
  EXPECT_EQ(refused({.max_key = rows_}), "attention: max_key is f32, must be i64");
  EXPECT_EQ(refused({.chosen_weight = rows_}), "attention: chosen_weight and chosen go together, chosen is absent");
  EXPECT_EQ(refused({.entropy = rows_, .chosen = chosen_}), "attention: chosen_weight and chosen go together, chosen_weight is absent");
  EXPECT_EQ(refused({.chosen_weight = rows_, .chosen = few_chosen_}), "attention: chosen has shape [2, 5], must be [2 or 1, 6]");
  EXPECT_EQ(refused({.entropy = rows_, .first_weight = rows_}), "attention: entropy overlaps first_weight");
  EXPECT_EQ(refused({.distance = rows_}),
            "attention: a distance needs align, since batch entry 0 has 4 queries and 6 keys: say Align::TopLeft or Align::BottomRight");
}

}  // namespace
}  // namespace mha::test
