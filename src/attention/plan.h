// Third step of a call: how a Problem is cut into tasks and tiles. Pure. What decides results (the key tiles) depends on the sizes of a
// head alone; the number of threads only decides who does a task.
#pragma once

#include "attention/lower.h"

namespace mha::attention {

inline constexpr int kMaxTileKeys = 256;
/// Keys whose weighted sum is one chain of additions; a multiple of every key_tile.
inline constexpr Index kFoldKeys = 2048;

struct Plan {
  int lanes;            // of the ISA
  int panel_lanes;      // rows that go through the kernels side by side
  Index rows_per_task;  // of one kv head, a multiple of panel_lanes
  Index key_tile;       // keys per tile; tiles begin at multiples of it
  bool copy_keys;       // whether a tile's keys (values) are first copied to dense f32 rows
  bool copy_values;
  bool far;          // the operands are larger than a core's own caches: what is needed next is asked for ahead
  bool few_rows;     // decoding: rows are not laid across lanes but multiplied as they are
  Index blocks;      // of rows_per_task rows per kv head
  Index splits;      // parts of the keys that are tasks of their own, merged in their order; 1: none
  Index split_keys;  // keys per part, a multiple of key_tile
  bool folds;        // a task sees so many keys that their sum is taken in parts of kFoldKeys
  Index tasks;
  Index row_scratch;          // floats for a vector of rows in another form: of queries, outputs, biases
  double flops;               // multiplications and additions of both products, without masks
  double work;                // flops, or as many as reading the keys and values is worth where that takes longer
  std::size_t scratch;        // bytes per worker
  std::size_t sight_scratch;  // bytes per worker for what its rows see, which it keeps from task to task
};

Plan make_plan(const Problem& problem, const kernels::KernelTable& kernels);

/// One kv head's rows [first_row, first_row + rows) against its keys [keys.lo, keys.hi).
struct Task {
  Index batch;
  Index kv_head;
  Index first_row;
  Index rows;
  Index split;
  Interval keys;
};
/// Task i of the plan; later rows first, since causal masks make them the heaviest.
Task task_at(const Problem& problem, const Plan& plan, Index i);

}  // namespace mha::attention
