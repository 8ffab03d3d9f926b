// Rollout as a product of a vector with one matrix a layer, from the top down; rows of weights come a block at a time from q, k and lse.
#include "mha/analysis/rollout.h"

#include <algorithm>

#include "analysis/capture_rows.h"
#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

/// The rows that count: from the first that is not 0 to behind the last.
Interval extent(const std::vector<double>& share) {
  Index lo = 0;
  Index hi = static_cast<Index>(share.size());
  while (lo < hi && share[static_cast<std::size_t>(lo)] == 0.0) ++lo;
  while (hi > lo && share[static_cast<std::size_t>(hi - 1)] == 0.0) --hi;
  return {lo, hi};
}

/// share' (W + I) / 2; share alone where no head is left.
std::vector<double> through_layer(const CapturedLayer& layer, const std::vector<double>& share, Index batch, Workspace& workspace) {
  std::vector<double> passed(share.size());
  double heads = 0.0;
  for (Index head = 0; head < layer.heads(); ++head) {
    if (analysis::is_removed(layer, head, batch)) continue;
    heads += 1.0;
    analysis::for_row_blocks({layer, head, batch}, extent(share), workspace, [&](Index first, const ConstTensorView& weights) {
      for (Index row = 0; row < weights.size(0); ++row) {
        const double of_row = share[static_cast<std::size_t>(first + row)];
        const float* alpha = weights.as<float>() + row * weights.stride(0);
        if (of_row == 0.0) continue;
        for (std::size_t key = 0; key < passed.size(); ++key) passed[key] += of_row * static_cast<double>(alpha[key]);
      }
    });
  }
  if (heads == 0.0) return share;
  for (std::size_t piece = 0; piece < share.size(); ++piece) passed[piece] = (passed[piece] / heads + share[piece]) / 2;
  return passed;
}

}  // namespace

std::vector<double> rollout(const Capture& capture, const RolloutStart& start, Workspace& workspace) {
  const Index length = analysis::self_length(capture, "rollout");
  const auto layers = static_cast<Index>(capture.layers.size());
  MHA_CHECK(ShapeError, start.first >= 0 && start.count >= 1 && start.first < length && start.count <= length - start.first,
            "rollout: pieces ", start.first, " to ", start.first + start.count, " of ", length);
  MHA_CHECK(ShapeError, !start.layers || (*start.layers >= 0 && *start.layers <= layers), "rollout: ", start.layers.value_or(0),
            " layers of ", layers);
  MHA_CHECK(ShapeError, start.batch >= 0 && start.batch < capture.layers[0].batch(), "rollout: batch entry ", start.batch, " of ",
            capture.layers[0].batch());
  std::vector<double> share(static_cast<std::size_t>(length));
  std::fill_n(share.begin() + start.first, start.count, 1.0 / static_cast<double>(start.count));
  for (Index layer = start.layers.value_or(layers) - 1; layer >= 0; --layer) {
    share = through_layer(capture.layers[static_cast<std::size_t>(layer)], share, start.batch, workspace);
  }
  return share;
}

std::vector<double> summed_by_unit(std::span<const double> pieces, std::span<const Unit> units) {
  std::vector<double> sums;
  for (const Unit& unit : units) {
    MHA_CHECK(ShapeError, unit.first >= 0 && unit.count >= 0 && unit.first + unit.count <= static_cast<Index>(pieces.size()),
              "summed_by_unit: unit \"", unit.text, "\" ends at piece ", unit.first + unit.count, " of ", pieces.size());
    double sum = 0.0;
    for (Index piece = unit.first; piece < unit.first + unit.count; ++piece) sum += pieces[static_cast<std::size_t>(piece)];
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace mha
