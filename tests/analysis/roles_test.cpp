// Roles: each rule on heads built to have what it asks for, at its border, and what comes first; what texts add up to.
#include "mha/analysis/roles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/tiny_tokenizer.h"
#include "analysis/trees.h"
#include "analysis/units.h"
#include "mha/analysis/head_survey.h"
#include "mha/error.h"

namespace mha {
namespace {

enum Head : Index { kPrevious, kNext, kTwoOn, kItself, kSpecial, kUniform, kSpread, kHeads };

/// [CLS], `words` words, [SEP]; one head for each name above, whose rows are exactly that.
HeadTable built(Index words) {
  const Index n = words + 2;
  HeadTable table(1, kHeads, n);
  for (Index head = 0; head < kHeads; ++head) {
    float* out = table.head({0, head}).as<float>();
    for (Index i = 0; i < n; ++i) {
      const auto put = [&](Index to, float weight) { out[i * n + std::min(std::max<Index>(to, 0), n - 1)] += weight; };
      switch (static_cast<Head>(head)) {
        case kPrevious:
          put(i - 1, 1.0F);
          break;
        case kNext:
          put(i + 1, 1.0F);
          break;
        case kTwoOn:
          put(i + 2, 1.0F);
          break;
        case kItself:
          put(i, 1.0F);
          break;
        case kSpecial:
          put(0, 0.375F);
          put(n - 1, 0.25F);
          put(i, 0.375F);
          break;
        case kUniform:
          for (Index to = 0; to < n; ++to) put(to, 1.0F / static_cast<float>(n));
          break;
        default:  // to four places around each row, none of them always the largest
          for (Index step = 0; step < 4; ++step) put((i * 5 + step * 3) % n, 0.25F);
      }
    }
  }
  return table;
}

std::vector<Unit> words_of(Index words) { return test::sentence_of(std::vector<std::string>(static_cast<std::size_t>(words), "w")); }

HeadSurvey surveyed(Index words) {
  HeadSurvey survey(1, kHeads);
  survey.add(built(words), words_of(words));
  return survey;
}

std::string name_of(const HeadSurvey& survey, Index head) { return role_name(role_of(survey.summary({0, head}))); }

TEST(Roles, OfHeadsBuiltToHaveThem) {
  const HeadSurvey survey = surveyed(20);
  EXPECT_EQ(name_of(survey, kPrevious), "previous");
  EXPECT_EQ(name_of(survey, kNext), "next");
  EXPECT_EQ(name_of(survey, kTwoOn), "at +2") << "19 of 20 rows: the last word has [SEP] only";
  EXPECT_EQ(name_of(survey, kItself), "at 0");
  EXPECT_EQ(name_of(survey, kUniform), "broad");
  EXPECT_EQ(name_of(survey, kSpread), "-");
  EXPECT_EQ(survey.summary({0, kTwoOn}).at_offset, 0.95);
  EXPECT_EQ(name_of(surveyed(9), kTwoOn), "-") << "8 of 9 rows are fewer than 0.9";
  EXPECT_EQ(name_of(surveyed(10), kTwoOn), "at +2") << "9 of 10 are not";
}

TEST(Roles, BordersAreReachedNotPassed) {
  HeadSummary summary{.id = {0, 0}, .rows = 5, .measures = std::vector<double>(measures().size(), 0.0)};
  const RoleRules rules;
  EXPECT_EQ(role_of(summary), HeadRole{});
  summary.measures.front() = rules.special;  // the default measure is Special
  EXPECT_EQ(role_of(summary).kind, RoleKind::Special);
  summary.measures.front() = std::nextafter(rules.special, 0.0);
  EXPECT_EQ(role_of(summary), HeadRole{});
  summary.spread = rules.broad;
  EXPECT_EQ(role_of(summary).kind, RoleKind::Broad);
  summary.spread = std::nextafter(rules.broad, 0.0);
  summary.at_offset = rules.positional;
  summary.offset = -3;
  EXPECT_EQ(role_name(role_of(summary)), "at -3");
  summary.rows = rules.least_rows - 1;
  EXPECT_EQ(role_of(summary), HeadRole{}) << "too few rows show nothing";
  EXPECT_EQ(role_of(summary, {.least_rows = 1, .positional = 0.95}), HeadRole{});
}

TEST(Roles, TheOrderIsPlaceThenRelationThenSpecialThenBroad) {
  HeadSummary summary{.id = {2, 3}, .rows = 50, .measures = std::vector<double>(measures().size(), 0.0)};
  summary.measures.front() = 0.6;
  summary.spread = 0.95;
  EXPECT_EQ(role_of(summary).kind, RoleKind::Special);
  const std::vector<RelationFinding> findings = {
      {.id = {2, 4}, .relation = "obj", .direction = Direction::FromDependent, .accuracy = 0.9, .baseline = 0.2, .stable = 0.0},
      {.id = {2, 3}, .relation = "det", .direction = Direction::FromDependent, .accuracy = 0.9, .baseline = 0.6, .stable = 0.0},
      {.id = {2, 3}, .relation = "amod", .direction = Direction::ToDependent, .accuracy = 0.7, .baseline = 0.3, .stable = 0.0},
      {.id = {2, 3}, .relation = "nsubj", .direction = Direction::FromDependent, .accuracy = 0.95, .baseline = 0.875, .stable = 0.0}};
  EXPECT_EQ(role_name(role_of(summary, {}, findings)), "head->amod") << "farthest above its baseline";
  EXPECT_EQ(role_name(role_of(summary, {}, std::span(findings).first(2))), "det->head");
  EXPECT_EQ(role_of(summary, {}, std::span(findings).first(1)).kind, RoleKind::Special) << "another head's";
  EXPECT_EQ(role_of(summary, {}, std::span(findings).last(1)).kind, RoleKind::Special) << "not far enough above";
  EXPECT_EQ(role_of(summary, {.found = 0.75}, std::span(findings).subspan(2, 1)).kind, RoleKind::Special) << "finds too few";
  summary.at_offset = 1.0;
  summary.offset = 1;
  EXPECT_EQ(role_of(summary, {}, findings).kind, RoleKind::Next);
}

struct Answer {
  std::vector<std::string> words;
  Index right = 0;  // how many of the sentence's arcs head 0.0 finds, from the first on; the others it sees one word beside their end
};

TreebankAnswers answers_of(const std::vector<Answer>& sentences) {
  TreebankAnswers answers(1, 2);  // head 0.1 finds nothing: all its weights are equal, and the first word has no arc to it
  for (const Answer& answer : sentences) {
    const TreeSentence sentence = test::tree(answer.words);
    const auto count = static_cast<Index>(sentence.words.size());
    AlignedWords words;
    words.units = std::vector<Unit>(sentence.words.size());
    HeadTable table(1, 2, count);
    Index arcs = 0;
    for (Index w = 0; w < count; ++w) {
      words.unit_of.push_back(w);
      const Index head = sentence.words[static_cast<std::size_t>(w)].head;
      if (head < 0) continue;
      const Index seen = ++arcs <= answer.right ? head : (head + 1) % count == w ? (head + 2) % count : (head + 1) % count;
      table.head({0, 0}).as<float>()[w * count + seen] = 1.0F;
    }
    answers.add(sentence, words, table);
  }
  return answers;
}

TEST(RelationFindings, AreWhatWasChosenElsewhereAndIsAboveTheBestOffset) {
  const std::vector<std::string> near = {"men NOUN 3 nsubj", "well ADV 3 advmod", "sing VERB 0 root", "songs NOUN 3 obj"};
  const std::vector<std::string> far = {"men NOUN 5 nsubj", "now ADV 5 advmod", "too ADV 5 advmod", "can AUX 5 aux", "sing VERB 0 root"};
  std::vector<Answer> dev;
  std::vector<Answer> report;
  for (Index i = 0; i < 30; ++i) {
    dev.push_back({near, 3});
    dev.push_back({far, 4});
    report.push_back({near, i < 24 ? 3 : 0});
    report.push_back({far, i < 15 ? 4 : 2});  // in the rest: the second of two advmod is missed
  }
  const std::vector<RelationFinding> findings = relation_findings(answers_of(dev), answers_of(report));
  const auto of = [&](const std::string& relation) {
    return std::find_if(findings.begin(), findings.end(),
                        [&](const RelationFinding& f) { return f.relation == relation && f.direction == Direction::FromDependent; });
  };
  ASSERT_NE(of("nsubj"), findings.end());
  EXPECT_EQ(of("nsubj")->id, (HeadId{0, 0}));
  EXPECT_DOUBLE_EQ(of("nsubj")->accuracy, 54.0 / 60);
  EXPECT_DOUBLE_EQ(of("nsubj")->baseline, 0.5) << "two words on, or four";
  EXPECT_DOUBLE_EQ(of("nsubj")->stable, 54.0 / 60);
  ASSERT_NE(of("advmod"), findings.end());
  EXPECT_DOUBLE_EQ(of("advmod")->accuracy, (24.0 + 30 + 15) / 90);
  EXPECT_DOUBLE_EQ(of("advmod")->baseline, 1.0 / 3);
  EXPECT_DOUBLE_EQ(of("advmod")->stable, 54.0 / 60) << "one of two is half of them";
  EXPECT_EQ(of("obj"), findings.end()) << "always at one offset, which finds all";
  EXPECT_EQ(of(kAllRelations), findings.end());
  for (const RelationFinding& finding : relation_findings(answers_of(dev), answers_of(report), 61)) EXPECT_EQ(finding.relation, "advmod");
  for (Answer& answer : report) answer.right = 0;
  EXPECT_TRUE(relation_findings(answers_of(dev), answers_of(report)).empty()) << "right where it was chosen alone";
  EXPECT_THROW(relation_findings(answers_of(dev), TreebankAnswers(3, 4)), ShapeError);
}

TEST(HeadSurvey, MeansAreOverTheRowsOfAllTexts) {
  HeadSurvey survey(1, kHeads);
  survey.add(built(6), words_of(6));
  survey.add(built(14), words_of(14));
  const HeadSummary special = survey.summary({0, kSpecial});
  EXPECT_EQ(special.rows, 20);
  EXPECT_DOUBLE_EQ(special.measure(Measure::Special), 0.625);
  EXPECT_DOUBLE_EQ(special.measure(Measure::Self), 0.375);
  EXPECT_DOUBLE_EQ(special.sink, 0.375);
  const double entropy = -(2 * 0.375 * std::log(0.375) + 0.25 * std::log(0.25));
  EXPECT_NEAR(special.measure(Measure::Entropy), entropy, 1e-15);
  EXPECT_NEAR(special.spread, (6 * entropy / std::log(8.0) + 14 * entropy / std::log(16.0)) / 20, 1e-15);
  EXPECT_TRUE(std::isnan(special.special_norm)) << "not given";
  EXPECT_NEAR(survey.summary({0, kUniform}).measure(Measure::Previous), (6.0 / 8 + 14.0 / 16) / 20, 1e-8);
  EXPECT_NEAR(survey.summary({0, kUniform}).spread, 1.0, 1e-7);
  EXPECT_EQ(survey.summary({0, kPrevious}).offset, -1);
  EXPECT_EQ(survey.summary({0, kPrevious}).at_offset, 1.0);
}

TEST(HeadSurvey, NormsAreReadBesideWeights) {
  HeadSurvey survey(1, kHeads);
  const HeadTable norms = built(6);  // what is carried is read from this table: of the uniform head, 2 of 8 units
  survey.add(built(6), words_of(6), &norms);
  EXPECT_NEAR(survey.summary({0, kUniform}).special_norm, 0.25, 1e-7);
  EXPECT_NEAR(survey.summary({0, kSpecial}).special_norm, 0.625, 1e-7);
}

TEST(HeadSurvey, AShareIsOfTextsEachJudgedByItself) {
  HeadSurvey survey(1, kHeads);
  for (const Index words : {3, 8, 9, 10, 20}) survey.add(built(words), words_of(words));
  EXPECT_EQ(survey.judged(), 4) << "3 rows show nothing";
  const HeadId two_on{0, kTwoOn};
  const HeadRole role = role_of(survey.summary(two_on));
  EXPECT_EQ(role_name(role), "at +2") << "45 of 50 rows";
  EXPECT_EQ(survey.share(two_on, role), 0.5) << "of 10 and 20 words, not of 8 and 9";
  EXPECT_EQ(survey.share({0, kPrevious}, {.kind = RoleKind::Previous, .offset = -1}), 1.0);
  EXPECT_EQ(survey.share({0, kPrevious}, {}), 0.0);
  const std::vector<std::pair<HeadRole, double>> all = survey.shares(two_on);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].second + all[1].second, 1.0);
  EXPECT_TRUE(HeadSurvey(1, 1).shares({0, 0}).empty());
  EXPECT_EQ(HeadSurvey(1, 1).share({0, 0}, {}), 0.0);
}

