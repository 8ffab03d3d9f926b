// Words: white space separates and is dropped, punctuation stands alone.
#include "model/tokenizer/pretokenize.h"

namespace mha::model {

PreTokenizer read_pre_tokenizer(const JsonFields& file) {
  if (!file.has("pre_tokenizer")) return PreTokenizer::None;
  const JsonFields fields = file.object("pre_tokenizer");
  const std::string type = fields.text("type");
  if (type != "BertPreTokenizer") fields.fail("type", "is " + printable(type) + "; only BertPreTokenizer is supported");
  return PreTokenizer::Bert;
}

void for_each_word(PreTokenizer kind, std::span<const Letter> text, const std::function<void(std::span<const Letter>)>& word) {
  std::size_t begin = 0;
  const auto end_word = [&](std::size_t end) {
    if (begin < end) word(text.subspan(begin, end - begin));
  };
  for (std::size_t i = 0; kind == PreTokenizer::Bert && i < text.size(); ++i) {
    if (is_whitespace(text[i].code)) {
      end_word(i);
      begin = i + 1;
    } else if (is_punctuation(text[i].code)) {
      end_word(i);
      word(text.subspan(i, 1));
      begin = i + 1;
    }
  }
  end_word(text.size());
}

}  // namespace mha::model
