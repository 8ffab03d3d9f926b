// A panel: up to panel_lanes rows that go through the kernels side by side, and how it is scored against a tile of keys. Shared by the
// forward pass and by whoever recomputes weights.
#pragma once

#include "attention/plan.h"
#include "attention/tile_mask.h"
#include "core/arena.h"

namespace mha::attention {

/// What all steps of one task share.
struct TaskContext {
  const Problem& p;
  const Plan& plan;
  const kernels::KernelTable& kernels;
  Task task;
  Sight* sight;  // what its rows see; looks at a tile's keys when the tile is loaded
};

struct Panel {
  int first;  // its first row, counted within the task
  int rows;
  int vectors;
  Index ld;        // lanes in all: vectors * lanes
  float* queries;  // scaled: [head_dim, ld], or of few rows [rows, query_stride]
  Index query_stride;
};

/// Cuts the task's rows into panels of at most plan.panel_lanes; `panels` has room for one per vector of lanes. Returns how many.
int cut_panels(const TaskContext& context, Panel* panels);
/// Floats that a panel's queries take.
Index query_floats(const TaskContext& context, const Panel& panel);
/// Loads and scales the panel's queries; `rows` is scratch of plan.row_scratch floats.
void load_panel(const TaskContext& context, Panel& panel, float* rows);

/// Asks for the panel's rows of an operand, queries or outputs, ahead of use.
void ask_for_rows(const TaskContext& context, const Panel& panel, const Operand& operand, Index dim);

/// A tile of keys: f32 rows, or of few rows as it is stored.
struct KeyTile {
  Interval keys;
  kernels::Rows rows;
  StoredBlock stored;
};
Block key_block(const TaskContext& context, Interval keys);
KeyTile load_keys(const TaskContext& context, Interval keys, float* copy);

MaskRows mask_rows(const TaskContext& context, const Panel& panel);

/// Scratch of one scored tile.
struct Scored {
  TileMask* mask;
  float* scores;    // [keys, ld]
  float* max;       // per lane, of this tile; -inf where nothing is seen
  float* rows;      // plan.row_scratch floats
  float* key_copy;  // key_tile * head_dim floats, where the plan copies keys
};

/// `max` holds kMaxPanelLanes, `rows` plan.row_scratch floats; the rest is taken from the arena.
Scored take_scored(const TaskContext& context, Arena& arena, float* max, float* rows);

/// Scores of the panel against the tile, biased and hidden: out.mask holds the strips that were computed, out.max their maxima. What lies
/// outside the strips is stale and must not be read. False where the panel sees nothing of the tile.
bool score_tile(const TaskContext& context, const Panel& panel, const KeyTile& tile, Scored& out);

/// Where weights go: element (batch, head, query - first_query, key - first_key) of `to`.
struct WeightsTarget {
  Operand to;
  Index first_query;
  Index first_key;
};

/// What turns a row's scores into weights: exp(score - max) * factor. Per lane.
struct RowScale {
  const float* max;
  const float* factor;
};

/// Writes the weights of all rows of the panel for the given keys, 0 for hidden ones.
void write_weights(const TaskContext& context, const Panel& panel, Interval keys, const RowScale& scale, const WeightsTarget& target,
                   Scored& scratch);

}  // namespace mha::attention
