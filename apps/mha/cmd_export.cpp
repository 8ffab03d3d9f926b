// mha export: pictures and tables of heads as files to keep. Reads the options and gathers weights; src/view draws.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "command.h"
#include "mha/analysis/head_table.h"
#include "mha/error.h"
#include "mha/view/captured_picture.h"
#include "mha/view/picture.h"
#include "mha/view/snapshot.h"
#include "model_folder.h"
#include "output_file.h"
#include "usual_cache.h"
#include "view_change.h"

namespace mha::app {
namespace {

struct Options {
  std::string text = kTelescope;
  std::string model;
  std::string tensors;
  std::string run = "t0";
  std::optional<Index> layer;
  std::optional<Index> head;
  std::vector<std::string> heads;
  std::string form;
  std::string view;
  std::string unit = "word";
  std::vector<std::string> marks;
  std::vector<std::string> titles;
  std::string out = "-";
  bool special = false;
  double least = 0.05;
  std::optional<Index> cell;
  std::optional<Index> pool;
  ChangeOptions change;
  bool all_heads() const { return heads.empty() && !layer; }
};

const std::vector<std::string> kForms = {"svg", "png", "csv", "json", "html"};
const std::vector<std::string> kViews = {"arcs", "matrix", "atlas"};
constexpr double kPageSeconds = 24 * 3600;  // Ctrl-C ends it, nothing else
constexpr Index kMostPool = 16384;          // pixels a side of a PNG

constexpr const char* kFooter = R"(The form is that of --out's ending, or SVG. Without --heads all heads are taken:
as an atlas, or a table of all. Text in an SVG stays text; it follows the
viewer's light or dark setting. Colours are viridis on a fixed scale from 0 to
1. In a PNG, index / 254 of the palette is the weight. CSV and JSON hold every
weight, special tokens' too, as the shortest decimals that give the f32 back
(docs/formats.md). HTML is the page of `mha serve` with this run in it: one file
that needs no server and no network.

A mark is a chain of words: "man,telescope" is the link from man to telescope.
With "5.11:" before it, it is one head's only; so with titles.

Examples:
  mha export --out atlas.svg
  mha export --heads 5.11 --mark man,telescope --out arcs.svg
  mha export --heads 5.11,5.4 --view matrix --special --out tables.svg
  mha export "The bank raised its rates." --layer 0 --head 3 --out head.png
  mha export --zero-head 5.4 --heads 5.11 --unit piece --out after.csv
  mha export --heads 5.11 --form json | python3 -m json.tool
  mha export --heads 5.11 --mark man,telescope --out telescope.html
  mha export --tensors captured.safetensors --heads 0.3 --view matrix --out a.svg
  mha export --tensors long.safetensors --heads 0.3 --pool 1024 --out map.png
The picture of the README:
  mha export --heads 5.11,5.4 --out docs/telescope.svg
    --mark 5.11:man,telescope --mark 5.4:man,astronomer,telescope
    --title "5.11:Reading 1: the man has the telescope"
    --title "5.4:Reading 2: the astronomer has the telescope")";

void check_one_of(const std::string& option, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) == known.end()) {
    throw Error(fmt::format("{}: no \"{}\"; there are {}", option, value, fmt::join(known, ", ")));
  }
}

std::string form_of(const Options& options) {
  if (!options.form.empty()) return options.form;
  if (options.out == "-") return "svg";
  std::string ending = std::filesystem::path(options.out).extension().string();
  if (!ending.empty()) ending.erase(0, 1);
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (std::find(kForms.begin(), kForms.end(), ending) == kForms.end()) {
    throw Error(fmt::format("--out: \"{}\" has none of the endings {}; give --form", options.out, fmt::join(kForms, ", ")));
  }
  return ending;
}

/// The heads asked for, in that order; empty: all.
std::vector<HeadId> heads_of(const Options& options) {
  if (options.layer.has_value() != options.head.has_value()) throw Error("--layer and --head are given together");
  if (options.layer && !options.heads.empty()) throw Error("--heads excludes --layer and --head");
  if (options.layer) return {{*options.layer, *options.head}};
  std::vector<HeadId> heads;
  for (const std::string& text : options.heads) {
    const HeadId id = head_in("--heads", text);
    if (std::find(heads.begin(), heads.end(), id) != heads.end()) throw Error(fmt::format("--heads: {} is given twice", text));
    heads.push_back(id);
  }
  return heads;
}

