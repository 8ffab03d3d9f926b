// mha watch: a model over many texts, the health of each head, and whether one has passed a threshold. The formats are in watch_report.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "command.h"
#include "mha/error.h"
#include "model_folder.h"
#include "texts.h"
#include "watch_report.h"

namespace mha::app {
namespace {

/// A threshold that can be given: what is watched, and which side of it is bad.
struct Threshold {
  const char* option;
  const char* what;
  const char* description;
  double (*value)(const HeadHealth& health);
  bool least;  // values below are bad, not those above
  bool share;  // must lie in [0, 1]
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Threshold kThresholds[] = {
    {"--max-logit", "largest logit", "Largest score a head may reach",
     [](const HeadHealth& h) { return h.max_logit == -kInfinity ? std::nan("") : h.max_logit; }, false, false},
    {"--min-entropy", "mean entropy", "Mean entropy a head must keep, in nats", [](const HeadHealth& h) { return h.entropy; }, true, false},
    {"--max-collapsed", "share of collapsed rows", "Share of a head's rows whose entropy may collapse",
     [](const HeadHealth& h) { return h.collapsed; }, false, true},
    {"--max-sink", "mean weight on key 0", "Mean weight a head may give to key 0", [](const HeadHealth& h) { return h.sink; }, false, true},
    {"--max-dead", "share of dead rows", "Share of a head's rows that may be near-uniform or single-key",
     [](const HeadHealth& h) { return h.dead; }, false, true},
    {"--max-nonfinite", "rows with a NaN or an infinity", "Rows of a head that may hold a NaN or an infinity",
     [](const HeadHealth& h) { return static_cast<double>(h.nonfinite_rows); }, false, false},
};
constexpr std::size_t kComplaints = 20;  // lines at most

struct Options {
  TextOptions texts;
  std::string model;
  std::string sort;
  std::optional<Index> threads;
  std::array<std::optional<double>, std::size(kThresholds)> thresholds;
  bool json = false;
  bool prometheus = false;
};

constexpr const char* kFooter = R"(Without TEXT and --file: the 501 plain sentences that come with mha. Each line of
a file is a text of its own; one that is longer than the model reads is cut, and
the output says so. Every token's row counts, [CLS] and [SEP] included.

  logit     largest score q k / sqrt(head_dim) before softmax: explodes first
  entropy   mean of -sum a ln a over rows of weights a, in nats
  collapse  share of rows with entropy below 0.1 ln n, n the keys a row sees
  key 0     mean weight on the first token, the sink; special: on [CLS] and [SEP]
  uniform, one-key   share of dead rows: entropy above 0.99 ln n; a weight
            above 0.99
  NaN, inf  rows with a NaN; with an infinite score or output. They take no part
            in means and shares.

A head that passes a threshold is named on standard error, and the exit code is
1; so is one of whose rows none is left to take a mean of.

Examples:
  mha watch
  mha watch "The man saw the astronomer." "The bank raised its rates."
  mha watch --file texts.txt --sort entropy
  mha watch --file texts.txt --max-logit 50 --max-dead 0.5 --max-nonfinite 0
  mha watch --file texts.txt --prometheus > mha.prom
  mha watch --json | python3 -m json.tool)";

std::string number_fault(const std::string& text, bool share) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
  if (!whole) return fmt::format("\"{}\" is not a finite number", text);
  return share && (value < 0 || value > 1) ? fmt::format("{} is not a share, between 0 and 1", text) : std::string();
}

std::vector<std::string> number_names() {
  std::vector<std::string> names;
  for (const HeadNumber& number : head_numbers()) names.emplace_back(number.name);
  return names;
}

WatchReport watch_texts(const OpenModel& model, const std::vector<std::string>& texts, const Options& options) {
  const TransformerConfig& config = model.transformer.config();
  WatchReport report;
  report.model = model.name;
  report.size = size_text(config);
  report.layers = config.layers;
  report.heads = config.heads;
  report.removed = removed_heads(config);
  report.longest = config.max_positions;
  HealthWatch watch(config.layers, config.heads);
  Workspace workspace(options.threads ? executor_of(*options.threads) : default_executor());
  Progress progress(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    progress.begin("texts");
    try {
      const WatchedText read = watch_text(model.transformer, model.tokenizer, texts[i], watch, workspace);
      ++(read.tokens == 0 ? report.skipped : report.texts);
      report.tokens += read.tokens;
      report.cut += read.cut ? 1 : 0;
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", place_of(options.texts, i), error.what()));
    }
  }
  if (report.texts == 0) throw Error(fmt::format("{}: no text has a word in it", name_of(options.texts)));
  report.rules = watch.rules();
  for (const HeadId& id : all_heads(config)) report.rows.push_back({id, watch.head(id)});
  return report;
}

std::vector<std::string> complaints_of(const WatchReport& report, const Options& options) {
  std::vector<std::string> complaints;
  for (std::size_t i = 0; i < std::size(kThresholds); ++i) {
    const Threshold& threshold = kThresholds[i];
    if (!options.thresholds[i]) continue;
    const double limit = *options.thresholds[i];
    for (const WatchedHead& row : report.rows) {
      const double value = threshold.value(row.health);
      if (threshold.least ? value >= limit : value <= limit) continue;  // a NaN is neither
      const char* side = std::isnan(value) ? "not known, beside" : threshold.least ? "below" : "above";
      complaints.push_back(fmt::format("layer {} head {}: {} {:.6g} is {} {} {:.6g}", row.id.layer, row.id.head, threshold.what, value,
                                       side, threshold.option, limit));
    }
  }
  if (complaints.size() > kComplaints) {
    const std::size_t more = complaints.size() - (kComplaints - 1);
    complaints.resize(kComplaints - 1);
    complaints.push_back(fmt::format("and {} more", more));
  }
  return complaints;
}

Output run(const Options& options) {
  if (options.json && options.prometheus) throw Error("--json and --prometheus exclude each other");
  const std::vector<std::string> texts = texts_of(options.texts);
  const OpenModel model = open_model(options.model);
  WatchReport report = watch_texts(model, texts, options);
  Output output{.text = {}, .code = 0, .complaints = complaints_of(report, options)};
  output.code = output.complaints.empty() ? 0 : 1;
  for (const HeadNumber& number : head_numbers()) {
    if (number.name == options.sort) sort_heads(report, number);
  }
  output.text = options.json ? watch_json(report) : options.prometheus ? watch_prometheus(report) : watch_table(report, this_terminal());
  return output;
}

}  // namespace

void add_watch(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("watch", "The health of every head over many texts: logits, entropy, sinks, dead rows, NaN");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_texts(*command, options->texts);
  add_model_option(*command, options->model);
  command->add_option("--sort", options->sort, fmt::format("Worst heads first, by {}", fmt::join(number_names(), ", ")))
      ->check(CLI::IsMember(number_names()))
      ->type_name("NAME");
  for (std::size_t i = 0; i < std::size(kThresholds); ++i) {
    const bool share = kThresholds[i].share;
    command->add_option(kThresholds[i].option, options->thresholds[i], kThresholds[i].description)
        ->check(CLI::Validator([share](const std::string& text) { return number_fault(text, share); }, ""))
        ->type_name("X");
  }
  add_number(*command, "--threads", options->threads, "Threads (default: all cores)");
  command->add_flag("--json", options->json, "Print JSON; null where there is no finite number");
  command->add_flag("--prometheus", options->prometheus, "Print Prometheus' text format");
  command->callback([options, &output] { output = run(*options); });
}

}  // namespace mha::app
