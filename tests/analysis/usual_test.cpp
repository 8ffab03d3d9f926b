// Usual weights: the mean by head and signed distance, against sums done by hand; the embedded sentences.
#include "mha/analysis/usual.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "analysis/tiny_tokenizer.h"
#include "analysis/units.h"
#include "mha/error.h"

namespace mha {
namespace {

TEST(UsualWeights, AreMeansOverPairsByHeadAndSignedDistance) {
  const std::vector<Unit> words = test::sentence_of({"a", "b", "c"});
  HeadTable table(1, 2, 5);
  const std::vector<float> skipped(5, 1.0F);  // rows of special units do not count
  test::fill(table, {0, 1},
             {skipped, {0.5F, 0.1F, 0.2F, 0.2F, 0.0F}, {0.0F, 0.4F, 0.2F, 0.3F, 0.1F}, {0.0F, 0.25F, 0.5F, 0.25F, 0.0F}, skipped});
  UsualWeights usual(1, 2);
  usual.add(table, words);
  EXPECT_NEAR(usual.at({0, 1}, -1).value(), (0.4 + 0.5) / 2, 1e-7);
  EXPECT_NEAR(usual.at({0, 1}, 1).value(), (0.2 + 0.3) / 2, 1e-7);
  EXPECT_NEAR(usual.at({0, 1}, 0).value(), (0.1 + 0.2 + 0.25) / 3, 1e-7);
  EXPECT_NEAR(usual.at({0, 1}, -2).value(), 0.25, 1e-7);
  EXPECT_EQ(usual.at({0, 0}, -1), 0.0);
  EXPECT_EQ(usual.seen(-1), 2);
  EXPECT_EQ(usual.seen(-2), 1);

  HeadTable other(1, 2, 4);
  test::fill(other, {0, 1}, {std::vector<float>(4), {0.0F, 0.5F, 0.5F, 0.0F}, {0.0F, 0.9F, 0.1F, 0.0F}, std::vector<float>(4)});
  usual.add(other, test::sentence_of({"d", "e"}));
  EXPECT_NEAR(usual.at({0, 1}, -1).value(), (0.4 + 0.5 + 0.9) / 3, 1e-7);
}

TEST(UsualWeights, KnowNothingOfDistancesNeverSeen) {
  UsualWeights usual(1, 1);
  EXPECT_EQ(usual.at({0, 0}, 0), std::nullopt);
  usual.add(HeadTable(1, 1, 4), test::sentence_of({"a", "b"}));
  EXPECT_EQ(usual.at({0, 0}, 2), std::nullopt);
  EXPECT_EQ(usual.at({0, 0}, UsualWeights::kReach + 1), std::nullopt);
  EXPECT_EQ(usual.at({0, 0}, -UsualWeights::kReach - 1), std::nullopt);
  EXPECT_EQ(usual.seen(1000000), 0);
  EXPECT_THROW(usual.at({1, 0}, 0), ShapeError);
  EXPECT_THROW(usual.add(HeadTable(2, 1, 4), test::sentence_of({"a", "b"})), ShapeError);
}

TEST(UsualWeights, SentencesLongerThanTheReachAreTakenAsFarAsItGoes) {
  UsualWeights usual(1, 1);
  const std::vector<std::string> words(static_cast<std::size_t>(UsualWeights::kReach + 10), "w");
  usual.add(HeadTable(1, 1, static_cast<Index>(words.size() + 2)), test::sentence_of(words));
  EXPECT_EQ(usual.seen(UsualWeights::kReach), 10);
}

TEST(UsualWeights, OfAModelAreTheMeanOfItsSentences) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  const Tokenizer tokenizer = test::tiny_tokenizer();
  const std::vector<std::string> sentences = {"The man saw a telescope.", "the astronomers saw the man"};
  Workspace workspace;
  const UsualWeights usual = usual_weights(model, tokenizer, sentences, workspace);
  double sum = 0.0;
  for (const std::string& text : sentences) {
    const Sentence sentence = read_sentence(tokenizer, text);
    const HeadTable table = read_heads(model, sentence.ids, sentence.words, workspace);
    for (Index i = 2; i + 1 < table.units(); ++i) sum += static_cast<double>(table.weight({1, 2}, i, i - 1));
  }
  EXPECT_EQ(usual.seen(-1), 5 + 4);
  EXPECT_NEAR(usual.at({1, 2}, -1).value(), sum / 9, 1e-12);
}

TEST(WordDistance, CountsPlainWordsOnly) {
  std::vector<Unit> units = test::sentence_of({"a", "b", "c"});
  EXPECT_EQ(word_distance(units, 1, 3), 2);
  EXPECT_EQ(word_distance(units, 3, 1), -2);
  EXPECT_EQ(word_distance(units, 2, 2), 0);
  EXPECT_EQ(word_distance(units, 0, 2), std::nullopt);
  EXPECT_EQ(word_distance(units, 2, 4), std::nullopt);
}

TEST(PlainSentences, AreAboutFiveHundredDifferentOnesOfFiveToTwentyWords) {
  const auto sentences = plain_sentences();
  EXPECT_GE(sentences.size(), 480U);
  EXPECT_LE(sentences.size(), 520U);
  EXPECT_EQ(std::set<std::string>(sentences.begin(), sentences.end()).size(), sentences.size());
  for (const std::string& sentence : sentences) {
    std::istringstream stream(sentence);
    const auto words = std::distance(std::istream_iterator<std::string>(stream), {});
    EXPECT_GE(words, 5) << sentence;
    EXPECT_LE(words, 20) << sentence;
    EXPECT_EQ(sentence.back(), '.') << sentence;
  }
}

TEST(PlainSentences, AreTheCommittedFile) {
  std::string file;
  for (const std::string& sentence : plain_sentences()) file += sentence + "\n";
  EXPECT_EQ(file, test::read_bytes(MHA_TEST_SOURCE_DIR "/data/plain_sentences.txt"));
}

}  // namespace
}  // namespace mha
