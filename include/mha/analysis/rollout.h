// Attention rollout: from where in the text a token's last hidden state has come, through all layers (Abnar & Zuidema 2020, arXiv
// 2005.00928): the row of the token in A_L ... A_2 A_1, A_l = (W_l + I) / 2, W_l the mean over the heads of layer l; I is the residual
// connection. One row is asked for, so each layer is a vector times a matrix whose rows are computed a block at a time: no table of n x n.
//
//   std::vector<double> pieces = mha::rollout(capture, {.first = man.first, .count = man.count}, workspace);
//   std::vector<double> words = mha::summed_by_unit(pieces, sentence.words);
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "mha/analysis/capture.h"
#include "mha/analysis/sentence.h"

namespace mha {

/// Where rollout starts.
struct RolloutStart {
  Index first = 0;                   // piece
  Index count = 1;                   // a word of several pieces: the mean of their rows
  std::optional<Index> layers = {};  // hidden states after so many layers, from below; absent: after all
  Index batch = 0;
};

/// The share of each piece of the text, [pieces]; they sum to 1 where rows of weights do (a sink logit takes its share away). Heads removed
/// from a model take no part; a layer without any passes on what it gets. Memory O(pieces). Throws ShapeError where the start is not there
/// or a layer is not self-attention of one length.
std::vector<double> rollout(const Capture& capture, const RolloutStart& start, Workspace& workspace);

/// Numbers by piece summed to numbers by unit. Throws ShapeError where a unit is not there.
std::vector<double> summed_by_unit(std::span<const double> pieces, std::span<const Unit> units);

}  // namespace mha
