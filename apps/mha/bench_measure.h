// How `mha bench` measures: rounds of one problem, and the machine's limits right before and after each of them, since machines change
// speed from minute to minute. Figures only; cmd_bench.cpp prints them.
#pragma once

#include <string_view>
#include <vector>

#include "bench_problems.h"
#include "json_numbers.h"

namespace mha::app {

/// Of several rounds.
struct Spread {
  double median = 0, low = 0, high = 0, least = 0, most = 0;  // low, high: the quartiles
};
Spread spread_of(std::vector<double> values);
Json spread_json(const Spread& spread, double factor);

/// Normal numbers, the same million again and again: speed does not depend on them.
Tensor normal_numbers(DType dtype, const Dims& shape);

/// How often to call what takes so long once, and in how many rounds.
struct RoundPlan {
  Index calls, rounds;
};
RoundPlan plan_rounds(double seconds_of_a_call);

/// What bounds a problem: whichever of arithmetic and reading k and v takes longer at its limit.
enum class Bound : std::uint8_t { Fma, Read };

struct BenchRow {
  BenchProblem problem;
  Index rounds;
  Bound bound;
  Spread seconds;  // of one call
  Spread limit;    // GFLOP/s or GB/s of the machine, by bound; 0: none is known (the reference)
  Spread rate;     // the same of the problem
  Spread share;    // rate / limit, round by round
};
BenchRow measure(const BenchProblem& problem, const Executor& executor);

/// One limit, by one thread and by all.
struct MachineLimit {
  std::string_view name;  // an ISA, or "L2", "L3", "DRAM"
  Index bytes;            // read; 0 for arithmetic
  int threads;
  Spread rate;  // GFLOP/s or GB/s
};
/// One limit's worth of work for each of `machine_limit_count`, so that a caller can show how far it is.
std::size_t machine_limit_count();
MachineLimit measure_limit(std::size_t i);

/// The plan of the problem's attention (of the layer: of the attention inside), without running it.
AttentionPlan explain(const BenchProblem& problem, const Executor& executor);

}  // namespace mha::app
