// The two formats of `mha score`. Intervals and lifts are shown only where heads were chosen on other sentences.
#include "score_report.h"

#include <fmt/format.h>

#include "json_numbers.h"

namespace mha::app {
namespace {

/// What was counted on the way: a key of the JSON, words of the table (nothing where it is always told), the number.
struct CountName {
  const char* key;
  const char* words;
  Index (*value)(const ScoredFile& file);
};
constexpr CountName kCounts[] = {
    {"sentences", nullptr, [](const ScoredFile& f) { return f.read.sentences; }},
    {"sentences_scored", nullptr, [](const ScoredFile& f) { return f.answered.sentences; }},
    {"words", nullptr, [](const ScoredFile& f) { return f.read.words; }},
    {"words_scored", nullptr, [](const ScoredFile& f) { return f.answered.words; }},
    {"multiword_tokens", "multiword tokens (their words are scored)", [](const ScoredFile& f) { return f.read.multiword_tokens; }},
    {"empty_nodes", "empty nodes (left out)", [](const ScoredFile& f) { return f.read.empty_nodes; }},
    {"cyclic_sentences", "sentences left out: cycle of heads", [](const ScoredFile& f) { return f.read.cyclic; }},
    {"several_roots_sentences", "sentences left out: several roots", [](const ScoredFile& f) { return f.read.several_roots; }},
    {"too_long_sentences", "sentences left out: longer than the model reads", [](const ScoredFile& f) { return f.answered.too_long; }},
    {"missing_heads", "words without a head (no arc)", [](const ScoredFile& f) { return f.read.missing_heads; }},
    {"heads_beyond", "words whose head is beyond the sentence (no arc)", [](const ScoredFile& f) { return f.read.heads_beyond; }},
    {"missing_relations", "words without a relation (no arc)", [](const ScoredFile& f) { return f.read.missing_relations; }},
    {"other_texts", "sentences whose # text is not their tokens (tokens used)", [](const ScoredFile& f) { return f.read.other_texts; }},
    {"words_of_several_pieces", "words of several pieces (summed over)", [](const ScoredFile& f) { return f.answered.of_several_pieces; }},
    {"words_sharing_pieces", "words sharing a piece with another", [](const ScoredFile& f) { return f.answered.sharing_pieces; }},
    {"words_without_pieces", "words that the tokenizer drops", [](const ScoredFile& f) { return f.answered.without_pieces; }},
    {"arcs_lost", "arcs lost with such words", [](const ScoredFile& f) { return f.answered.arcs_lost; }},
    {"cases_lost", "attachment cases lost with such words", [](const ScoredFile& f) { return f.answered.cases_lost; }},
};

constexpr const char* kDirectionNames[] = {"dep->head", "head->dep"};
constexpr const char* kViewpointNames[] = {"preposition", "object"};

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }
std::string interval(double low, double high) { return fmt::format("{:.1f}-{:.1f}", 100 * low, 100 * high); }
std::string head_name(HeadId id) { return fmt::format("{}.{}", id.layer, id.head); }

std::string counts_text(const ScoredFile& file, const Terminal& terminal) {
  std::string out = wrap(fmt::format("{}: {} sentences, {} words; scored: {} and {}\n", printable(file.file), file.read.sentences,
                                     file.read.words, file.answered.sentences, file.answered.words),
                         terminal.width, 2);
  for (const CountName& count : kCounts) {
    if (count.words != nullptr && count.value(file) > 0) out += fmt::format("  {:>6}  {}\n", count.value(file), count.words);
  }
  return out;
}

/// Two lines, the better direction first.
std::string relation_lines(const RelationScore& score, bool honest) {
  std::string out;
  for (const bool first : {true, false}) {
    const auto way = static_cast<std::size_t>((score.best == Direction::FromDependent) == first ? 0 : 1);
    const DirectionScore& one = score.directions[way];
    out += first ? fmt::format("{:<14.14}{:>6}", printable(score.relation), score.baseline.of) : std::string(20, ' ');
    out += fmt::format("  {:<9} {:>5}  {:>5} {:>11}", kDirectionNames[way], head_name(one.head), percent(one.score.value()),
                       honest ? interval(one.score.low, one.score.high) : "-");
    out += first ? fmt::format(" {:>+6} {:>6}", score.offset, percent(score.baseline.value())) : std::string(14, ' ');
    out += fmt::format(" {:>+6.1f}{}\n", 100 * one.lift.value, honest && one.lift.low > 0 ? " *" : "");
  }
  return out;
}

std::string relations_text(const ScoreReport& report, const Terminal& terminal) {
  std::string out = bold("relation        arcs  attention  head  found       95 %  offset  there   lift", terminal) + "\n";
  std::vector<std::string> rare;
  std::vector<std::string> unknown;
  for (const RelationScore& score : report.relations) {
    if (score.directions[0].chosen.of == 0) {
      unknown.push_back(printable(score.relation));
    } else if (score.baseline.of < report.least) {
      rare.push_back(printable(score.relation));
    } else {
      out += relation_lines(score, report.dev.has_value());
    }
  }
  if (!rare.empty()) {
    rare.front() = fmt::format("Fewer than {} arcs (in --json): {}", report.least, rare.front());
    out += wrap_items(rare, ", ", terminal.width, 0) + "\n";
  }
  if (!unknown.empty()) {
    unknown.front() = "Not in the file to choose by, so no head: " + unknown.front();
    out += wrap_items(unknown, ", ", terminal.width, 0) + "\n";
  }
  return out;
}

std::string attachment_line(const std::string& what, const Share& share, bool honest) {
  return fmt::format("  {:<46} {:>5} {:>11}", what, percent(share.value()), honest ? interval(share.low, share.high) : "-");
}

std::string attachment_text(const ScoreReport& report, const Terminal& terminal) {
  if (!report.attachment) return "Attachment: no verb - noun - preposition - noun in the file, or none to choose by.\n";
  const AttachmentScore& score = *report.attachment;
  const bool honest = report.dev.has_value();
  std::string out = bold("Attachment: verb - noun - preposition - noun, on which does the last noun hang?", terminal) + "\n";
  out += fmt::format("  {} cases: {} verb, {} noun", score.verbs + score.nouns, score.verbs, score.nouns);
  out += honest ? fmt::format("; to choose by: {} and {}\n", score.chosen_verbs, score.chosen_nouns) : "\n";
  out += attachment_line(fmt::format("always the {} (majority)", score.majority_verb ? "verb" : "noun"), score.majority, honest) + "\n";
  out += attachment_line("what the same preposition does more often", score.by_preposition, honest) + "\n";
  for (const bool first : {true, false}) {
    const auto view = static_cast<std::size_t>((score.best == Viewpoint::Preposition) == first ? 0 : 1);
    const ViewpointScore& one = score.viewpoints[view];
    const std::string what = fmt::format("head {} from the {}", head_name(one.head), kViewpointNames[view]);
    out += attachment_line(what, one.score, honest) + "\n";
    out += fmt::format("      above the majority {:+.1f}{}; verbs {}, nouns {}\n", 100 * one.lift.value,
                       honest ? fmt::format(" ({:+.1f} to {:+.1f})", 100 * one.lift.low, 100 * one.lift.high) : std::string(),
                       percent(one.of_verbs.value()), percent(one.of_nouns.value()));
  }
  return out;
}

Json share_json(const Share& share, bool honest) {
  Json json = {{"right", share.yes}, {"of", share.of}, {"share", share.of == 0 ? Json(nullptr) : Json(share.value())}};
  json["low"] = honest ? Json(share.low) : Json(nullptr);
  json["high"] = honest ? Json(share.high) : Json(nullptr);
  return json;
}

Json lift_json(const Lift& lift, bool honest) {
  return {{"value", lift.value}, {"low", honest ? Json(lift.low) : Json(nullptr)}, {"high", honest ? Json(lift.high) : Json(nullptr)}};
}

Json file_json(const ScoredFile& file) {
  Json json = {{"file", file.file}};
  for (const CountName& count : kCounts) json[count.key] = count.value(file);
  return json;
}

/// What directions and viewpoints have in common.
template <class Score>
Json chosen_json(const Score& one, bool honest) {
  Json json = head_json(one.head);
  json["chosen"] = share_json(one.chosen, false);
  json["found"] = share_json(one.score, honest);
  json["lift"] = lift_json(one.lift, honest);
  return json;
}

Json relation_json(const RelationScore& score, bool honest) {
  const bool chosen = score.directions[0].chosen.of > 0;
  Json json = {{"relation", score.relation}, {"arcs", score.baseline.of}};
  json["offset"] = chosen ? Json(score.offset) : Json(nullptr);
  json["baseline"] = chosen ? share_json(score.baseline, honest) : Json(nullptr);
  json["best"] = chosen ? Json(kDirectionNames[static_cast<std::size_t>(score.best)]) : Json(nullptr);
  json["directions"] = Json::array();
  for (std::size_t way = 0; way < score.directions.size() && chosen; ++way) {
    const DirectionScore& one = score.directions[way];
    Json entry = {{"attention", kDirectionNames[way]}};
    entry.update(chosen_json(one, honest));
    json["directions"].push_back(std::move(entry));
  }
  return json;
}

Json attachment_json(const AttachmentScore& score, bool honest) {
  Json json = {{"verbs", score.verbs}, {"nouns", score.nouns}, {"chosen_verbs", score.chosen_verbs}, {"chosen_nouns", score.chosen_nouns}};
  json["majority_answer"] = score.majority_verb ? "verb" : "noun";
  json["majority"] = share_json(score.majority, honest);
  json["by_preposition"] = share_json(score.by_preposition, honest);
  json["best"] = kViewpointNames[static_cast<std::size_t>(score.best)];
  json["viewpoints"] = Json::array();
  for (std::size_t view = 0; view < score.viewpoints.size(); ++view) {
    const ViewpointScore& one = score.viewpoints[view];
    Json entry = {{"viewpoint", kViewpointNames[view]}};
    entry.update(chosen_json(one, honest));
    entry["of_verbs"] = share_json(one.of_verbs, honest);
    entry["of_nouns"] = share_json(one.of_nouns, honest);
    json["viewpoints"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

std::string odd_counts(const ScoredFile& file) {
  std::string out;
  for (const CountName& count : kCounts) {
    if (count.words == nullptr || count.value(file) == 0) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : "; ", count.value(file), count.words);
  }
  return out;
}

std::string score_table(const ScoreReport& report, const Terminal& terminal) {
  const Index choices = report.layers * report.heads - report.removed;
  std::string out = wrap(fmt::format("{}: {}", printable(report.model), report.size), terminal.width, 0) + "\n";
  out += counts_text(report.file, terminal);
  if (report.dev) {
    out += "Chosen on " + counts_text(*report.dev, terminal);
  } else {
    out +=
        wrap(fmt::format("Heads, offsets and majorities are chosen on the same file that is reported: OPTIMISTIC, the best of {} heads on "
                         "these very sentences. For accuracies with intervals give other sentences to choose by: --dev FILE.",
                         choices),
             terminal.width, 0) +
        "\n";
  }
  out += "\n" + relations_text(report, terminal) + "\n" + attachment_text(report, terminal);
  return out;
}

std::string score_json(const ScoreReport& report) {
  const bool honest = report.dev.has_value();
  Json json = {{"model", report.model}, {"layers", report.layers}, {"heads", report.heads}, {"removed", report.removed}};
  json["chosen_on_the_same_file"] = !honest;
  json["file"] = file_json(report.file);
  json["dev"] = honest ? file_json(*report.dev) : Json(nullptr);
  json["relations"] = Json::array();
  for (const RelationScore& score : report.relations) json["relations"].push_back(relation_json(score, honest));
  json["attachment"] = report.attachment ? attachment_json(*report.attachment, honest) : Json(nullptr);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mha::app
