// mha verify: the kernels of every ISA of this CPU against the double-precision reference, on random problems that are new in every run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "command.h"
#include "json_numbers.h"
#include "mha/cpu.h"
#include "mha/error.h"
#include "random_problem.h"
#include "terminal.h"

namespace mha::app {
namespace {

struct Options {
  Index problems = 300;
  std::optional<Index> seed;
  bool json = false;
};

constexpr const char* kFooter = R"(Each problem has random sizes, strides, masks, biases and dtype. The reference
computes q, k and v in double; the error is the Frobenius norm of the difference
over that of the reference (an lse counts as at least 1 there: it is a logarithm,
and 0 is no small one). Limits: 32 roundings of f32, and one of the dtype
for an output stored in it. The weights and lse are always f32.

Exit code 1 where any error is beyond its limit.

Examples:
  mha verify
  mha verify --problems 2000
  mha verify --seed 7 --problems 50 --json)";

using Quantity = std::size_t;
constexpr Quantity kOut = 0, kWeights = 1, kLse = 2, kQuantities = 3;
constexpr const char* kNames[kQuantities] = {"out", "weights", "lse"};

/// The largest error seen of one quantity, and in which problem.
struct Worst {
  double error = 0.0;
  Index problem = -1;
};

/// Everything about one ISA and dtype.
struct Tally {
  Index problems = 0;
  Worst worst[kQuantities];
  double limit[kQuantities] = {};
};

struct Failure {
  std::string isa;
  Index problem = 0;
  std::string what;
};

struct Verified {
  std::uint64_t seed = 0;
  Index problems = 0;
  std::map<std::pair<std::size_t, DType>, Tally> tallies;  // by position of the ISA in isas()
  std::vector<Failure> failures;
};

struct Results {
  Results(const RandomProblem& problem, DType out_type, DType statistics)
      : out(out_type, problem.out_shape()), weights(statistics, problem.weights_shape()), lse(statistics, problem.lse_shape()) {}
  AttentionOutputs outputs() { return {.out = out, .lse = lse, .weights = weights}; }
  const Tensor& of(Quantity quantity) const { return quantity == kOut ? out : quantity == kWeights ? weights : lse; }
  Tensor out, weights, lse;
};

Tensor as_double(const Tensor& tensor) {
  Tensor doubles(DType::F64, tensor.shape());
  copy(tensor, doubles);
  return doubles;
}

/// Equal infinities (the lse of a row that sees nothing) differ by 0; anything else that is not a number gives NaN, which passes no limit.
/// Elements of the reference count as at least `least`.
double relative_error(const Tensor& got, const Tensor& expected, double least) {
  const Tensor doubles = as_double(got);
  double difference = 0.0;
  double norm = 0.0;
  for (Index i = 0; i < element_count(expected.shape()); ++i) {
    const double a = doubles.data<double>()[i];
    const double b = expected.data<double>()[i];
    const double size = std::max(std::abs(b), least);
    if (std::isfinite(size)) norm += size * size;
    if (a != b) difference += (a - b) * (a - b);
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / norm);
}

double limit_of(Quantity quantity, DType dtype) {
  const double arithmetic = 32.0 * std::ldexp(1.0, -24);
  if (quantity != kOut || dtype == DType::F32) return arithmetic;
  return arithmetic + std::ldexp(1.0, dtype == DType::Bf16 ? -8 : -11);
}

/// Restores the ISA that was in use.
class IsaGuard {
 public:
  IsaGuard() : before_(current_isa()) {}
  ~IsaGuard() { use_isa(before_); }
  IsaGuard(const IsaGuard&) = delete;
  IsaGuard& operator=(const IsaGuard&) = delete;

