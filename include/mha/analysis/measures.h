// What one head does in one sentence, as a single number. Formulas follow the papers named beside each; heads count from 0.
// Adding a measure: its name in `Measure`, its line and its formula in src/analysis/measures.cpp, its case in
// tests/analysis/measures_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "mha/analysis/head_table.h"

namespace mha {

enum class Measure : std::uint8_t { Special, Entropy, Confidence, Previous, Next, Self, Distance };

struct MeasureInfo {
  Measure measure;
  std::string_view name;     // "entropy"
  std::string_view meaning;  // one line for a legend
  bool share;                // a share of attention, between 0 and 1
};

/// All measures, the default one first.
std::span<const MeasureInfo> measures();

/// Mean over the given rows (units that attend) of the measure; all units, special ones included, count as attended to. 0 without rows, NaN
/// for a head that was removed from the model (HeadTable::present).
double measure(Measure which, const HeadTable& table, HeadId id, std::span<const Unit> units, std::span<const Index> rows);

/// The measure of one row, whose unit is `units[from]`. Throws ShapeError where weights and units differ in number or `from` is not there.
double measure_row(Measure which, std::span<const float> weights, std::span<const Unit> units, Index from);

}  // namespace mha
