// mha score: which heads find which relations of a treebank, and the telescope question in real sentences. The formats are in
// score_report.cpp.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "command.h"
#include "mha/error.h"
#include "model_folder.h"
#include "score_report.h"
#include "treebank_file.h"

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
Without --dev, or with the same file, they are chosen on the very sentences that
are reported, which flatters them; the output says so and gives no intervals.

Sentences that cannot be used (cycles, several roots, longer than the model
reads) and words that cannot (no head, pieces shared with another word) are
counted and the counts are printed. Treebanks: universaldependencies.org.

Examples:
  mha score --conllu en_ewt-ud-test.conllu --dev en_ewt-ud-dev.conllu
  mha score --conllu test.conllu --dev dev.conllu --json | python3 -m json.tool
  mha score --conllu sentences.conllu --least 1)";

std::string run(const Options& options) {
  const bool chosen_elsewhere = options.dev && !same_file(options.file, *options.dev);
  const Index sentences = count_sentences(options.file) + (chosen_elsewhere ? count_sentences(*options.dev) : 0);
  const OpenModel model = open_model(options.model);
  const TransformerConfig& config = model.transformer.config();
  Workspace workspace(options.threads ? executor_of(*options.threads) : default_executor());
  ScoreReport report{.model = model.name,
                     .size = size_text(config),
                     .layers = config.layers,
                     .heads = config.heads,
                     .removed = removed_heads(config),
                     .file = {},
                     .dev = {},
                     .least = options.least,
                     .relations = {},
                     .attachment = {}};
  std::optional<Answered> dev;
  std::optional<Answered> file;
  {
    Progress progress(static_cast<std::size_t>(sentences));
    if (chosen_elsewhere) dev = answer_file(model, *options.dev, workspace, progress);
    file = answer_file(model, options.file, workspace, progress);
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
