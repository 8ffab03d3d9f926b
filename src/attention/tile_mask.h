// What a panel of rows sees of one tile of keys: the tile is cut into cells of a vector of rows by 8 keys, each seen wholly, partly or not
// at all; cells nobody sees are dropped, the others joined to strips. The kernels hear of masks only through what is made here.
#pragma once

#include "attention/sight.h"

namespace mha::attention {

inline constexpr int kCellKeys = 8;
inline constexpr int kMaxCells = kMaxTileKeys / kCellKeys;

/// A panel's rows for the purpose of masks.
struct MaskRows {
  const Sight* sight;  // of the task they belong to
  Index first;         // their first one, counted within the task; a multiple of lanes
  int rows;
  int lanes;
};

struct TileMask {
  kernels::Strip strips[kMaxCells];
  int strip_count;
  bool by_bits;                                                 // partial strips are described by `bits`, else by `lo` and `hi`
  std::uint16_t bits[kernels::kMaxPanelVectors][kMaxTileKeys];  // [vector][key]: bit l set where lane l sees the key
  std::int32_t lo[kernels::kMaxPanelLanes];                     // lane sees keys lo <= k < hi of the tile
  std::int32_t hi[kernels::kMaxPanelLanes];
};

/// Strip s and those after it that go on with the same vectors, as one; s becomes the first strip beyond them.
kernels::Strip next_run(const TileMask& mask, int& s);

/// Fills `mask` for a tile of keys that the sight has looked at; strip_count is 0 where the panel sees none of them.
void classify(const MaskRows& rows, Interval keys, TileMask& mask);

/// bits[k] of one vector for the keys of a tile, from the masks and from a bias of -inf: which pairs take part in the sum at all.
void find_summed(const Problem& problem, const MaskRows& rows, int vector, Interval keys, std::uint16_t* bits);

}  // namespace mha::attention
