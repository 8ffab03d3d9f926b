// mha compare: which heads change between two sentences, and which of them make the difference.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "command.h"
#include "json_numbers.h"
#include "mha/analysis/measures.h"
#include "mha/analysis/patching.h"
#include "mha/error.h"
#include "model_folder.h"
#include "terminal.h"

namespace mha::app {
namespace {

struct Options {
  std::string a;
  std::string b;
  std::string model;
  std::string sort = "towards";
  bool json = false;
};

/// A number to sort by: the largest first.
struct SortKey {
  const char* name;
  double (*value)(const HeadComparison& head);
};
constexpr SortKey kSortKeys[] = {
    {"towards", [](const HeadComparison& head) { return head.towards; }},
    {"moved", [](const HeadComparison& head) { return head.moved; }},
    {"weights", [](const HeadComparison& head) { return std::isnan(head.weights) ? -1.0 : head.weights; }},
    {"head", [](const HeadComparison&) { return 0.0; }},
};

struct Comparison {
  Sentence a, b;
  TextComparison texts;
  std::string model, size;
};

constexpr const char* kFooter = R"(Patching: A is read again with one head's output, where it enters W_O, taken from
the run of B. Where texts have equally many words the n-th word of A takes the
n-th of B's; otherwise only words that both texts have, in order, take theirs, and
the other words keep their own (the output says which). Where two such words have
not equally many pieces, A's takes the mean over the pieces of B's.

  towards   by how much the patch brings A's sentence vector nearer to B's, as a
            difference of cosines; below 0: away from it
  moved     1 - cosine of A's sentence vectors before and after the patch
  weights   how differently the matched words attend: half the sum of differences
            of their weights, mean over words; 0 alike, 1 nothing in common
  measures  as in mha view --measure, of A and of B

A patch shows what a head carries that differs, given all else of A. Several
heads may carry the same: then none of them alone moves much.

Examples:
  mha compare "The man saw the dog." "The man saw the cat."
  mha compare "The bank raised its rates." "The river burst its banks." --sort weights
  mha compare "He ate." "He ate the apple." --json)";

Comparison compare(const Options& options) {
  const OpenModel model = open_model(options.model);
  const auto read = [&](const char* name, const std::string& text) {
    try {
      return read_sentence(model.tokenizer, text);
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", name, error.what()));
    }
  };
  Comparison comparison{.a = read("TEXT_A", options.a),
                        .b = read("TEXT_B", options.b),
                        .texts = {},
                        .model = model.name,
                        .size = size_text(model.transformer.config())};
  Workspace workspace;
  comparison.texts = compare_texts(model.transformer, comparison.a, comparison.b, workspace);
  for (const SortKey& key : kSortKeys) {
    if (options.sort != key.name) continue;
    std::stable_sort(comparison.texts.heads.begin(), comparison.texts.heads.end(),
                     [&](const HeadComparison& x, const HeadComparison& y) { return key.value(x) > key.value(y); });
  }
  return comparison;
}

/// "man -> dog" where words differ; words without a partner.
std::string matching_text(const Comparison& comparison, const Terminal& terminal) {
  const std::vector<std::string> a = word_names(comparison.a.words);
  const std::vector<std::string> b = word_names(comparison.b.words);
  std::vector<bool> a_matched(a.size()), b_matched(b.size());
  std::vector<std::string> changed;
  for (const MatchedWords& pair : comparison.texts.words) {
    const Unit& x = comparison.a.words[static_cast<std::size_t>(pair.a)];
    const Unit& y = comparison.b.words[static_cast<std::size_t>(pair.b)];
    a_matched[static_cast<std::size_t>(pair.a)] = b_matched[static_cast<std::size_t>(pair.b)] = true;
    if (x.text != y.text && (x.key.empty() || x.key != y.key)) {
      changed.push_back(
          fmt::format("{} -> {}", printable(a[static_cast<std::size_t>(pair.a)]), printable(b[static_cast<std::size_t>(pair.b)])));
    }
  }
  const auto lonely = [](const std::vector<std::string>& names, const std::vector<bool>& matched) {
    std::vector<std::string> list;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!matched[i]) list.push_back(printable(names[i]));
    }
    return list.empty() ? std::string("none") : fmt::format("{}", fmt::join(list, " "));
  };
  if (comparison.texts.by_position) {
    const std::string what = changed.empty() ? "all alike" : fmt::format("{}", fmt::join(changed, ", "));
    return wrap(fmt::format("Equally many words, matched by position; different: {}", what), terminal.width, 0) + "\n";
  }
  return wrap(fmt::format("Not equally many words: those of both, in order, are matched; only in A: {}; only in B: {}",
                          lonely(a, a_matched), lonely(b, b_matched)),
              terminal.width, 0) +
         "\n";
}

