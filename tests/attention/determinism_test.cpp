// Bitwise the same for any number of threads, any order of tasks, any batch mates, any former use of the workspace; under every ISA.
// Suites named Threads are also run under the thread sanitizer.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/executors.h"
#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

class DeterminismThreads : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, DeterminismThreads, testing::ValuesIn(all_isas()), isa_name);
class DeterminismTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, DeterminismTest, testing::ValuesIn(all_isas()), isa_name);

/// Big enough for several tasks and for work to leave the caller (about 10 to 40 million operations).
std::vector<Problem> problems() {
  std::vector<Problem> list;
  for (const DType dtype : {DType::F32, DType::Bf16}) {
    list.push_back({.batch = 2, .q_len = 300, .kv_len = 300, .kv_heads = 2, .group = 2, .head_dim = 24, .value_dim = 24, .dtype = dtype});
    list.push_back({.batch = 2,
                    .q_len = 401,
                    .kv_len = 401,
                    .kv_heads = 2,
                    .group = 1,
                    .head_dim = 24,
                    .value_dim = 17,
                    .dtype = dtype,
                    .mask = causal() & window(150, 0, 4),
                    .dropout = {0.1F, 7}});
    list.push_back({.batch = 3,
                    .q_len = 3,
                    .kv_len = 2000,
                    .kv_heads = 4,
                    .group = 5,
                    .head_dim = 32,
                    .value_dim = 32,
                    .dtype = dtype,
                    .mask = causal(),
                    .align = Align::BottomRight,
                    .kv_lengths = {2000, 1234, 77}});
  }
  for (Problem& problem : list) {
    if (current_isa() == "reference") {  // too slow for these sizes; it is serial anyway
      problem.q_len = std::min<Index>(problem.q_len, 20);
      problem.kv_len = problem.kv_lengths.empty() ? problem.q_len : problem.kv_len;
    }
  }
  return list;
}

void expect_same(const Results& a, const Results& b, const Problem& problem) {
  EXPECT_TRUE(bitwise_equal(a.out(), b.out())) << problem;
  EXPECT_TRUE(bitwise_equal(a.lse(), b.lse())) << problem;
  EXPECT_TRUE(bitwise_equal(a.weights(), b.weights())) << problem;
}

TEST_P(DeterminismThreads, OneTwoAndSevenThreads) {
  for (const Problem& problem : problems()) {
    const Instance instance(problem);
    const Results serial = run(instance);
    for (const int count : {1, 2, 7}) {
      ThreadExecutor threads(count);
      Workspace workspace(threads.executor());
      expect_same(run(instance, workspace), serial, problem);
    }
  }
}

TEST_P(DeterminismThreads, SeveralCallsAtOnceWithTheirOwnWorkspaces) {
  const Instance instance({.q_len = 70, .kv_len = 70, .group = 2, .mask = causal()});
  const Results expected = run(instance);
  std::vector<std::thread> callers;
  std::vector<int> same(4, 0);
  for (std::size_t i = 0; i < same.size(); ++i) {
    callers.emplace_back([&, i] {
      ThreadExecutor threads(2);
      Workspace workspace(threads.executor());
      const Results got = run(instance, workspace);
      same[i] = bitwise_equal(got.out(), expected.out()) && bitwise_equal(got.weights(), expected.weights()) ? 1 : 0;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(same, std::vector<int>(4, 1));
}

TEST_P(DeterminismTest, OrderOfTasksAndTheDefaultExecutor) {
  for (const Problem& problem : problems()) {
    const Instance instance(problem);
    const Results serial = run(instance);
    Workspace backward(backward_executor(5));
    expect_same(run(instance, backward), serial, problem);
    Workspace all_cores;
    expect_same(run(instance, all_cores), serial, problem);
    expect_same(run(instance, all_cores), serial, problem);  // again, in a used workspace
  }
}

TEST_P(DeterminismTest, BatchMates) {
  for (const Problem& problem : problems()) {
    const Instance together(problem);
    const Results all = run(together);
    for (Index b = 0; b < problem.batch; ++b) {
      if (problem.dropout.probability > 0 && b > 0) continue;  // dropout asks for the batch entry's number
      AttentionInputs inputs = together.inputs();
      inputs.q = inputs.q.slice(0, b, b + 1);
      inputs.k = inputs.k.slice(0, b, b + 1);
      inputs.v = inputs.v.slice(0, b, b + 1);
      if (!inputs.kv_lengths.empty()) inputs.kv_lengths = inputs.kv_lengths.subspan(static_cast<std::size_t>(b), 1);
      Problem one = problem;
      one.batch = 1;
      one.kv_lengths.clear();
      Results alone(one, problem.dtype, DType::F32);
      Workspace workspace(serial_executor());
      attention_forward(together.spec(), inputs, alone.outputs(), workspace);
      EXPECT_TRUE(bitwise_equal(alone.out(), all.out().slice(0, b, b + 1))) << problem << " entry " << b;
      EXPECT_TRUE(bitwise_equal(alone.lse(), all.lse().slice(0, b, b + 1))) << problem << " entry " << b;
    }
  }
}

TEST_P(DeterminismTest, ASecondCallNeedsNoMoreMemory) {
  Workspace workspace(serial_executor());
  const Problem problem = {.q_len = 70,
                           .kv_len = 300,
                           .group = 3,
                           .head_dim = 33,
                           .value_dim = 65,
                           .dtype = DType::F16,
                           .mask = causal(),
                           .align = Align::BottomRight};
  const Instance instance(problem);
  static_cast<void>(run(instance, workspace));
  const std::size_t held = workspace.bytes();
  for (int i = 0; i < 3; ++i) static_cast<void>(run(instance, workspace));
  EXPECT_EQ(workspace.bytes(), held);
}

}  // namespace
}  // namespace mha::test
