// Unicode for the tokenizer. Decomposition, combining classes and lower case come from utf8proc; three classes are tables frozen at the
// version that pretrained tokenizers use (see unicode_tables.inl).
#include "model/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/check.h"

namespace mha::model {
namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};

#include "model/tokenizer/unicode_tables.inl"

bool contains(std::span<const CodeRange> ranges, char32_t code) {
  const auto next = std::upper_bound(ranges.begin(), ranges.end(), code, [](char32_t c, const CodeRange& r) { return c < r.first; });
  return next != ranges.begin() && code <= std::prev(next)->last;
}

constexpr char32_t kFirstDecomposable = 0xC0;  // nothing below has a decomposition or a combining class

utf8proc_int32_t as_int(char32_t code) { return static_cast<utf8proc_int32_t>(code); }

std::size_t utf8_length(char32_t code) { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }

// A piece of a decomposed code point under way to canonical order.
struct Piece {
  char32_t code;
  utf8proc_propval_t combining_class;
  bool is_first;  // of its code point
};

std::vector<Piece> decompose_each(const Letters& letters) {
  std::vector<Piece> pieces;
  pieces.reserve(letters.size());
  for (const Letter& letter : letters) {
    std::array<utf8proc_int32_t, 32> parts{};
    int boundclass = 0;
    const auto count = utf8proc_decompose_char(as_int(letter.code), parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundclass);
    MHA_ASSERT(count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      pieces.push_back({static_cast<char32_t>(parts[i]), utf8proc_get_property(parts[i])->combining_class, i == 0});
    }
  }
  return pieces;
}

}  // namespace

Letters decode_utf8(std::string_view text) {
  Letters letters;
  letters.reserve(text.size());
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const auto length = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    MHA_CHECK(FormatError, length > 0, "text: byte ", at, " (value ", static_cast<int>(bytes[at]), ") does not begin a UTF-8 character");
    letters.push_back({static_cast<char32_t>(code), letters.size(), letters.size() + 1});
    at += static_cast<std::size_t>(length);
  }
  return letters;
}

std::vector<std::size_t> byte_positions(const Letters& letters) {
  std::vector<std::size_t> positions(letters.size() + 1, 0);
  for (std::size_t i = 0; i < letters.size(); ++i) positions[i + 1] = positions[i] + utf8_length(letters[i].code);
  return positions;
}

std::string encode_utf8(std::span<const Letter> letters) {
  std::string text;
  for (const Letter& letter : letters) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const auto length = utf8proc_encode_char(as_int(letter.code), bytes.data());
    text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
  }
  return text;
}

bool is_whitespace(char32_t code) {
  static constexpr std::array<CodeRange, 10> kWhitespace = {{{0x9, 0xD},
                                                             {0x20, 0x20},
                                                             {0x85, 0x85},
                                                             {0xA0, 0xA0},
                                                             {0x1680, 0x1680},
                                                             {0x2000, 0x200A},
                                                             {0x2028, 0x2029},
                                                             {0x202F, 0x202F},
                                                             {0x205F, 0x205F},
                                                             {0x3000, 0x3000}}};
  return contains(kWhitespace, code);
}

bool is_dropped(char32_t code) { return contains(kDropped, code); }

bool is_nonspacing_mark(char32_t code) { return contains(kNonspacingMarks, code); }

bool is_punctuation(char32_t code) { return contains(kPunctuation, code); }

bool is_cjk(char32_t code) {
  static constexpr std::array<CodeRange, 8> kBlocks = {{{0x3400, 0x4DBF},
                                                        {0x4E00, 0x9FFF},
                                                        {0xF900, 0xFAFF},
                                                        {0x20000, 0x2A6DF},
                                                        {0x2A700, 0x2B73F},
                                                        {0x2B740, 0x2B81F},
                                                        {0x2B920, 0x2CEAF},
                                                        {0x2F800, 0x2FA1F}}};
  return contains(kBlocks, code);
}

bool is_word(char32_t code) {
  switch (utf8proc_category(as_int(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // Alphabetic symbols (circled, parenthesised and squared letters) and the two join controls.
  static constexpr std::array<CodeRange, 5> kMore = {
      {{0x200C, 0x200D}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}}};
  return contains(kMore, code);
}

void decompose(Letters& letters) {
  if (std::none_of(letters.begin(), letters.end(), [](const Letter& l) { return l.code >= kFirstDecomposable; })) return;
  std::vector<Piece> pieces = decompose_each(letters);
  for (auto run = pieces.begin(); run != pieces.end();) {
    const auto end = std::find_if(run, pieces.end(), [](const Piece& p) { return p.combining_class == 0; });
    std::stable_sort(run, end, [](const Piece& a, const Piece& b) { return a.combining_class < b.combining_class; });
    run = end == pieces.end() ? end : std::next(end);
  }
  // Where marks changed places, the first pieces take the original's places in the order they now stand in, the others that of their
  // predecessor: so do the offsets of the package.
  Letters result;
  result.reserve(pieces.size());
  std::size_t taken = 0;
  for (const Piece& piece : pieces) {
    if (piece.is_first) ++taken;
    const Letter& source = letters[taken == 0 ? 0 : taken - 1];
    result.push_back({piece.code, source.begin, source.end});
  }
  letters = std::move(result);
}

void lower(Letters& letters) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one code point whose lower case is two: i and a combining dot
  Letters result;
  result.reserve(letters.size());
  for (const Letter& letter : letters) {
    if (letter.code == kCapitalIWithDot) {
      result.push_back({U'i', letter.begin, letter.end});
      result.push_back({0x307, letter.begin, letter.end});
    } else {
      result.push_back({static_cast<char32_t>(utf8proc_tolower(as_int(letter.code))), letter.begin, letter.end});
    }
  }
  letters = std::move(result);
}

}  // namespace mha::model
