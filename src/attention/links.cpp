#include "attention/links.h"

#include <algorithm>
#include <limits>

namespace mha::attention {

namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

Index* key_at(const Operand& to, const RowPlace& at, Index link) {
  return reinterpret_cast<Index*>(to.at(at.batch, at.head, at.query, link));
}

}  // namespace

std::size_t Links::bytes(const Problem& p, const Plan& plan, Index rows) {
  const Index panels = rows / plan.lanes;  // at most
  const Index lists = rows * p.links.count * static_cast<Index>(sizeof(float) + sizeof(std::int32_t));
  return static_cast<std::size_t>(lists + panels * static_cast<Index>(sizeof(kernels::Largest) + 2 * kAlignment) +
                                  static_cast<Index>(kAlignment));
}

Links::Links(const TaskContext& context, const Panel* panels, int panel_count, Arena& arena)
    : c_(context), panels_(panels), lists_(arena.take<kernels::Largest>(panel_count)) {
  for (int i = 0; i < panel_count; ++i) {
    const Index entries = c_.p.links.count * panels[i].ld;
    lists_[i] = {arena.take<float>(entries), arena.take<std::int32_t>(entries), static_cast<int>(c_.p.links.count)};
    std::fill(lists_[i].score, lists_[i].score + entries, kNegInf);
    std::fill(lists_[i].key, lists_[i].key + entries, -1);
  }
}

void Links::add_scores(int i, const KeyTile& tile, const Scored& scored) {
  const Panel& panel = panels_[i];
  for (int s = 0; s < scored.mask->strip_count;) {
    const kernels::Strip run = next_run(*scored.mask, s);
    const Index lane = run.first_vector * c_.plan.lanes;
    c_.kernels.keep_largest(scored.scores + run.key * panel.ld + lane, panel.ld, run.vectors, run.count,
                            static_cast<std::int32_t>(tile.keys.lo + run.key),
                            {lists_[i].score + lane, lists_[i].key + lane, lists_[i].count});
  }
}

void Links::write(int i, const RowScale& scale, float* rows) {
  const Panel& panel = panels_[i];
  const kernels::Largest& list = lists_[i];
  const LinkTargets& to = c_.p.links;
  const int lanes = c_.plan.lanes;
  if (to.weights) c_.kernels.exp_minus(list.score, panel.ld, panel.vectors, list.count, scale.max);
  for (int v = 0; v < panel.vectors; ++v) {
    const int count = std::min(lanes, panel.rows - v * lanes);
    RowPlace places[kernels::kMaxLanes];
    float* out[kernels::kMaxLanes];
    for (int l = 0; l < count; ++l) {
      places[l] = place_of(c_.p, c_.task.batch, c_.task.kv_head, c_.task.first_row + panel.first + v * lanes + l);
      std::byte* first = to.weights ? to.weights.at(places[l].batch, places[l].head, places[l].query, 0) : nullptr;
      out[l] = to.weights.plain() ? reinterpret_cast<float*>(first) : rows + l * to.count;
      const std::int32_t* keys = list.key + v * lanes + l;
      for (Index j = 0; to.keys && j < to.count; ++j) *key_at(to.keys, places[l], j) = keys[j * panel.ld];
    }
    if (!to.weights) continue;
    c_.kernels.store_rows(list.score + v * lanes, panel.ld, count, to.count, scale.factor + v * lanes, out);
    for (int l = 0; l < count && !to.weights.plain(); ++l) {
      deliver(c_.kernels, out[l], to.count, to.weights, to.weights.at(places[l].batch, places[l].head, places[l].query, 0));
    }
  }
}

void Links::leave(int i, int lane, float* scores, std::int32_t* keys) const {
  for (Index j = 0; j < c_.p.links.count; ++j) {
    scores[j] = lists_[i].score[j * panels_[i].ld + lane];
    keys[j] = lists_[i].key[j * panels_[i].ld + lane];
  }
}

void write_merged_links(const Problem& p, const kernels::KernelTable& kernels, const RowPlace& at, const SplitLinks& parts, float max,
                        float factor) {
  const Index count = p.links.count;
  alignas(64) float scores[kMaxLinks + kernels::kMaxLanes];
  std::int32_t keys[kMaxLinks];
  std::fill(std::begin(scores), std::end(scores), kNegInf);
  std::fill(std::begin(keys), std::end(keys), -1);
  for (Index part = 0; part < parts.splits * count; ++part) {
    const float score = parts.scores[part];
    if (!(score > scores[count - 1])) continue;
    Index j = count - 1;  // what is smaller moves down; what is equal is of an earlier key
    for (; j > 0 && score > scores[j - 1]; --j) {
      scores[j] = scores[j - 1];
      keys[j] = keys[j - 1];
    }
    scores[j] = score;
    keys[j] = parts.keys[part];
  }
  for (Index j = 0; p.links.keys && j < count; ++j) *key_at(p.links.keys, at, j) = keys[j];
  if (!p.links.weights) return;
  alignas(64) float maxima[kernels::kMaxLanes];
  std::fill(std::begin(maxima), std::end(maxima), max);
  kernels.exp_minus(scores, kernels.lanes, 1, (count + kernels.lanes - 1) / kernels.lanes, maxima);
  for (Index j = 0; j < count; ++j) scores[j] *= factor;
  deliver(kernels, scores, count, p.links.weights, p.links.weights.at(at.batch, at.head, at.query, 0));
}

}  // namespace mha::attention
