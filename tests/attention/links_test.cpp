// The strongest links of every row: exact keys where scores are exact and full of ties, weights that are those of the table bit by bit,
// rows that see few keys, special values, and what is refused. That they agree with the double reference on every case and on random
// problems is in forward_test.cpp and decode_test.cpp; threads and batch mates in statistics_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
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

class LinksTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, LinksTest, testing::ValuesIn(all_isas()), isa_name);

/// What a call gives: links in a view whose links lie `step` apart, the table beside them.
struct Asked {
  Asked(const Instance& instance, Index links, Index step = 1)
      : out(p(instance).dtype, {p(instance).batch, p(instance).q_len, p(instance).heads(), p(instance).value_dim}),
        weights(arithmetic(p(instance).dtype), {p(instance).batch, p(instance).heads(), p(instance).q_len, p(instance).kv_len}),
        weights_memory(arithmetic(p(instance).dtype), {p(instance).batch, p(instance).heads(), p(instance).q_len, links * step}),
        keys_memory(DType::I64, {p(instance).batch, p(instance).heads(), p(instance).q_len, links * step}) {
    fill(weights_memory.view(), kMark);
    fill(keys_memory.view(), kMark);
    statistics.link_weights = every(weights_memory, links, step);
    statistics.link_keys = every(keys_memory, links, step);
    Workspace workspace(serial_executor());
    attention_forward(instance.spec(), instance.inputs(), {.out = out, .weights = weights, .statistics = statistics}, workspace);
  }
  static const Problem& p(const Instance& instance) { return instance.problem(); }
  static TensorView every(Tensor& memory, Index links, Index step) {
    const TensorView all = memory.view();
    return {all.data, all.dtype, {all.size(0), all.size(1), all.size(2), links}, {all.stride(0), all.stride(1), all.stride(2), step}};
  }
  Index key(Index b, Index h, Index q, Index i) const { return static_cast<Index>(element(statistics.link_keys, b, h, q, i)); }
  double weight(Index b, Index h, Index q, Index i) const { return element(statistics.link_weights, b, h, q, i); }
  Tensor out, weights, weights_memory, keys_memory;
  RowStatistics statistics;
};

/// Whole numbers from -2 to 2: their products are exact, whatever the order of adding, and many are equal.
void fill_small(const TensorView& view, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for_each_position(view.shape, [&](Index i, Index j, Index k, Index l) {
    set_element(view, i, j, k, l, static_cast<double>(static_cast<Index>(random() % 5) - 2));
  });
}

/// The keys of a row in the order of their scores, found by sorting all it sees.
std::vector<Index> sorted_keys(const Instance& instance, Index b, Index h, Index q) {
  const Problem& p = instance.problem();
  const AttentionInputs in = instance.inputs();
  const Index seen = p.kv_lengths.empty() ? p.kv_len : p.kv_lengths[static_cast<std::size_t>(b)];
  const MaskContext context{p.q_len, seen, p.align == Align::BottomRight ? seen - p.q_len : 0};
  std::vector<std::pair<double, Index>> scores;
  for (Index key = 0; key < seen; ++key) {
    if (!p.mask.sees(q, key, context) || (in.allowed && element(in.allowed, b, h, q, key) == 0)) continue;
    double score = 0;
    for (Index d = 0; d < p.head_dim; ++d) score += element(in.q, b, q, h, d) * element(in.k, b, key, h / p.group, d);
    scores.emplace_back(-score, key);
  }
  std::sort(scores.begin(), scores.end());
  std::vector<Index> keys;
  for (const auto& [score, key] : scores) keys.push_back(key);
  return keys;
}

std::vector<Problem> exact_problems() {
  const Problem base = {.q_len = 83, .kv_len = 301, .group = 2, .head_dim = 3, .value_dim = 2, .align = Align::BottomRight, .scale = 1.0};
  std::vector<Problem> list(6, base);
  list[1].mask = causal();
  list[2].mask = window(40, 3, 5);
  list[2].kv_lengths = {299, 17};
  list[3].allowed = {true, {}, 0.3};
  list[4].q_len = 2;  // few rows
  list[5].q_len = 1;  // and split keys
  list[5].kv_len = 3001;
  list[5].batch = 1;
  return list;
}

TEST_P(LinksTest, KeysAreExactAndTiesGoByThem) {
  for (const Problem& problem : exact_problems()) {
    Instance instance(problem);
    fill_small(instance.q(), 1);
    fill_small(instance.k(), 2);
    for (const Index links : {1, 8, 31}) {
      const Asked got(instance, links);
      for_each_position({problem.batch, problem.heads(), problem.q_len}, [&](Index b, Index h, Index q, Index) {
        const std::vector<Index> keys = sorted_keys(instance, b, h, q);
        for (Index i = 0; i < links; ++i) {
          const bool there = i < static_cast<Index>(keys.size());
          ASSERT_EQ(got.key(b, h, q, i), there ? keys[static_cast<std::size_t>(i)] : -1)
              << problem << " " << b << h << " " << q << " " << i;
          if (!there) {
            ASSERT_EQ(got.weight(b, h, q, i), 0);
          }
        }
      });
    }
  }
}

