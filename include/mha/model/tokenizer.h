// Tokenizer: text to token ids as the Hugging Face package `tokenizers` does it, read from a `tokenizer.json` of the BERT family
// (BertNormalizer, BertPreTokenizer, WordPiece, added tokens, TemplateProcessing or BertProcessing for single texts).
//
//   mha::Tokenizer tokenizer = mha::Tokenizer::load("model/tokenizer.json");
//   mha::Encoding encoding = tokenizer.encode("The man saw the astronomer.");
//
// The truncation and padding that a tokenizer.json may ask for are deliberately not applied: the caller sees every token of the text.
// Const objects may be used from several threads at once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mha/tensor.h"

namespace mha {

/// [begin, end) of the original text.
struct TextSpan {
  Index begin = 0;
  Index end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

/// The tokens of a text; all vectors have the same length.
struct Encoding {
  static constexpr Index kNoWord = -1;

  std::vector<Index> ids;
  std::vector<std::string> tokens;  // "astronomer", "##s", "[CLS]"
  std::vector<TextSpan> chars;      // in code points of the text (as the Python package reports offsets); [0, 0) for a token of the frame
  std::vector<TextSpan> bytes;      // the same in bytes
  std::vector<Index> words;         // which word the token is a piece of, counted from 0; kNoWord for a token of the frame
  std::vector<bool> special;        // true for the frame ([CLS], [SEP]) that `add_special` puts around the text
  std::vector<Index> token_types;   // segment number of the frame and of the text

  std::size_t size() const { return ids.size(); }
};

class Tokenizer {
 public:
  /// Throws IoError where the file cannot be read, FormatError (file, field) where it is malformed, contradicts itself, has a token of more
  /// than 1000 bytes or a frame of more than 1000 tokens before or after the text, or asks for a normalizer, pre-tokenizer, model or
  /// post-processor other than those above.
  static Tokenizer load(const std::string& path);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Time grows linearly with the text. Throws FormatError, naming the byte, for text that is no UTF-8.
  Encoding encode(std::string_view text, bool add_special = true) const;

  /// The token of an id, or nothing. The view is valid while this object (or the one it was moved into) lives.
  std::optional<std::string_view> token(Index id) const;
  std::optional<Index> id(std::string_view token) const;
  /// Number of tokens, the added ones included.
  Index size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mha
