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
constexpr Index kTileArrays = 8;

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
    : c_(context), panels_(panels), lanes_(arena.take<Lanes>(panel_count)) {
  for (float** array :
       {&tile_.max, &tile_.spread, &tile_.chosen, &tile_.weight, &tile_.distance, &tile_.square, &tile_.from, &tile_.strip_from}) {
    *array = arena.take<float>(c_.plan.panel_lanes);
  }
  if (c_.p.statistics->chosen) marks_ = arena.take<float>(c_.plan.key_tile);
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
  const ConstTensorView& chosen = c_.p.statistics->chosen;
  const bool* flags = chosen.as<bool>() + (chosen.size(0) == 1 ? 0 : c_.task.batch) * chosen.stride(0);
  for (Index k = 0; k < keys.hi - keys.lo; ++k) marks_[k] = flags[(keys.lo + k) * chosen.stride(1)] ? 1.0F : 0.0F;
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
    int grown = 0;
    for (int lane = 0; lane < lanes; ++lane) grown += tile_best[lane] > best[lane] ? 1 : 0;
    if (grown == 0) continue;
    alignas(64) float key[kernels::kMaxLanes];
    for (int s = scored.mask->strip_count - 1; s >= 0; --s) {  // the first strip has the last word
      const kernels::Strip& strip = scored.mask->strips[s];
      if (!covers(strip, v)) continue;
      for (int lane = 0; lane < lanes; ++lane) key[lane] = -1.0F;
      c_.kernels.first_equal(scored.scores + strip.key * panels_[i].ld + v * lanes, panels_[i].ld, strip.count, tile_best, key);
      for (int lane = 0; lane < lanes; ++lane) {
        if (key[lane] < 0 || !(tile_best[lane] > best[lane])) continue;
        lanes_[i].best_key[v * lanes + lane] = tile.keys.lo + strip.key + static_cast<Index>(key[lane]);
      }
    }
    for (int lane = 0; lane < lanes; ++lane) best[lane] = std::max(best[lane], tile_best[lane]);
  }
}

void Tally::add_weights(int i, const KeyTile& tile, const Scored& scored, const kernels::RowState& state) {
  if (marks_ != nullptr) mark_chosen(tile.keys);
  sum_tile(i, tile, scored);
  join(i, tile, state);
}

void Tally::sum_tile(int i, const KeyTile& tile, const Scored& scored) {
  const Panel& panel = panels_[i];
  const auto last = static_cast<double>(tile.keys.hi - tile.keys.lo - 1);
  for (Index lane = 0; lane < panel.ld; ++lane) {
    tile_.from[lane] = static_cast<float>(std::clamp(lanes_[i].position[lane] - static_cast<double>(tile.keys.lo), 0.0, last));
  }
  for (float* sums : {tile_.weight, tile_.distance, tile_.square, tile_.chosen}) std::fill(sums, sums + panel.ld, 0.0F);
  for (int s = 0; s < scored.mask->strip_count;) {
    const kernels::Strip run = next_run(*scored.mask, s);
    const Index first = run.first_vector * c_.plan.lanes;
    const float* weights = scored.scores + run.key * panel.ld + first;
    for (Index lane = 0; lane < panel.ld; ++lane) tile_.strip_from[lane] = tile_.from[lane] - static_cast<float>(run.key);
    c_.kernels.add_moments(weights, panel.ld, run.vectors, run.count,
                           {tile_.strip_from + first, tile_.weight + first, tile_.distance + first, tile_.square + first});
    if (marks_ == nullptr) continue;
    c_.kernels.accumulate({marks_ + run.key, 1, run.count, 1}, weights, panel.ld, run.vectors, nullptr, tile_.chosen + first);
  }
}

/// Adds the tile's sums to what there was, which is brought to the new maximum first.
void Tally::join(int i, const KeyTile& tile, const kernels::RowState& state) {
  const Lanes& all = lanes_[i];
  for (Index lane = 0; lane < panels_[i].ld; ++lane) {
    const double alpha = state.alpha[lane];
    if (alpha != 1.0) {
      const double lowered = all.weight[lane] == 0.0 ? 0.0 : static_cast<double>(tile_.max[lane]) - static_cast<double>(state.max[lane]);
      all.spread[lane] = alpha * (all.spread[lane] + lowered * all.weight[lane]);
      for (double* sum : {all.weight, all.distance, all.square, all.chosen}) sum[lane] *= alpha;
    }
    // From the place that distances were taken from to the row's own: all of the tile lies beyond it, or it is the row's own.
    const double gap = std::abs(all.position[lane] - static_cast<double>(tile.keys.lo) - static_cast<double>(tile_.from[lane]));
    const double weight = tile_.weight[lane];
    const double distance = tile_.distance[lane];
    all.weight[lane] += weight;
    all.spread[lane] += static_cast<double>(tile_.spread[lane]);
    all.distance[lane] += distance + gap * weight;
    all.square[lane] += static_cast<double>(tile_.square[lane]) + gap * (2.0 * distance + gap * weight);
    all.chosen[lane] += static_cast<double>(tile_.chosen[lane]);
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
  const RowStatistics& wanted = *p.statistics;
  const auto place = [&](const TensorView& view) {
    return at.batch * view.stride(0) + at.head * view.stride(1) + at.query * view.stride(2);
  };
  const auto put = [&](const TensorView& view, float value) {
    if (view) view.as<float>()[place(view)] = value;
  };
  const std::vector<float>& sinks = p.spec->sink_logits;
  const double sink =
      sinks.empty() ? 0.0 : std::exp(static_cast<double>(sinks[static_cast<std::size_t>(at.head)]) - static_cast<double>(max));
  const double total = tally.weight + sink;
  const double share = 1.0 / total;
  const bool empty = tally.weight == 0.0;
  const double mean = tally.distance / tally.weight;
  const auto unless_empty = [&](double value) { return empty ? 0.0F : static_cast<float>(value); };
  const auto not_below_0 = [](double value) { return value < 0.0 ? 0.0 : value; };
  put(wanted.max_score, tally.best);
  if (wanted.max_key) wanted.max_key.as<Index>()[place(wanted.max_key)] = tally.best_key;
  put(wanted.entropy, unless_empty(not_below_0(share * (tally.weight * std::log(total) - tally.spread))));
  put(wanted.distance, unless_empty(mean));
  put(wanted.distance_variance, unless_empty(not_below_0(tally.square / tally.weight - mean * mean)));
  put(wanted.first_weight, empty ? 0.0F : shown(share * std::exp(static_cast<double>(tally.first) - static_cast<double>(max))));
  put(wanted.chosen_weight, empty ? 0.0F : shown(share * tally.chosen));
}

}  // namespace mha::attention
