// The measurements of mha/limits.h: clocks and threads around two leaves. Compiled for the baseline CPU.
#include "mha/limits.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "core/check.h"
#include "kernels/table.h"

namespace mha {

namespace {

constexpr Index kFmaRounds = 500000;
constexpr std::size_t kLeastRead = std::size_t{64} << 20;

/// body(worker) once for each thread of the executor; seconds by its clock. A pool whose threads have fallen asleep is woken first.
template <class Body>
double timed(const Executor& executor, Body&& body) {
  const auto call = [](void* state, Index worker) { (*static_cast<std::remove_reference_t<Body>*>(state))(worker); };
  const auto nothing = [](void*, Index) {};
  if (executor.concurrency > 1) executor.parallel_for(executor.context, executor.concurrency, nothing, nullptr);
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
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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
