// Numbers of every row of attention weights, computed in the pass that computes the output: the table of weights is never held.
// Part of AttentionOutputs (mha/attention.h).
#pragma once

#include "mha/tensor.h"

namespace mha {

/// The most links of a row that can be asked for.
inline constexpr Index kMaxLinks = 32;

/// What to tell of each row: of the weights alpha_j it gives to its visible keys j, before dropout. Each is on request (absent views are
/// not written), all are [batch, heads, q_len], f32 (f64 for f64) but for keys, which are i64. Hidden pairs take no part. A row that sees
/// no key has max_score -inf, keys -1 and 0 in all others; one that meets a NaN has NaN, but for max_score and keys, which pass it over.
struct RowStatistics {
  TensorView max_score = {};  // the largest score (scaled, capped, with bias) before softmax
  TensorView max_key = {};    // its key, the first among equals
  TensorView entropy = {};    // -sum of alpha_j ln(alpha_j), in nats (Clark et al. 2019); a sink takes its share and is not counted
  // Of |position of the query - j|, over keys as they weigh among themselves (a sink's share left out): mean, and variance about it. 0 too
  // where a sink leaves no weight that f32 can hold.
  TensorView distance = {};
  TensorView distance_variance = {};
  TensorView first_weight = {};   // alpha_0: what an attention sink takes (Xiao et al. 2023)
  TensorView chosen_weight = {};  // sum of alpha_j over the chosen keys
  // The strongest links: the largest alpha_j from the largest down, the earlier key first among equal scores, and their keys; both
  // [batch, heads, q_len, links], links from 1 to kMaxLinks. Weight 0 and key -1 follow where fewer keys have a score above -inf.
  TensorView link_weights = {};
  TensorView link_keys = {};
  ConstTensorView chosen = {};  // bool, [batch | 1, kv_len]: the keys of chosen_weight

  /// Whether anything is asked for.
  explicit operator bool() const;
};

}  // namespace mha
