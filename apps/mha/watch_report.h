// `mha watch` between its two halves: cmd_watch.cpp runs the model over the texts, watch_report.cpp writes down what was found: as a table,
// as JSON and in Prometheus' text format.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mha/analysis/head_health.h"
#include "terminal.h"

namespace mha::app {

/// One number of a head and how each format calls it.
struct HeadNumber {
  std::string_view name;    // in JSON and for --sort
  std::string_view column;  // of the table; empty: not shown
  std::string_view metric;  // of Prometheus
  std::string_view help;
  double (*value)(const HeadHealth& health);
  bool low_is_bad = false;
};
std::span<const HeadNumber> head_numbers();

struct WatchedHead {
  HeadId id;
  HeadHealth health;
};

struct WatchReport {
  std::string model;
  std::string size;  // as size_text
  Index layers = 0;
  Index heads = 0;
  Index removed = 0;  // of all heads
  Index longest = 0;  // tokens that the model reads
  HealthRules rules;
  Index texts = 0;    // read
  Index tokens = 0;   // of them, the frame's included
  Index cut = 0;      // texts that were longer
  Index skipped = 0;  // texts without a word
  std::vector<WatchedHead> rows;
};

/// The worst head by that number first: the largest, or the smallest where low is bad; NaN before all.
void sort_heads(WatchReport& report, const HeadNumber& number);

std::string watch_table(const WatchReport& report, const Terminal& terminal);
std::string watch_json(const WatchReport& report);
/// Prometheus' text exposition format 0.0.4, all gauges, with labels model, layer and head.
std::string watch_prometheus(const WatchReport& report);

}  // namespace mha::app