std::string comparison_text(const Comparison& comparison, const Terminal& terminal) {
  std::string out = wrap(fmt::format("A: {}", one_line(comparison.a.text)), terminal.width, 3) + "\n";
  out += wrap(fmt::format("B: {}", one_line(comparison.b.text)), terminal.width, 3) + "\n";
  out += wrap(fmt::format("{}: {}", printable(comparison.model), comparison.size), terminal.width, 0) + "\n";
  out += matching_text(comparison, terminal);
  out += wrap(fmt::format("Cosine of the sentence vectors: {:.4f}. Patched: A with this one head's output from B. Measures: of A, of B.",
                          comparison.texts.cosine),
              terminal.width, 0) +
         "\n\n";
  // Measures of both texts, as far as there is room beside the patch.
  const std::vector<std::string_view> shown = {"special", "entropy", "previous"};
  std::string head = "layer head   towards    moved  weights";
  for (const std::string_view name : shown) head += fmt::format("   {:>9}", name);
  out += bold(head, terminal) + "\n";
  for (const HeadComparison& row : comparison.texts.heads) {
    const std::string weights = std::isnan(row.weights) ? "-" : fmt::format("{:.3f}", row.weights);
    out += fmt::format("{:>5} {:>4}  {:>+8.4f}  {:>7.4f}  {:>7}", row.id.layer, row.id.head, row.towards, row.moved, weights);
    for (const std::string_view name : shown) {
      const auto place = std::find_if(measures().begin(), measures().end(), [&](const MeasureInfo& info) { return info.name == name; });
      const auto i = static_cast<std::size_t>(place - measures().begin());
      out += fmt::format("   {:.2f} {:.2f}", row.a[i], row.b[i]);
    }
    out += '\n';
  }
  return out;
}

std::string comparison_json(const Comparison& comparison) {
  Json json = {{"a", comparison.a.text}, {"b", comparison.b.text}, {"model", comparison.model}, {"cosine", comparison.texts.cosine}};
  json["matched_by"] = comparison.texts.by_position ? "position" : "sequence";
  const std::vector<std::string> a = word_names(comparison.a.words);
  const std::vector<std::string> b = word_names(comparison.b.words);
  json["words"] = Json::array();
  for (const MatchedWords& pair : comparison.texts.words) {
    json["words"].push_back({a[static_cast<std::size_t>(pair.a)], b[static_cast<std::size_t>(pair.b)]});
  }
  json["heads"] = Json::array();
  for (const HeadComparison& row : comparison.texts.heads) {
    Json entry = head_json(row.id);
    entry["towards"] = row.towards;
    entry["moved"] = row.moved;
    entry["weights"] = row.weights;
    for (std::size_t i = 0; i < measures().size(); ++i) entry["measures"][std::string(measures()[i].name)] = {row.a[i], row.b[i]};
    json["heads"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

std::string run(const Options& options) {
  const Comparison comparison = compare(options);
  return options.json ? comparison_json(comparison) : comparison_text(comparison, this_terminal());
}

}  // namespace

void add_compare(CLI::App& app, Output& output) {
  CLI::App* command = app.add_subcommand("compare", "Which heads change between two texts, and which make the difference");
  auto options = std::make_shared<Options>();
  command->footer(kFooter);
  command->add_option("TEXT_A", options->a, "The text that is patched")->type_name("")->required();
  command->add_option("TEXT_B", options->b, "The text that heads' outputs are taken from")->type_name("")->required();
  add_model_option(*command, options->model);
  std::vector<std::string> names;
  for (const SortKey& key : kSortKeys) names.emplace_back(key.name);
  command->add_option("--sort", options->sort, fmt::format("Largest first, by {} (default: towards)", fmt::join(names, ", ")))
      ->check(CLI::IsMember(names))
      ->type_name("NAME");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &output] { output.text = run(*options); });
}

}  // namespace mha::app
