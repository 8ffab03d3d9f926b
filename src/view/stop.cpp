// Stop: an executor around another one.
#include "view/stop.h"

#include "core/check.h"
#include "view/request.h"

namespace mha::view {

Stop::Stop(const Executor& executor, double seconds, const std::atomic<bool>* gone)
    : executor_(executor),
      end_(std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))),
      seconds_(seconds),
      gone_(gone) {}

Executor Stop::executor() { return {.parallel_for = run, .context = this, .concurrency = executor_.concurrency, .stop = asked}; }

bool Stop::is_time() const {
  if (stopped_.load(std::memory_order_relaxed)) return true;
  const bool now = (gone_ != nullptr && gone_->load(std::memory_order_relaxed)) || std::chrono::steady_clock::now() >= end_ ||
                   (executor_.stop != nullptr && executor_.stop(executor_.context));
  if (now) stopped_.store(true, std::memory_order_relaxed);
  return now;
}

bool Stop::asked(void* context) { return static_cast<const Stop*>(context)->is_time(); }

void Stop::run(void* context, Index n, void (*body)(void* state, Index i), void* state) {
  const Executor& executor = static_cast<const Stop*>(context)->executor_;
  executor.parallel_for(executor.context, n, body, state);
}

void Stop::check() const {
  if (!is_time()) return;
  throw RequestError(503, core::join("the computation was ended: it took longer than ", seconds_, " s, or the client left"),
                     "ask for less: a shorter text, fewer rows");
}

}  // namespace mha::view
