// Tensors, rounds and clocks. The time of one thread is its own (what others take away does not count), that of several is wall time.
#include "bench_measure.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>

#include "layer_walk.h"

namespace mha::app {
namespace {

constexpr double kRoundSeconds = 0.005;  // calls are repeated until a round takes as long
constexpr double kSlowCall = 0.5;        // seconds from which few rounds must do
constexpr Index kRounds = 7;
constexpr Index kSlowRounds = 3;
constexpr std::size_t kMostRead = std::size_t{256} << 20;

/// What is timed, and the memory that it reads from outside the caches.
struct Subject {
  std::function<void(Workspace&)> call;
  std::span<const std::byte> cold = {};
};

Subject attention_subject(const BenchProblem& p) {
  struct Data {
    Tensor q, kv, out;
    AttentionSpec spec;
    Index next = 0;
  };
  const Index copies = p.group == BenchGroup::Decode ? p.kv_copies() : 1;
  const Dims keys = p.key_shape();
  const auto data = std::make_shared<Data>();
  data->q = normal_numbers(p.dtype, p.query_shape());
  data->kv = normal_numbers(p.dtype, {copies, 2, element_count(keys)});
  data->out = Tensor(p.dtype, p.query_shape());
  data->spec = p.spec();
  Subject subject;
  subject.call = [data, keys, copies](Workspace& workspace) {
    const TensorView both = data->kv.view().slice(0, data->next, data->next + 1);
    data->next = (data->next + 1) % copies;
    const auto one = [&](Index which) { return ConstTensorView(both.slice(1, which, which + 1).reshape(keys)).transpose(1, 2); };
    attention_forward(data->spec, {.q = ConstTensorView(data->q).transpose(1, 2), .k = one(0), .v = one(1)},
                      {.out = data->out.view().transpose(1, 2)}, workspace);
  };
  const std::size_t bytes = static_cast<std::size_t>(element_count(data->kv.shape())) * size_of(p.dtype);
  if (p.group == BenchGroup::Decode) subject.cold = {static_cast<const std::byte*>(data->kv.view().data), std::min(bytes, kMostRead)};
  return subject;
}

Subject layer_subject(const BenchProblem& p) {
  struct Data {
    MultiHeadAttention layer;
    Tensor x, y;
  };
  const MhaConfig config = p.config();
  const Dims shape = {p.batch, p.q_len, p.d_model};
  const auto data = std::make_shared<Data>(
      Data{MultiHeadAttention(config, xavier_parameters(config, 1).view()), normal_numbers(DType::F32, shape), Tensor(DType::F32, shape)});
  return {.call = [data](Workspace& workspace) { data->layer.forward({.x = data->x}, {.y = data->y}, workspace); }};
}

struct Limits {
  double fma, read;
};
Limits limits_now(const Subject& subject, const Executor& executor) {
  return {fma_peak(current_isa(), executor), subject.cold.empty() ? 0.0 : read_bandwidth(subject.cold, executor)};
}

/// One entry per round.
struct Rounds {
  std::vector<double> seconds, fma, read;
};
Rounds run_rounds(const Subject& subject, const Executor& executor) {
  Workspace workspace(executor);
  const auto timed = [&](Index calls) {
    const double start = executor_seconds(executor);
    for (Index i = 0; i < calls; ++i) subject.call(workspace);
    return (executor_seconds(executor) - start) / static_cast<double>(calls);
  };
  static_cast<void>(timed(1));  // pages, scratch and threads come into being
  const RoundPlan plan = plan_rounds(timed(1));
  Rounds rounds;
  Limits before = limits_now(subject, executor);
  for (Index i = 0; i < plan.rounds; ++i) {
    rounds.seconds.push_back(timed(plan.calls));
    const Limits after = limits_now(subject, executor);
    rounds.fma.push_back(std::max(before.fma, after.fma));
    rounds.read.push_back(std::max(before.read, after.read));
    before = after;
  }
  return rounds;
}

template <class Fn>
Spread spread_over(std::size_t count, Fn&& fn) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = fn(i);
  return spread_of(std::move(values));
}

/// The machine's limits in the order they are shown: arithmetic of each ISA, then reading, each by one thread and by all.
struct Probe {
  std::string_view name;
  Index bytes;
  Executor executor;
};
std::vector<Probe> probes() {
  const CacheSizes caches = cache_sizes();
  // Half a cache, so that what else lives there does not push it out; memory is four times the last cache, within reason.
  const Index l2 = caches.l2 / 2;
  const Index l3 = caches.last / 2;
  const Index dram = std::clamp(4 * caches.last, Index{128} << 20, Index{1} << 30);
  std::vector<Executor> executors = {serial_executor()};
  if (default_executor().concurrency > 1) executors.push_back(default_executor());
  std::vector<Probe> list;
  for (const Isa& isa : isas()) {
    if (!isa.supported || isa.name == "reference") continue;
    for (const Executor& executor : executors) list.push_back({isa.name, 0, executor});
  }
  for (const Executor& executor : executors) list.push_back({"L2", l2 * executor.concurrency, executor});  // each has its own
  for (const Executor& executor : executors) list.push_back({"L3", l3, executor});
  for (const Executor& executor : executors) list.push_back({"DRAM", dram, executor});
  return list;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {  // between two values, by distance
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {.median = at(0.5), .low = at(0.25), .high = at(0.75), .least = values.front(), .most = values.back()};
}

Json spread_json(const Spread& spread, double factor) {
  const auto number = [&](double value) { return json_number(static_cast<float>(value * factor)); };
  return {{"median", number(spread.median)},
          {"q1", number(spread.low)},
          {"q3", number(spread.high)},
          {"min", number(spread.least)},
          {"max", number(spread.most)}};
}

Tensor normal_numbers(DType dtype, const Dims& shape) {
  Tensor tensor(dtype, shape);
  const Index count = element_count(shape);
  const Index block = std::min<Index>(count, Index{1} << 20);
  Tensor numbers(DType::F32, {block});
  fill_normal(numbers, 1);
  Tensor stored(dtype, {block});
  copy(numbers, stored);
  const std::size_t item = size_of(dtype);
  auto* bytes = static_cast<std::byte*>(tensor.view().data);
  for (Index at = 0; at < count; at += block) {
    std::memcpy(bytes + static_cast<std::size_t>(at) * item, stored.view().data,
                static_cast<std::size_t>(std::min(block, count - at)) * item);
  }
  return tensor;
}

RoundPlan plan_rounds(double seconds_of_a_call) {
  const double once = std::max(seconds_of_a_call, 1e-9);
  return {static_cast<Index>(std::max(1.0, std::ceil(kRoundSeconds / once))), once > kSlowCall ? kSlowRounds : kRounds};
}

BenchRow measure(const BenchProblem& problem, const Executor& executor) {
  const Subject subject = problem.group == BenchGroup::Layer ? layer_subject(problem) : attention_subject(problem);
  const Rounds rounds = run_rounds(subject, executor);
  const std::size_t count = rounds.seconds.size();
  const double flops = problem.flops() * 1e-9;
  const double bytes = problem.kv_bytes() * 1e-9;
  const double fma = spread_of(rounds.fma).median;
  const double read = spread_of(rounds.read).median;
  const Bound bound = read > 0 && (fma <= 0 || bytes / read > flops / fma) ? Bound::Read : Bound::Fma;
  const double work = bound == Bound::Read ? bytes : flops;
  const std::vector<double>& limit = bound == Bound::Read ? rounds.read : rounds.fma;
  return {.problem = problem,
          .rounds = static_cast<Index>(count),
          .bound = bound,
          .seconds = spread_of(rounds.seconds),
          .limit = spread_of(limit),
          .rate = spread_over(count, [&](std::size_t i) { return work / rounds.seconds[i]; }),
          .share = spread_over(count, [&](std::size_t i) { return limit[i] > 0 ? work / rounds.seconds[i] / limit[i] : 0.0; })};
}

std::size_t machine_limit_count() { return probes().size(); }

MachineLimit measure_limit(std::size_t i) {
  const Probe probe = probes()[i];
  constexpr std::size_t kTimes = 9;
  MachineLimit limit{.name = probe.name, .bytes = probe.bytes, .threads = probe.executor.concurrency, .rate = {}};
  if (probe.bytes == 0) {
    limit.rate = spread_over(kTimes, [&](std::size_t) { return fma_peak(probe.name, probe.executor); });
    return limit;
  }
  const Tensor memory = normal_numbers(DType::F32, {probe.bytes / 4});
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(memory.view().data), static_cast<std::size_t>(probe.bytes));
  limit.rate = spread_over(kTimes, [&](std::size_t) { return read_bandwidth(bytes, probe.executor); });
  return limit;
}

AttentionPlan explain(const BenchProblem& p, const Executor& executor) {
  // Addresses that nothing lies behind, far enough apart not to overlap: a plan touches no element.
  const auto nowhere = [](std::uintptr_t which) { return std::bit_cast<void*>(which << 44U); };
  const auto view = [&](std::uintptr_t which, const Dims& memory) { return TensorView(nowhere(which), p.dtype, memory).transpose(1, 2); };
  // Inside the layer rows of all heads lie side by side.
  const auto inside = [&](std::uintptr_t which, Index heads) {
    return TensorView(nowhere(which), p.dtype, {p.batch, p.q_len, heads, p.head_dim});
  };
  if (p.group == BenchGroup::Layer) {
    return explain_attention(p.spec(), {.q = inside(1, p.heads), .k = inside(2, p.kv_heads), .v = inside(3, p.kv_heads)},
                             {.out = inside(4, p.heads)}, executor);
  }
  return explain_attention(p.spec(), {.q = view(1, p.query_shape()), .k = view(2, p.key_shape()), .v = view(3, p.key_shape())},
                           {.out = view(4, p.query_shape())}, executor);
}

}  // namespace mha::app
