// The search of WordPiece and the reading of its part of tokenizer.json.
#include "model/tokenizer/wordpiece.h"

#include <algorithm>
#include <optional>

#include "core/check.h"

namespace mha::model {

void WordPiece::split(std::span<const Letter> word, const Vocabulary& vocabulary, std::vector<WordPieceToken>& pieces) const {
  const std::size_t first_piece = pieces.size();
  const auto give_up = [&] {
    pieces.resize(first_piece);
    pieces.push_back({unknown_id_, 0, word.size()});
  };
  if (word.size() > most_letters_) return give_up();
  std::string text;               // what is left of the word, after the prefix where it continues
  std::vector<std::size_t> ends;  // bytes of `text` up to the end of each letter
  for (std::size_t begin = 0; begin < word.size();) {
    text = begin == 0 ? std::string() : prefix_;
    ends.clear();
    for (std::size_t i = begin; i < word.size() && text.size() <= longest_token_; ++i) {
      append_utf8(word[i].code, text);
      ends.push_back(text.size());
    }
    std::size_t letters = ends.size();
    std::optional<Index> id;
    for (; letters > 0; --letters) {
      id = vocabulary.model_id(std::string_view(text).substr(0, ends[letters - 1]));
      if (id) break;
    }
    if (!id) return give_up();
    pieces.push_back({*id, begin, begin + letters});
    begin += letters;
  }
}

WordPiece WordPiece::read(const JsonFields& file, Vocabulary& vocabulary) {
  const JsonFields fields = file.object("model");
  const std::string type = fields.text("type");
  if (type != "WordPiece") fields.fail("type", "is " + printable(type) + "; only WordPiece is supported");
  const JsonFields entries = fields.object("vocab");
  WordPiece model;
  for (const auto& [token, value] : entries.value().items()) {
    const auto id = to_integer(value, 0, Vocabulary::kMostId);
    if (!id) {
      fields.fail("vocab", core::join("the id of ", printable(token), " is ", value.is_number() ? value.dump() : value.type_name(),
                                      ", an integer from 0 to ", Vocabulary::kMostId, " was expected"));
    }
    if (!vocabulary.add(Vocabulary::Kind::Model, token, *id)) {
      fields.fail("vocab", core::join("id ", *id, " belongs to both ", printable(*vocabulary.token(*id)), " and ", printable(token)));
    }
    model.longest_token_ = std::max(model.longest_token_, token.size());
  }
  const std::string unknown = fields.text("unk_token");
  const auto unknown_id = vocabulary.id(unknown);
  if (!unknown_id) fields.fail("unk_token", printable(unknown) + " is not in the vocabulary");
  model.unknown_id_ = *unknown_id;
  model.prefix_ = fields.text("continuing_subword_prefix");
  model.most_letters_ = static_cast<std::size_t>(fields.integer("max_input_chars_per_word", 0, Vocabulary::kMostId));
  return model;
}

}  // namespace mha::model