TEST(HeadSurvey, RowsThatSayNothingAreLeftOut) {
  HeadTable table = built(6);
  float* rows = table.head({0, kPrevious}).as<float>();
  rows[1 * 8] = std::nanf("");
  rows[2 * 8 + 1] = 0.0F;  // the row's only weight
  HeadSurvey survey(1, kHeads);
  survey.add(table, words_of(6));
  EXPECT_EQ(survey.summary({0, kPrevious}).rows, 4);
  EXPECT_EQ(survey.summary({0, kPrevious}).measure(Measure::Previous), 1.0);
  EXPECT_EQ(name_of(survey, kPrevious), "-") << "4 rows are too few";
  const HeadSummary none = HeadSurvey(1, 1).summary({0, 0});
  EXPECT_TRUE(std::isnan(none.sink) && std::isnan(none.measures.front()));
  EXPECT_EQ(role_of(none), HeadRole{});
}

TEST(HeadSurvey, AHeadThatWasRemovedHasNoRows) {
  HeadTable table = built(6);
  std::fill_n(table.head({0, kNext}).as<float>(), 64, 0.0F);
  HeadSurvey survey(1, kHeads);
  survey.add(table, words_of(6));
  survey.add(built(8), words_of(8));  // as if it were there in another text: nothing of the first stays
  EXPECT_EQ(survey.summary({0, kNext}).rows, 8);
  EXPECT_EQ(survey.summary({0, kNext}).measure(Measure::Next), 1.0);
  HeadSurvey once(1, kHeads);
  once.add(table, words_of(6));
  EXPECT_EQ(once.summary({0, kNext}).rows, 0);
  EXPECT_TRUE(std::isnan(once.summary({0, kNext}).measure(Measure::Next)));
  EXPECT_EQ(name_of(once, kNext), "-");
}

