// The fused layer: x through W_q, W_k, W_v in one pass, heads as a batch dimension of one attention call, W_O. The projections write
// straight into [batch, length, heads, head_dim]; nothing is ever copied into another layout. Called by users and by src/model.
#include "mha/layer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/arena.h"
#include "nn/appended.h"
#include "nn/layer_checks.h"
#include "nn/linear.h"

namespace mha {

struct MultiHeadAttention::Impl {
  MhaConfig config;
  nn::PackedLinear q, k, v, o;
  Tensor appended_k, appended_v;  // [appended keys, kv_heads * head_dim] in the dtype the layer computes in
};

namespace {

// Rows start an odd number of cache lines apart: at a power of two, the rows of one head would all compete for a few sets of the L1 cache.
Index padded_row(Index width, DType dtype) {
  const auto line = static_cast<Index>(kAlignment / size_of(dtype));
  const Index lines = (width + line - 1) / line;
  return (lines | 1) * line;
}

/// Scratch of shape [batch, length, heads, head_dim], and the same as [batch, length, heads * head_dim].
struct HeadsTensor {
  HeadsTensor(Arena& arena, DType dtype, Dims shape) {
    const Index width = shape[2] * shape[3];
    const Index row = padded_row(width, dtype);
    const Index bytes = element_count({shape[0], shape[1], row * static_cast<Index>(size_of(dtype))});  // throws beyond 63 bits
    const Index length = std::max<Index>(shape[1], 1);  // no stride 0 where there are no rows
    void* data = arena.take<std::byte>(bytes);
    heads = TensorView(data, dtype, shape, {length * row, row, shape[3], 1});
    rows = TensorView(data, dtype, {shape[0], shape[1], width}, {length * row, row, 1});
  }
  TensorView heads;
  TensorView rows;
};

bool same_view(const ConstTensorView& a, const ConstTensorView& b) {
  return a.data == b.data && a.shape == b.shape && a.strides == b.strides;
}

/// The rows of `heads` that are projected from the input.
TensorView projected(const HeadsTensor& heads, Index kv_len) { return heads.rows.slice(1, 0, kv_len); }

/// q = x W_q^T + b_q and so on, in as few passes as there are different inputs.
void project(const nn::LayerCall& call, const std::array<nn::LinearJob, 3>& qkv, Workspace& workspace) {
  const std::span<const nn::LinearJob> jobs(qkv);
  const bool q_with_k = same_view(call.x, call.key);
  const bool k_with_v = same_view(call.key, call.value);
  std::size_t first = 0;
  if (!q_with_k) nn::linear_forward(call.x, jobs.subspan(first++, 1), workspace);
  if (!k_with_v) nn::linear_forward(call.value, jobs.last(1), workspace);
  nn::linear_forward(call.key, jobs.subspan(first, (k_with_v ? 3 : 2) - first), workspace);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(MhaConfig given, const MhaWeights& weights) {
  MhaConfig config = resolved(std::move(given));
  nn::check_weights(config, weights);
  const DType dtype = nn::compute_dtype(weights);
  const Index kv_width = config.kv_heads * config.head_dim;
  Tensor appended_k = nn::appended_rows(config, weights.learned_k, kv_width, dtype);
  Tensor appended_v = nn::appended_rows(config, weights.learned_v, kv_width, dtype);
  impl_.reset(new Impl{.config = std::move(config),
                       .q = {weights.wq, weights.bq, "layer: wq"},
                       .k = {weights.wk, weights.bk, "layer: wk"},
                       .v = {weights.wv, weights.bv, "layer: wv"},
                       .o = {weights.wo, weights.bo, "layer: wo"},
                       .appended_k = std::move(appended_k),
                       .appended_v = std::move(appended_v)});
}

MultiHeadAttention::MultiHeadAttention(MultiHeadAttention&&) noexcept = default;
MultiHeadAttention& MultiHeadAttention::operator=(MultiHeadAttention&&) noexcept = default;
MultiHeadAttention::~MultiHeadAttention() = default;

const MhaConfig& MultiHeadAttention::config() const { return impl_->config; }

void MultiHeadAttention::forward(const MhaInputs& inputs, const MhaOutputs& outputs, Workspace& workspace) const {
  const MhaConfig& config = impl_->config;
  const DType dtype = impl_->q.dtype();
  const nn::LayerCall call = nn::checked_call(config, dtype, inputs, outputs);

  Arena& arena = workspace.caller_arena();
  const ArenaScope scope(arena);
  const HeadsTensor q(arena, dtype, {call.batch, call.q_len, config.heads, config.head_dim});
  const HeadsTensor k(arena, dtype, {call.batch, call.keys, config.kv_heads, config.head_dim});
  const HeadsTensor v(arena, dtype, {call.batch, call.keys, config.kv_heads, config.head_dim});
  const HeadsTensor out(arena, dtype, {call.batch, call.q_len, config.heads, config.head_dim});
  TensorView lse;
  if (outputs.hook) {
    const Dims shape = {call.batch, config.heads, call.q_len};
    lse = TensorView(arena.take<std::byte>(element_count(shape) * static_cast<Index>(size_of(dtype))), dtype, shape);
  }

  project(call, {{{&impl_->q, q.rows}, {&impl_->k, projected(k, call.kv_len)}, {&impl_->v, projected(v, call.kv_len)}}}, workspace);
  nn::put_last(impl_->appended_k, k.rows);
  nn::put_last(impl_->appended_v, v.rows);
  attention_forward(call.spec, {.q = q.heads, .k = k.heads, .v = v.heads, .allowed = inputs.allowed, .kv_lengths = inputs.kv_lengths},
                    {.out = out.heads, .lse = lse, .weights = outputs.weights}, workspace);
  if (outputs.hook) {
    outputs.hook({.spec = call.spec,
                  .q = q.heads,
                  .k = k.heads,
                  .v = v.heads,
                  .lse = lse,
                  .head_out = out.heads,
                  .kv_lengths = inputs.kv_lengths,
                  .allowed = inputs.allowed});
  }
  impl_->o.forward(out.rows, outputs.y, workspace);
}

}  // namespace mha
