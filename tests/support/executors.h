// Executors for tests: real std::threads (which the thread sanitizer understands, unlike TBB's internals), and serial ones that run the
// bodies in an unusual order while claiming to be many. Results must not depend on any of it.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "mha/workspace.h"

namespace mha::test {

/// Starts `count` std::threads for every parallel_for; threads take the indices in turn.
class ThreadExecutor {
 public:
  explicit ThreadExecutor(int count) : count_(count) {}
  Executor executor() { return {.parallel_for = run, .context = this, .concurrency = count_}; }

 private:
  static void run(void* context, Index n, void (*body)(void* state, Index i), void* state) {
    const auto* self = static_cast<ThreadExecutor*>(context);
    std::atomic<Index> next{0};
    std::exception_ptr failure;
    std::mutex mutex;
    const auto work = [&] {
      for (Index i = next.fetch_add(1); i < n; i = next.fetch_add(1)) {
        try {
          body(state, i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          failure = std::current_exception();
        }
      }
    };
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(self->count_));
    for (int t = 0; t < self->count_; ++t) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
  }

  int count_;
};

/// On the calling thread, last index first, claiming `concurrency`.
inline Executor backward_executor(int concurrency) {
  const auto run = [](void*, Index n, void (*body)(void* state, Index i), void* state) {
    for (Index i = n - 1; i >= 0; --i) body(state, i);
  };
  return {.parallel_for = run, .context = nullptr, .concurrency = concurrency};
}

}  // namespace mha::test
