// Choosing on one treebank and reporting on another, on heads built for it; and intervals against published values and simulation.
#include "mha/analysis/relation_scores.h"

#include <gtest/gtest.h>

#include <random>

#include "analysis/trees.h"
#include "mha/error.h"
#include "support/errors.h"

namespace mha {
namespace {

std::vector<Tally> independent(Index yes, Index of) {
  std::vector<Tally> sentences(static_cast<std::size_t>(of), Tally{0, 1});
  for (Index i = 0; i < yes; ++i) sentences[static_cast<std::size_t>(i)].yes = 1;
  return sentences;
}

constexpr double kPublished = 5e-5;  // the tables have four decimals

TEST(Share, IndependentQuestionsHaveWilsonsInterval) {
  // Newcombe 1998 (Statistics in Medicine 17, 857-872), table I, method 3.
  struct Known {
    Index yes, of;
    double low, high;
  };
  for (const Known& known : {Known{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0.0000, 0.1611}, {1, 29, 0.0061, 0.1718}}) {
    const Share share = share_of(independent(known.yes, known.of));
    EXPECT_NEAR(share.low, known.low, kPublished) << known.yes;
    EXPECT_NEAR(share.high, known.high, kPublished) << known.yes;
    EXPECT_EQ(share.yes, known.yes);
    EXPECT_EQ(share.of, known.of);
  }
}

TEST(Share, SentencesOfEqualAnswersCountAsOneQuestionEach) {
  std::vector<Tally> sentences = independent(30, 100);
  const Share once = share_of(sentences);
  for (Tally& sentence : sentences) sentence = {sentence.yes * 8, 8};
  const Share eightfold = share_of(sentences);
  EXPECT_DOUBLE_EQ(eightfold.value(), once.value());
  EXPECT_LT(eightfold.high - eightfold.low, 1.01 * (once.high - once.low));
  EXPECT_GT(eightfold.high - eightfold.low, 0.99 * (once.high - once.low)) << "800 arcs tell no more than 100";
}

TEST(Share, EdgesOfTheRange) {
  const Share none = share_of({});
  EXPECT_EQ(none.value(), 0);
  EXPECT_TRUE(none.low == 0 && none.high == 1);
  const Share all = share_of(independent(5, 5));
  EXPECT_EQ(all.high, 1);
  EXPECT_NEAR(all.low, 0.5655, kPublished);
  const Tally one{3, 9};
  const Share single = share_of({&one, 1});
  EXPECT_TRUE(single.low > 0 && single.low < 0.05 && single.high > 0.8) << "one sentence says as much as one question";
}

TEST(Lift, FromTheTwoIntervals) {
  // Newcombe 1998 (Statistics in Medicine 17, 873-890), table II, method 10: 10/10 - 0/10. Without errors there is no correlation.
  const Lift lift = lift_of(independent(10, 10), independent(0, 10));
  EXPECT_NEAR(lift.low, 0.6075, kPublished);
  EXPECT_NEAR(lift.high, 1.0, kPublished);
  const std::vector<Tally> a = independent(70, 100);
  const Lift same = lift_of(a, a);
  EXPECT_NEAR(same.value, 0, 1e-12);
  EXPECT_LT(same.high - same.low, 0.2) << "the same errors cancel but for the intervals' skew";
  std::vector<Tally> b = independent(40, 100);
  const Lift there = lift_of(a, b);
  const Lift back = lift_of(b, a);
  EXPECT_DOUBLE_EQ(there.low, -back.high);
  EXPECT_DOUBLE_EQ(there.high, -back.low);
  EXPECT_THROW(lift_of(a, independent(1, 99)), ShapeError);
  b[3].of = 2;
  EXPECT_THROW(lift_of(a, b), ShapeError);
}

/// A treebank of `sentences` in which arcs of a sentence share their luck: two answers to each, right with 0.6 and 0.5 on average.
struct Simulated {
  std::vector<Tally> a, b;
};
Simulated simulate(std::mt19937& random, int sentences) {
  const auto uniform = [&] { return static_cast<double>(random()) / 4294967296.0; };
  Simulated bank;
  for (int s = 0; s < sentences; ++s) {
    const Index size = 1 + static_cast<Index>(random() % 9);
    const double luck = uniform() < 0.5 ? 0.3 : -0.3;
    Tally a{0, size};
    Tally b{0, size};
    for (Index i = 0; i < size; ++i) {
      const double draw = uniform();
      a.yes += draw < 0.6 + luck ? 1 : 0;
      b.yes += draw < 0.5 + luck ? 1 : 0;
    }
    bank.a.push_back(a);
    bank.b.push_back(b);
  }
  return bank;
}

TEST(Share, NineteenOfTwentyIntervalsHoldTheTruthWhereArcsOfASentenceAreAlike) {
  constexpr int kRounds = 2000;
  std::mt19937 random(11);
  int held = 0;
  int held_if_independent = 0;
  int lifts_held = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Simulated bank = simulate(random, 150);
    const Share share = share_of(bank.a);
    held += share.low <= 0.6 && 0.6 <= share.high ? 1 : 0;
    const Share plain = share_of(independent(share.yes, share.of));
    held_if_independent += plain.low <= 0.6 && 0.6 <= plain.high ? 1 : 0;
    const Lift lift = lift_of(bank.a, bank.b);
    lifts_held += lift.low <= 0.1 && 0.1 <= lift.high ? 1 : 0;
  }
  const double spread = 4 * std::sqrt(0.95 * 0.05 / kRounds);  // of the count itself; 1 % for what is only asymptotically 95 %
  EXPECT_NEAR(held / static_cast<double>(kRounds), 0.95, spread + 0.01);
  EXPECT_NEAR(lifts_held / static_cast<double>(kRounds), 0.95, spread + 0.01);
  EXPECT_LT(held_if_independent / static_cast<double>(kRounds), 0.85) << "why sentences are minded";
}

/// One head that is right about every arc, or about none; and a second one that is the other way round.
TreebankAnswers answers_to(const std::vector<std::vector<std::string>>& sentences, bool first_is_right) {
  TreebankAnswers answers(1, 2);
  for (const std::vector<std::string>& lines : sentences) {
    const TreeSentence sentence = test::tree(lines);
    const auto count = static_cast<Index>(sentence.words.size());
    AlignedWords words;
    words.units = std::vector<Unit>(sentence.words.size());
    HeadTable table(1, 2, count);
    const auto weights = [&](bool right) { return table.head({0, right == first_is_right ? 0 : 1}).as<float>(); };
    for (Index w = 0; w < count; ++w) {
      words.unit_of.push_back(w);
      const Index head = sentence.words[static_cast<std::size_t>(w)].head;
      if (head < 0) continue;
      weights(true)[w * count + head] = 1;
      const Index wrong = (head + 1) % count == w ? (head + 2) % count : (head + 1) % count;
      weights(false)[w * count + wrong] = 1;
    }
    answers.add(sentence, words, table);
  }
  return answers;
}

const std::vector<std::string> kTelescope = {"men NOUN 2 nsubj", "saw VERB 0 root", "stars NOUN 2 obj", "with ADP 5 case",
                                             "lenses NOUN 2 obl"};
const std::vector<std::string> kIce = {"men NOUN 2 nsubj", "saw VERB 0 root", "stars NOUN 2 obj", "of ADP 5 case", "ice NOUN 3 nmod"};
const std::vector<std::string> kNear = {"men NOUN 2 nsubj", "sing VERB 0 root", "often ADV 2 advmod"};
const std::vector<std::string> kFar = {"men NOUN 3 nsubj", "often ADV 3 advmod", "sing VERB 0 root"};

const RelationScore& score_of(const std::vector<RelationScore>& scores, const std::string& relation) {
  for (const RelationScore& score : scores) {
    if (score.relation == relation) return score;
  }
  throw Error("no such relation: " + relation);
}

TEST(RelationScores, HeadAndOffsetAreThoseThatWereChosenElsewhere) {
  const TreebankAnswers dev = answers_to({kNear, kNear, kFar}, true);
  const TreebankAnswers test = answers_to({kFar, kFar, kNear, kNear, kFar}, false);
  const std::vector<RelationScore> scores = score_relations(dev, test);
  ASSERT_EQ(scores.size(), 3U);
  EXPECT_EQ(scores[0].relation, kAllRelations);
  EXPECT_EQ(scores[0].baseline.of, 10);
  const RelationScore& subject = score_of(scores, "nsubj");
  EXPECT_EQ(subject.offset, 1) << "what dev says, though test says 2";
  EXPECT_EQ(subject.baseline.yes, 2);
  EXPECT_EQ(subject.baseline.of, 5);
  const DirectionScore& rows = subject.directions[0];
  EXPECT_EQ(rows.head, (HeadId{0, 0}));
  EXPECT_EQ(rows.chosen.yes, 3);
  EXPECT_EQ(rows.score.yes, 0) << "right about all of dev, about none of test";
  EXPECT_DOUBLE_EQ(rows.lift.value, -0.4);
  const RelationScore same = score_of(score_relations(test, test), "nsubj");
  EXPECT_EQ(same.directions[0].head, (HeadId{0, 1}));
  EXPECT_EQ(same.directions[0].score.yes, 5) << "which is why choosing on test is no measurement";
  EXPECT_EQ(same.offset, 2);
}

TEST(RelationScores, ARelationThatDevLacksHasNothingChosen) {
  const std::vector<RelationScore> scores = score_relations(answers_to({kNear}, true), answers_to({kTelescope}, true));
  EXPECT_EQ(score_of(scores, "obl").directions[0].chosen.of, 0);
  EXPECT_EQ(score_of(scores, "obl").baseline.of, 1);
  EXPECT_EQ(score_of(scores, "nsubj").directions[0].chosen.of, 1);
}

TEST(RelationScores, OtherModelsAreRefused) {
  const TreebankAnswers two = answers_to({kNear}, true);
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { score_relations(two, TreebankAnswers(3, 4)); }), "1 x 2", "3 x 4"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { score_attachment(TreebankAnswers(3, 4), two); }), "1 x 2", "3 x 4"));
}

