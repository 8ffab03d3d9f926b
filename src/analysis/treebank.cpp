// From a tree and the tables of its sentence to yes and no: alignment of words and pieces, arcs, verb - noun - preposition - noun cases,
// and the run over a whole treebank.
#include "mha/analysis/treebank.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/executor.h"
#include "mha/error.h"

namespace mha {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Words [first, end) whose part of the text a piece touches.
struct WordRange {
  Index first = 0;
  Index end = 0;
};

/// Spans of words begin in order, and so do pieces; `from` is a word before which no further piece touches one.
WordRange touched(std::span<const TreeWord> words, const TextSpan& piece, Index& from) {
  const auto count = static_cast<Index>(words.size());
  while (from < count && words[at(from)].bytes.end <= piece.begin) ++from;
  WordRange range{from, from};
  while (range.end < count && words[at(range.end)].bytes.begin < piece.end) ++range.end;
  return range;
}

/// Position of the largest of `row`'s entries at `plain`, `self` left out; the first of equals, -1 for none.
Index largest_other(const float* row, Index stride, std::span<const Index> plain, Index self) {
  Index best = -1;
  for (const Index unit : plain) {
    if (unit != self && (best < 0 || row[unit * stride] > row[best * stride])) best = unit;
  }
  return best;
}

struct CaseWords {
  Index verb, noun, preposition, object;
  bool to_verb;
};

/// The verb - noun - preposition - noun that ends in word `object`, if one does.
std::optional<CaseWords> case_of(std::span<const TreeWord> words, Index object) {
  const TreeWord& last = words[at(object)];
  if (last.head < 0) return std::nullopt;
  Index preposition = 0;
  while (preposition < object && (words[at(preposition)].head != object || words[at(preposition)].relation != "case")) ++preposition;
  if (preposition == object) return std::nullopt;
  const auto is_object = [&](Index noun, Index verb) { return words[at(noun)].head == verb && words[at(noun)].relation == "obj"; };
  if (last.relation == "obl") {
    const Index verb = last.head;
    for (Index noun = preposition - 1; noun > verb; --noun) {
      if (words[at(verb)].upos == "VERB" && is_object(noun, verb)) return CaseWords{verb, noun, preposition, object, true};
    }
  } else if (last.relation == "nmod") {
    const Index noun = last.head;
    const Index verb = words[at(noun)].head;
    const bool fits = verb >= 0 && verb < noun && noun < preposition && words[at(verb)].upos == "VERB" && is_object(noun, verb);
    if (fits) return CaseWords{verb, noun, preposition, object, false};
  }
  return std::nullopt;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

}  // namespace

AlignedWords align_words(const TreeSentence& sentence, const Tokenizer& tokenizer) {
  const Encoding encoding = tokenizer.encode(sentence.text);
  AlignedWords aligned{.ids = encoding.ids, .units = {}, .unit_of = std::vector<Index>(sentence.words.size(), AlignedWords::kNoUnit)};
  WordRange open{0, 0};  // words of the last unit
  Index from = 0;
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    Unit piece{.text = encoding.tokens[i], .key = encoding.tokens[i], .first = static_cast<Index>(i), .special = encoding.special[i]};
    if (piece.special) {
      aligned.units.push_back(std::move(piece));
      continue;
    }
    const WordRange words = touched(sentence.words, encoding.bytes[i], from);
    const bool same = words.first < words.end && words.first < open.end;  // further pieces of the last unit's words, or of one of them
    if (same) {
      ++aligned.units.back().count;
      open.end = std::max(open.end, words.end);
    } else {
      aligned.units.push_back(std::move(piece));
      open = words;
    }
    const Index unit = static_cast<Index>(aligned.units.size()) - 1;
    for (Index w = open.first; w < open.end; ++w) aligned.unit_of[at(w)] = unit;
  }
  std::vector<Index> owners(aligned.units.size());
  for (const Index unit : aligned.unit_of) {
    if (unit >= 0) ++owners[at(unit)];
  }
  for (Index& unit : aligned.unit_of) {
    if (unit < 0) {
      ++aligned.without_pieces;
    } else if (owners[at(unit)] > 1) {
      ++aligned.sharing_pieces;
      unit = AlignedWords::kNoUnit;
    } else if (aligned.units[at(unit)].count > 1) {
      ++aligned.of_several_pieces;
    }
  }
  return aligned;
}

