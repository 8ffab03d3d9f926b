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

}  // namespace

Index count_sentences(const std::string& file) {
  std::ifstream in = open_file(file);
  ConlluReader reader(in, file);
  Index count = 0;
  for (TreeSentence sentence; reader.next(sentence);) ++count;
  if (count == 0) throw Error(fmt::format("{}: no sentence that can be scored", file));
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
  if (answers.arcs().empty()) throw Error(fmt::format("{}: no arc that can be scored", file));
  return {{.file = file, .read = reader.counts(), .answered = answers.counts()}, std::move(answers)};
}

}  // namespace mha::app
