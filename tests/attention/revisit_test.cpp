// attention_received and attention_map: sums and cells of the table that attention_forward gives whole, under every ISA.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "mha/error.h"
#include "support/cases.h"
#include "support/errors.h"
#include "support/executors.h"
#include "support/gen.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class RevisitTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, RevisitTest, testing::ValuesIn(all_isas()), isa_name);

/// Relative error of a recomputed weight, as in weights_test.cpp, and of a sum of `terms` of them in f32.
double tolerance(const Instance& instance, const Results& whole, Index terms) {
  const Problem& p = instance.problem();
  double lse = 0;
  for (const double value : elements(whole.lse())) lse = std::isfinite(value) ? std::max(lse, std::abs(value)) : lse;
  const double scale = p.scale ? std::abs(static_cast<double>(*p.scale)) : 1 / std::sqrt(static_cast<double>(p.head_dim));
  const double scores = 6 + scale * 16 * static_cast<double>(p.head_dim);
  return 2 * element_tolerance(p.head_dim, p.kv_len, scores, DType::F32) + 4 * lse * unit_roundoff(DType::F32) + dot_tolerance(terms);
}

AttentionInputs without_values(const Instance& instance) {
  AttentionInputs inputs = instance.inputs();
  inputs.v = {};
  return inputs;
}

std::string wrong_received(const Instance& instance) {
  const Problem& p = instance.problem();
  const Results whole = run(instance);
  Tensor received(DType::F32, {p.batch, p.heads(), p.kv_len});
  fill(received.view(), kMark);
  Workspace workspace(serial_executor());
  attention_received(instance.spec(), without_values(instance), whole.lse(), received, workspace);
  const double relative = tolerance(instance, whole, p.q_len);
  std::string wrong;
  for_each_position(received.shape(), [&](Index b, Index h, Index key, Index) {
    double expected = 0;
    for (Index q = 0; q < p.q_len; ++q) expected += element(whole.weights(), b, h, q, key);
    const double got = element(received.view(), b, h, key);
    if (std::abs(got - expected) <= relative * expected + std::ldexp(1.0, -110)) return;
    wrong = "key " + std::to_string(key) + " receives " + std::to_string(got) + ", the table says " + std::to_string(expected);
  });
  return wrong;
}

std::string wrong_map(const Instance& instance, const WeightsRegion& region, Index rows, Index columns) {
  const Results whole = run(instance);
  Tensor mean(DType::F32, {rows, columns});
  Tensor top(DType::F32, {rows, columns});
  fill(mean.view(), kMark);
  fill(top.view(), kMark);
  Workspace workspace(serial_executor());
  attention_map(instance.spec(), without_values(instance), whole.lse(), region, {mean, top}, workspace);
  const Index queries = region.queries.hi - region.queries.lo;
  const Index keys = region.keys.hi - region.keys.lo;
  const double relative = tolerance(instance, whole, queries * keys);
  std::string wrong;
  for_each_position(mean.shape(), [&](Index r, Index c, Index, Index) {
    double sum = 0;
    double largest = 0;
    Index pairs = 0;
    for (Index q = r * queries / rows; q < (r + 1) * queries / rows; ++q) {
      for (Index key = c * keys / columns; key < (c + 1) * keys / columns; ++key, ++pairs) {
        const double weight = element(whole.weights(), region.batch, region.head, region.queries.lo + q, region.keys.lo + key);
        sum += weight;
        largest = std::max(largest, weight);
      }
    }
    const double expected = sum / static_cast<double>(pairs);
    const double tiny = std::ldexp(1.0, -110);
    if (std::abs(element(mean.view(), r, c) - expected) <= relative * expected + tiny &&
        std::abs(element(top.view(), r, c) - largest) <= relative * largest + tiny)
      return;
    wrong = "cell " + std::to_string(r) + ", " + std::to_string(c) + " is " + std::to_string(element(mean.view(), r, c)) + " and " +
            std::to_string(element(top.view(), r, c)) + ", the table says " + std::to_string(expected) + " and " + std::to_string(largest);
  });
  return wrong;
}

TEST_P(RevisitTest, EveryCase) {
  for (const Problem& problem : cases()) {
    if (problem.dtype == DType::F64) continue;  // refused
    const Instance instance(problem);
    EXPECT_EQ(wrong_received(instance), "") << problem;
    const WeightsRegion all = {
        .batch = problem.batch - 1, .head = problem.heads() - 1, .queries = {0, problem.q_len}, .keys = {0, problem.kv_len}};
    EXPECT_EQ(wrong_map(instance, all, (problem.q_len + 2) / 3, (problem.kv_len + 1) / 2), "") << problem;
  }
}

