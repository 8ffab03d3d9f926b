// mha view: gathers what all heads do on one text. The layout for terminals is in view_text.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "command.h"
#include "json_numbers.h"
#include "mha/error.h"
#include "model_folder.h"
#include "usual_cache.h"
#include "view.h"

namespace mha::app {
namespace {

struct Options {
  std::string text = kTelescope;
  std::string model;
  std::string measure;
  std::optional<Index> layer;
  std::optional<Index> head;
  bool pieces = false;
  bool words = false;  // says what is so anyway
  bool special = false;
  bool no_special = false;  // as `words`
  bool json = false;
  ChangeOptions change;
};

constexpr std::size_t kLinks = 5;   // shown per word
constexpr double kMostWords = 0.5;  // of which a head looks at a neighbour, to be called one that does

constexpr const char* kFooter = R"("Strongest" means: strongest among the other words of the text. A word does not
compete with itself, and [CLS] and [SEP] do not compete unless --special is
given: many heads park most of their attention there. By words, weights are
summed over the pieces of the word attended to and averaged over the pieces of
the word attending. Where the model reads two words alike they are called the#1
and the#2. Punctuation marks are words. A link stands out by how far its weight
is above the head's usual weight at that distance (see mha find --help).

With a change, everything shown is after it, and "what moved" compares. A word
that nobody may attend to still attends; the sentence's vector is the mean of
all pieces' last hidden states. A head taken away gives 0 to W_O: its own
weights stay, what later layers make of it moves.

Examples:
  mha view
  mha view "The woman watched the dog with one eye."
  mha view --measure entropy
  mha view --layer 5 --head 4
  mha view --layer 0 --head 3 --pieces --special "Unbelievable stargazers!"
  mha view --json | python3 -m json.tool
  mha view --temperature 2
  mha view --mask-word cat "The cat sat on the mat because it was comfortable"
  mha view --zero-head 5.11)";

std::vector<std::string> measure_names() {
  std::vector<std::string> names;
  for (const MeasureInfo& info : measures()) names.emplace_back(info.name);
  return names;
}

const MeasureInfo& chosen_measure(const std::string& name) {
  for (const MeasureInfo& info : measures()) {
    if (name.empty() || info.name == name) return info;
  }
  throw Error(fmt::format("--measure: no measure \"{}\"; there are {}", name, fmt::join(measure_names(), ", ")));
}

/// The one unit that the model reads as `word`, which it may cut into pieces; -1 where there is none or several.
Index only_unit(const std::vector<Unit>& units, const Tokenizer& tokenizer, const std::string& word) {
  const Sentence alone = read_sentence(tokenizer, word);
  const std::string& key = alone.words[static_cast<std::size_t>(plain_units(alone.words).front())].key;
  Index found = -1;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i].special || (units[i].text != word && (key.empty() || units[i].key != key))) continue;
    if (found >= 0) return -1;
    found = static_cast<Index>(i);
  }
  return found;
}

std::optional<Readings> find_readings(const View& view, const Tokenizer& tokenizer) {
  const Index man = only_unit(view.units, tokenizer, "man");
  const Index astronomer = only_unit(view.units, tokenizer, "astronomer");
  const Index telescope = only_unit(view.units, tokenizer, "telescope");
  if (man < 0 || astronomer < 0 || telescope < 0) return std::nullopt;
  const auto name = [&](Index unit) { return view.names[static_cast<std::size_t>(unit)]; };
  return Readings{.man = name(man),
                  .astronomer = name(astronomer),
                  .telescope = name(telescope),
                  .first = heads_with_strongest(view.table, man, telescope, view.shown),
                  .second = heads_with_chain(view.table, man, astronomer, telescope, view.shown),
                  .telescope_man = ranked_links(view.table, telescope, man),
                  .telescope_astronomer = ranked_links(view.table, telescope, astronomer)};
}

std::vector<WordLinks> word_links(const View& view, const OpenModel& model) {
  std::optional<UsualWeights> usual;  // by words
  if (!view.pieces) usual = cached_usual_weights(model);
  std::vector<WordLinks> all;
  for (Index from : view.shown) {
    WordLinks links{from, standing_links(view.table, view.units, from, view.shown, usual ? &*usual : nullptr)};
    if (links.to.size() > kLinks) links.to.resize(kLinks);
    all.push_back(std::move(links));
  }
  return all;
}

/// The table after the change, and what moved.
void apply_change(View& view, const OpenModel& model, const Sentence& sentence, const ChangeOptions& options) {
  const Intervention intervention = intervention_of(options, model, sentence);
  Workspace workspace;
  const Dims shape{1, static_cast<Index>(sentence.ids.size()), model.transformer.config().d_model};
  Tensor before(DType::F32, shape);
  Tensor after(DType::F32, shape);
  run_with(model.transformer, sentence.ids, {}, before, workspace);
  HeadTable changed = read_heads(model.transformer, sentence.ids, view.units, workspace, intervention, after);
  std::swap(changed, view.table);
  view.change =
      compare_runs({.before = changed, .after = view.table, .units = view.units, .shown = view.shown, .intervention = intervention},
                   options, cosine(sentence_vector(before), sentence_vector(after)));
}

