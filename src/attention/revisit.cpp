#include "attention/revisit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/panel.h"
#include "core/executor.h"
#include "core/float_mode.h"

namespace mha::attention {

namespace {

/// The rows of one task, of a OneHead's problem, and their weights: exp(score - lse).
class Revisit {
 public:
  Revisit(const TaskContext& context, Arena& arena);

  int panel_count() const { return panel_count_; }
  const Panel& panel(int i) const { return panels_[i]; }
  KeyTile load(Interval keys) { return load_keys(c_, keys, scored_.key_copy); }
  /// Whether panel i sees any of the tile. Then `weights` holds, in the strips of `mask`, its weights, [keys, panel.ld]: 0 for hidden pairs
  /// and for lanes beyond the panel's rows.
  bool weigh(int i, const KeyTile& tile);
  const float* weights() const { return scored_.scores; }
  const TileMask& mask() const { return *scored_.mask; }

 private:
  void clear_beyond(const Panel& panel, const kernels::Strip& strip);

  const TaskContext c_;
  Panel* panels_;
  float** lse_;  // per panel and lane; +inf beyond the rows
  int panel_count_;
  Scored scored_;
  alignas(64) float tile_max_[kernels::kMaxPanelLanes];
};

Revisit::Revisit(const TaskContext& context, Arena& arena) : c_(context) {
  const Index most = (c_.task.rows + c_.plan.lanes - 1) / c_.plan.lanes;
  panels_ = arena.take<Panel>(most);
  lse_ = arena.take<float*>(most);
  panel_count_ = cut_panels(c_, panels_);
  float* rows = arena.take<float>(c_.plan.row_scratch);
  scored_ = take_scored(c_, arena, tile_max_, rows);
  for (int i = 0; i < panel_count_; ++i) {
    panels_[i].queries = arena.take<float>(query_floats(c_, panels_[i]));
    load_panel(c_, panels_[i], rows);
    lse_[i] = arena.take<float>(panels_[i].ld);
    std::fill(lse_[i], lse_[i] + panels_[i].ld, std::numeric_limits<float>::infinity());
    for (int lane = 0; lane < panels_[i].rows; ++lane) {
      lse_[i][lane] = *reinterpret_cast<const float*>(c_.p.lse.at(0, 0, c_.task.first_row + panels_[i].first + lane, 0));
    }
  }
}

bool Revisit::weigh(int i, const KeyTile& tile) {
  if (!score_tile(c_, panels_[i], tile, scored_)) return false;
  for (int s = 0; s < mask().strip_count; ++s) {
    const kernels::Strip& strip = mask().strips[s];
    const int first = strip.first_vector * c_.plan.lanes;
    c_.kernels.exp_minus(scored_.scores + strip.key * panels_[i].ld + first, panels_[i].ld, strip.vectors, strip.count, lse_[i] + first);
    clear_beyond(panels_[i], strip);
  }
  return true;
}

/// Lanes beyond the panel's rows weigh nothing, even where a key is NaN.
void Revisit::clear_beyond(const Panel& panel, const kernels::Strip& strip) {
  const Index end = static_cast<Index>(strip.first_vector + strip.vectors) * c_.plan.lanes;
  if (end <= panel.rows) return;
  for (Index key = strip.key; key < strip.key + strip.count; ++key) {
    std::fill(scored_.scores + key * panel.ld + panel.rows, scored_.scores + key * panel.ld + end, 0.0F);
  }
}

/// What all tasks of a head share.
struct RevisitRun {
  const Problem& p;
  const Plan& plan;
  const kernels::KernelTable& kernels;
};

/// fn(task, revisit) for rows [queries.lo, queries.hi) in parts of the plan's size, against some keys; not for parts that see none.
template <class Fn>
void for_parts(const RevisitRun& run, Interval queries, Interval keys, Arena& arena, Fn&& fn) {
  const ArenaScope outer(arena);
  Sight sight = take_sight(run.p, run.plan, keys.hi - keys.lo, arena);
  for (Index first = queries.lo; first < queries.hi; first += run.plan.rows_per_task) {
    const ArenaScope scope(arena);
    const Index rows = std::min(run.plan.rows_per_task, queries.hi - first);
    const Task task{.batch = 0, .kv_head = 0, .first_row = first, .rows = rows, .split = 0, .keys = keys};
    look(run.p, task, run.plan.lanes, sight);
    if (seen_keys(sight).empty()) continue;  // as half of all parts under a causal mask
    Revisit revisit({run.p, run.plan, run.kernels, task, &sight}, arena);
    fn(task, revisit);
  }
}

/// fn(tile of keys) from keys.lo on.
template <class Fn>
void for_tiles(const Plan& plan, Interval keys, Fn&& fn) {
  for (Index key = keys.lo; key < keys.hi; key += plan.key_tile) fn(Interval{key, std::min(key + plan.key_tile, keys.hi)});
}

/// Sums of the weights of some keys over all queries, to received[key - keys.lo].
void sum_received(const RevisitRun& run, Interval keys, double* received, Arena& arena) {
  const int lanes = run.plan.lanes;
  const Index count = keys.hi - keys.lo;
  std::fill(received, received + count, 0.0);
  const ArenaScope scope(arena);
  float* sums = arena.take<float>(count * lanes);  // per key and lane, of one part of the rows
  for_parts(run, {0, run.p.q_len}, keys, arena, [&](const Task&, Revisit& revisit) {
    std::fill(sums, sums + count * lanes, 0.0F);
    for_tiles(run.plan, keys, [&](Interval part) {
      const KeyTile tile = revisit.load(part);
      for (int i = 0; i < revisit.panel_count(); ++i) {
        if (!revisit.weigh(i, tile)) continue;
        const Index ld = revisit.panel(i).ld;
        for (int s = 0; s < revisit.mask().strip_count;) {
          const kernels::Strip strip = next_run(revisit.mask(), s);
          run.kernels.add_vectors(revisit.weights() + strip.key * ld + strip.first_vector * lanes, ld, strip.vectors, strip.count,
                                  sums + (part.lo - keys.lo + strip.key) * lanes);
        }
      }
    });
    for (Index key = 0; key < count; ++key) {
      for (int lane = 0; lane < lanes; ++lane) received[key] += static_cast<double>(sums[key * lanes + lane]);
    }
  });
}

/// `size` things shared out among `cells` cells.
struct Cells {
  Index size;
  Index cells;

