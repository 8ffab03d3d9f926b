// Changing one thing in a running model to see what depends on it: flatter or sharper softmax, words that nobody may attend to, heads
// whose output is taken away.
//
//   mha::run_with(model, sentence.ids, {.zeroed = {{.layer = 5, .head = 11}}}, hidden, workspace);
//   std::vector<double> vector = mha::sentence_vector(hidden);
#pragma once

#include <compare>
#include <span>
#include <vector>

#include "mha/model/transformer.h"
#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha {

/// One head, counted from 0.
struct HeadId {
  Index layer = 0;
  Index head = 0;
  friend auto operator<=>(const HeadId&, const HeadId&) = default;
};

/// Every head of the model, by layer, then head; those removed from it left out.
std::vector<HeadId> all_heads(const TransformerConfig& config);

/// A head's output where it enters W_O, given instead of what the head computes: its mean over texts, or what it said of another text.
struct ReplacedHead {
  HeadId id;
  ConstTensorView output;  // f32, [pieces, head_dim], or [1, head_dim] for every piece alike
};

/// What is changed; the default changes nothing.
struct Intervention {
  float temperature = 1.0F;                 // every head's scores are divided by it
  std::vector<Index> hidden = {};           // pieces that no row may attend to, in any head; their own rows stay
  std::vector<HeadId> zeroed = {};          // heads whose output is 0 where it enters W_O; one removed from the model is so anyway
  std::vector<ReplacedHead> replaced = {};  // heads whose output is another; after `zeroed`
};

/// Transformer::forward of one text under an intervention. `hidden`, [1, pieces, d_model] f32, receives the last layer's hidden states. The
/// hook sees each layer after the change: zeros as a zeroed head's output. Throws ShapeError, before anything is written, for a piece or a
/// head that is not there, a replacement of another shape or of a removed head, a temperature that is not above 0, and what
/// Transformer::forward refuses.
void run_with(const Transformer& model, std::span<const Index> ids, const Intervention& intervention, TensorView hidden,
              Workspace& workspace, const LayerHook& hook = {});

/// The sentence as one vector: the mean of all pieces' hidden states [1, pieces, d_model], scaled to length 1. Pooling as in
/// Reimers & Gurevych 2019 (arXiv 1908.10084), and as the default model was trained. Throws ShapeError without pieces.
std::vector<double> sentence_vector(ConstTensorView hidden);

/// Cosine of the angle between two vectors; 0 where one is 0. Throws ShapeError where their lengths differ.
double cosine(std::span<const double> a, std::span<const double> b);

}  // namespace mha
