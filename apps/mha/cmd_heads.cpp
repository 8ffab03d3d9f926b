// mha heads: the measures and the role of every head over texts, and in how many of the texts the role holds. The formats are in
// heads_report.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "command.h"
#include "heads_report.h"
#include "mha/error.h"
#include "model_folder.h"
#include "texts.h"
#include "treebank_file.h"

namespace mha::app {
namespace {

struct Options {
  TextOptions texts;
  std::string model;
  std::string sort;
  std::string effect;
  std::optional<std::string> conllu;
  std::optional<std::string> dev;
  std::optional<Index> threads;
  bool pieces = false;
  bool json = false;
  bool csv = false;
};

constexpr const char* kFooter = R"(Without TEXT and --file: the 501 plain sentences that come with mha. Each line of
a file is a text of its own; one that is longer than the model reads is cut, and
the output says so. Numbers are means over all words (--pieces:
pieces of the tokenizer) as those that attend, [CLS] and [SEP] left out; all
count as attended to.

  stab  with several texts: share of those in each of which the role holds, by
        its own rows; texts of fewer than 5 words are not counted
  entr  entropy of the weights in nats: 0 is one word only
  conf  largest weight, the last special token not counted
  dist  mean distance, in words, to what is attended to
  prev, next, self   weight on the word just before, just after, itself
  spec  weight on special tokens; norm: their share of what the head carries,
        by the norms of weight x value x W_O: little where spec only parks weight
  sink  weight on the first token
  dup, ind  on random tokens read twice: weight on the same token the first time
        round, and on the one that followed it then (induction)
  loo   with --effect: 1 - cosine of sentence vectors with and without the head

A role is given where one is clear, by rules with a border each; the first that
holds, and most heads have none. All but relations need 5 words at least:
  previous, next, at N  the largest weight of 90 % of the words is on the word
                        just before, just after, or N away (0: itself)
  det->head, head->det  with --conllu and --dev: the head finds half of a
                        relation's arcs and 10 points more than the best fixed
                        offset (mha score); stab: of the treebank's sentences
  special               half of the weight is on special tokens
  broad                 entropy is 90 % of that of an even spread
What a head attends to is not what the model needs it for: --effect, mha prune.

Examples:
  mha heads
  mha heads --sort induction
  mha heads "The man saw the astronomer with a telescope." --effect zero
  mha heads --conllu en_ewt-ud-test.conllu --dev en_ewt-ud-dev.conllu --sort role
  mha heads --file texts.txt --sort role --csv > heads.csv
  mha heads --json | python3 -m json.tool)";

std::vector<std::string> sort_names() {
  std::vector<std::string> names = {"role"};
  for (const HeadColumn& column : head_columns()) names.emplace_back(column.name);
  return names;
}

/// Measures of random tokens read twice; why there are none is left in `report`.
std::vector<RepeatedScores> repeats(const OpenModel& model, HeadsReport& report, Workspace& workspace) {
  try {
    return repeated_scores(model.transformer, model.tokenizer, {}, workspace);
  } catch (const Error& error) {  // a vocabulary of few words, a model that reads few tokens
    report.no_repeats = error.what();
    return {};
  }
}

std::vector<HeadEffect> effects_of(const OpenModel& model, const std::vector<TextIds>& texts, const Options& options,
                                   Workspace& workspace) {
  if (options.effect.empty()) return {};
  Progress progress(texts.size());
  return head_effects(model.transformer, texts, options.effect == "mean" ? Ablation::Mean : Ablation::Zero, workspace,
                      [&] { progress.begin("texts, each head left out in turn"); });
}

/// All texts in the survey; their ids.
std::vector<TextIds> survey_texts(const OpenModel& model, const Options& options, HeadsReport& report, HeadSurvey& survey,
                                  Workspace& workspace) {
  const std::vector<std::string> texts = texts_of(options.texts);
  const TextSurveyor surveyor(model.transformer, model.tokenizer, options.pieces);
  std::vector<TextIds> ids;
  Progress progress(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    progress.begin("texts");
    try {
      SurveyedText read = surveyor.add(texts[i], survey, workspace);
      ++(read.rows == 0 ? report.skipped : report.texts);
      report.rows += read.rows;
      report.cut += read.cut ? 1 : 0;
      if (read.rows > 0) ids.push_back(std::move(read.ids));
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", place_of(options.texts, i), error.what()));
    }
  }
  if (report.texts == 0) throw Error(fmt::format("{}: no text has a word in it", name_of(options.texts)));
  return ids;
}

std::vector<RelationFinding> findings_of(const OpenModel& model, const Options& options, Workspace& workspace) {
  if (!options.conllu) return {};
  const Index chosen = count_sentences(*options.dev);
  Progress progress(static_cast<std::size_t>(chosen + count_sentences(*options.conllu)));
  const Answered dev = answer_file(model, *options.dev, workspace, progress);
  const Answered file = answer_file(model, *options.conllu, workspace, progress);
  return relation_findings(dev.answers, file.answers);
}

/// The role of a head with `findings` about it, and in which share of texts, or of the treebank's sentences, it holds.
MeasuredHead judged_head(const HeadSurvey& survey, HeadId id, std::vector<RelationFinding> findings) {
  const HeadSummary summary = survey.summary(id);
  MeasuredHead head{.summary = summary, .role = role_of(summary, survey.rules(), findings), .roles = survey.shares(id)};
  if (head.role.kind == RoleKind::Syntactic) {
    head.stable = clearest_finding(id, findings, survey.rules())->stable;
  } else if (head.role.kind != RoleKind::None && survey.judged() > 0) {
    head.stable = survey.share(id, head.role);
  }
  head.relations = std::move(findings);
  return head;
}

HeadsReport measure_heads(const OpenModel& model, const Options& options) {
  const TransformerConfig& config = model.transformer.config();
  HeadsReport report{.model = model.name,
                     .size = size_text(config),
                     .layers = config.layers,
                     .heads = config.heads,
                     .longest = config.max_positions,
                     .unit = options.pieces ? "piece" : "word"};
  HeadSurvey survey(config.layers, config.heads);
  Workspace workspace(options.threads ? executor_of(*options.threads) : default_executor());
  const std::vector<RelationFinding> findings = findings_of(model, options, workspace);
  const std::vector<TextIds> ids = survey_texts(model, options, report, survey, workspace);
  const std::vector<RepeatedScores> repeated = repeats(model, report, workspace);
  const std::vector<HeadEffect> effects = effects_of(model, ids, options, workspace);
  report.judged = survey.judged();
  report.rules = survey.rules();
  report.treebank = options.conllu.value_or("");
  const auto about = [](const auto& list, HeadId id) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.id == id; });
    return found == list.end() ? std::nullopt : std::optional(*found);
  };
  for (const HeadId& id : all_heads(config)) {
    std::vector<RelationFinding> own;
    std::copy_if(findings.begin(), findings.end(), std::back_inserter(own), [&](const RelationFinding& f) { return f.id == id; });
    MeasuredHead& head = report.measured.emplace_back(judged_head(survey, id, std::move(own)));
    head.repeated = about(repeated, id);
    head.effect = about(effects, id);
  }
  return report;
}

