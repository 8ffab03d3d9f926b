// Links and readings on a table of three heads that is written out here.
#include "mha/analysis/links.h"

#include <gtest/gtest.h>

#include "analysis/units.h"
#include "mha/error.h"

namespace mha {
namespace {

// Units: 0 [CLS], 1 man, 2 astronomer, 3 telescope, 4 [SEP]; the competitors are the words.
constexpr Index kMan = 1;
constexpr Index kAstronomer = 2;
constexpr Index kTelescope = 3;
const std::vector<Index> kWords = {kMan, kAstronomer, kTelescope};

HeadTable three_heads() {
  HeadTable table(1, 3, 5);
  const std::vector<float> even = {0.2F, 0.2F, 0.2F, 0.2F, 0.2F};
  // Reading 1. [SEP] and man itself have more than telescope, and do not compete.
  test::fill(table, {0, 0}, {even, {0.1F, 0.3F, 0.05F, 0.15F, 0.4F}, even, {0.0F, 0.6F, 0.1F, 0.1F, 0.2F}, even});
  // Reading 2.
  test::fill(table, {0, 1}, {even, {0.0F, 0.1F, 0.5F, 0.2F, 0.2F}, {0.0F, 0.1F, 0.3F, 0.25F, 0.35F}, {0.0F, 0.1F, 0.7F, 0.1F, 0.1F}, even});
  // Neither: astronomer looks back at man.
  test::fill(table, {0, 2}, {even, {0.0F, 0.1F, 0.5F, 0.2F, 0.2F}, {0.0F, 0.3F, 0.3F, 0.25F, 0.15F}, {0.0F, 0.6F, 0.1F, 0.1F, 0.2F}, even});
  return table;
}

TEST(Links, StrongestLeavesTheWordItselfAndOthersThanTheCompetitorsOut) {
  const HeadTable table = three_heads();
  EXPECT_EQ(strongest(table, {0, 0}, kMan, kWords), kTelescope);
  const std::vector<Index> all = {0, 1, 2, 3, 4};
  EXPECT_EQ(strongest(table, {0, 0}, kMan, all), 4);
  EXPECT_EQ(strongest(table, {0, 0}, kAstronomer, kWords), kMan) << "the earlier of equals";
  const std::vector<Index> alone = {kMan};
  EXPECT_EQ(strongest(table, {0, 0}, kMan, alone), -1);
}

TEST(Links, ReadingOne) {
  const std::vector<HeadLink> found = heads_with_strongest(three_heads(), kMan, kTelescope, kWords);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].id, (HeadId{0, 0}));
  EXPECT_EQ(found[0].weight, 0.15F);
}

TEST(Links, ReadingTwoNeedsBothLinks) {
  const std::vector<HeadChain> found = heads_with_chain(three_heads(), kMan, kAstronomer, kTelescope, kWords);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].id, (HeadId{0, 1}));
  EXPECT_EQ(found[0].first, 0.5F);
  EXPECT_EQ(found[0].second, 0.25F);
}

TEST(Links, ChainsAreRankedByTheProduct) {
  HeadTable table(2, 1, 3);
  test::fill(table, {0, 0}, {{0.0F, 0.9F, 0.1F}, {0.4F, 0.1F, 0.5F}, {1.0F, 0.0F, 0.0F}});
  test::fill(table, {1, 0}, {{0.1F, 0.7F, 0.2F}, {0.1F, 0.1F, 0.8F}, {1.0F, 0.0F, 0.0F}});
  const std::vector<Index> all = {0, 1, 2};
  const std::vector<HeadChain> found = heads_with_chain(table, 0, 1, 2, all);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].id, (HeadId{1, 0}));
}

TEST(Links, RankedLinksAreAllHeadsSortedAndStable) {
  const std::vector<HeadLink> ranked = ranked_links(three_heads(), kTelescope, kMan);
  ASSERT_EQ(ranked.size(), 3U);
  EXPECT_EQ(ranked[0].id, (HeadId{0, 0})) << "of two equal weights, the head that comes first";
  EXPECT_EQ(ranked[1].id, (HeadId{0, 2}));
  EXPECT_EQ(ranked[2].weight, 0.1F);
}

