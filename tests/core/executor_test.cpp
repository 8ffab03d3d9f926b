// run_tasks and workers_for: every task runs once, on a worker in range, one at a time per worker, under any executor.
#include "core/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "mha/error.h"
#include "support/executors.h"

namespace mha {
namespace {

void expect_each_task_once(const Executor& executor, int workers, Index tasks) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
  std::vector<std::atomic<int>> busy(static_cast<std::size_t>(workers));
  std::atomic<int> faults{0};
  core::run_tasks(executor, workers, tasks, [&](int worker, Index task) {
    if (worker < 0 || worker >= workers || task < 0 || task >= tasks) {
      ++faults;
      return;
    }
    if (busy[static_cast<std::size_t>(worker)].fetch_add(1) != 0) ++faults;
    ++runs[static_cast<std::size_t>(task)];
    busy[static_cast<std::size_t>(worker)].fetch_sub(1);
  });
  EXPECT_EQ(faults, 0);
  for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
}

TEST(ExecutorThreads, EveryTaskRunsOnce) {
  for (const int workers : {1, 2, 7}) {
    test::ThreadExecutor threads(workers);
    for (const Index tasks : {0, 1, 2, 5, 1000}) {
      expect_each_task_once(threads.executor(), workers, tasks);
      expect_each_task_once(test::backward_executor(workers), workers, tasks);
    }
  }
}

TEST(ExecutorTest, TheDefaultsRunEveryTaskOnce) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "TBB's own synchronisation is invisible to the thread sanitizer";
#endif
  for (const Executor& executor : {default_executor(), serial_executor()}) {
    EXPECT_GE(executor.concurrency, 1);
    for (const Index tasks : {0, 1, 3, 500}) expect_each_task_once(executor, executor.concurrency, tasks);
  }
}

/// No worker has a share of its own to wait for: a worker that runs alone does everything, in ascending order.
TEST(ExecutorTest, TasksGoToWhoeverIsFree) {
  std::vector<Index> done;
  core::run_tasks(test::backward_executor(3), 3, 10, [&](int worker, Index task) {
    EXPECT_EQ(worker, 2) << "the first to run";
    done.push_back(task);
  });
  EXPECT_EQ(done, (std::vector<Index>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

/// Once `stop` says so no task begins, whoever asks it and wherever the tasks run.
TEST(ExecutorThreads, StopSkipsWhatIsLeft) {
  struct Stopping {
    test::ThreadExecutor threads;
    std::atomic<int> asked{0};
  };
  for (const int workers : {1, 2, 7}) {
    Stopping state{.threads = test::ThreadExecutor(workers)};
    const Executor executor{.parallel_for =
                                [](void* context, Index n, void (*body)(void*, Index), void* inner_state) {
                                  const Executor inner = static_cast<Stopping*>(context)->threads.executor();
                                  inner.parallel_for(inner.context, n, body, inner_state);
                                },
                            .context = &state,
                            .concurrency = workers,
                            .stop = [](void* context) { return ++static_cast<Stopping*>(context)->asked > 10; }};
    std::atomic<int> runs{0};
    core::run_tasks(executor, workers, 1000, [&](int, Index) { ++runs; });
    EXPECT_EQ(runs, 10) << workers;
  }
}

TEST(ExecutorTest, SmallWorkStaysOnTheCaller) {
  const Executor executor = test::backward_executor(8);
  EXPECT_EQ(core::workers_for(executor, 100, 1), 1);
  EXPECT_EQ(core::workers_for(executor, 100, 1e12), 8);
  EXPECT_EQ(core::workers_for(executor, 3, 1e12), 3);
  EXPECT_GE(core::workers_for(executor, 0, 1e12), 1);
}

TEST(WorkspaceTest, RefusesExecutorsThatCannotRun) {
  EXPECT_THROW(Workspace(Executor{}), ShapeError);
  Executor none = serial_executor();
  none.concurrency = 0;
  EXPECT_THROW(Workspace{none}, ShapeError);
}

TEST(WorkspaceTest, StartsEmptyAndMoves) {
  Workspace workspace(test::backward_executor(3));
  EXPECT_EQ(workspace.bytes(), 0U);
  EXPECT_EQ(workspace.executor().concurrency, 3);
  Arena* arena = &workspace.arena(2);
  const Workspace moved = std::move(workspace);
  EXPECT_EQ(moved.executor().concurrency, 3);
  EXPECT_EQ(&const_cast<Workspace&>(moved).arena(2), arena);
}

}  // namespace
}  // namespace mha
