// The measurements of mha/limits.h: clocks and threads around two leaves. Compiled for the baseline CPU.
#include "mha/limits.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <vector>

#include "core/check.h"
#include "kernels/table.h"

namespace mha {

namespace {

constexpr Index kFmaRounds = 500000;
constexpr std::size_t kLeastRead = std::size_t{64} << 20;

double wall_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Returns once all threads of the executor run at the same time, each on a core of its own, or after a twentieth of a second: a thread
/// that was asleep is often woken on the core of the one that waits for it, where two look like half the machine.
void gather(const Executor& executor) {
  struct State {
    std::vector<std::atomic<int>> cores;  // of each thread, -1 where it has not come yet
    double until;
  } state{.cores = std::vector<std::atomic<int>>(static_cast<std::size_t>(executor.concurrency)), .until = wall_seconds() + 0.05};
  for (std::atomic<int>& core : state.cores) core = -1;
  const auto wait = [](void* memory, Index worker) {
    State& shared = *static_cast<State*>(memory);
    std::atomic<int>& mine = shared.cores[static_cast<std::size_t>(worker)];
    const auto hinders = [&](const std::atomic<int>& other) { return &other != &mine && (other == -1 || other == mine); };
    do {
      mine = sched_getcpu();
    } while (std::any_of(shared.cores.begin(), shared.cores.end(), hinders) && wall_seconds() < shared.until);
  };
  executor.parallel_for(executor.context, executor.concurrency, wait, &state);
}

/// body(worker) once for each thread of the executor; seconds by its clock.
template <class Body>
double timed(const Executor& executor, Body&& body) {
  const auto call = [](void* state, Index worker) { (*static_cast<std::remove_reference_t<Body>*>(state))(worker); };
  if (executor.concurrency > 1) gather(executor);
  const double start = executor_seconds(executor);
  executor.parallel_for(executor.context, executor.concurrency, call, &body);
  return executor_seconds(executor) - start;
}

}  // namespace

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double executor_seconds(const Executor& executor) {
  if (executor.concurrency == 1) return thread_seconds();
  return wall_seconds();
}

double fma_peak(std::string_view isa, const Executor& executor) {
  const kernels::KernelTable* table = kernels::table_of(isa);
  if (table == nullptr) return 0.0;
  const double seconds = timed(executor, [&](Index) {
    alignas(64) float values[kernels::kMaxFmaFloats];
    for (int i = 0; i < kernels::kMaxFmaFloats; ++i) values[i] = 1e-3F * static_cast<float>(i);
    table->fma_chains(values, kFmaRounds, 0.999F, 1e-4F);
  });
  return 2e-9 * static_cast<double>(kFmaRounds) * table->fma_floats * executor.concurrency / seconds;
}

double read_bandwidth(std::span<const std::byte> data, const Executor& executor) {
  const auto count = static_cast<Index>(data.size() / sizeof(float));
  const Index threads = executor.concurrency;
  MHA_CHECK(ShapeError, count >= threads, "read_bandwidth: data has ", data.size(), " bytes, must be at least 4 for each of ", threads,
            " threads");
  const kernels::KernelTable& table = kernels::current_or_scalar();
  const auto* floats = reinterpret_cast<const float*>(data.data());
  const auto passes = static_cast<Index>((kLeastRead + data.size() - 1) / data.size());
  const double seconds = timed(executor, [&](Index worker) {
    const Index first = worker * (count / threads) + std::min(worker, count % threads);
    const Index mine = count / threads + (worker < count % threads ? 1 : 0);
    for (Index pass = 0; pass < passes; ++pass) static_cast<void>(table.read_sum(floats + first, mine));  // behind a pointer: not dropped
  });
  return 1e-9 * static_cast<double>(passes) * static_cast<double>(count) * sizeof(float) / seconds;
}

}  // namespace mha
