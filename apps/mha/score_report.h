// What `mha score` has found, and its two formats. Filled by cmd_score.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mha/analysis/relation_scores.h"
#include "terminal.h"

namespace mha::app {

/// One treebank as it was read.
struct ScoredFile {
  std::string file;
  ConlluCounts read;
  TreebankCounts answered;
};

struct ScoreReport {
  std::string model;
  std::string size;  // as size_text
  Index layers = 0, heads = 0;
  Index removed = 0;  // of all heads
  ScoredFile file;
  std::optional<ScoredFile> dev;  // none: chosen on `file` itself
  Index least = 0;                // arcs of a relation that is shown in the table
  std::vector<RelationScore> relations;
  std::optional<AttachmentScore> attachment;
};

/// What was left out of the file, or is odd in it, by kind: "2 sentences left out: cycle of heads; ..."; empty where nothing is.
std::string odd_counts(const ScoredFile& file);

std::string score_table(const ScoreReport& report, const Terminal& terminal);
std::string score_json(const ScoreReport& report);

}  // namespace mha::app
