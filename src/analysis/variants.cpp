// Batches of bounded size, one after another.
#include "analysis/variants.h"

#include <algorithm>
#include <vector>

namespace mha::analysis {
namespace {

constexpr Index kMostRows = 4096;  // tokens of one batch: bounds memory, and is far more than keeps the kernels busy

}  // namespace

void run_variants(const Transformer& model, std::span<const Index> ids, std::size_t count, const ChangeHeads& change,
                  const VisitVariant& visit, Workspace& workspace) {
  const auto length = static_cast<Index>(ids.size());
  const auto most = static_cast<std::size_t>(std::max<Index>(1, kMostRows / std::max<Index>(1, length)));
  for (std::size_t first = 0; first < count; first += most) {
    const auto batch = static_cast<Index>(std::min(most, count - first));
    std::vector<Index> copies;
    for (Index b = 0; b < batch; ++b) copies.insert(copies.end(), ids.begin(), ids.end());
    Tensor hidden(DType::F32, {batch, length, model.config().d_model});
    model.forward({.ids = copies, .batch = batch}, hidden, workspace, [&](Index layer, const MhaTrace& trace) {
      for (Index b = 0; b < batch; ++b) change(first + static_cast<std::size_t>(b), layer, trace.head_out.slice(0, b, b + 1));
    });
    for (Index b = 0; b < batch; ++b) visit(first + static_cast<std::size_t>(b), hidden.view().slice(0, b, b + 1));
  }
}

}  // namespace mha::analysis
