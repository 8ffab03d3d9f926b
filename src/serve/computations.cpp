// The queue is a multimap by cost: its first is run next, its last gives way when it is full.
#include "serve/computations.h"

#include <algorithm>
#include <utility>

namespace mha::serve {

Computations::Computations(int threads, int waiting, std::size_t dear)
    : most_waiting_(static_cast<std::size_t>(waiting)), dear_(dear), most_dear_(std::max(1, threads - 1)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Computations::~Computations() {
  std::multimap<std::size_t, Job> left;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    left.swap(waiting_);
  }
  wake_.notify_all();
  for (const auto& [cost, job] : left) job.refuse();
  for (std::thread& thread : threads_) thread.join();
}

void Computations::add(Job job) {
  std::function<void()> refuse;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t cost = job.cost;
    waiting_.emplace(cost, std::move(job));
    if (waiting_.size() > most_waiting_) {
      refuse = std::move(std::prev(waiting_.end())->second.refuse);
      waiting_.erase(std::prev(waiting_.end()));
    }
  }
  wake_.notify_one();
  if (refuse) refuse();
}

/// The cheapest is the first: where that one is too dear for now, all are.
bool Computations::can_run() const { return !waiting_.empty() && (waiting_.begin()->first < dear_ || running_dear_ < most_dear_); }

void Computations::work() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ended_ || can_run(); });
      if (waiting_.empty()) return;
      job = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      if (job.cost >= dear_) ++running_dear_;
    }
    job.run();
    if (job.cost < dear_) continue;
    {
      const std::lock_guard lock(mutex_);
      --running_dear_;
    }
    wake_.notify_one();  // this thread may take a short one next: the next dear one is for another
  }
}

}  // namespace mha::serve
