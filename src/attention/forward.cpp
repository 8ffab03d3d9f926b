// The tile loop: the heart of the library. Exact attention in one pass over the keys with a running softmax (Milakov & Gimelshein 2018;
// Dao et al. 2022), memory O(tile). Scores are held transposed, keys x lanes, a lane being one row; nothing is summed across lanes.
#include "attention/forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "attention/dropout.h"
#include "attention/links.h"
#include "attention/partials.h"
#include "attention/tally.h"
#include "core/executor.h"
#include "core/float_mode.h"

namespace mha::attention {

namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

/// One task's memory and progress.
class ForwardTask {
 public:
  /// `partials`: where unfinished rows go; null where the task sees all keys.
  ForwardTask(const TaskContext& context, const Partials* partials, Arena& arena);
  void run();
  /// After the merge: the weights of the task's keys.
  void write_merged_weights();

 private:
  struct State {  // of one panel; per lane
    float* max;
    float* sum;
    float* acc;  // [value_dim, ld], or of few rows [rows, value_stride_]
    // What was folded away; absent where the task's keys are few enough for one sum.
    float* folded_max;
    float* folded_sum;
    float* folded_acc;
  };
  void start();
  void start_rows(int i);
  void ask_for_next(Interval keys, Interval seen, int i) const;
  void step(int i, const KeyTile& tile);
  void accumulate(int i, const KeyTile& tile, const float* alpha);
  void accumulate_strip(int i, const KeyTile& tile, const kernels::Strip& strip, const float* alpha);
  void accumulate_few(int i, const KeyTile& tile, const kernels::Strip& strip, const float* alpha);
  void drop_weights(int i, const KeyTile& tile);
  void fold(int i);
  void finish(int i);
  void leave(int i);
  void store_output(int i, const float* factor);
  Index output_floats(const Panel& panel) const { return c_.plan.few_rows ? panel.rows * value_stride_ : panel.ld * c_.p.value_dim; }
  Block value_block(Interval keys) const;
  const kernels::Rows& values(Interval keys);
  bool values_finite(Interval keys);

