// BertPreTokenizer: cuts normalised text into words. Called by tokenizer.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "model/json_fields.h"
#include "model/tokenizer/unicode.h"

namespace mha::model {

enum class PreTokenizer : std::uint8_t { None, Bert };

/// From the field "pre_tokenizer" of tokenizer.json; absent: a text is one word. Throws FormatError for any type but BertPreTokenizer.
PreTokenizer read_pre_tokenizer(const JsonFields& file);

/// Calls `word` for each word in order: runs without white space, every punctuation mark a word of its own.
void for_each_word(PreTokenizer kind, std::span<const Letter> text, const std::function<void(std::span<const Letter>)>& word);

}  // namespace mha::model
