// Tables, rows and tiles: rectangles of weights computed again from q, k and lse, folded to units, hidden cells marked.
#include "view/tables.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "mha/analysis/head_table.h"
#include "view/visibility.h"

namespace mha::view {
namespace {

constexpr Index kBlockCells = Index{1} << 22;  // of pieces, computed at once: 16 MiB
constexpr float kHidden = std::numeric_limits<float>::quiet_NaN();

std::vector<Interval> intervals_of(const std::vector<Unit>& units) {
  std::vector<Interval> intervals;
  intervals.reserve(units.size());
  for (const Unit& unit : units) intervals.push_back({unit.first, unit.first + unit.count});
  return intervals;
}

/// Hides what is hidden in a dense table of cells.
void mark_hidden(std::span<float> cells, const std::vector<bool>& seen) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!seen[i]) cells[i] = kHidden;
  }
}

/// Units [lo, hi), their pieces counted from the first one's.
std::vector<Unit> counted_from_first(const std::vector<Unit>& units, Interval part) {
  std::vector<Unit> moved;
  const Index first = units[static_cast<std::size_t>(part.lo)].first;
  for (Index i = part.lo; i < part.hi; ++i) {
    const Unit& unit = units[static_cast<std::size_t>(i)];
    moved.push_back({.text = {}, .key = {}, .first = unit.first - first, .count = unit.count});
  }
  return moved;
}

/// Every row times the factors of its keys, divided by its sum.
void scale_keys(TensorView table, std::span<const double> factors) {
  for (Index q = 0; q < table.size(0); ++q) {
    float* row = table.as<float>() + q * table.stride(0);
    double sum = 0.0;
    for (std::size_t k = 0; k < factors.size(); ++k) sum += static_cast<double>(row[k]) * factors[k];
    for (std::size_t k = 0; k < factors.size(); ++k) {
      row[k] = sum > 0.0 ? static_cast<float>(static_cast<double>(row[k]) * factors[k] / sum) : 0.0F;
    }
  }
}

/// The last unit, exclusive, of a block that begins with `first`: as many as are computed at once, at least one.
Index block_end(const std::vector<Unit>& units, Index first, Index end, Index kv_len) {
  const Index begin = units[static_cast<std::size_t>(first)].first;
  Index last = first + 1;
  for (; last < end; ++last) {
    const Unit& unit = units[static_cast<std::size_t>(last)];
    if ((unit.first + unit.count - begin) * kv_len > kBlockCells) break;
  }
  return last;
}

/// Every query's weight on the keys of one unit, summed over them and folded to rows: [rows].
std::vector<float> column_of(const Lens& lens, HeadId id, const Unit& column) {
  const Index q_len = lens.layer(id.layer).q_len();
  Tensor pieces(DType::F32, {q_len, column.count});
  captured_weights(lens.layer(id.layer),
                   {.batch = 0, .head = id.head, .queries = {0, q_len}, .keys = {column.first, column.first + column.count}}, pieces,
                   lens.workspace);
  lens.stop.check();
  const std::vector<Unit> whole = {{.text = {}, .key = {}, .first = 0, .count = column.count}};
  std::vector<float> folded(lens.rows().size());
  fold_pieces(pieces, lens.rows(), whole, TensorView(folded.data(), {static_cast<Index>(folded.size()), 1}));
  return folded;
}

/// The same of norms, which want whole rows.
std::vector<float> column_of_norms(const Lens& lens, HeadId id, Index unit) {
  std::vector<float> column(lens.rows().size());
  for_row_blocks(lens, id, {0, static_cast<Index>(column.size())}, [&](Index first, ConstTensorView rows) {
    for (Index r = 0; r < rows.size(0); ++r) column[static_cast<std::size_t>(first + r)] = rows.as<float>()[r * rows.stride(0) + unit];
  });
  return column;
}

/// One head's table, 0 where hidden.
void fill_table(const Lens& lens, HeadId id, std::span<float> table) {
  for_row_blocks(lens, id, {0, static_cast<Index>(lens.rows().size())}, [&](Index first, ConstTensorView rows) {
    std::copy_n(rows.as<float>(), element_count(rows.shape), table.data() + first * rows.size(1));
  });
}

/// Means or maxima of ready weights, as attention_map gives them of computed ones.
void pool_ready(const CapturedLayer& layer, const MapTile& tile, TensorView cells, const Lens& lens) {
  const Index queries = tile.queries.hi - tile.queries.lo;
  const Index keys = tile.keys.hi - tile.keys.lo;
  for (Index r = 0; r < tile.rows; ++r) {
    const Interval band{tile.queries.lo + r * queries / tile.rows, tile.queries.lo + (r + 1) * queries / tile.rows};
    std::vector<double> sums(static_cast<std::size_t>(tile.columns), 0.0);
    Tensor row(DType::F32, {1, keys});
    for (Index q = band.lo; q < band.hi; ++q) {
      captured_weights(layer, {.batch = 0, .head = tile.id.head, .queries = {q, q + 1}, .keys = tile.keys}, row, lens.workspace);
      for (Index c = 0; c < tile.columns; ++c) {
        double& cell = sums[static_cast<std::size_t>(c)];
        for (Index k = c * keys / tile.columns; k < (c + 1) * keys / tile.columns; ++k) {
          const auto weight = static_cast<double>(row.data<float>()[k]);
          cell = tile.max ? std::max(cell, weight) : cell + weight;
        }
      }
    }
    for (Index c = 0; c < tile.columns; ++c) {
      const Index pairs = (band.hi - band.lo) * ((c + 1) * keys / tile.columns - c * keys / tile.columns);
      const double cell = sums[static_cast<std::size_t>(c)];
      cells.as<float>()[r * cells.stride(0) + c] = static_cast<float>(tile.max ? cell : cell / static_cast<double>(pairs));
    }
    lens.stop.check();
  }
}

