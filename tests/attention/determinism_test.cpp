// Bitwise the same for any order of tasks, any batch mates, any former use of the workspace, and by TBB; under every ISA. The tests with
// threads of their own stand in determinism_threads_test.cpp.
#include "attention/determinism.h"

#include <gtest/gtest.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

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

#if defined(__SSE2__)
/// A task runs in a floating-point mode of its own, whatever the thread it runs on is in, and gives the thread its mode back: results
/// cannot depend on who does a task. The reference runs in the caller's mode.
TEST_P(DeterminismTest, TheModeOfTheThreadDoesNotMatter) {
  if (current_isa() == "reference") GTEST_SKIP() << "the reference runs in the caller's mode";
  Problem p = {.batch = 1, .q_len = 40, .kv_len = 150, .head_dim = 16, .value_dim = 7, .mask = window(9, 9), .align = Align::BottomRight};
  Instance instance(p);
  p.scale = 1e30F;
  Instance denormal(p);  // scores of about 1 by way of denormal queries
  for_each_position(denormal.q().shape, [&](Index b, Index q, Index h, Index d) {
    set_element(denormal.q(), b, q, h, d, 1e-39 * element(instance.q(), b, q, h, d));
    set_element(denormal.k(), b, q, h, d, 1e9 * element(instance.k(), b, q, h, d));
  });
  const unsigned before = _mm_getcsr();
  for (const Instance* each : {&instance, &denormal}) {
    const Results expected = run(*each);
    for (const unsigned mode : {0x0040U /* denormals are zero */, 0x8000U /* flush to zero */, 0x4000U /* round up */}) {
      _mm_setcsr(before | mode);
      const Results got = run(*each);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      EXPECT_EQ(after & ~0x3FU, (before | mode) & ~0x3FU) << "but for the flags of what happened";
      EXPECT_TRUE(bitwise_equal(got.out(), expected.out())) << std::hex << mode;
      EXPECT_TRUE(bitwise_equal(got.lse(), expected.lse())) << std::hex << mode;
      EXPECT_TRUE(bitwise_equal(got.weights(), expected.weights())) << std::hex << mode;
    }
  }
  const Results counted = run(denormal);
  fill(denormal.q(), 0);
  EXPECT_FALSE(bitwise_equal(counted.weights(), run(denormal).weights())) << "denormal queries count";
}
#endif

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
