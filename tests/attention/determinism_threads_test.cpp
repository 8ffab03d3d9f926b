// Bitwise the same for any number of threads. Run under the thread sanitizer too, so nothing here may use the default executor: the
// synchronisation inside TBB is invisible to it.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "attention/determinism.h"
#include "support/executors.h"
#include "support/isa_test.h"

namespace mha::test {
namespace {

class DeterminismThreads : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, DeterminismThreads, testing::ValuesIn(all_isas()), isa_name);

TEST_P(DeterminismThreads, OneTwoAndSevenThreads) {
  for (const Problem& problem : determinism_problems()) {
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

}  // namespace
}  // namespace mha::test
