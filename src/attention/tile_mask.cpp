#include "attention/tile_mask.h"

#include <algorithm>
#include <limits>

namespace mha::attention {

namespace {

using kernels::Strip;

enum class Cell : std::uint8_t { Skip, Partial, Full };

/// How one vector of rows relates to a tile.
struct VectorCells {
  Cell all;  // Skip or Full: every cell is so; Partial: look at each
  Cell cell[kMaxCells];
};

constexpr int kTileWords = kMaxTileKeys / kWordKeys;

/// The rows of one vector.
struct Lanes {
  const Sight* sight;
  Index first;
  int count;
};
Lanes lanes_of(const MaskRows& rows, int vector) {
  return {rows.sight, rows.first + vector * rows.lanes, std::min(rows.lanes, rows.rows - vector * rows.lanes)};
}

/// A vector's sight of a tile, pair by pair: bit i of row[lane][w] set where the lane sees key 32 w + i of the tile.
struct VectorWords {
  const std::uint32_t* row[kernels::kMaxLanes];
  std::uint32_t own[kernels::kMaxLanes][kTileWords];  // what is not in the table as it is
};

Cell relate(const VectorSight& sight, Interval keys) {
  if (keys.hi <= sight.first_lo || sight.last_hi <= keys.lo) return Cell::Skip;
  return sight.last_lo <= keys.lo && keys.hi <= sight.first_hi ? Cell::Full : Cell::Partial;
}

void find_words(const Lanes& lanes, Interval keys, VectorWords& words) {
  const Sight& sight = *lanes.sight;
  const auto count = static_cast<int>((keys.hi - keys.lo + kWordKeys - 1) / kWordKeys);
  const RowIntervals everything{.items = {keys}, .count = 1};
  for (int lane = 0; lane < lanes.count; ++lane) {
    const Index row = lanes.first + lane;
    const std::uint32_t* table = nullptr;
    if (sight.table != nullptr) table = sight.table + row * sight.words + (keys.lo - sight.table_keys.lo) / kWordKeys;
    words.row[lane] = table;
    if (table != nullptr && sight.visible == nullptr) continue;
    words.row[lane] = words.own[lane];
    interval_words(sight.visible != nullptr ? sight.visible[row] : everything, keys, words.own[lane]);
    for (int w = 0; table != nullptr && w < count; ++w) words.own[lane][w] &= table[w];
  }
}

void cells_from_words(const VectorWords& words, int lanes, int keys, Cell* cells) {
  for (int w = 0; w * kWordKeys < keys; ++w) {
    std::uint32_t any = 0;
    std::uint32_t all = ~0U;
    for (int lane = 0; lane < lanes; ++lane) {
      any |= words.row[lane][w];
      all &= words.row[lane][w];
    }
    for (int key = w * kWordKeys; key < std::min(keys, (w + 1) * kWordKeys); key += kCellKeys, any >>= kCellKeys, all >>= kCellKeys) {
      const std::uint32_t every = 0xFFU >> (kCellKeys - std::min(kCellKeys, keys - key));
      cells[key / kCellKeys] = (any & every) == 0 ? Cell::Skip : (all & every) == every ? Cell::Full : Cell::Partial;
    }
  }
}

/// An 8 x 8 matrix of bits, byte by row: bit i of byte j becomes bit j of byte i.
std::uint64_t transposed(std::uint64_t x) {
  std::uint64_t swapped = (x ^ (x >> 7U)) & 0x00AA00AA00AA00AAU;
  x ^= swapped ^ (swapped << 7U);
  swapped = (x ^ (x >> 14U)) & 0x0000CCCC0000CCCCU;
  x ^= swapped ^ (swapped << 14U);
  swapped = (x ^ (x >> 28U)) & 0x00000000F0F0F0F0U;
  return x ^ swapped ^ (swapped << 28U);
}

/// The other way round, a cell at a time: bit l of bits[k] set where lane l sees key k, for keys [first, first + count) of the tile.
void bits_from_words(const VectorWords& words, int lanes, int first, int count, std::uint16_t* bits) {
  static_assert(kCellKeys == 8 && kernels::kMaxLanes <= 16);
  for (int key = first; key < first + count; key += kCellKeys) {
    std::uint64_t half[2] = {};
    for (int lane = 0; lane < lanes; ++lane) {
      const std::uint64_t seen = words.row[lane][key / kWordKeys] >> (key % kWordKeys) & 0xFFU;
      half[lane / 8] |= seen << (lane % 8 * 8);
    }
    const std::uint64_t low = transposed(half[0]);
    const std::uint64_t high = transposed(half[1]);
    for (int k = 0; k < std::min(kCellKeys, first + count - key); ++k) {
      bits[key + k] = static_cast<std::uint16_t>((low >> (8 * k) & 0xFFU) | (high >> (8 * k) & 0xFFU) << 8U);
    }
  }
}

void cells_from_sight(const VectorSight& sight, Interval keys, Cell* cells) {
  for (int c = 0; keys.lo + c * kCellKeys < keys.hi; ++c) {
    const Index lo = keys.lo + c * kCellKeys;
    cells[c] = relate(sight, {lo, std::min(lo + kCellKeys, keys.hi)});
  }
}

// Bounds within the tile of the one interval a lane sees of it; lanes beyond the rows copy the last row.
void find_bounds(const MaskRows& rows, Interval keys, TileMask& mask) {
  const int padded = (rows.rows + rows.lanes - 1) / rows.lanes * rows.lanes;
  for (int lane = 0; lane < padded; ++lane) {
    const RowIntervals& row = rows.sight->visible[rows.first + std::min(lane, rows.rows - 1)];
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

kernels::Strip next_run(const TileMask& mask, int& s) {
  kernels::Strip run = mask.strips[s++];
  while (s < mask.strip_count && mask.strips[s].key == run.key + run.count && mask.strips[s].first_vector == run.first_vector &&
         mask.strips[s].vectors == run.vectors) {
    run.count += mask.strips[s].count;
    run.partial |= mask.strips[s].partial;
    ++s;
  }
  return run;
}

void classify(const MaskRows& rows, Interval keys, TileMask& mask) {
  const Sight& sight = *rows.sight;
  const int vectors = (rows.rows + rows.lanes - 1) / rows.lanes;
  const auto count = static_cast<int>(keys.hi - keys.lo);
  mask.by_bits = sight.table != nullptr;
  if (sight.visible == nullptr && sight.table == nullptr) {
    mask.strip_count = 1;
    mask.strips[0] = {0, count, 0, vectors, false};
    return;
  }
  const auto relation = [&](int v) {
    if (sight.visible == nullptr) return Cell::Full;
    const VectorSight& vector = sight.vectors[rows.first / rows.lanes + v];
    return vector.single ? relate(vector, keys) : Cell::Partial;
  };
  VectorCells cells[kernels::kMaxPanelVectors];
  VectorWords words[kernels::kMaxPanelVectors];
  for (int v = 0; v < vectors; ++v) {
    cells[v].all = relation(v);
    // Bounds describe one interval per row.
    mask.by_bits |= cells[v].all == Cell::Partial && !sight.vectors[rows.first / rows.lanes + v].single;
  }
  for (int v = 0; v < vectors; ++v) {
    const Lanes lanes = lanes_of(rows, v);
    if (mask.by_bits) {
      find_words(lanes, keys, words[v]);
      if (cells[v].all == Cell::Skip) continue;
      cells[v].all = Cell::Partial;
      cells_from_words(words[v], lanes.count, count, cells[v].cell);
    } else if (cells[v].all == Cell::Partial) {
      cells_from_sight(sight.vectors[rows.first / rows.lanes + v], keys, cells[v].cell);
    }
  }
  join_strips(cells, vectors, count, mask);
  bool hides = false;
  for (int s = 0; s < mask.strip_count; ++s) {
    const Strip& strip = mask.strips[s];
    hides |= strip.partial;
    for (int v = strip.first_vector; mask.by_bits && strip.partial && v < strip.first_vector + strip.vectors; ++v) {
      bits_from_words(words[v], lanes_of(rows, v).count, strip.key, strip.count, mask.bits[v]);
    }
  }
  if (hides && !mask.by_bits) find_bounds(rows, keys, mask);
}

void find_summed(const Problem& p, const MaskRows& rows, int vector, Interval keys, std::uint16_t* bits) {
  const Lanes lanes = lanes_of(rows, vector);
  VectorWords words;
  find_words(lanes, keys, words);
  bits_from_words(words, lanes.count, 0, static_cast<int>(keys.hi - keys.lo), bits);
  if (!p.bias) return;
  const Task& task = rows.sight->task;
  for (int lane = 0; lane < lanes.count; ++lane) {
    const RowPlace at = place_of(p, task.batch, task.kv_head, task.first_row + lanes.first + lane);
    for (Index k = 0; k < keys.hi - keys.lo; ++k) {
      const float bias = element_of(p.bias, p.bias.at(at.batch, at.head, at.query, keys.lo + k));
      if (bias == -std::numeric_limits<float>::infinity()) bits[k] = static_cast<std::uint16_t>(bits[k] & ~(1U << lane));
    }
  }
}

}  // namespace mha::attention