TEST(Links, StandingLinksAreTheStrongestOfSomeHeadBesideWhatIsUsual) {
  const HeadTable table = three_heads();
  const std::vector<Unit> units = test::sentence_of({"man", "astronomer", "telescope"});
  // man: telescope in head 0 (0.15), astronomer in heads 1 and 2 (0.5 each).
  const std::vector<StandingLink> plain = standing_links(table, units, kMan, kWords, nullptr);
  ASSERT_EQ(plain.size(), 2U);
  EXPECT_EQ(plain[0].to, kAstronomer);
  EXPECT_EQ(plain[0].link.id, (HeadId{0, 1})) << "the earlier of equals";
  EXPECT_EQ(plain[0].heads, 2);
  EXPECT_EQ(plain[0].usual, std::nullopt);
  EXPECT_EQ(plain[1].to, kTelescope);
  EXPECT_EQ(plain[1].heads, 1);

  // Head 1 usually attends that much to the next word: now head 2 stands out, by less than head 0 does two words away.
  UsualWeights usual(1, 3);
  const std::vector<float> skipped(5, 0.0F);
  HeadTable habit(1, 3, 5);
  test::fill(habit, {0, 0}, {skipped, {0.0F, 0.0F, 0.0F, 0.05F, 0.0F}, skipped, skipped, skipped});
  test::fill(habit, {0, 1}, {skipped, {0.0F, 0.0F, 0.5F, 0.0F, 0.0F}, {0.0F, 0.0F, 0.0F, 0.5F, 0.0F}, skipped, skipped});
  test::fill(habit, {0, 2}, {skipped, {0.0F, 0.0F, 0.45F, 0.0F, 0.0F}, {0.0F, 0.0F, 0.0F, 0.45F, 0.0F}, skipped, skipped});
  usual.add(habit, units);
  const std::vector<StandingLink> beside = standing_links(table, units, kMan, kWords, &usual);
  ASSERT_EQ(beside.size(), 2U);
  EXPECT_EQ(beside[0].to, kTelescope);
  EXPECT_NEAR(beside[0].usual.value(), 0.05, 1e-7);
  EXPECT_EQ(beside[1].link.id, (HeadId{0, 2}));
  EXPECT_NEAR(beside[1].usual.value(), 0.45, 1e-7);
  EXPECT_EQ(beside[1].heads, 2);
  const std::vector<Index> alone = {kMan};
  EXPECT_TRUE(standing_links(table, units, kMan, alone, &usual).empty());
}

TEST(Links, NeighbourHeadsAttendMostToTheUnitAtThatDistance) {
  const HeadTable table = three_heads();
  // The previous word: head 0, astronomer -> man (even: the earlier of equals) and telescope -> man, not astronomer. Head 1: telescope ->
  // astronomer. Head 2: astronomer -> man only.
  const std::vector<NeighbourHead> half = heads_with_neighbour(table, -1, kWords, 0.5);
  ASSERT_EQ(half.size(), 3U);
  EXPECT_EQ(half[0].id, (HeadId{0, 1}));
  EXPECT_EQ(half[0].share, 0.5);
  EXPECT_NEAR(half[0].weight, (0.1 + 0.7) / 2, 1e-7);
  EXPECT_EQ(half[1].id, (HeadId{0, 2}));
  EXPECT_EQ(half[2].id, (HeadId{0, 0}));
  EXPECT_TRUE(heads_with_neighbour(table, -1, kWords, 0.6).empty());
  // The next word: man -> astronomer and astronomer -> telescope in head 1.
  const std::vector<NeighbourHead> next = heads_with_neighbour(table, 1, kWords, 1.0);
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].id, (HeadId{0, 1}));
  EXPECT_NEAR(next[0].weight, (0.5 + 0.25) / 2, 1e-7);
  EXPECT_TRUE(heads_with_neighbour(table, 3, kWords, 0.0).empty()) << "no word has such a neighbour";
}

TEST(Links, UnitsThatAreNotThereAreErrors) {
  const HeadTable table = three_heads();
  EXPECT_THROW(ranked_links(table, 5, 0), ShapeError);
  EXPECT_THROW(ranked_links(table, 0, -1), ShapeError);
}

}  // namespace
}  // namespace mha
