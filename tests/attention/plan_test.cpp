// Plans: tasks cover every row once, what decides results depends on one sequence's sizes alone, and the scratch estimate is enough.
#include "attention/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "mha/error.h"
#include "support/gen.h"
#include "support/isa_test.h"
#include "support/problem.h"

namespace mha::test {
namespace {

using attention::Plan;
using attention::Task;

class PlanTest : public IsaTest {
 protected:
  static Plan plan_of(const Instance& instance, attention::Problem& lowered) {
    spec_ = instance.spec();
    inputs_ = instance.inputs();
    lowered = attention::lower(spec_, inputs_, {.out = {}, .lse = {}, .weights = {}});
    return attention::make_plan(lowered, *kernels::current());
  }
  static AttentionSpec spec_;
  static AttentionInputs inputs_;
};
AttentionSpec PlanTest::spec_;
AttentionInputs PlanTest::inputs_;
INSTANTIATE_TEST_SUITE_P(Isa, PlanTest, testing::ValuesIn(kernel_isas()), isa_name);

TEST_P(PlanTest, TasksCoverEveryRowOnce) {
  check("tasks under " + GetParam(), [] {
    Problem p = *gen::problem({DType::F32, DType::Bf16});
    p.q_len *= *rc::gen::element<Index>(1, 1, 20);
    const Instance instance(p);
    attention::Problem lowered{};
    const Plan plan = plan_of(instance, lowered);
    RC_ASSERT(plan.rows_per_task % plan.panel_lanes == 0);
    RC_ASSERT(plan.key_tile >= 1 && plan.key_tile <= attention::kMaxTileKeys);
    const Index rows = p.q_len * p.group;
    std::vector<int> done(static_cast<std::size_t>(p.batch * p.kv_heads * rows), 0);
    for (Index i = 0; i < plan.tasks; ++i) {
      const Task task = attention::task_at(lowered, plan, i);
      RC_ASSERT(task.batch >= 0 && task.batch < p.batch && task.kv_head >= 0 && task.kv_head < p.kv_heads);
      RC_ASSERT(task.rows >= 1 && task.first_row >= 0 && task.first_row + task.rows <= rows);
      for (Index r = 0; r < task.rows; ++r)
        ++done[static_cast<std::size_t>((task.batch * p.kv_heads + task.kv_head) * rows + task.first_row + r)];
    }
    for (const int times : done) RC_ASSERT(times == 1);
  });
}

/// Work under a causal mask, in (query, key) pairs, as two threads get it that take tasks in order: they end together, whether keys are
/// copied (larger tasks) or not.
TEST_P(PlanTest, CausalWorkIsSharedEvenly) {
  for (const Layout layout : {Layout::Dense, Layout::Strided}) {
    const Problem p = {
        .batch = 1, .q_len = 4096, .kv_len = 4096, .kv_heads = 1, .head_dim = 2, .value_dim = 2, .layout = layout, .mask = causal()};
    const Instance instance(p);
    attention::Problem lowered{};
    const Plan plan = plan_of(instance, lowered);
    double busy[2] = {0, 0};
    for (Index i = 0; i < plan.tasks; ++i) {
      const Task task = attention::task_at(lowered, plan, i);
      double& first_free = *std::min_element(std::begin(busy), std::end(busy));
      for (Index row = task.first_row; row < task.first_row + task.rows; ++row) first_free += static_cast<double>(row + 1);
    }
    EXPECT_GE((busy[0] + busy[1]) / std::max(busy[0], busy[1]), 1.7) << name_of(layout);
  }
}

TEST_P(PlanTest, WhatDecidesResultsIgnoresTheBatch) {
  check("key tiles and rows under " + GetParam(), [] {
    Problem p = *gen::problem({DType::F32});
    p.kv_lengths.clear();
    p.layout = Layout::Dense;
    attention::Problem lowered{};
    const Instance one(p);
    const Plan a = plan_of(one, lowered);
    p.batch = 7;
    const Instance seven(p);
    const Plan b = plan_of(seven, lowered);
    RC_ASSERT(a.key_tile == b.key_tile);
    RC_ASSERT(a.rows_per_task == b.rows_per_task);
    RC_ASSERT(a.blocks == b.blocks);
  });
}

TEST_P(PlanTest, ScratchIsEnough) {
  check("a call takes no more than was planned, under " + GetParam(), [] {
    Problem p = *gen::problem({DType::F32, DType::Bf16});
    p.q_len *= *rc::gen::element<Index>(1, 1, 9);
    p.mask = *rc::gen::element(Mask{}, causal());
    const Instance instance(p);
    attention::Problem lowered{};
    const Plan plan = plan_of(instance, lowered);
    Workspace workspace(serial_executor());
    static_cast<void>(run(instance, workspace));
    RC_ASSERT(workspace.bytes() <= plan.scratch + plan.sight_scratch + 2 * 64);
  });
}

/// What explain_attention tells is the plan that runs.
TEST_P(PlanTest, ExplainedAsItRuns) {
  check("explained under " + GetParam(), [] {
    Problem p = *gen::problem({DType::F32, DType::Bf16});
    p.kv_len *= *rc::gen::element<Index>(1, 1, 200);
    p.kv_lengths.clear();
    p.align = Align::TopLeft;
    const Instance instance(p);
    attention::Problem lowered{};
    const Plan plan = plan_of(instance, lowered);
    Tensor out(p.dtype, {p.batch, p.q_len, p.heads(), p.value_dim});
    const AttentionPlan told = explain_attention(spec_, inputs_, {.out = out}, serial_executor());
    RC_ASSERT(told.isa == current_isa());
    RC_ASSERT(told.few_rows == plan.few_rows);
    RC_ASSERT(told.copies_keys == plan.copy_keys);
    RC_ASSERT(told.copies_values == (plan.few_rows ? p.layout == Layout::Strided && p.value_dim > 0 : plan.copy_values));
    RC_ASSERT(told.rows_per_task == plan.rows_per_task && told.key_tile == plan.key_tile);
    RC_ASSERT(told.splits == plan.splits && told.split_keys == plan.split_keys && told.folds == plan.folds);
    RC_ASSERT(told.tasks == plan.tasks && told.workers == 1);
    Workspace workspace(serial_executor());
    attention_forward(spec_, inputs_, {.out = out}, workspace);
    RC_ASSERT(workspace.bytes() <= told.scratch + told.merge_scratch + 4 * 64);
  });
}

TEST_P(PlanTest, ExplainsWithoutTouchingAnything) {
  // No memory is behind these: an element that is read or written is a crash.
  const auto nowhere = [](Index page) { return reinterpret_cast<float*>(page << 40); };
  const Dims queries = {1, 1, 32, 128};
  const Dims keys = {1, 4096, 8, 128};
  const AttentionInputs inputs{.q = {nowhere(1), queries}, .k = {nowhere(2), keys}, .v = {nowhere(3), keys}};
  const AttentionPlan told = explain_attention({}, inputs, {.out = {nowhere(4), queries}}, default_executor());
  EXPECT_EQ(told.flops, 4.0 * 32 * 4096 * 128);
  EXPECT_EQ(told.tasks, 8 * told.splits);
  EXPECT_GE(told.splits * told.split_keys, 4096);
  EXPECT_EQ(told.merge_scratch > 0, told.splits > 1);
}

TEST(ExplainTest, TheReferenceHasNoPlan) {
  Tensor x(DType::F64, {1, 3, 2, 4});
  Tensor out(DType::F64, {1, 3, 2, 4});
  const AttentionPlan told = explain_attention({}, {.q = x, .k = x, .v = x}, {.out = out}, serial_executor());
  EXPECT_EQ(told.isa, "reference");
  EXPECT_EQ(told.tasks, 0);
}

TEST(ExplainTest, RefusesAsTheCallDoes) {
  Tensor x(DType::F32, {1, 3, 2, 4});
  Tensor out(DType::F32, {1, 3, 2, 5});
  EXPECT_THROW(static_cast<void>(explain_attention({}, {.q = x, .k = x, .v = x}, {.out = out}, serial_executor())), ShapeError);
}

}  // namespace
}  // namespace mha::test
