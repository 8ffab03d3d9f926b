// The search of WordPiece and the reading of its part of tokenizer.json.
#include "model/tokenizer/wordpiece.h"

#include <algorithm>

#include "core/check.h"

namespace mha::model {

// Narrows the sorted pieces byte by byte to those that begin as the text does. That takes as many steps as text and vocabulary have in
// common, whatever the longest token is.
const WordPiece::Piece* WordPiece::longest_beginning(std::span<const Piece> pieces, std::string_view text) {
  const Piece* longest = nullptr;
  auto first = pieces.begin();
  auto last = pieces.end();
  for (std::size_t i = 0; i < text.size() && first != last; ++i) {
    const auto byte = [i](const Piece& piece) { return static_cast<unsigned char>(piece.text[i]); };
    const auto wanted = static_cast<unsigned char>(text[i]);
    if (first->text.size() == i) ++first;  // ends here: only the first can, being the shortest
    first = std::partition_point(first, last, [&](const Piece& piece) { return byte(piece) < wanted; });
    last = std::partition_point(first, last, [&](const Piece& piece) { return byte(piece) == wanted; });
    if (first != last && first->text.size() == i + 1) longest = &*first;
  }
  return longest;
}

void WordPiece::split(std::span<const Letter> word, std::vector<WordPieceToken>& pieces) const {
  const std::size_t first_piece = pieces.size();
  const auto give_up = [&] {
    pieces.resize(first_piece);
    pieces.push_back({unknown_, 0, word.size()});
  };
  if (word.size() > most_letters_) return give_up();
  const std::string text = encode_utf8(word);
  std::string_view rest = text;
  for (std::size_t begin = 0; begin < word.size();) {
    const Piece* const piece = longest_beginning(begin == 0 ? beginnings_ : continuations_, rest);
    if (piece == nullptr) return give_up();
    const auto letters = static_cast<std::size_t>(std::count_if(piece->text.begin(), piece->text.end(), begins_letter));
    pieces.push_back({piece->token, begin, begin + letters});
    begin += letters;
    rest.remove_prefix(piece->text.size());
  }
}

WordPiece WordPiece::read(const JsonFields& file, Vocabulary& vocabulary) {
  const JsonFields fields = file.object("model");
  const std::string type = fields.text("type");
  if (type != "WordPiece") fields.fail("type", "is " + printable(type) + "; only WordPiece is supported");
  const JsonFields entries = fields.object("vocab");
  WordPiece model;
  for (const auto& [token, value] : entries.value().items()) {
    if (token.size() > Vocabulary::kMostBytes) {
      fields.fail("vocab", core::join(printable(token), " has ", token.size(), " bytes, at most ", Vocabulary::kMostBytes, " are taken"));
    }
    const auto id = to_integer(value, 0, Vocabulary::kMostId);
    if (!id) {
      fields.fail("vocab", core::join("the id of ", printable(token), " is ", value.is_number() ? value.dump() : value.type_name(),
                                      ", an integer from 0 to ", Vocabulary::kMostId, " was expected"));
    }
    if (!vocabulary.add(Vocabulary::Kind::Model, token, *id)) {
      fields.fail("vocab",
                  core::join("id ", *id, " belongs to both ", printable(vocabulary.token(*id).value()), " and ", printable(token)));
    }
  }
  const std::string unknown = fields.text("unk_token");
  const auto place = vocabulary.model_ids().find(unknown);
  if (place == vocabulary.model_ids().end()) fields.fail("unk_token", printable(unknown) + " is not in the vocabulary");
  model.unknown_ = &*place;
  const std::string prefix = fields.text("continuing_subword_prefix");
  model.most_letters_ = static_cast<std::size_t>(fields.integer("max_input_chars_per_word", 0, Vocabulary::kMostId));
  for (const Vocabulary::Entry& entry : vocabulary.model_ids()) {
    const std::string_view token = entry.first;
    model.beginnings_.push_back({token, &entry});
    if (token.starts_with(prefix)) model.continuations_.push_back({token.substr(prefix.size()), &entry});
  }
  return model;
}

}  // namespace mha::model