/// "5.11:rest" is the rest for one head; anything else is for all.
struct ForHeads {
  std::optional<HeadId> id;
  std::string rest;
};
ForHeads for_heads(const std::string& option, const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::size_t number = text.find_first_not_of("0123456789.");
  if (colon == std::string::npos || colon == 0 || number != colon) return {.id = {}, .rest = text};
  return {.id = head_in(option, text.substr(0, colon)), .rest = text.substr(colon + 1)};
}

/// Calls `found` with every head that `wanted` speaks of; throws where there is none.
template <class Found>
void each_head(const std::string& option, const ForHeads& wanted, Picture& picture, const Found& found) {
  bool any = false;
  for (PictureHead& head : picture.heads) {
    if (wanted.id && head.id != *wanted.id) continue;
    found(head);
    any = true;
  }
  if (!any) throw Error(fmt::format("{}: head {}.{} is not among those exported", option, wanted.id->layer, wanted.id->head));
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts = {""};
  for (char letter : text) {
    if (letter == by) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

/// Where a word is among units; throws where it is not.
using FindWord = std::function<Index(const std::vector<Unit>& units, const std::string& word)>;

/// Links of a chain of words.
std::vector<PictureLink> links_of(const std::string& chain, const Picture& picture, const FindWord& find) {
  const std::vector<std::string> words = split(chain, ',');
  if (words.size() < 2) throw Error(fmt::format("--mark: \"{}\" is one word, a link takes two, as in man,telescope", chain));
  std::vector<PictureLink> links;
  for (std::size_t i = 1; i < words.size(); ++i) links.push_back({find(picture.queries, words[i - 1]), find(picture.columns(), words[i])});
  return links;
}

void add_marks(Picture& picture, const Options& options, const FindWord& find) {
  picture.special = options.special;
  picture.least = options.least;
  for (const std::string& text : options.marks) {
    const ForHeads wanted = for_heads("--mark", text);
    const std::vector<PictureLink> links = links_of(wanted.rest, picture, find);
    each_head("--mark", wanted, picture, [&](PictureHead& head) { head.marks.insert(head.marks.end(), links.begin(), links.end()); });
  }
  for (const std::string& text : options.titles) {
    const ForHeads wanted = for_heads("--title", text);
    each_head("--title", wanted, picture, [&](PictureHead& head) { head.title = wanted.rest; });
  }
}

/// A word as it is written.
Index written_word(const std::vector<Unit>& units, const std::string& word) {
  try {
    return find_word(units, split_word_name(word));
  } catch (const Error& error) {
    throw Error(fmt::format("--mark: {}", error.what()));
  }
}

Picture picture_of_text(const Options& options, const OpenModel& model, const Sentence& sentence) {
  std::vector<HeadId> heads = heads_of(options);
  const bool pieces = options.unit == "piece";
  const std::vector<Unit>& units = pieces ? sentence.pieces : sentence.words;
  Workspace workspace;
  const Intervention intervention = intervention_of(options.change, model, sentence);
  const auto table = std::make_shared<HeadTable>(read_heads(model.transformer, sentence.ids, units, workspace, intervention));
  Picture picture{.text = options.text,
                  .model = model.name,
                  .change = options.change.any() ? what_of(options.change) : std::string(),
                  .pieces = pieces,
                  .queries = units,
                  .owner = table};
  if (options.all_heads()) heads = all_heads(model.transformer.config());
  for (HeadId id : heads) {
    require_head(model, id);
    picture.heads.push_back({.id = id, .weights = table->head(id)});
  }
  // Words may be called by what the model reads alike ("The" for "the"), pieces as they are written.
  add_marks(picture, options, [&](const std::vector<Unit>& all, const std::string& word) {
    return pieces ? written_word(all, word) : named_word("--mark", word, sentence, model.tokenizer);
  });
  return picture;
}

Picture picture_of_tensors(const Options& options, const CaptureFile& file) {
  Picture picture = captured_picture(file, {.run = options.run, .heads = heads_of(options), .pieces = options.unit == "piece"});
  add_marks(picture, options, written_word);
  return picture;
}

/// What is asked of the microscope: the text and the change.
nlohmann::json wish_of(const Options& options, const OpenModel& model, const Sentence& sentence) {
  const Intervention intervention = intervention_of(options.change, model, sentence);
  nlohmann::json wish = {{"text", options.text}, {"temperature", intervention.temperature}};
  for (HeadId id : intervention.zeroed) wish["zeroed"].push_back({id.layer, id.head});
  for (std::size_t word = 0; word < sentence.words.size(); ++word) {
    const bool hidden =
        std::find(intervention.hidden.begin(), intervention.hidden.end(), sentence.words[word].first) != intervention.hidden.end();
    if (hidden) wish["hidden"].push_back(word);
  }
  return wish;
}

/// What the page shows first: the first head asked for, and its first mark.
std::string state_of(const Options& options, const PictureHead& first) {
  std::string state = fmt::format("unit={}&layer={}&head={}&view={}", options.unit, first.id.layer, first.id.head,
                                  options.view == "matrix" ? "matrix" : "links");
  if (!options.tensors.empty()) state += "&tensors=" + options.run;
  if (!first.marks.empty()) state += fmt::format("&pin={0}&a={0}&b={1}", first.marks[0].from, first.marks[0].to);
  return state;
}

std::string page_of_text(const Options& options) {
  const OpenModel model = open_model(options.model);
  const Sentence sentence = read_sentence(model.tokenizer, options.text);
  const Picture picture = picture_of_text(options, model, sentence);
  const view::Microscope microscope({.transformer = &model.transformer,
                                     .tokenizer = &model.tokenizer,
                                     .name = model.name,
                                     .usual = [&](const Executor& executor) { return cached_usual_weights(model, executor); }},
                                    {.seconds = kPageSeconds});
  return view::snapshot_of_text(microscope, wish_of(options, model, sentence).dump(), {.state = state_of(options, picture.heads.front())});
}

std::string page_of_tensors(const Options& options) {
  const auto file = std::make_shared<const CaptureFile>(load_capture(options.tensors));
  PictureHead first{.id = options.all_heads() ? HeadId{} : heads_of(options).front(), .weights = {}};
  // Only marks want a picture, which long texts are too large for.
  if (!options.marks.empty()) first = picture_of_tensors(options, *file).heads.front();
  const view::Microscope microscope({}, {.seconds = kPageSeconds}, file);
  return view::snapshot_html(microscope, options.run, {.state = state_of(options, first)});
}

std::string self_contained(const Options& options) {
  if (!view::has_page()) {
    throw Error("--form html: this build has no page; ./run --page builds it (it wants Node 18 or later)");
  }
  return options.tensors.empty() ? page_of_text(options) : page_of_tensors(options);
}

/// Pixels a weight in a PNG where none are asked for: large enough to be seen, not more.
Index cell_of(const Options& options, const Picture& picture) {
  if (options.cell) return *options.cell;
  const auto units = static_cast<Index>(std::max<std::size_t>(picture.queries.size(), 1));
  return picture.heads.size() == 1 ? std::clamp<Index>(640 / units, 1, 32) : std::clamp<Index>(96 / units, 1, 8);
}

std::string drawn(const Options& options, const std::string& form, const Picture& picture) {
  if (form == "csv") return weights_csv(picture);
  if (form == "json") return weights_json(picture);
  if (form == "png") return matrix_png(picture, cell_of(options, picture));
  const std::string view = !options.view.empty()                                 ? options.view
                           : options.all_heads()                                 ? "atlas"
                           : picture.keys.empty() && picture.queries.size() < 64 ? "arcs"
                                                                                 : "matrix";
  return view == "arcs" ? arcs_svg(picture) : view == "matrix" ? matrix_svg(picture) : atlas_svg(picture);
}

/// Options of captured tensors: nothing is computed by a model there.
void check_tensors(const Options& options, const std::string& form) {
  if (options.tensors.empty()) {
    if (options.pool || options.run != Options().run) throw Error("--run and --pool are for --tensors FILE");
    return;
  }
  if (!options.model.empty() || options.text != kTelescope || options.change.any()) {
    throw Error("--tensors excludes TEXT, --model and changes: what is in the file was computed elsewhere");
  }
  if (!options.pool) return;
  if (form != "png" || heads_of(options).size() != 1) throw Error("--pool draws one head as --form png: give --layer and --head");
  if (*options.pool < 1 || *options.pool > kMostPool) throw Error(fmt::format("--pool is {}, must be 1 to {}", *options.pool, kMostPool));
}

/// What cannot go together is refused before anything is computed.
void check(const Options& options, const std::string& form) {
  check_one_of("--form", form, kForms);
  heads_of(options);
  check_one_of("--unit", options.unit, {"word", "piece"});
  if (!options.view.empty()) check_one_of("--view", options.view, kViews);
  const bool table = form == "csv" || form == "json";
  if (table && !options.view.empty()) throw Error(fmt::format("--view {} draws, --form {} is a table", options.view, form));
  if (form == "png" && options.view == "arcs") throw Error("--form png draws tables (--view matrix or atlas); arcs are --form svg");
  if (options.view == "arcs" && options.all_heads()) {
    throw Error("--view arcs draws single heads: name some, as in --heads 5.11,5.4 (mha view and mha find say which)");
  }
  if (options.cell && form != "png") throw Error(fmt::format("--cell is for --form png, not {}", form));
  if (!(options.least >= 0.0 && options.least <= 1.0)) throw Error(fmt::format("--least is {}, must be 0 to 1", options.least));
  check_tensors(options, form);
  if (form == "png" && options.out == "-" && isatty(STDOUT_FILENO) != 0) {
    throw Error("a PNG is not for terminals: give --out FILE.png");
  }
}

std::string exported(const Options& options, const std::string& form) {
  if (!options.tensors.empty()) {
    const CaptureFile file = load_capture(options.tensors);
    if (options.pool) return map_png(captured_map(file, options.run, heads_of(options).front(), *options.pool));
    return drawn(options, form, picture_of_tensors(options, file));
  }
  const OpenModel model = open_model(options.model);
  return drawn(options, form, picture_of_text(options, model, read_sentence(model.tokenizer, options.text)));
}

std::string run(const Options& options) {
  const std::string form = form_of(options);
  check(options, form);
  std::string bytes = form == "html" ? self_contained(options) : exported(options, form);
  if (options.out == "-") return bytes;
  write_file(options.out, bytes);
  return {};
}

}  // namespace

void add_export(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("export", "Pictures and tables of heads, as files to keep: SVG, PNG, CSV, JSON, HTML");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  add_text(*command, options->text);
  add_model_option(*command, options->model);
  command->add_option("--heads", options->heads, "Which heads, in this order (default: all)")
      ->type_name("LAYER.HEAD,...")
      ->delimiter(',')
      ->allow_extra_args(false);  // the text may follow
  add_number(*command, "--layer", options->layer, "With --head: one head");
  add_number(*command, "--head", options->head, "Counted from 0, as layers are");
  command->add_option("--form", options->form, fmt::format("{}", fmt::join(kForms, ", ")))->type_name("FORM");
  command->add_option("--view", options->view, fmt::format("What is drawn: {}", fmt::join(kViews, ", ")))->type_name("VIEW");
  command->add_option("--unit", options->unit, "word (the default) or piece")->type_name("UNIT");
  command->add_option("--mark", options->marks, "Let links stand out (may be given several times)")
      ->type_name("[LAYER.HEAD:]WORD,WORD,...")
      ->allow_extra_args(false);
  command->add_option("--title", options->titles, "What to write over a head")->type_name("[LAYER.HEAD:]TITLE")->allow_extra_args(false);
  command->add_option("--least", options->least, "Draw no arcs below this weight (default: 0.05)")->type_name("WEIGHT");
  add_number(*command, "--cell", options->cell, "PNG: pixels a side of a weight");
  command->add_option("--tensors", options->tensors, "Heads of any model, out of a file of captured tensors")->type_name("FILE");
  command->add_option("--run", options->run, "Which of the file's: t0 (the default), t1, ... as mha serve --tensors lists them")
      ->type_name("RUN");
  add_number(*command, "--pool", options->pool, "With --tensors, PNG: one head of any length, largest weights in N cells a side");
  command->add_flag("--special", options->special, "Draw [CLS] and [SEP] too");
  command->add_option("--out", options->out, "Where to; - is standard output (the default)")->type_name("FILE");
  add_change_options(*command, options->change);
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