TreebankAnswers::TreebankAnswers(Index layers, Index heads) : layers_(layers), heads_(heads) {
  MHA_CHECK(ShapeError, layers >= 0 && heads >= 0, "treebank: ", layers, " layers, ", heads, " heads");
  present_.resize(at(layers * heads));
}

Index TreebankAnswers::relation_number(const std::string& name) {
  const auto [place, is_new] = numbers_.try_emplace(name, static_cast<Index>(relations_.size()));
  if (is_new) relations_.push_back(name);
  return place->second;
}

void TreebankAnswers::add(const TreeSentence& sentence, const AlignedWords& words, const HeadTable& table) {
  MHA_CHECK(ShapeError, table.layers() == layers_ && table.heads() == heads_, "treebank: a table of ", table.layers(), " x ", table.heads(),
            " heads for ", layers_, " x ", heads_);
  MHA_CHECK(ShapeError, std::cmp_equal(words.units.size(), table.units()) && words.unit_of.size() == sentence.words.size(),
            "treebank: a table of ", table.units(), " units for ", words.units.size(), ", ", words.unit_of.size(), " words for ",
            sentence.words.size());
  add_arcs(sentence, words, table);
  add_cases(sentence, words, table);
  for (std::size_t i = 0; i < present_.size(); ++i) {
    const auto number = static_cast<Index>(i);
    present_[i] = present_[i] || table.present({number / heads_, number % heads_});
  }
  ++counts_.sentences;
  counts_.words += static_cast<Index>(sentence.words.size());
  counts_.without_pieces += words.without_pieces;
  counts_.sharing_pieces += words.sharing_pieces;
  counts_.of_several_pieces += words.of_several_pieces;
}

void TreebankAnswers::add_arcs(const TreeSentence& sentence, const AlignedWords& words, const HeadTable& table) {
  struct Question {
    Index dependent, head;  // units
  };
  std::vector<Question> questions;
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    const TreeWord& word = sentence.words[w];
    if (word.head < 0) continue;
    const Question question{words.unit_of[w], words.unit_of[at(word.head)]};
    if (question.dependent < 0 || question.head < 0) {
      ++counts_.arcs_lost;
      continue;
    }
    questions.push_back(question);
    arcs_.push_back({relation_number(word.relation), counts_.sentences, word.head - static_cast<Index>(w)});
  }
  const std::vector<Index> plain = plain_units(words.units);
  const std::size_t old = found_.size();
  found_.resize(arcs_.size() * at(kDirections * layers_ * heads_));
  std::uint8_t* out = found_.data() + old;
  for (const Question& question : questions) {
    for (const Direction direction : {Direction::FromDependent, Direction::ToDependent}) {
      const bool row = direction == Direction::FromDependent;
      for (Index layer = 0; layer < layers_; ++layer) {
        for (Index head = 0; head < heads_; ++head) {
          const float* const weights = table.row({layer, head}, 0).data();
          const float* const seen = weights + question.dependent * (row ? table.units() : 1);
          *out++ = largest_other(seen, row ? 1 : table.units(), plain, question.dependent) == question.head ? 1 : 0;
        }
      }
    }
  }
}

void TreebankAnswers::add_cases(const TreeSentence& sentence, const AlignedWords& words, const HeadTable& table) {
  for (Index object = 0; object < static_cast<Index>(sentence.words.size()); ++object) {
    const std::optional<CaseWords> found = case_of(sentence.words, object);
    if (!found) continue;
    const Index verb = words.unit_of[at(found->verb)];
    const Index noun = words.unit_of[at(found->noun)];
    const Index views[] = {words.unit_of[at(found->preposition)], words.unit_of[at(found->object)]};
    if (std::min({verb, noun, views[0], views[1]}) < 0) {
      ++counts_.cases_lost;
      continue;
    }
    cases_.push_back({counts_.sentences, found->to_verb, lower(sentence.words[at(found->preposition)].form)});
    for (const Index view : views) {
      for (Index layer = 0; layer < layers_; ++layer) {
        for (Index head = 0; head < heads_; ++head) {
          said_verb_.push_back(table.weight({layer, head}, view, verb) > table.weight({layer, head}, view, noun) ? 1 : 0);
        }
      }
    }
  }
}

