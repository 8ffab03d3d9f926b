#include "attention/tally.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "attention/validate.h"

namespace mha::attention {

namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();
constexpr Index kLaneBytes = 6 * sizeof(double) + sizeof(Index) + 2 * sizeof(float);
constexpr Index kPanelArrays = 9;  // each rounded up to kAlignment
constexpr Index kTileArrays = 7;

bool covers(const kernels::Strip& strip, int vector) { return strip.first_vector <= vector && vector < strip.first_vector + strip.vectors; }

float shown(double weight) { return weight < FLT_MIN ? 0.0F : static_cast<float>(weight); }  // as everywhere; a NaN stays

}  // namespace

std::size_t Tally::bytes(const Plan& plan, Index rows) {
  const Index panels = rows / plan.lanes;  // at most
  const Index tile = (kTileArrays * plan.panel_lanes + plan.key_tile) * static_cast<Index>(sizeof(float));
  const Index rounding = (panels * kPanelArrays + kTileArrays + 2) * static_cast<Index>(kAlignment);
  return static_cast<std::size_t>(rows * kLaneBytes + tile + panels * static_cast<Index>(sizeof(Lanes)) + rounding);
}

Tally::Tally(const TaskContext& context, const Panel* panels, int panel_count, Arena& arena)
    : c_(context),
      panels_(panels),
      distances_(context.p.statistics.distance || context.p.statistics.distance_variance),
      lanes_(arena.take<Lanes>(panel_count)) {
  for (float** array : {&tile_.max, &tile_.spread, &tile_.chosen, &tile_.weight, &tile_.distance, &tile_.square, &tile_.from}) {
    *array = arena.take<float>(c_.plan.panel_lanes);
  }
  if (c_.p.statistics.chosen) marks_ = arena.take<float>(c_.plan.key_tile);
  for (int i = 0; i < panel_count; ++i) start(i, arena);
}

void Tally::start(int i, Arena& arena) {
  const Panel& panel = panels_[i];
  Lanes& lanes = lanes_[i];
  for (double** sum : {&lanes.weight, &lanes.spread, &lanes.distance, &lanes.square, &lanes.chosen}) {
    *sum = arena.take<double>(panel.ld);
    std::fill(*sum, *sum + panel.ld, 0.0);
  }
  lanes.position = arena.take<double>(panel.ld);
  lanes.best_key = arena.take<Index>(panel.ld);
  lanes.best = arena.take<float>(panel.ld);
  lanes.first = arena.take<float>(panel.ld);
  std::fill(lanes.best_key, lanes.best_key + panel.ld, Index{-1});
  std::fill(lanes.best, lanes.best + panel.ld, kNegInf);
  std::fill(lanes.first, lanes.first + panel.ld, kNegInf);
  const Index offset = offset_of(*c_.p.spec, *c_.p.inputs, c_.task.batch);
  for (int lane = 0; lane < panel.ld; ++lane) {
    const Index row = c_.task.first_row + panel.first + std::min(lane, panel.rows - 1);
    lanes.position[lane] = static_cast<double>(place_of(c_.p, c_.task.batch, c_.task.kv_head, row).query + offset);
  }
}

/// As the leaf `accumulate` wants values: one number per key.
void Tally::mark_chosen(Interval keys) {
  if (marks_of_ == keys.lo) return;
  marks_of_ = keys.lo;
  for (Index key = keys.lo; key < keys.hi; ++key) {
    marks_[key - keys.lo] = *c_.p.statistics.chosen.at(c_.task.batch, key, 0, 0) != std::byte{0} ? 1.0F : 0.0F;
  }
}

void Tally::add_scores(int i, const KeyTile& tile, const Scored& scored, const float* max) {
  const Panel& panel = panels_[i];
  std::copy(max, max + panel.ld, tile_.max);
  find_best(i, tile, scored);
  const kernels::Strip& strip = scored.mask->strips[0];
  if (tile.keys.lo != 0 || strip.key != 0) return;
  const Index first_lane = strip.first_vector * c_.plan.lanes;
  std::copy_n(scored.scores + first_lane, strip.vectors * c_.plan.lanes, lanes_[i].first + first_lane);
}