  const TaskContext c_;
  Arena& arena_;
  const Partials* partials_;
  Index value_stride_;
  Panel* panels_ = nullptr;
  State* states_ = nullptr;
  int panel_count_ = 0;
  alignas(64) float tile_max_[kernels::kMaxPanelLanes];
  Scored scored_{};
  std::optional<Tally> tally_;  // where statistics are asked for
  std::optional<Links> links_;  // where links are
  float* value_copy_ = nullptr;
  float* rows_ = nullptr;
  kernels::Rows values_{};
  Index values_of_ = -1;  // first key of the tile that values_ holds
  Index finite_of_ = -1;  // and that finite_ speaks of
  bool finite_ = true;
};

ForwardTask::ForwardTask(const TaskContext& context, const Partials* partials, Arena& arena)
    : c_(context),
      arena_(arena),
      partials_(partials),
      value_stride_((context.p.value_dim + context.plan.lanes - 1) / context.plan.lanes * context.plan.lanes) {
  const Problem& p = c_.p;
  const Index most_panels = (c_.task.rows + c_.plan.lanes - 1) / c_.plan.lanes;
  panels_ = arena.take<Panel>(most_panels);
  states_ = arena.take<State>(most_panels);
  panel_count_ = cut_panels(c_, panels_);
  for (int i = 0; i < panel_count_; ++i) {
    panels_[i].queries = arena.take<float>(query_floats(c_, panels_[i]));
    const auto take_state = [&](float*& max, float*& sum, float*& acc) {
      max = arena.take<float>(panels_[i].ld);
      sum = arena.take<float>(panels_[i].ld);
      acc = arena.take<float>(output_floats(panels_[i]));
    };
    states_[i] = {};
    take_state(states_[i].max, states_[i].sum, states_[i].acc);
    if (c_.plan.folds) take_state(states_[i].folded_max, states_[i].folded_sum, states_[i].folded_acc);
  }
  rows_ = arena.take<float>(c_.plan.row_scratch);
  scored_ = take_scored(c_, arena, tile_max_, rows_);
  if (c_.plan.copy_values) value_copy_ = arena.take<float>(c_.plan.key_tile * p.value_dim);
}

void ForwardTask::run() {
  start();
  if (c_.p.statistics.wanted) tally_.emplace(c_, panels_, panel_count_, arena_);
  if (c_.p.links.count > 0) links_.emplace(c_, panels_, panel_count_, arena_);
  const Interval seen = seen_keys(*c_.sight);
  for (Index first = seen.lo / c_.plan.key_tile * c_.plan.key_tile; first < seen.hi; first += c_.plan.key_tile) {
    const bool folding = c_.plan.folds && first % kFoldKeys == 0 && first > seen.lo;
    for (int i = 0; folding && i < panel_count_; ++i) fold(i);
    const KeyTile tile = load_keys(c_, {first, std::min(first + c_.plan.key_tile, c_.task.keys.hi)}, scored_.key_copy);
    for (int i = 0; i < panel_count_; ++i) {
      if (c_.plan.far) ask_for_next(tile.keys, seen, i);
      step(i, tile);
    }
  }
  for (int i = 0; i < panel_count_; ++i) {
    if (c_.plan.folds) {
      fold(i);
      std::swap(states_[i].sum, states_[i].folded_sum);
      std::swap(states_[i].acc, states_[i].folded_acc);
    }
    partials_ != nullptr ? leave(i) : finish(i);
  }
}

void ForwardTask::write_merged_weights() {
  for (int i = 0; i < panel_count_; ++i) {
    Panel& panel = panels_[i];
    load_panel(c_, panel, rows_);
    alignas(64) float max[kernels::kMaxPanelLanes] = {};
    alignas(64) float factor[kernels::kMaxPanelLanes] = {};
    for (int lane = 0; lane < panel.rows; ++lane) {
      const Index at = partial_at(c_.p, c_.plan, c_.task, c_.task.first_row + panel.first + lane) - c_.task.split;
      max[lane] = partials_->max[at];
      factor[lane] = partials_->sum[at] == 0.0F ? 0.0F : 1.0F / partials_->sum[at];
    }
    write_weights(c_, panel, c_.task.keys, {max, factor}, {c_.p.weights, 0, 0}, scored_);
  }
}

void ForwardTask::start() {
  if (c_.plan.far) ask_for_rows(c_, panels_[0], c_.p.q, c_.p.head_dim);
  for (int i = 0; i < panel_count_; ++i) {
    if (c_.plan.far && i + 1 < panel_count_) ask_for_rows(c_, panels_[i + 1], c_.p.q, c_.p.head_dim);
    load_panel(c_, panels_[i], rows_);
    start_rows(i);
    std::fill(states_[i].acc, states_[i].acc + output_floats(panels_[i]), 0.0F);
    if (!c_.plan.folds) continue;
    std::fill(states_[i].folded_max, states_[i].folded_max + panels_[i].ld, kNegInf);
    std::fill(states_[i].folded_sum, states_[i].folded_sum + panels_[i].ld, 0.0F);
    std::fill(states_[i].folded_acc, states_[i].folded_acc + output_floats(panels_[i]), 0.0F);
  }
}

/// Nothing seen yet: no maximum, or the sink's logit, which is in the denominator from the start (of the first keys alone).
void ForwardTask::start_rows(int i) {
  const Panel& panel = panels_[i];
  const std::vector<float>& sinks = c_.p.spec->sink_logits;
  for (int lane = 0; lane < panel.ld; ++lane) {
    const RowPlace at = place_of(c_.p, c_.task.batch, c_.task.kv_head, c_.task.first_row + panel.first + std::min(lane, panel.rows - 1));
    states_[i].max[lane] = sinks.empty() || c_.task.split != 0 ? kNegInf : sinks[static_cast<std::size_t>(at.head)];
    states_[i].sum[lane] = states_[i].max[lane] == kNegInf ? 0.0F : 1.0F;
  }
}

/// Adds what has been summed since the last time to what was folded away before, and starts sums anew: a sum over n keys is off by about
/// sqrt(n) roundings, a sum of sums by far less.
void ForwardTask::fold(int i) {
  const Panel& panel = panels_[i];
  State& state = states_[i];
  alignas(64) float factor[kernels::kMaxPanelLanes];
  for (Index lane = 0; lane < panel.ld; ++lane) {
    const float old = state.folded_max[lane];
    factor[lane] = old == state.max[lane] ? 1.0F : std::exp(old - state.max[lane]);  // equal infinities too
    state.folded_max[lane] = state.max[lane];
    state.folded_sum[lane] = state.folded_sum[lane] * factor[lane] + state.sum[lane];
    state.sum[lane] = 0.0F;
  }
  const Index columns = c_.plan.few_rows ? value_stride_ : panel.ld;
  const Index lines = output_floats(panel) / columns;
  for (Index line = 0; line < lines; ++line) {
    for (Index column = 0; column < columns; ++column) {
      const Index at = line * columns + column;
      state.folded_acc[at] = state.folded_acc[at] * factor[c_.plan.few_rows ? line : column] + state.acc[at];
      state.acc[at] = 0.0F;
    }
  }
}

/// Asks for the next tile, a part with each panel's step of this one; with the last tile, for the rows of output.
void ForwardTask::ask_for_next(Interval keys, Interval seen, int i) const {
  const Interval next{keys.hi, std::min({keys.hi + c_.plan.key_tile, c_.task.keys.hi, seen.hi})};
  if (next.empty()) return ask_for_rows(c_, panels_[i], c_.p.out, c_.p.value_dim);
  ask_for(key_block(c_, next), i, panel_count_);
  ask_for(value_block(next), i, panel_count_);
}

void ForwardTask::step(int i, const KeyTile& tile) {
  const Panel& panel = panels_[i];
  if (!score_tile(c_, panel, tile, scored_)) return;  // S^T = K Q^T, biased and hidden
  alignas(64) float alpha[kernels::kMaxPanelLanes];
  kernels::RowState state{states_[i].max, states_[i].sum, alpha};
  if (links_) links_->add_scores(i, tile, scored_);
  if (tally_) {
    tally_->add_scores(i, tile, scored_, state.max);
    state = tally_->with_sums(state);
  }
  const bool grown = c_.kernels.softmax_update(scored_.scores, panel.ld, panel.vectors, scored_.mask->strips, scored_.mask->strip_count,
                                               tile_max_, state);  // P^T = exp(S^T - max)
  if (tally_) tally_->add_weights(i, tile, scored_, state, grown);
  if (c_.p.spec->dropout.probability > 0.0F) drop_weights(i, tile);
  accumulate(i, tile, grown ? alpha : nullptr);  // O^T = alpha O^T + V^T P^T
}

void ForwardTask::accumulate(int i, const KeyTile& tile, const float* alpha) {
  const Panel& panel = panels_[i];
  // The factor rides along with the first strip where that one covers every lane; else it takes a pass of its own.
  if (alpha != nullptr && scored_.mask->strips[0].vectors != panel.vectors) {
    c_.kernels.rescale(states_[i].acc, panel.ld, panel.vectors, c_.p.value_dim, alpha);
    alpha = nullptr;
  }
  for (int s = 0; s < scored_.mask->strip_count;) {
    const kernels::Strip run = next_run(*scored_.mask, s);  // one product, whatever had to be hidden in it
    c_.plan.few_rows ? accumulate_few(i, tile, run, alpha) : accumulate_strip(i, tile, run, alpha);
    alpha = nullptr;
  }
}

void ForwardTask::accumulate_strip(int i, const KeyTile& tile, const kernels::Strip& strip, const float* alpha) {
  const Panel& panel = panels_[i];
  const int lanes = c_.plan.lanes;
  const kernels::Rows& all = values(tile.keys);
  const kernels::Rows part{all.data + strip.key * all.stride, all.stride, strip.count, all.dim};
  const float* weights = scored_.scores + strip.key * panel.ld;
  const bool hides = strip.partial || c_.p.bias;
  if (!hides || values_finite(tile.keys)) {
    const int first_lane = strip.first_vector * lanes;
    c_.kernels.accumulate(part, weights + first_lane, panel.ld, strip.vectors, alpha, states_[i].acc + first_lane);
    return;
  }
  // 0 times a NaN is NaN: a hidden value that is not finite must be left out, not multiplied by 0.
  if (alpha != nullptr) c_.kernels.rescale(states_[i].acc, panel.ld, panel.vectors, c_.p.value_dim, alpha);
  std::uint16_t bits[kMaxTileKeys];
  for (int v = strip.first_vector; v < strip.first_vector + strip.vectors; ++v) {
    find_summed(c_.p, mask_rows(c_, panel), v, tile.keys, bits);
    c_.kernels.accumulate_visible(part, weights + v * lanes, panel.ld, bits + strip.key, states_[i].acc + v * lanes);
  }
}

void ForwardTask::accumulate_few(int i, const KeyTile& tile, const kernels::Strip& strip, const float* alpha) {
  const Panel& panel = panels_[i];
  const float* weights = scored_.scores + strip.key * panel.ld;
  float* acc = states_[i].acc;
  const bool hides = strip.partial || c_.p.bias;
  if (!hides || values_finite(tile.keys)) {
    const StoredBlock part = fetch_stored(c_.kernels, value_block(tile.keys), value_copy_).slice(strip.key, strip.count);
    c_.kernels.accumulate_few[static_cast<int>(part.storage)](part.rows, weights, panel.ld, panel.rows, alpha, acc, value_stride_);
    return;
  }
  // As in accumulate_strip: left out, not multiplied by 0. Rare, and so a plain loop; fused, to give the leaf's bits.
  const kernels::Rows& all = values(tile.keys);
  std::uint16_t bits[kMaxTileKeys];
  find_summed(c_.p, mask_rows(c_, panel), 0, tile.keys, bits);
  for (int r = 0; r < panel.rows; ++r) {
    float* out = acc + r * value_stride_;
    for (Index d = 0; d < c_.p.value_dim; ++d) out[d] *= alpha != nullptr ? alpha[r] : 1.0F;
    for (int k = 0; k < strip.count; ++k) {
      if ((bits[strip.key + k] >> r & 1U) == 0) continue;
      const float* value = all.data + (strip.key + k) * all.stride;
      for (Index d = 0; d < c_.p.value_dim; ++d) out[d] = std::fma(weights[k * panel.ld + r], value[d], out[d]);
    }
  }
}

void ForwardTask::drop_weights(int i, const KeyTile& tile) {
  const Panel& panel = panels_[i];
  for (int s = 0; s < scored_.mask->strip_count; ++s) {
    const kernels::Strip& strip = scored_.mask->strips[s];
    const int first = strip.first_vector * c_.plan.lanes;
    const int end = std::min(panel.rows, first + strip.vectors * c_.plan.lanes);
    for (int lane = first; lane < end; ++lane) {
      const RowPlace at = place_of(c_.p, c_.task.batch, c_.task.kv_head, c_.task.first_row + panel.first + lane);
      for (int k = strip.key; k < strip.key + strip.count; ++k) {
        scored_.scores[k * panel.ld + lane] *= dropout_factor(c_.p.spec->dropout, at.batch, at.head, at.query, tile.keys.lo + k);
      }
    }
  }
}

Block ForwardTask::value_block(Interval keys) const {
  const Operand& v = c_.p.v;
  return {&v, v.at(c_.task.batch, keys.lo, c_.task.kv_head, 0), v.stride[1], keys.hi - keys.lo, c_.p.value_dim};
}

const kernels::Rows& ForwardTask::values(Interval keys) {
  if (values_of_ != keys.lo) {
    values_ = fetch(c_.kernels, value_block(keys), value_copy_, c_.plan.copy_values);
    values_of_ = keys.lo;
  }
  return values_;
}

bool ForwardTask::values_finite(Interval keys) {
  if (finite_of_ != keys.lo) {
    finite_ = c_.kernels.all_finite(values(keys));
    finite_of_ = keys.lo;
  }
  return finite_;
}

/// Divides by the sum and writes what was asked for; a row that saw nothing has sum 0 and gives zeros.
void ForwardTask::finish(int i) {
  const Panel& panel = panels_[i];
  const State& state = states_[i];
  alignas(64) float factor[kernels::kMaxPanelLanes];
  for (Index lane = 0; lane < panel.ld; ++lane) factor[lane] = state.sum[lane] == 0.0F ? 0.0F : 1.0F / state.sum[lane];
  store_output(i, factor);
  if (c_.p.lse) {
    for (int lane = 0; lane < panel.rows; ++lane) {
      const RowPlace at = place_of(c_.p, c_.task.batch, c_.task.kv_head, c_.task.first_row + panel.first + lane);
      const float lse = state.max[lane] + std::log(state.sum[lane]);
      *reinterpret_cast<float*>(c_.p.lse.at(at.batch, at.head, at.query, 0)) = state.sum[lane] == 0.0F ? kNegInf : lse;
    }
  }
  for (int lane = 0; tally_ && lane < panel.rows; ++lane) {
    const Index row = c_.task.first_row + panel.first + lane;
    write_statistics(c_.p, place_of(c_.p, c_.task.batch, c_.task.kv_head, row), tally_->row(i, lane), state.max[lane]);
  }
  if (links_) links_->write(i, {state.max, factor}, rows_);
  if (c_.p.weights) write_weights(c_, panel, {0, c_.p.kv_len}, {state.max, factor}, {c_.p.weights, 0, 0}, scored_);
}

/// Leaves the rows as they are for the merge.
void ForwardTask::leave(int i) {
  const Panel& panel = panels_[i];
  alignas(64) float one[kernels::kMaxPanelLanes];
  std::fill(std::begin(one), std::end(one), 1.0F);
  store_output(i, one);
  for (int lane = 0; lane < panel.rows; ++lane) {
    const Index at = partial_at(c_.p, c_.plan, c_.task, c_.task.first_row + panel.first + lane);
    partials_->max[at] = states_[i].max[lane];
    partials_->sum[at] = states_[i].sum[lane];
    if (tally_) partials_->tallies[at] = tally_->row(i, lane);
    if (links_) links_->leave(i, lane, partials_->link_scores + at * c_.p.links.count, partials_->link_keys + at * c_.p.links.count);
  }
}

/// Rows times their factor, to the output or to the partials.
void ForwardTask::store_output(int i, const float* factor) {
  const Panel& panel = panels_[i];
  const Operand& out = c_.p.out;
  const Index dim = c_.p.value_dim;
  const int lanes = c_.plan.lanes;
  for (int v = 0; v < panel.vectors; ++v) {
    const int count = std::min(lanes, panel.rows - v * lanes);
    std::byte* places[kernels::kMaxLanes];
    float* rows[kernels::kMaxLanes];
    for (int lane = 0; lane < count; ++lane) {
      const Index row = c_.task.first_row + panel.first + v * lanes + lane;
      const RowPlace at = place_of(c_.p, c_.task.batch, c_.task.kv_head, row);
      places[lane] = out.at(at.batch, at.query, at.head, 0);
      rows[lane] = partials_ != nullptr ? partials_->out + partial_at(c_.p, c_.plan, c_.task, row) * dim
                   : out.plain()        ? reinterpret_cast<float*>(places[lane])
                                        : rows_ + lane * dim;
    }
    if (c_.plan.few_rows) {
      for (int lane = 0; lane < count; ++lane) {
        const float* acc = states_[i].acc + lane * value_stride_;
        for (Index d = 0; d < dim; ++d) rows[lane][d] = acc[d] * factor[lane];
      }
    } else {
      c_.kernels.store_rows(states_[i].acc + v * lanes, panel.ld, count, dim, factor + v * lanes, rows);
    }
    if (partials_ != nullptr || out.plain()) continue;
    for (int lane = 0; lane < count; ++lane) deliver(c_.kernels, rows[lane], dim, out, places[lane]);
  }
}

}  // namespace