/// The same scores, maxima and denominators, through the same leaves.
TEST_P(LinksTest, WeightsAreThoseOfTheTableBitByBit) {
  const Problem base = {.q_len = 70, .kv_len = 150, .group = 2, .head_dim = 17, .align = Align::BottomRight};
  std::vector<Problem> list(5, base);
  list[1].mask = causal();
  list[1].first_sink = 1.0F;
  list[1].bias = {BiasData::Content::SomeHidden, {}, DType::F32};
  list[2].dtype = DType::Bf16;
  list[2].softcap = 3.0;
  list[2].dropout = {0.4F, 3};
  list[3].q_len = 3;
  list[3].kv_len = 2500;
  list[3].group = 1;
  list[4].dtype = DType::F64;
  for (const Problem& problem : list) {
    const Instance instance(problem);
    const Asked got(instance, 5);
    for_each_position(got.statistics.link_keys.shape, [&](Index b, Index h, Index q, Index i) {
      const Index key = got.key(b, h, q, i);
      if (key < 0) return;
      ASSERT_EQ(got.weight(b, h, q, i), element(got.weights.view(), b, h, q, key)) << problem << " " << q << " " << i;
    });
  }
}

TEST_P(LinksTest, OneOfTwoAndAnyStridesGiveTheSame) {
  const Instance instance({.q_len = 37, .kv_len = 37, .group = 2, .dtype = DType::F16, .mask = causal()});
  const Asked dense(instance, 7);
  const Asked gaps(instance, 7, 3);
  EXPECT_TRUE(bitwise_equal(dense.statistics.link_weights, gaps.statistics.link_weights));
  EXPECT_TRUE(bitwise_equal(dense.statistics.link_keys, gaps.statistics.link_keys));
  for_each_position(gaps.keys_memory.shape(), [&](Index b, Index h, Index q, Index i) {
    if (i % 3 == 0) return;
    ASSERT_EQ(element(gaps.keys_memory.view(), b, h, q, i), kMark);
    ASSERT_EQ(element(gaps.weights_memory.view(), b, h, q, i), kMark);
  });
  Tensor weights(DType::F32, dense.statistics.link_weights.shape), keys(DType::I64, dense.statistics.link_keys.shape);
  Tensor out(DType::F16, dense.out.shape());
  Workspace workspace(serial_executor());
  attention_forward(instance.spec(), instance.inputs(), {.out = out, .statistics = {.link_weights = weights}}, workspace);
  attention_forward(instance.spec(), instance.inputs(), {.out = out, .statistics = {.link_keys = keys}}, workspace);
  EXPECT_TRUE(bitwise_equal(weights, dense.statistics.link_weights));
  EXPECT_TRUE(bitwise_equal(keys, dense.statistics.link_keys));
}

/// Every key beats all before it, or none does.
TEST_P(LinksTest, OfRisingAndFallingScores) {
  Instance instance({.batch = 1, .q_len = 70, .kv_len = 400, .kv_heads = 1, .head_dim = 1, .value_dim = 1, .scale = 1.0});
  fill(instance.q(), 1);
  for (const double slope : {0.25, -0.25}) {
    for (Index key = 0; key < 400; ++key) set_element(instance.k(), 0, key, 0, 0, slope * static_cast<double>(key));
    const Asked got(instance, 32);
    for (Index q = 0; q < 70; ++q) {
      for (Index i = 0; i < 32; ++i) {
        ASSERT_EQ(got.key(0, 0, q, i), slope > 0 ? 399 - i : i) << q;
        ASSERT_NEAR(got.weight(0, 0, q, i), std::exp(-0.25 * static_cast<double>(i)) * (1 - std::exp(-0.25)), 1e-6);
      }
    }
  }
}