void Tally::find_best(int i, const KeyTile& tile, const Scored& scored) {
  const int lanes = c_.plan.lanes;
  for (int v = 0; v < panels_[i].vectors; ++v) {
    float* best = lanes_[i].best + v * lanes;
    const float* tile_best = scored.max + v * lanes;
    bool grown = false;
    for (int lane = 0; lane < lanes; ++lane) grown |= tile_best[lane] > best[lane];
    if (!grown) continue;
    alignas(64) float key[kernels::kMaxLanes] = {};
    find_in_tile(i, v, scored, key);
    for (int lane = 0; lane < lanes; ++lane) {
      if (!(tile_best[lane] > best[lane])) continue;
      best[lane] = tile_best[lane];
      lanes_[i].best_key[v * lanes + lane] = tile.keys.lo + static_cast<Index>(key[lane]);
    }
  }
}

/// Of one vector of panel i: the first key with the tile's maximum, counted within the tile.
void Tally::find_in_tile(int i, int vector, const Scored& scored, float* key) const {
  const kernels::Strip* strips = scored.mask->strips;
  const int lanes = c_.plan.lanes;
  for (int s = scored.mask->strip_count - 1; s >= 0; --s) {  // the first keys have the last word
    if (!covers(strips[s], vector)) continue;
    const int end = strips[s].key + strips[s].count;
    while (s > 0 && covers(strips[s - 1], vector) && strips[s - 1].key + strips[s - 1].count == strips[s].key) --s;
    const int begin = strips[s].key;
    for (int lane = 0; lane < lanes; ++lane) key[lane] -= static_cast<float>(begin);
    const float* scores = scored.scores + begin * panels_[i].ld + vector * lanes;
    c_.kernels.first_equal(scores, panels_[i].ld, end - begin, scored.max + vector * lanes, key);
    for (int lane = 0; lane < lanes; ++lane) key[lane] += static_cast<float>(begin);
  }
}

void Tally::add_weights(int i, const KeyTile& tile, const Scored& scored, const kernels::RowState& state, bool grown) {
  if (marks_ != nullptr) mark_chosen(tile.keys);
  sum_tile(i, tile, scored);
  join(i, tile, state, grown);
}

void Tally::sum_tile(int i, const KeyTile& tile, const Scored& scored) {
  const Panel& panel = panels_[i];
  const auto last = static_cast<double>(tile.keys.hi - tile.keys.lo - 1);
  for (Index lane = 0; lane < panel.ld; ++lane) {
    tile_.from[lane] = static_cast<float>(std::clamp(lanes_[i].position[lane] - static_cast<double>(tile.keys.lo), 0.0, last));
  }
  for (float* sums : {tile_.distance, tile_.square, tile_.chosen}) std::fill(sums, sums + panel.ld, 0.0F);
  for (int s = 0; s < scored.mask->strip_count;) {
    const kernels::Strip run = next_run(*scored.mask, s);
    const Index first = run.first_vector * c_.plan.lanes;
    const float* weights = scored.scores + run.key * panel.ld + first;
    if (distances_)
      c_.kernels.add_moments(weights, panel.ld, run.vectors, run.count,
                             {static_cast<float>(run.key), tile_.from + first, tile_.distance + first, tile_.square + first});
    if (marks_ == nullptr) continue;
    c_.kernels.accumulate({marks_ + run.key, 1, run.count, 1}, weights, panel.ld, run.vectors, nullptr, tile_.chosen + first);
  }
}

kernels::RowState Tally::with_sums(const kernels::RowState& state) {
  return {state.max, state.sum, state.alpha, tile_.spread, tile_.weight};
}

namespace {

/// Plain loops over lanes, for the compiler to vectorise.
void multiply(double* __restrict sums, const float* __restrict by, Index count) {
  for (Index lane = 0; lane < count; ++lane) sums[lane] *= static_cast<double>(by[lane]);
}
void add(double* __restrict sums, const float* __restrict more, Index count) {
  for (Index lane = 0; lane < count; ++lane) sums[lane] += static_cast<double>(more[lane]);
}

}  // namespace

