// Jensen-Shannon divergences of all pairs of heads: a block of rows of every head at once, each pair summed by one task. JS(p, q) is
// H((p + q) / 2) - (H(p) + H(q)) / 2, which asks for one logarithm per pair and key.
#include "mha/analysis/distances.h"

#include <cmath>

#include "analysis/capture_rows.h"
#include "core/check.h"
#include "core/executor.h"
#include "mha/error.h"

namespace mha {
namespace {

constexpr double kSmoothing = 0.001;
constexpr double kFlopsOfLog = 20;

/// -sum x ln x of the distribution half-way between two, all x > 0. Of one, where both are the same: exactly then.
double mixed_entropy(const double* a, const double* b, Index count) {
  double sum = 0.0;
  for (Index i = 0; i < count; ++i) {
    const double middle = (a[i] + b[i]) / 2;
    sum -= middle * std::log(middle);
  }
  return sum;
}

/// A block of rows of every head, smoothed, and their entropies.
class RowsOfAllHeads {
 public:
  RowsOfAllHeads(const Capture& text, const std::vector<HeadId>& heads, Index length)
      : text_(text),
        heads_(heads),
        length_(length),
        capacity_(std::clamp<Index>(2 * analysis::kBlockElements / std::max<Index>(length * static_cast<Index>(heads.size()), 1), 1,
                                    std::max<Index>(length, 1))),
        weights_(DType::F32, {capacity_, length}),
        smooth_(DType::F64, {static_cast<Index>(heads.size()), capacity_, length}),
        entropies_(DType::F64, {static_cast<Index>(heads.size()), capacity_}) {}

  Index capacity() const { return capacity_; }
  Index rows() const { return rows_; }
  const double* row(Index head, Index row) const { return smooth_.data<double>() + (head * capacity_ + row) * length_; }
  double entropy(Index head, Index row) const { return entropies_.data<double>()[head * capacity_ + row]; }

  void read(Index first, Workspace& workspace) {
    rows_ = std::min(capacity_, length_ - first);
    const TensorView part = weights_.view().slice(0, 0, rows_);
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      const WeightsRegion region{.batch = 0, .head = heads_[h].head, .queries = {first, first + rows_}, .keys = {0, length_}};
      captured_weights(analysis::layer_of(text_, heads_[h]), region, part, workspace);
      const auto head = static_cast<Index>(h);
      double* smooth = smooth_.data<double>() + head * capacity_ * length_;
      for (Index i = 0; i < rows_ * length_; ++i) {
        smooth[i] = kSmoothing / static_cast<double>(length_) + (1 - kSmoothing) * static_cast<double>(part.as<float>()[i]);
      }
      for (Index r = 0; r < rows_; ++r)
        entropies_.data<double>()[head * capacity_ + r] = mixed_entropy(row(head, r), row(head, r), length_);
    }
  }

 private:
  const Capture& text_;
  const std::vector<HeadId>& heads_;
  Index length_;
  Index capacity_;
  Index rows_ = 0;
  Tensor weights_;
  Tensor smooth_;
  Tensor entropies_;
};

/// Adds the pairs (a, b), b > a, over a block of rows; `values` is the upper triangle.
void add_pairs(const RowsOfAllHeads& block, Index a, Index length, HeadMatrix& sums) {
  for (Index row = 0; row < block.rows(); ++row) {
    for (Index b = a + 1; b < sums.size(); ++b) {
      const double middle = mixed_entropy(block.row(a, row), block.row(b, row), length);
      sums.values[static_cast<std::size_t>(a * sums.size() + b)] += middle - (block.entropy(a, row) + block.entropy(b, row)) / 2;
    }
  }
}

void add_text(const Capture& text, HeadMatrix& sums, Workspace& workspace) {
  const Index length = analysis::self_length(text, "head_distances");
  RowsOfAllHeads block(text, sums.heads, length);
  for (Index first = 0; first < length; first += block.capacity()) {
    block.read(first, workspace);
    const auto flops = kFlopsOfLog * static_cast<double>(sums.size() * sums.size() * block.rows()) * static_cast<double>(length);
    const int workers = core::workers_for(workspace.executor(), sums.size(), flops);
    core::run_tasks(workspace.executor(), workers, sums.size(), [&](int, Index a) { add_pairs(block, a, length, sums); });
  }
  sums.rows += length;
}

}  // namespace

double HeadMatrix::at(Index a, Index b) const {
  MHA_CHECK(ShapeError, a >= 0 && a < size() && b >= 0 && b < size(), "heads ", a, " and ", b, " of ", size());
  return values[static_cast<std::size_t>(a * size() + b)];
}

HeadMatrix head_distances(std::span<const Capture> texts, Workspace& workspace) {
  HeadMatrix distances = analysis::matrix_for(texts, "head_distances");
  for (const Capture& text : texts) add_text(text, distances, workspace);
  analysis::mirror(distances);
  return distances;
}

}  // namespace mha
