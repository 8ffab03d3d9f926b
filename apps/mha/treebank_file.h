// A treebank's file, read and answered by every head: shared by `mha score` and `mha heads`.
#pragma once

#include <string>

#include "mha/analysis/treebank.h"
#include "model_folder.h"
#include "score_report.h"
#include "terminal.h"

namespace mha::app {

/// Whether the two names are of one file, which then cannot be both the one to choose by and the one to report on.
bool same_file(const std::string& a, const std::string& b);

/// Reads the whole file once, so that its last line is known to be good before minutes are spent on its first. Throws IoError where it
/// cannot be read, FormatError where it is no CoNLL-U, Error where it has no sentence that can be scored, with
/// the counts of what was left out.
Index count_sentences(const std::string& file);

struct Answered {
  ScoredFile file;
  TreebankAnswers answers;
};

/// One step of `progress` a sentence. Throws as count_sentences, Error where no arc can be scored.
Answered answer_file(const OpenModel& model, const std::string& file, Workspace& workspace, Progress& progress);

}  // namespace mha::app
