// Tokenizer without the package: expected results written by hand from its rules, hostile texts and hostile tokenizer.json files.
// Identity with the package is the business of tokenizer_live.py.
#include "mha/model/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"

namespace mha {
namespace {

using nlohmann::json;
using test::mentions;
using test::TempFolder;
using test::text_of;
using Words = std::vector<std::string>;

json small_file() {
  json vocabulary = json::object();
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "man", "saw", "astronom", "##er", "##s", ".", "é", "e",
                            "中", "##中", "i", "##\xCC\x87", "foo"}) {
    vocabulary[token] = vocabulary.size();
  }
  const auto added = [](const char* content, int id) {
    return json{{"id", id},        {"content", content}, {"special", true},    {"single_word", false},
                {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
  };
  return {
      {"version", "1.0"},
      {"truncation", {{"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}}},
      {"padding", {{"strategy", {{"Fixed", 128}}}, {"pad_id", 0}}},
      {"added_tokens", {added("[CLS]", 2), added("[SEP]", 3), added("[MASK]", 4)}},
      {"normalizer",
       {{"type", "BertNormalizer"}, {"clean_text", true}, {"handle_chinese_chars", true}, {"strip_accents", nullptr}, {"lowercase", true}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
          {{"SpecialToken", {{"id", "[SEP]"}, {"type_id", 0}}}}}},
        {"special_tokens",
         {{"[CLS]", {{"id", "[CLS]"}, {"ids", {2}}, {"tokens", {"[CLS]"}}}},
          {"[SEP]", {{"id", "[SEP]"}, {"ids", {3}}, {"tokens", {"[SEP]"}}}}}}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", vocabulary}}}};
}

class TokenizerTest : public testing::Test {
 protected:
  Tokenizer load(const std::string& text) const {
    test::write_text(path(), text);
    return Tokenizer::load(path());
  }
  Tokenizer load(const json& file = small_file()) const { return load(file.dump()); }
  std::string refused(const std::function<void(json&)>& change) const {
    json file = small_file();
    change(file);
    const std::string text = text_of<FormatError>([&] { load(file); });
    EXPECT_TRUE(mentions(text, path()));
    return text;
  }
  std::string path() const { return folder_.file("tokenizer.json"); }

  TempFolder folder_;
};

TEST_F(TokenizerTest, CutsASentence) {
  const Encoding e = load().encode("The man saw\tAstronomers.");
  EXPECT_EQ(e.tokens, (Words{"[CLS]", "the", "man", "saw", "astronom", "##er", "##s", ".", "[SEP]"}));
  EXPECT_EQ(e.ids, (std::vector<Index>{2, 5, 6, 7, 8, 9, 10, 11, 3}));
  EXPECT_EQ(e.words, (std::vector<Index>{-1, 0, 1, 2, 3, 3, 3, 4, -1}));
  EXPECT_EQ(e.special, (std::vector<bool>{true, false, false, false, false, false, false, false, true}));
  EXPECT_EQ(e.token_types, std::vector<Index>(9, 0));
  EXPECT_EQ(e.chars, (std::vector<TextSpan>{{0, 0}, {0, 3}, {4, 7}, {8, 11}, {12, 20}, {20, 22}, {22, 23}, {23, 24}, {0, 0}}));
  EXPECT_EQ(e.bytes, e.chars);
}

TEST_F(TokenizerTest, OffsetsAreOfTheOriginalText) {
  const std::string text = "E\u0301\u00C9 \u4E2D\u0130";  // E, acute, É, space, a CJK character, I with a dot
  const Encoding e = load().encode(text, false);
  EXPECT_EQ(e.tokens, (Words{"[UNK]", "中", "i"}));
  EXPECT_EQ(e.chars, (std::vector<TextSpan>{{0, 3}, {4, 5}, {5, 6}}));
  EXPECT_EQ(e.bytes, (std::vector<TextSpan>{{0, 5}, {6, 9}, {9, 11}}));
  json file = small_file();
  file["normalizer"]["strip_accents"] = false;
  EXPECT_EQ(load(file).encode("\u00C9 \u0130", false).tokens, (Words{"é", "i", "##\u0307"}));
}

TEST_F(TokenizerTest, FindsSpecialTokensInTheText) {
  const Encoding e = load().encode("the [MASK]x[SEP]", false);
  EXPECT_EQ(e.tokens, (Words{"the", "[MASK]", "[UNK]", "[SEP]"}));
  EXPECT_EQ(e.words, (std::vector<Index>{0, 1, 2, 3}));
  EXPECT_EQ(e.special, std::vector<bool>(4, false)) << "the frame alone is special";
}

TEST_F(TokenizerTest, AddedTokensAreNoPiecesOfWords) {
  json file = small_file();
  file["added_tokens"].push_back({{"id", 19},
                                  {"content", "foobar"},
                                  {"special", false},
                                  {"single_word", true},
                                  {"lstrip", true},
                                  {"rstrip", false},
                                  {"normalized", false}});
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(tokenizer.encode("the  foobar", false).tokens, (Words{"the", "  foobar"}));
  EXPECT_EQ(tokenizer.encode("foobars", false).tokens, (Words{"[UNK]"}));
  EXPECT_EQ(tokenizer.id("foobar"), 19);
  EXPECT_EQ(tokenizer.token(19), "foobar");
  EXPECT_EQ(tokenizer.size(), 20);
}

TEST_F(TokenizerTest, LooksUpTokens) {
  Tokenizer first = load();
  const Tokenizer tokenizer = std::move(first);
  EXPECT_EQ(tokenizer.size(), 19);
  EXPECT_EQ(tokenizer.id("##er"), 9);
  EXPECT_EQ(tokenizer.token(9), "##er");
  EXPECT_EQ(tokenizer.id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.token(19), std::nullopt);
}

TEST_F(TokenizerTest, EmptyTexts) {
  const Tokenizer tokenizer = load();
  EXPECT_EQ(tokenizer.encode("").ids, (std::vector<Index>{2, 3}));
  EXPECT_EQ(tokenizer.encode(" \n\u3000").ids, (std::vector<Index>{2, 3}));
  EXPECT_EQ(tokenizer.encode(std::string_view("\0\x01", 2), false).size(), 0U);
}

TEST_F(TokenizerTest, LongWordsAreUnknown) {
  const Tokenizer tokenizer = load();
  EXPECT_EQ(tokenizer.encode("saw" + std::string(97, 's'), false).size(), 98U);  // saw, 97 times ##s: 100 letters
  EXPECT_EQ(tokenizer.encode("saw" + std::string(98, 's'), false).tokens, Words{"[UNK]"});
  EXPECT_EQ(tokenizer.encode(std::string(600, 's'), false).chars, (std::vector<TextSpan>{{0, 600}}));
}

TEST_F(TokenizerTest, TruncationAndPaddingAreNotApplied) { EXPECT_EQ(load().encode("the man saw the man saw").size(), 8U); }

TEST_F(TokenizerTest, RefusesTextThatIsNoUtf8) {
  const Tokenizer tokenizer = load();
  const auto refused_text = [&](const std::string& text) { return text_of<FormatError>([&] { tokenizer.encode(text); }); };
  EXPECT_TRUE(mentions(refused_text("abc\xFFz"), "byte 3", "255", "UTF-8"));
  EXPECT_TRUE(mentions(refused_text("\x80"), "byte 0"));
  EXPECT_TRUE(mentions(refused_text("a\xC3"), "byte 1"));
  EXPECT_TRUE(mentions(refused_text("ab\xC0\xAF"), "byte 2"));          // overlong
  EXPECT_TRUE(mentions(refused_text("\xED\xA0\x80"), "byte 0"));        // a surrogate
  EXPECT_TRUE(mentions(refused_text("\xF4\x90\x80\x80"), "byte 0"));    // beyond U+10FFFF
  EXPECT_TRUE(mentions(refused_text("[MASK]\xF0\x9F\x98"), "byte 6"));  // cut off
}

// A quadratic step would take minutes here, also without a sanitizer; the limit leaves room for one on a busy machine.
TEST_F(TokenizerTest, TimeIsLinear) {
  json file = small_file();
  file["model"]["max_input_chars_per_word"] = 1'000'000'000;
  const Tokenizer tokenizer = load(file);
  constexpr std::size_t kLetters = 1'000'000;
  for (const std::string unit : {"s", " ", "[", ".", "\u0301", "\u4E2D", "[MASK]", "the ", "\u1EA5\u0323"}) {
    std::string text = "saw";
    while (text.size() < kLetters) text += unit;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_GT(tokenizer.encode(text).size(), 2U);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_LT(seconds.count(), 30.0) << unit;
  }
}

// The same for files made to be slow. All of this took from seconds to hours.
TEST_F(TokenizerTest, TimeIsLinearWithHostileFiles) {
  const auto start = std::chrono::steady_clock::now();
  json file = small_file();
  // Ids that all fell into one bucket of a hash table, whose sizes are known primes.
  for (int i = 1; i <= 40'000; ++i) file["model"]["vocab"]["t" + std::to_string(i)] = i * 42'043;
  EXPECT_EQ(load(file).size(), 40'019);
  file = small_file();
  file["added_tokens"].push_back({{"id", 19},
                                  {"content", " "},
                                  {"special", false},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", true},
                                  {"normalized", false}});
  EXPECT_EQ(load(file).encode(std::string(1'000'000, ' '), false).size(), 1U);
  file = small_file();
  file["model"]["max_input_chars_per_word"] = 1'000'000'000;
  file["model"]["vocab"][std::string(1000, 'x')] = 19;
  EXPECT_EQ(load(file).encode("saw" + std::string(1'000'000, 's'), false).size(), 1'000'001U);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 60.0);
}

TEST_F(TokenizerTest, RefusesOtherTypesAndSaysWhatIsSupported) {
  EXPECT_TRUE(mentions(refused([](json& f) { f["normalizer"]["type"] = "NFKC"; }), "normalizer.type", "'NFKC'", "BertNormalizer"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["pre_tokenizer"]["type"] = "ByteLevel"; }), "pre_tokenizer.type", "'ByteLevel'",
                       "BertPreTokenizer"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["type"] = "BPE"; }), "model.type", "'BPE'", "WordPiece"));
  EXPECT_TRUE(
      mentions(refused([](json& f) { f["post_processor"]["type"] = "RobertaProcessing"; }), "'RobertaProcessing'", "TemplateProcessing"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["version"] = "2.0"; }), "version", "'2.0'"));
}

TEST_F(TokenizerTest, RefusesBrokenModels) {
  EXPECT_TRUE(mentions(refused([](json& f) { f.erase("model"); }), "model", "missing"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"] = 7; }), "model", "object"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"].erase("vocab"); }), "model.vocab", "missing"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["vocab"] = json::array(); }), "model.vocab", "object"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["vocab"]["the"] = 6; }), "model.vocab", "id 6", "'the'", "'man'"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["vocab"]["the"] = -1; }), "'the'", "-1"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["vocab"]["the"] = 2147483648; }), "'the'", "2147483648"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["vocab"]["the"] = 5.5; }), "'the'", "5.5"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["vocab"]["the"] = "5"; }), "'the'", "string"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["unk_token"] = "[NO]"; }), "model.unk_token", "'[NO]'"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["continuing_subword_prefix"] = 1; }), "continuing_subword_prefix", "string"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["model"]["max_input_chars_per_word"] = -1; }), "max_input_chars_per_word", "-1"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["normalizer"].erase("lowercase"); }), "normalizer.lowercase", "missing"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["normalizer"]["clean_text"] = 1; }), "normalizer.clean_text", "true or false"));
}

