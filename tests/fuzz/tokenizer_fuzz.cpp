// Any bytes as a tokenizer.json, what follows its first NUL (which JSON cannot hold) as the text to encode: an mha::Error, or an encoding
// that keeps what the header's documentation promises.
#include <algorithm>
#include <string_view>

#include "fuzz/fuzz.h"
#include "mha/error.h"
#include "mha/model/tokenizer.h"

namespace mha::test {
namespace {

constexpr std::string_view kSentence = "The man saw \u4E2D astronomers [MASK]  x\u0301\u0130.";

// Whether `span` is a part of a text of `size`.
bool inside(const TextSpan& span, std::size_t size) {
  return 0 <= span.begin && span.begin <= span.end && span.end <= static_cast<Index>(size);
}

bool begins_letter(std::string_view text, Index byte) {
  const auto at = static_cast<std::size_t>(byte);
  return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
}

void check(const Tokenizer& tokenizer, const Encoding& e, std::string_view text) {
  const std::size_t size = e.size();
  require(e.tokens.size() == size && e.chars.size() == size && e.bytes.size() == size && e.words.size() == size &&
              e.special.size() == size && e.token_types.size() == size,
          "all vectors of an encoding have the same length");
  Index word = Encoding::kNoWord;
  for (std::size_t i = 0; i < size; ++i) {
    require(inside(e.bytes[i], text.size()) && inside(e.chars[i], text.size()), "a token stands inside the text");
    require(begins_letter(text, e.bytes[i].begin) && begins_letter(text, e.bytes[i].end), "a token is whole code points");
    require(e.special[i] == (e.words[i] == Encoding::kNoWord), "what is no word is the frame");
    if (e.special[i]) {
      require(e.bytes[i] == TextSpan{}, "the frame stands nowhere in the text");
      continue;
    }
    require(word <= e.words[i] && e.words[i] <= word + 1, "words are counted one by one");
    word = e.words[i];
    const auto token = tokenizer.token(e.ids[i]);
    require(token && tokenizer.id(*token) == e.ids[i], "an id is that of a token");
  }
}

void read_and_encode(std::span<const std::uint8_t> file, std::string_view text) {
  set_file(file);
  const Tokenizer tokenizer = Tokenizer::load("fuzz");
  for (const bool add_special : {true, false}) check(tokenizer, tokenizer.encode(text, add_special), text);
}

}  // namespace
}  // namespace mha::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::span(data, size);
  const auto nul = std::find(input.begin(), input.end(), std::uint8_t{0});
  const auto length = static_cast<std::size_t>(nul - input.begin());
  const bool has_text = length < size;
  const std::string_view text(reinterpret_cast<const char*>(data) + length + (has_text ? 1 : 0), has_text ? size - length - 1 : 0);
  try {
    mha::test::read_and_encode(input.first(length), has_text ? text : mha::test::kSentence);
  } catch (const mha::Error& error) {
    mha::test::require_line(error);
  }
  return 0;
}

#ifdef MHA_LIBFUZZER
// Changes the file or the text, so that a change of one keeps the other.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  if (most < 1) return 0;
  std::uint8_t* const end = data + size;
  std::uint8_t* const nul = std::find(data, end, std::uint8_t{0});
  mha::test::Parts parts{.first = {data, nul}, .second = {nul == end ? end : nul + 1, end}};
  mha::test::mutate_one(parts, most - 1, seed);
  std::uint8_t* to = std::copy(parts.first.begin(), parts.first.end(), data);
  if (!parts.second.empty()) *to++ = 0;
  to = std::copy(parts.second.begin(), parts.second.end(), to);
  return static_cast<std::size_t>(to - data);
}
#endif