void TreebankAnswers::append(const TreebankAnswers& other) {
  MHA_CHECK(ShapeError, other.layers_ == layers_ && other.heads_ == heads_, "treebank: answers of ", other.layers_, " x ", other.heads_,
            " heads to ", layers_, " x ", heads_);
  for (Arc arc : other.arcs_) {
    arc.relation = relation_number(other.relations_[at(arc.relation)]);
    arc.sentence += counts_.sentences;
    arcs_.push_back(arc);
  }
  for (Case one : other.cases_) {
    one.sentence += counts_.sentences;
    cases_.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < present_.size(); ++i) present_[i] = present_[i] || other.present_[i];
  found_.insert(found_.end(), other.found_.begin(), other.found_.end());
  said_verb_.insert(said_verb_.end(), other.said_verb_.begin(), other.said_verb_.end());
  for (Index TreebankCounts::* count :
       {&TreebankCounts::sentences, &TreebankCounts::too_long, &TreebankCounts::words, &TreebankCounts::without_pieces,
        &TreebankCounts::sharing_pieces, &TreebankCounts::of_several_pieces, &TreebankCounts::arcs_lost, &TreebankCounts::cases_lost}) {
    counts_.*count += other.counts_.*count;
  }
}

std::size_t TreebankAnswers::place(Index entry, Index way, HeadId id) const {
  MHA_CHECK(ShapeError, id.layer >= 0 && id.layer < layers_ && id.head >= 0 && id.head < heads_, "treebank: layer ", id.layer, ", head ",
            id.head, " of ", layers_, " x ", heads_);
  return at(((entry * 2 + way) * layers_ + id.layer) * heads_ + id.head);
}

bool TreebankAnswers::present(HeadId id) const { return present_[place(0, 0, id)]; }

bool TreebankAnswers::finds(Index arc, Direction direction, HeadId id) const {
  MHA_CHECK(ShapeError, arc >= 0 && std::cmp_less(arc, arcs_.size()), "treebank: arc ", arc, " of ", arcs_.size());
  return found_[place(arc, static_cast<Index>(direction), id)] != 0;
}

bool TreebankAnswers::says_verb(Index number, Viewpoint viewpoint, HeadId id) const {
  MHA_CHECK(ShapeError, number >= 0 && std::cmp_less(number, cases_.size()), "treebank: case ", number, " of ", cases_.size());
  return said_verb_[place(number, static_cast<Index>(viewpoint), id)] != 0;
}

namespace {

/// One sentence, on the calling thread alone.
TreebankAnswers answer_sentence(const Transformer& model, const Tokenizer& tokenizer, const TreeSentence& sentence, Workspace& workspace) {
  const TransformerConfig& config = model.config();
  TreebankAnswers answers(config.layers, config.heads);
  const AlignedWords words = align_words(sentence, tokenizer);
  if (std::cmp_greater(words.ids.size(), config.max_positions)) {
    answers.skip_too_long();
  } else {
    answers.add(sentence, words, read_heads(model, words.ids, words.units, workspace));
  }
  return answers;
}

}  // namespace

void answer_treebank(const Transformer& model, const Tokenizer& tokenizer, ConlluReader& reader, TreebankAnswers& answers,
                     Workspace& workspace, const std::function<void(Index)>& progress) {
  constexpr Index kTasksAThread = 16;  // sentences held at once; enough that a long one is not waited for
  constexpr double kManyFlops = 1e9;   // a sentence is worth a thread
  const Index block = kTasksAThread * workspace.executor().concurrency;
  const int workers = core::workers_for(workspace.executor(), block, kManyFlops);
  std::vector<Workspace> own;
  for (int i = 0; i < workers; ++i) own.emplace_back(serial_executor());
  std::vector<TreeSentence> sentences;
  Index done = 0;
  for (bool more = true; more;) {
    sentences.clear();
    while (std::cmp_less(sentences.size(), block)) {
      TreeSentence sentence;
      more = reader.next(sentence);
      if (!more) break;
      sentences.push_back(std::move(sentence));
    }
    std::vector<std::optional<TreebankAnswers>> parts(sentences.size());
    std::vector<std::exception_ptr> errors(sentences.size());
    core::run_tasks(workspace.executor(), workers, static_cast<Index>(sentences.size()), [&](int worker, Index i) {
      try {
        parts[at(i)] = answer_sentence(model, tokenizer, sentences[at(i)], own[static_cast<std::size_t>(worker)]);
      } catch (...) {
        errors[at(i)] = std::current_exception();
      }
    });
    for (std::size_t i = 0; i < sentences.size(); ++i) {
      if (errors[i]) std::rethrow_exception(errors[i]);
      if (parts[i]) answers.append(*parts[i]);
    }
    done += static_cast<Index>(sentences.size());
    if (progress) progress(done);
  }
}

}  // namespace mha
