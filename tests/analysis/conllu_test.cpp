// The reader of CoNLL-U: what it gives, what it counts, what it refuses, and that no bytes bring out anything else.
#include "mha/analysis/conllu.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "mha/error.h"
#include "support/errors.h"

namespace mha {
namespace {

/// A word's line: "1 man NOUN 2 nsubj" with a MISC of its own after it, or "_".
std::string line(const std::string& spaced) {
  std::istringstream in(spaced);
  std::string id, form, upos, head, relation, misc = "_";
  in >> id >> form >> upos >> head >> relation >> misc;
  return id + '\t' + form + "\t_\t" + upos + "\t_\t_\t" + head + '\t' + relation + "\t_\t" + misc + '\n';
}

std::string sentence_text(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& one : lines) text += line(one);
  return text + '\n';
}

struct Read {
  std::vector<TreeSentence> sentences;
  ConlluCounts counts;
};

Read read(const std::string& text) {
  std::istringstream in(text);
  ConlluReader reader(in, "x.conllu");
  Read result;
  for (TreeSentence sentence; reader.next(sentence);) result.sentences.push_back(sentence);
  result.counts = reader.counts();
  return result;
}

std::string refused(const std::string& text) {
  return test::text_of<FormatError>([&] { read(text); });
}

std::string part(const TreeSentence& sentence, std::size_t word) {
  const TextSpan& bytes = sentence.words[word].bytes;
  return sentence.text.substr(static_cast<std::size_t>(bytes.begin), static_cast<std::size_t>(bytes.end - bytes.begin));
}

const std::string kGood =
    sentence_text({"1 she PRON 2 nsubj", "2 sings VERB 0 root", "3 loudly ADV 2 advmod SpaceAfter=No", "4 . PUNCT 2 punct"});

TEST(Conllu, WordsHeadsAndText) {
  const Read result = read("# sent_id = 1\n# text = she sings loudly.\n" + kGood + sentence_text({"1 yes INTJ 0 root"}));
  ASSERT_EQ(result.sentences.size(), 2U);
  const TreeSentence& first = result.sentences[0];
  EXPECT_EQ(first.text, "she sings loudly.");
  EXPECT_EQ(first.line, 3);
  ASSERT_EQ(first.words.size(), 4U);
  EXPECT_EQ(first.words[0].head, 1);
  EXPECT_EQ(first.words[1].head, TreeWord::kRoot);
  EXPECT_EQ(first.words[2].relation, "advmod");
  EXPECT_EQ(first.words[0].upos, "PRON");
  for (std::size_t w = 0; w < 4; ++w) EXPECT_EQ(part(first, w), first.words[w].form);
  EXPECT_EQ(result.sentences[1].text, "yes");
  EXPECT_EQ(result.sentences[1].line, 8);
  EXPECT_EQ(result.counts.sentences, 2);
  EXPECT_EQ(result.counts.words, 5);
  EXPECT_EQ(result.counts.other_texts, 0);
}

TEST(Conllu, MultiwordTokensGiveTheTextAndTheirWordsTheTree) {
  const Read spelled = read(sentence_text({"1 they PRON 4 nsubj", "2-3 don't _ _ _ SpaceAfter=No", "2 do AUX 4 aux", "3 n't PART 4 advmod",
                                           "4 know VERB 0 root SpaceAfter=No", "5 . PUNCT 4 punct"}));
  ASSERT_EQ(spelled.sentences.size(), 1U);
  const TreeSentence& dont = spelled.sentences[0];
  EXPECT_EQ(dont.text, "they don'tknow.") << "SpaceAfter is that of the token";
  EXPECT_EQ(part(dont, 1), "do");
  EXPECT_EQ(part(dont, 2), "n't");
  EXPECT_EQ(spelled.counts.multiword_tokens, 1);
  const TreeSentence fused =
      read(sentence_text({"1-2 du _ _ _", "1 de ADP 3 case", "2 le DET 3 det", "3 pain NOUN 0 root"})).sentences.at(0);
  EXPECT_EQ(fused.text, "du pain");
  EXPECT_EQ(part(fused, 0), "du");
  EXPECT_EQ(part(fused, 1), "du");
  EXPECT_EQ(part(fused, 2), "pain");
}

TEST(Conllu, EmptyNodesAreCountedAndLeftOut) {
  const Read result =
      read(sentence_text({"0.1 and CCONJ _ _", "1 tea NOUN 0 root", "1.1 drank VERB _ _", "1.2 it PRON _ _", "2 too ADV 1 advmod"}));
  ASSERT_EQ(result.sentences.size(), 1U);
  EXPECT_EQ(result.sentences[0].text, "tea too");
  EXPECT_EQ(result.sentences[0].words[1].head, 0);
  EXPECT_EQ(result.counts.empty_nodes, 3);
}

TEST(Conllu, TreesThatAreNotWholeAreCounted) {
  const std::string cycle = sentence_text({"1 a X 2 dep", "2 b X 3 dep", "3 c X 2 dep", "4 d X 0 root"});
  const std::string itself = sentence_text({"1 a X 1 dep", "2 b X 0 root"});
  const std::string roots = sentence_text({"1 a X 0 root", "2 b X 0 root"});
  const std::string arcs =
      sentence_text({"1 a X _ dep", "2 b X 9 dep", "3 c X 1 _", "4 d X 99999999999999999999 dep", "5 e X 1 dep", "6 f X 0 _"});
  const Read result = read(cycle + kGood + itself + roots + arcs + "# text = something else\n" + kGood);
  EXPECT_EQ(result.sentences.size(), 3U);
  EXPECT_EQ(result.counts.sentences, 6);
  EXPECT_EQ(result.counts.cyclic, 2);
  EXPECT_EQ(result.counts.several_roots, 1);
  EXPECT_EQ(result.counts.missing_heads, 1);
  EXPECT_EQ(result.counts.heads_beyond, 2);
  EXPECT_EQ(result.counts.missing_relations, 1);
  EXPECT_EQ(result.counts.other_texts, 1);
  std::vector<Index> heads;
  for (const TreeWord& word : result.sentences[1].words) heads.push_back(word.head);
  EXPECT_EQ(heads, (std::vector<Index>{TreeWord::kNoArc, TreeWord::kNoArc, TreeWord::kNoArc, TreeWord::kNoArc, 0, TreeWord::kRoot}));
}

TEST(Conllu, EndsOfLinesAndOfTheFile) {
  std::string windows;
  for (const char c : kGood) windows += c == '\n' ? "\r\n" : std::string(1, c);
  for (const std::string& text : {windows, "\n\n" + kGood + "\n\n", kGood.substr(0, kGood.size() - 2)}) {
    const Read result = read(text);
    ASSERT_EQ(result.sentences.size(), 1U);
    EXPECT_EQ(result.sentences[0].text, "she sings loudly.");
  }
  for (const char* text : {"", "\n", "# only = comments\n", "# sent\n\n\n"}) EXPECT_TRUE(read(text).sentences.empty());
}

TEST(Conllu, WhatIsNotConlluIsRefusedWithItsLine) {
  struct Bad {
    std::string text;
    const char* says;
  };
  const std::string word = line("1 a X 0 root");
  const std::vector<Bad> all = {
      {"# c\n1\ta\n", "x.conllu, line 2: 2 columns, must be 10"},
      {"1\ta\t_\tX\t_\t_\t0\troot\t_\t_\t_\n", "11 columns"},
      {"1\t\t_\tX\t_\t_\t0\troot\t_\t_\n", "column 2 is empty"},
      {"\xEF\xBB\xBF" + word, "ID is"},
      {line("x a X 0 root"), "ID is"},
      {line("1- a X 0 root"), "ID is"},
      {line("-1 a X 0 root"), "ID is"},
      {line("1.x a X 0 root"), "ID is"},
      {line("2 a X 0 root"), "word 1 is due"},
      {word + line("3 b X 1 dep"), "line 2: word 2 is due"},
      {word + word, "word 2 is due"},
      {line("99999999999999999999999 a X 0 root"), "word 1 is due"},
      {line("1 a X one root"), "HEAD"},
      {line("1 a X -1 root"), "HEAD"},
      {line("1 a X 0.0 root"), "HEAD"},
      {line("2-3 ab _ _ _"), "where word 1 is due"},
      {line("1-1 ab _ _ _"), "where word 1 is due"},
      {line("1-2 ab _ _ _") + word + line("2-3 cd _ _ _"), "inside 1-2"},
      {line("1-2 ab _ _ _") + line("1-3 ab _ _ _"), "inside 1-2"},
      {line("1-3 ab _ _ _") + word + "\n", "1-3 in a sentence of 1"},
      {line("2.1 ab _ _ _"), "after word 0"},
      {line("0.1 ab _ _ _") + "\n", "without words"},
      {word + "# comment\n", "a comment inside"},
      {line("1 a\xFF X 0 root"), "line 1: text: byte 3"},
      {"# \xC0\x80\n" + word, "byte 2"},
      {line("1 \xED\xA0\x80 X 0 root"), "byte 2"},
      {std::string(static_cast<std::size_t>(ConlluReader::kLongestLine) + 1, '#'), "longer than 1048576"},
  };
  for (const Bad& bad : all) EXPECT_TRUE(test::mentions(refused(bad.text), "x.conllu, line ", bad.says)) << bad.text.substr(0, 80);
}

TEST(Conllu, ASentenceWithoutEndIsRefusedBeforeItFillsMemory) {
  std::string text;
  for (Index i = 1; i <= ConlluReader::kMostWords + 1; ++i) text += std::to_string(i) + "\ta\t_\tX\t_\t_\t0\tdep\t_\t_\n";
  EXPECT_TRUE(test::mentions(refused(text), "more than 100000 words"));
}

/// What the header promises of every sentence.
void expect_whole(const TreeSentence& sentence) {
  const auto count = static_cast<Index>(sentence.words.size());
  ASSERT_GT(count, 0);
  Index roots = 0;
  Index end = 0;
  for (Index w = 0; w < count; ++w) {
    const TreeWord& word = sentence.words[static_cast<std::size_t>(w)];
    ASSERT_TRUE(word.head >= TreeWord::kNoArc && word.head < count);
    roots += word.head == TreeWord::kRoot ? 1 : 0;
    ASSERT_TRUE(word.bytes.begin < word.bytes.end && word.bytes.end <= static_cast<Index>(sentence.text.size()));
    ASSERT_LE(end, word.bytes.end) << "words stand in order";
    end = word.bytes.end;
    Index steps = 0;
    for (Index at = w; at >= 0; at = sentence.words[static_cast<std::size_t>(at)].head) ASSERT_LE(++steps, count) << "a cycle";
  }
  ASSERT_LE(roots, 1);
}

TEST(Conllu, HostileBytesGiveWholeSentencesOrAnError) {
  const std::string seed = "# text = x\n" + kGood +
                           sentence_text({"1 they PRON 4 nsubj", "2-3 don't _ _ _", "2 do AUX 4 aux", "3 n't PART 4 advmod", "3.1 e X _ _",
                                          "4 know VERB 0 root SpaceAfter=No", "5 \xC3\xA9! PUNCT 4 punct"});
  const std::string letters = "\t\n\r-._#0123456789a\xC3\xA9\xFF|=";
  std::mt19937 random(7);
  Index refusals = 0;
  Index sentences = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = seed;
    for (int change = 0; change <= round % 4; ++change) {
      const std::size_t place = random() % text.size();
      const char letter = letters[random() % letters.size()];
      const auto kind = random() % 3;
      if (kind == 0) text[place] = letter;
      if (kind == 1) text.insert(place, 1, letter);
      if (kind == 2) text.erase(place, 1 + random() % 12);
    }
    try {
      for (const TreeSentence& sentence : read(text).sentences) {
        expect_whole(sentence);
        ++sentences;
        if (testing::Test::HasFatalFailure()) FAIL() << text;
      }
    } catch (const FormatError&) {
      ++refusals;
    }
  }
  EXPECT_GT(refusals, 1000);
  EXPECT_GT(sentences, 1000);
}

}  // namespace
}  // namespace mha
