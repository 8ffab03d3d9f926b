// A few threads that compute answers, and a bounded queue before them: the cheapest first, so that a short question is answered soon
// however many long ones wait. Used by server.cpp.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
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

  Computations(int threads, int waiting);
  /// Refuses what waits and joins the threads.
  ~Computations();
  Computations(const Computations&) = delete;
  Computations& operator=(const Computations&) = delete;

  void add(Job job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<std::size_t, Job> waiting_;  // by cost; equal costs in the order they came
  std::size_t most_waiting_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mha::serve