std::string run(const Options& options) {
  if (options.json && options.csv) throw Error("--json and --csv exclude each other");
  if (options.sort == "effect" && options.effect.empty()) throw Error("--sort effect: --effect must say how heads are left out");
  if (options.conllu.has_value() != options.dev.has_value()) {
    throw Error("--conllu and --dev go together: heads are chosen on one and reported on the other");
  }
  if (options.conllu && same_file(*options.conllu, *options.dev)) {
    throw Error(fmt::format("--conllu and --dev are one file, {}: heads are chosen on one and reported on another", *options.dev));
  }
  const OpenModel model = open_model(options.model);
  HeadsReport report = measure_heads(model, options);
  if (!options.sort.empty()) sort_heads(report, options.sort);
  return options.json ? heads_json(report) : options.csv ? heads_csv(report) : heads_table(report, this_terminal());
}

}  // namespace

void add_heads(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("heads", "The measures and the role of every head, and in how many texts the role holds");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_texts(*command, options->texts);
  add_model_option(*command, options->model);
  command->add_option("--sort", options->sort, fmt::format("Largest first, by {}", fmt::join(sort_names(), ", ")))
      ->check(CLI::IsMember(sort_names()))
      ->type_name("NAME");
  command->add_option("--effect", options->effect, "Leave each head out in turn: its output 0 (zero), or its mean over the texts (mean)")
      ->check(CLI::IsMember({"zero", "mean"}))
      ->type_name("HOW");
  command->add_option("--conllu", options->conllu, "Relations too, reported on this treebank (as mha score)")->type_name("FILE");
  command->add_option("--dev", options->dev, "The treebank on which heads are chosen for relations")->type_name("FILE");
  command->add_flag("--pieces", options->pieces, "By the tokenizer's pieces instead of words");
  add_number(*command, "--threads", options->threads, "Threads (default: all cores)");
  command->add_flag("--json", options->json, "Print JSON; null where a number is not known");
  command->add_flag("--csv", options->csv, "Print CSV");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
