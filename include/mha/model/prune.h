// A checkpoint with heads taken out of its weights: smaller and faster than masking them, and the same result. Which heads can go is
// measured by mha/analysis/pruning.h.
//
//   mha::save_without_heads(folder, "smaller", {{0, {1, 2}}, {5, {11}}});
//   mha::Transformer smaller = mha::Transformer::load("smaller");
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mha/tensor.h"

namespace mha {

/// Writes to the folder `to` the model in `folder` without the heads of `removed` (by layer; those that it has lost before stay lost):
/// their rows of W_q, W_k, W_v with their biases, and their columns of W_O. config.json tells them as `pruned_heads`, in the numbers they
/// had before, as transformers up to version 4 wrote and read it; all other tensors, the tokenizer's files and LICENSE are copied. The
/// folder appears at once or not at all (written beside it, then renamed). Throws IoError where `to` is there already and no empty folder,
/// or cannot be written, ShapeError for a layer or head that is not there, and what Transformer::load throws of `folder`.
void save_without_heads(const std::string& folder, const std::string& to, const std::map<Index, std::vector<Index>>& removed);

/// Throws IoError where save_without_heads would because of what is there already.
void check_new_folder(const std::string& to);

}  // namespace mha
