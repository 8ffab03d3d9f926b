// What a panel of rows sees of one tile of keys: the tile is cut into cells of a vector of rows by 8 keys, each seen wholly, partly or not
// at all; cells nobody sees are dropped, the others joined to strips. The kernels hear of masks only through what is made here.
#pragma once

#include "attention/plan.h"

namespace mha::attention {

inline constexpr int kCellKeys = 8;
inline constexpr int kMaxCells = kMaxTileKeys / kCellKeys;

/// What the rows of one vector see, where each sees at most one interval: every row sees [last_lo, first_hi), none sees anything outside
/// [first_lo, last_hi).
struct VectorSight {
  bool single;  // false: some row sees several intervals, and the rest says nothing
  Index first_lo, last_lo;
  Index first_hi, last_hi;
};

/// A panel's rows for the purpose of masks.
struct MaskRows {
  Index batch;
  Index kv_head;
  Index first_row;
  int rows;
  const RowIntervals* visible;  // per row; null where all rows see all of [0, kv_len)
  const VectorSight* sight;     // per vector; null likewise
};

struct TileMask {
  kernels::Strip strips[kMaxCells];
  int strip_count;
  bool by_bits;                                                 // partial strips are described by `bits`, else by `lo` and `hi`
  std::uint16_t bits[kernels::kMaxPanelVectors][kMaxTileKeys];  // [vector][key]: bit l set where lane l sees the key
  std::int32_t lo[kernels::kMaxPanelLanes];                     // lane sees keys lo <= k < hi of the tile
  std::int32_t hi[kernels::kMaxPanelLanes];
};

/// Fills `visible[0, rows)` for the rows of a task.
void find_visible(const Problem& problem, const Task& task, RowIntervals* visible);

/// Fills `sight[0, vectors)` from the intervals of a panel's rows.
void find_sight(const RowIntervals* visible, int rows, int lanes, VectorSight* sight);

/// Fills `mask` for keys [keys.lo, keys.hi); strip_count is 0 where the panel sees none of them.
void classify(const Problem& problem, const MaskRows& rows, int lanes, Interval keys, TileMask& mask);

/// bits[k] of one vector for the keys of a strip, from the masks and from a bias of -inf: which pairs take part in the sum at all.
void find_summed(const Problem& problem, const MaskRows& rows, int lanes, int vector, Interval keys, std::uint16_t* bits);

}  // namespace mha::attention
