#include "bench_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace mha::app {
namespace {

constexpr Index kMostCells = 1024;

struct Ratio {
  const char* name;    // in JSON
  const char* column;  // in the table
  Spread StatisticsRow::* spread;
};
constexpr Ratio kRatios[] = {{"statistics", "numbers", &StatisticsRow::numbers},
                             {"links_8", "8 links", &StatisticsRow::links8},
                             {"links_32", "32 links", &StatisticsRow::links32},
                             {"received", "received", &StatisticsRow::received},
                             {"map", "map", &StatisticsRow::map}};

/// Room for links.
struct LinkRoom {
  LinkRoom(const Dims& rows, Index count)
      : weights(DType::F32, {rows[0], rows[1], rows[2], count}), keys(DType::I64, {rows[0], rows[1], rows[2], count}) {}
  RowStatistics asked() { return {.link_weights = weights, .link_keys = keys}; }
  Tensor weights, keys;
};

/// All that a round calls, and the memory for it.
class Calls {
 public:
  explicit Calls(const BenchProblem& p)
      : p_(p),
        spec_(p.spec()),
        q_(normal_numbers(p.dtype, p.query_shape())),
        k_(normal_numbers(p.dtype, p.key_shape())),
        v_(normal_numbers(p.dtype, p.key_shape())),
        out_(p.dtype, p.query_shape()),
        cells_{std::min(p.q_len, kMostCells), std::min(p.kv_len, kMostCells)} {
    for (Tensor* number : {&lse_, &max_score_, &entropy_, &distance_, &variance_, &first_}) *number = Tensor(DType::F32, rows());
  }
  void plain(Workspace& workspace) { forward({}, workspace); }
  void numbers(Workspace& workspace) {
    forward({.max_score = max_score_,
             .max_key = max_key_,
             .entropy = entropy_,
             .distance = distance_,
             .distance_variance = variance_,
             .first_weight = first_},
            workspace);
  }
  void links8(Workspace& workspace) { forward(few_.asked(), workspace); }
  void links32(Workspace& workspace) { forward(many_.asked(), workspace); }
  void received(Workspace& workspace) { attention_received(spec_, inputs(), lse_, received_, workspace); }
  void map(Workspace& workspace) {
    attention_map(spec_, inputs(), lse_, {.batch = 0, .head = 0, .queries = {0, p_.q_len}, .keys = {0, p_.kv_len}}, {mean_, max_},
                  workspace);
  }

 private:
  Dims rows() const { return {p_.batch, p_.heads, p_.q_len}; }
  static ConstTensorView length_first(const Tensor& tensor) { return ConstTensorView(tensor.view()).transpose(1, 2); }
  AttentionInputs inputs() const { return {.q = length_first(q_), .k = length_first(k_), .v = length_first(v_)}; }
  void forward(const RowStatistics& statistics, Workspace& workspace) {
    attention_forward(spec_, inputs(), {.out = out_.view().transpose(1, 2), .lse = lse_, .statistics = statistics}, workspace);
  }

  const BenchProblem& p_;
  AttentionSpec spec_;
  Tensor q_, k_, v_, out_;
  Tensor lse_, max_score_, entropy_, distance_, variance_, first_;
  Tensor max_key_{DType::I64, rows()};
  LinkRoom few_{rows(), 8}, many_{rows(), 32};
  Tensor received_{DType::F32, {p_.batch, p_.heads, p_.kv_len}};
  Dims cells_;
  Tensor mean_{DType::F32, cells_}, max_{DType::F32, cells_};
};

}  // namespace

StatisticsRow measure_statistics(const BenchProblem& problem, const Executor& executor) {
  Calls calls(problem);
  Workspace workspace(executor);
  Index repeat = 1;
  const auto timed = [&](void (Calls::*call)(Workspace&)) {
    const double start = executor_seconds(executor);
    for (Index i = 0; i < repeat; ++i) (calls.*call)(workspace);
    return (executor_seconds(executor) - start) / static_cast<double>(repeat);
  };
  for (const auto call : {&Calls::plain, &Calls::numbers, &Calls::links8, &Calls::links32, &Calls::received, &Calls::map}) timed(call);
  const RoundPlan plan = plan_rounds(timed(&Calls::plain));
  repeat = plan.calls;
  std::vector<double> seconds;
  std::vector<double> ratios[5];
  for (Index i = 0; i < plan.rounds; ++i) {
    seconds.push_back(timed(&Calls::plain));
    ratios[0].push_back(timed(&Calls::numbers) / seconds.back());
    ratios[1].push_back(timed(&Calls::links8) / seconds.back());
    ratios[2].push_back(timed(&Calls::links32) / seconds.back());
    ratios[3].push_back(timed(&Calls::received) / seconds.back());
    ratios[4].push_back(timed(&Calls::map) * static_cast<double>(problem.batch * problem.heads) / seconds.back());
  }
  StatisticsRow row{.problem = problem, .rounds = plan.rounds, .seconds = spread_of(std::move(seconds))};
  for (std::size_t i = 0; i < std::size(kRatios); ++i) row.*kRatios[i].spread = spread_of(std::move(ratios[i]));
  return row;
}

std::string statistics_columns() {
  std::string out = fmt::format("{:<26}{:>9}", "mask, head_dim, tokens", "ms");
  for (const Ratio& ratio : kRatios) out += fmt::format("{:>9}", ratio.column);
  return out;
}

std::string statistics_text(const StatisticsRow& row) {
  std::string out = fmt::format("{:<26}{:>9.4g}", row.problem.label(), row.seconds.median * 1e3);
  for (const Ratio& ratio : kRatios) out += fmt::format("{:>9.2f}", (row.*ratio.spread).median);
  return out;
}

Json statistics_json(const StatisticsRow& row) {
  Json json = Json::object();
  for (const Ratio& ratio : kRatios) json[ratio.name] = spread_json(row.*ratio.spread, 1);
  return json;
}

}  // namespace mha::app
