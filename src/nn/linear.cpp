// Packs weights into panels for the `linear` leaf and spreads blocks of rows x panels over the threads. The f64 form is plain loops: it is
// there for checks, not for speed. Arithmetic itself is the leaf's.
#include "nn/linear.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/arena.h"
#include "core/check.h"
#include "core/executor.h"
#include "kernels/table.h"
#include "nn/matrix_view.h"

namespace mha::nn {
namespace {

// A block of x rows is read once per panel: kept small enough to stay in L2 beside a panel, a multiple of every ISA's tile height.
constexpr Index kRowBlockFloats = 64 * 1024;
constexpr Index kRowMultiple = 24;
// Smallest piece of work given to a thread: a task's start costs about a microsecond.
constexpr double kTaskFlops = 3e6;

Index divide_up(Index a, Index b) { return (a + b - 1) / b; }

bool is_storage(DType dtype) { return dtype == DType::F32 || dtype == DType::Bf16 || dtype == DType::F16; }

Tensor dense(const ConstTensorView& view, DType dtype) {
  Tensor tensor(dtype, view.shape);
  copy(view, tensor);
  return tensor;
}

PackedLinear::Panels make_panels(Index outputs, Index inputs, Index width) {
  const Index count = divide_up(outputs, width);
  return {.width = width, .weights = Tensor(DType::F32, {count, inputs, width}), .init = Tensor(DType::F32, {count, width})};
}

/// One operand of a run: rows in f32 (or f64), contiguous within a row.
struct Operand {
  MatrixView matrix;
  TensorView unstaged;  // where staged results must be copied to; absent if none
};

/// `view` itself, or a dense stand-in for it from the caller's arena where its last axis is not contiguous.
Operand operand(const TensorView& view, const char* what, Arena& arena) {
  Operand result{.matrix = matrix_view(view, what), .unstaged = {}};
  if (result.matrix.step == 1) return result;
  const Index bytes = element_count(view.shape) * static_cast<Index>(size_of(view.dtype));
  result.unstaged = view;
  result.matrix = matrix_view(TensorView(arena.take<std::byte>(bytes), view.dtype, view.shape), what);
  return result;
}

struct Output {
  const PackedLinear* linear;
  const PackedLinear::Panels* panels;
  MatrixView y;
};

/// What all tasks of one run share.
struct Run {
  MatrixView x;
  std::vector<Output> outputs;
  Index panels = 0;  // of all outputs together
  Index row_block = 0;
  Index panel_group = 0;
};

/// Rows [first, first + count) of batch entry b times panel `panel` of all outputs together.
void run_panel(const Run& run, const kernels::KernelTable& table, Index b, Index first, Index count, Index panel) {
  for (const Output& out : run.outputs) {
    const PackedLinear::Panels& form = *out.panels;
    const Index own = form.init.size(0);
    if (panel >= own) {
      panel -= own;
      continue;
    }
    const Index column = panel * form.width;
    const Index columns = std::min(form.width, out.linear->outputs() - column);
    const kernels::Rows rows{.data = run.x.row<const float>(b, first), .stride = run.x.row_stride, .count = count, .dim = run.x.width};
    table.linear(rows, form.weights.data<float>() + column * run.x.width, form.init.data<float>() + column, columns,
                 out.y.row<float>(b, first) + column, out.y.row_stride);
    return;
  }
}

void run_f32(Run& run, Index width, Workspace& workspace, const kernels::KernelTable& table) {
  const Index longest = std::clamp<Index>(kRowBlockFloats / run.x.width, kRowMultiple, 256);
  const Index even = divide_up(run.x.rows, divide_up(run.x.rows, longest));  // blocks of equal height rather than a small last one
  run.row_block = divide_up(even, kRowMultiple) * kRowMultiple;
  const double panel_flops = 2.0 * static_cast<double>(std::min(run.row_block, run.x.rows) * run.x.width * width);
  run.panel_group = std::clamp<Index>(static_cast<Index>(std::ceil(kTaskFlops / panel_flops)), 1, run.panels);
  const Index blocks = divide_up(run.x.rows, run.row_block);
  const Index groups = divide_up(run.panels, run.panel_group);
  const Index tasks = run.x.batch * blocks * groups;
  const double flops =
      panel_flops / static_cast<double>(std::min(run.row_block, run.x.rows)) * static_cast<double>(run.x.batch * run.x.rows * run.panels);
  const int workers = core::workers_for(workspace.executor(), tasks, flops);
  core::run_tasks(workspace.executor(), workers, tasks, [&](int, Index task) {
    const Index group = task % groups;
    const Index first = task / groups % blocks * run.row_block;
    const Index count = std::min(run.row_block, run.x.rows - first);
    const Index end = std::min(run.panels, (group + 1) * run.panel_group);
    for (Index panel = group * run.panel_group; panel < end; ++panel) run_panel(run, table, task / groups / blocks, first, count, panel);
  });
}

void run_f64(const MatrixView& x, const Output& out, Workspace& workspace) {
  const Index inputs = x.width;
  const double* weight = out.linear->weight_f64().data<double>();
  const double* bias = out.linear->bias_f64().data<double>();
  for_each_row(x, 2.0 * static_cast<double>(inputs * out.linear->outputs()), workspace.executor(), [&](Index b, Index r) {
    const double* row = x.row<const double>(b, r);
    double* y = out.y.row<double>(b, r);
    for (Index n = 0; n < out.linear->outputs(); ++n) {
      double sum = bias[n];
      for (Index d = 0; d < inputs; ++d) sum += row[d] * weight[n * inputs + d];
      y[n] = sum;
    }
  });
}

void check_job(const ConstTensorView& x, const LinearJob& job) {
  const PackedLinear& linear = *job.linear;
  const std::string& name = linear.name();
  MHA_CHECK(ShapeError, static_cast<bool>(x) && static_cast<bool>(job.y), name, ": ", x ? "y" : "x", " is absent");
  MHA_CHECK(DTypeError, x.dtype == linear.dtype(), name, ": x is ", name_of(x.dtype), ", the layer computes in ", name_of(linear.dtype()));
  MHA_CHECK(DTypeError, job.y.dtype == x.dtype, name, ": y is ", name_of(job.y.dtype), ", x is ", name_of(x.dtype));
  MHA_CHECK(ShapeError, x.rank() == 2 || x.rank() == 3, name, ": x has shape ", to_string(x.shape), ", rank 2 or 3 is wanted");
  const Index width = x.size(x.rank() - 1);
  MHA_CHECK(ShapeError, width == linear.inputs(), name, ": x has width ", width, ", the weight has ", linear.inputs(), " inputs");
  Dims wanted = x.shape;
  wanted[x.rank() - 1] = linear.outputs();
  MHA_CHECK(ShapeError, job.y.shape == wanted, name, ": y has shape ", to_string(job.y.shape), ", must be ", to_string(wanted));
  MHA_CHECK(ShapeError, !may_overlap(x, job.y), name, ": y overlaps x");
}

}  // namespace

PackedLinear::PackedLinear(ConstTensorView weight, ConstTensorView bias, std::string name) : name_(std::move(name)) {
  MHA_CHECK(ShapeError, static_cast<bool>(weight), name_, ": weight is absent");
  MHA_CHECK(ShapeError, weight.rank() == 2 && weight.size(0) >= 1 && weight.size(1) >= 1, name_, ": weight has shape ",
            to_string(weight.shape), ", [outputs, inputs] of at least 1 each is wanted");
  MHA_CHECK(DTypeError, is_storage(weight.dtype) || weight.dtype == DType::F64, name_, ": weight is ", name_of(weight.dtype),
            ", f32, bf16, f16 or f64 is wanted");
  dtype_ = weight.dtype == DType::F64 ? DType::F64 : DType::F32;
  outputs_ = weight.size(0);
  inputs_ = weight.size(1);
  if (bias) {
    MHA_CHECK(ShapeError, bias.rank() == 1 && bias.size(0) == outputs_, name_, ": bias has shape ", to_string(bias.shape),
              ", the weight has ", outputs_, " outputs");
    const bool fits = dtype_ == DType::F64 ? bias.dtype == DType::F64 : is_storage(bias.dtype);
    MHA_CHECK(DTypeError, fits, name_, ": bias is ", name_of(bias.dtype), ", the weight is ", name_of(weight.dtype));
  }
  pack(weight, bias);
}

PackedLinear::PackedLinear(PackedLinear&& other) noexcept
    : name_(std::move(other.name_)),
      dtype_(other.dtype_),
      inputs_(other.inputs_),
      outputs_(other.outputs_),
      weight_f64_(std::move(other.weight_f64_)),
      bias_f64_(std::move(other.bias_f64_)),
      forms_(std::move(other.forms_)),
      latest_(other.latest_.load()) {}

PackedLinear::~PackedLinear() = default;

void PackedLinear::pack(ConstTensorView weight, ConstTensorView bias) {
  if (dtype_ == DType::F64) {
    weight_f64_ = dense(weight, DType::F64);
    bias_f64_ = bias ? dense(bias, DType::F64) : Tensor(DType::F64, {outputs_});
    return;
  }
  Tensor held;  // a dense f32 copy, where the weight is not already one
  if (weight.dtype != DType::F32 || weight.stride(1) != 1) {
    held = dense(weight, DType::F32);
    weight = held;
  }
  const kernels::KernelTable& table = kernels::current_or_scalar();
  Panels form = make_panels(outputs_, inputs_, static_cast<Index>(table.lanes) * table.panel_vectors);
  const float* source = weight.as<float>();
  for (Index first = 0; first < outputs_; first += form.width) {
    float* panel = form.weights.data<float>() + first * inputs_;
    const Index columns = std::min(form.width, outputs_ - first);
    for (Index d = 0; d < inputs_; ++d) {
      for (Index n = 0; n < columns; ++n) panel[d * form.width + n] = source[(first + n) * weight.stride(0) + d];
    }
  }
  if (bias) copy(bias, TensorView(form.init.data<float>(), {outputs_}));
  forms_.push_back(std::make_unique<const Panels>(std::move(form)));
  latest_.store(forms_.back().get(), std::memory_order_release);
}

const PackedLinear::Panels& PackedLinear::panels(Index width) const {
  const Panels* latest = latest_.load(std::memory_order_acquire);
  return latest->width == width ? *latest : repack(width);
}

// Forms are never dropped: another thread may be reading one.
const PackedLinear::Panels& PackedLinear::repack(Index width) const {
  const std::lock_guard lock(mutex_);
  for (const auto& form : forms_) {
    if (form->width == width) {
      latest_.store(form.get(), std::memory_order_release);
      return *form;
    }
  }
  const Panels& old = *forms_.front();
  Panels form = make_panels(outputs_, inputs_, width);
  const float* from = old.weights.data<float>();
  for (Index n = 0; n < outputs_; ++n) {
    const Index old_panel = n / old.width * old.width * inputs_ + n % old.width;
    float* to = form.weights.data<float>() + n / width * width * inputs_ + n % width;
    for (Index d = 0; d < inputs_; ++d) to[d * width] = from[old_panel + d * old.width];
    form.init.data<float>()[n] = old.init.data<float>()[n];
  }
  forms_.push_back(std::make_unique<const Panels>(std::move(form)));
  latest_.store(forms_.back().get(), std::memory_order_release);
  return *forms_.back();
}

void PackedLinear::forward(ConstTensorView x, TensorView y, Workspace& workspace) const {
  const LinearJob job{.linear = this, .y = y};
  linear_forward(x, {&job, 1}, workspace);
}

void linear_forward(ConstTensorView x, std::span<const LinearJob> jobs, Workspace& workspace) {
  for (const LinearJob& job : jobs) check_job(x, job);
  if (jobs.empty() || element_count(x.shape) == 0) return;
  Arena& arena = workspace.caller_arena();
  const ArenaScope scope(arena);
  const Operand source = operand(TensorView(const_cast<void*>(x.data), x.dtype, x.shape, x.strides), "linear: x", arena);
  if (source.unstaged) copy(x, TensorView(source.matrix.data, x.dtype, x.shape));

  const kernels::KernelTable& table = kernels::current_or_scalar();
  const Index width = static_cast<Index>(table.lanes) * table.panel_vectors;
  Run run{.x = source.matrix, .outputs = {}};
  std::vector<Operand> results;
  bool collapsible = run.x.collapsible();
  for (const LinearJob& job : jobs) {
    results.push_back(operand(job.y, "linear: y", arena));
    const auto* panels = x.dtype == DType::F32 ? &job.linear->panels(width) : nullptr;
    run.outputs.push_back({.linear = job.linear, .panels = panels, .y = results.back().matrix});
    run.panels += divide_up(job.linear->outputs(), width);
    collapsible = collapsible && results.back().matrix.collapsible();
  }
  if (collapsible) {
    run.x = run.x.collapsed();
    for (Output& out : run.outputs) out.y = out.y.collapsed();
  }
  if (x.dtype == DType::F32) {
    run_f32(run, width, workspace, table);
  } else {
    for (const Output& out : run.outputs) run_f64(run.x, out, workspace);
  }
  for (const Operand& result : results) {
    if (result.unstaged) copy(TensorView(result.matrix.data, x.dtype, result.unstaged.shape), result.unstaged);
  }
}

}  // namespace mha::nn
