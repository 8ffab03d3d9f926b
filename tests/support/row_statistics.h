// Statistics of rows held against a table of weights that is held: plain sums over the table, with what rounding may make of them. Used by
// the tests of the layer and the encoder; attention's own are compared with its oracle (problem.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "mha/layer.h"
#include "support/near.h"

namespace mha::test {

/// Memory for all statistics of `rows` [batch, heads, q_len].
struct KeptStatistics {
  KeptStatistics(const Dims& rows, DType dtype, const ConstTensorView& chosen)
      : max_score(dtype, rows),
        max_key(DType::I64, rows),
        entropy(dtype, rows),
        distance(dtype, rows),
        distance_variance(dtype, rows),
        first_weight(dtype, rows),
        chosen_weight(dtype, rows),
        link_weights(dtype, {rows[0], rows[1], rows[2], kLinks}),
        link_keys(DType::I64, link_weights.shape()),
        asked{max_score, max_key, entropy, distance, distance_variance, first_weight, chosen_weight, link_weights, link_keys, chosen} {}
  static constexpr Index kLinks = 5;
  Tensor max_score, max_key, entropy, distance, distance_variance, first_weight, chosen_weight, link_weights, link_keys;
  RowStatistics asked;
};

/// What one row's numbers should be.
struct PlainRow {
  double entropy = 0, total = 0, distance = 0, square = 0, chosen = 0, largest = -1;
  std::vector<double> sorted;  // all weights, the largest first

  PlainRow(const ConstTensorView& weights, const ConstTensorView& chosen_keys, Index b, Index h, Index q) {
    for (Index key = 0; key < weights.size(3); ++key) {
      const double weight = element(weights, b, h, q, key);
      const auto gap = static_cast<double>(std::abs(q - key));
      if (weight > 0) entropy -= weight * std::log(weight);
      total += weight;
      sorted.push_back(weight);
      distance += weight * gap;
      square += weight * gap * gap;
      largest = std::max(largest, weight);
      if (element(chosen_keys, chosen_keys.size(0) == 1 ? 0 : b, key) != 0) chosen += weight;
    }
    std::sort(sorted.rbegin(), sorted.rend());
    if (total == 0) return;
    distance /= total;
    square /= total;
  }
};

/// Empty where `got` (all of it) says of every row what `weights` [batch, heads, q_len, kv_len] and lse say, each weight and each score
/// being off by `relative`; query q at position q. Else the first number that does not.
inline std::string beyond_table(const RowStatistics& got, const ConstTensorView& weights, const ConstTensorView& lse, double relative) {
  std::ostringstream wrong;
  for_each_position(lse.shape, [&](Index b, Index h, Index q, Index) {
    const PlainRow row(weights, got.chosen, b, h, q);
    const auto expect = [&](const char* name, const ConstTensorView& view, double expected, double error) {
      const double value = element(view, b, h, q);
      if (value == expected || std::abs(value - expected) <= error + std::ldexp(1.0, -126)) return;
      wrong << name << "[" << b << ", " << h << ", " << q << "] is " << value << ", the table says " << expected << " +- " << error << "\n";
    };
    expect("entropy", got.entropy, row.entropy, 2 * relative * (row.entropy + 1));
    expect("distance", got.distance, row.distance, 2 * relative * row.distance);
    expect("distance_variance", got.distance_variance, row.square - row.distance * row.distance, 4 * relative * row.square);
    expect("first_weight", got.first_weight, element(weights, b, h, q, 0), relative * element(weights, b, h, q, 0));
    expect("chosen_weight", got.chosen_weight, row.chosen, relative * row.chosen);
    expect("max_score", got.max_score, std::log(row.largest) + element(lse, b, h, q), relative);
    const auto key = static_cast<Index>(element(got.max_key, b, h, q));
    const bool found = row.total == 0 ? key == -1 : key >= 0 && element(weights, b, h, q, key) >= row.largest * (1 - 4 * relative);
    if (!found) wrong << "max_key[" << b << ", " << h << ", " << q << "] is " << key << "\n";
    for (Index i = 0; got.link_keys && i < got.link_keys.size(3); ++i) {
      const auto link = static_cast<Index>(element(got.link_keys, b, h, q, i));
      const double largest = i < weights.size(3) ? row.sorted[static_cast<std::size_t>(i)] : 0;
      const double there = link < 0 ? 0 : element(weights, b, h, q, link);
      const double off = std::max(std::abs(element(got.link_weights, b, h, q, i) - largest), std::abs(there - largest));
      if (off > 4 * relative * largest + std::ldexp(1.0, -126)) wrong << "link " << i << " of row " << q << " is key " << link << "\n";
    }
  });
  return wrong.str().substr(0, 500);
}

/// How far weights and scores of such a layer may be off: its longest rows of q and k bound the scores, lse is an f32 too.
inline double relative_of(const MhaTrace& trace) {
  const auto longest = [](const ConstTensorView& rows) {
    double longest_square = 0;
    for_each_position({rows.size(0), rows.size(1), rows.size(2)}, [&](Index b, Index r, Index h, Index) {
      double square = 0;
      for (Index d = 0; d < rows.size(3); ++d) square += std::pow(element(rows, b, r, h, d), 2);
      longest_square = std::max(longest_square, square);
    });
    return std::sqrt(longest_square);
  };
  const double scale = std::abs(trace.spec.scale.value_or(1 / std::sqrt(static_cast<double>(trace.q.size(3)))));
  const double scores = scale * longest(trace.q) * longest(trace.k);
  return element_tolerance(trace.q.size(3), trace.k.size(1), scores, trace.q.dtype) + 8 * (scores + 8) * unit_roundoff(trace.q.dtype);
}

}  // namespace mha::test
