// The relation finder on a table of two heads that is written out here: what each number is, and the order by each.
#include "mha/analysis/relation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/units.h"
#include "mha/error.h"

namespace mha {
namespace {

// Units: 0 [CLS], 1 man, 2 saw, 3 star, 4 [SEP].
constexpr Index kMan = 1;
constexpr Index kSaw = 2;
constexpr Index kStar = 3;

class RelationTest : public testing::Test {
 protected:
  RelationTest() : units_(test::sentence_of({"man", "saw", "star"})), table_(1, 2, 5), usual_(1, 2) {
    const std::vector<float> even(5, 0.2F);
    test::fill(table_, {0, 0}, {even, {0.1F, 0.1F, 0.5F, 0.25F, 0.05F}, even, {0.0F, 0.75F, 0.25F, 0.0F, 0.0F}, even});
    test::fill(table_, {0, 1}, {even, {0.0F, 0.0F, 0.0F, 0.5F, 0.5F}, even, {0.0F, 0.125F, 0.625F, 0.25F, 0.0F}, even});
    HeadTable habit(1, 2, 5);
    test::fill(habit, {0, 0}, {even, {0.0F, 0.0F, 0.0F, 0.125F, 0.0F}, even, {0.0F, 0.5F, 0.0F, 0.0F, 0.0F}, even});
    test::fill(habit, {0, 1}, {even, {0.0F, 0.0F, 0.0F, 0.4375F, 0.0F}, even, {0.0F, 0.0625F, 0.0F, 0.0F, 0.0F}, even});
    usual_.add(habit, units_);
  }
  std::vector<WordRelation> find(const RelationQuery& query) const { return find_relation(table_, units_, query, &usual_); }
  HeadId first(const RelationQuery& query, RelationRank by) const {
    std::vector<WordRelation> found = find(query);
    rank_relations(found, by);
    return found.at(0).id;
  }

  std::vector<Unit> units_;
  HeadTable table_;
  UsualWeights usual_;
};

TEST_F(RelationTest, EveryNumberIsWhatTheTablesSay) {
  const std::vector<WordRelation> found = find({.from = kMan, .to = kStar, .rather_than = kSaw});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].id, (HeadId{0, 0}));
  EXPECT_EQ(found[0].weight, 0.25F);
  EXPECT_EQ(found[0].back, 0.75F);
  EXPECT_EQ(found[0].usual, 0.125) << "two words on";
  EXPECT_EQ(found[0].usual_back, 0.5) << "two words back";
  EXPECT_EQ(found[0].contrast, 0.25 - 0.5);
  EXPECT_EQ(found[0].lift(), 0.25 - 0.125);
  EXPECT_EQ(found[0].lift_back(), 0.75 - 0.5);
  EXPECT_EQ(found[1].contrast, 0.5);
  EXPECT_EQ(found[1].lift(), 0.0625);
}

TEST_F(RelationTest, EachRankPutsItsLargestFirst) {
  const RelationQuery query{.from = kMan, .to = kStar, .rather_than = kSaw};
  EXPECT_EQ(first(query, RelationRank::Weight), (HeadId{0, 1}));
  EXPECT_EQ(first(query, RelationRank::Contrast), (HeadId{0, 1}));
  EXPECT_EQ(first(query, RelationRank::Lift), (HeadId{0, 0})) << "the smaller weight is the less usual one";
  EXPECT_EQ(first(query, RelationRank::Back), (HeadId{0, 0}));
  // Back in head 1: 0.125 where 0.0625 is usual; in head 0 it is 0.75 where 0.5 is.
  EXPECT_EQ(first(query, RelationRank::LiftBack), (HeadId{0, 0}));
  EXPECT_EQ(relation_ranks().size(), 5U);
}

TEST_F(RelationTest, WhatIsNotKnownIsAbsentAndRanksLast) {
  std::vector<WordRelation> found = find_relation(table_, units_, {.from = kMan, .to = kStar}, nullptr);
  EXPECT_EQ(found[0].usual, std::nullopt);
  EXPECT_EQ(found[0].lift(), std::nullopt);
  EXPECT_EQ(found[0].contrast, std::nullopt);
  rank_relations(found, RelationRank::Lift);
  EXPECT_EQ(found[0].id, (HeadId{0, 0})) << "as they stood";
  found[1].usual = 0.9;
  rank_relations(found, RelationRank::Lift);
  EXPECT_EQ(found[0].id, (HeadId{0, 1}));

  const std::vector<WordRelation> special = find({.from = kMan, .to = 4});
  EXPECT_EQ(special[1].weight, 0.5F);
  EXPECT_EQ(special[1].usual, std::nullopt) << "a special unit has no distance in words";
}

TEST_F(RelationTest, HeadsThatWereRemovedAreLeftOut) {
  std::fill_n(table_.head({0, 0}).as<float>(), 25, 0.0F);
  const std::vector<WordRelation> found = find({.from = kMan, .to = kStar});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].id, (HeadId{0, 1}));
}

TEST_F(RelationTest, WhatIsNotThereIsAnError) {
  EXPECT_THROW(find({.from = 5, .to = 0}), ShapeError);
  EXPECT_THROW(find({.from = 0, .to = -1}), ShapeError);
  EXPECT_THROW(find({.from = 0, .to = 1, .rather_than = 5}), ShapeError);
  EXPECT_THROW(find_relation(table_, std::vector<Unit>(4), {.from = 0, .to = 1}, &usual_), ShapeError);
  const UsualWeights other(1, 1);
  EXPECT_THROW(find_relation(table_, units_, {.from = kMan, .to = kStar}, &other), ShapeError);
}

}  // namespace
}  // namespace mha