TEST(HeadSurvey, WrongSizesAreErrors) {
  HeadSurvey survey(1, kHeads);
  const HeadTable table = built(6);
  const HeadTable shorter = built(5);
  EXPECT_THROW(survey.add(table, words_of(5)), ShapeError);
  EXPECT_THROW(survey.add(table, words_of(6), &shorter), ShapeError);
  EXPECT_THROW(survey.add(HeadTable(1, 2, 8), words_of(6)), ShapeError);
  EXPECT_THROW(survey.summary({1, 0}), ShapeError);
  EXPECT_THROW(survey.share({0, kHeads}, {}), ShapeError);
  EXPECT_EQ(survey.judged(), 0) << "nothing was added";
}

TEST(HeadSurvey, OfAModelIsWhatItsTablesSay) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  const Tokenizer tokenizer = test::tiny_tokenizer();
  Workspace workspace;
  for (const bool by_pieces : {false, true}) {
    HeadSurvey survey(model.config().layers, model.config().heads);
    HeadSurvey expected(model.config().layers, model.config().heads);
    const TextSurveyor surveyor(model, tokenizer, by_pieces);
    for (const std::string text : {"The man saw the astronomers with a telescope.", "the astronomers saw the man"}) {
      const Sentence sentence = read_sentence(tokenizer, text);
      const std::vector<Unit>& units = by_pieces ? sentence.pieces : sentence.words;
      const Capture capture = capture_heads(model, sentence.ids, workspace);
      const HeadTable norms = row_shares(fold_norms(capture, output_projections(model), units, workspace));
      expected.add(read_heads(model, sentence.ids, units, workspace), units, &norms);
      EXPECT_EQ(surveyor.add(text, survey, workspace).rows, static_cast<Index>(plain_units(units).size()));
    }
    EXPECT_EQ(survey.judged(), 2);
    EXPECT_NEAR(survey.summary({1, 2}).sink, expected.summary({1, 2}).sink, 1e-6);
    EXPECT_NEAR(survey.summary({1, 2}).special_norm, expected.summary({1, 2}).special_norm, 1e-6);
    EXPECT_GT(survey.summary({1, 2}).special_norm, 0.0);
    EXPECT_NEAR(survey.summary({1, 2}).spread, expected.summary({1, 2}).spread, 1e-6);
  }
}

