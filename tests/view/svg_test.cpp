// Escaping, widths and colours: properties of any text, and the colours by hand.
#include "view/svg.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "view/base64.h"

namespace mha::view {
namespace {

/// Letters that break markup, bytes that are no UTF-8, and letters of several bytes.
std::string any_text() {
  const auto parts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("<", ">", "&", "\"", "'", "a", "M", " ", "&amp;", "\x01", "\xff", "\xC3\xA9", "e\xCC\x81",
                                    "\xE6\x9D\xB1", "\xF0\x9F\x98\x80", "\xEF\xBF\xBF"));
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

RC_GTEST_PROP(Svg, EscapedTextIsNoMarkupAndReadsAsItWas, ()) {
  const std::string text = any_text();
  std::string read = escaped(text);
  RC_ASSERT(read.find_first_of("<>\"'\x01\xff") == std::string::npos);
  for (const auto& [entity, letter] : {std::pair("&lt;", "<"), {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}})
    read = replaced(read, entity, letter);
  std::string expected = text;
  for (const char* bad : {"\x01", "\xff", "\xEF\xBF\xBF"}) expected = replaced(expected, bad, "\xEF\xBF\xBD");
  RC_ASSERT(replaced(read, "&amp;", "&") == expected);
}

RC_GTEST_PROP(Svg, FittedTextIsNarrowEnoughAndABeginning, ()) {
  const std::string text = any_text();
  const double most = *rc::gen::inRange(2, 12);
  const std::string shown = fitted(text, most);
  RC_ASSERT(em_width(shown) <= most);
  if (shown != text) RC_ASSERT(text.starts_with(shown.substr(0, shown.size() - 3)));
}

TEST(Svg, TextIsCutBetweenWhatReadersTakeForLetters) {
  const std::string astronaut = "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80";  // woman, joiner, rocket: one picture
  EXPECT_EQ(fitted("ab" + astronaut + "cdefgh", 4), "ab\xE2\x80\xA6");
  const std::string accented = "e\xCC\x81";
  EXPECT_EQ(fitted(accented + accented + accented + accented, 2.3), accented + accented + "\xE2\x80\xA6");
}

TEST(Svg, DirectionIsThatOfTheFirstLetterThatHasOne) {
  EXPECT_TRUE(runs_left("12 \xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D abc"));  // Hebrew
  EXPECT_FALSE(runs_left("abc \xD7\xA9"));
  EXPECT_FALSE(runs_left("123 ..."));
}

TEST(Svg, ColoursAreViridisOnAFixedScale) {
  EXPECT_EQ(hex(colour_of(level_of(0.0F))), "#440154");
  EXPECT_EQ(hex(colour_of(level_of(0.5F))), "#21918c");
  EXPECT_EQ(hex(colour_of(level_of(1.0F))), "#fde725");
  EXPECT_EQ(level_of(2.0F), kLevels - 1);
  EXPECT_EQ(level_of(std::numeric_limits<float>::quiet_NaN()), kHiddenLevel);
  for (int level = 1; level < kLevels; ++level) {
    const Colour before = colour_of(level - 1);
    const Colour here = colour_of(level);
    EXPECT_GE(0.30 * here[0] + 0.59 * here[1] + 0.11 * here[2] + 0.9, 0.30 * before[0] + 0.59 * before[1] + 0.11 * before[2]) << level;
  }
}

TEST(Svg, NumbersAreShort) {
  EXPECT_EQ(number(2.0), "2");
  EXPECT_EQ(number(0.504), "0.5");
  EXPECT_EQ(number(-0.001), "0");
  EXPECT_EQ(number(100.0), "100");
  EXPECT_EQ(fixed(0.3, 3), "0.300");
}

TEST(Base64, IsThatOfTheRfc) {
  for (const auto& [bytes, text] :
       {std::pair("", ""), {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}}) {
    EXPECT_EQ(base64(bytes), text);
  }
  EXPECT_EQ(base64(std::string_view("\xff\x00\xfe", 3)), "/wD+");
}

}  // namespace
}  // namespace mha::view
