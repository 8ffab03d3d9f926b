// mha bench: what this machine can do at most, how near to it attention, decoding and the layer come, and what numbers of rows cost.
// Options, table, JSON and the explained plans; the list of problems is in bench_problems.cpp, the measuring in bench_measure.cpp.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench_measure.h"
#include "bench_problems.h"
#include "bench_statistics.h"
#include "command.h"
#include "json_numbers.h"
#include "terminal.h"

namespace mha::app {
namespace {

constexpr const char* kFooter = R"(Limits first: multiply-adds from registers under each instruction set, and
reading from half of L2, half of the last cache and from memory; best of several,
the median beside it. Then, each with the limit measured right before and after
each of its rounds: prefill (q, k, v [batch, heads, length, dim] in memory),
decoding (k and v out of memory, never out of a cache), and the layer in f32.
A size given replaces the list of sizes; --length is the number of keys of
decode and of tokens of the others. --heads and the like go for all groups.
Last, what numbers of rows cost: times beside that of plain attention in the same
round, with all numbers, with 8 and 32 strongest links of each row, of a second
pass for the weight each key receives, and of a map of one head (up to 1,024 x
1,024 cells) beside one head's attention; medians of these ratios.

GB/s is of k and v, GFLOP/s of both products (and the projections) over the pairs
that the mask leaves. A row is in the unit of what bounds it, and % is of that.
One thread is timed by its own CPU time, several by wall time: then keep the
machine quiet. MHA_ISA=avx2 measures another instruction set.

Examples:
  mha bench
  mha bench --threads 2
  mha bench --only attention --length 1024 --head-dim 64 --causal
  mha bench --only decode --length 100000 --heads 16 --kv-heads 2 --dtype bf16
  mha bench --only decode --explain
  mha bench --only limits --json)";

struct Measured {
  std::vector<MachineLimit> limits;
  std::vector<BenchRow> rows;
  std::vector<StatisticsRow> statistics;
};

const char* clock_of(const Executor& executor) { return executor.concurrency == 1 ? "thread CPU time" : "wall time"; }

Measured measure_all(const BenchOptions& options, const std::vector<BenchProblem>& problems, const Executor& executor) {
  Measured measured;
  const std::size_t limits = options.only.empty() || options.only == "limits" ? machine_limit_count() : 0;
  Progress progress(limits + problems.size());
  for (std::size_t i = 0; i < limits; ++i) {
    progress.begin("limits");
    measured.limits.push_back(measure_limit(i));
  }
  for (const BenchProblem& problem : problems) {
    progress.begin(fmt::format("{} {}", name_of(problem.group), problem.label()));
    if (problem.group == BenchGroup::Statistics) {
      measured.statistics.push_back(measure_statistics(problem, executor));
    } else {
      measured.rows.push_back(measure(problem, executor));
    }
  }
  return measured;
}

std::string size_text(Index bytes) {
  return bytes < (Index{1} << 20) ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

std::string group_title(const BenchProblem& p) {
  const std::string heads = p.heads == 1            ? "1 head"
                            : p.heads == p.kv_heads ? fmt::format("{} heads", p.heads)
                                                    : fmt::format("{} heads over {}", p.heads, p.kv_heads);
  switch (p.group) {
    case BenchGroup::Attention:
      return fmt::format("attention: batch {}, {}", p.batch, heads);
    case BenchGroup::Decode:
      return fmt::format("decode: batch {}, {}, d{}, k and v from memory", p.batch, heads, p.head_dim);
    case BenchGroup::Statistics:
      return fmt::format("statistics: batch {}, {}, beside plain attention's time", p.batch, heads);
    case BenchGroup::Layer:
      break;
  }
  return fmt::format("layer: batch {}, f32", p.batch);
}

std::string limits_text(const std::vector<MachineLimit>& limits, const Terminal& terminal) {
  std::string out = bold(fmt::format("{:<28}{:>8}{:>12}{:>12}", "limits of this machine", "threads", "best", "median"), terminal) + "\n";
  for (const MachineLimit& limit : limits) {
    const std::string name =
        limit.bytes == 0 ? fmt::format("multiply-adds, {}", limit.name) : fmt::format("reading {}, {}", limit.name, size_text(limit.bytes));
    out += fmt::format("{:<28}{:>8}{:>12.1f}{:>12.1f} {}\n", name, limit.threads, limit.rate.most, limit.rate.median,
                       limit.bytes == 0 ? "GFLOP/s" : "GB/s");
  }
  return out + "\n";
}

std::string row_text(const BenchRow& row) {
  std::string out = fmt::format("{:<28}{:>9.4g}{:>7.1f} {:<7}", row.problem.label(), row.seconds.median * 1e3, row.rate.median,
                                row.bound == Bound::Fma ? "GFLOP/s" : "GB/s");
  if (row.limit.median <= 0) return out + "   no limit known\n";
  return out + fmt::format("{:>7.1f} {:>12}{:>7.1f}\n", 100 * row.share.median,
                           fmt::format("{:.1f}-{:.1f}", 100 * row.share.low, 100 * row.share.high), 100 * row.share.most);
}

/// The table's first lines for a group.
std::string group_head(const BenchProblem& p, const Terminal& terminal) {
  return group_title(p) + "\n" +
         bold(fmt::format("{:<28}{:>9}{:>7} {:<7}{:>7} {:>12}{:>7}", p.group == BenchGroup::Attention ? "mask, head_dim, tokens" : "", "ms",
                          "rate", "", "% limit", "quartiles", "best"),
              terminal) +
         "\n";
}

std::string measured_text(const Measured& measured, const Executor& executor, const Terminal& terminal) {
  std::string out = fmt::format("{}, {} thread{}, {}\n\n", current_isa(), executor.concurrency, executor.concurrency == 1 ? "" : "s",
                                executor.concurrency == 1 ? "timed by its own CPU time" : "timed by the wall clock");
  if (!measured.limits.empty()) out += limits_text(measured.limits, terminal);
  const BenchProblem* last = nullptr;
  for (const BenchRow& row : measured.rows) {
    if (last == nullptr || last->group != row.problem.group) {
      if (last != nullptr) out += '\n';
      out += group_head(row.problem, terminal);
    }
    out += row_text(row);
    last = &row.problem;
  }
  for (const StatisticsRow& row : measured.statistics) {
    if (last != nullptr && last->group != BenchGroup::Statistics) out += '\n';
    if (&row == &measured.statistics.front()) out += group_title(row.problem) + "\n" + bold(statistics_columns(), terminal) + "\n";
    out += statistics_text(row) + "\n";
    last = &row.problem;
  }
  return out;
}

Json problem_json(const BenchProblem& p) {
  Json json = {{"group", name_of(p.group)}, {"dtype", mha::name_of(p.dtype)}, {"causal", p.causal}, {"batch", p.batch},
               {"heads", p.heads},          {"kv_heads", p.kv_heads},         {"q_len", p.q_len},   {"kv_len", p.kv_len},
               {"head_dim", p.head_dim}};
  if (p.group == BenchGroup::Layer) json["d_model"] = p.d_model;
  return json;
}

Json header_json(const Executor& executor) {
  return {{"isa", current_isa()}, {"threads", executor.concurrency}, {"clock", clock_of(executor)}};
}

std::string measured_json(const Measured& measured, const Executor& executor) {
  Json json = header_json(executor);
  json["limits"] = Json::array();
  for (const MachineLimit& limit : measured.limits) {
    Json entry = {{"name", limit.name}, {"threads", limit.threads}};
    if (limit.bytes > 0) entry["bytes"] = limit.bytes;
    entry[limit.bytes == 0 ? "gflops" : "gbs"] = spread_json(limit.rate, 1);
    json["limits"].push_back(std::move(entry));
  }
  json["rows"] = Json::array();
  for (const BenchRow& row : measured.rows) {
    Json entry = problem_json(row.problem);
    entry["rounds"] = row.rounds;
    entry["ms"] = spread_json(row.seconds, 1e3);
    entry[row.bound == Bound::Fma ? "gflops" : "gbs"] = spread_json(row.rate, 1);
    if (row.limit.median > 0) {
      entry["limit"] = spread_json(row.limit, 1);
      entry["percent_of_limit"] = spread_json(row.share, 100);
    }
    json["rows"].push_back(std::move(entry));
  }
  json["statistics"] = Json::array();
  for (const StatisticsRow& row : measured.statistics) {
    Json entry = problem_json(row.problem);
    entry["rounds"] = row.rounds;
    entry["ms"] = spread_json(row.seconds, 1e3);
    entry["beside_plain"] = statistics_json(row);
    json["statistics"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

std::string bytes_text(std::size_t bytes) { return bytes == 0 ? "none" : fmt::format("{} bytes", bytes); }

std::string strategy_text(const AttentionPlan& plan) {
  if (plan.isa == "reference") return "the double-precision reference, no plan";
  std::string out = plan.few_rows ? "few rows: lanes are elements of head_dim" : "panels: rows lie across the lanes";
  out += plan.splits > 1 ? fmt::format("; keys in {} parts of {}", plan.splits, plan.split_keys) : "; keys not split";
  if (plan.folds) out += "; sums in parts";
  return out;
}

std::string copies_text(const AttentionPlan& plan) {
  return plan.copies_keys && plan.copies_values ? "keys and values" : plan.copies_keys ? "keys" : plan.copies_values ? "values" : "none";
}

std::string explained_text(const std::vector<BenchProblem>& problems, const Executor& executor) {
  std::string out;
  for (const BenchProblem& p : problems) {
    const AttentionPlan plan = explain(p, executor);
    if (!out.empty()) out += '\n';
    out += fmt::format("{}: {}\n", group_title(p), p.label());
    if (p.group == BenchGroup::Layer) out += fmt::format("  the attention inside: {} heads, d{}\n", p.heads, p.head_dim);
    out += fmt::format("  isa       {}\n  strategy  {}\n", plan.isa, strategy_text(plan));
    if (plan.isa == "reference") continue;
    out += plan.few_rows
               ? fmt::format("  tiles     {} keys x all rows of a kv head\n", plan.key_tile)
               : fmt::format("  tiles     {} keys x {} rows; up to {} rows per task\n", plan.key_tile, plan.panel_rows, plan.rows_per_task);
    out += fmt::format("  copies    {}\n", copies_text(plan));
    out += fmt::format("  tasks     {}, on {} of {} thread{}\n", plan.tasks, plan.workers, executor.concurrency,
                       executor.concurrency == 1 ? "" : "s");
    out += fmt::format("  scratch   {} per thread; for merging: {}\n", bytes_text(plan.scratch), bytes_text(plan.merge_scratch));
  }
  return out;
}

std::string explained_json(const std::vector<BenchProblem>& problems, const Executor& executor) {
  Json json = header_json(executor);
  json["plans"] = Json::array();
  for (const BenchProblem& p : problems) {
    const AttentionPlan plan = explain(p, executor);
    Json entry = problem_json(p);
    entry["isa"] = plan.isa;
    if (plan.isa != "reference") {
      entry.update({{"strategy", plan.few_rows ? "few rows" : "panels"}, {"splits", plan.splits}, {"split_keys", plan.split_keys}});
      entry.update({{"folds", plan.folds}, {"copies_keys", plan.copies_keys}, {"copies_values", plan.copies_values}});
      entry.update({{"key_tile", plan.key_tile}, {"panel_rows", plan.panel_rows}, {"rows_per_task", plan.rows_per_task}});
      entry.update({{"tasks", plan.tasks}, {"workers", plan.workers}, {"scratch", plan.scratch}, {"merge_scratch", plan.merge_scratch}});
    }
    json["plans"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

std::string run(const BenchOptions& options) {
  const Executor executor = executor_of(options.threads);
  const std::vector<BenchProblem> problems = bench_problems(options);
  if (options.explain) {
    if (problems.empty()) throw Error("bench: --explain needs a problem, but --only is limits");
    return options.json ? explained_json(problems, executor) : explained_text(problems, executor);
  }
  const Measured measured = measure_all(options, problems, executor);
  return options.json ? measured_json(measured, executor) : measured_text(measured, executor, this_terminal());
}

}  // namespace

void add_bench(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("bench", "How fast attention, decoding and the layer are, beside what this machine can do");
  auto options = std::make_shared<BenchOptions>();
  command->footer(kFooter);
  command->add_option("--only", options->only, "limits, attention, decode, layer or statistics (default: all)")
      ->check(CLI::IsMember({"limits", "attention", "decode", "layer", "statistics"}))
      ->type_name("GROUP");
  add_number(*command, "--length", options->length, "Tokens, or keys of decode");
  add_number(*command, "--queries", options->queries, "Queries of decode");
  add_number(*command, "--heads", options->heads, "Query heads");
  add_number(*command, "--kv-heads", options->kv_heads, "Key and value heads (default: heads)");
  add_number(*command, "--head-dim", options->head_dim, "Width of one head");
  add_number(*command, "--d-model", options->d_model, "Width of the layer");
  add_number(*command, "--batch", options->batch, "Sequences (default: 1)");
  command->add_option("--dtype", options->dtype, "f32, bf16 or f16, of all but the layer")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->type_name("T");
  command->add_flag("--causal", options->causal, "Only with a causal mask");
  command->add_flag("--full", options->full, "Only without one")->excludes("--causal");
  add_number(*command, "--threads", options->threads, "Threads (default: 1)");
  command->add_flag("--explain", options->explain, "Print how each problem would be computed, and compute nothing");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
