// What the measures of captures share: heads in their order, and the rows of a head's weights a block at a time, so that no table of
// n x n is held. For src/analysis alone.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "core/check.h"
#include "mha/analysis/distances.h"
#include "mha/error.h"

namespace mha::analysis {

/// Rows of weights that are looked at together: at most this many floats of memory, at least one row.
inline constexpr Index kBlockElements = Index{1} << 18;

/// All heads, layer by layer.
inline std::vector<HeadId> heads_of(const Capture& capture) {
  std::vector<HeadId> heads;
  for (std::size_t layer = 0; layer < capture.layers.size(); ++layer) {
    for (Index head = 0; head < capture.layers[layer].heads(); ++head) heads.push_back({static_cast<Index>(layer), head});
  }
  return heads;
}

inline const CapturedLayer& layer_of(const Capture& capture, HeadId id) { return capture.layers[static_cast<std::size_t>(id.layer)]; }

/// Throws ShapeError where a layer attends to other tokens than its own, or layers are of different lengths. Returns the length.
inline Index self_length(const Capture& capture, const char* what) {
  MHA_CHECK(ShapeError, !capture.layers.empty(), what, ": the capture has no layer");
  const Index length = capture.layers[0].q_len();
  for (const CapturedLayer& layer : capture.layers) {
    MHA_CHECK(ShapeError, layer.q_len() == length && layer.kv_len() == length, what, ": a table of ", layer.q_len(), " x ", layer.kv_len(),
              " weights, every layer must have one of ", length, " x ", length);
  }
  return length;
}

/// Whether a head is one that was removed from its model: every row's lse is +infinity (see LayerHook).
inline bool is_removed(const CapturedLayer& layer, Index head, Index batch = 0) {
  if (!layer.lse || layer.q_len() == 0) return false;
  MHA_CHECK(ShapeError, layer.lse.shape == Dims({layer.batch(), layer.heads(), layer.q_len()}), "capture: lse is ",
            to_string(layer.lse.shape), " for ", layer.batch(), " x ", layer.heads(), " heads of ", layer.q_len(), " rows");
  for (Index row = 0; row < layer.q_len(); ++row) {
    const float lse = layer.lse.as<float>()[batch * layer.lse.stride(0) + head * layer.lse.stride(1) + row * layer.lse.stride(2)];
    if (lse != std::numeric_limits<float>::infinity()) return false;
  }
  return true;
}

/// Zeros for every pair of the texts' heads, those left out that were removed from the model. Throws ShapeError without a text, or where
/// the heads of one are not those of another.
inline HeadMatrix matrix_for(std::span<const Capture> texts, const char* what) {
  MHA_CHECK(ShapeError, !texts.empty(), what, ": no text");
  const auto heads = [](const Capture& text) {
    std::vector<HeadId> there = heads_of(text);
    std::erase_if(there, [&](const HeadId& id) { return is_removed(layer_of(text, id), id.head); });
    return there;
  };
  HeadMatrix matrix{.heads = heads(texts[0]), .values = {}};
  for (const Capture& text : texts) {
    MHA_CHECK(ShapeError, heads(text) == matrix.heads, what, ": texts of different heads, ", heads(text).size(), " and ",
              matrix.heads.size());
  }
  matrix.values.resize(matrix.heads.size() * matrix.heads.size());
  return matrix;
}

/// The upper triangle copied to the lower.
inline void mirror(HeadMatrix& matrix) {
  const std::size_t size = matrix.heads.size();
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = a + 1; b < size; ++b) matrix.values[b * size + a] = matrix.values[a * size + b];
  }
}

/// One batch entry of one head.
struct CapturedHead {
  const CapturedLayer& layer;
  Index head = 0;
  Index batch = 0;
};

/// Calls visit(first_row, weights [rows, kv_len]) for all rows of [queries.lo, queries.hi), block by block.
template <class Visit>
void for_row_blocks(const CapturedHead& of, Interval queries, Workspace& workspace, Visit&& visit) {
  const Index keys = of.layer.kv_len();
  const Index rows = std::clamp<Index>(kBlockElements / std::max<Index>(keys, 1), 1, std::max<Index>(queries.hi - queries.lo, 1));
  Tensor block(DType::F32, {rows, keys});
  for (Index first = queries.lo; first < queries.hi; first += rows) {
    const Interval part{first, std::min(first + rows, queries.hi)};
    const TensorView weights = block.view().slice(0, 0, part.hi - part.lo);
    captured_weights(of.layer, {.batch = of.batch, .head = of.head, .queries = part, .keys = {0, keys}}, weights, workspace);
    visit(first, ConstTensorView(weights));
  }
}

}  // namespace mha::analysis
