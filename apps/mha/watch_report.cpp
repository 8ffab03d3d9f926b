// The three formats of `mha watch`, all from one list of numbers.
#include "watch_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "json_numbers.h"

namespace mha::app {
namespace {

double count(Index rows) { return static_cast<double>(rows); }

constexpr std::array<HeadNumber, 12> kNumbers = {{
    {"rows", "", "mha_head_rows", "Rows of attention that were counted", [](const HeadHealth& h) { return count(h.rows); }},
    {"max_logit", "logit", "mha_head_max_logit", "Largest scaled score before softmax", [](const HeadHealth& h) { return h.max_logit; }},
    {"entropy", "entropy", "mha_head_entropy_nats", "Mean entropy of a row of weights, in nats",
     [](const HeadHealth& h) { return h.entropy; }, true},
    {"collapsed", "collapse", "mha_head_entropy_collapsed_ratio", "Share of rows whose entropy has collapsed",
     [](const HeadHealth& h) { return h.collapsed; }},
    {"sink", "key 0", "mha_head_sink_weight_ratio", "Mean weight on key 0", [](const HeadHealth& h) { return h.sink; }},
    {"special", "special", "mha_head_special_weight_ratio", "Mean weight on the tokenizer's special tokens",
     [](const HeadHealth& h) { return h.special; }},
    {"uniform", "uniform", "mha_head_uniform_rows_ratio", "Share of rows that are near-uniform",
     [](const HeadHealth& h) { return h.uniform; }},
    {"one_key", "one-key", "mha_head_single_key_rows_ratio", "Share of rows that look at a single key",
     [](const HeadHealth& h) { return h.one_key; }},
    {"dead", "", "mha_head_dead_rows_ratio", "Share of rows that are near-uniform or single-key",
     [](const HeadHealth& h) { return h.dead; }},
    {"nan_rows", "NaN", "mha_head_nan_rows", "Rows with a NaN", [](const HeadHealth& h) { return count(h.nan_rows); }},
    {"infinite_rows", "inf", "mha_head_infinite_rows", "Rows with an infinite score or output",
     [](const HeadHealth& h) { return count(h.infinite_rows); }},
    {"nonfinite_rows", "", "mha_head_nonfinite_rows", "Rows with a NaN or an infinity",
     [](const HeadHealth& h) { return count(h.nonfinite_rows); }},
}};

bool is_count(const HeadNumber& number) { return number.name.ends_with("rows"); }

int width_of(const HeadNumber& number) { return std::max<int>(static_cast<int>(number.column.size()), 5) + 1; }

std::string cell(const HeadNumber& number, double value) {
  if (is_count(number)) return fmt::format("{:.0f}", value);
  return number.name == "max_logit" ? fmt::format("{:.2f}", value) : fmt::format("{:.3f}", value);
}

std::string plural(Index n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string sample_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  // Whole numbers, which are counts, in full; the rest as wide as it was computed.
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", static_cast<float>(value));
}

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string metric_head(std::string_view name, std::string_view help) {
  return fmt::format("# HELP {} {}\n# TYPE {} gauge\n", name, help, name);
}

}  // namespace

std::span<const HeadNumber> head_numbers() { return kNumbers; }

void sort_heads(WatchReport& report, const HeadNumber& number) {
  std::stable_sort(report.rows.begin(), report.rows.end(), [&](const WatchedHead& a, const WatchedHead& b) {
    const double x = number.value(a.health);
    const double y = number.value(b.health);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && !std::isnan(y);
    return number.low_is_bad ? x < y : x > y;
  });
}

std::string watch_table(const WatchReport& report, const Terminal& terminal) {
  std::string out = wrap(fmt::format("{}: {}; {}, {}", printable(report.model), report.size, plural(report.texts, "text"),
                                     plural(report.tokens, "token")),
                         terminal.width, 0) +
                    "\n";
  if (report.cut > 0) {
    const std::string what = report.cut == 1 ? "1 text was" : fmt::format("{} texts were", report.cut);
    out += wrap(fmt::format("{} longer than the {} tokens that the model reads: the rest was left out", what, report.longest),
                terminal.width, 0) +
           "\n";
  }
  if (report.skipped > 0) out += fmt::format("{} without a word left out\n", plural(report.skipped, "text"));
  out += wrap(fmt::format("Of a row that sees n keys: collapse, entropy below {} ln n; uniform, entropy above {} ln n; one-key, largest "
                          "weight above {}. Shares of rows; key 0 and special: mean weight.",
                          report.rules.collapsed, report.rules.uniform, report.rules.one_key),
              terminal.width, 0) +
         "\n\n";
  std::string head = "layer head ";
  for (const HeadNumber& number : kNumbers) {
    if (!number.column.empty()) head += fmt::format("{:>{}}", number.column, width_of(number));
  }
  out += bold(head, terminal) + "\n";
  for (const WatchedHead& row : report.rows) {
    out += fmt::format("{:>5} {:>4} ", row.id.layer, row.id.head);
    for (const HeadNumber& number : kNumbers) {
      if (!number.column.empty()) out += fmt::format("{:>{}}", cell(number, number.value(row.health)), width_of(number));
    }
    out += '\n';
  }
  return out;
}

std::string watch_json(const WatchReport& report) {
  Json json = {{"model", report.model}, {"layers", report.layers}, {"heads", report.heads}, {"removed", report.removed},
               {"texts", report.texts}, {"tokens", report.tokens}, {"cut", report.cut},     {"skipped", report.skipped}};
  json["rules"] = {{"collapsed", report.rules.collapsed}, {"uniform", report.rules.uniform}, {"one_key", report.rules.one_key}};
  json["watched"] = Json::array();
  for (const WatchedHead& row : report.rows) {
    Json entry = head_json(row.id);
    for (const HeadNumber& number : kNumbers) {
      const double value = number.value(row.health);
      if (is_count(number)) {
        entry[number.name] = static_cast<Index>(value);
      } else {
        entry[number.name] = std::isfinite(value) ? Json(json_number(static_cast<float>(value))) : Json(nullptr);
      }
    }
    json["watched"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string watch_prometheus(const WatchReport& report) {
  const std::string model = label_value(printable(report.model));
  std::string out;
  for (const HeadNumber& number : kNumbers) {
    out += metric_head(number.metric, number.help);
    for (const WatchedHead& row : report.rows) {
      out += fmt::format("{}{{model=\"{}\",layer=\"{}\",head=\"{}\"}} {}\n", number.metric, model, row.id.layer, row.id.head,
                         sample_value(number.value(row.health)));
    }
  }
  const auto total = [&](std::string_view name, std::string_view help, Index value) {
    out += metric_head(name, help) + fmt::format("{}{{model=\"{}\"}} {}\n", name, model, value);
  };
  total("mha_watch_texts", "Texts that the model has read", report.texts);
  total("mha_watch_tokens", "Tokens that the model has read", report.tokens);
  total("mha_watch_cut_texts", "Texts that were longer than the model reads", report.cut);
  return out;
}

}  // namespace mha::app
