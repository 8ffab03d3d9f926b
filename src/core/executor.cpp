// The only file that knows TBB. Also home of Workspace, which is an executor and its arenas.
#include "core/executor.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <vector>

#include "core/arena.h"
#include "core/check.h"

namespace mha {

namespace {

void run_on_tbb(void*, Index n, void (*body)(void*, Index), void* state) {
  tbb::parallel_for(Index{0}, n, [&](Index i) { body(state, i); }, tbb::simple_partitioner{});
}

void run_on_caller(void*, Index n, void (*body)(void*, Index), void* state) {
  for (Index i = 0; i < n; ++i) body(state, i);
}

}  // namespace

Executor default_executor() {
  return {.parallel_for = run_on_tbb, .context = nullptr, .concurrency = tbb::this_task_arena::max_concurrency()};
}

Executor serial_executor() { return {.parallel_for = run_on_caller, .context = nullptr, .concurrency = 1}; }

int core::workers_for(const Executor& executor, Index tasks, double flops) {
  if (flops < kWorthAThread) return 1;
  return static_cast<int>(std::clamp<Index>(tasks, 1, executor.concurrency));
}

struct Workspace::State {
  Executor executor;
  Arena caller;
  std::vector<Arena> workers;
};

Workspace::Workspace() : Workspace(default_executor()) {}

Workspace::Workspace(Executor executor) : state_(std::make_unique<State>()) {
  MHA_CHECK(ShapeError, executor.parallel_for != nullptr, "workspace: executor has no parallel_for");
  MHA_CHECK(ShapeError, executor.concurrency >= 1, "workspace: executor's concurrency is ", executor.concurrency, ", must be at least 1");
  state_->executor = executor;
  state_->workers.resize(static_cast<std::size_t>(executor.concurrency));
}

Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;
Workspace::~Workspace() = default;

const Executor& Workspace::executor() const { return state_->executor; }

std::size_t Workspace::bytes() const {
  std::size_t total = state_->caller.bytes();
  for (const Arena& arena : state_->workers) total += arena.bytes();
  return total;
}

Arena& Workspace::arena(int i) { return state_->workers[static_cast<std::size_t>(i)]; }
Arena& Workspace::caller_arena() { return state_->caller; }

}  // namespace mha
