// libgomp by its entry point GOMP_parallel, looked up in the library that is loaded already; see openmp.h. Not linked to: which libgomp
// there is, and whether, is the framework's affair.
#include "openmp.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace mha::python {

namespace {

using Parallel = void (*)(void (*body)(void*), void* state, unsigned threads, unsigned flags);  // as compilers call it since GCC 4.9

std::atomic<Parallel> parallel{nullptr};

/// One parallel_for: each thread of the team takes indices until none are left, so a team smaller than was asked for does all of it.
struct Run {
  std::atomic<Index> next{0};
  Index n;
  void (*body)(void*, Index);
  void* state;
};

void take_turns(void* opaque) {
  Run& run = *static_cast<Run*>(opaque);
  for (Index i = run.next.fetch_add(1); i < run.n; i = run.next.fetch_add(1)) run.body(run.state, i);
}

void run_on_openmp(void*, Index n, void (*body)(void*, Index), void* state) {
  Run run{.n = n, .body = body, .state = state};
  parallel.load()(take_turns, &run, static_cast<unsigned>(n), 0);
}

/// Whether a libgomp is loaded; it is then computed with from here on, by all threads of the process.
bool share_openmp() {
  void* const library = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);  // kept: its pool must not go
  if (library == nullptr) return false;
  // POSIX allows the conversion of what dlsym gives
  const auto found = reinterpret_cast<Parallel>(dlsym(library, "GOMP_parallel"));
  if (found == nullptr) return false;
  // The pool's threads are not there in a forked child, where libgomp would wait for them for ever: there TBB computes again.
  static const bool watches_forks = pthread_atfork(nullptr, nullptr, [] { parallel = nullptr; }) == 0;
  if (!watches_forks) return false;
  parallel = found;
  return true;
}

}  // namespace

std::optional<Executor> openmp_executor(int threads) {
  if (parallel.load() == nullptr) return std::nullopt;
  return Executor{.parallel_for = run_on_openmp, .context = nullptr, .concurrency = threads};  // a call asks for no more than that
}

void bind_openmp(nanobind::module_& module) {
  module.def("share_openmp", &share_openmp,
             "From here on computes on the threads of the libgomp that is loaded, torch's, if any is: whether one was found.");
}

}  // namespace mha::python
