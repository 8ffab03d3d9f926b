#include "attention/plan.h"

#include <algorithm>

#include "attention/tile_mask.h"
#include "core/arena.h"

namespace mha::attention {

namespace {

Index divided_up(Index a, Index b) { return (a + b - 1) / b; }

// Rows further apart than they are long cost TLB and cache-set misses in the inner loop, once per panel; from 64 elements on one copy per
// task is cheaper, if enough rows use it. (docs/design.md has the measurements.)
bool worth_a_copy(const Operand& from, Index dim, Index rows) {
  return !from.plain() || (from.stride[1] != dim && dim >= 64 && rows >= 64);
}

std::size_t scratch_bytes(const Problem& p, const Plan& plan) {
  const Index rows = std::min(plan.rows_per_task, divided_up(p.q_len * p.group, plan.lanes) * plan.lanes);
  const Index floats = rows * (p.head_dim + p.value_dim + 2)  // queries, output, max and sum
                       + plan.key_tile * plan.panel_lanes     // scores
                       + (plan.copy_keys ? plan.key_tile * p.head_dim : 0) + (plan.copy_values ? plan.key_tile * p.value_dim : 0)  //
                       + plan.row_scratch;  // rows in other storage
  const Index panels = rows / plan.lanes;
  const Index per_panel = 512 + 3 * static_cast<Index>(kAlignment);  // its description, and what rounding up its arrays may take
  return static_cast<std::size_t>(floats) * sizeof(float) + static_cast<std::size_t>(rows) * sizeof(RowIntervals) + sizeof(TileMask) +
         static_cast<std::size_t>(panels * per_panel) + 16 * kAlignment;
}

}  // namespace

Plan make_plan(const Problem& p, const kernels::KernelTable& kernels) {
  Plan plan{};
  plan.lanes = kernels.lanes;
  plan.panel_lanes = kernels.lanes * kernels.panel_vectors;
  plan.key_tile = 128;
  const Index rows = p.q_len * p.group;
  plan.copy_keys = worth_a_copy(p.k, p.head_dim, rows);
  plan.copy_values = p.v && worth_a_copy(p.v, p.value_dim, rows);
  const Index panels = divided_up(plan.copy_keys || plan.copy_values ? 384 : 192, plan.panel_lanes);
  plan.rows_per_task = panels * plan.panel_lanes;
  plan.blocks = divided_up(rows, plan.rows_per_task);
  plan.tasks = p.batch * p.kv_heads * plan.blocks;
  plan.flops = 2.0 * static_cast<double>(p.batch * p.heads) * static_cast<double>(p.q_len) * static_cast<double>(p.kv_len) *
               static_cast<double>(p.head_dim + p.value_dim);
  // Bias rows of a distance are up to a vector of lanes longer than the tile (biases.cpp).
  plan.row_scratch = plan.lanes * std::max({p.head_dim, p.value_dim, plan.key_tile + plan.lanes});
  plan.scratch = scratch_bytes(p, plan);
  return plan;
}

Task task_at(const Problem& p, const Plan& plan, Index i) {
  const Index sequences = p.batch * p.kv_heads;
  const Index block = plan.blocks - 1 - i / sequences;
  const Index first_row = block * plan.rows_per_task;
  return {.batch = i % sequences / p.kv_heads,
          .kv_head = i % p.kv_heads,
          .first_row = first_row,
          .rows = std::min(plan.rows_per_task, p.q_len * p.group - first_row)};
}

}  // namespace mha::attention
