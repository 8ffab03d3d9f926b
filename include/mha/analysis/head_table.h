// The weights of all heads for one sentence, by word or by piece. The base of links, measures and usual weights.
//
//   mha::HeadTable table = mha::read_heads(model, sentence.ids, sentence.words, workspace);
//   float weight = table.weight({.layer = 0, .head = 3}, telescope, man);
#pragma once

#include <span>
#include <vector>

#include "mha/analysis/intervention.h"
#include "mha/analysis/sentence.h"
#include "mha/model/transformer.h"
#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha {

/// [layers, heads, units, units] f32; the row is the unit that attends, the column the one attended to. Every row of a model sums to 1;
/// only those of heads that were removed from it are all 0.
class HeadTable {
 public:
  /// All weights 0. Throws ShapeError for a negative size.
  HeadTable(Index layers, Index heads, Index units);

  Index layers() const { return layers_; }
  Index heads() const { return heads_; }
  Index units() const { return units_; }

  /// Throws ShapeError outside the table.
  float weight(HeadId id, Index from, Index to) const;
  std::span<const float> row(HeadId id, Index from) const;
  /// Whether the head attends at all: false where all its weights are 0, as of one that was removed from the model.
  bool present(HeadId id) const;
  /// One head's whole table, [units, units].
  TensorView head(HeadId id);

 private:
  std::size_t start(HeadId id, Index from) const;

  Index layers_;
  Index heads_;
  Index units_;
  std::vector<float> weights_;
};

/// Piece weights [pieces, pieces] to unit weights [units, units]: summed over the pieces of the unit attended to, averaged over the pieces
/// of the unit attending (Clark et al. 2019, arXiv 1906.04341, section 4.1), so that rows still sum to 1. Throws ShapeError where they do
/// not fit.
void fold_pieces(ConstTensorView pieces, std::span<const Unit> units, TensorView folded);
/// The same for any rectangle of pieces, folded to [rows, columns]: units count their pieces from the rectangle's first.
void fold_pieces(ConstTensorView pieces, std::span<const Unit> rows, std::span<const Unit> columns, TensorView folded);

/// Runs the model on `ids` and keeps every head's weights, folded to `units` (sentence.words or sentence.pieces). Only one head's table of
/// pieces is in memory at a time. `hidden`, on request, receives the last layer's hidden states, [1, pieces, d_model] f32. Throws what
/// `run_with` throws.
HeadTable read_heads(const Transformer& model, std::span<const Index> ids, std::span<const Unit> units, Workspace& workspace,
                     const Intervention& intervention = {}, TensorView hidden = {});

}  // namespace mha
