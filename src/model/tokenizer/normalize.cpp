// BertNormalizer in the order of the package: clean, CJK, accents, lower case.
#include "model/tokenizer/normalize.h"

#include <algorithm>

namespace mha::model {
namespace {

void clean(Letters& letters) {
  std::erase_if(letters, [](const Letter& letter) { return is_dropped(letter.code); });
  for (Letter& letter : letters) {
    if (is_whitespace(letter.code)) letter.code = U' ';
  }
}

void put_spaces_around_cjk(Letters& letters) {
  if (std::none_of(letters.begin(), letters.end(), [](const Letter& l) { return is_cjk(l.code); })) return;
  Letters result;
  result.reserve(letters.size() + 2);
  for (const Letter& letter : letters) {
    if (!is_cjk(letter.code)) {
      result.push_back(letter);
    } else {
      result.insert(result.end(), {{U' ', letter.begin, letter.end}, letter, {U' ', letter.begin, letter.end}});
    }
  }
  letters = std::move(result);
}

}  // namespace

void Normalizer::apply(Letters& letters) const {
  if (clean_text) clean(letters);
  if (handle_chinese_chars) put_spaces_around_cjk(letters);
  if (strip_accents) {
    decompose(letters);
    std::erase_if(letters, [](const Letter& letter) { return is_nonspacing_mark(letter.code); });
  }
  if (lowercase) lower(letters);
}

Normalizer read_normalizer(const JsonFields& file) {
  if (!file.has("normalizer")) return {};
  const JsonFields fields = file.object("normalizer");
  const std::string type = fields.text("type");
  if (type != "BertNormalizer") fields.fail("type", "is " + printable(type) + "; only BertNormalizer is supported");
  const bool lowercase = fields.flag("lowercase");
  return {.clean_text = fields.flag("clean_text"),
          .handle_chinese_chars = fields.flag("handle_chinese_chars"),
          .strip_accents = fields.flag_or("strip_accents", lowercase),
          .lowercase = lowercase};
}

}  // namespace mha::model
