// The GIL, workspaces and signals; see interrupt.h.
#include "interrupt.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "mha/error.h"
#include "openmp.h"

namespace mha::python {

namespace nb = nanobind;

namespace {

using Clock = std::chrono::steady_clock;

// How often signals are looked for. Looking means taking the GIL, for which a thread may have to wait 5 ms (sys.getswitchinterval).
constexpr std::chrono::milliseconds kLookEvery{100};

/// The library's executor, with `stop` true once a signal handler has raised.
class Watched {
 public:
  explicit Watched(const Executor& inner) : inner_(inner) {}
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  Executor executor() {
    return {.parallel_for = [](void* context, Index n, void (*body)(void*, Index),
                               void* state) { static_cast<Watched*>(context)->inner_.parallel_for(nullptr, n, body, state); },
            .context = this,
            .concurrency = inner_.concurrency,
            .stop = [](void* context) { return static_cast<Watched*>(context)->stopped(); }};
  }

  /// Whether this is how `executor` computes.
  bool wraps(const Executor& executor) const {
    return inner_.parallel_for == executor.parallel_for && inner_.concurrency == executor.concurrency;
  }
  void start() {
    caller_ = std::this_thread::get_id();
    stopped_ = false;
    raised_ = nullptr;
    looked_ = Clock::now();
  }
  /// With the GIL held: throws what a handler raised.
  void finish() {
    if (raised_) std::rethrow_exception(std::exchange(raised_, nullptr));
  }

 private:
  bool stopped() {
    if (stopped_.load(std::memory_order_relaxed)) return true;
    if (std::this_thread::get_id() != caller_) return false;  // Python calls handlers on its main thread, which can only be the caller
    const auto now = Clock::now();
    if (now - looked_ < kLookEvery) return false;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      raised_ = std::make_exception_ptr(nb::python_error());
      stopped_ = true;
    }
    looked_ = Clock::now();
    return stopped_;
  }

  Executor inner_;
  std::thread::id caller_;
  std::atomic<bool> stopped_{false};
  Clock::time_point looked_;
  std::exception_ptr raised_;
};

/// One thread's workspace, and whether a call is using it.
struct Lane {
  explicit Lane(const Executor& executor) : watched(executor), workspace(watched.executor()) {}
  Watched watched;
  Workspace workspace;
  bool busy = false;
};

Executor executor_for(std::optional<Index> threads) {
  Executor executor = default_executor();
  if (threads && *threads < 1) throw ShapeError("num_threads is " + std::to_string(*threads) + ", must be at least 1");
  if (threads) executor.concurrency = static_cast<int>(std::min<Index>(*threads, executor.concurrency));
  if (executor.concurrency == 1) return serial_executor();
  return openmp_executor(executor.concurrency).value_or(executor);
}

}  // namespace

void compute(std::optional<Index> threads, const std::function<void(Workspace&)>& work) {
  thread_local std::unique_ptr<Lane> kept;
  const Executor executor = executor_for(threads);
  std::unique_ptr<Lane> own;  // a signal handler that computes does so while this thread's lane is in use
  Lane* lane = kept.get();
  if (lane != nullptr && lane->busy) {
    own = std::make_unique<Lane>(executor);
    lane = own.get();
  } else if (lane == nullptr || !lane->watched.wraps(executor)) {
    kept = std::make_unique<Lane>(executor);
    lane = kept.get();
  }
  lane->busy = true;
  lane->watched.start();
  struct Release {
    Lane* lane;
    ~Release() { lane->busy = false; }
  } release{lane};
  std::exception_ptr failed;
  {
    const nb::gil_scoped_release no_gil;
    try {
      work(lane->workspace);
    } catch (...) {
      failed = std::current_exception();
    }
  }
  lane->watched.finish();  // an interrupt comes first: what failed may have failed of it
  if (failed) std::rethrow_exception(failed);
}

}  // namespace mha::python
