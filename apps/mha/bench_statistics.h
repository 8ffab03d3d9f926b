// What `mha bench` says of numbers of rows: the time of each, beside that of plain attention in the same round. Measuring, and the table's
// and JSON's part of it; cmd_bench.cpp puts them in their places.
#pragma once

#include <string>

#include "bench_measure.h"
#include "json_numbers.h"

namespace mha::app {

struct StatisticsRow {
  BenchProblem problem;
  Index rounds;
  Spread seconds = {};  // of plain attention
  // Beside it, round by round: with all numbers of rows, with 8 and with 32 links of each; weight received, and a map of one head of at
  // most 1,024 x 1,024 cells beside one head's share.
  Spread numbers = {}, links8 = {}, links32 = {}, received = {}, map = {};
};
StatisticsRow measure_statistics(const BenchProblem& problem, const Executor& executor);

/// The columns' names, and one row's line, without a line break.
std::string statistics_columns();
std::string statistics_text(const StatisticsRow& row);
/// The ratios, by name.
Json statistics_json(const StatisticsRow& row);

}  // namespace mha::app
