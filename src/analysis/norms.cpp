// Norms of what heads carry, in double by the Gram matrix of W_O^h; tables are weights with their columns scaled. Used by the microscope's
// norm view and by `mha heads`.
#include "mha/analysis/norms.h"

#include <cmath>
#include <functional>

#include "analysis/capture_rows.h"
#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

/// W' W for the head's columns of W_O, [value_dim, value_dim].
std::vector<double> gram_matrix(const ConstTensorView& projection, Index head, Index dim) {
  Tensor columns(DType::F32, {projection.size(0), dim});
  copy(projection.slice(1, head * dim, (head + 1) * dim), columns);
  std::vector<double> gram(static_cast<std::size_t>(dim * dim));
  for (Index row = 0; row < projection.size(0); ++row) {
    const float* w = columns.data<float>() + row * dim;
    for (Index a = 0; a < dim; ++a) {
      for (Index b = 0; b < dim; ++b) gram[static_cast<std::size_t>(a * dim + b)] += static_cast<double>(w[a]) * static_cast<double>(w[b]);
    }
  }
  return gram;
}

/// sqrt(v G v'). Rounding may take the square of a tiny norm below 0.
double norm_of(const float* v, std::span<const double> gram, Index dim) {
  double square = 0.0;
  for (Index a = 0; a < dim; ++a) {
    double sum = 0.0;
    for (Index b = 0; b < dim; ++b) sum += gram[static_cast<std::size_t>(a * dim + b)] * static_cast<double>(v[b]);
    square += sum * static_cast<double>(v[a]);
  }
  return square < 0.0 ? 0.0 : std::sqrt(square);
}

void check_values(const CapturedLayer& layer, Index head, Index batch) {
  MHA_CHECK(ShapeError, layer.v && layer.v.rank() == 4, "value_norms: the capture has no v");
  MHA_CHECK(ShapeError, head >= 0 && head < layer.heads() && batch >= 0 && batch < layer.batch(), "value_norms: batch ", batch, ", head ",
            head, " of ", layer.batch(), " x ", layer.heads());
  MHA_CHECK(
      ShapeError,
      layer.v.size(0) == layer.batch() && layer.v.size(1) == layer.kv_len() && layer.v.size(2) > 0 && layer.heads() % layer.v.size(2) == 0,
      "value_norms: v is ", to_string(layer.v.shape), " for ", layer.batch(), " x ", layer.heads(), " heads of ", layer.kv_len(), " keys");
}

/// A table of all heads; `write` fills in one head's [pieces, pieces].
HeadTable folded(const Capture& capture, std::span<const Unit> units, const std::function<void(HeadId, TensorView)>& write) {
  const Index length = analysis::self_length(capture, "fold");
  const Index heads = capture.layers[0].heads();
  for (const CapturedLayer& layer : capture.layers) {
    MHA_CHECK(ShapeError, layer.heads() == heads, "fold: layers of ", heads, " and of ", layer.heads(), " heads");
  }
  HeadTable table(static_cast<Index>(capture.layers.size()), heads, static_cast<Index>(units.size()));
  Tensor pieces(DType::F32, {length, length});
  for (const HeadId& id : analysis::heads_of(capture)) {
    write(id, pieces);
    fold_pieces(pieces, units, table.head(id));
  }
  return table;
}

WeightsRegion whole(const CapturedLayer& layer, Index head) {
  return {.batch = 0, .head = head, .queries = {0, layer.q_len()}, .keys = {0, layer.kv_len()}};
}

}  // namespace

std::vector<double> value_norms(const CapturedLayer& layer, ConstTensorView output_projection, Index head, Index batch) {
  check_values(layer, head, batch);
  const Index dim = layer.v.size(3);
  MHA_CHECK(ShapeError, output_projection.rank() == 2 && output_projection.size(1) == layer.heads() * dim,
            "value_norms: output_projection is ", to_string(output_projection.shape), " for ", layer.heads(), " heads of ", dim);
  return value_norms_by(layer, gram_matrix(output_projection, head, dim), head, batch);
}

