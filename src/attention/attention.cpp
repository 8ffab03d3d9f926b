// The public functions of mha/attention.h: validate, then lower and run, or the reference.
#include "mha/attention.h"

#include <algorithm>

#include "attention/forward.h"
#include "attention/one_head.h"
#include "attention/partials.h"
#include "attention/plan.h"
#include "attention/reference.h"
#include "attention/revisit.h"
#include "attention/row_numbers.h"
#include "attention/validate.h"
#include "core/executor.h"

namespace mha {

RowStatistics::operator bool() const {
  return std::ranges::any_of(attention::kRowNumbers,
                             [&](const attention::RowNumber& number) { return static_cast<bool>(this->*number.view); });
}

void attention_forward(const AttentionSpec& spec, const AttentionInputs& inputs, const AttentionOutputs& outputs, Workspace& workspace) {
  attention::validate(spec, inputs, outputs);
  const kernels::KernelTable* kernels = kernels::current();
  if (kernels == nullptr || inputs.q.dtype == DType::F64) {
    attention::reference_forward(spec, inputs, outputs, workspace);
    return;
  }
  attention::run_forward(attention::lower(spec, inputs, outputs), *kernels, workspace);
}

AttentionPlan explain_attention(const AttentionSpec& spec, const AttentionInputs& inputs, const AttentionOutputs& outputs,
                                const Executor& executor) {
  attention::validate(spec, inputs, outputs);
  const kernels::KernelTable* kernels = kernels::current();
  if (kernels == nullptr || inputs.q.dtype == DType::F64) return {.isa = "reference", .workers = 1};
  const attention::Problem problem = attention::lower(spec, inputs, outputs);
  const attention::Plan plan = attention::make_plan(problem, *kernels);
  return {.isa = kernels->name,
          .few_rows = plan.few_rows,
          .copies_keys = plan.copy_keys,
          // Few rows keep room for a copy that only values which are not finite need.
          .copies_values = plan.few_rows ? problem.v.stride[3] != 1 : plan.copy_values,
          .panel_rows = plan.panel_lanes,
          .rows_per_task = plan.rows_per_task,
          .key_tile = plan.key_tile,
          .splits = plan.splits,
          .split_keys = plan.split_keys,
          .folds = plan.folds,
          .tasks = plan.tasks,
          .workers = core::workers_for(executor, plan.tasks, plan.work),
          .scratch = plan.scratch + plan.sight_scratch,
          .merge_scratch = attention::Partials::bytes(problem, plan),
          .flops = plan.flops};
}

void attention_weights(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, const WeightsRegion& region,
                       TensorView weights, Workspace& workspace) {
  attention::validate_weights(spec, inputs, lse, region, weights);
  const kernels::KernelTable* kernels = kernels::current();
  if (kernels == nullptr) {
    attention::reference_weights(spec, inputs, region, weights, workspace);
    return;
  }
  const attention::OneHead head(spec, inputs, lse, region.batch, region.head);
  attention::WeightsTarget target{.to = {}, .first_query = region.queries.lo, .first_key = region.keys.lo};
  target.to.data = static_cast<std::byte*>(weights.data);
  target.to.stride[2] = weights.stride(0);
  target.to.stride[3] = weights.stride(1);
  attention::run_weights(head.problem(), region, target, *kernels, workspace);
}

void attention_received(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, TensorView received,
                        Workspace& workspace) {
  attention::validate_received(spec, inputs, lse, received);
  if (const kernels::KernelTable* kernels = kernels::current()) {
    attention::run_received(spec, inputs, lse, received, *kernels, workspace);
  } else {
    attention::reference_received(spec, inputs, received);
  }
}

void attention_map(const AttentionSpec& spec, const AttentionInputs& inputs, ConstTensorView lse, const WeightsRegion& region,
                   const WeightsMap& map, Workspace& workspace) {
  attention::validate_map(spec, inputs, lse, region, map);
  if (const kernels::KernelTable* kernels = kernels::current()) {
    attention::run_map({spec, inputs, lse, region.batch, region.head}, region, map, *kernels, workspace);
  } else {
    attention::reference_map(spec, inputs, region, map);
  }
}

}  // namespace mha
