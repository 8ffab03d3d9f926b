// Reads what to change off the command line, compares two runs, prints what moved.
#include "view_change.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "mha/analysis/links.h"
#include "mha/analysis/measures.h"
#include "mha/error.h"

namespace mha::app {
namespace {

constexpr std::size_t kShownLinks = 8;
constexpr std::size_t kShownEntropies = 5;
constexpr int kLongestName = 20;

/// The whole text as a number, or nothing.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

bool hides(const Intervention& intervention, const Unit& unit) {
  return std::find(intervention.hidden.begin(), intervention.hidden.end(), unit.first) != intervention.hidden.end();
}

std::vector<MovedLink> moved_links(const ChangeInputs& inputs) {
  std::vector<MovedLink> links;
  for (Index layer = 0; layer < inputs.before.layers(); ++layer) {
    for (Index head = 0; head < inputs.before.heads(); ++head) {
      for (Index from : inputs.shown) {
        for (Index to : inputs.shown) {
          if (hides(inputs.intervention, inputs.units[static_cast<std::size_t>(to)])) continue;
          const HeadId id{layer, head};
          links.push_back({id, from, to, inputs.before.weight(id, from, to), inputs.after.weight(id, from, to)});
        }
      }
    }
  }
  const auto distance = [](const MovedLink& link) { return std::abs(link.after - link.before); };
  std::erase_if(links, [&](const MovedLink& link) { return distance(link) == 0.0F; });
  std::stable_sort(links.begin(), links.end(), [&](const MovedLink& a, const MovedLink& b) { return distance(a) > distance(b); });
  if (links.size() > kShownLinks) links.resize(kShownLinks);
  return links;
}

}  // namespace

std::string what_of(const ChangeOptions& options) {
  if (!options.temperature.empty()) return fmt::format("temperature {}: every head's scores divided by it", options.temperature);
  if (!options.mask_word.empty()) return fmt::format("nobody may attend to \"{}\"", options.mask_word);
  return fmt::format("head{} {} give{} 0", options.zero_heads.size() == 1 ? "" : "s", fmt::join(options.zero_heads, ", "),
                     options.zero_heads.size() == 1 ? "s" : "");
}

HeadId head_in(const std::string& option, const std::string& text) {
  const std::size_t dot = text.find('.');
  if (dot != std::string::npos) {
    const auto layer = number_in<Index>(std::string_view(text).substr(0, dot));
    const auto head = number_in<Index>(std::string_view(text).substr(dot + 1));
    if (layer && head) return {*layer, *head};
  }
  throw Error(fmt::format("{}: \"{}\" is not LAYER.HEAD, as in 5.11", option, text));
}

void add_change_options(CLI::App& command, ChangeOptions& options) {
  const std::string group = "Change one thing, and see what moves";
  command.add_option("--temperature", options.temperature, "Divide every head's scores by T: above 1 flattens, below 1 sharpens")
      ->type_name("T")
      ->group(group);
  command.add_option("--mask-word", options.mask_word, "Let nobody attend to this word")->type_name("WORD")->group(group);
  command.add_option("--zero-head", options.zero_heads, "Take this head's output away (may be given several times)")
      ->type_name("LAYER.HEAD")
      ->allow_extra_args(false)
      ->group(group);
}

Intervention intervention_of(const ChangeOptions& options, const OpenModel& model, const Sentence& sentence) {
  std::vector<std::string> given;
  if (!options.temperature.empty()) given.emplace_back("--temperature");
  if (!options.mask_word.empty()) given.emplace_back("--mask-word");
  if (!options.zero_heads.empty()) given.emplace_back("--zero-head");
  if (given.size() > 1) throw Error(fmt::format("{} are given together: change one thing at a time", fmt::join(given, " and ")));
  Intervention intervention;
  if (!options.temperature.empty()) {
    const auto temperature = number_in<float>(options.temperature);
    if (!temperature || !std::isfinite(*temperature) || *temperature <= 0.0F) {
      throw Error(fmt::format("--temperature: \"{}\" is not a number above 0", options.temperature));
    }
    intervention.temperature = *temperature;
  }
  if (!options.mask_word.empty()) {
    const Unit& word = sentence.words[static_cast<std::size_t>(named_word("--mask-word", options.mask_word, sentence, model.tokenizer))];
    for (Index piece = word.first; piece < word.first + word.count; ++piece) intervention.hidden.push_back(piece);
  }
  for (const std::string& head : options.zero_heads) {
    intervention.zeroed.push_back(head_in("--zero-head", head));
    require_head(model, intervention.zeroed.back());
  }
  return intervention;
}

Change compare_runs(const ChangeInputs& inputs, const ChangeOptions& options, double cosine) {
  Change change{.what = what_of(options), .cosine = cosine, .links = moved_links(inputs), .entropies = {}};
  double heads = 0.0;
  for (Index layer = 0; layer < inputs.before.layers(); ++layer) {
    for (Index head = 0; head < inputs.before.heads(); ++head) {
      const HeadId id{layer, head};
      if (!inputs.before.present(id)) continue;
      ++heads;
      const MovedEntropy entropy{id, measure(Measure::Entropy, inputs.before, id, inputs.units, inputs.shown),
                                 measure(Measure::Entropy, inputs.after, id, inputs.units, inputs.shown)};
      change.entropy_before += entropy.before;
      change.entropy_after += entropy.after;
      if (entropy.before != entropy.after) change.entropies.push_back(entropy);
      for (Index from : inputs.shown) {
        ++change.rows;
        if (strongest(inputs.before, id, from, inputs.shown) != strongest(inputs.after, id, from, inputs.shown)) ++change.rows_moved;
      }
    }
  }
  change.entropy_before /= heads;
  change.entropy_after /= heads;
  const auto distance = [](const MovedEntropy& entropy) { return std::abs(entropy.after - entropy.before); };
  std::stable_sort(change.entropies.begin(), change.entropies.end(),
                   [&](const MovedEntropy& a, const MovedEntropy& b) { return distance(a) > distance(b); });
  if (change.entropies.size() > kShownEntropies) change.entropies.resize(kShownEntropies);
  return change;
}

std::string change_text(const Change& change, const std::vector<std::string>& names, const Terminal& terminal) {
  const auto name = [&](Index unit) { return shorten(printable(names[static_cast<std::size_t>(unit)]), kLongestName); };
  std::string out = fmt::format("\n{}\n", bold(fmt::format("what moved: {}", printable(change.what)), terminal));
  out += fmt::format("  sentence vector    cosine {:.4f} between before and after\n", change.cosine);
  out += fmt::format("  mean entropy       {:.3f} -> {:.3f} nats\n", change.entropy_before, change.entropy_after);
  out += fmt::format("  strongest links    {} of {} changed (units x heads)\n", change.rows_moved, change.rows);
  if (change.links.empty()) return out + "  No weight of any head moved: no layer comes after the change.\n";
  out += "  the links that moved most\n";
  int width = 0;
  const auto label = [&](const MovedLink& link) { return fmt::format("{} -> {}", name(link.from), name(link.to)); };
  for (const MovedLink& link : change.links) width = std::max(width, display_width(label(link)));
  for (const MovedLink& link : change.links) {
    out += fmt::format("    layer {:>2}  head {:>2}   {}   {:.3f} -> {:.3f}\n", link.id.layer, link.id.head, pad_right(label(link), width),
                       link.before, link.after);
  }
  out += "  the heads whose entropy moved most\n";
  for (const MovedEntropy& entropy : change.entropies) {
    out += fmt::format("    layer {:>2}  head {:>2}   {:.3f} -> {:.3f} nats\n", entropy.id.layer, entropy.id.head, entropy.before,
                       entropy.after);
  }
  return out;
}

Json change_json(const Change& change, const std::vector<std::string>& names) {
  Json links = Json::array();
  for (const MovedLink& link : change.links) {
    Json json = head_json(link.id);
    json["from"] = names[static_cast<std::size_t>(link.from)];
    json["to"] = names[static_cast<std::size_t>(link.to)];
    json["before"] = json_number(link.before);
    json["after"] = json_number(link.after);
    links.push_back(std::move(json));
  }
  Json entropies = Json::array();
  for (const MovedEntropy& entropy : change.entropies) {
    Json json = head_json(entropy.id);
    json["before"] = entropy.before;
    json["after"] = entropy.after;
    entropies.push_back(std::move(json));
  }
  return {{"what", change.what},
          {"cosine", change.cosine},
          {"entropy", {{"before", change.entropy_before}, {"after", change.entropy_after}}},
          {"rows", change.rows},
          {"rows_moved", change.rows_moved},
          {"links", std::move(links)},
          {"entropies", std::move(entropies)}};
}

}  // namespace mha::app
