// Norm-weighted attention: how long the vectors are that a head carries from key to row, not only how much weight it gives them (Kobayashi
// et al. 2020, arXiv 2004.10102): | alpha_ij f(x_j) | = alpha_ij | f(x_j) |, f(x_j) = v_j W_O^h, v with its bias, b_O left out. A weight on
// a key whose value is nearly nothing ([SEP], often) moves nearly nothing. A table of norms is the table of weights, its columns scaled.
//
//   std::vector<double> norms = mha::value_norms(capture.layers[5], model.output_projection(5), 11);
//   mha::captured_norms(capture.layers[5], norms, {.head = 11, .queries = {0, n}, .keys = {0, n}}, table, workspace);
#pragma once

#include <span>
#include <vector>

#include "mha/analysis/capture.h"
#include "mha/analysis/head_table.h"

namespace mha {

/// | f(x_j) | for every key j of one query head, [kv_len]: sqrt(v_j G v_j'), G = W_O^h' W_O^h a [value_dim, value_dim] matrix.
/// `output_projection` is W_O of the layer, [d_model, heads * value_dim]. Throws ShapeError where it does not fit, the capture has no v, or
/// the head or batch entry is not there.
std::vector<double> value_norms(const CapturedLayer& layer, ConstTensorView output_projection, Index head, Index batch = 0);

/// G of every head by layer, then head, [value_dim, value_dim] each: what value_norms needs of a model, computed once for many captures.
using ValueGrams = std::vector<std::vector<double>>;
/// Throws ShapeError where `projections`, W_O of every layer, are not all of `heads` heads.
ValueGrams value_grams(std::span<const ConstTensorView> projections, Index heads);
/// The same norms from the head's own G. Throws ShapeError where it does not fit.
std::vector<double> value_norms_by(const CapturedLayer& layer, std::span<const double> gram, Index head, Index batch = 0);

/// Norms of what is carried in any rectangle of one head, f32 [queries, keys]: captured_weights times `norms` of its keys (all kv_len of
/// them, as value_norms gives them for the same head). Throws ShapeError where they are not kv_len numbers, and as captured_weights.
void captured_norms(const CapturedLayer& layer, std::span<const double> norms, const WeightsRegion& region, TensorView table,
                    Workspace& workspace);

/// W_O of every layer. Views into the model.
std::vector<ConstTensorView> output_projections(const Transformer& model);

/// Weights of all heads of a capture's first batch entry, folded to units as read_heads gives them, without running the model again. Throws
/// ShapeError where units do not fit, q_len is not kv_len, or layers have different numbers of heads.
HeadTable fold_weights(const Capture& capture, std::span<const Unit> units, Workspace& workspace);

/// The same of norms, folded as weights are: summed over the pieces attended to, averaged over those attending. Rows do not sum to 1.
/// `projections` has W_O of every layer. Throws as fold_weights and value_norms do.
HeadTable fold_norms(const Capture& capture, std::span<const ConstTensorView> projections, std::span<const Unit> units,
                     Workspace& workspace);

/// The same with every head's G at hand. Throws ShapeError where they are not one a head.
HeadTable fold_norms_by(const Capture& capture, const ValueGrams& grams, std::span<const Unit> units, Workspace& workspace);

/// Every row divided by its sum, so that measures of shares (measures.h: special, previous, entropy ...) read norms as they read weights.
/// Rows of zeros stay.
HeadTable row_shares(HeadTable table);

}  // namespace mha
