// The queue of computations: the cheapest first, the dearest refused when it is full, everything answered once.
#include "serve/computations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

namespace mha::serve {
namespace {

TEST(Computations, TheCheapestGoesFirstAndTheDearestGivesWay) {
  std::promise<void> begun, go;
  std::vector<std::string> order;
  std::promise<void> done;
  {
    Computations computations(1, 2);
    const auto record = [&](const std::string& what) { return [&order, what] { order.push_back(what); }; };
    computations.add({.cost = 0,
                      .run =
                          [&] {
                            begun.set_value();
                            go.get_future().wait();
                          },
                      .refuse = record("never")});
    begun.get_future().wait();  // the thread is busy: what follows waits
    computations.add({.cost = 9, .run = record("run 9"), .refuse = record("refuse 9")});
    computations.add({.cost = 5,
                      .run =
                          [&] {
                            order.push_back("run 5");
                            done.set_value();
                          },
                      .refuse = record("refuse 5")});
    computations.add({.cost = 3, .run = record("run 3"), .refuse = record("refuse 3")});
    computations.add({.cost = 7, .run = record("run 7"), .refuse = record("refuse 7")});
    EXPECT_EQ(order, (std::vector<std::string>{"refuse 9", "refuse 7"}));
    go.set_value();
    done.get_future().wait();
  }
  EXPECT_EQ(order, (std::vector<std::string>{"refuse 9", "refuse 7", "run 3", "run 5"}));
}

TEST(Computations, DearOnesLeaveAThreadToShortOnes) {
  constexpr std::size_t kDear = 100;
  std::promise<void> begun, go, all;
  std::atomic<int> dear_begun{0};
  Computations computations(2, 10, kDear);
  const auto never = [] { ADD_FAILURE() << "there is room for all"; };
  const auto gate = go.get_future().share();
  for (int i = 0; i < 3; ++i) {
    computations.add({.cost = kDear,
                      .run =
                          [&, gate] {
                            const int number = ++dear_begun;
                            if (number == 1) begun.set_value();
                            gate.wait();
                            if (number == 3) all.set_value();
                          },
                      .refuse = never});
  }
  begun.get_future().wait();
  for (int i = 0; i < 3; ++i) {  // a thread is there for them, time after time, though dear ones have waited longer
    std::promise<void> short_done;
    computations.add({.cost = kDear - 1, .run = [&] { short_done.set_value(); }, .refuse = never});
    ASSERT_EQ(short_done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }
  EXPECT_EQ(dear_begun, 1);
  go.set_value();
  EXPECT_EQ(all.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready) << "dear ones go on";
}

TEST(Computations, EverythingIsRunOrRefusedOnce) {
  constexpr int kJobs = 300;
  std::atomic<int> run{0}, refused{0};
  {
    Computations computations(3, 10);
    std::promise<void> begun;
    computations.add({.cost = 0, .run = [&] { begun.set_value(); }, .refuse = [&] { ADD_FAILURE() << "nothing else waits"; }});
    begun.get_future().wait();  // from here on a thread works
    for (int i = 0; i < kJobs; ++i) {
      computations.add({.cost = static_cast<std::size_t>(i % 7), .run = [&] { ++run; }, .refuse = [&] { ++refused; }});
    }
  }
  EXPECT_EQ(run + refused, kJobs);
}

}  // namespace
}  // namespace mha::serve
