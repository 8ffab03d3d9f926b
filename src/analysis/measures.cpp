// The measures of a head, each a mean over rows. Sources: Clark et al. 2019 (arXiv 1906.04341), Voita et al. 2019 (arXiv 1905.09418).
#include "mha/analysis/measures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

constexpr std::array<MeasureInfo, 7> kMeasures = {{
    {Measure::Special, "special", "share of attention on special tokens such as [CLS] and [SEP]", true},
    {Measure::Entropy, "entropy", "entropy of the weights in nats: 0 is one word only, higher is more spread", false},
    {Measure::Confidence, "confidence", "largest weight of a row, the last special token not counted", true},
    {Measure::Previous, "previous", "weight on the unit just before", true},
    {Measure::Next, "next", "weight on the unit just after", true},
    {Measure::Self, "self", "weight on the unit itself", true},
    {Measure::Distance, "distance", "mean distance, in units, to what is attended to", false},
}};

struct Row {
  std::span<const float> weights;
  std::span<const Unit> units;
  Index from;
};

double weight_at(const Row& row, Index to) {
  return to >= 0 && to < static_cast<Index>(row.weights.size()) ? static_cast<double>(row.weights[static_cast<std::size_t>(to)]) : 0.0;
}

double special_share(const Row& row) {
  double sum = 0.0;
  for (std::size_t to = 0; to < row.units.size(); ++to) sum += row.units[to].special ? static_cast<double>(row.weights[to]) : 0.0;
  return sum;
}

double entropy(const Row& row) {  // -sum a log a (Clark)
  double sum = 0.0;
  for (float a : row.weights) sum -= a > 0.0F ? static_cast<double>(a) * std::log(static_cast<double>(a)) : 0.0;
  return sum;
}

double confidence(const Row& row) {  // max a, end token excluded (Voita)
  const std::size_t end = row.units.size() - (row.units.back().special ? 1 : 0);
  double best = 0.0;
  for (std::size_t to = 0; to < end; ++to) best = std::max(best, static_cast<double>(row.weights[to]));
  return best;
}

double distance(const Row& row) {  // sum a |i - j| (Clark)
  double sum = 0.0;
  for (std::size_t to = 0; to < row.weights.size(); ++to) {
    sum += static_cast<double>(row.weights[to]) * static_cast<double>(std::abs(static_cast<Index>(to) - row.from));
  }
  return sum;
}

double of_row(Measure which, const Row& row) {
  switch (which) {
    case Measure::Special:
      return special_share(row);
    case Measure::Entropy:
      return entropy(row);
    case Measure::Confidence:
      return confidence(row);
    case Measure::Previous:
      return weight_at(row, row.from - 1);
    case Measure::Next:
      return weight_at(row, row.from + 1);
    case Measure::Self:
      return weight_at(row, row.from);
    case Measure::Distance:
      return distance(row);
  }
  return 0.0;
}

}  // namespace

std::span<const MeasureInfo> measures() { return kMeasures; }

double measure_row(Measure which, std::span<const float> weights, std::span<const Unit> units, Index from) {
  MHA_CHECK(ShapeError, weights.size() == units.size() && from >= 0 && from < static_cast<Index>(units.size()), "measure_row: row ", from,
            " of ", weights.size(), " weights for ", units.size(), " units");
  return of_row(which, {weights, units, from});
}

double measure(Measure which, const HeadTable& table, HeadId id, std::span<const Unit> units, std::span<const Index> rows) {
  MHA_CHECK(ShapeError, static_cast<Index>(units.size()) == table.units(), "measure: ", units.size(), " units for a table of ",
            table.units());
  if (rows.empty()) return 0.0;
  if (!table.present(id)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0.0;
  for (Index from : rows) sum += of_row(which, {table.row(id, from), units, from});
  return sum / static_cast<double>(rows.size());
}

}  // namespace mha