TEST(HeadSurvey, TextsThatDoNotFitAreCutAndEmptyOnesAddNothing) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));  // 40 positions
  const Tokenizer tokenizer = test::tiny_tokenizer();
  Workspace workspace;
  HeadSurvey survey(model.config().layers, model.config().heads);
  const TextSurveyor surveyor(model, tokenizer);
  std::string text;
  for (Index i = 0; i < 30; ++i) text += "astronomers ";  // 3 pieces each: 12 of them, two pieces more and the frame are 40
  const SurveyedText read = surveyor.add(text, survey, workspace);
  EXPECT_TRUE(read.cut);
  EXPECT_EQ(read.rows, 13);
  EXPECT_EQ(read.ids.size(), 40U);
  EXPECT_EQ(survey.summary({0, 0}).rows, 13);
  for (const char* nothing : {"", " \t "}) {
    const SurveyedText empty = surveyor.add(nothing, survey, workspace);
    EXPECT_EQ(empty.rows, 0);
    EXPECT_FALSE(empty.cut);
  }
  EXPECT_THROW(surveyor.add("the \xff", survey, workspace), FormatError);
  HeadSurvey other(1, 1);
  EXPECT_THROW(surveyor.add("the man", other, workspace), ShapeError);
}

}  // namespace
}  // namespace mha
