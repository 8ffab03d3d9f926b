// Orders of heads and the curve along one: each text is run once for all points (run_without), its sentence vectors are kept, and the
// similarities of pairs are taken at the end.
#include "mha/analysis/pruning.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

/// Ranks from 0, equal numbers having the mean of theirs.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> rank(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) rank[order[i]] = static_cast<double>(begin + end - 1) / 2.0;
    begin = end;
  }
  return rank;
}

/// Sentence vectors of all texts at one point, of length 1 each.
using Vectors = std::vector<std::vector<double>>;

/// Of all pairs of texts.
std::vector<double> similarities(const Vectors& vectors) {
  std::vector<double> all;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) all.push_back(std::inner_product(vectors[i].begin(), vectors[i].end(), vectors[j].begin(), 0.0));
  }
  return all;
}

}  // namespace

std::vector<HeadId> removal_order(std::span<const HeadEffect> effects) {
  std::vector<HeadEffect> sorted(effects.begin(), effects.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const HeadEffect& a, const HeadEffect& b) { return a.vector != b.vector ? a.vector < b.vector : a.id < b.id; });
  std::vector<HeadId> order;
  for (const HeadEffect& effect : sorted) order.push_back(effect.id);
  return order;
}

std::vector<HeadId> random_order(std::span<const HeadId> heads, std::uint64_t seed) {
  std::vector<HeadId> order(heads.begin(), heads.end());
  std::mt19937_64 generator(seed);
  // Fisher & Yates by hand: std::shuffle is another one with every standard library. The bias of % is below 1e-15.
  for (std::size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[generator() % left]);
  return order;
}

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  MHA_CHECK(ShapeError, a.size() == b.size(), "rank_correlation: lists of ", a.size(), " and ", b.size(), " numbers");
  const std::vector<double> x = ranks(a);
  const std::vector<double> y = ranks(b);
  const double mean = (static_cast<double>(a.size()) - 1.0) / 2.0;
  double xy = 0.0;
  double xx = 0.0;
  double yy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);  // 0 / 0 where one is all equal
}

std::vector<PruningPoint> pruning_curve(const Transformer& model, std::span<const TextIds> texts, std::span<const HeadId> order,
                                        std::span<const std::size_t> counts, Workspace& workspace, const std::function<void()>& begin) {
  MHA_CHECK(ShapeError, !texts.empty(), "pruning: no texts to measure on");
  std::vector<std::vector<HeadId>> sets{{}};  // the whole model first
  for (const std::size_t count : counts) {
    MHA_CHECK(ShapeError, count <= order.size(), "pruning: ", count, " heads are to go, the order has ", order.size());
    sets.emplace_back(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
  }
  std::vector<Vectors> vectors(sets.size());
  for (const TextIds& ids : texts) {
    if (begin) begin();
    const auto keep = [&](std::size_t set, ConstTensorView hidden) { vectors[set].push_back(sentence_vector(hidden)); };
    run_without(model, ids, sets, {}, keep, workspace);
  }
  const std::vector<double> whole = similarities(vectors[0]);
  std::vector<PruningPoint> curve;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    PruningPoint point{.removed = counts[i], .cosine = 0.0, .correlation = rank_correlation(whole, similarities(vectors[i + 1]))};
    for (std::size_t text = 0; text < texts.size(); ++text) {
      point.cosine += cosine(vectors[0][text], vectors[i + 1][text]) / static_cast<double>(texts.size());
    }
    curve.push_back(point);
  }
  return curve;
}

}  // namespace mha
