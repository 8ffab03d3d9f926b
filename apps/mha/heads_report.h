// `mha heads` between its two halves: cmd_heads.cpp measures, heads_report.cpp writes down what was found: as a table, JSON or CSV.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mha/analysis/ablation.h"
#include "mha/analysis/head_survey.h"
#include "mha/analysis/repeated.h"
#include "terminal.h"

namespace mha::app {

struct MeasuredHead {
  HeadSummary summary;
  HeadRole role = {};
  std::optional<double> stable = {};                    // share of texts in which the role holds; absent without a role or without texts
  std::vector<std::pair<HeadRole, double>> roles = {};  // in single texts
  std::vector<RelationFinding> relations = {};          // where treebanks were given
  std::optional<RepeatedScores> repeated = {};
  std::optional<HeadEffect> effect = {};
};

/// One number of a head and what each format calls it.
struct HeadColumn {
  std::string_view name;    // in JSON and CSV, and for --sort
  std::string_view column;  // of the table; empty: not shown
  std::string_view help;
  double (*value)(const MeasuredHead& head);  // NaN where not known
};
std::span<const HeadColumn> head_columns();

struct HeadsReport {
  std::string model;
  std::string size = {};  // as size_text
  Index layers = 0;
  Index heads = 0;
  Index longest = 0;  // pieces that the model reads
  std::string_view unit = "word";
  Index texts = 0;            // read
  Index rows = 0;             // of them: words or pieces
  Index judged = 0;           // texts that `stable` is of
  Index cut = 0;              // texts that were longer
  Index skipped = 0;          // texts without a word
  std::string treebank = {};  // whose sentences relations are reported on; empty without
  RoleRules rules = {};
  std::string no_repeats = {};  // why duplicate and induction are not known; empty where they are
  std::vector<MeasuredHead> measured = {};
};

/// Largest first, what is not known last; by role: in the order of their rules.
void sort_heads(HeadsReport& report, std::string_view name);

std::string heads_table(const HeadsReport& report, const Terminal& terminal);
std::string heads_json(const HeadsReport& report);
/// A line of names, then a head a line; empty where a number is not known.
std::string heads_csv(const HeadsReport& report);

}  // namespace mha::app