TEST_P(RevisitTest, RandomRectanglesAtRandomSizes) {
  check("cells of any rectangle, under " + GetParam(), [] {
    const Problem p = *gen::problem({DType::F32, DType::Bf16, DType::F16});
    const Instance instance(p);
    const WeightsRegion region = gen::region(p);
    const Index rows = *rc::gen::inRange<Index>(0, region.queries.hi - region.queries.lo + 1);
    const Index columns = *rc::gen::inRange<Index>(0, region.keys.hi - region.keys.lo + 1);
    RC_ASSERT(wrong_map(instance, region, rows, columns) == "");
    RC_ASSERT(wrong_received(instance) == "");
  });
}

/// Several tiles of keys, several parts of rows, cells larger and smaller than both.
TEST_P(RevisitTest, ManyTiles) {
  if (current_isa() == "reference") GTEST_SKIP() << "it knows no tiles";
  Problem problem = {.batch = 1, .q_len = 700, .kv_len = 1300, .kv_heads = 1, .group = 2, .head_dim = 8, .align = Align::BottomRight};
  for (const Mask& mask : {Mask{}, causal(), window(300, 0, 3)}) {
    problem.mask = mask;
    const Instance instance(problem);
    EXPECT_EQ(wrong_received(instance), "") << problem;
    for (const auto& [rows, columns] : {std::pair<Index, Index>{1, 1}, {2, 3}, {16, 16}, {700, 1300}, {13, 1000}}) {
      EXPECT_EQ(wrong_map(instance, {.batch = 0, .head = 1, .queries = {0, 700}, .keys = {0, 1300}}, rows, columns), "") << problem;
    }
  }
}

TEST_P(RevisitTest, NaNIsToldWhereItIsSeen) {
  const Problem problem = {.batch = 1, .q_len = 40, .kv_len = 40, .kv_heads = 1, .mask = causal()};
  Instance instance(problem);
  set_element(instance.k(), 0, 30, 0, 2, std::numeric_limits<double>::quiet_NaN());  // rows from 30 on are NaN
  const Results whole = run(instance);
  Tensor mean(DType::F32, {4, 4});
  Tensor top(DType::F32, {4, 4});
  Workspace workspace(serial_executor());
  attention_map(instance.spec(), instance.inputs(), whole.lse(), {.batch = 0, .head = 0, .queries = {0, 40}, .keys = {0, 40}}, {mean, top},
                workspace);
  for_each_position(mean.shape(), [&](Index r, Index c, Index, Index) {
    EXPECT_EQ(std::isnan(element(mean.view(), r, c)), r == 3) << r << " " << c;
    EXPECT_EQ(std::isnan(element(top.view(), r, c)), r == 3) << r << " " << c;
  });
}

/// A row that is NaN tells the keys it sees, and no others: a hidden weight is 0 whatever the row's lse.
TEST_P(RevisitTest, NaNStaysWithTheKeysOfItsRow) {
  const Problem problem = {.batch = 1, .q_len = 40, .kv_len = 40, .kv_heads = 1, .mask = causal()};
  Instance instance(problem);
  set_element(instance.q(), 0, 3, 0, 2, std::numeric_limits<double>::quiet_NaN());
  const Results whole = run(instance);
  Tensor received(DType::F32, {1, 1, 40});
  Tensor mean(DType::F32, {4, 4});
  Tensor top(DType::F32, {4, 4});
  Tensor weights(DType::F32, {1, 40});
  Workspace workspace(serial_executor());
  attention_received(instance.spec(), instance.inputs(), whole.lse(), received, workspace);
  attention_map(instance.spec(), instance.inputs(), whole.lse(), {.batch = 0, .head = 0, .queries = {0, 40}, .keys = {0, 40}}, {mean, top},
                workspace);
  attention_weights(instance.spec(), instance.inputs(), whole.lse(), {.batch = 0, .head = 0, .queries = {3, 4}, .keys = {0, 40}}, weights,
                    workspace);
  for (Index key = 0; key < 40; ++key) {
    EXPECT_EQ(std::isnan(element(received.view(), 0, 0, key)), key <= 3) << key;
    EXPECT_EQ(std::isnan(element(weights.view(), 0, key)), key <= 3) << key;
  }
  for_each_position(mean.shape(), [&](Index r, Index c, Index, Index) {
    EXPECT_EQ(std::isnan(element(mean.view(), r, c)), r == 0 && c == 0) << r << " " << c;
    EXPECT_EQ(std::isnan(element(top.view(), r, c)), r == 0 && c == 0) << r << " " << c;
  });
}

