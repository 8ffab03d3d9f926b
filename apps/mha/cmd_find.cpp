// mha find: which heads carry the link from one word to another, beside what each head usually gives at that distance.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "command.h"
#include "json_numbers.h"
#include "mha/error.h"
#include "model_folder.h"
#include "terminal.h"
#include "usual_cache.h"

namespace mha::app {
namespace {

struct Options {
  std::string from;
  std::string to;
  std::string text = kTelescope;
  std::string model;
  bool json = false;
};

struct RankedHead {
  HeadLink link;
  std::optional<double> usual;
};

struct Found {
  std::string from, to, text, model;
  Index layers = 0, heads = 0;
  std::vector<RankedHead> ranked;
  std::optional<Index> distance;  // in words; none where a special token is named
  Index pairs = 0;                // seen at that distance
};

constexpr const char* kFooter = R"(The weight is summed over the pieces of the word attended to and averaged over
the pieces of the word attending. Beside it, the head's usual weight: its mean
from a word to the word at the same signed distance, over some 500 plain
sentences that come with mha; computed once per model and kept in
$XDG_CACHE_HOME/mha or ~/.cache/mha.

A word is called as it stands in the text, or as anything that the model reads
as the same pieces: an uncased model does not tell "man" from "MAN". Where the
text has several: the#1, the#2, ... Punctuation marks are words.

Examples:
  mha find --from telescope --to man
  mha find --from telescope --to astronomer --json
  mha find --from bank --to rates "The bank raised its rates."
  mha find --from it --to 'cat#2' "The cat saw another cat when it woke."

JSON: [{"layer":0,"head":3,"weight":0.41,"usual":0.07}, ...], all heads, largest
weight first; usual is null where the sentences have no words that far apart.)";

Found find(const Options& options) {
  const OpenModel model = open_model(options.model);
  const Sentence sentence = read_sentence(model.tokenizer, options.text);
  Workspace workspace;
  const HeadTable table = read_heads(model.transformer, sentence.ids, sentence.words, workspace);
  const Index from = named_word("--from", options.from, sentence, model.tokenizer);
  const Index to = named_word("--to", options.to, sentence, model.tokenizer);
  const UsualWeights usual = cached_usual_weights(model);

  const std::vector<std::string> names = word_names(sentence.words);
  Found found{.from = names[static_cast<std::size_t>(from)],
              .to = names[static_cast<std::size_t>(to)],
              .text = options.text,
              .model = model.name,
              .layers = table.layers(),
              .heads = table.heads(),
              .ranked = {},
              .distance = word_distance(sentence.words, from, to),
              .pairs = 0};
  if (found.distance) found.pairs = usual.seen(*found.distance);
  for (const HeadLink& link : ranked_links(table, from, to)) {
    found.ranked.push_back({link, found.distance ? usual.at(link.id, *found.distance) : std::nullopt});
  }
  return found;
}

std::string found_json(const Found& found) {
  std::string out;  // one head a line, for eyes and for line tools
  for (const RankedHead& head : found.ranked) {
    Json json = link_json(head.link);
    json["usual"] = head.usual ? Json(json_number(static_cast<float>(*head.usual))) : Json(nullptr);
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
std::string bar(const RankedHead& head, int width) {
  const auto cells = [&](double share) { return static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * width)); };
  std::string out(static_cast<std::size_t>(width + 1), ' ');
  out.replace(0, cells(static_cast<double>(head.link.weight)), cells(static_cast<double>(head.link.weight)), '#');
  if (head.usual) out[cells(*head.usual)] = '|';
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

std::string times_usual(const RankedHead& head) {
  if (!head.usual || *head.usual <= 0.0) return "-";
  const double times = static_cast<double>(head.link.weight) / *head.usual;
  return times < 9.95 ? fmt::format("{:.1f}x", times) : times < 9999.5 ? fmt::format("{:.0f}x", times) : ">9999x";
}

std::string found_text(const Found& found, const Terminal& terminal) {
  std::string out = bold(fmt::format("{} -> {}", printable(found.from), printable(found.to)), terminal) + "\n";
  out += wrap(fmt::format("in: {}\n", one_line(found.text)), terminal.width, 0);
  out += fmt::format("{}: {} layers x {} heads, counted from 0\n", printable(found.model), found.layers, found.heads);
  out += wrap(distance_text(found), terminal.width, 0) + "\n\n";
  out += bold("layer  head  weight  usual   times", terminal) + "\n";
  const int width = std::clamp(terminal.width - 38, 10, 60);
  for (const RankedHead& head : found.ranked) {
    const std::string usual = head.usual ? fmt::format("{:.3f}", *head.usual) : "-";
    out += fmt::format("{:>5}  {:>4}  {:>6.3f}  {:>5}  {:>6}  {}\n", head.link.id.layer, head.link.id.head, head.link.weight, usual,
                       times_usual(head), bar(head, width));
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
  add_text(*command, options->text);
  add_model_option(*command, options->model);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
