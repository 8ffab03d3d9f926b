#include "attention/plan.h"

#include <algorithm>

#include "attention/links.h"
#include "attention/tally.h"
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

constexpr Index kSplitKeys = 1024;  // long enough that merging costs nothing, short enough to share out a single head
// Never for self-attention, where a short text would otherwise differ in its last bits from the same text padded beside a longer one.
constexpr Index kFewRowsKeys = 64;
constexpr Index kMostSplitBlocks = 2;  // with more blocks of rows there are tasks enough
constexpr double kNearBytes = 2.0 * 1024 * 1024;
constexpr Index kFarKeys = 64;         // shorter heads are read faster than they can be asked for
constexpr double kFlopsPerByte = 6.0;  // a core's arithmetic beside its share of the memory bandwidth, roughly

Index padded(Index dim, int lanes) { return divided_up(dim, lanes) * lanes; }

/// Floats of queries, and per set of running sums of outputs, maxima and denominators. Few rows are held dense, padded to vectors.
Index row_floats(const Problem& p, const Plan& plan, Index rows) {
  const Index head_dim = plan.few_rows ? padded(p.head_dim, plan.lanes) : p.head_dim;
  const Index value_dim = plan.few_rows ? padded(p.value_dim, plan.lanes) : p.value_dim;
  return rows * (head_dim + (plan.folds ? 2 : 1) * (value_dim + 2));
}

std::size_t scratch_bytes(const Problem& p, const Plan& plan) {
  const Index rows = std::min(plan.rows_per_task, divided_up(p.q_len * p.group, plan.lanes) * plan.lanes);
  const Index floats = row_floats(p, plan, rows) + plan.key_tile * (plan.few_rows ? plan.lanes : plan.panel_lanes)                 // scores
                       + (plan.copy_keys ? plan.key_tile * p.head_dim : 0) + (plan.copy_values ? plan.key_tile * p.value_dim : 0)  //
                       + plan.row_scratch;  // rows in other storage
  const Index panels = rows / plan.lanes;
  const Index per_panel = 512 + 6 * static_cast<Index>(kAlignment);  // its description, and what rounding up its arrays may take
  return static_cast<std::size_t>(floats) * sizeof(float) + sizeof(TileMask) + static_cast<std::size_t>(panels * per_panel) +
         16 * kAlignment + (p.statistics.wanted ? Tally::bytes(plan, rows) : 0) + (p.links.count > 0 ? Links::bytes(p, plan, rows) : 0);
}

}  // namespace

Plan make_plan(const Problem& p, const kernels::KernelTable& kernels) {
  Plan plan{};
  plan.lanes = kernels.lanes;
  plan.panel_lanes = kernels.lanes * kernels.panel_vectors;
  const Index rows = p.q_len * p.group;
  plan.few_rows = rows <= kernels.few_rows && p.kv_len >= kFewRowsKeys;
  plan.key_tile = 128;
  plan.copy_keys = plan.few_rows ? p.k.stride[3] != 1 : worth_a_copy(p.k, p.head_dim, rows);
  plan.copy_values = p.v && (plan.few_rows ? !p.v.plain() : worth_a_copy(p.v, p.value_dim, rows));
  const Index panels = divided_up(plan.copy_keys || plan.copy_values ? 384 : 256, plan.panel_lanes);
  plan.rows_per_task = panels * plan.panel_lanes;
  plan.blocks = divided_up(rows, plan.rows_per_task);
  // Whether and where keys are split depends on the sizes of one head alone, so that results do not depend on batch mates or threads.
  const bool split = plan.blocks <= kMostSplitBlocks && p.kv_len >= 2 * kSplitKeys;
  plan.split_keys = split ? kSplitKeys : std::max<Index>(p.kv_len, 1);
  plan.splits = split ? divided_up(p.kv_len, kSplitKeys) : 1;
  plan.folds = plan.split_keys > kFoldKeys;
  plan.tasks = p.batch * p.kv_heads * plan.blocks * plan.splits;
  plan.flops = 2.0 * static_cast<double>(p.batch * p.heads) * static_cast<double>(p.q_len) * static_cast<double>(p.kv_len) *
               static_cast<double>(p.head_dim + p.value_dim);
  const double kv_bytes = static_cast<double>(p.batch * p.kv_heads) * static_cast<double>(p.kv_len) *
                          static_cast<double>(p.head_dim * p.k.item + p.value_dim * p.v.item);
  const double row_bytes = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.q_len) *
                           static_cast<double>(p.head_dim * p.q.item + p.value_dim * p.out.item);
  plan.far = !plan.few_rows && p.kv_len >= kFarKeys && kv_bytes + row_bytes > kNearBytes;
  plan.work = std::max(plan.flops, kFlopsPerByte * kv_bytes);
  // Bias rows of a distance are up to a vector of lanes longer than the tile (biases.cpp).
  plan.row_scratch = plan.lanes * std::max({p.head_dim, p.value_dim, plan.key_tile + plan.lanes});
  plan.scratch = scratch_bytes(p, plan);
  plan.sight_scratch = sight_bytes(p, plan, std::min(plan.split_keys, p.kv_len)) + 2 * kAlignment;
  return plan;
}

Task task_at(const Problem& p, const Plan& plan, Index i) {
  // Heads of one sequence follow each other: in the layout [batch, length, heads, dim] their rows share pages.
  const Index sequences = p.batch * p.kv_heads;
  const Index split = i / sequences % plan.splits;
  const Index block = plan.blocks - 1 - i / sequences / plan.splits;
  const Index first_row = block * plan.rows_per_task;
  return {.batch = i % sequences / p.kv_heads,
          .kv_head = i % p.kv_heads,
          .first_row = first_row,
          .rows = std::min(plan.rows_per_task, p.q_len * p.group - first_row),
          .split = split,
          .keys = {split * plan.split_keys, std::min((split + 1) * plan.split_keys, p.kv_len)}};
}

}  // namespace mha::attention
