#include "attention/lower.h"

#include <cmath>
#include <cstring>

#include "attention/validate.h"

namespace mha::attention {

namespace {

kernels::Storage storage_of(DType dtype) {
  return dtype == DType::Bf16 ? kernels::Storage::Bf16 : dtype == DType::F16 ? kernels::Storage::F16 : kernels::Storage::F32;
}

// Outputs are written through the pointer, inputs never are.
Operand operand(const ConstTensorView& view) {
  Operand result;
  result.data = static_cast<std::byte*>(const_cast<void*>(view.data));
  result.storage = storage_of(view.dtype);
  result.item = static_cast<Index>(size_of(view.dtype));
  for (int axis = 0; axis < view.rank(); ++axis) result.stride[axis] = view.size(axis) == 1 ? 0 : view.stride(axis);
  // An axis of one element may have any stride; the last one reads as contiguous.
  if (view.rank() == 4 && view.size(3) == 1) result.stride[3] = 1;
  return result;
}

// Unlike `operand`, an axis of size 1 is repeated.
Operand broadcast(const ConstTensorView& view) {
  Operand result = operand(view);
  if (view.rank() == 4 && view.size(3) == 1) result.stride[3] = 0;
  return result;
}

Statistics lower_statistics(const RowStatistics& wanted) {
  RowStatistics sums = wanted;
  sums.link_weights = sums.link_keys = {};
  return {.wanted = static_cast<bool>(sums),
          .max_score = operand(wanted.max_score),
          .max_key = operand(wanted.max_key),
          .entropy = operand(wanted.entropy),
          .distance = operand(wanted.distance),
          .distance_variance = operand(wanted.distance_variance),
          .first_weight = operand(wanted.first_weight),
          .chosen_weight = operand(wanted.chosen_weight),
          .chosen = operand(wanted.chosen)};
}

LinkTargets lower_links(const RowStatistics& wanted) {
  const TensorView& any = wanted.link_keys ? wanted.link_keys : wanted.link_weights;
  return {operand(wanted.link_weights), operand(wanted.link_keys), any ? any.size(3) : 0};
}

}  // namespace

float element_of(const Operand& from, const std::byte* at) {
  switch (from.storage) {
    case kernels::Storage::Bf16: {
      Bf16 value;
      std::memcpy(&value, at, sizeof value);
      return value.to_float();
    }
    case kernels::Storage::F16: {
      F16 value;
      std::memcpy(&value, at, sizeof value);
      return value.to_float();
    }
    case kernels::Storage::F32:
      break;
  }
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Problem lower(const AttentionSpec& spec, const AttentionInputs& in, const AttentionOutputs& out) {
  Problem p{};
  p.batch = in.q.size(0);
  p.q_len = in.q.size(1);
  p.heads = in.q.size(2);
  p.head_dim = in.q.size(3);
  p.kv_heads = in.k.size(2);
  p.group = p.kv_heads == 0 ? 1 : p.heads / p.kv_heads;
  p.kv_len = in.k.size(1);
  p.value_dim = in.v.rank() == 4 ? in.v.size(3) : 0;  // v is absent for attention_weights; one of no elements may have no data
  p.scale = spec.scale ? static_cast<float>(*spec.scale) : 1.0F / std::sqrt(static_cast<float>(p.head_dim));
  p.q = operand(in.q);
  p.k = operand(in.k);
  p.v = operand(in.v);
  p.out = operand(out.out);
  p.lse = operand(out.lse);
  p.weights = operand(out.weights);
  p.allowed = broadcast(in.allowed);
  if (const auto* dense = std::get_if<DenseBias>(&spec.bias)) p.bias = broadcast(dense->values);
  p.spec = &spec;
  p.inputs = &in;
  p.statistics = lower_statistics(out.statistics);
  p.links = lower_links(out.statistics);
  return p;
}

kernels::Rows fetch(const kernels::KernelTable& kernels, const Block& block, float* copy, bool always_copy) {
  const Operand& from = *block.from;
  if (from.plain() && !always_copy) return {reinterpret_cast<const float*>(block.first), block.stride, block.rows, block.dim};
  if (from.stride[3] == 1) {
    kernels.load_rows[static_cast<int>(from.storage)](block.first, block.stride, block.rows, block.dim, copy, block.dim);
  } else {
    for (Index r = 0; r < block.rows; ++r) {
      for (Index d = 0; d < block.dim; ++d) {
        copy[r * block.dim + d] = element_of(from, block.first + (r * block.stride + d * from.stride[3]) * from.item);
      }
    }
  }
  return {copy, block.dim, block.rows, block.dim};
}

StoredBlock StoredBlock::slice(Index first, Index count) const {
  const Index item = storage == kernels::Storage::F32 ? 4 : 2;
  return {{static_cast<const std::byte*>(rows.data) + first * rows.stride * item, rows.stride, count, rows.dim}, storage};
}

void ask_for(const Block& block, Index part, Index parts) {
  const Operand& from = *block.from;
  if (from.stride[3] != 1) return;
  for (Index r = block.rows * part / parts; r < block.rows * (part + 1) / parts; ++r) {
    const std::byte* row = block.first + r * block.stride * from.item;
    for (Index byte = 0; byte < block.dim * from.item; byte += 64) __builtin_prefetch(row + byte, 0, 2);
  }
}

StoredBlock fetch_stored(const kernels::KernelTable& kernels, const Block& block, float* copy) {
  if (block.from->stride[3] == 1) return {{block.first, block.stride, block.rows, block.dim}, block.from->storage};
  const kernels::Rows rows = fetch(kernels, block, copy);
  return {{rows.data, rows.stride, rows.count, rows.dim}, kernels::Storage::F32};
}

void deliver(const kernels::KernelTable& kernels, const float* row, Index dim, const Operand& to, std::byte* first) {
  if (to.stride[3] == 1) {
    kernels.store_row[static_cast<int>(to.storage)](row, dim, first);
    return;
  }
  for (Index d = 0; d < dim; ++d) kernels.store_row[static_cast<int>(to.storage)](row + d, 1, first + d * to.stride[3] * to.item);
}

}  // namespace mha::attention
