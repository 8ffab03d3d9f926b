// What both forms of the layer check before they compute: configs, weights, calls. Pure: throws or returns, touches no element.
#pragma once

#include "mha/layer.h"

namespace mha::nn {

/// Whether the weights are f64, in which case the whole layer computes in double; throws DTypeError where they are mixed with others.
DType compute_dtype(const MhaWeights& weights);

/// Throws ShapeError or DTypeError where weights contradict the (resolved) config.
void check_weights(const MhaConfig& config, const MhaWeights& weights);

/// As check_weights, for the naive form; returns the dtype it computes in. Heads of one group must carry equal wk, wv, bk, bv, learned_k,
/// learned_v.
DType check_naive(const MhaConfig& config, const NaiveParameters& parameters);

/// A call with every absent input replaced by what it stands for, and its sizes.
struct LayerCall {
  ConstTensorView x, key, value;
  Index batch = 0;
  Index q_len = 0;
  Index kv_len = 0;    // of key and value
  Index keys = 0;      // that attention sees: kv_len and the appended ones
  AttentionSpec spec;  // the config's, with the call's bias and dropout seed; no dropout outside training, the temperature in its scale
};

/// Throws ShapeError or DTypeError where a tensor of the call contradicts the (resolved) config. The rest of `allowed`,
/// `kv_lengths`, `weights` and statistics is attention's to check, which it does before any output is touched.
LayerCall checked_call(const MhaConfig& config, DType dtype, const MhaInputs& inputs, const MhaOutputs& outputs);

/// What attention cannot check for the naive form, which hands it one head at a time: the axes of heads.
void check_per_head(const MhaConfig& config, const LayerCall& call, const MhaInputs& inputs, const MhaOutputs& outputs);

}  // namespace mha::nn