std::vector<double> value_norms_by(const CapturedLayer& layer, std::span<const double> gram, Index head, Index batch) {
  check_values(layer, head, batch);
  const Index dim = layer.v.size(3);
  MHA_CHECK(ShapeError, static_cast<Index>(gram.size()) == dim * dim, "value_norms: gram has ", gram.size(), " numbers, must be ", dim,
            " x ", dim);
  const Index kv_head = head / (layer.heads() / layer.v.size(2));
  Tensor values(DType::F32, {1, layer.v.size(1), 1, dim});
  copy(layer.v.slice(0, batch, batch + 1).slice(2, kv_head, kv_head + 1), values);
  std::vector<double> norms;
  for (Index key = 0; key < layer.v.size(1); ++key) norms.push_back(norm_of(values.data<float>() + key * dim, gram, dim));
  return norms;
}

ValueGrams value_grams(std::span<const ConstTensorView> projections, Index heads) {
  ValueGrams grams;
  for (const ConstTensorView& projection : projections) {
    MHA_CHECK(ShapeError, heads > 0 && projection.rank() == 2 && projection.size(1) % heads == 0, "value_grams: output_projection is ",
              to_string(projection.shape), " for ", heads, " heads");
    for (Index head = 0; head < heads; ++head) grams.push_back(gram_matrix(projection, head, projection.size(1) / heads));
  }
  return grams;
}

void captured_norms(const CapturedLayer& layer, std::span<const double> norms, const WeightsRegion& region, TensorView table,
                    Workspace& workspace) {
  MHA_CHECK(ShapeError, static_cast<Index>(norms.size()) == layer.kv_len(), "captured_norms: ", norms.size(), " norms for ", layer.kv_len(),
            " keys");
  captured_weights(layer, region, table, workspace);
  for (Index row = 0; row < table.size(0); ++row) {
    float* weights = table.as<float>() + row * table.stride(0);
    for (Index key = 0; key < table.size(1); ++key) {
      float& weight = weights[key * table.stride(1)];
      weight = static_cast<float>(static_cast<double>(weight) * norms[static_cast<std::size_t>(region.keys.lo + key)]);
    }
  }
}

std::vector<ConstTensorView> output_projections(const Transformer& model) {
  std::vector<ConstTensorView> projections;
  for (Index layer = 0; layer < model.config().layers; ++layer) projections.push_back(model.output_projection(layer));
  return projections;
}

HeadTable fold_weights(const Capture& capture, std::span<const Unit> units, Workspace& workspace) {
  return folded(capture, units, [&](HeadId id, TensorView pieces) {
    const CapturedLayer& layer = analysis::layer_of(capture, id);
    captured_weights(layer, whole(layer, id.head), pieces, workspace);
  });
}

HeadTable fold_norms(const Capture& capture, std::span<const ConstTensorView> projections, std::span<const Unit> units,
                     Workspace& workspace) {
  MHA_CHECK(ShapeError, projections.size() == capture.layers.size(), "fold_norms: ", projections.size(), " output projections for ",
            capture.layers.size(), " layers");
  return fold_norms_by(capture, value_grams(projections, capture.layers.empty() ? 0 : capture.layers[0].heads()), units, workspace);
}

HeadTable fold_norms_by(const Capture& capture, const ValueGrams& grams, std::span<const Unit> units, Workspace& workspace) {
  const Index heads = capture.layers.empty() ? 0 : capture.layers[0].heads();
  MHA_CHECK(ShapeError, static_cast<Index>(grams.size()) == static_cast<Index>(capture.layers.size()) * heads, "fold_norms: ", grams.size(),
            " grams for ", capture.layers.size(), " layers of ", heads, " heads");
  return folded(capture, units, [&](HeadId id, TensorView pieces) {
    const CapturedLayer& layer = analysis::layer_of(capture, id);
    captured_norms(layer, value_norms_by(layer, grams[static_cast<std::size_t>(id.layer * heads + id.head)], id.head),
                   whole(layer, id.head), pieces, workspace);
  });
}

HeadTable row_shares(HeadTable table) {
  for (Index layer = 0; layer < table.layers(); ++layer) {
    for (Index head = 0; head < table.heads(); ++head) {
      for (Index from = 0; from < table.units(); ++from) {
        double sum = 0.0;
        for (float x : table.row({layer, head}, from)) sum += static_cast<double>(x);
        if (sum == 0.0) continue;
        float* row = table.head({layer, head}).as<float>() + from * table.units();
        for (Index to = 0; to < table.units(); ++to) row[to] = static_cast<float>(static_cast<double>(row[to]) / sum);
      }
    }
  }
  return table;
}

}  // namespace mha
