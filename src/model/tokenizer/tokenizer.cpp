// Tokenizer: the steps of this folder in their order. Text is cut at added tokens, what lies between is normalised, cut at added tokens
// again, then into words and their pieces; the frame goes around it.
#include "mha/model/tokenizer.h"

#include <utility>

#include "core/check.h"
#include "model/json_fields.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/frame.h"
#include "model/tokenizer/normalize.h"
#include "model/tokenizer/pretokenize.h"
#include "model/tokenizer/vocabulary.h"
#include "model/tokenizer/wordpiece.h"

namespace mha {
namespace {

using model::AddedTokens;
using model::Letter;
using model::Letters;

// Collects the tokens of one text.
class Collector {
 public:
  Collector(const Letters& original, Index token_type) : byte_at_(model::byte_positions(original)), token_type_(token_type) {}

  void begin_word() { ++word_; }

  // A token that stands for `letters` (not empty) of the current word.
  void add(Index id, std::string token, std::span<const Letter> letters) {
    const std::size_t begin = letters.front().begin;
    const std::size_t end = letters.back().end;
    append(id, std::move(token), word_, token_type_);
    encoding_.chars.back() = {static_cast<Index>(begin), static_cast<Index>(end)};
    encoding_.bytes.back() = {static_cast<Index>(byte_at_[begin]), static_cast<Index>(byte_at_[end])};
  }

  void add_frame(const std::vector<model::FrameToken>& tokens) {
    for (const model::FrameToken& token : tokens) append(token.id, token.token, Encoding::kNoWord, token.token_type);
  }

  Encoding take() { return std::move(encoding_); }

 private:
  void append(Index id, std::string token, Index word, Index token_type) {
    encoding_.ids.push_back(id);
    encoding_.tokens.push_back(std::move(token));
    encoding_.chars.emplace_back();
    encoding_.bytes.emplace_back();
    encoding_.words.push_back(word);
    encoding_.special.push_back(word == Encoding::kNoWord);
    encoding_.token_types.push_back(token_type);
  }

  std::vector<std::size_t> byte_at_;
  Index token_type_;
  Index word_ = -1;
  Encoding encoding_;
};

}  // namespace

struct Tokenizer::Impl {
  model::Vocabulary vocabulary;
  model::Normalizer normalizer;
  model::PreTokenizer pre_tokenizer = model::PreTokenizer::None;
  model::WordPiece word_piece;
  AddedTokens added;
  model::Frame frame;

  // Calls `plain` for the text between the added tokens that belong to this stage, and collects those tokens.
  template <class Plain>
  void split(std::span<const Letter> text, AddedTokens::Stage stage, Collector& to, const Plain& plain) const {
    for (const AddedTokens::Part& part : added.split(text, stage)) {
      const auto letters = text.subspan(part.begin, part.end - part.begin);
      if (part.id == AddedTokens::kNoToken) {
        plain(letters);
      } else {
        to.begin_word();
        to.add(part.id, model::encode_utf8(letters), letters);
      }
    }
  }

  void encode_word(std::span<const Letter> word, Collector& to) const {
    std::vector<model::WordPieceToken> pieces;
    word_piece.split(word, pieces);
    to.begin_word();
    for (const auto& piece : pieces) {
      to.add(piece.token->second, piece.token->first, word.subspan(piece.begin, piece.end - piece.begin));
    }
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& path) {
  const model::Json json = model::read_json_file(path);
  const model::JsonFields file(json, path);
  const std::string version = file.text_or("version", "1.0");
  if (version != "1.0") file.fail("version", "is " + model::printable(version) + "; only 1.0 is supported");
  auto impl = std::make_unique<Impl>();
  impl->normalizer = model::read_normalizer(file);
  impl->pre_tokenizer = model::read_pre_tokenizer(file);
  impl->word_piece = model::WordPiece::read(file, impl->vocabulary);
  impl->added = AddedTokens::read(file, impl->normalizer, impl->vocabulary);
  impl->frame = model::read_frame(file);
  return Tokenizer(std::move(impl));
}

Encoding Tokenizer::encode(std::string_view text, bool add_special) const {
  const Letters original = model::decode_utf8(text);
  Collector to(original, impl_->frame.text_type);
  if (add_special) to.add_frame(impl_->frame.before);
  impl_->split(original, AddedTokens::Stage::Original, to, [&](std::span<const Letter> plain) {
    Letters letters(plain.begin(), plain.end());
    impl_->normalizer.apply(letters);
    impl_->split(letters, AddedTokens::Stage::Normalized, to, [&](std::span<const Letter> words) {
      model::for_each_word(impl_->pre_tokenizer, words, [&](std::span<const Letter> word) { impl_->encode_word(word, to); });
    });
  });
  if (add_special) to.add_frame(impl_->frame.after);
  return to.take();
}

std::optional<std::string_view> Tokenizer::token(Index id) const { return impl_->vocabulary.token(id); }

std::optional<Index> Tokenizer::id(std::string_view token) const { return impl_->vocabulary.id(token); }

Index Tokenizer::size() const { return impl_->vocabulary.size(); }

}  // namespace mha
