// Numbers of a run's heads, by word or by piece: whole tables, one unit's row and column, tiles of a map, strongest links, measures. Each
// is computed when asked for, from q, k and lse; NaN marks a cell that nobody may look at. Called by microscope.cpp.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "view/run.h"

namespace mha::view {

enum class WeightKind {
  Weight,
  Norm,  // each row's weights times the norms of what they carry, divided by the row's sum
};

/// What is looked at, how, and until when.
struct Lens {
  const Run& run;
  Stop& stop;
  Workspace& workspace;
  UnitKind unit = UnitKind::Word;
  WeightKind kind = WeightKind::Weight;

  const CapturedLayer& layer(Index index) const { return run.capture.layers[static_cast<std::size_t>(index)]; }
  const std::vector<Unit>& rows() const { return run.queries.of(unit); }
  const std::vector<Unit>& columns() const { return run.key_units().of(unit); }
};

/// How long the vectors are that a head carries from each key, [kv_len]. Throws RequestError (400) where the run does not know.
std::vector<double> key_norms(const Lens& lens, HeadId id);

/// Calls each(first, rows) with consecutive rows [count, columns] of one head's table, f32, 0 where hidden: all rows of `units`.
void for_row_blocks(const Lens& lens, HeadId id, Interval units, const std::function<void(Index first, ConstTensorView rows)>& each);

/// Fills [rows, columns] of one head.
void head_table(const Lens& lens, HeadId id, std::span<float> table);
/// [heads, rows, columns] of one layer: the heads share what is hidden.
std::vector<float> layer_table(const Lens& lens, Index layer);
/// [heads of all layers, 2, units]: to whom the unit attends, and who attends to it.
std::vector<float> row_and_column(const Lens& lens, Index unit);

struct MapTile {
  HeadId id;
  Interval queries = {}, keys = {};  // pieces
  Index rows = 0, columns = 0;
  bool max = false;  // the cells' largest weights instead of their means
};
/// [rows, columns].
std::vector<float> map_tile(const Lens& lens, const MapTile& tile);

/// {"links": [[from, to, weight], ...], "rows": {"read", "of"}}: the `count` strongest links of a head, strongest first.
Json strongest_links(const Lens& lens, HeadId id, Index count);
/// {"values": {"entropy": [[heads...] per layer]}, "rows": {"read", "of"}}.
Json measure_values(const Lens& lens);

/// The share of each unit in the unit's last hidden state, by attention rollout, [units].
std::vector<float> rollout_shares(const Lens& lens, Index unit);
/// {"values": [[1 - cosine, ...] per layer]}: of the sentence vector without each head in turn, its output zero or its mean over the text;
/// null for a head that the model no longer has. Of the model as it is, whatever was changed in the run.
Json effect_values(const MicroscopeModel& model, const Lens& lens, bool by_mean);

}  // namespace mha::view