View gather(const Options& options) {
  const MeasureInfo& shown_measure = chosen_measure(options.measure);  // before anything slow
  const OpenModel model = open_model(options.model);
  if (options.layer) require_head(model, {*options.layer, *options.head});
  const Sentence sentence = read_sentence(model.tokenizer, options.text);
  const std::vector<Unit>& units = options.pieces ? sentence.pieces : sentence.words;
  Workspace workspace;
  View view{.text = options.text,
            .model = model.name,
            .size = size_text(model.transformer.config()),
            .pieces = options.pieces,
            .special = options.special,
            .units = units,
            .names = word_names(units),
            .shown = plain_units(units),
            .table = read_heads(model.transformer, sentence.ids, units, workspace),
            .measure = shown_measure,
            .map = {},
            .readings = {},
            .links = {},
            .previous = {},
            .next = {},
            .change = {}};
  if (options.special) {
    view.shown.clear();
    for (std::size_t i = 0; i < units.size(); ++i) view.shown.push_back(static_cast<Index>(i));
  }
  if (options.change.any()) apply_change(view, model, sentence, options.change);
  for (Index layer = 0; layer < view.table.layers(); ++layer) {
    view.map.emplace_back();
    for (Index head = 0; head < view.table.heads(); ++head) {
      view.map.back().push_back(measure(view.measure.measure, view.table, {layer, head}, units, view.shown));
    }
  }
  view.readings = find_readings(view, model.tokenizer);
  if (!view.readings) view.links = word_links(view, model);
  view.previous = heads_with_neighbour(view.table, -1, view.shown, kMostWords);
  view.next = heads_with_neighbour(view.table, 1, view.shown, kMostWords);
  return view;
}

Json header_json(const View& view) {
  Json json = {{"text", view.text}, {"model", view.model}, {"layers", view.table.layers()}, {"heads", view.table.heads()}};
  json["units"] = view.pieces ? "pieces" : "words";
  json["special"] = view.special;
  Json names = Json::array();
  for (Index unit : view.shown) names.push_back(view.names[static_cast<std::size_t>(unit)]);
  json["names"] = std::move(names);
  return json;
}

Json links_json(const std::vector<HeadLink>& links) {
  Json list = Json::array();
  for (const HeadLink& link : links) list.push_back(link_json(link));
  return list;
}

Json readings_json(const Readings& readings) {
  Json second = Json::array();
  for (const HeadChain& chain : readings.second) {
    Json json = head_json(chain.id);
    json["man_astronomer"] = json_number(chain.first);
    json["astronomer_telescope"] = json_number(chain.second);
    second.push_back(std::move(json));
  }
  return {{"reading1", links_json(readings.first)},
          {"reading2", std::move(second)},
          {"telescope_man", links_json(readings.telescope_man)},
          {"telescope_astronomer", links_json(readings.telescope_astronomer)}};
}

Json neighbours_json(const std::vector<NeighbourHead>& heads) {
  Json list = Json::array();
  for (const NeighbourHead& head : heads) {
    Json json = head_json(head.id);
    json["share"] = json_number(static_cast<float>(head.share));
    json["weight"] = json_number(static_cast<float>(head.weight));
    list.push_back(std::move(json));
  }
  return list;
}

std::string view_json(const View& view) {
  Json json = header_json(view);
  Json map = Json::array();
  for (const std::vector<double>& row : view.map) {
    Json values = Json::array();
    for (double value : row) values.push_back(json_number(static_cast<float>(value)));
    map.push_back(std::move(values));
  }
  json["measure"] = {{"name", view.measure.name}, {"values", std::move(map)}};
  if (view.readings) {
    json.update(readings_json(*view.readings));
  } else {
    json["links"] = Json::array();
    for (const WordLinks& links : view.links) {
      for (const StandingLink& link : links.to) {
        Json entry = {{"from", view.names[static_cast<std::size_t>(links.from)]}, {"to", view.names[static_cast<std::size_t>(link.to)]}};
        entry.update(link_json(link.link));
        entry["usual"] = link.usual ? Json(json_number(static_cast<float>(*link.usual))) : Json(nullptr);
        entry["strongest_in"] = link.heads;
        json["links"].push_back(std::move(entry));
      }
    }
  }
  json["previous_heads"] = neighbours_json(view.previous);
  json["next_heads"] = neighbours_json(view.next);
  if (view.change) json["change"] = change_json(*view.change, view.names);
  return json.dump(2) + "\n";
}

std::string head_json_text(const View& view, HeadId id) {
  Json json = header_json(view);
  json.update(head_json(id));
  json["weights"] = Json::array();
  for (Index from : view.shown) {
    Json row = Json::array();
    for (Index to : view.shown) row.push_back(json_number(view.table.weight(id, from, to)));
    json["weights"].push_back(std::move(row));
  }
  return json.dump(2) + "\n";
}

std::string run(const Options& options) {
  if (options.layer.has_value() != options.head.has_value()) throw Error("--layer and --head are given together");
  if (options.pieces && options.words) throw Error("--pieces and --words exclude each other");
  if (options.special && options.no_special) throw Error("--special and --no-special exclude each other");
  const View view = gather(options);
  if (options.layer) {
    const HeadId id{*options.layer, *options.head};
    return options.json ? head_json_text(view, id) : head_text(view, id, this_terminal());
  }
  return options.json ? view_json(view) : view_text(view, this_terminal());
}

}  // namespace

void add_view(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("view", "All heads on one text: a map, the readings of the telescope sentence, one head's table");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_text(*command, options->text);
  add_model_option(*command, options->model);
  add_change_options(*command, options->change);
  command->add_option("--measure", options->measure, fmt::format("What the map shows: {}", fmt::join(measure_names(), ", ")))
      ->type_name("NAME");
  add_number(*command, "--layer", options->layer, "With --head: show this head's whole table");
  add_number(*command, "--head", options->head, "Counted from 0, as layers are");
  command->add_flag("--pieces", options->pieces, "Show the tokenizer's pieces");
  command->add_flag("--words", options->words, "Show whole words (the default)");
  command->add_flag("--special", options->special, "Show [CLS] and [SEP] and let them compete");
  command->add_flag("--no-special", options->no_special, "Leave them out (the default)");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
