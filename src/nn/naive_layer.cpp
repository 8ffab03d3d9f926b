// The layer as its definition reads: for every head by itself Q = X W_q, K = X W_k, V = X W_v and Z = attention(Q, K, V); then the
// concatenation of all Z times W_O. Meant to be read and to check the fused form against; shares no code with its projections.
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "attention/row_numbers.h"
#include "core/check.h"
#include "mha/layer.h"
#include "nn/appended.h"
#include "nn/layer_checks.h"

namespace mha {
namespace {

template <class T>
void multiply_rows(const ConstTensorView& x, const Tensor& w, const Tensor& b, const TensorView& y) {
  const Index inputs = w.size(0);
  const Index outputs = w.size(1);
  for (Index i = 0; i < x.size(0); ++i) {
    for (Index r = 0; r < x.size(1); ++r) {
      const T* row = x.as<T>() + i * x.stride(0) + r * x.stride(1);
      T* out = y.as<T>() + i * y.stride(0) + r * y.stride(1);
      for (Index n = 0; n < outputs; ++n) out[n * y.stride(2)] = b ? b.data<T>()[n] : T{0};
      for (Index d = 0; d < inputs; ++d) {
        const T* weights = w.data<T>() + d * outputs;
        for (Index n = 0; n < outputs; ++n) out[n * y.stride(2)] += row[d * x.stride(2)] * weights[n];
      }
    }
  }
}

/// Y = X W + b for x [batch, length, inputs], w [inputs, outputs], y [batch, length, outputs].
void multiply(const ConstTensorView& x, const Tensor& w, const Tensor& b, const TensorView& y) {
  if (w.dtype() == DType::F64) {
    multiply_rows<double>(x, w, b, y);
  } else {
    multiply_rows<float>(x, w, b, y);
  }
}

/// Head h of a [batch, length, heads, head_dim] tensor as [batch, length, head_dim].
TensorView columns_of(const Tensor& tensor, Index h) {
  const ConstTensorView view = tensor.view();
  const Dims& s = view.strides;
  auto* data = static_cast<std::byte*>(const_cast<void*>(view.data)) + h * s[2] * static_cast<Index>(size_of(view.dtype));
  return {data, view.dtype, {view.size(0), view.size(1), view.size(3)}, {s[0], s[1], s[3]}};
}

/// [batch, length, dim] as [batch, length, `heads` times the same head, dim].
ConstTensorView as_heads(const ConstTensorView& x, Index heads = 1) {
  return {x.data, x.dtype, {x.size(0), x.size(1), heads, x.size(2)}, {x.stride(0), x.stride(1), 0, x.stride(2)}};
}

/// Head h's part of something that may have an axis of heads (number 1): itself where there is none to choose from.
ConstTensorView part_of(const ConstTensorView& view, Index h) {
  return view && view.rank() == 4 && view.size(1) > 1 ? view.slice(1, h, h + 1) : view;
}

/// The spec of head h alone, for `copies` equal heads.
AttentionSpec spec_of(const AttentionSpec& spec, Index h, Index copies) {
  AttentionSpec own = spec;
  if (const auto* dense = std::get_if<DenseBias>(&spec.bias)) own.bias = DenseBias{part_of(dense->values, h)};
  const auto repeated = [&](const std::vector<float>& per_head) {
    return std::vector<float>(static_cast<std::size_t>(copies), per_head[static_cast<std::size_t>(h)]);
  };
  if (const auto* alibi = std::get_if<AlibiBias>(&spec.bias)) own.bias = AlibiBias{repeated(alibi->slopes)};
  if (!spec.sink_logits.empty()) own.sink_logits = repeated(spec.sink_logits);
  return own;
}

/// Head h's part of the statistics that are asked for, [batch, 1, q_len] each.
RowStatistics statistics_of(const RowStatistics& all, Index h) {
  RowStatistics own{.chosen = all.chosen};
  for (const attention::RowNumber& number : attention::kRowNumbers) {
    if (all.*number.view) own.*number.view = (all.*number.view).slice(1, h, h + 1);
  }
  return own;
}

/// One head's z, lse and (where asked for) weights and statistics; `q`, `k`, `v` and `z` are [batch, length, head_dim].
struct OneHead {
  ConstTensorView q, k, v;
  TensorView z;
  TensorView lse;      // [batch, 1, q_len]
  TensorView weights;  // [batch, 1, q_len, kv_len] or absent
  RowStatistics statistics;
};

/// Statistics of `copies` heads, as many numbers as of the one that is wanted, and the memory they are in.
struct CopiedStatistics {
  CopiedStatistics(const RowStatistics& wanted, Index copies) : views{.chosen = wanted.chosen} {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const TensorView& one = wanted.*attention::kRowNumbers[i].view;
      if (!one) continue;
      Dims shape = one.shape;
      shape[1] = copies;
      memory[i] = Tensor(one.dtype, shape);
      views.*attention::kRowNumbers[i].view = memory[i];
    }
  }
  /// The last head's.
  void copy_to(const RowStatistics& wanted) const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (memory[i]) copy(memory[i].view().slice(1, memory[i].size(1) - 1, memory[i].size(1)), wanted.*attention::kRowNumbers[i].view);
    }
  }
  std::array<Tensor, attention::kRowNumbers.size()> memory;
  RowStatistics views;
};

