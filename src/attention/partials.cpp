#include "attention/partials.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mha::attention {

namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

/// A row's splits become one: `row` receives the undivided sum, the maximum and denominator are returned.
struct Merged {
  float max;
  float sum;
};
Merged merge_row(const Partials& partials, Index first, Index splits, Index dim, float* row) {
  Merged merged{kNegInf, 0.0F};
  for (Index s = first; s < first + splits; ++s) merged.max = std::max(merged.max, partials.max[s]);
  const float subtracted = merged.max == kNegInf ? 0.0F : merged.max;  // only NaN has been seen, or nothing
  std::fill(row, row + dim, 0.0F);
  for (Index s = first; s < first + splits; ++s) {
    if (partials.sum[s] == 0.0F) continue;  // saw nothing: the merge of an empty state is the other one
    const float factor = partials.max[s] == kNegInf ? 1.0F : std::exp(partials.max[s] - subtracted);
    merged.sum += factor * partials.sum[s];
    const float* out = partials.out + s * dim;
    for (Index d = 0; d < dim; ++d) row[d] += factor * out[d];
  }
  return merged;
}

}  // namespace

namespace {
Index rows_of(const Problem& p, const Plan& plan) { return p.batch * p.heads * p.q_len * plan.splits; }
}  // namespace

std::size_t Partials::bytes(const Problem& p, const Plan& plan) {
  if (plan.splits == 1) return 0;
  const auto rows = static_cast<std::size_t>(rows_of(p, plan));
  const std::size_t tallies = !p.statistics.wanted ? 0 : rows * sizeof(RowTally) + kAlignment;
  const std::size_t link = sizeof(float) + sizeof(std::int32_t);
  const std::size_t links = p.links.count == 0 ? 0 : rows * static_cast<std::size_t>(p.links.count) * link + 2 * kAlignment;
  return rows * static_cast<std::size_t>(p.value_dim + 2) * sizeof(float) + tallies + links;
}

Partials Partials::take(const Problem& p, const Plan& plan, Arena& arena) {
  const Index count = rows_of(p, plan);
  float* out = arena.take<float>(count * (p.value_dim + 2));  // in one piece: an arena that grows piece by piece doubles
  RowTally* tallies = !p.statistics.wanted ? nullptr : arena.take<RowTally>(count);
  const Index links = count * p.links.count;
  return {.out = out,
          .max = out + count * p.value_dim,
          .sum = out + count * (p.value_dim + 1),
          .tallies = tallies,
          .link_scores = links == 0 ? nullptr : arena.take<float>(links),
          .link_keys = links == 0 ? nullptr : arena.take<std::int32_t>(links)};
}

void merge_partials(const Problem& p, const Plan& plan, const kernels::KernelTable& kernels, const Partials& partials, KvHead of,
                    float* row) {
  for (Index r = 0; r < p.q_len * p.group; ++r) {
    const Index first =
        partial_at(p, plan, {.batch = of.batch, .kv_head = of.kv_head, .first_row = 0, .rows = 0, .split = 0, .keys = {}}, r);
    const Merged merged = merge_row(partials, first, plan.splits, p.value_dim, row);
    const float factor = merged.sum == 0.0F ? 0.0F : 1.0F / merged.sum;
    for (Index d = 0; d < p.value_dim; ++d) row[d] *= factor;
    const RowPlace at = place_of(p, of.batch, of.kv_head, r);
    deliver(kernels, row, p.value_dim, p.out, p.out.at(at.batch, at.query, at.head, 0));
    if (p.statistics.wanted) {
      const RowTally tally = merged_tally(partials.tallies + first, partials.max + first, plan.splits, merged.max);
      write_statistics(p, at, tally, merged.max);
    }
    if (p.links.count > 0) {
      const SplitLinks parts{partials.link_scores + first * p.links.count, partials.link_keys + first * p.links.count, plan.splits};
      write_merged_links(p, kernels, at, parts, merged.max, factor);
    }
    partials.max[first] = merged.max;
    partials.sum[first] = merged.sum;
    if (p.lse) {
      *reinterpret_cast<float*>(p.lse.at(at.batch, at.head, at.query, 0)) =
          merged.sum == 0.0F ? kNegInf : merged.max + std::log(merged.sum);
    }
  }
}

}  // namespace mha::attention
