// How a model's answers change as its heads go, one after another: which order, and how far. What then goes for good is written by
// mha/model/prune.h. Used by `mha prune`.
//
//   std::vector<mha::HeadId> order = mha::removal_order(mha::head_effects(model, some_texts, mha::Ablation::Zero, workspace));
//   std::vector<mha::PruningPoint> curve = mha::pruning_curve(model, other_texts, order, {0, 12, 24}, workspace);
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mha/analysis/ablation.h"

namespace mha {

/// Heads by the change of the sentence's vector when each alone is taken away (HeadEffect::vector), the least first; equal ones by layer,
/// then head.
std::vector<HeadId> removal_order(std::span<const HeadEffect> effects);

/// The same heads in an order of chance: what the order above is held against. Same seed, same order.
std::vector<HeadId> random_order(std::span<const HeadId> heads, std::uint64_t seed);

/// The model without the first `removed` heads of an order, beside the whole model.
struct PruningPoint {
  std::size_t removed = 0;
  double cosine = 1.0;  // of the sentence vectors without and with them: mean over texts
  /// Spearman's rank correlation of the similarities (cosines of sentence vectors) of all pairs of texts, without and with them. NaN for
  /// fewer than three texts.
  double correlation = 1.0;
};

/// A point for each of `counts`, 0 allowed; heads give 0 where they are taken away. `begin`, on request, is called as each text begins.
/// Throws ShapeError without texts, for a count beyond the order, and what run_without throws.
std::vector<PruningPoint> pruning_curve(const Transformer& model, std::span<const TextIds> texts, std::span<const HeadId> order,
                                        std::span<const std::size_t> counts, Workspace& workspace, const std::function<void()>& begin = {});

/// Spearman's rank correlation: Pearson's of the ranks, equal numbers having the mean of theirs. NaN where one list is all equal, or has
/// fewer than two numbers. Throws ShapeError where their lengths differ.
double rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace mha
