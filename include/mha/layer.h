// The multi-head attention layer in its two forms: MultiHeadAttention (fused projections, heads as a batch dimension) and
// NaiveMultiHeadAttention (the literal loop over independent heads). One mathematics, agreeing to rounding; `to_naive` and `to_fused`
// convert between their weights.
//
//   mha::MultiHeadAttention layer(config, weights);
//   layer.forward({.x = x}, {.y = y}, workspace);                       // self-attention: y has the shape of x
//   layer.forward({.x = x, .key = memory}, {.y = y}, workspace);        // cross-attention
//
// Const layers may be used from several threads at once, each with its own Workspace.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mha/attention.h"
#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha {

struct MhaConfig {
  Index d_model = 0;
  Index heads = 0;
  Index kv_heads = 0;            // 0: heads
  Index head_dim = 0;            // 0: d_model / heads, which must divide; otherwise free of d_model
  Index key_width = 0;           // width of the tensor keys are projected from; 0: d_model
  Index value_width = 0;         // width of the tensor values are projected from; 0: key_width
  bool bias = true;              // whether all four projections have one
  bool learned_key = false;      // whether a learned key and value (weights' learned_k, learned_v) follow those projected from the input
  bool zero_key = false;         // whether a key and a value of zeros follow, last of all
  AttentionSpec attention = {};  // its dropout acts in training only

  /// Keys that follow those of the input. All that speaks of keys (weights, allowed, bias) counts kv_len + appended_keys(). They have no
  /// position: a call with mask rules or ALiBi is refused where there are any.
  Index appended_keys() const { return (learned_key ? 1 : 0) + (zero_key ? 1 : 0); }
};

/// The config with every 0 replaced by what it stands for. Throws ShapeError, with both numbers, where d_model is not a multiple of heads
/// (head_dim not given), heads not a multiple of kv_heads, or a size is below 1.
MhaConfig resolved(MhaConfig config);

/// The layer's weights as torch keeps them: [outputs, inputs]. Biases are absent where the config has none. f32, bf16, f16, or all f64.
struct MhaWeights {
  ConstTensorView wq;              // [heads * head_dim, d_model]
  ConstTensorView wk;              // [kv_heads * head_dim, key_width]
  ConstTensorView wv;              // [kv_heads * head_dim, value_width]
  ConstTensorView wo;              // [d_model, heads * head_dim]
  ConstTensorView bq = {};         // [heads * head_dim]
  ConstTensorView bk = {};         // [kv_heads * head_dim]
  ConstTensorView bv = {};         // [kv_heads * head_dim]
  ConstTensorView bo = {};         // [d_model]
  ConstTensorView learned_k = {};  // [kv_heads * head_dim]; absent where the config has no learned_key
  ConstTensorView learned_v = {};  // [kv_heads * head_dim]
};

/// Weights that own their memory.
struct MhaParameters {
  Tensor wq, wk, wv, wo, bq, bk, bv, bo, learned_k = {}, learned_v = {};
  MhaWeights view() const;
};

/// Xavier (Glorot & Bengio 2010) uniform weights, U(-a, a) with a = sqrt(6 / (inputs + outputs)), biases 0. Where the three input
/// projections have one shape they are initialised as one packed matrix of 3 * outputs rows, as torch does; a learned key and value count
/// as square, as there. Same seed, same weights.
MhaParameters xavier_parameters(const MhaConfig& config, std::uint64_t seed);

struct MhaInputs {
  ConstTensorView x;                               // [batch, q_len, d_model], f32 (f64 where the weights are)
  ConstTensorView key = {};                        // [batch, kv_len, key_width]; absent: x
  ConstTensorView value = {};                      // [batch, kv_len, value_width]; absent: key
  ConstTensorView allowed = {};                    // as in AttentionInputs
  std::span<const Index> kv_lengths = {};          // not with appended keys, which would lie beyond them: `allowed` says it there
  ConstTensorView bias = {};                       // of this call, as DenseBias takes it; only where the config's attention has none
  bool training = false;                           // whether dropout acts
  std::optional<std::uint64_t> dropout_seed = {};  // of this call; absent: the config's
  float temperature = 1.0F;  // every head's scores are divided by it, > 0: below 1 sharpens the weights, above 1 flattens them
};

