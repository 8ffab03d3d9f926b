// The public functions of mha/attention.h: validate, then lower and run, or the reference.
#include "mha/attention.h"

#include "attention/forward.h"
#include "attention/partials.h"
#include "attention/plan.h"
#include "attention/reference.h"
#include "attention/validate.h"
#include "core/executor.h"

namespace mha {

RowStatistics::operator bool() const {
  return max_score || max_key || entropy || distance || distance_variance || first_weight || chosen_weight;
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
  // One batch entry and one head, as a problem of its own; queries and keys keep their numbers, which masks go by.
  const Index group = inputs.q.size(2) / inputs.k.size(2);
  const auto one = [](ConstTensorView view, int axis, Index i) { return view.size(axis) == 1 ? view : view.slice(axis, i, i + 1); };
  const auto one_head = [&](ConstTensorView table) { return one(one(table, 0, region.batch), 1, region.head); };
  AttentionSpec head_spec = spec;
  if (const auto* dense = std::get_if<DenseBias>(&spec.bias)) head_spec.bias = DenseBias{one_head(dense->values)};
  if (const auto* alibi = std::get_if<AlibiBias>(&spec.bias)) {
    head_spec.bias = AlibiBias{{alibi->slopes[static_cast<std::size_t>(region.head)]}};
  }
  head_spec.sink_logits = {};  // lse has the sink's share already
  AttentionInputs head{
      .q = one(one(inputs.q, 0, region.batch), 2, region.head), .k = one(one(inputs.k, 0, region.batch), 2, region.head / group), .v = {}};
  if (inputs.allowed) head.allowed = one_head(inputs.allowed);
  if (!inputs.kv_lengths.empty()) head.kv_lengths = inputs.kv_lengths.subspan(static_cast<std::size_t>(region.batch), 1);
  attention::Problem problem = attention::lower(head_spec, head, {.out = {}, .lse = {}, .weights = {}});
  const ConstTensorView rows = one_head(lse);
  problem.lse.data = static_cast<std::byte*>(const_cast<void*>(rows.data));
  problem.lse.stride[2] = rows.stride(2);
  attention::WeightsTarget target{.to = {}, .first_query = region.queries.lo, .first_key = region.keys.lo};
  target.to.data = static_cast<std::byte*>(weights.data);
  target.to.stride[2] = weights.stride(0);
  target.to.stride[3] = weights.stride(1);
  attention::run_weights(problem, region, target, *kernels, workspace);
}

}  // namespace mha
