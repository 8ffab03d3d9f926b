// A text as the model reads it: pieces of the tokenizer, and the words they make up. Used by everything that shows or ranks heads by word.
//
//   mha::Sentence sentence = mha::read_sentence(tokenizer, "The man saw the astronomer with a telescope.");
//   mha::Index man = mha::find_word(sentence, tokenizer, "man");
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mha/model/tokenizer.h"
#include "mha/tensor.h"

namespace mha {

/// A run of consecutive pieces looked at as one: a word, or a single piece.
struct Unit {
  std::string text;      // as it stands in the text ("Astronomer"); special ones as the tokenizer names them ("[CLS]")
  std::string key;       // as the model reads it ("astronomer"): two words of one key are the same word to the model
  Index first = 0;       // its first piece
  Index count = 1;       // its pieces
  bool special = false;  // added by the tokenizer: [CLS], [SEP]
  TextSpan bytes = {};   // where it stands in the text, in bytes; empty for special ones
};

struct Sentence {
  std::string text;
  std::vector<Index> ids;    // one per piece, special ones included
  std::vector<Unit> pieces;  // one per piece
  std::vector<Unit> words;   // punctuation marks are words of their own
  Index left_out = 0;        // pieces at the end of the text that were not taken in
};

/// Tokenizes `text`, at most `most` pieces of it, the special ones at both ends included. Throws Error where nothing is left of it (no word
/// at all), FormatError where it is not UTF-8.
Sentence read_sentence(const Tokenizer& tokenizer, const std::string& text, Index most = std::numeric_limits<Index>::max());

/// Position in `sentence.words` of the word called `name`: as written, or any word that the model reads as the same pieces (an uncased
/// model does not tell "the" from "The"). "the#2" is the second of several. Throws Error, listing the words, where there is none, or
/// several and no number.
Index find_word(const Sentence& sentence, const Tokenizer& tokenizer, std::string_view name);

/// The same for a name whose key is known. `name` is split into text and number by the caller's rules only through `split_word_name`.
struct WordName {
  std::string text;
  std::string key;
  Index number = 0;  // counted from 1; 0: not given
};
/// "the#2" -> {"the", 2}; a name without a positive number after its last '#' stays whole.
WordName split_word_name(std::string_view name);
Index find_word(std::span<const Unit> words, const WordName& name);

/// Every word by a name that `find_word` understands: "man", or "the#1" where the model reads another word of the text the same way.
std::vector<std::string> word_names(std::span<const Unit> words);

/// The positions of the units that are not special.
std::vector<Index> plain_units(std::span<const Unit> units);

}  // namespace mha
