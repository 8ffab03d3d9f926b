// Opens, counts, then answers: a file that is bad at its end is refused before the model has run.
#include "treebank_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "mha/error.h"

namespace mha::app {
namespace {

std::ifstream open_file(const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) throw IoError(fmt::format("{}: is a folder, a CoNLL-U file is wanted", file));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError(fmt::format("{}: cannot be read", file));
  return in;
}

/// `what` is missing in the file, and what became of its sentences.
Error nothing_to_score(const ScoredFile& file, const char* what) {
  const std::string odd = odd_counts(file);
  return Error(fmt::format("{}: no {} that can be scored (sentences read: {}{}{})", file.file, what, file.read.sentences,
                           odd.empty() ? "" : "; ", odd));
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

Index count_sentences(const std::string& file) {
  std::ifstream in = open_file(file);
  ConlluReader reader(in, file);
  Index count = 0;
  for (TreeSentence sentence; reader.next(sentence);) ++count;
  if (count == 0) throw nothing_to_score({.file = file, .read = reader.counts(), .answered = {}}, "sentence");
  return count;
}

Answered answer_file(const OpenModel& model, const std::string& file, Workspace& workspace, Progress& progress) {
  std::ifstream in = open_file(file);
  ConlluReader reader(in, file);
  const TransformerConfig& config = model.transformer.config();
  TreebankAnswers answers(config.layers, config.heads);
  Index shown = 0;
  answer_treebank(model.transformer, model.tokenizer, reader, answers, workspace, [&](Index done) {
    for (; shown < done; ++shown) progress.begin("sentences");
  });
  ScoredFile scored{.file = file, .read = reader.counts(), .answered = answers.counts()};
  if (answers.arcs().empty()) throw nothing_to_score(scored, "arc");
  return {std::move(scored), std::move(answers)};
}

}  // namespace mha::app
