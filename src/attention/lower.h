// Second step of a call: views and spec become a Problem of plain pointers, strides and sizes, and rows are fetched from it as f32.
// The only place that knows storage types and broadcasting; everything after it sees rows of floats.
#pragma once

#include "kernels/table.h"
#include "mha/attention.h"

namespace mha::attention {

/// A tensor of rank 4 as the kernels' callers see it. Strides count elements and are 0 along broadcast axes.
struct Operand {
  std::byte* data = nullptr;
  kernels::Storage storage = kernels::Storage::F32;
  Index item = 4;  // bytes of one element
  Index stride[4] = {};

  explicit operator bool() const { return data != nullptr; }
  std::byte* at(Index a, Index b, Index c, Index d) const {
    return data + (a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]) * item;
  }
  /// Whether a row of the last axis can be read and written in place, as f32.
  bool plain() const { return storage == kernels::Storage::F32 && item == 4 && stride[3] == 1; }
};

/// Where the numbers of mha/statistics.h go, [batch, heads, q_len, 1]; absent where not asked for.
struct Statistics {
  bool wanted;  // any of them
  Operand max_score, max_key, entropy, distance, distance_variance, first_weight, chosen_weight;
  Operand chosen;  // bools, [batch, kv_len]
};

/// Where the strongest links of each row go, [batch, heads, q_len, count]; either may be absent.
struct LinkTargets {
  Operand weights, keys;
  Index count;  // links per row; 0: not asked for
};

struct Problem {
  Index batch, q_len, kv_len, heads, kv_heads, group, head_dim, value_dim;
  float scale;
  Operand q, k, v, out;           // [batch, length, heads, dim]
  Operand lse;                    // [batch, heads, q_len, 1]; absent if not asked for
  Operand weights;                // [batch, heads, q_len, kv_len]; absent if not asked for
  Operand bias, allowed;          // [batch, heads, q_len, kv_len], broadcast; absent if none
  const AttentionSpec* spec;      // mask, align, bias by distance, softcap, sinks, dropout
  const AttentionInputs* inputs;  // kv_lengths
  Statistics statistics;
  LinkTargets links;

  bool biased() const { return !std::holds_alternative<NoBias>(spec->bias); }
};

/// Of arguments that `validate` has passed; the problem points into spec and inputs.
Problem lower(const AttentionSpec& spec, const AttentionInputs& inputs, const AttentionOutputs& outputs);

/// Where a row comes from. The rows of one kv head, which share its keys, are counted (query, head of the group), the group fastest.
struct RowPlace {
  Index batch, head, query;
};
inline RowPlace place_of(const Problem& p, Index batch, Index kv_head, Index row) {
  if (p.group == 1) return {batch, kv_head, row};  // the common case, and divisions are dear
  return {batch, kv_head * p.group + row % p.group, row / p.group};
}

/// One element as f32.
float element_of(const Operand& from, const std::byte* at);

/// Rows of an operand: the first begins at `first`, each next one `stride` elements later.
struct Block {
  const Operand* from;
  const std::byte* first;
  Index stride;
  Index rows;
  Index dim;
};

/// The block as f32 rows: in place where it can be read so (and `copy` is null or not wanted), else in `copy`, which holds rows * dim.
kernels::Rows fetch(const kernels::KernelTable& kernels, const Block& block, float* copy, bool always_copy = false);
/// Rows as they are stored.
struct StoredBlock {
  kernels::StoredRows rows;
  kernels::Storage storage;

  /// Rows [first, first + count).
  StoredBlock slice(Index first, Index count) const;
};
/// Asks for part `part` of `parts` of the block, to have it in the L2 cache when it is read; where rows are not contiguous it does nothing.
void ask_for(const Block& block, Index part = 0, Index parts = 1);
/// The block as it lies in memory where its rows are contiguous, else copied to `copy` (rows * dim floats).
StoredBlock fetch_stored(const kernels::KernelTable& kernels, const Block& block, float* copy);

/// Writes one row of `dim` f32 to `first` in the operand's own storage and stride.
void deliver(const kernels::KernelTable& kernels, const float* row, Index dim, const Operand& to, std::byte* first);

}  // namespace mha::attention
