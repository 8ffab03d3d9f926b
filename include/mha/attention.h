// Exact scaled dot-product attention over several heads: softmax(Q K^T * scale + bias, masked) V. The library's central header.
//
//   mha::Workspace workspace;
//   mha::attention_forward({.mask = mha::causal()}, {.q = q, .k = k, .v = v}, {.out = out}, workspace);
//
// Order of operations, always: QK * scale -> softcap -> + bias -> hide by select -> sink logit joins the denominator -> softmax -> dropout
// -> times V.
// All functions may be called from several threads at once, each with its own Workspace.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mha/bias.h"
#include "mha/mask.h"
#include "mha/statistics.h"
#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha {

/// Where query row 0 sits among the keys. With q_len == kv_len all agree; otherwise a mask needs TopLeft or BottomRight.
enum class Align : std::uint8_t {
  Unset,
  TopLeft,      // offset 0
  BottomRight,  // offset kv_len - q_len; kv_len is kv_lengths[b] where given
};

/// Dropout of attention weights. Whether (batch, head, query, key) survives is a pure function of those four numbers and the seed,
/// so it is the same for any thread count, tiling or batch mates. Survivors are divided by 1 - probability.
struct Dropout {
  float probability = 0.0F;  // 0 = off; must be in [0, 1]
  std::uint64_t seed = 0;
};

/// What to compute. Sizes are not repeated here: they are in the views.
struct AttentionSpec {
  Mask mask = {};
  Align align = Align::Unset;
  Bias bias = NoBias{};
  std::optional<double> scale = {};     // absent: 1 / sqrt(head_dim of q). 0 means 0.
  std::optional<double> softcap = {};   // absent: off; scores become cap * tanh(score / cap), cap > 0
  std::vector<float> sink_logits = {};  // none, or one per head: exp of it joins the head's denominator and nothing else
  Dropout dropout = {};
};

struct AttentionInputs {
  ConstTensorView q;             // [batch, q_len, heads, head_dim]
  ConstTensorView k;             // [batch, kv_len, kv_heads, head_dim]; heads % kv_heads == 0, head h reads h / (heads / kv_heads)
  ConstTensorView v = {};        // [batch, kv_len, kv_heads, value_dim]
  ConstTensorView allowed = {};  // bool, True = may attend, [batch | 1, heads | 1, q_len | 1, kv_len | 1]
  std::span<const Index> kv_lengths = {};  // per batch entry: keys at and beyond it do not exist
};

struct AttentionOutputs {
  TensorView out;           // [batch, q_len, heads, value_dim], q's dtype
  TensorView lse = {};      // on request: natural log of the softmax denominator, a sink included, [batch, heads, q_len], f32 (f64 for f64)
  TensorView weights = {};  // on request: [batch, heads, q_len, kv_len], f32 (f64 for f64), before dropout; each row sums to 1 (less by a
                            // sink's share) or is 0
  RowStatistics statistics = {};  // on request: numbers of every row of weights
};

/// Exact attention. q, k and v share one dtype: f32, bf16, f16 (arithmetic f32) or f64 (the reference, slow). Any sizes, any strides.
/// A row that sees no key gives output 0, weights 0 and lse -inf. Bitwise the same for any number of threads and any batch mates.
/// Throws ShapeError or DTypeError, before any output is touched, where arguments contradict each other.
void attention_forward(const AttentionSpec& spec, const AttentionInputs& inputs, const AttentionOutputs& outputs, Workspace& workspace);

/// How a call of attention_forward is computed: for people and benchmarks (`mha bench --explain`). Another version may cut work otherwise.
struct AttentionPlan {
  std::string_view isa;      // "reference" where the double-precision reference computes (f64 too); it has no plan, the rest is 0
  bool few_rows = false;     // decoding: lanes are elements of head_dim; else rows (queries x heads of a group) lie across the lanes
  bool copies_keys = false;  // whether a tile's keys (values) are first copied to dense f32 rows
  bool copies_values = false;
  Index panel_rows = 0;     // rows that go through the kernels side by side
  Index rows_per_task = 0;  // at most, of one kv head
  Index key_tile = 0;       // keys that are scored at once
  Index splits = 0;         // parts of the keys that are tasks of their own and merged in order; 1: not split
  Index split_keys = 0;     // keys per part
  bool folds = false;       // whether a task sums values in parts of some thousand keys, for precision
  Index tasks = 0;
  int workers = 0;                // threads that will share them
  std::size_t scratch = 0;        // bytes per worker, at most, what it keeps of masks included
  std::size_t merge_scratch = 0;  // bytes for the parts of split keys
  double flops = 0;               // of both products over all (query, key) pairs, masked ones too
};

/// The plan of attention_forward for these arguments on this executor, without running it: no element is read or written. Throws as
/// attention_forward does.
AttentionPlan explain_attention(const AttentionSpec& spec, const AttentionInputs& inputs, const AttentionOutputs& outputs,
                                const Executor& executor);

/// A rectangle of one head's table of weights.
struct WeightsRegion {
  Index batch = 0;
  Index head = 0;
  Interval queries;  // [lo, hi)
  Interval keys;     // [lo, hi)
};

/// Exact weights (before dropout) of any rectangle, recomputed from q, k and the lse of a former attention_forward of the same spec and
/// inputs: no table is ever kept. `inputs.v` is not read and may be absent. `weights` is f32, [queries, keys]. Precision: relative error
/// grows with |lse| * 2^-24. Throws as attention_forward does. Not for f64.
void attention_weights(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, const WeightsRegion& region,
                       TensorView weights, Workspace& workspace);

/// What every key receives: the sum over all queries of their weights on it (before dropout), [batch, heads, kv_len], f32. A second pass
/// over q and k, from the lse of a former attention_forward of the same spec and inputs; memory O(tile) per thread. Precision, `inputs.v`
/// and errors as attention_weights. Bitwise the same for any number of threads.
void attention_received(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, TensorView received,
                        Workspace& workspace);

/// A picture of a rectangle of one head's table at a chosen size, f32, [rows, columns]: at most the rectangle's own. Cell (r, c) holds
/// queries [r * n / rows, (r + 1) * n / rows) of the rectangle's n, and keys likewise. Either may be absent.
struct WeightsMap {
  TensorView mean = {};  // over all pairs of the cell; hidden ones weigh 0, so that mean times pairs adds up to all of the rectangle
  TensorView max = {};
};

/// Mean and maximum of the weights in every cell, computed in tiles: the table is never held. Rows of cells are what threads share out.
/// With cells of one pair it gives what attention_weights does, and precision, `inputs.v` and errors are as there. Bitwise the same for any
/// number of threads.
void attention_map(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, const WeightsRegion& region,
                   const WeightsMap& map, Workspace& workspace);

}  // namespace mha
