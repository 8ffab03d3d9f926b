// What a model loses without a head: every head in turn is taken away where its output enters W_O (leave one out), its output 0 or its
// mean over the texts, and the model's answer is held against that of the whole model. Used by `mha heads`, `mha prune` and the page.
//
//   std::vector<mha::HeadEffect> effects = mha::head_effects(model, texts, mha::Ablation::Zero, workspace);
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mha/analysis/intervention.h"
#include "mha/model/transformer.h"
#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha {

/// What stands in the place of a head's output.
enum class Ablation : std::uint8_t {
  Zero,  // nothing
  Mean   // its mean over all tokens of the texts, special ones included: what it always says stays, what it says of this text goes
};

/// Means over the texts.
struct HeadEffect {
  HeadId id;
  double vector = 0.0;  // 1 - cosine of the sentence vectors (sentence_vector) with and without the head
  double hidden = 0.0;  // |H' - H| / |H|, Frobenius norms of the last layer's hidden states over all tokens
};

/// One text's ids, special ones included.
using TextIds = std::vector<Index>;

/// The mean output of every head where it enters W_O, over all tokens of all texts: f32, [layers, heads, head_dim]. Throws ShapeError
/// without texts, and what `run_with` throws.
Tensor mean_outputs(const Transformer& model, std::span<const TextIds> texts, Workspace& workspace);

/// One text without each of several sets of heads: copies of it in one batch, since batch mates change no bit. `visit` is given each set's
/// number, in order, and the last layer's hidden states, [1, pieces, d_model], valid until it returns. `means`, as of mean_outputs, stands
/// for the heads taken away; absent: zeros. Throws what `run_with` throws.
using AblatedVisit = std::function<void(std::size_t set, ConstTensorView hidden)>;
void run_without(const Transformer& model, std::span<const Index> ids, std::span<const std::vector<HeadId>> sets, ConstTensorView means,
                 const AblatedVisit& visit, Workspace& workspace);

/// The effect of every head of the model, by layer, then head. `begin`, on request, is called as each text begins. Throws ShapeError
/// without texts, and what `run_with` throws.
std::vector<HeadEffect> head_effects(const Transformer& model, std::span<const TextIds> texts, Ablation ablation, Workspace& workspace,
                                     const std::function<void()>& begin = {});

}  // namespace mha
