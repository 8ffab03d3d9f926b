// A layer some or all of whose heads were removed, shown to hooks as if all were there: heads keep the numbers they had before. Called by
// transformer.cpp only.
#pragma once

#include <span>
#include <vector>

#include "mha/layer.h"
#include "mha/tensor.h"

namespace mha::model {

/// The trace of all `heads`, made from that of the kept ones; views into its own memory. What a removed head looks like is said at
/// LayerHook.
class AllHeadsTrace {
 public:
  AllHeadsTrace(const MhaTrace& kept_trace, std::span<const Index> kept, Index heads, ConstTensorView allowed);
  AllHeadsTrace(const AllHeadsTrace&) = delete;
  AllHeadsTrace& operator=(const AllHeadsTrace&) = delete;

  const MhaTrace& trace() const { return trace_; }
  /// What the hook wrote, to the kept heads' output.
  void write_back(TensorView kept_out) const;

 private:
  RowStatistics spread_statistics(const RowStatistics& statistics);
  TensorView spread(const ConstTensorView& view, int axis, double absent);

  std::span<const Index> kept_;
  Index heads_;
  std::vector<Tensor> memory_;
  MhaTrace trace_;
};

/// The parts of `view` along the axis of heads that belong to kept heads; the view itself where it has one head for all, or is absent.
/// `memory` keeps what had to be copied.
ConstTensorView of_kept_heads(const ConstTensorView& view, std::span<const Index> kept, Tensor& memory);

}  // namespace mha::model
