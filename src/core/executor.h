// How the library runs its tasks on an Executor. The pool behind default_executor() is known to executor.cpp alone.
#pragma once

#include <atomic>
#include <type_traits>

#include "mha/workspace.h"

namespace mha::core {

/// Work below this many floating-point operations (some tens of microseconds) stays on the caller: waking a parked thread costs more.
inline constexpr double kWorthAThread = 4e6;

/// Workers that run_tasks will use.
int workers_for(const Executor& executor, Index tasks, double flops);

/// Calls body(worker, task) for every task in [0, tasks), each once; tasks start in ascending order, as workers come free, so heavy ones
/// belong first. 0 <= worker < workers; one worker runs one task at a time. `body` must not throw. Once the executor's `stop` says so, the
/// tasks that are left are skipped.
template <class Body>
void run_tasks(const Executor& executor, int workers, Index tasks, Body&& body) {
  const auto stopped = [&executor] { return executor.stop != nullptr && executor.stop(executor.context); };
  if (workers <= 1) {
    for (Index task = 0; task < tasks && !stopped(); ++task) body(0, task);
    return;
  }
  struct State {
    std::atomic<Index> next{0};
    Index tasks;
    std::remove_reference_t<Body>* body;
    decltype(&stopped) is_stopped;
  } state{.tasks = tasks, .body = &body, .is_stopped = &stopped};
  const auto worker_loop = [](void* opaque, Index worker) {
    State& s = *static_cast<State*>(opaque);
    for (Index task = s.next.fetch_add(1); task < s.tasks && !(*s.is_stopped)(); task = s.next.fetch_add(1)) {
      (*s.body)(static_cast<int>(worker), task);
    }
  };
  executor.parallel_for(executor.context, workers, worker_loop, &state);
}

}  // namespace mha::core