/// A NaN among the scores is told by all weights of the row and passed over by its keys; one that is hidden changes no bit.
TEST_P(LinksTest, NaNIsToldAndPassedOver) {
  for (const Index q_len : {40, 1}) {
    Instance instance({.batch = 1, .q_len = q_len, .kv_len = 100, .kv_heads = 1, .mask = causal(), .align = Align::BottomRight});
    const Asked clean(instance, 32);
    set_element(instance.k(), 0, 80, 0, 2, std::numeric_limits<double>::quiet_NaN());
    const Asked got(instance, 32);
    for (Index q = 0; q < q_len; ++q) {
      const bool seen = 100 - q_len + q >= 80;
      for (Index i = 0; i < 32; ++i) {
        if (!seen) {
          ASSERT_EQ(got.key(0, 0, q, i), clean.key(0, 0, q, i));
          ASSERT_EQ(got.weight(0, 0, q, i), clean.weight(0, 0, q, i));
          continue;
        }
        ASSERT_TRUE(std::isnan(got.weight(0, 0, q, i))) << q;
        ASSERT_NE(got.key(0, 0, q, i), 80) << q;
        ASSERT_GE(got.key(0, 0, q, i), 0) << q;
      }
    }
  }
}

TEST_P(LinksTest, OfRowsThatSeeNothing) {
  for (const Index q_len : {20, 1}) {
    Problem problem = {.batch = 2, .q_len = q_len, .kv_len = 70, .first_sink = 0.5F};
    problem.kv_lengths = {0, 2};
    const Asked got((Instance(problem)), 4);
    for_each_position(got.statistics.link_keys.shape, [&](Index b, Index h, Index q, Index i) {
      if (b == 1 && i < 2) {
        ASSERT_GE(got.key(b, h, q, i), 0);
        ASSERT_GT(got.weight(b, h, q, i), 0);
      } else {
        ASSERT_EQ(got.key(b, h, q, i), -1);
        ASSERT_EQ(got.weight(b, h, q, i), 0);
      }
    });
  }
}

std::string refused(const RowStatistics& statistics) {
  const Instance instance({.batch = 2, .q_len = 4, .kv_len = 4, .kv_heads = 2});
  Tensor out(DType::F32, {2, 4, 2, 8});
  Workspace workspace(serial_executor());
  return text_of<Error>([&] { attention_forward({}, instance.inputs(), {.out = out, .statistics = statistics}, workspace); });
}

TEST(LinksErrors, NameTheArgumentAndTheNumbers) {
  Tensor keys(DType::I64, {2, 2, 4, 8}), weights(DType::F32, {2, 2, 4, 8}), fewer(DType::F32, {2, 2, 4, 7});
  Tensor none(DType::I64, {2, 2, 4, 0}), many(DType::I64, {2, 2, 4, 33}), rows(DType::F32, {2, 2, 4}), turned(DType::I64, {2, 4, 2, 8});
  EXPECT_EQ(refused({.link_keys = TensorView(keys.view().data, DType::I64, {2, 2, 4, 0})}),
            "attention: link_keys has shape [2, 2, 4, 0], must be [batch, heads, q_len, links] of 1 to 32 links");
  EXPECT_EQ(refused({.link_keys = none}),
            "attention: link_keys has shape [2, 2, 4, 0], must be [batch, heads, q_len, links] of 1 to 32 links");
  EXPECT_EQ(refused({.link_keys = many}),
            "attention: link_keys has shape [2, 2, 4, 33], must be [batch, heads, q_len, links] of 1 to 32 links");
  EXPECT_EQ(refused({.link_weights = rows}),
            "attention: link_weights has shape [2, 2, 4], must be [batch, heads, q_len, links] of 1 to 32 links");
  EXPECT_EQ(refused({.link_weights = fewer, .link_keys = keys}),
            "attention: link_weights has shape [2, 2, 4, 7], link_keys has [2, 2, 4, 8]");
  EXPECT_EQ(refused({.link_keys = turned}), "attention: link_keys has shape [2, 4, 2, 8], must be [2, 2, 4, 8]");
  EXPECT_EQ(refused({.link_keys = weights}), "attention: link_keys is f32, must be i64");
  EXPECT_EQ(refused({.link_weights = weights.view(), .link_keys = TensorView(weights.view().data, DType::I64, {2, 2, 4, 8})}),
            "attention: link_weights overlaps link_keys");
}

TEST(LinksErrors, KeysMustFitIn32Bits) {
  const float row[8] = {};
  const ConstTensorView keys(row, DType::F32, {1, Index{1} << 31, 1, 8}, {0, 0, 0, 1});
  Tensor q(DType::F32, {1, 1, 1, 8}), out(DType::F32, {1, 1, 1, 8}), link_keys(DType::I64, {1, 1, 1, 2});
  Workspace workspace(serial_executor());
  const auto call = [&] {
    attention_forward({}, {.q = q, .k = keys, .v = keys}, {.out = out, .statistics = {.link_keys = link_keys}}, workspace);
  };
  EXPECT_EQ(text_of<ShapeError>(call), "attention: link_keys are asked of 2147483648 keys, at most 2147483647 can be");
}

}  // namespace
}  // namespace mha::test
