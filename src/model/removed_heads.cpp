// Slices of heads copied to and from where they stood before others were removed.
#include "model/removed_heads.h"

#include <algorithm>
#include <limits>

#include "attention/row_numbers.h"

namespace mha::model {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TensorView head_of(const TensorView& view, int axis, Index head) { return view.slice(axis, head, head + 1); }
ConstTensorView head_of(const ConstTensorView& view, int axis, Index head) { return view.slice(axis, head, head + 1); }

}  // namespace

AllHeadsTrace::AllHeadsTrace(const MhaTrace& kept_trace, std::span<const Index> kept, Index heads, ConstTensorView allowed)
    : kept_(kept),
      heads_(heads),
      trace_{.spec = kept_trace.spec,
             .q = spread(kept_trace.q, 2, 0),
             .k = spread(kept_trace.k, 2, 0),
             .v = spread(kept_trace.v, 2, 0),
             .lse = spread(kept_trace.lse, 1, kInfinity),
             .head_out = spread(kept_trace.head_out, 2, 0),
             .kv_lengths = kept_trace.kv_lengths,
             .allowed = allowed,
             .statistics = spread_statistics(kept_trace.statistics)} {}

TensorView AllHeadsTrace::spread(const ConstTensorView& view, int axis, double absent) {
  Dims shape = view.shape;
  shape[axis] = heads_;
  const TensorView all = memory_.emplace_back(view.dtype, shape).view();
  if (view.dtype == DType::I64) {
    std::fill_n(all.as<Index>(), element_count(shape), static_cast<Index>(absent));
  } else {
    std::fill_n(all.as<float>(), element_count(shape), static_cast<float>(absent));
  }
  for (std::size_t i = 0; i < kept_.size(); ++i) copy(head_of(view, axis, static_cast<Index>(i)), head_of(all, axis, kept_[i]));
  return all;
}

RowStatistics AllHeadsTrace::spread_statistics(const RowStatistics& statistics) {
  RowStatistics all{.chosen = statistics.chosen};
  for (const attention::RowNumber& number : attention::kRowNumbers) {
    const TensorView& kept = statistics.*number.view;
    if (kept) all.*number.view = spread(kept, 1, number.blank);
  }
  return all;
}

void AllHeadsTrace::write_back(TensorView kept_out) const {
  for (std::size_t i = 0; i < kept_.size(); ++i) copy(head_of(trace_.head_out, 2, kept_[i]), head_of(kept_out, 2, static_cast<Index>(i)));
}

ConstTensorView of_kept_heads(const ConstTensorView& view, std::span<const Index> kept, Tensor& memory) {
  if (!view || view.size(1) == 1) return view;
  Dims shape = view.shape;
  shape[1] = static_cast<Index>(kept.size());
  memory = Tensor(view.dtype, shape);
  for (std::size_t i = 0; i < kept.size(); ++i) copy(head_of(view, 1, kept[i]), head_of(memory.view(), 1, static_cast<Index>(i)));
  return memory;
}

}  // namespace mha::model
