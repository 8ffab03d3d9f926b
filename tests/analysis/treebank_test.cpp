// Alignment of words and pieces, and every head's answers to arcs and verb - noun - preposition - noun, on heads built to have them.
#include "mha/analysis/treebank.h"

#include <gtest/gtest.h>

#include <sstream>

#include "analysis/tiny_tokenizer.h"
#include "analysis/trees.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/executors.h"

namespace mha {
namespace {

using test::tree;

std::vector<std::string> unit_texts(const AlignedWords& words) {
  std::vector<std::string> texts;
  for (const Index unit : words.unit_of) texts.push_back(unit < 0 ? "-" : words.units[static_cast<std::size_t>(unit)].text);
  return texts;
}

TEST(AlignWords, PiecesGoToTheWordInWhosePartOfTheTextTheyLie) {
  const AlignedWords words = align_words(
      tree({"The DET 2 det", "astronomers NOUN 3 nsubj", "saw VERB 0 root SpaceAfter=No", ". PUNCT 3 punct"}), test::tiny_tokenizer());
  EXPECT_EQ(words.ids.size(), 8U) << "[CLS] the astronom ##er ##s saw . [SEP]";
  EXPECT_EQ(words.unit_of, (std::vector<Index>{1, 2, 3, 4}));
  EXPECT_EQ(words.units[2].first, 2);
  EXPECT_EQ(words.units[2].count, 3);
  EXPECT_EQ(words.units.size(), 6U);
  EXPECT_TRUE(words.units.front().special && words.units.back().special);
  EXPECT_EQ(words.of_several_pieces, 1);
  EXPECT_EQ(words.sharing_pieces + words.without_pieces, 0);
}

TEST(AlignWords, AWordThatTheTokenizerSplitsAtPunctuationIsOneUnit) {
  const AlignedWords words = align_words(tree({"man#man NOUN 0 root", "saw VERB 1 dep"}), test::tiny_tokenizer());
  EXPECT_EQ(words.unit_of, (std::vector<Index>{1, 2}));
  EXPECT_EQ(words.units[1].count, 3);
}

TEST(AlignWords, WordsThatShareAPieceHaveNone) {
  // "sawman" is one [UNK] to the tokenizer, but two words of the tree; the words beside it keep theirs.
  const AlignedWords words =
      align_words(tree({"the DET 2 det", "saw VERB 0 root SpaceAfter=No", "man NOUN 2 obj", "with ADP 2 case"}), test::tiny_tokenizer());
  EXPECT_EQ(unit_texts(words), (std::vector<std::string>{"the", "-", "-", "with"}));
  EXPECT_EQ(words.units.size(), 5U) << "the shared piece is one unit, which nobody has";
  EXPECT_EQ(words.sharing_pieces, 2);
}

TEST(AlignWords, WhatTheTokenizerDropsIsCounted) {
  const AlignedWords words = align_words(tree({"the DET 3 det", "\xE2\x80\x8B X 3 dep", "man NOUN 0 root"}), test::tiny_tokenizer());
  EXPECT_EQ(unit_texts(words), (std::vector<std::string>{"the", "-", "man"}));
  EXPECT_EQ(words.without_pieces, 1);
}

constexpr HeadId kRows{0, 0};      // each word attends to its head most
constexpr HeadId kColumns{0, 1};   // each word is attended to by its head most
constexpr HeadId kPrevious{1, 0};  // each word attends to the one before
constexpr HeadId kUniform{1, 1};

/// Heads built to have a relation, over the words of a tree and a frame that gets more weight than any word.
HeadTable built(const TreeSentence& sentence, const AlignedWords& words) {
  HeadTable table(2, 2, static_cast<Index>(words.units.size()));
  const auto set = [&](HeadId id, Index from, Index to, float weight) { table.head(id).as<float>()[from * table.units() + to] = weight; };
  for (Index from = 0; from < table.units(); ++from) {
    for (const HeadId id : {kRows, kColumns, kPrevious, kUniform}) {
      for (Index to = 0; to < table.units(); ++to) set(id, from, to, 0.01F);
      set(id, from, 0, 0.9F);
      set(id, from, from, 0.8F);  // nobody may be its own head
    }
    if (from > 0) set(kPrevious, from, from - 1, 0.5F);
  }
  for (std::size_t w = 0; w < sentence.words.size(); ++w) {
    const Index head = sentence.words[w].head;
    if (head < 0) continue;
    const Index to = words.unit_of[static_cast<std::size_t>(head)];
    set(kRows, words.unit_of[w], to, 0.5F);
    set(kColumns, to, words.unit_of[w], 0.5F);
  }
  return table;
}

AlignedWords one_piece_each(const TreeSentence& sentence) {
  AlignedWords words;
  const auto count = static_cast<Index>(sentence.words.size());
  words.units = std::vector<Unit>(static_cast<std::size_t>(count + 2));
  words.units.front().special = words.units.back().special = true;
  for (Index w = 0; w < count; ++w) words.unit_of.push_back(w + 1);
  return words;
}

TreebankAnswers answers_to(const std::vector<TreeSentence>& sentences) {
  TreebankAnswers answers(2, 2);
  for (const TreeSentence& sentence : sentences) {
    const AlignedWords words = one_piece_each(sentence);
    answers.add(sentence, words, built(sentence, words));
  }
  return answers;
}

const TreeSentence kToVerb =
    tree({"men NOUN 2 nsubj", "saw VERB 0 root", "a DET 4 det", "star NOUN 2 obj", "With ADP 7 case", "a DET 7 det", "lens NOUN 2 obl"});
const TreeSentence kToNoun =
    tree({"men NOUN 2 nsubj", "saw VERB 0 root", "a DET 4 det", "star NOUN 2 obj", "of ADP 6 case", "ice NOUN 4 nmod"});

TEST(TreebankAnswers, HeadsBuiltToHaveTheRelationFindAllOfIt) {
  const TreebankAnswers answers = answers_to({kToVerb, kToNoun});
  ASSERT_EQ(answers.arcs().size(), 11U) << "roots are no arcs";
  for (Index arc = 0; arc < 11; ++arc) {
    EXPECT_TRUE(answers.finds(arc, Direction::FromDependent, kRows)) << arc;
    EXPECT_TRUE(answers.finds(arc, Direction::ToDependent, kColumns)) << arc;
    const TreebankAnswers::Arc& known = answers.arcs()[static_cast<std::size_t>(arc)];
    if (arc != 0 && arc != 6) {  // the words before which nothing but the frame stands
      EXPECT_EQ(answers.finds(arc, Direction::FromDependent, kPrevious), known.offset == -1) << arc;
    }
    EXPECT_EQ(known.sentence, arc < 6 ? 0 : 1);
  }
  EXPECT_EQ(answers.relations()[static_cast<std::size_t>(answers.arcs()[0].relation)], "nsubj");
  EXPECT_EQ(answers.arcs()[0].offset, 1);
}

TEST(TreebankAnswers, EqualWeightsGiveTheFirstWord) {
  const TreebankAnswers answers = answers_to({kToVerb});
  for (Index arc = 0; arc < 6; ++arc) {
    EXPECT_FALSE(answers.finds(arc, Direction::FromDependent, kUniform) && arc > 0) << "no arc but the first word's own could be found so";
  }
  const TreebankAnswers first = answers_to({tree({"men NOUN 0 root", "sing VERB 1 dep", "well ADV 1 dep"})});
  EXPECT_TRUE(first.finds(0, Direction::FromDependent, kUniform));
  EXPECT_TRUE(first.finds(1, Direction::ToDependent, kUniform));
}

TEST(TreebankAnswers, VerbNounPrepositionNoun) {
  const TreebankAnswers answers = answers_to({kToVerb, kToNoun});
  ASSERT_EQ(answers.cases().size(), 2U);
  EXPECT_TRUE(answers.cases()[0].verb);
  EXPECT_FALSE(answers.cases()[1].verb);
  EXPECT_EQ(answers.cases()[0].preposition, "with");
  EXPECT_TRUE(answers.says_verb(0, Viewpoint::Object, kRows)) << "lens attends to saw";
  EXPECT_FALSE(answers.says_verb(1, Viewpoint::Object, kRows)) << "ice attends to star";
  EXPECT_FALSE(answers.says_verb(0, Viewpoint::Preposition, kRows)) << "with attends to lens alone: equal weights are no verb";
  EXPECT_FALSE(answers.says_verb(0, Viewpoint::Preposition, kPrevious)) << "star stands before with";
}

TEST(TreebankAnswers, WhatIsNoCaseOfAttachment) {
  for (const TreeSentence& sentence : {
           tree({"men NOUN 2 nsubj", "saw VERB 0 root", "With ADP 4 case", "lens NOUN 2 obl"}),  // no object
           tree({"see VERB 0 root", "with ADP 3 case", "lens NOUN 1 obl", "stars NOUN 1 obj"}),  // object later
           tree({"see VERB 0 root", "stars NOUN 1 obj", "ice NOUN 1 obl"}),                      // no preposition
           tree({"see VERB 0 root", "stars NOUN 1 obj", "lens NOUN 1 obl", "with ADP 3 case"}),  // postposition
           tree({"stars NOUN 2 obj", "see VERB 0 root", "with ADP 4 case", "lens NOUN 2 obl"}),  // object before
           tree({"glad ADJ 0 root", "stars NOUN 1 obj", "with ADP 4 case", "lens NOUN 1 obl"}),  // no verb
           tree({"see VERB 0 root", "stars NOUN 1 nsubj", "of ADP 4 case", "ice NOUN 2 nmod"}),  // no object
       }) {
    EXPECT_TRUE(answers_to({sentence}).cases().empty()) << sentence.text;
  }
}

TEST(TreebankAnswers, ArcsAndCasesOfWordsWithoutAUnitAreLostAndCounted) {
  AlignedWords words = one_piece_each(kToVerb);
  const HeadTable table = built(kToVerb, words);
  words.unit_of[3] = AlignedWords::kNoUnit;  // star: its own arc and that of its article
  words.sharing_pieces = 1;
  TreebankAnswers answers(2, 2);
  answers.add(kToVerb, words, table);
  EXPECT_EQ(answers.arcs().size(), 4U);
  EXPECT_EQ(answers.counts().arcs_lost, 2);
  EXPECT_EQ(answers.counts().cases_lost, 1);
  EXPECT_EQ(answers.counts().sharing_pieces, 1);
  EXPECT_EQ(answers.counts().words, 7);
}

TEST(TreebankAnswers, PartsPutTogetherAreTheWhole) {
  const TreebankAnswers whole = answers_to({kToNoun, kToVerb});
  TreebankAnswers parts = answers_to({kToNoun});
  parts.append(answers_to({kToVerb}));
  ASSERT_EQ(parts.arcs().size(), whole.arcs().size());
  for (std::size_t i = 0; i < whole.arcs().size(); ++i) {
    EXPECT_EQ(parts.arcs()[i].sentence, whole.arcs()[i].sentence);
    EXPECT_EQ(parts.relations()[static_cast<std::size_t>(parts.arcs()[i].relation)],
              whole.relations()[static_cast<std::size_t>(whole.arcs()[i].relation)]);
    EXPECT_EQ(parts.finds(static_cast<Index>(i), Direction::ToDependent, kColumns),
              whole.finds(static_cast<Index>(i), Direction::ToDependent, kColumns));
  }
  EXPECT_EQ(parts.cases().at(1).sentence, 1);
  EXPECT_EQ(parts.counts().words, whole.counts().words);
}

TEST(TreebankAnswers, WhatDoesNotFitIsRefused) {
  const AlignedWords words = one_piece_each(kToNoun);
  TreebankAnswers answers(2, 2);
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { answers.add(kToNoun, words, HeadTable(2, 3, 8)); }), "2 x 3", "2 x 2"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { answers.add(kToNoun, words, HeadTable(2, 2, 7)); }), "7 units for 8"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { answers.append(TreebankAnswers(2, 3)); }), "2 x 3"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { (void)answers.finds(0, Direction::ToDependent, kRows); }), "arc 0 of 0"));
}