std::vector<Interval> bands(Interval whole, Index count) {
  std::vector<Interval> parts;
  const Index size = whole.hi - whole.lo;
  for (Index i = 0; i < count; ++i) parts.push_back({whole.lo + i * size / count, whole.lo + (i + 1) * size / count});
  return parts;
}

}  // namespace

void for_row_blocks(const Lens& lens, HeadId id, Interval units, const std::function<void(Index first, ConstTensorView rows)>& each) {
  const CapturedLayer& layer = lens.layer(id.layer);
  const std::vector<double> factors = lens.kind == WeightKind::Norm ? key_norms(lens, id) : std::vector<double>();
  const auto columns = static_cast<Index>(lens.columns().size());
  for (Index first = units.lo; first < units.hi;) {
    const Index end = block_end(lens.rows(), first, units.hi, layer.kv_len());
    const Unit& last = lens.rows()[static_cast<std::size_t>(end - 1)];
    const Interval queries{lens.rows()[static_cast<std::size_t>(first)].first, last.first + last.count};
    Tensor pieces(DType::F32, {queries.hi - queries.lo, layer.kv_len()});
    captured_weights(layer, {.batch = 0, .head = id.head, .queries = queries, .keys = {0, layer.kv_len()}}, pieces, lens.workspace);
    lens.stop.check();
    if (!factors.empty()) scale_keys(pieces, factors);
    if (lens.unit == UnitKind::Piece) {
      each(first, pieces);
    } else {
      Tensor folded(DType::F32, {end - first, columns});
      fold_pieces(pieces, counted_from_first(lens.rows(), {first, end}), lens.columns(), folded);
      each(first, folded);
    }
    first = end;
  }
}

void head_table(const Lens& lens, HeadId id, std::span<float> table) {
  fill_table(lens, id, table);
  const Visibility visibility(lens.layer(id.layer), id.head);
  if (!visibility.all()) mark_hidden(table, visibility.seen(intervals_of(lens.rows()), intervals_of(lens.columns())));
}

std::vector<float> layer_table(const Lens& lens, Index layer_index) {
  const CapturedLayer& layer = lens.layer(layer_index);
  const std::size_t cells = lens.rows().size() * lens.columns().size();
  std::vector<float> table(static_cast<std::size_t>(layer.heads()) * cells);
  std::vector<bool> seen;
  for (Index head = 0; head < layer.heads(); ++head) {
    const std::span<float> own = std::span(table).subspan(static_cast<std::size_t>(head) * cells, cells);
    fill_table(lens, {layer_index, head}, own);
    const Visibility visibility(layer, head);
    if (visibility.all()) continue;
    if (head == 0 || visibility.is_own()) seen = visibility.seen(intervals_of(lens.rows()), intervals_of(lens.columns()));
    mark_hidden(own, seen);
  }
  return table;
}

std::vector<float> row_and_column(const Lens& lens, Index unit) {
  const std::vector<Interval> units = intervals_of(lens.rows());
  const std::vector<Interval> one = {units[static_cast<std::size_t>(unit)]};
  std::vector<float> numbers;
  numbers.reserve(static_cast<std::size_t>(lens.run.heads()) * 2 * units.size());
  for (Index layer = 0; layer < static_cast<Index>(lens.run.capture.layers.size()); ++layer) {
    std::vector<bool> row_seen, column_seen;
    for (Index head = 0; head < lens.layer(layer).heads(); ++head) {
      std::vector<float> row(units.size());
      for_row_blocks(lens, {layer, head}, {unit, unit + 1},
                     [&](Index, ConstTensorView rows) { std::copy_n(rows.as<float>(), row.size(), row.data()); });
      std::vector<float> column = lens.kind == WeightKind::Norm
                                      ? column_of_norms(lens, {layer, head}, unit)
                                      : column_of(lens, {layer, head}, lens.columns()[static_cast<std::size_t>(unit)]);
      const Visibility visibility(lens.layer(layer), head);
      if (!visibility.all()) {
        if (head == 0 || visibility.is_own()) {
          row_seen = visibility.seen(one, units);
          column_seen = visibility.seen(units, one);
        }
        mark_hidden(row, row_seen);
        mark_hidden(column, column_seen);
      }
      numbers.insert(numbers.end(), row.begin(), row.end());
      numbers.insert(numbers.end(), column.begin(), column.end());
    }
  }
  return numbers;
}

std::vector<float> map_tile(const Lens& lens, const MapTile& tile) {
  const CapturedLayer& layer = lens.layer(tile.id.layer);
  std::vector<float> numbers(static_cast<std::size_t>(tile.rows * tile.columns));
  const TensorView cells(numbers.data(), {tile.rows, tile.columns});
  if (layer.weights) {
    pool_ready(layer, tile, cells, lens);
  } else {
    const WeightsMap map = tile.max ? WeightsMap{.max = cells} : WeightsMap{.mean = cells};
    attention_map(layer.spec, layer.inputs(), layer.lse, {.batch = 0, .head = tile.id.head, .queries = tile.queries, .keys = tile.keys},
                  map, lens.workspace);
  }
  lens.stop.check();
  const Visibility visibility(layer, tile.id.head);
  if (!visibility.all()) mark_hidden(numbers, visibility.seen(bands(tile.queries, tile.rows), bands(tile.keys, tile.columns)));
  return numbers;
}

}  // namespace mha::view
