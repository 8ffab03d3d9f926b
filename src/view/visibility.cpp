// Rules tell by intervals; a boolean table and a bias of -inf only pair by pair, and only until one pair of a cell is seen.
#include "view/visibility.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace mha::view {
namespace {

Index place(const ConstTensorView& view, Index head, Index q, Index k) {
  const auto at = [&](int axis, Index i) { return view.size(axis) == 1 ? 0 : i * view.stride(axis); };
  return at(1, head) + at(2, q) + at(3, k);
}

bool is_minus_infinity(const ConstTensorView& view, Index at) {
  double value = 0;
  switch (view.dtype) {
    case DType::F32:
      value = static_cast<double>(view.as<float>()[at]);
      break;
    case DType::F64:
      value = view.as<double>()[at];
      break;
    case DType::Bf16:
      value = static_cast<double>(view.as<Bf16>()[at].to_float());
      break;
    case DType::F16:
      value = static_cast<double>(view.as<F16>()[at].to_float());
      break;
    default:
      break;
  }
  return std::isinf(value) && value < 0;
}

}  // namespace

Visibility::Visibility(const CapturedLayer& layer, Index head) : layer_(&layer), head_(head), kv_len_(layer.kv_len()) {
  if (!layer.kv_lengths.empty()) kv_len_ = std::clamp(layer.kv_lengths[0], Index{0}, layer.kv_len());
  if (const auto* dense = std::get_if<DenseBias>(&layer.spec.bias)) bias_ = dense->values;
  all_ = layer.spec.mask.empty() && !layer.allowed && !bias_ && kv_len_ == layer.kv_len();
  own_ = (layer.allowed && layer.allowed.size(1) > 1) || (bias_ && bias_.size(1) > 1);
}

RowIntervals Visibility::row(Index q) const {
  RowIntervals existing;
  existing.add({0, kv_len_});
  if (layer_->spec.mask.empty()) return existing;
  const Index offset = layer_->spec.align == Align::BottomRight ? kv_len_ - layer_->q_len() : 0;
  return intersect(layer_->spec.mask.visible(q, {.q_len = layer_->q_len(), .kv_len = kv_len_, .offset = offset}), existing);
}

bool Visibility::pair_seen(Index q, Index k) const {
  if (layer_->allowed && !layer_->allowed.as<bool>()[place(layer_->allowed, head_, q, k)]) return false;
  return !bias_ || !is_minus_infinity(bias_, place(bias_, head_, q, k));
}

std::vector<bool> Visibility::seen(std::span<const Interval> rows, std::span<const Interval> columns) const {
  std::vector<bool> cells(rows.size() * columns.size(), all_);
  if (all_) return cells;
  const bool by_pair = layer_->allowed || bias_;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (Index q = rows[r].lo; q < rows[r].hi; ++q) {
      const RowIntervals visible = row(q);
      for (int i = 0; i < visible.count; ++i) {
        const Interval part = visible.items[static_cast<std::size_t>(i)];
        auto column = std::partition_point(columns.begin(), columns.end(), [&](const Interval& c) { return c.hi <= part.lo; });
        for (; column != columns.end() && column->lo < part.hi; ++column) {
          const std::size_t cell = r * columns.size() + static_cast<std::size_t>(column - columns.begin());
          if (cells[cell]) continue;
          Index k = std::max(column->lo, part.lo);
          const Index end = std::min(column->hi, part.hi);
          if (by_pair) {
            while (k < end && !pair_seen(q, k)) ++k;
          }
          cells[cell] = k < end;
        }
      }
    }
  }
  return cells;
}

}  // namespace mha::view
