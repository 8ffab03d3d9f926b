// Words made of pieces, their names, and what is said where a name does not fit. Covers sentence.cpp and words.cpp.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/tiny_tokenizer.h"
#include "analysis/units.h"
#include "mha/analysis/sentence.h"
#include "mha/error.h"
#include "support/errors.h"

namespace mha {
namespace {

using test::mentions;
using test::text_of;

std::vector<std::string> texts(const std::vector<Unit>& units) {
  std::vector<std::string> found;
  for (const Unit& unit : units) found.push_back(unit.text);
  return found;
}

class WordsTest : public testing::Test {
 protected:
  Sentence read(const std::string& text) const { return read_sentence(tokenizer_, text); }
  Index find(const std::string& text, const std::string& name) const { return find_word(read(text), tokenizer_, name); }
  std::string refused(const std::string& text, const std::string& name) const {
    return text_of<Error>([&] { find(text, name); });
  }

  Tokenizer tokenizer_ = test::tiny_tokenizer();
};

TEST_F(WordsTest, PiecesOfOneWordBecomeOneWordWithTheTextAsWritten) {
  const Sentence sentence = read("The man saw Astronomers.");
  EXPECT_EQ(texts(sentence.words), (std::vector<std::string>{"[CLS]", "The", "man", "saw", "Astronomers", ".", "[SEP]"}));
  EXPECT_EQ(texts(sentence.pieces), (std::vector<std::string>{"[CLS]", "the", "man", "saw", "astronom", "##er", "##s", ".", "[SEP]"}));
  EXPECT_EQ(sentence.ids.size(), sentence.pieces.size());
  EXPECT_EQ(sentence.words[4].first, 4);
  EXPECT_EQ(sentence.words[4].count, 3);
  EXPECT_EQ(sentence.words[5].first, 7);
  EXPECT_TRUE(sentence.words.front().special);
  EXPECT_TRUE(sentence.words.back().special);
  EXPECT_FALSE(sentence.words[5].special) << "punctuation is a word";
  EXPECT_EQ(plain_units(sentence.words), (std::vector<Index>{1, 2, 3, 4, 5}));
}

TEST_F(WordsTest, EveryPieceBelongsToExactlyOneWord) {
  for (const char* text :
       {"a", "The telescopes, 2 men & \xE6\x9D\xB1\xE4\xBA\xAC!", "...", "man-telescope\nman", "Caf\xC3\xA9 unknownish"}) {
    const Sentence sentence = read(text);
    Index next = 0;
    for (const Unit& word : sentence.words) {
      EXPECT_EQ(word.first, next) << text;
      EXPECT_GE(word.count, 1);
      next += word.count;
    }
    EXPECT_EQ(next, static_cast<Index>(sentence.pieces.size())) << text;
  }
}

TEST_F(WordsTest, TextWithoutAWordIsAnError) {
  for (const char* text : {"", "   ", "\n\t"}) EXPECT_TRUE(mentions(text_of<Error>([&] { read(text); }), "no word"));
  EXPECT_THROW(read("man \xFF"), FormatError);
}

TEST_F(WordsTest, AWordIsFoundAsWrittenOrAsTheModelReadsIt) {
  EXPECT_EQ(find("The man saw a telescope.", "man"), 2);
  EXPECT_EQ(find("The man saw a telescope.", "MAN"), 2);
  EXPECT_EQ(find("The man saw a Telescope.", "telescope"), 5);
  EXPECT_EQ(find("a Caf\xC3\xA9", "cafe"), 2);
  EXPECT_EQ(find("The man.", "."), 3);
  EXPECT_EQ(find("The man.", "[SEP]"), 4);
}

TEST_F(WordsTest, UnknownWordsAreToldApartByTheirText) {
  EXPECT_EQ(find("xyzzy saw plugh", "plugh"), 3) << "both are [UNK] to the model";
  EXPECT_TRUE(mentions(refused("xyzzy saw plugh", "foo"), "no word \"foo\"", "xyzzy saw plugh"));
}

TEST_F(WordsTest, AMissingWordIsAnErrorThatListsTheWords) {
  EXPECT_TRUE(mentions(refused("The man saw the telescope.", "cat"), "no word \"cat\"", "The#1 man saw the#2 telescope ."));
  EXPECT_TRUE(mentions(refused("The man.", ""), "no word \"\""));
  EXPECT_TRUE(mentions(refused("The man.", "the man"), "no word \"the man\"", "The man ."));
}

TEST_F(WordsTest, AWordThereTwiceNeedsItsNumber) {
  const std::string text = "The man saw the telescope.";
  EXPECT_TRUE(mentions(refused(text, "the"), "\"the\" is 2 words", "the#1 or the#2", "The#1 man saw the#2 telescope ."));
  EXPECT_TRUE(mentions(refused("a a a", "a"), "a#1 ... a#3"));
  EXPECT_EQ(find(text, "the#1"), 1);
  EXPECT_EQ(find(text, "the#2"), 4);
  EXPECT_EQ(find(text, "THE#2"), 4);
  EXPECT_EQ(find(text, "man#1"), 2);
  EXPECT_TRUE(mentions(refused(text, "the#3"), "the#3", "2 times"));
  EXPECT_TRUE(mentions(refused(text, "man#2"), "man#2", "1 time"));
}

TEST_F(WordsTest, EveryListedNameFindsItsWord) {
  const Sentence sentence = read("The man # saw the man with # 2 telescopes . a.");
  const std::vector<std::string> names = word_names(sentence.words);
  ASSERT_EQ(names.size(), sentence.words.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(find_word(sentence, tokenizer_, names[i]), static_cast<Index>(i)) << names[i];
}

TEST_F(WordsTest, ALongListIsCutAndSaysHowManyThereAre) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "man saw ";
  const std::string message = refused(text, "cat");
  EXPECT_LT(message.size(), 1000U);
  EXPECT_TRUE(mentions(message, "1000 words"));
}

TEST(SplitWordName, OnlyAPositiveNumberAfterTheLastMarkIsANumber) {
  const auto split = [](const char* name) { return std::pair(split_word_name(name).text, split_word_name(name).number); };
  EXPECT_EQ(split("the#2"), std::pair(std::string("the"), Index{2}));
  EXPECT_EQ(split("the"), std::pair(std::string("the"), Index{0}));
  EXPECT_EQ(split("the#"), std::pair(std::string("the#"), Index{0}));
  EXPECT_EQ(split("the#0"), std::pair(std::string("the#0"), Index{0}));
  EXPECT_EQ(split("the#-1"), std::pair(std::string("the#-1"), Index{0}));
  EXPECT_EQ(split("the#2x"), std::pair(std::string("the#2x"), Index{0}));
  EXPECT_EQ(split("the#99999999999999999999"), std::pair(std::string("the#99999999999999999999"), Index{0}));
  EXPECT_EQ(split("#2"), std::pair(std::string("#2"), Index{0}));
  EXPECT_EQ(split("##2"), std::pair(std::string("#"), Index{2}));
}

}  // namespace
}  // namespace mha