TEST(AnswerTreebank, ThreadsChangeNothingAndLongSentencesAreCounted) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  const Tokenizer tokenizer = test::tiny_tokenizer();
  std::string text;
  for (int i = 0; i < 40; ++i) text += test::conllu(i % 2 == 0 ? kToVerb : kToNoun);
  text += test::conllu(tree({"man NOUN 1 dep", "saw VERB 0 root"}));  // a cycle
  std::vector<std::string> many(39, "man NOUN 0 root");
  for (std::size_t i = 1; i < many.size(); ++i) many[i] = "man NOUN 1 dep";
  text += test::conllu(tree(many));  // 41 pieces with the frame, one more than the model reads
  text += test::conllu(kToNoun);
  const auto run = [&](Executor executor) {
    std::istringstream in(text);
    ConlluReader reader(in, "x.conllu");
    TreebankAnswers answers(model.config().layers, model.config().heads);
    Workspace workspace(executor);
    Index last = 0;
    answer_treebank(model, tokenizer, reader, answers, workspace, [&](Index done) {
      EXPECT_GE(done, last);
      last = done;
    });
    EXPECT_EQ(last, 42);
    EXPECT_EQ(reader.counts().cyclic, 1);
    return answers;
  };
  const TreebankAnswers one = run(serial_executor());
  test::ThreadExecutor threads(3);
  const TreebankAnswers three = run(threads.executor());
  EXPECT_EQ(one.counts().too_long, 1);
  EXPECT_EQ(one.counts().sentences, 41);
  ASSERT_EQ(one.arcs().size(), 20U * 6 + 21U * 5);
  ASSERT_EQ(three.arcs().size(), one.arcs().size());
  Index found = 0;
  for (Index arc = 0; arc < static_cast<Index>(one.arcs().size()); ++arc) {
    EXPECT_EQ(one.arcs()[static_cast<std::size_t>(arc)].sentence, three.arcs()[static_cast<std::size_t>(arc)].sentence);
    for (Index head = 0; head < model.config().heads; ++head) {
      EXPECT_EQ(one.finds(arc, Direction::ToDependent, {1, head}), three.finds(arc, Direction::ToDependent, {1, head}));
      found += one.finds(arc, Direction::ToDependent, {1, head}) ? 1 : 0;
    }
  }
  EXPECT_GT(found, 0);
}

TEST(AnswerTreebank, AnErrorOfTheFileComesOut) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  std::istringstream in(test::conllu(kToNoun) + "broken\n");
  ConlluReader reader(in, "x.conllu");
  TreebankAnswers answers(model.config().layers, model.config().heads);
  Workspace workspace;
  const auto run = [&] { answer_treebank(model, test::tiny_tokenizer(), reader, answers, workspace); };
  EXPECT_TRUE(test::mentions(test::text_of<FormatError>(run), "x.conllu, line 8"));
}

}  // namespace
}  // namespace mha