TEST_P(RevisitTest, BitsDoNotDependOnThreads) {
  Problem problem = {.batch = 2, .q_len = 150, .kv_len = 600, .kv_heads = 2, .head_dim = 16, .mask = causal(), .align = Align::BottomRight};
  if (current_isa() == "reference") problem.kv_len = 160;
  const Instance instance(problem);
  const Results whole = run(instance);
  const auto both = [&](Workspace& workspace) {
    Tensor all(DType::F32, {2, 2, problem.kv_len + 10 * 20});  // received, and behind it no more than room: keeps the two together
    const TensorView received = all.view().slice(2, 0, problem.kv_len);
    attention_received(instance.spec(), instance.inputs(), whole.lse(), received, workspace);
    Tensor mean(DType::F32, {10, 20});
    attention_map(instance.spec(), instance.inputs(), whole.lse(),
                  {.batch = 1, .head = 1, .queries = {0, 150}, .keys = {0, problem.kv_len}}, {.mean = mean}, workspace);
    copy(ConstTensorView(mean).reshape({1, 1, 200}),
         all.view().slice(0, 0, 1).slice(1, 0, 1).slice(2, problem.kv_len, problem.kv_len + 200));
    return all;
  };
  Workspace serial(serial_executor());
  ThreadExecutor threads(5);
  Workspace parallel(threads.executor());
  EXPECT_TRUE(bitwise_equal(both(serial).view(), both(parallel).view()));
}

class RevisitErrors : public testing::Test {
 protected:
  Instance instance_{{.batch = 2, .q_len = 4, .kv_len = 6, .kv_heads = 2}};
  Tensor lse_{DType::F32, {2, 2, 4}};
  Tensor received_{DType::F32, {2, 2, 6}};
  Tensor small_{DType::F32, {2, 3}};
  Tensor large_{DType::F32, {5, 3}};
  Workspace workspace_{serial_executor()};

  std::string refused_received(const TensorView& received, const ConstTensorView& lse) {
    return text_of<Error>([&] { attention_received({}, instance_.inputs(), lse, received, workspace_); });
  }
  std::string refused_map(const WeightsMap& map, Interval keys = {0, 6}) {
    const WeightsRegion region{.batch = 0, .head = 1, .queries = {0, 4}, .keys = keys};
    return text_of<Error>([&] { attention_map({}, instance_.inputs(), lse_, region, map, workspace_); });
  }
};

TEST_F(RevisitErrors, NameTheArgumentAndTheNumbers) {
  EXPECT_EQ(refused_received(lse_, lse_), "attention_received: received has shape [2, 2, 4], must be [2, 2, 6]");
  EXPECT_EQ(refused_received(received_, received_), "attention_received: lse has shape [2, 2, 6], must be [2, 2, 4]");
  const AttentionSpec biased{.bias = DenseBias{received_.view().slice(0, 0, 1).slice(1, 0, 1).reshape({1, 1, 1, 6})}};
  EXPECT_EQ(text_of<Error>([&] { attention_received(biased, instance_.inputs(), lse_, received_, workspace_); }),
            "attention_received: received overlaps bias");
  EXPECT_EQ(refused_map({}), "attention_map: neither mean nor max is given");
  EXPECT_EQ(refused_map({.mean = large_}), "attention_map: mean has shape [5, 3], must be [rows, columns] of at most [4, 6]");
  EXPECT_EQ(refused_map({.mean = small_}, {2, 7}), "attention_map: keys [2, 7) of 6");
  EXPECT_EQ(refused_map({.mean = small_, .max = small_}), "attention_map: max overlaps mean");
  EXPECT_EQ(refused_map({.max = received_}), "attention_map: max has shape [2, 2, 6], must be [rows, columns] of at most [4, 6]");
}

/// Empty tensors may have no data.
TEST(RevisitEmpty, OfNothing) {
  const Instance instance({.batch = 2, .q_len = 4, .kv_len = 6, .kv_heads = 2});
  const Tensor lse(DType::F32, {2, 2, 4});
  Workspace workspace(serial_executor());
  const TensorView nothing(static_cast<void*>(nullptr), DType::F32, {0, 0});
  attention_map({}, instance.inputs(), lse, {.batch = 0, .head = 0, .queries = {3, 3}, .keys = {2, 2}}, {.mean = nothing}, workspace);
  const Instance no_keys({.batch = 1, .q_len = 2, .kv_len = 0, .kv_heads = 1});
  Tensor out(DType::F32, {1, 2, 1, 8});
  Tensor chosen_weight(DType::F32, {1, 1, 2});
  fill(chosen_weight.view(), kMark);
  const ConstTensorView chosen(static_cast<const void*>(nullptr), DType::Bool, {1, 0});
  attention_forward({}, no_keys.inputs(), {.out = out, .statistics = {.chosen_weight = chosen_weight, .chosen = chosen}}, workspace);
  EXPECT_EQ(element(chosen_weight.view(), 0, 0, 1), 0);
}

}  // namespace
}  // namespace mha::test
