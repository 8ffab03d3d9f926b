// BertNormalizer: what happens to the text before it is cut into words. Called by tokenizer.cpp.
#pragma once

#include "model/json_fields.h"
#include "model/tokenizer/unicode.h"

namespace mha::model {

struct Normalizer {
  bool clean_text = false;
  bool handle_chinese_chars = false;
  bool strip_accents = false;
  bool lowercase = false;

  void apply(Letters& letters) const;
};

/// From the field "normalizer" of tokenizer.json; absent: nothing is normalised. Throws FormatError for any type but BertNormalizer.
Normalizer read_normalizer(const JsonFields& file);

}  // namespace mha::model
