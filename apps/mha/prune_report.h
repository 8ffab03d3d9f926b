// `mha prune` between its two halves: cmd_prune.cpp measures, prune_report.cpp writes down what was found: as a table, JSON, CSV or SVG.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mha/analysis/pruning.h"
#include "terminal.h"

namespace mha::app {

inline constexpr double kSameOrder = 0.99;  // rank correlation of similarities: below it they are not what they were

/// One number over several orders of chance.
struct Spread {
  double mean = 0.0, least = 0.0, most = 0.0;
};

struct RandomPoint {
  std::size_t removed = 0;
  Spread cosine = {}, correlation = {};
};

/// A checkpoint that was written, beside the whole model.
struct WrittenModel {
  std::string folder;
  std::size_t kept = 0;
  Index bytes_before = 0, bytes_after = 0;  // of model.safetensors
  double difference = 0.0;                  // largest of hidden states to those of the whole model with the heads masked
  Spread time;                              // of its runs as a share of the whole model's, in pairs; `mean` is the median
  Index pairs = 0;
};

struct PruneReport {
  std::string model;
  std::string size;  // layers and heads
  Index texts_to_order = 0, texts_to_measure = 0;
  Index cut = 0, skipped = 0, longest = 0;  // texts longer than `longest` tokens; without a word
  std::vector<HeadEffect> order = {};       // as heads go
  std::vector<PruningPoint> curve = {};     // by that order
  std::vector<RandomPoint> random = {};
  Index seeds = 0;
  std::optional<WrittenModel> written = {};
};

/// How many heads can go, by the curve, before the rank correlation falls under kSameOrder for the first time.
std::size_t heads_that_can_go(const PruneReport& report);

std::string prune_table(const PruneReport& report, const Terminal& terminal);
std::string prune_json(const PruneReport& report);
/// RFC 4180, a line for each number of heads removed; numbers of chance only where they were measured.
std::string prune_csv(const PruneReport& report);
/// Both measures against heads removed.
std::string prune_svg(const PruneReport& report);

}  // namespace mha::app
