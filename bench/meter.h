// What every benchmark here reports: GFLOP/s of this thread, and the share of the FMA peak measured just before and after.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string_view>

#include "mha/limits.h"

namespace mha::bench {

/// Made right before the measured loop, stopped right after it. One thread's work; seconds are the thread's own.
class Meter {
 public:
  explicit Meter(std::string_view isa) : isa_(isa), peak_(fma_peak(isa)), seconds_(thread_seconds()) {}

  void stop() {
    seconds_ = thread_seconds() - seconds_;
    peak_ = std::max(peak_, fma_peak(isa_));
  }
  /// `flops`: of one iteration.
  void report(benchmark::State& state, double flops) const {
    const double rate = flops * static_cast<double>(state.iterations()) / seconds_ * 1e-9;
    state.counters["GFLOP/s"] = rate;
    if (peak_ == 0) return;  // the reference
    state.counters["peak"] = peak_;
    state.counters["% of peak"] = 100 * rate / peak_;
  }

 private:
  std::string_view isa_;
  double peak_;
  double seconds_;
};

}  // namespace mha::bench