  Interval at(Index i) const { return {i * size / cells, (i + 1) * size / cells}; }
  Index of(Index thing) const { return ((thing + 1) * cells - 1) / size; }
};

/// Some rows of cells of a map.
class MapRows {
 public:
  MapRows(const RevisitRun& run, const WeightsRegion& region, const WeightsMap& map, Interval cell_rows, Arena& arena);
  void add(const Task& task, Revisit& revisit, Interval keys);
  void write(const WeightsMap& map) const;
  Interval queries() const { return {region_.queries.lo + rows_.at(own_.lo).lo, region_.queries.lo + rows_.at(own_.hi - 1).hi}; }

 private:
  void add_panel(const Task& task, const Revisit& revisit, int i, Index first_key);
  void add_cells(const Panel& panel, const kernels::Strip& strip, Index column);

  const RevisitRun& run_;
  const WeightsRegion& region_;
  Cells rows_, columns_;
  Interval own_;  // rows of cells
  double* sum_;   // per cell
  float* max_;
  Index* row_of_lane_;  // of the panel at hand, among the own rows
  float *lane_sum_, *lane_max_;
};

MapRows::MapRows(const RevisitRun& run, const WeightsRegion& region, const WeightsMap& map, Interval cell_rows, Arena& arena)
    : run_(run),
      region_(region),
      rows_{region.queries.hi - region.queries.lo, (map.mean.rank() > 0 ? map.mean : map.max).size(0)},
      columns_{region.keys.hi - region.keys.lo, (map.mean.rank() > 0 ? map.mean : map.max).size(1)},
      own_(cell_rows) {
  const Index cells = (own_.hi - own_.lo) * columns_.cells;
  sum_ = arena.take<double>(cells);
  max_ = arena.take<float>(cells);
  std::fill(sum_, sum_ + cells, 0.0);
  std::fill(max_, max_ + cells, 0.0F);
  row_of_lane_ = arena.take<Index>(run.plan.panel_lanes);
  lane_sum_ = arena.take<float>(run.plan.panel_lanes);
  lane_max_ = arena.take<float>(run.plan.panel_lanes);
}

void MapRows::add(const Task& task, Revisit& revisit, Interval keys) {
  const KeyTile tile = revisit.load(keys);
  for (int i = 0; i < revisit.panel_count(); ++i) {
    if (revisit.weigh(i, tile)) add_panel(task, revisit, i, keys.lo);
  }
}

void MapRows::add_panel(const Task& task, const Revisit& revisit, int i, Index first_key) {
  const Panel& panel = revisit.panel(i);
  const int lanes = run_.plan.lanes;
  for (int lane = 0; lane < panel.rows; ++lane) {
    row_of_lane_[lane] = rows_.of(task.first_row + panel.first + lane - region_.queries.lo) - own_.lo;
  }
  for (int s = 0; s < revisit.mask().strip_count;) {
    const kernels::Strip strip = next_run(revisit.mask(), s);
    const int first = strip.first_vector * lanes;
    const Index end = first_key + strip.key + strip.count;
    for (Index key = first_key + strip.key; key < end;) {
      const Index column = columns_.of(key - region_.keys.lo);
      const Index count = std::min(end, region_.keys.lo + columns_.at(column).hi) - key;
      run_.kernels.sum_and_max(revisit.weights() + (key - first_key) * panel.ld + first, panel.ld, strip.vectors, count, lane_sum_ + first,
                               lane_max_ + first);
      add_cells(panel, strip, column);
      key += count;
    }
  }
}

/// What the lanes of a strip have in a column of cells.
void MapRows::add_cells(const Panel& panel, const kernels::Strip& strip, Index column) {
  const int first = strip.first_vector * run_.plan.lanes;
  const int end = std::min(panel.rows, first + strip.vectors * run_.plan.lanes);
  for (int lane = first; lane < end; ++lane) {
    const Index at = row_of_lane_[lane] * columns_.cells + column;
    sum_[at] += static_cast<double>(lane_sum_[lane]);
    max_[at] = std::max(max_[at], lane_max_[lane]);
  }
}

void MapRows::write(const WeightsMap& map) const {
  for (Index row = own_.lo; row < own_.hi; ++row) {
    for (Index column = 0; column < columns_.cells; ++column) {
      const Index at = (row - own_.lo) * columns_.cells + column;
      const Interval high = rows_.at(row);
      const Interval wide = columns_.at(column);
      const auto put = [&](const TensorView& to, double value) {
        if (to) to.as<float>()[row * to.stride(0) + column * to.stride(1)] = static_cast<float>(value);
      };
      put(map.mean, sum_[at] / static_cast<double>((high.hi - high.lo) * (wide.hi - wide.lo)));
      put(map.max, std::isnan(sum_[at]) ? sum_[at] : static_cast<double>(max_[at]));
    }
  }
}

struct RevisitWork {
  Index tasks;
  double flops;
  std::size_t scratch;  // bytes per worker, what a body takes besides included
};

/// What a Revisit and its sight of so many keys take, and a few arrays' rounding.
std::size_t scratch_of(const Problem& p, const Plan& plan, Index keys) {
  const Index lanes = plan.rows_per_task + plan.panel_lanes;
  return plan.scratch + sight_bytes(p, plan, keys) + static_cast<std::size_t>(lanes) * (sizeof(float) + sizeof(float*) + kAlignment) +
         16 * kAlignment;
}

/// body(worker's arena, task) in parallel, with denormals flushed.
template <class Body>
void in_parallel(Workspace& workspace, const RevisitWork& work, Body&& body) {
  const int workers = core::workers_for(workspace.executor(), work.tasks, work.flops);
  for (int w = 0; w < workers; ++w) workspace.arena(w).reserve(work.scratch);
  core::run_tasks(workspace.executor(), workers, work.tasks, [&](int worker, Index i) {
    const core::FlushDenormals mode;
    Arena& arena = workspace.arena(worker);
    const ArenaScope scope(arena);
    body(arena, i);
  });
}

constexpr Index kReceivedKeys = 512;  // per task: enough that loading queries costs little
constexpr Index kMapCells = 65536;    // per task, where its rows of cells are not longer

}  // namespace

void run_received(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, TensorView received,
                  const kernels::KernelTable& kernels, Workspace& workspace) {
  const Index heads = received.size(1);
  const Index all_heads = received.size(0) * heads;
  const Index kv_len = received.size(2);
  if (all_heads == 0 || kv_len == 0) return;
  const OneHead any(spec, inputs, lse, 0, 0);  // plans go by sizes and strides, which are the same for all
  const Plan plan = make_plan(any.problem(), kernels);
  const Index blocks = (kv_len + kReceivedKeys - 1) / kReceivedKeys;
  const std::size_t bytes =
      static_cast<std::size_t>(kReceivedKeys) * (sizeof(double) + static_cast<std::size_t>(plan.lanes) * sizeof(float));
  const RevisitWork work{all_heads * blocks, plan.flops * static_cast<double>(all_heads),
                         scratch_of(any.problem(), plan, kReceivedKeys) + bytes};
  in_parallel(workspace, work, [&](Arena& arena, Index i) {
    const Index head = i / blocks;
    const Interval keys{i % blocks * kReceivedKeys, std::min((i % blocks + 1) * kReceivedKeys, kv_len)};
    double* sums = arena.take<double>(keys.hi - keys.lo);
    const OneHead one(spec, inputs, lse, head / heads, head % heads);
    sum_received({one.problem(), plan, kernels}, keys, sums, arena);
    const TensorView row = received.slice(0, head / heads, head / heads + 1).slice(1, head % heads, head % heads + 1);
    for (Index key = keys.lo; key < keys.hi; ++key) row.as<float>()[key * row.stride(2)] = static_cast<float>(sums[key - keys.lo]);
  });
}

void run_map(const OneHead& head, const WeightsRegion& region, const WeightsMap& map, const kernels::KernelTable& kernels,
             Workspace& workspace) {
  const TensorView& shape = map.mean.rank() > 0 ? map.mean : map.max;
  if (element_count(shape.shape) == 0) return;
  const Plan plan = make_plan(head.problem(), kernels);
  const double flops = 2.0 * static_cast<double>(region.queries.hi - region.queries.lo) *
                       static_cast<double>(region.keys.hi - region.keys.lo) * static_cast<double>(head.problem().head_dim);
  const Index queries_of_row = std::max<Index>(1, (region.queries.hi - region.queries.lo) / shape.size(0));
  const Index together = std::max<Index>(1, std::min(plan.rows_per_task / queries_of_row, kMapCells / shape.size(1)));
  const Index tasks = (shape.size(0) + together - 1) / together;
  const RevisitRun run{head.problem(), plan, kernels};
  const std::size_t cells = static_cast<std::size_t>(together * shape.size(1)) * (sizeof(double) + sizeof(float));
  const std::size_t lanes = static_cast<std::size_t>(plan.panel_lanes) * (sizeof(Index) + 2 * sizeof(float));
  const RevisitWork work{tasks, flops, scratch_of(head.problem(), plan, region.keys.hi - region.keys.lo) + cells + lanes};
  in_parallel(workspace, work, [&](Arena& arena, Index i) {
    const Index first = (tasks - 1 - i) * together;  // causal masks make later rows heavier
    MapRows rows(run, region, map, {first, std::min(first + together, shape.size(0))}, arena);
    for_parts(run, rows.queries(), region.keys, arena, [&](const Task& task, Revisit& revisit) {
      for_tiles(plan, region.keys, [&](Interval keys) { rows.add(task, revisit, keys); });
    });
    rows.write(map);
  });
}

}  // namespace mha::attention
