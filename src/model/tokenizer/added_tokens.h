// Added tokens: tokens found in the text itself, before (or, where they are `normalized`, after) normalisation, ahead of any cutting into
// words. Called by tokenizer.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/json_fields.h"
#include "model/tokenizer/normalize.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/vocabulary.h"

namespace mha::model {

class AddedTokens {
 public:
  static constexpr Index kNoToken = -1;
  /// Letters [begin, end) of a text: an added token, or text between two (id is kNoToken).
  struct Part {
    Index id = kNoToken;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  enum class Stage : std::uint8_t { Original, Normalized };

  /// The parts of a text in order; at each place the longest token wins. `stage` says which tokens are looked for.
  std::vector<Part> split(std::span<const Letter> text, Stage stage) const;

  /// From the field "added_tokens" of tokenizer.json. Adds to the vocabulary what is not there yet. Throws FormatError where an id is not
  /// the one the vocabulary gives, a token is empty or there twice.
  static AddedTokens read(const JsonFields& file, const Normalizer& normalizer, Vocabulary& vocabulary);

 private:
  struct Token {
    Index id = 0;
    std::u32string pattern;
    bool single_word = false;
    bool strip_left = false;
    bool strip_right = false;
  };
  /// Tokens by their first code point, the longest first.
  using Patterns = std::unordered_map<char32_t, std::vector<Token>>;

  static const Token* match(const Patterns& patterns, std::span<const Letter> text);
  const Patterns& patterns(Stage stage) const { return stage == Stage::Original ? original_ : normalized_; }

  Patterns original_;
  Patterns normalized_;
};

}  // namespace mha::model
