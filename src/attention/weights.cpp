// Any rectangle of one head's weights, recomputed from q, k and lse: exp(score - lse).
#include <algorithm>

#include "attention/forward.h"
#include "core/executor.h"
#include "core/float_mode.h"

namespace mha::attention {

namespace {

/// The rows of one task; `region` is in the caller's numbers.
void weights_task(const TaskContext& c, const WeightsRegion& region, const WeightsTarget& target, Arena& arena) {
  const Problem& p = c.p;
  auto* panels = arena.take<Panel>((c.task.rows + c.plan.lanes - 1) / c.plan.lanes);
  const int count = cut_panels(c, panels);
  float* rows = arena.take<float>(c.plan.row_scratch);
  alignas(64) float tile_max[kernels::kMaxPanelLanes];
  alignas(64) float lse[kernels::kMaxPanelLanes] = {};
  alignas(64) float one[kernels::kMaxPanelLanes];
  std::fill(std::begin(one), std::end(one), 1.0F);
  Scored scored = take_scored(c, arena, tile_max, rows);
  for (int i = 0; i < count; ++i) {
    panels[i].queries = arena.take<float>(query_floats(c, panels[i]));
    load_panel(c, panels[i], rows);
    for (int lane = 0; lane < panels[i].rows; ++lane) {
      lse[lane] = *reinterpret_cast<const float*>(p.lse.at(0, 0, c.task.first_row + panels[i].first + lane, 0));
    }
    write_weights(c, panels[i], region.keys, {lse, one}, target, scored);
  }
}

}  // namespace

void run_weights(const Problem& p, const WeightsRegion& region, const WeightsTarget& target, const kernels::KernelTable& kernels,
                 Workspace& workspace) {
  const Plan plan = make_plan(p, kernels);
  const Index rows = region.queries.hi - region.queries.lo;
  const Index tasks = (rows + plan.rows_per_task - 1) / plan.rows_per_task;
  const double flops =
      2.0 * static_cast<double>(rows) * static_cast<double>(region.keys.hi - region.keys.lo) * static_cast<double>(p.head_dim);
  const int workers = core::workers_for(workspace.executor(), tasks, flops);
  for (int w = 0; w < workers; ++w) workspace.arena(w).reserve(plan.scratch);
  core::run_tasks(workspace.executor(), workers, tasks, [&](int worker, Index i) {
    const core::FlushDenormals mode;
    Arena& arena = workspace.arena(worker);
    const ArenaScope scope(arena);
    const Index done = i * plan.rows_per_task;
    const Task task{.batch = 0,
                    .kv_head = 0,
                    .first_row = region.queries.lo + done,
                    .rows = std::min(plan.rows_per_task, rows - done),
                    .split = 0,
                    .keys = region.keys};
    Sight sight = take_sight(p, plan, region.keys.hi - region.keys.lo, arena);
    look(p, task, plan.lanes, sight);
    weights_task({p, plan, kernels, task, &sight}, region, target, arena);
  });
}

}  // namespace mha::attention