/// What a hook sees between attention and the output projection. Views live until the hook returns.
struct MhaTrace {
  const AttentionSpec& spec;  // as computed: with it, q, k and lse, `attention_weights` gives any weights
  ConstTensorView q;          // [batch, q_len, heads, head_dim]
  ConstTensorView k;          // [batch, kv_len + appended keys, kv_heads, head_dim]
  ConstTensorView v;          // the same
  ConstTensorView lse;        // [batch, heads, q_len]
  TensorView head_out;        // [batch, q_len, heads, head_dim], before W_O: write zeros to ablate a head
  std::span<const Index> kv_lengths;
  ConstTensorView allowed;
  RowStatistics statistics = {};  // what was asked for
};
/// Also called where the executor has stopped the call (Executor::stop): the numbers are then unfinished.
using MhaHook = std::function<void(const MhaTrace&)>;

struct MhaOutputs {
  TensorView y;             // [batch, q_len, d_model], as x; may be x itself
  TensorView weights = {};  // on request, as in AttentionOutputs: [batch, heads, q_len, kv_len + appended keys]
  MhaHook hook = {};
  RowStatistics statistics = {};  // on request, as in AttentionOutputs; its keys count the appended ones
};

/// The layer with one fused matrix per role; heads are a batch dimension of one attention call.
class MultiHeadAttention {
 public:
  /// Copies the weights, packed for the kernels. Throws ShapeError or DTypeError where weights contradict the config.
  MultiHeadAttention(MhaConfig config, const MhaWeights& weights);
  MultiHeadAttention(MultiHeadAttention&&) noexcept;
  MultiHeadAttention& operator=(MultiHeadAttention&&) noexcept;
  ~MultiHeadAttention();

  const MhaConfig& config() const;
  /// Throws ShapeError or DTypeError, before y is touched, where a tensor contradicts the config.
  void forward(const MhaInputs& inputs, const MhaOutputs& outputs, Workspace& workspace) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One head of the naive form: its own matrices, projecting down to head_dim, written as in X W.
struct NaiveHead {
  Tensor wq;                              // [d_model, head_dim]
  Tensor wk;                              // [key_width, head_dim]
  Tensor wv;                              // [value_width, head_dim]
  Tensor bq, bk, bv;                      // [head_dim] or absent
  Tensor learned_k = {}, learned_v = {};  // [head_dim] or absent
};

struct NaiveParameters {
  std::vector<NaiveHead> heads;  // heads of one group carry equal wk, wv, learned_k, learned_v (each its own copy)
  Tensor wo;                     // [heads * head_dim, d_model]
  Tensor bo;                     // [d_model] or absent
};

/// Fused weights split into independent heads, and back. `to_fused` throws ShapeError where heads of one group differ in keys' or values'
/// weights.
NaiveParameters to_naive(const MhaConfig& config, const MhaWeights& weights);
MhaParameters to_fused(const MhaConfig& config, const NaiveParameters& parameters);

/// The layer as the literal loop: every head by itself through its own W_q, W_k, W_v and attention, then concatenation, then W_O.
class NaiveMultiHeadAttention {
 public:
  NaiveMultiHeadAttention(MhaConfig config, NaiveParameters parameters);
  const MhaConfig& config() const { return config_; }
  const NaiveParameters& parameters() const { return parameters_; }
  /// As MultiHeadAttention::forward. The hook is called once, with all heads.
  void forward(const MhaInputs& inputs, const MhaOutputs& outputs, Workspace& workspace) const;

 private:
  MhaConfig config_;
  NaiveParameters parameters_;
};

}  // namespace mha
