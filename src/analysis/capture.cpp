// Captures of our own models: the hook's views copied, layer by layer.
#include "mha/analysis/capture.h"

#include <deque>

#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

class Copies {
 public:
  ConstTensorView keep(const ConstTensorView& view) {
    if (!view) return {};
    Tensor& copied = tensors_.emplace_back(view.dtype, view.shape);
    copy(view, copied);
    return copied;
  }

 private:
  std::deque<Tensor> tensors_;
};

}  // namespace

Capture capture_heads(const Transformer& model, std::span<const Index> ids, Workspace& workspace, const Intervention& intervention,
                      TensorView hidden) {
  const Index length = static_cast<Index>(ids.size());
  Tensor unwanted = hidden ? Tensor() : Tensor(DType::F32, {1, length, model.config().d_model});
  const auto copies = std::make_shared<Copies>();
  Capture capture{.layers = {}, .owner = copies};
  run_with(model, ids, intervention, hidden ? hidden : unwanted.view(), workspace, [&](Index, const MhaTrace& trace) {
    capture.layers.push_back({.name = {},
                              .spec = trace.spec,
                              .q = copies->keep(trace.q),
                              .k = copies->keep(trace.k),
                              .v = copies->keep(trace.v),
                              .lse = copies->keep(trace.lse),
                              .head_out = copies->keep(trace.head_out),
                              .allowed = copies->keep(trace.allowed),
                              .kv_lengths = {trace.kv_lengths.begin(), trace.kv_lengths.end()}});
  });
  return capture;
}

void captured_weights(const CapturedLayer& layer, const WeightsRegion& region, TensorView weights, Workspace& workspace) {
  if (!layer.weights) {
    attention_weights(layer.spec, layer.inputs(), layer.lse, region, weights, workspace);
    return;
  }
  const auto inside = [](const Interval& interval, Index size) {
    return interval.lo >= 0 && interval.lo <= interval.hi && interval.hi <= size;
  };
  MHA_CHECK(ShapeError, region.batch >= 0 && region.batch < layer.batch() && region.head >= 0 && region.head < layer.heads(),
            "captured_weights: batch ", region.batch, ", head ", region.head, " of ", layer.batch(), " x ", layer.heads());
  MHA_CHECK(ShapeError, inside(region.queries, layer.q_len()) && inside(region.keys, layer.kv_len()), "captured_weights: queries ",
            region.queries.lo, " to ", region.queries.hi, ", keys ", region.keys.lo, " to ", region.keys.hi, " of a table of ",
            layer.q_len(), " x ", layer.kv_len());
  const ConstTensorView head = layer.weights.slice(0, region.batch, region.batch + 1).slice(1, region.head, region.head + 1);
  const ConstTensorView part = head.slice(2, region.queries.lo, region.queries.hi).slice(3, region.keys.lo, region.keys.hi);
  const ConstTensorView table(part.data, part.dtype, {part.size(2), part.size(3)}, {part.stride(2), part.stride(3)});
  copy(table, weights);
}

}  // namespace mha
