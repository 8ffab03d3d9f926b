// mha score: which heads find which relations of a treebank, and the telescope question in real sentences. The formats are in
// score_report.cpp.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "command.h"
#include "mha/error.h"
#include "model_folder.h"
#include "score_report.h"

namespace mha::app {
namespace {

struct Options {
  std::string file;
  std::optional<std::string> dev;
  std::string model;
  Index least = 20;
  std::optional<Index> threads;
  bool json = false;
};

constexpr const char* kFooter = R"(For each dependency relation the best head in each direction: dep->head, the word
that the dependent attends to most is its head; head->dep, the word that attends
most to the dependent is its head. Weights are by words of the treebank, special
tokens left out (Clark et al. 2019, arXiv 1906.04341). Beside it how often the
word at the best fixed offset is the head, and the lift above that; * where its
95 % interval lies above 0.

Attachment: in "saw the astronomer with a telescope", does telescope hang on saw
or on astronomer? The head answers by which of the two gets more weight, from
the preposition or from its object.

Heads, directions and offsets are chosen on --dev and reported on --conllu.
Without --dev they are chosen on the very sentences that are reported, which
flatters them; the output says so and gives no intervals.

Sentences that cannot be used (cycles, several roots, longer than the model
reads) and words that cannot (no head, pieces shared with another word) are
counted and the counts are printed. Treebanks: universaldependencies.org.

Examples:
  mha score --conllu en_ewt-ud-test.conllu --dev en_ewt-ud-dev.conllu
  mha score --conllu test.conllu --dev dev.conllu --json | python3 -m json.tool
  mha score --conllu sentences.conllu --least 1)";

std::ifstream open_file(const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) throw IoError(fmt::format("{}: is a folder, a CoNLL-U file is wanted", file));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError(fmt::format("{}: cannot be read", file));
  return in;
}

/// Reads the whole file once, so that its last line is known to be good before minutes are spent on its first.
Index count_sentences(const std::string& file) {
  std::ifstream in = open_file(file);
  ConlluReader reader(in, file);
  Index count = 0;
  for (TreeSentence sentence; reader.next(sentence);) ++count;
  if (count == 0) throw Error(fmt::format("{}: no sentence that can be scored", file));
  return count;
}

struct Answered {
  ScoredFile file;
  TreebankAnswers answers;
};

Answered answer(const OpenModel& model, const std::string& file, Workspace& workspace, Progress& progress) {
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

std::string run(const Options& options) {
  const Index sentences = count_sentences(options.file) + (options.dev ? count_sentences(*options.dev) : 0);
  const OpenModel model = open_model(options.model);
  const TransformerConfig& config = model.transformer.config();
  Workspace workspace(options.threads ? executor_of(*options.threads) : default_executor());
  ScoreReport report{.model = model.name,
                     .layers = config.layers,
                     .heads = config.heads,
                     .file = {},
                     .dev = {},
                     .least = options.least,
                     .relations = {},
                     .attachment = {}};
  std::optional<Answered> dev;
  std::optional<Answered> file;
  {
    Progress progress(static_cast<std::size_t>(sentences));
    if (options.dev) dev = answer(model, *options.dev, workspace, progress);
    file = answer(model, options.file, workspace, progress);
  }
  report.file = file->file;
  if (dev) report.dev = dev->file;
  const TreebankAnswers& choose = dev ? dev->answers : file->answers;
  report.relations = score_relations(choose, file->answers);
  report.attachment = score_attachment(choose, file->answers);
  return options.json ? score_json(report) : score_table(report, this_terminal());
}

}  // namespace

void add_score(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("score", "The best head for every dependency relation of a treebank, beside fixed offsets");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  command->add_option("--conllu", options->file, "Sentences to report on, CoNLL-U")->type_name("FILE")->required();
  command->add_option("--dev", options->dev, "Sentences to choose heads, directions and offsets by, CoNLL-U")->type_name("FILE");
  add_model_option(*command, options->model);
  add_number(*command, "--least", options->least, "Show relations of at least so many arcs (default: 20; --json has all)");
  add_number(*command, "--threads", options->threads, "Threads (default: all cores)");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
