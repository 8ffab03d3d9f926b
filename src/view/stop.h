// When a computation is to end early: the client has left, or its time is up. Used wherever this room computes.
#pragma once

#include <atomic>
#include <chrono>

#include "mha/workspace.h"

namespace mha::view {

/// One request's executor: another one that stops. Lives as long as the request.
class Stop {
 public:
  Stop(const Executor& executor, double seconds, const std::atomic<bool>* gone);
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  Executor executor();
  /// Throws RequestError (503) once it is time; what was computed since the last call that did not throw is worth nothing otherwise.
  void check() const;

 private:
  bool is_time() const;
  static bool asked(void* context);
  static void run(void* context, Index n, void (*body)(void* state, Index i), void* state);

  Executor executor_;
  std::chrono::steady_clock::time_point end_;
  double seconds_;
  const std::atomic<bool>* gone_;
  mutable std::atomic<bool> stopped_{false};  // once said, always said: between a task that was skipped and check() time must not turn
};

}  // namespace mha::view
