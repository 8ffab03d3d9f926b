// Text as code points, each with its place in the original, and the classes of code points that tokenizers ask for.
// Used by the files of this folder, and by analysis/conllu.cpp to see whether a line is UTF-8. The only file that knows utf8proc is
// unicode.cpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mha::model {

/// One code point of a text under way, and the code points [begin, end) of the original text it stands for.
struct Letter {
  char32_t code = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};
using Letters = std::vector<Letter>;

/// The text's code points. Throws FormatError, naming the byte, where it is no UTF-8 (surrogates and overlong forms included).
Letters decode_utf8(std::string_view text);
/// Bytes that each code point of valid UTF-8 begins at, and one entry more: the text's length.
std::vector<std::size_t> byte_positions(const Letters& letters);
std::string encode_utf8(std::span<const Letter> letters);
/// Whether a byte of valid UTF-8 is the first of a code point.
inline bool begins_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

bool is_whitespace(char32_t code);  // property White_Space
bool is_dropped(char32_t code);     // control, format, private use; not tab, line feed, carriage return
bool is_nonspacing_mark(char32_t code);
bool is_punctuation(char32_t code);
bool is_cjk(char32_t code);   // the blocks that BERT puts spaces around
bool is_word(char32_t code);  // \w of Unicode regular expressions

/// Canonical decomposition and canonical order (NFD).
void decompose(Letters& letters);
/// Full lower case of every code point by itself: no rule for a final sigma.
void lower(Letters& letters);

}  // namespace mha::model