/// Adds the tile's sums to what there was, which is brought to the new maximum first.
void Tally::join(int i, const KeyTile& tile, const kernels::RowState& state, bool grown) {
  const Lanes& all = lanes_[i];
  const Index count = panels_[i].ld;
  for (Index lane = 0; grown && lane < count; ++lane) {
    if (state.alpha[lane] == 1.0F || all.weight[lane] == 0.0) continue;
    all.spread[lane] += (static_cast<double>(tile_.max[lane]) - static_cast<double>(state.max[lane])) * all.weight[lane];
  }
  for (double* sums : {all.weight, all.spread, all.distance, all.square, all.chosen}) {
    if (grown) multiply(sums, state.alpha, count);
  }
  add(all.weight, tile_.weight, count);
  add(all.spread, tile_.spread, count);
  if (marks_ != nullptr) add(all.chosen, tile_.chosen, count);
  if (distances_) add_distances(all, static_cast<double>(tile.keys.lo), count);
}

/// Distances were taken from `from`; the row's own place is there, or all of the tile lies beyond it.
void Tally::add_distances(const Lanes& all, double first_key, Index count) {
  const double* __restrict position = all.position;
  double* __restrict distance = all.distance;
  double* __restrict square = all.square;
  for (Index lane = 0; lane < count; ++lane) {
    const double gap = std::abs(position[lane] - first_key - static_cast<double>(tile_.from[lane]));
    const double weight = tile_.weight[lane];
    const double near = tile_.distance[lane];
    distance[lane] += near + gap * weight;
    square[lane] += static_cast<double>(tile_.square[lane]) + gap * (2.0 * near + gap * weight);
  }
}

RowTally Tally::row(int i, int lane) const {
  const Lanes& all = lanes_[i];
  return {.weight = all.weight[lane],
          .spread = all.spread[lane],
          .distance = all.distance[lane],
          .square = all.square[lane],
          .chosen = all.chosen[lane],
          .best = all.best[lane],
          .first = all.first[lane],
          .best_key = all.best_key[lane]};
}

RowTally merged_tally(const RowTally* parts, const float* maxima, Index count, float max) {
  RowTally all;
  for (Index i = 0; i < count; ++i) {
    const RowTally& part = parts[i];
    if (part.best > all.best) {
      all.best = part.best;
      all.best_key = part.best_key;
    }
    all.first = std::max(all.first, part.first);  // of one part at most above -inf
    if (part.weight == 0.0) continue;
    const double lowered = static_cast<double>(maxima[i]) - static_cast<double>(max);
    const double factor = std::exp(lowered);
    all.weight += factor * part.weight;
    all.spread += factor * (part.spread + lowered * part.weight);
    all.distance += factor * part.distance;
    all.square += factor * part.square;
    all.chosen += factor * part.chosen;
  }
  return all;
}

void write_statistics(const Problem& p, const RowPlace& at, const RowTally& tally, float max) {
  const Statistics& wanted = p.statistics;
  const auto put = [&](const Operand& to, auto value) {
    if (to) *reinterpret_cast<decltype(value)*>(to.at(at.batch, at.head, at.query, 0)) = value;
  };
  const std::vector<float>& sinks = p.spec->sink_logits;
  const double sink =
      sinks.empty() ? 0.0 : std::exp(static_cast<double>(sinks[static_cast<std::size_t>(at.head)]) - static_cast<double>(max));
  const double total = tally.weight + sink;
  const bool empty = tally.weight == 0.0;
  const double share = empty ? 0.0 : 1.0 / total;
  const double among = empty ? 0.0 : 1.0 / tally.weight;
  const auto not_below_0 = [](double value) { return static_cast<float>(value < 0.0 ? 0.0 : value); };
  put(wanted.max_score, tally.best);
  put(wanted.max_key, tally.best_key);
  if (wanted.entropy) {
    const double log_total = empty ? 0.0 : static_cast<double>(std::log(static_cast<float>(total)));
    put(wanted.entropy, not_below_0(share * (tally.weight * log_total - tally.spread)));
  }
  const double mean = among * tally.distance;
  put(wanted.distance, static_cast<float>(mean));
  put(wanted.distance_variance, not_below_0(among * tally.square - mean * mean));
  if (wanted.first_weight) put(wanted.first_weight, empty ? 0.0F : shown(share * static_cast<double>(std::exp(tally.first - max))));
  put(wanted.chosen_weight, shown(share * tally.chosen));
}

}  // namespace mha::attention
