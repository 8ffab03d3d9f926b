// What a run leaves behind of every head: q, k and lse, from which any weight of any head is computed again (attention_weights,
// attention_map, attention_received). No table is held: memory grows with the length of the text. Made from a model here, or read from a
// file of another program (docs/formats.md); what looks at heads later on reads nothing else.
//
//   mha::Capture capture = mha::capture_heads(model, sentence.ids, workspace);
//   mha::captured_weights(capture.layers[5], {.head = 11, .queries = {0, n}, .keys = {0, n}}, weights, workspace);
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mha/analysis/intervention.h"
#include "mha/attention.h"
#include "mha/model/transformer.h"

namespace mha {

/// One call of attention. Views live as long as the Capture.
struct CapturedLayer {
  std::string name = {};          // of the module, where the source says one
  AttentionSpec spec = {};        // as computed
  ConstTensorView q = {};         // [batch, q_len, heads, head_dim]
  ConstTensorView k = {};         // [batch, kv_len, kv_heads, head_dim]
  ConstTensorView v = {};         // [batch, kv_len, kv_heads, value_dim]; absent where the source has none
  ConstTensorView lse = {};       // [batch, heads, q_len]
  ConstTensorView head_out = {};  // [batch, q_len, heads, value_dim], before W_O; absent where the source has none
  ConstTensorView weights = {};   // instead of q, k and lse: [batch, heads, q_len, kv_len]
  ConstTensorView allowed = {};   // as in AttentionInputs
  std::vector<Index> kv_lengths = {};

  Index batch() const { return weights ? weights.size(0) : q.size(0); }
  Index heads() const { return weights ? weights.size(1) : q.size(2); }
  Index kv_heads() const { return weights ? weights.size(1) : k.size(2); }
  Index q_len() const { return weights ? weights.size(2) : q.size(1); }
  Index kv_len() const { return weights ? weights.size(3) : k.size(1); }
  /// For attention_weights and its like. Not where ready weights stand instead of q and k.
  AttentionInputs inputs() const { return {.q = q, .k = k, .v = v, .allowed = allowed, .kv_lengths = kv_lengths}; }
};

struct Capture {
  std::vector<CapturedLayer> layers;
  std::shared_ptr<const void> owner = {};  // of what the views point into
};

/// Runs the model on `ids`, as one text, and keeps q, k, v, lse and the output of every head, after the intervention. `hidden`, on request,
/// receives the last layer's hidden states, [1, pieces, d_model] f32. Throws what `run_with` throws.
Capture capture_heads(const Transformer& model, std::span<const Index> ids, Workspace& workspace, const Intervention& intervention = {},
                      TensorView hidden = {});

/// Exact weights of a rectangle of one head, f32, [queries, keys]: as attention_weights, or a copy of ready ones. Throws ShapeError where
/// the rectangle is not inside.
void captured_weights(const CapturedLayer& layer, const WeightsRegion& region, TensorView weights, Workspace& workspace);

}  // namespace mha
