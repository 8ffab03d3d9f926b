// A few threads that compute answers, and a bounded queue before them: the cheapest first, so that a short question is answered soon
// however many long ones wait; and a thread that dear ones never get. Used by server.cpp.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace mha::serve {

class Computations {
 public:
  /// `run` is called on one of the threads, or `refuse` where the queue is full of cheaper ones; exactly one of the two, once. Neither may
  /// throw.
  struct Job {
    std::size_t cost = 0;
    std::function<void()> run;
    std::function<void()> refuse;
  };

  /// Jobs that cost `dear` or more run on all threads but one at most (where there is but one, on that), so that short ones always find
  /// one.
  Computations(int threads, int waiting, std::size_t dear = std::numeric_limits<std::size_t>::max());
  /// Refuses what waits and joins the threads.
  ~Computations();
  Computations(const Computations&) = delete;
  Computations& operator=(const Computations&) = delete;

  void add(Job job);

 private:
  void work();
  bool can_run() const;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<std::size_t, Job> waiting_;  // by cost; equal costs in the order they came
  std::size_t most_waiting_;
  std::size_t dear_;
  int most_dear_, running_dear_ = 0;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mha::serve
