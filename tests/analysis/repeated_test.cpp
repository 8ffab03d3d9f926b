// Scores on repeated tokens: of heads built to have them, and how the text is drawn.
#include "mha/analysis/repeated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "analysis/synthetic.h"
#include "analysis/tiny_tokenizer.h"
#include "mha/error.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

constexpr Index kPeriod = 5;
constexpr Index kFirst = 1;
constexpr Index kLength = 2 * kPeriod + 2;

RepeatedText some_text() { return {.ids = std::vector<Index>(kLength, 7), .first = kFirst, .period = kPeriod}; }

TEST(RepeatedScores, KnownAnswers) {
  test::SyntheticCapture synthetic(kLength);
  synthetic.add_layer({test::previous_head(), test::back_head(kPeriod), test::back_head(kPeriod - 1)});
  synthetic.add_layer({test::uniform_head(kLength), test::sink_head(), test::self_head()});
  Workspace workspace;
  const std::vector<RepeatedScores> scores = repeated_scores(synthetic.capture(), some_text(), workspace);
  ASSERT_EQ(scores.size(), 6U);
  const auto expect = [&](std::size_t head, double previous, double duplicate, double induction) {
    EXPECT_DOUBLE_EQ(scores[head].previous, previous) << head;
    EXPECT_DOUBLE_EQ(scores[head].duplicate, duplicate) << head;
    EXPECT_DOUBLE_EQ(scores[head].induction, induction) << head;
  };
  expect(0, 1, 0, 0);
  expect(1, 0, 1, 0);
  expect(2, 0, 0, 1);
  const double each = static_cast<double>(1.0F / kLength);
  expect(3, each, each, each);
  expect(4, 0, 0, 0);
  expect(5, 0, 0, 0);
  EXPECT_EQ(scores[4].id, (HeadId{.layer = 1, .head = 1}));
}

TEST(RepeatedScores, RefuseWhatDoesNotFit) {
  test::SyntheticCapture synthetic(kLength);
  synthetic.add_layer({test::self_head()});
  Workspace workspace;
  RepeatedText text = some_text();
  text.ids.pop_back();
  const auto refused = [&] { return test::text_of<ShapeError>([&] { repeated_scores(synthetic.capture(), text, workspace); }); };
  EXPECT_TRUE(test::mentions(refused(), "12 tokens", "11"));
  text = some_text();
  text.period = 6;
  EXPECT_TRUE(test::mentions(refused(), "twice 6 tokens from 1"));
}

TEST(RepeatedTextTest, IsFramedWordsTwice) {
  const Tokenizer tokenizer = test::tiny_tokenizer();
  const RepeatedText text = repeated_text(tokenizer, 4, 1);
  ASSERT_EQ(text.ids.size(), 10U);
  EXPECT_EQ(text.first, 1);
  EXPECT_EQ(text.ids.front(), 2) << "[CLS]";
  EXPECT_EQ(text.ids.back(), 3) << "[SEP]";
  EXPECT_TRUE(std::equal(text.ids.begin() + 1, text.ids.begin() + 5, text.ids.begin() + 5));
  const std::set<Index> words(text.ids.begin() + 1, text.ids.begin() + 5);
  EXPECT_EQ(words.size(), 4U) << "all different";
  for (const Index id : words) EXPECT_EQ(tokenizer.token(id)->find_first_of("[]#.2"), std::string_view::npos) << *tokenizer.token(id);
  EXPECT_EQ(repeated_text(tokenizer, 4, 1).ids, text.ids);
  EXPECT_NE(repeated_text(tokenizer, 4, 2).ids, text.ids);
}

TEST(RepeatedTextTest, AVocabularyWithFewerWordsIsAnError) {
  const Tokenizer tokenizer = test::tiny_tokenizer();  // the, man, saw, astronom, with, tele, caf
  EXPECT_EQ(repeated_text(tokenizer, 7, 3).ids.size(), 16U);
  EXPECT_TRUE(test::mentions(test::text_of<Error>([&] { repeated_text(tokenizer, 8, 3); }), "7 whole words", "8"));
  EXPECT_THROW(repeated_text(tokenizer, 0, 3), ShapeError);
}

}  // namespace
}  // namespace mha
