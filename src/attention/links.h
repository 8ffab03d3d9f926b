// The strongest links of every row (mha/statistics.h), gathered while the tile loop goes by: the largest scores are kept sorted by a leaf,
// and become weights once the row's maximum and denominator are known, so that nothing is ever rescaled. Called by the forward pass and
// the merge of split keys.
#pragma once

#include "attention/panel.h"

namespace mha::attention {

/// The links of one task's rows.
class Links {
 public:
  /// Bytes of scratch for a task of so many rows, padded to whole vectors.
  static std::size_t bytes(const Problem& problem, const Plan& plan, Index rows);
  Links(const TaskContext& context, const Panel* panels, int panel_count, Arena& arena);

  /// Of panel i: its scores of a tile, before softmax_update.
  void add_scores(int i, const KeyTile& tile, const Scored& scored);
  /// Writes what is asked for of the rows of panel i; its scores become weights. `rows` is scratch of plan.row_scratch floats.
  void write(int i, const RowScale& scale, float* rows);
  /// One row as it is: its scores, -inf beyond the last, and their keys.
  void leave(int i, int lane, float* scores, std::int32_t* keys) const;

 private:
  const TaskContext c_;
  const Panel* panels_;
  kernels::Largest* lists_;  // per panel
};

/// What a row's splits left behind, one list after the other in the order of their keys.
struct SplitLinks {
  const float* scores;
  const std::int32_t* keys;
  Index splits;
};
/// Merges a row's splits and writes what is asked for; its maximum and factor are those of all its keys.
void write_merged_links(const Problem& problem, const kernels::KernelTable& kernels, const RowPlace& at, const SplitLinks& parts, float max,
                        float factor);

}  // namespace mha::attention