/// Attention of head number h alone. Which weights dropout drops depends on the head's number, so with dropout the head is computed as the
/// last of h + 1 equal ones; slow, and only in training.
void attend(const nn::LayerCall& call, const MhaInputs& inputs, Index h, const OneHead& head, Workspace& workspace) {
  const Index copies = call.spec.dropout.probability > 0 ? h + 1 : 1;
  Tensor out(head.z.dtype, {call.batch, call.q_len, copies, head.z.size(2)});
  Tensor lse(head.z.dtype, {call.batch, copies, call.q_len});
  Tensor weights = head.weights ? Tensor(head.weights.dtype, {call.batch, copies, call.q_len, call.keys}) : Tensor();
  const CopiedStatistics statistics(head.statistics, copies);
  attention_forward(spec_of(call.spec, h, copies),
                    {.q = as_heads(head.q, copies),
                     .k = as_heads(head.k),
                     .v = as_heads(head.v),
                     .allowed = part_of(inputs.allowed, h),
                     .kv_lengths = inputs.kv_lengths},
                    {.out = out, .lse = lse, .weights = weights, .statistics = statistics.views}, workspace);
  copy(columns_of(out, copies - 1), head.z);
  copy(lse.view().slice(1, copies - 1, copies), head.lse);
  if (head.weights) copy(weights.view().slice(1, copies - 1, copies), head.weights);
  statistics.copy_to(head.statistics);
}

}  // namespace

NaiveMultiHeadAttention::NaiveMultiHeadAttention(MhaConfig config, NaiveParameters parameters)
    : config_(resolved(std::move(config))), parameters_(std::move(parameters)) {
  nn::check_naive(config_, parameters_);
}

void NaiveMultiHeadAttention::forward(const MhaInputs& inputs, const MhaOutputs& outputs, Workspace& workspace) const {
  const DType dtype = parameters_.wo.dtype();
  const nn::LayerCall call = nn::checked_call(config_, dtype, inputs, outputs);
  nn::check_per_head(config_, call, inputs, outputs);

  Tensor q(dtype, {call.batch, call.q_len, config_.heads, config_.head_dim});
  Tensor k(dtype, {call.batch, call.keys, config_.heads, config_.head_dim});
  Tensor v(dtype, {call.batch, call.keys, config_.heads, config_.head_dim});
  Tensor concat(dtype, {call.batch, call.q_len, config_.heads, config_.head_dim});
  Tensor lse(dtype, {call.batch, config_.heads, call.q_len});
  for (Index h = 0; h < config_.heads; ++h) {
    const NaiveHead& head = parameters_.heads[static_cast<std::size_t>(h)];
    const TensorView q_h = columns_of(q, h), k_h = columns_of(k, h), v_h = columns_of(v, h), z_h = columns_of(concat, h);
    multiply(call.x, head.wq, head.bq, q_h);                               // Q^h = X W_q^h + b_q^h
    multiply(call.key, head.wk, head.bk, k_h.slice(1, 0, call.kv_len));    // K^h = X W_k^h + b_k^h, and the appended ones
    multiply(call.value, head.wv, head.bv, v_h.slice(1, 0, call.kv_len));  // V^h = X W_v^h + b_v^h
    nn::put_last(nn::appended_rows(config_, head.learned_k, config_.head_dim, dtype), k_h);
    nn::put_last(nn::appended_rows(config_, head.learned_v, config_.head_dim, dtype), v_h);
    const TensorView weights_h = outputs.weights ? outputs.weights.slice(1, h, h + 1) : TensorView();
    attend(call, inputs, h, {q_h, k_h, v_h, z_h, lse.view().slice(1, h, h + 1), weights_h, statistics_of(outputs.statistics, h)},
           workspace);  // Z^h
  }
  if (outputs.hook) {
    const Index group = config_.heads / config_.kv_heads;
    const auto every_group = [&](const Tensor& t) {  // heads of one group hold equal k and v: one of each is shown
      const ConstTensorView all = t.view();
      return ConstTensorView(all.data, dtype, {call.batch, call.keys, config_.kv_heads, config_.head_dim},
                             {all.stride(0), all.stride(1), all.stride(2) * group, 1});
    };
    outputs.hook({call.spec, q, every_group(k), every_group(v), lse, concat, inputs.kv_lengths, inputs.allowed, outputs.statistics});
  }
  multiply(concat.view().reshape({call.batch, call.q_len, config_.heads * config_.head_dim}), parameters_.wo, parameters_.bo, outputs.y);
}

}  // namespace mha
