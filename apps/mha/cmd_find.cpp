// mha find: which heads carry the link from one word to another, beside what each head usually gives at that distance, what goes to a
// competing word, and the other direction.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "command.h"
#include "json_numbers.h"
#include "mha/analysis/relation.h"
#include "mha/error.h"
#include "model_folder.h"
#include "terminal.h"
#include "usual_cache.h"

namespace mha::app {
namespace {

struct Options {
  std::string from;
  std::string to;
  std::optional<std::string> rather_than;
  std::string text = kTelescope;
  std::string model;
  std::string by;  // empty: weight, or contrast where --not is given
  bool json = false;
};

struct Found {
  std::string from, to, rather_than, text, model;
  std::string size;  // of the model, as size_text
  std::vector<WordRelation> ranked;
  std::string_view by;
  std::optional<Index> distance;  // in words; none where a special token is named
  Index pairs = 0;                // seen at that distance
};

constexpr const char* kFooter = R"(The weight is summed over the pieces of the word attended to and averaged over
the pieces of the word attending. Beside it:

  usual     the head's mean weight from a word to the word at the same signed
            distance, over some 500 plain sentences that come with mha; computed
            once per model and kept in $XDG_CACHE_HOME/mha or ~/.cache/mha
  lift      weight - usual; times: weight / usual
  contrast  with --not C: weight from A to B less that from A to C
  back      weight of the other direction, from B to A; back lift: less what is
            usual at that distance

A word is called as it stands in the text, or as anything that the model reads
as the same pieces: an uncased model does not tell "man" from "MAN". Where the
text has several: the#1, the#2, ... Punctuation marks are words. One sentence
shows what a head can do, not what it does: mha heads, mha score.

Examples:
  mha find --from telescope --to man
  mha find --from telescope --to man --not astronomer
  mha find --from telescope --to astronomer --by lift
  mha find --from bank --to rates "The bank raised its rates." --json
  mha find --from it --to 'cat#2' "The cat saw another cat when it woke."

JSON: [{"layer":0,"head":3,"weight":0.41,"usual":0.07,"lift":0.34,"back":0.02,
"usual_back":0.05,"lift_back":-0.03}, ...], all heads, best first; "contrast" too
with --not. null where the sentences have no words that far apart.)";

/// The order asked for. Throws Error where its numbers are not known.
RelationRank rank_of(const Options& options, const std::vector<WordRelation>& relations) {
  const std::string by = !options.by.empty() ? options.by : options.rather_than ? "contrast" : "weight";
  const auto name = std::find(relation_ranks().begin(), relation_ranks().end(), by);
  const auto rank = static_cast<RelationRank>(name - relation_ranks().begin());
  if (rank == RelationRank::Contrast && !options.rather_than) throw Error("--by contrast: --not must name the word that competes");
  const bool lifts = rank == RelationRank::Lift || rank == RelationRank::LiftBack;
  const bool known = std::any_of(relations.begin(), relations.end(), [](const WordRelation& r) { return r.usual.has_value(); });
  if (lifts && !known) throw Error(fmt::format("--by {}: no weight is known as usual between these two", by));
  return rank;
}

Found find(const Options& options) {
  const OpenModel model = open_model(options.model);
  const Sentence sentence = read_sentence(model.tokenizer, options.text);
  Workspace workspace;
  const HeadTable table = read_heads(model.transformer, sentence.ids, sentence.words, workspace);
  RelationQuery query{.from = named_word("--from", options.from, sentence, model.tokenizer),
                      .to = named_word("--to", options.to, sentence, model.tokenizer)};
  if (options.rather_than) query.rather_than = named_word("--not", *options.rather_than, sentence, model.tokenizer);
  if (query.rather_than == query.to) throw Error("--not is the word of --to, must be another");
  const UsualWeights usual = cached_usual_weights(model);

  const std::vector<std::string> names = word_names(sentence.words);
  const auto name = [&](Index word) { return names[static_cast<std::size_t>(word)]; };
  Found found{.from = name(query.from),
              .to = name(query.to),
              .rather_than = query.rather_than ? name(*query.rather_than) : std::string(),
              .text = options.text,
              .model = model.name,
              .size = size_text(model.transformer.config()),
              .ranked = find_relation(table, sentence.words, query, &usual),
              .by = {},
              .distance = word_distance(sentence.words, query.from, query.to),
              .pairs = 0};
  if (found.distance) found.pairs = usual.seen(*found.distance);
  const RelationRank rank = rank_of(options, found.ranked);
  found.by = relation_ranks()[static_cast<std::size_t>(rank)];
  rank_relations(found.ranked, rank);
  return found;
}

Json optional_number(const std::optional<double>& value) { return value ? Json(json_number(static_cast<float>(*value))) : Json(nullptr); }

std::string found_json(const Found& found) {
  std::string out;  // one head a line, for eyes and for line tools
  for (const WordRelation& head : found.ranked) {
    Json json = head_json(head.id);
    json["weight"] = json_number(head.weight);
    json["usual"] = optional_number(head.usual);
    json["lift"] = optional_number(head.lift());
    if (head.contrast) json["contrast"] = optional_number(head.contrast);
    json["back"] = json_number(head.back);
    json["usual_back"] = optional_number(head.usual_back);
    json["lift_back"] = optional_number(head.lift_back());
    out += fmt::format("{}{}", out.empty() ? "[" : ",\n ", json.dump());
  }
  return out + "]\n";
}

std::string distance_text(const Found& found) {
  if (!found.distance) return "Usual: unknown, a special token has no distance in words.";
  const Index distance = *found.distance;
  const Index size = std::abs(distance);
  const std::string words = fmt::format("{} word{} {}", size, size == 1 ? "" : "s", distance < 0 ? "before" : "after");
  const std::string where = distance == 0 ? "itself" : fmt::format("the word {} it", words);
  if (found.pairs == 0) return fmt::format("Usual: unknown, the plain sentences have no word {} another.", words);
  return fmt::format("Usual (| in the bar): the head's mean weight from a word to {}, over {} such pairs in {} plain sentences.", where,
                     found.pairs, plain_sentences().size());
}

/// `weight` as a bar of the share of 1, with a mark where the usual weight ends.
std::string bar(const WordRelation& head, int width) {
  const auto cells = [&](double share) { return static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * width)); };
  std::string out(static_cast<std::size_t>(width + 1), ' ');
  out.replace(0, cells(static_cast<double>(head.weight)), cells(static_cast<double>(head.weight)), '#');
  if (head.usual) out[cells(*head.usual)] = '|';
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

