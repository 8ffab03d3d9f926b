#include "attention/tile_mask.h"

#include <algorithm>
#include <limits>

#include "attention/validate.h"

namespace mha::attention {

namespace {

using kernels::Strip;

enum class Cell : std::uint8_t { Skip, Partial, Full };

/// How one vector of rows relates to a tile.
struct VectorCells {
  Cell all;  // Skip or Full: every cell is so; Partial: look at each
  Cell cell[kMaxCells];
};

struct Lanes {
  const MaskRows* rows;
  int first;
  int count;
  const RowIntervals& operator[](int lane) const { return rows->visible[first + lane]; }
};

Cell relate(const VectorSight& sight, Interval keys) {
  if (keys.hi <= sight.first_lo || sight.last_hi <= keys.lo) return Cell::Skip;
  return sight.last_lo <= keys.lo && keys.hi <= sight.first_hi ? Cell::Full : Cell::Partial;
}

Cell relate(const Lanes& lanes, Interval keys) {
  bool none = true;
  bool all = true;
  for (int lane = 0; lane < lanes.count; ++lane) {
    Cell row = Cell::Skip;
    for (int i = 0; i < lanes[lane].count; ++i) {
      const Interval seen = lanes[lane].items[static_cast<std::size_t>(i)];
      if (seen.lo <= keys.lo && keys.hi <= seen.hi)
        row = Cell::Full;
      else if (seen.lo < keys.hi && keys.lo < seen.hi)
        row = Cell::Partial;
    }
    none &= row == Cell::Skip;
    all &= row == Cell::Full;
  }
  return none ? Cell::Skip : all ? Cell::Full : Cell::Partial;
}

// Bits of one vector over a tile, from the intervals alone.
void interval_bits(const Problem& p, const Lanes& lanes, Interval keys, std::uint16_t* bits) {
  std::fill(bits, bits + (keys.hi - keys.lo), std::uint16_t{0});
  const RowIntervals everything{.items = {Interval{0, p.kv_len}}, .count = 1};
  for (int lane = 0; lane < lanes.count; ++lane) {
    const RowIntervals& row = lanes.rows->visible != nullptr ? lanes[lane] : everything;
    for (int i = 0; i < row.count; ++i) {
      const Interval seen = row.items[static_cast<std::size_t>(i)];
      for (Index k = std::max(seen.lo, keys.lo); k < std::min(seen.hi, keys.hi); ++k) {
        bits[k - keys.lo] = static_cast<std::uint16_t>(bits[k - keys.lo] | (1U << lane));
      }
    }
  }
}

// Clears the bits of pairs for which keep(byte address of the element of `operand`) is false.
template <class Keep>
void clear_bits(const Problem& p, const Lanes& lanes, Interval keys, const Operand& operand, std::uint16_t* bits, Keep&& keep) {
  for (int lane = 0; lane < lanes.count; ++lane) {
    const RowPlace at = place_of(p, lanes.rows->batch, lanes.rows->kv_head, lanes.rows->first_row + lanes.first + lane);
    const std::byte* row = operand.at(at.batch, at.head, at.query, keys.lo);
    const Index step = operand.stride[3] * operand.item;
    for (Index k = 0; k < keys.hi - keys.lo; ++k) {
      const unsigned drop = keep(row + k * step) ? 0U : 1U << lane;
      bits[k] = static_cast<std::uint16_t>(bits[k] & ~drop);
    }
  }
}

void clear_not_allowed(const Problem& p, const Lanes& lanes, Interval keys, std::uint16_t* bits) {
  clear_bits(p, lanes, keys, p.allowed, bits, [](const std::byte* at) { return *at != std::byte{0}; });
}

void cells_from_bits(const Lanes& lanes, Interval keys, const std::uint16_t* bits, VectorCells& cells) {
  const unsigned every = (1U << lanes.count) - 1U;
  const auto count = static_cast<int>(keys.hi - keys.lo);
  for (int c = 0; c * kCellKeys < count; ++c) {
    unsigned any = 0;
    unsigned all = every;
    for (int k = c * kCellKeys; k < std::min(count, (c + 1) * kCellKeys); ++k) {
      any |= bits[k];
      all &= bits[k];
    }
    cells.cell[c] = any == 0 ? Cell::Skip : all == every ? Cell::Full : Cell::Partial;
  }
}

void cells_from_sight(const VectorSight& sight, Interval keys, VectorCells& cells) {
  for (int c = 0; keys.lo + c * kCellKeys < keys.hi; ++c) {
    const Index lo = keys.lo + c * kCellKeys;
    cells.cell[c] = relate(sight, {lo, std::min(lo + kCellKeys, keys.hi)});
  }
}

// Bounds within the tile of the one interval a lane sees of it; lanes beyond the rows copy the last row.
void find_bounds(const MaskRows& rows, int lanes, Interval keys, TileMask& mask) {
  const int padded = (rows.rows + lanes - 1) / lanes * lanes;
  for (int lane = 0; lane < padded; ++lane) {
    const RowIntervals& row = rows.visible[std::min(lane, rows.rows - 1)];
    mask.lo[lane] = 0;
    mask.hi[lane] = 0;
    for (int i = 0; i < row.count; ++i) {
      const Interval seen = row.items[static_cast<std::size_t>(i)];
      if (seen.hi <= keys.lo || keys.hi <= seen.lo) continue;
      mask.lo[lane] = static_cast<std::int32_t>(std::max(seen.lo, keys.lo) - keys.lo);
      mask.hi[lane] = static_cast<std::int32_t>(std::min(seen.hi, keys.hi) - keys.lo);
    }
  }
}

// Joins neighbouring columns of cells that are seen by the same vectors in the same way.
void join_strips(const VectorCells* cells, int vectors, int keys, TileMask& mask) {
  mask.strip_count = 0;
  for (int c = 0; c * kCellKeys < keys; ++c) {
    int first = vectors;
    int last = -1;
    bool partial = false;
    for (int v = 0; v < vectors; ++v) {
      const Cell cell = cells[v].all == Cell::Partial ? cells[v].cell[c] : cells[v].all;
      if (cell == Cell::Skip) continue;
      partial |= cell == Cell::Partial || (last >= 0 && last != v - 1);
      first = std::min(first, v);
      last = v;
    }
    if (last < 0) continue;
    const Strip column{c * kCellKeys, std::min(kCellKeys, keys - c * kCellKeys), first, last - first + 1, partial};
    Strip* before = mask.strip_count > 0 ? &mask.strips[mask.strip_count - 1] : nullptr;
    const bool joins = before != nullptr && before->key + before->count == column.key && before->first_vector == first &&
                       before->vectors == column.vectors && before->partial == partial;
    if (joins) {
      before->count += column.count;
    } else {
      mask.strips[mask.strip_count++] = column;
    }
  }
}

}  // namespace

void find_visible(const Problem& p, const Task& task, RowIntervals* visible) {
  const MaskContext context{.q_len = p.q_len, .kv_len = p.kv_len, .offset = offset_of(*p.spec, *p.inputs, task.batch)};
  RowIntervals existing;  // none where head_dim is 0: without a dimension there are no scores, and every row is empty
  if (p.head_dim > 0) existing.add({0, kv_len_of(*p.inputs, task.batch)});
  const bool cut = existing.count == 0 || existing.items[0].hi < p.kv_len;
  Index known = -1;  // the heads of a group see alike
  for (Index r = 0; r < task.rows; ++r) {
    const Index query = (task.first_row + r) / p.group;
    if (query == known) {
      visible[r] = visible[r - 1];
    } else {
      visible[r] = p.spec->mask.visible(query, context);
      if (cut) visible[r] = intersect(visible[r], existing);
    }
    known = query;
  }
}

void find_sight(const RowIntervals* visible, int rows, int lanes, VectorSight* sight) {
  constexpr Index kFar = std::numeric_limits<Index>::max();
  for (int v = 0; v * lanes < rows; ++v) {
    VectorSight& of = sight[v];
    of = {.single = true, .first_lo = kFar, .last_lo = 0, .first_hi = kFar, .last_hi = 0};
    for (int row = v * lanes; row < std::min(rows, (v + 1) * lanes); ++row) {
      of.single &= visible[row].count <= 1;
      if (visible[row].count == 0) {  // nothing is seen by every row
        of.first_hi = 0;
        continue;
      }
      const Interval seen = visible[row].items[0];
      of.first_lo = std::min(of.first_lo, seen.lo);
      of.last_lo = std::max(of.last_lo, seen.lo);
      of.first_hi = std::min(of.first_hi, seen.hi);
      of.last_hi = std::max(of.last_hi, seen.hi);
    }
  }
}

void classify(const Problem& p, const MaskRows& rows, int lanes, Interval keys, TileMask& mask) {
  const int vectors = (rows.rows + lanes - 1) / lanes;
  const auto count = static_cast<int>(keys.hi - keys.lo);
  mask.by_bits = static_cast<bool>(p.allowed);
  if (rows.visible == nullptr && !p.allowed) {
    mask.strip_count = 1;
    mask.strips[0] = {0, count, 0, vectors, false};
    return;
  }
  VectorCells cells[kernels::kMaxPanelVectors];
  for (int v = 0; v < vectors; ++v) {
    cells[v].all = Cell::Full;
    if (rows.visible == nullptr) continue;
    const bool single = rows.sight[v].single;
    cells[v].all = single ? relate(rows.sight[v], keys) : relate(Lanes{&rows, v * lanes, std::min(lanes, rows.rows - v * lanes)}, keys);
    mask.by_bits |= !single && cells[v].all == Cell::Partial;  // bounds describe one interval per row
  }
  for (int v = 0; v < vectors; ++v) {
    const Lanes at{&rows, v * lanes, std::min(lanes, rows.rows - v * lanes)};
    if (mask.by_bits) {
      interval_bits(p, at, keys, mask.bits[v]);
      if (p.allowed && cells[v].all != Cell::Skip) {
        clear_not_allowed(p, at, keys, mask.bits[v]);
        cells[v].all = Cell::Partial;
      }
      if (cells[v].all == Cell::Partial) cells_from_bits(at, keys, mask.bits[v], cells[v]);
    } else if (cells[v].all == Cell::Partial) {
      cells_from_sight(rows.sight[v], keys, cells[v]);
    }
  }
  join_strips(cells, vectors, count, mask);
  const bool hides = std::any_of(mask.strips, mask.strips + mask.strip_count, [](const Strip& strip) { return strip.partial; });
  if (hides && !mask.by_bits) find_bounds(rows, lanes, keys, mask);
}

void find_summed(const Problem& p, const MaskRows& rows, int lanes, int vector, Interval keys, std::uint16_t* bits) {
  const Lanes at{&rows, vector * lanes, std::min(lanes, rows.rows - vector * lanes)};
  interval_bits(p, at, keys, bits);
  if (p.allowed) clear_not_allowed(p, at, keys, bits);
  if (!p.bias) return;
  clear_bits(p, at, keys, p.bias, bits,
             [&](const std::byte* element) { return element_of(p.bias, element) != -std::numeric_limits<float>::infinity(); });
}

}  // namespace mha::attention
