// Who may look where: cells of a table that no pair of theirs lets be seen are hidden, which a weight of 0 does not say. Asked by
// tables.cpp.
#pragma once

#include <span>
#include <vector>

#include "mha/analysis/capture.h"

namespace mha::view {

/// One head of a captured layer, batch entry 0. The layer must outlive it.
class Visibility {
 public:
  Visibility(const CapturedLayer& layer, Index head);

  /// Whether every pair is seen, as far as that is plain without looking at pairs.
  bool all() const { return all_; }
  /// Whether other heads of the layer may see something else.
  bool is_own() const { return own_; }
  /// For every cell (rows x columns, each a run of queries or keys, ascending and apart): whether some pair of it is seen.
  std::vector<bool> seen(std::span<const Interval> rows, std::span<const Interval> columns) const;

 private:
  bool pair_seen(Index q, Index k) const;
  RowIntervals row(Index q) const;

  const CapturedLayer* layer_;
  Index head_;
  Index kv_len_;  // keys that exist
  ConstTensorView bias_;
  bool all_ = false;
  bool own_ = false;
};

}  // namespace mha::view