void run_forward(const Problem& p, const kernels::KernelTable& kernels, Workspace& workspace) {
  const Plan plan = make_plan(p, kernels);
  const int workers = core::workers_for(workspace.executor(), plan.tasks, plan.work);
  for (int w = 0; w < workers; ++w) workspace.arena(w).reserve(plan.scratch);
  Arena& shared = workspace.caller_arena();
  shared.reserve(Partials::bytes(p, plan) + static_cast<std::size_t>(workers) * plan.sight_scratch + kAlignment);
  const ArenaScope caller_scope(shared);
  const Partials partials = plan.splits > 1 ? Partials::take(p, plan, shared) : Partials{};
  Sight* sights = shared.take<Sight>(workers);  // each worker keeps its own from task to task
  for (int w = 0; w < workers; ++w) sights[w] = take_sight(p, plan, std::min(plan.split_keys, p.kv_len), shared);
  const auto in_parallel = [&](Index tasks, auto&& body) {
    core::run_tasks(workspace.executor(), workers, tasks, [&](int worker, Index i) {
      const core::FlushDenormals mode;
      const ArenaScope scope(workspace.arena(worker));
      body(worker, i);
    });
  };
  const auto with_task = [&](int worker, Index i, auto&& run) {
    const Task task = task_at(p, plan, i);
    look(p, task, plan.lanes, sights[worker]);
    ForwardTask forward({p, plan, kernels, task, &sights[worker]}, plan.splits > 1 ? &partials : nullptr, workspace.arena(worker));
    run(forward);
  };
  in_parallel(plan.tasks, [&](int worker, Index i) { with_task(worker, i, [](ForwardTask& task) { task.run(); }); });
  if (plan.splits == 1) return;
  in_parallel(p.batch * p.kv_heads, [&](int worker, Index i) {
    merge_partials(p, plan, kernels, partials, {i / p.kv_heads, i % p.kv_heads}, workspace.arena(worker).take<float>(p.value_dim));
  });
  if (!p.weights) return;
  in_parallel(plan.tasks, [&](int worker, Index i) { with_task(worker, i, [](ForwardTask& task) { task.write_merged_weights(); }); });
}

}  // namespace mha::attention
