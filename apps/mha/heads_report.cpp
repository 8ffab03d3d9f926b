// The three formats of `mha heads`, all from one list of numbers.
#include "heads_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "json_numbers.h"

namespace mha::app {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

template <Measure which>
double of(const MeasuredHead& head) {
  return head.summary.measure(which);
}

constexpr std::array<HeadColumn, 15> kColumns = {{
    {"stable", "stab", "share of the texts in each of which the role holds by itself",
     [](const MeasuredHead& h) { return h.stable.value_or(kUnknown); }},
    {"entropy", "entr", "entropy of a row of weights, nats", of<Measure::Entropy>},
    {"spread", "", "entropy / ln n", [](const MeasuredHead& h) { return h.summary.spread; }},
    {"confidence", "conf", "largest weight, the last special token not counted", of<Measure::Confidence>},
    {"distance", "dist", "distance to what is attended to", of<Measure::Distance>},
    {"previous", "prev", "weight on the one just before", of<Measure::Previous>},
    {"next", "next", "weight on the one just after", of<Measure::Next>},
    {"self", "self", "weight on itself", of<Measure::Self>},
    {"special", "spec", "weight on special tokens", of<Measure::Special>},
    {"special_norm", "norm", "their share of what is carried (norms)", [](const MeasuredHead& h) { return h.summary.special_norm; }},
    {"sink", "sink", "weight on the first token", [](const MeasuredHead& h) { return h.summary.sink; }},
    {"duplicate", "dup", "on random tokens read twice: weight on the same token before",
     [](const MeasuredHead& h) { return h.repeated ? h.repeated->duplicate : kUnknown; }},
    {"induction", "ind", "... and on the one that followed it then",
     [](const MeasuredHead& h) { return h.repeated ? h.repeated->induction : kUnknown; }},
    {"at_offset", "", "share of rows whose largest weight is at the commonest place",
     [](const MeasuredHead& h) { return h.summary.at_offset; }},
    {"effect", "loo", "1 - cosine of sentence vectors with and without the head",
     [](const MeasuredHead& h) { return h.effect ? h.effect->vector : kUnknown; }},
}};

int width_of(const HeadColumn& column) { return column.name == "effect" ? 7 : 5; }

/// A number as wide as its column has room for.
std::string cell(const HeadColumn& column, double value) {
  if (std::isnan(value)) return "-";
  if (column.name == "effect") return fmt::format("{:.4f}", value);
  return value < 9.995 ? fmt::format("{:.2f}", value) : value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

/// The columns that are shown and known of some head.
std::vector<const HeadColumn*> shown_columns(const HeadsReport& report) {
  std::vector<const HeadColumn*> shown;
  for (const HeadColumn& column : kColumns) {
    const bool known =
        std::any_of(report.measured.begin(), report.measured.end(), [&](const auto& h) { return !std::isnan(column.value(h)); });
    if (!column.column.empty() && known && (column.name != "stable" || report.judged > 1 || !report.treebank.empty()))
      shown.push_back(&column);
  }
  return shown;
}

std::string plural(Index n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string roles_line(const HeadsReport& report) {
  std::map<HeadRole, Index> heads;
  for (const MeasuredHead& head : report.measured) ++heads[head.role];
  std::vector<std::string> parts;
  for (const auto& [role, count] : heads) {
    if (role.kind != RoleKind::None) parts.push_back(fmt::format("{} {}", count, role_name(role)));
  }
  parts.push_back(fmt::format("{} without one that is clear", heads[HeadRole{}]));
  return fmt::format("Roles: {}.", fmt::join(parts, ", "));
}

std::string head_lines(const HeadsReport& report, const Terminal& terminal) {
  std::vector<std::string> lines = {
      fmt::format("{}: {}; {}, {}", printable(report.model), report.size, plural(report.texts, "text"), plural(report.rows, report.unit))};
  if (report.cut > 0) {
    lines.push_back(fmt::format("{} longer than the {} pieces that the model reads: the last ones were left out",
                                report.cut == 1 ? "1 text was" : fmt::format("{} texts were", report.cut), report.longest));
  }
  if (report.skipped > 0) lines.push_back(fmt::format("{} without a word left out", plural(report.skipped, "text")));
  if (!report.no_repeats.empty()) lines.push_back(fmt::format("dup and ind are not known: {}", one_line(report.no_repeats)));
  if (report.rows < report.rules.least_rows) {
    lines.push_back(fmt::format("fewer than {}: no roles{}", plural(report.rules.least_rows, report.unit),
                                report.treebank.empty() ? "" : " but relations"));
  }
  lines.push_back(roles_line(report));
  if (report.judged > 1) {
    lines.push_back(fmt::format("stab: share of the {} texts of at least {} in each of which the role holds by itself.", report.judged,
                                plural(report.rules.least_rows, report.unit)));
  }
  if (!report.treebank.empty()) {
    lines.push_back(
        fmt::format("Relations are reported on {}; stab is there the share of its sentences with that relation in which the head "
                    "finds at least half of it.",
                    one_line(report.treebank)));
  }
  std::string out;
  for (const std::string& line : lines) out += wrap(line, terminal.width, 0) + "\n";
  return out;
}

std::string role_or_none(const HeadRole& role) { return role.kind == RoleKind::None ? "none" : role_name(role); }

Json number_json(double value) { return std::isfinite(value) ? Json(json_number(static_cast<float>(value))) : Json(nullptr); }

/// A treebank names its relations as it likes.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

Json relations_json(const std::vector<RelationFinding>& findings) {
  Json list = Json::array();
  for (const RelationFinding& finding : findings) {
    list.push_back({{"relation", finding.relation},
                    {"direction", finding.direction == Direction::FromDependent ? "dep->head" : "head->dep"},
                    {"accuracy", number_json(finding.accuracy)},
                    {"baseline", number_json(finding.baseline)},
                    {"stable", number_json(finding.stable)}});
  }
  return list;
}

}  // namespace

std::span<const HeadColumn> head_columns() { return kColumns; }

void sort_heads(HeadsReport& report, std::string_view name) {
  if (name == "role") {
    std::stable_sort(report.measured.begin(), report.measured.end(), [](const auto& a, const auto& b) { return a.role < b.role; });
    return;
  }
  const auto column = std::find_if(kColumns.begin(), kColumns.end(), [&](const HeadColumn& c) { return c.name == name; });
  std::stable_sort(report.measured.begin(), report.measured.end(), [&](const MeasuredHead& a, const MeasuredHead& b) {
    const double x = column->value(a);
    const double y = column->value(b);
    return std::isnan(x) || std::isnan(y) ? !std::isnan(x) && std::isnan(y) : x > y;
  });
}

std::string heads_table(const HeadsReport& report, const Terminal& terminal) {
  const std::vector<const HeadColumn*> columns = shown_columns(report);
  std::string out = head_lines(report, terminal) + "\n";
  std::string names = " head";
  for (const HeadColumn* column : columns) names += fmt::format("{:>{}}", column->column, width_of(*column));
  out += bold(names + " role", terminal) + "\n";
  const int room = std::max(8, terminal.width - display_width(names) - 1);
  for (const MeasuredHead& head : report.measured) {
    out += fmt::format("{:>5}", fmt::format("{}.{}", head.summary.id.layer, head.summary.id.head));
    for (const HeadColumn* column : columns) out += fmt::format("{:>{}}", cell(*column, column->value(head)), width_of(*column));
    out += fmt::format(" {}\n", shorten(printable(role_name(head.role)), room));
  }
  return out;
}

std::string heads_json(const HeadsReport& report) {
  Json json = {{"model", report.model},   {"layers", report.layers}, {"heads", report.heads},
               {"by", report.unit},       {"texts", report.texts},   {"rows", report.rows},
               {"judged", report.judged}, {"cut", report.cut},       {"skipped", report.skipped}};
  json["rules"] = {{"least_rows", report.rules.least_rows}, {"positional", report.rules.positional}, {"syntactic", report.rules.syntactic},
                   {"found", report.rules.found},           {"special", report.rules.special},       {"broad", report.rules.broad}};
  json["measured"] = Json::array();
  for (const MeasuredHead& head : report.measured) {
    Json entry = head_json(head.summary.id);
    entry["rows"] = head.summary.rows;
    entry["role"] = head.role.kind == RoleKind::None ? Json(nullptr) : Json(role_name(head.role));
    entry["roles"] = Json::object();
    for (const auto& [role, share] : head.roles) entry["roles"][role_or_none(role)] = number_json(share);
    if (!report.treebank.empty()) entry["relations"] = relations_json(head.relations);
    entry["offset"] = head.summary.rows == 0 ? Json(nullptr) : Json(head.summary.offset);
    for (const HeadColumn& column : kColumns) entry[column.name] = number_json(column.value(head));
    json["measured"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string heads_csv(const HeadsReport& report) {
  std::string out = "layer,head,role";
  for (const HeadColumn& column : kColumns) out += fmt::format(",{}", column.name);
  out += '\n';
  for (const MeasuredHead& head : report.measured) {
    out += fmt::format("{},{},{}", head.summary.id.layer, head.summary.id.head,
                       head.role.kind == RoleKind::None ? std::string() : csv_field(role_name(head.role)));
    for (const HeadColumn& column : kColumns) {
      const double value = column.value(head);
      out += std::isfinite(value) ? fmt::format(",{}", static_cast<float>(value)) : ",";
    }
    out += '\n';
  }
  return out;
}

}  // namespace mha::app
