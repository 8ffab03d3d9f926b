// One run of the multi-head attention layer with every tensor on the way kept: what `mha shapes` and `mha explain` print. All tensors are
// what the library computed; the scores, which it never holds as a table, are the product of its own Q and K, and are held against its
// weights.
#pragma once

#include <optional>

#include "mha/layer.h"

namespace mha::app {

struct LayerWalk {
  MhaConfig config;
  MhaParameters parameters;
  NaiveParameters by_head;    // the same weights, head by head, written as in X W
  Tensor x;                   // [1, tokens, d_model]
  Tensor q;                   // [1, tokens, heads, head_dim]
  Tensor k, v;                // [1, tokens, kv_heads, head_dim]
  Tensor scores;              // [1, heads, tokens, tokens], divided by sqrt(head_dim)
  Tensor weights;             // [1, heads, tokens, tokens]
  Tensor z;                   // [1, tokens, heads, head_dim]
  Tensor y;                   // [1, tokens, d_model]
  double row_sums_off = 0.0;  // largest distance of a row of weights from sum 1
  double weights_off = 0.0;   // largest difference between the layer's weights and a softmax over `scores`
  double output_off = 0.0;    // largest difference between the layer's output and z W_O, recomputed in double
};

/// What `mha shapes` and `mha explain` let the user choose; absent: the library's default.
struct LayerSizes {
  Index d_model = 0;
  Index heads = 0;
  Index tokens = 0;
  std::optional<Index> head_dim = {};
  std::optional<Index> kv_heads = {};
};

/// The layer's config without bias. Throws Error for sizes that cannot be meant or would not fit in memory; whether sizes fit each other is
/// the library's to say.
MhaConfig walk_config(const LayerSizes& sizes);

/// Runs the layer with Xavier weights of a fixed seed on x, [1, tokens, d_model].
LayerWalk walk_layer(const MhaConfig& config, Tensor x);

/// Standard normal numbers, the same for the same seed.
void fill_normal(TensorView x, std::uint64_t seed);

}  // namespace mha::app
