// Interventions reach the model through what it offers everybody: inputs (temperature, allowed) and the hook (a head's output).
#include "mha/analysis/intervention.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

void check_head(const TransformerConfig& config, const HeadId& id) {
  MHA_CHECK(ShapeError, id.layer >= 0 && id.layer < config.layers, "layer is ", id.layer, ", the model has ", config.layers,
            " layers counted from 0");
  MHA_CHECK(ShapeError, id.head >= 0 && id.head < config.heads, "head is ", id.head, ", the model has ", config.heads,
            " heads counted from 0");
}

void check_replaced(const TransformerConfig& config, const ReplacedHead& replaced, Index pieces) {
  check_head(config, replaced.id);
  MHA_CHECK(ShapeError, config.has_head(replaced.id.layer, replaced.id.head), "replaced output of layer ", replaced.id.layer, ", head ",
            replaced.id.head, ": this head was removed from the model");
  const ConstTensorView& output = replaced.output;
  MHA_CHECK(DTypeError, output.dtype == DType::F32, "replaced output is ", name_of(output.dtype), ", must be f32");
  MHA_CHECK(ShapeError,
            output && output.rank() == 2 && (output.size(0) == pieces || output.size(0) == 1) && output.size(1) == config.head_dim,
            "replaced output of layer ", replaced.id.layer, ", head ", replaced.id.head, " is ", to_string(output.shape), ", must be [",
            pieces, " or 1, ", config.head_dim, "]");
}

/// [1, 1, 1, pieces]: True except for the hidden ones; absent where none is hidden.
Tensor allowed_keys(const std::vector<Index>& hidden, Index pieces) {
  if (hidden.empty()) return {};
  Tensor allowed(DType::Bool, {1, 1, 1, pieces});
  std::fill_n(allowed.data<bool>(), pieces, true);
  for (Index piece : hidden) {
    MHA_CHECK(ShapeError, piece >= 0 && piece < pieces, "hidden piece is ", piece, ", the text has ", pieces);
    allowed.data<bool>()[piece] = false;
  }
  return allowed;
}

/// `out` is [batch, length, heads, head_dim].
void zero_head(TensorView out, Index head) {
  for (Index b = 0; b < out.size(0); ++b) {
    for (Index q = 0; q < out.size(1); ++q) {
      float* row = out.as<float>() + b * out.stride(0) + q * out.stride(1) + head * out.stride(2);
      for (Index d = 0; d < out.size(3); ++d) row[d * out.stride(3)] = 0.0F;
    }
  }
}

/// `out` is [1, pieces, heads, head_dim].
void replace_head(TensorView out, const ReplacedHead& replaced) {
  for (Index q = 0; q < out.size(1); ++q) {
    float* row = out.as<float>() + q * out.stride(1) + replaced.id.head * out.stride(2);
    const float* given = replaced.output.as<float>() + (replaced.output.size(0) == 1 ? 0 : q) * replaced.output.stride(0);
    for (Index d = 0; d < out.size(3); ++d) row[d * out.stride(3)] = given[d * replaced.output.stride(1)];
  }
}

}  // namespace

std::vector<HeadId> all_heads(const TransformerConfig& config) {
  std::vector<HeadId> heads;
  for (Index layer = 0; layer < config.layers; ++layer) {
    for (const Index head : config.heads_of(layer)) heads.push_back({layer, head});
  }
  return heads;
}

void run_with(const Transformer& model, std::span<const Index> ids, const Intervention& intervention, TensorView hidden,
              Workspace& workspace, const LayerHook& hook) {
  for (const HeadId& id : intervention.zeroed) check_head(model.config(), id);
  for (const ReplacedHead& replaced : intervention.replaced) check_replaced(model.config(), replaced, static_cast<Index>(ids.size()));
  const Tensor allowed = allowed_keys(intervention.hidden, static_cast<Index>(ids.size()));
  LayerHook changing = hook;
  if (!intervention.zeroed.empty() || !intervention.replaced.empty()) {
    changing = [&](Index layer, const MhaTrace& trace) {
      for (const HeadId& id : intervention.zeroed) {
        if (id.layer == layer) zero_head(trace.head_out, id.head);
      }
      for (const ReplacedHead& replaced : intervention.replaced) {
        if (replaced.id.layer == layer) replace_head(trace.head_out, replaced);
      }
      if (hook) hook(layer, trace);
    };
  }
  model.forward({.ids = ids, .allowed = allowed, .temperature = intervention.temperature}, hidden, workspace, changing);
}

std::vector<double> sentence_vector(ConstTensorView hidden) {
  MHA_CHECK(ShapeError, hidden.rank() == 3 && hidden.size(0) == 1 && hidden.size(1) > 0, "sentence_vector: hidden is ",
            to_string(hidden.shape), ", must be [1, pieces, d_model] with pieces");
  std::vector<double> sum(static_cast<std::size_t>(hidden.size(2)));
  for (Index piece = 0; piece < hidden.size(1); ++piece) {
    const float* row = hidden.as<float>() + piece * hidden.stride(1);
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += static_cast<double>(row[static_cast<Index>(d) * hidden.stride(2)]);
  }
  double square = 0.0;
  for (double x : sum) square += x * x;
  const double length = std::sqrt(square);
  if (length > 0.0) {
    for (double& x : sum) x /= length;
  }
  return sum;
}

double cosine(std::span<const double> a, std::span<const double> b) {
  MHA_CHECK(ShapeError, a.size() == b.size(), "cosine: vectors of ", a.size(), " and ", b.size(), " numbers");
  double product = 0.0;
  double a_square = 0.0;
  double b_square = 0.0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    product += a[d] * b[d];
    a_square += a[d] * a[d];
    b_square += b[d] * b[d];
  }
  return a_square > 0.0 && b_square > 0.0 ? product / std::sqrt(a_square * b_square) : 0.0;
}

}  // namespace mha
