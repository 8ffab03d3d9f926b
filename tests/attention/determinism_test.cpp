// Bitwise the same for any order of tasks, any batch mates, any former use of the workspace, and by TBB; under every ISA. The tests with
// threads of their own stand in determinism_threads_test.cpp.
#include "attention/determinism.h"

#include <gtest/gtest.h>

#include "support/executors.h"
#include "support/isa_test.h"

namespace mha::test {
namespace {

class DeterminismTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, DeterminismTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(DeterminismTest, OrderOfTasksAndTheDefaultExecutor) {
  for (const Problem& problem : determinism_problems()) {
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
  for (const Problem& problem : determinism_problems()) {
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