 private:
  std::string before_;
};

void run_problem(Index number, Verified& verified, Workspace& workspace) {
  RandomProblem problem(verified.seed, number);
  Results expected(problem, DType::F64, DType::F64);
  attention_forward(problem.spec(), problem.double_inputs(), expected.outputs(), workspace);
  for (std::size_t i = 0; i < isas().size(); ++i) {
    const Isa& isa = isas()[i];
    if (!isa.supported) continue;
    use_isa(isa.name);
    Results got(problem, problem.dtype(), DType::F32);
    attention_forward(problem.spec(), problem.inputs(), got.outputs(), workspace);
    Tally& tally = verified.tallies[{i, problem.dtype()}];
    ++tally.problems;
    for (Quantity quantity : {kOut, kWeights, kLse}) {
      const double error = relative_error(got.of(quantity), expected.of(quantity), quantity == kLse ? 1.0 : 0.0);
      const double limit = tally.limit[quantity] = limit_of(quantity, problem.dtype());
      Worst& worst = tally.worst[quantity];
      if (worst.problem < 0 || !(error <= worst.error)) worst = {error, number};
      if (error <= limit) continue;
      verified.failures.push_back(
          {std::string(isa.name), number,
           fmt::format("{} is off by {:.2e}, limit {:.2e}: {}", kNames[quantity], error, limit, problem.description())});
    }
  }
}

Verified verify(const Options& options) {
  if (options.problems < 1) throw Error(fmt::format("--problems is {}, must be at least 1", options.problems));
  if (options.seed && *options.seed < 0) throw Error(fmt::format("--seed is {}, must not be negative", *options.seed));
  Verified verified{.seed = options.seed ? static_cast<std::uint64_t>(*options.seed) : std::random_device{}(),
                    .problems = options.problems,
                    .tallies = {},
                    .failures = {}};
  const IsaGuard guard;
  Workspace workspace;
  for (Index number = 0; number < options.problems; ++number) run_problem(number, verified, workspace);
  return verified;
}

std::string verified_text(const Verified& verified, const Terminal& terminal) {
  std::string out = bold("fast paths against the double-precision reference", terminal) + "\n";
  out +=
      fmt::format("{} random problems; again: mha verify --seed {} --problems {}\n\n", verified.problems, verified.seed, verified.problems);
  out += "worst relative error of each, and the problem it came from\n";
  out += bold(fmt::format("{:<11}{:<6}{:>9}  {:<19}{:<19}{:<19}{}", "isa", "dtype", "problems", "out", "weights", "lse", "limit (out)"),
              terminal) +
         "\n";
  for (const auto& [key, tally] : verified.tallies) {
    out += fmt::format("{:<11}{:<6}{:>9}  ", isas()[key.first].name, name_of(key.second), tally.problems);
    for (const Worst& worst : tally.worst) out += fmt::format("{:<19}", fmt::format("{:.2e} (#{})", worst.error, worst.problem));
    out += fmt::format("{:.2e}\n", tally.limit[kOut]);
  }
  for (const Isa& isa : isas()) {
    if (!isa.supported) out += fmt::format("{:<11}not on this CPU\n", isa.name);
  }
  out += verified.failures.empty() ? "\nall within their limits\n" : fmt::format("\n{} beyond their limit:\n", verified.failures.size());
  for (const Failure& failure : verified.failures) out += fmt::format("  {} problem #{}: {}\n", failure.isa, failure.problem, failure.what);
  return out;
}

std::string verified_json(const Verified& verified) {
  Json json = {{"seed", verified.seed}, {"problems", verified.problems}, {"failed", verified.failures.size()}};
  json["isas"] = Json::array();
  for (const auto& [key, tally] : verified.tallies) {
    Json entry = {{"isa", isas()[key.first].name}, {"dtype", name_of(key.second)}, {"problems", tally.problems}};
    for (Quantity quantity : {kOut, kWeights, kLse}) {
      entry[kNames[quantity]] = {
          {"error", tally.worst[quantity].error}, {"problem", tally.worst[quantity].problem}, {"limit", tally.limit[quantity]}};
    }
    json["isas"].push_back(std::move(entry));
  }
  json["failures"] = Json::array();
  for (const Failure& failure : verified.failures) {
    json["failures"].push_back({{"isa", failure.isa}, {"problem", failure.problem}, {"what", failure.what}});
  }
  return json.dump(2) + "\n";
}

}  // namespace

void add_verify(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("verify", "Kernels of every ISA against the double-precision reference, on new random problems");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_number(*command, "--problems", options->problems, "How many (default: 300)");
  add_number(*command, "--seed", options->seed, "The run to repeat (default: a new one)");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] {
    const Verified verified = verify(*options);
    output.text = options->json ? verified_json(verified) : verified_text(verified, this_terminal());
    output.code = verified.failures.empty() ? 0 : 1;
  });
}

}  // namespace mha::app