std::string times_usual(const WordRelation& head) {
  if (!head.usual || *head.usual <= 0.0) return "-";
  const double times = static_cast<double>(head.weight) / *head.usual;
  return times < 9.95 ? fmt::format("{:.1f}x", times) : times < 9999.5 ? fmt::format("{:.0f}x", times) : ">9999x";
}

std::string signed_cell(const std::optional<double>& value) { return value ? fmt::format("{:+.3f}", *value) : std::string("-"); }

std::string found_text(const Found& found, const Terminal& terminal) {
  const bool contrast = !found.rather_than.empty();
  std::string title = fmt::format("{} -> {}", printable(found.from), printable(found.to));
  if (contrast) title += fmt::format(", rather than {}", printable(found.rather_than));
  std::string out = bold(title, terminal) + "\n";
  out += wrap(fmt::format("in: {}\n", one_line(found.text)), terminal.width, 0);
  out += fmt::format("{}: {}; by {}\n", printable(found.model), found.size, found.by);
  out += wrap(distance_text(found), terminal.width, 0) + "\n\n";
  out +=
      bold(fmt::format("layer  head  weight  usual   times    lift{}    back  back lift", contrast ? "  contrast" : ""), terminal) + "\n";
  const int width = std::clamp(terminal.width - (contrast ? 74 : 64), 6, 60);
  for (const WordRelation& head : found.ranked) {
    const std::string usual = head.usual ? fmt::format("{:.3f}", *head.usual) : "-";
    out += fmt::format("{:>5}  {:>4}  {:>6.3f}  {:>5}  {:>6}  {:>6}", head.id.layer, head.id.head, head.weight, usual, times_usual(head),
                       signed_cell(head.lift()));
    if (contrast) out += fmt::format("  {:>8}", signed_cell(head.contrast));
    out += fmt::format("  {:>6.3f}  {:>9}  {}\n", head.back, signed_cell(head.lift_back()), bar(head, width));
  }
  return out;
}

std::string run(const Options& options) {
  const Found found = find(options);
  return options.json ? found_json(found) : found_text(found, this_terminal());
}

}  // namespace

void add_find(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("find", "All heads ranked by the link from one word to another");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  command->add_option("--from", options->from, "The word that attends")->type_name("WORD")->required();
  command->add_option("--to", options->to, "The word attended to")->type_name("WORD")->required();
  command->add_option("--not", options->rather_than, "A word that competes: rank by how much more goes to --to")->type_name("WORD");
  const std::vector<std::string> ranks(relation_ranks().begin(), relation_ranks().end());
  command
      ->add_option("--by", options->by,
                   fmt::format("Largest first: {} (default: contrast with --not, else weight)", fmt::join(ranks, ", ")))
      ->check(CLI::IsMember(ranks))
      ->type_name("NAME");
  add_text(*command, options->text);
  add_model_option(*command, options->model);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
