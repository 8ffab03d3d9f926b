// How alike the outputs of heads are, whatever their weights: linear CKA (Kornblith et al. 2019, arXiv 1905.00414) of what they give to
// W_O: frob(Y'X)^2 / (frob(X'X) frob(Y'Y)), X and Y the outputs over all rows, [rows, value_dim], columns centred. 1 for outputs that are
// one another's turned and scaled, near 0 for unrelated ones. It is biased upward where rows are few: take many more than value_dim.
//
//   mha::HeadMatrix alike = mha::head_similarities(captures, workspace);
#pragma once

#include <span>

#include "mha/analysis/distances.h"

namespace mha {

/// Similarities of all heads over the rows of all texts put together, special tokens' included; the first batch entry of each. A head whose
/// output is the same in every row has NaN, also with itself. Memory O(heads * rows * value_dim), time O(heads^2 * rows * value_dim^2).
/// Bitwise the same for any number of threads. Throws ShapeError without a text, where texts have different heads or value_dims, or a
/// capture has no head_out.
HeadMatrix head_similarities(std::span<const Capture> texts, Workspace& workspace);

}  // namespace mha
