// Statistics of rows (mha/statistics.h), gathered while the tile loop goes by: scores are looked at before softmax_update, weights after
// it. A tile's sums are taken in f32 by leaves, distances from the key that is nearest to the row's own place, and added up in double.
// Called by the forward pass and the merge of split keys.
#pragma once

#include <limits>

#include "attention/panel.h"

namespace mha::attention {

/// What a row has of some of its keys. Sums are of weight = exp(score - max), max being the largest score among those keys (or the sink).
struct RowTally {
  double weight = 0;                                      // sum of weights, without the sink's
  double spread = 0;                                      // of weight * (score - max)
  double distance = 0;                                    // of weight * |position - key|
  double square = 0;                                      // of weight * (position - key)^2
  double chosen = 0;                                      // of the weights of chosen keys
  float best = -std::numeric_limits<float>::infinity();   // largest score
  float first = -std::numeric_limits<float>::infinity();  // score of key 0
  Index best_key = -1;
};

/// The tallies of one task's rows.
class Tally {
 public:
  /// Bytes of scratch for a task of so many rows, padded to whole vectors.
  static std::size_t bytes(const Plan& plan, Index rows);
  Tally(const TaskContext& context, const Panel* panels, int panel_count, Arena& arena);

  /// Of panel i: its scores of a tile, before softmax_update; `max` is what the panel has so far.
  void add_scores(int i, const KeyTile& tile, const Scored& scored, const float* max);
  /// With room for the sums that softmax_update takes besides.
  kernels::RowState with_sums(const kernels::RowState& state);
  /// Of panel i: what softmax_update made of the scores.
  void add_weights(int i, const KeyTile& tile, const Scored& scored, const kernels::RowState& state, bool grown);
  RowTally row(int i, int lane) const;

 private:
  struct Lanes {  // of one panel
    double *weight, *spread, *distance, *square, *chosen;
    double* position;  // of the row's query, among the keys
    Index* best_key;
    float *best, *first;
  };
  struct Tile {  // of the panel at hand
    float* max;  // before the tile
    float *spread, *chosen;
    float *weight, *distance, *square;
    float* from;  // the key from which distances count, counted within the tile
  };
  void start(int i, Arena& arena);
  void find_best(int i, const KeyTile& tile, const Scored& scored);
  void find_in_tile(int i, int vector, const Scored& scored, float* key) const;
  void sum_tile(int i, const KeyTile& tile, const Scored& scored);
  void mark_chosen(Interval keys);
  void join(int i, const KeyTile& tile, const kernels::RowState& state, bool grown);
  void add_distances(const Lanes& all, double first_key, Index count);

  const TaskContext c_;
  const Panel* panels_;
  const bool distances_;  // whether any is asked for
  Lanes* lanes_;
  Tile tile_;
  float* marks_ = nullptr;  // per key of the tile: 1 for a chosen one, else 0; absent where none are
  Index marks_of_ = -1;     // first key of the tile they speak of
};

/// All parts of a row's keys as one; `max` of each part, and of all of them.
RowTally merged_tally(const RowTally* parts, const float* maxima, Index count, float max);
/// Writes what is asked for of one row.
void write_statistics(const Problem& problem, const RowPlace& at, const RowTally& tally, float max);

}  // namespace mha::attention