TEST_F(TokenizerTest, RefusesBrokenAddedTokensAndFrames) {
  EXPECT_TRUE(mentions(refused([](json& f) { f["added_tokens"] = 1; }), "added_tokens", "list"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["added_tokens"][0] = 1; }), "added_tokens[0]", "object"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["added_tokens"][1]["id"] = 4; }), "added_tokens[1].id", "is 4", "'[SEP]'", "id 3"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["added_tokens"][1]["content"] = "new"; }), "added_tokens[1].id", "is 3", "19"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["added_tokens"][1] = f["added_tokens"][0]; }), "'[CLS]'", "twice"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["added_tokens"][1].erase("lstrip"); }), "added_tokens[1].lstrip", "missing"));
  EXPECT_TRUE(mentions(refused([](json& f) {
                         f["added_tokens"][1]["content"] = "";
                         f["added_tokens"][1]["id"] = 19;
                       }),
                       "content", "empty"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["post_processor"]["single"] = json::array(); }), "single", "none"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["post_processor"]["single"][1]["Sequence"]["id"] = "B"; }), "single", "sequence A once"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["post_processor"]["single"][2] = f["post_processor"]["single"][1]; }), "sequence A once"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["post_processor"]["single"][0]["SpecialToken"]["id"] = "[NO]"; }), "special_tokens.'[NO]'",
                       "missing"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["post_processor"]["special_tokens"]["[CLS]"]["ids"] = {1, 2}; }), "ids", "2 entries"));
  EXPECT_TRUE(mentions(refused([](json& f) { f["post_processor"]["special_tokens"]["[CLS]"]["ids"] = {-2}; }), "entry 0"));
  EXPECT_TRUE(mentions(
      refused([](json& f) { f["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"[CLS]", 2}}, {"sep", {"[SEP]"}}}; }), "sep"));
}

// What a file of some kilobytes could make of a short text: gigabytes.
TEST_F(TokenizerTest, RefusesWhatGrowsOutOfProportion) {
  const std::string longest(1000, 'x');
  const std::string longer(1001, 'x');
  json file = small_file();
  file["model"]["vocab"][longest] = 19;
  EXPECT_EQ(load(file).encode(longest, false).size(), 1U);
  EXPECT_TRUE(mentions(refused([&](json& f) { f["model"]["vocab"][longer] = 19; }), "model.vocab", "1001 bytes"));
  EXPECT_TRUE(mentions(refused([&](json& f) {
                         f["added_tokens"][1]["content"] = longer;
                         f["added_tokens"][1]["id"] = 19;
                       }),
                       "added_tokens[1].content", "1001 bytes"));
  EXPECT_TRUE(
      mentions(refused([&](json& f) { f["post_processor"]["special_tokens"]["[CLS]"]["tokens"] = {longer}; }), "'[CLS]'.ids", "entry 0"));
  const auto frame = [](json& f, int times) {
    json& cls = f["post_processor"]["special_tokens"]["[CLS]"];
    cls["ids"] = std::vector<int>(100, 2);
    cls["tokens"] = std::vector<std::string>(100, "[CLS]");
    json& single = f["post_processor"]["single"];
    for (int i = 1; i < times; ++i) single.insert(single.begin(), json(single[0]));
  };
  file = small_file();
  frame(file, 10);
  EXPECT_EQ(load(file).encode("").size(), 1001U);
  EXPECT_TRUE(mentions(refused([&](json& f) { frame(f, 11); }), "more than 1000"));
}

// Names and shapes in messages are the file's: they are cut and made printable.
TEST_F(TokenizerTest, MessagesAreOneLine) {
  const std::string text =
      refused([](json& f) { f["post_processor"]["single"][0]["SpecialToken"]["id"] = "\n" + std::string(10'000, 'x'); });
  EXPECT_TRUE(mentions(text, "'\\x0axxx"));
  EXPECT_LT(text.size(), 400U);
}

TEST_F(TokenizerTest, RefusesWhatIsNoJson) {
  const auto refused_text = [&](const std::string& text) { return text_of<FormatError>([&] { load(text); }); };
  EXPECT_TRUE(mentions(refused_text(""), path(), "empty"));
  EXPECT_TRUE(mentions(refused_text("[]"), "object"));
  EXPECT_TRUE(mentions(refused_text("{\"model\":"), "broken JSON at byte 9"));
  EXPECT_TRUE(mentions(refused_text("{\"a\":1,\"a\":2}"), "'a' twice"));
  EXPECT_TRUE(mentions(refused_text("{\"\xC3\x28\":1}"), "broken JSON", "UTF-8"));
  EXPECT_TRUE(mentions(refused_text(std::string(2'000'000, '[')), "deeper than"));
  EXPECT_TRUE(mentions(refused_text("{\"a\":" + std::string(2'000'000, '{')), "broken JSON"));
  EXPECT_TRUE(mentions(text_of<IoError>([&] { Tokenizer::load(folder_.file("no.json")); }), "no.json"));
  EXPECT_TRUE(mentions(text_of<IoError>([&] { Tokenizer::load(folder_.path()); }), "directory"));
}

// Random changes of a valid file: a FormatError, or a tokenizer that works.
TEST_F(TokenizerTest, SurvivesMutations) {
  const std::string valid = small_file().dump();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string alphabet = R"({}[]",:0123456789-.e\ntrufalsABS#)";
  for (int round = 0; round < 3000; ++round) {
    std::string text = valid.substr(0, round % 7 == 0 ? random() % valid.size() : valid.size());
    for (std::size_t n = random() % 4; n > 0 && !text.empty(); --n) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 3);
      } else {
        text[at] = random() % 8 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
      }
    }
    try {
      const Encoding e = load(text).encode("The man saw \u4E2D astronomers [MASK] x\u0301.");
      EXPECT_EQ(e.ids.size(), e.tokens.size());
    } catch (const FormatError& error) {
      EXPECT_TRUE(mentions(error.what(), path()));
    }
  }
}

}  // namespace
}  // namespace mha