TEST(AttachmentScore, AgainstMajorityAndPrepositionOfDev) {
  const TreebankAnswers dev = answers_to({kTelescope, kTelescope, kIce, kNear}, true);
  const TreebankAnswers test = answers_to({kTelescope, kIce, kIce, kIce}, true);
  const AttachmentScore score = score_attachment(dev, test).value();
  EXPECT_TRUE(score.majority_verb) << "of dev";
  EXPECT_EQ(score.majority.yes, 1);
  EXPECT_EQ(score.by_preposition.yes, 4) << "with: verb, of: noun";
  EXPECT_EQ(score.verbs, 1);
  EXPECT_EQ(score.nouns, 3);
  EXPECT_EQ(score.chosen_verbs, 2);
  EXPECT_EQ(score.best, Viewpoint::Object) << "prepositions attend to their nouns only";
  const ViewpointScore& object = score.viewpoints[1];
  EXPECT_EQ(object.head, (HeadId{0, 0}));
  EXPECT_EQ(object.score.yes, 4);
  EXPECT_EQ(object.of_verbs.yes, 1);
  EXPECT_EQ(object.of_nouns.of, 3);
  EXPECT_DOUBLE_EQ(object.lift.value, 0.75);
  EXPECT_EQ(score.viewpoints[0].of_verbs.yes, 0) << "equal weights say noun";
  EXPECT_FALSE(score_attachment(answers_to({kNear}, true), test)) << "no case to choose by";
}

}  // namespace
}  // namespace mha
