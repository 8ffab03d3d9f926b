// How work is spread over threads (Executor) and where its scratch memory lives (Workspace).
#pragma once

#include <cstddef>
#include <memory>

#include "mha/tensor.h"

namespace mha {

/// A thread pool as one function pointer. `parallel_for` calls body(state, i) for every i in [0, n), from any threads, in any order,
/// and returns when all are done. Results never depend on `concurrency`. An engine brings its own pool here.
/// `stop`, where given, is asked before each task, from any of the threads: once it says true, the tasks that are left are skipped and the
/// call returns soon, with outputs that hold nothing of use. It must not throw.
struct Executor {
  void (*parallel_for)(void* context, Index n, void (*body)(void* state, Index i), void* state) = nullptr;
  void* context = nullptr;
  int concurrency = 1;  // at most this many bodies run at once
  bool (*stop)(void* context) = nullptr;
};

/// All cores, by TBB.
Executor default_executor();
/// The calling thread only.
Executor serial_executor();

class Arena;

/// Executor and scratch memory of a call. Keep one per calling thread and reuse it: it grows and never shrinks, so a repeated call
/// allocates nothing. Not for use by two threads at once.
class Workspace {
 public:
  Workspace();  // default_executor()
  explicit Workspace(Executor executor);
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  ~Workspace();

  const Executor& executor() const;
  /// Scratch memory held at present.
  std::size_t bytes() const;

  /// For the library: worker `i`'s private scratch, 0 <= i < executor().concurrency, and the caller's, for what lives across tasks.
  Arena& arena(int i);
  Arena& caller_arena();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mha
