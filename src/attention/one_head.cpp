#include "attention/one_head.h"

namespace mha::attention {

namespace {

/// Entry i of an axis, or all of an axis that is broadcast.
ConstTensorView one(const ConstTensorView& view, int axis, Index i) { return view.size(axis) == 1 ? view : view.slice(axis, i, i + 1); }

}  // namespace

OneHead::OneHead(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, Index batch, Index head) : spec_(spec) {
  const Index group = inputs.q.size(2) / inputs.k.size(2);
  const auto of_table = [&](const ConstTensorView& table) { return one(one(table, 0, batch), 1, head); };
  if (const auto* dense = std::get_if<DenseBias>(&spec.bias)) spec_.bias = DenseBias{of_table(dense->values)};
  if (const auto* alibi = std::get_if<AlibiBias>(&spec.bias)) spec_.bias = AlibiBias{{alibi->slopes[static_cast<std::size_t>(head)]}};
  spec_.sink_logits = {};  // lse has the sink's share already
  inputs_.q = one(one(inputs.q, 0, batch), 2, head);
  inputs_.k = one(one(inputs.k, 0, batch), 2, head / group);
  if (inputs.allowed) inputs_.allowed = of_table(inputs.allowed);
  if (!inputs.kv_lengths.empty()) inputs_.kv_lengths = inputs.kv_lengths.subspan(static_cast<std::size_t>(batch), 1);
  problem_ = lower(spec_, inputs_, {});
  const ConstTensorView rows = of_table(lse);
  problem_.lse.data = static_cast<std::byte*>(const_cast<void*>(rows.data));  // read only
  problem_.lse.stride[2] = rows.stride(2);
}

}  // namespace mha::attention
