// WordPiece: cuts a word into the longest pieces of the vocabulary, from left to right. Called by tokenizer.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "model/json_fields.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/vocabulary.h"

namespace mha::model {

/// One piece of a word: its token, as the vocabulary holds it, and the letters [begin, end) of the word.
struct WordPieceToken {
  const Vocabulary::Entry* token = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
};

class WordPiece {
 public:
  /// Appends the pieces of `word` (not empty), or one unknown token for all of it.
  void split(std::span<const Letter> word, std::vector<WordPieceToken>& pieces) const;

  /// From the field "model" of tokenizer.json; fills the vocabulary, which must outlive this object. Throws FormatError for any type but
  /// WordPiece, an id that is there twice or out of range, or an unk_token that is not in the vocabulary.
  static WordPiece read(const JsonFields& file, Vocabulary& vocabulary);

 private:
  struct Piece {
    std::string_view text;  // of the token's string
    const Vocabulary::Entry* token = nullptr;
  };
  static const Piece* longest_beginning(std::span<const Piece> pieces, std::string_view text);

  const Vocabulary::Entry* unknown_ = nullptr;
  std::size_t most_letters_ = 0;  // of a word; longer ones are unknown
  // Sorted by text: what may begin a word, and what may continue one, without the prefix that such tokens have.
  std::vector<Piece> beginnings_, continuations_;
};

}  // namespace mha::model
