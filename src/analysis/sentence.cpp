// From the tokenizer's encoding to pieces and words. What is called the same word, and by which name, is in words.cpp.
#include "mha/analysis/sentence.h"

#include <algorithm>

#include "analysis/kept_tokens.h"
#include "core/check.h"
#include "mha/error.h"

namespace mha {
namespace {

constexpr std::string_view kUnknown = "[UNK]";  // of WordPiece: says nothing about which word it was

Unit piece_unit(const Encoding& encoding, std::size_t i) {
  return {.text = encoding.tokens[i],
          .key = encoding.tokens[i],
          .first = static_cast<Index>(i),
          .count = 1,
          .special = encoding.special[i],
          .bytes = encoding.bytes[i]};
}

/// The word of pieces [first, end).
Unit word_unit(const std::string& text, const Encoding& encoding, std::size_t first, std::size_t end) {
  Unit word{.text = {}, .key = {}, .first = static_cast<Index>(first), .count = static_cast<Index>(end - first), .special = false};
  word.bytes = {encoding.bytes[first].begin, encoding.bytes[end - 1].end};
  word.text = text.substr(static_cast<std::size_t>(word.bytes.begin), static_cast<std::size_t>(word.bytes.end - word.bytes.begin));
  for (std::size_t i = first; i < end; ++i) {
    if (encoding.tokens[i] == kUnknown) {
      word.key.clear();
      break;
    }
    if (i > first) word.key += ' ';
    word.key += encoding.tokens[i];
  }
  return word;
}

/// The encoding's pieces at these places alone.
Encoding selected(const Encoding& all, std::span<const std::size_t> places) {
  Encoding kept;
  for (const std::size_t i : places) {
    kept.ids.push_back(all.ids[i]);
    kept.tokens.push_back(all.tokens[i]);
    kept.chars.push_back(all.chars[i]);
    kept.bytes.push_back(all.bytes[i]);
    kept.words.push_back(all.words[i]);
    kept.special.push_back(all.special[i]);
    kept.token_types.push_back(all.token_types[i]);
  }
  return kept;
}

}  // namespace

std::vector<std::size_t> analysis::kept_tokens(const Encoding& encoding, std::size_t most) {
  std::size_t last = 0;  // tokens of the frame at the end
  while (last < encoding.size() && encoding.special[encoding.size() - 1 - last]) ++last;
  last = std::min(last, most);
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    if (encoding.size() <= most || i < most - last || i >= encoding.size() - last) kept.push_back(i);
  }
  return kept;
}

Sentence read_sentence(const Tokenizer& tokenizer, const std::string& text, Index most) {
  Encoding encoding = tokenizer.encode(text);
  const auto whole = static_cast<Index>(encoding.size());
  if (whole > most) encoding = selected(encoding, analysis::kept_tokens(encoding, static_cast<std::size_t>(std::max(most, Index{0}))));
  Sentence sentence{.text = text, .ids = encoding.ids, .pieces = {}, .words = {}, .left_out = whole - static_cast<Index>(encoding.size())};
  for (std::size_t i = 0; i < encoding.size(); ++i) sentence.pieces.push_back(piece_unit(encoding, i));
  for (std::size_t i = 0; i < encoding.size();) {
    std::size_t end = i + 1;
    if (encoding.special[i] || encoding.words[i] == Encoding::kNoWord) {
      sentence.words.push_back(sentence.pieces[i]);
    } else {
      while (end < encoding.size() && encoding.words[end] == encoding.words[i]) ++end;
      sentence.words.push_back(word_unit(text, encoding, i, end));
    }
    i = end;
  }
  MHA_CHECK(Error, !plain_units(sentence.words).empty(), "text has no word in it");
  return sentence;
}

Index find_word(const Sentence& sentence, const Tokenizer& tokenizer, std::string_view name) {
  WordName wanted = split_word_name(name);
  const Encoding encoding = tokenizer.encode(wanted.text, false);
  bool one_word = encoding.size() > 0;
  for (std::size_t i = 0; i < encoding.size(); ++i) one_word = one_word && encoding.words[i] == encoding.words[0];
  if (one_word) wanted.key = word_unit(wanted.text, encoding, 0, encoding.size()).key;
  return find_word(sentence.words, wanted);
}

}  // namespace mha
