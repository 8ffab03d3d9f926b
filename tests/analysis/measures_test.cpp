// Each measure against a value worked out by hand.
#include "mha/analysis/measures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "analysis/units.h"
#include "mha/error.h"

namespace mha {
namespace {

// [CLS] a b [SEP]; rows of the two words.
class MeasuresTest : public testing::Test {
 protected:
  MeasuresTest() : table_(1, 1, 4), units_(test::sentence_of({"a", "b"})) {
    test::fill(table_, {0, 0},
               {{1.0F, 0.0F, 0.0F, 0.0F}, {0.25F, 0.25F, 0.0F, 0.5F}, {0.125F, 0.5F, 0.25F, 0.125F}, {0.0F, 0.0F, 0.0F, 1.0F}});
  }
  double of(Measure which) const { return measure(which, table_, {0, 0}, units_, rows_); }

  HeadTable table_;
  std::vector<Unit> units_;
  std::vector<Index> rows_ = {1, 2};
};

TEST_F(MeasuresTest, Special) { EXPECT_DOUBLE_EQ(of(Measure::Special), (0.75 + 0.25) / 2); }
TEST_F(MeasuresTest, Previous) { EXPECT_DOUBLE_EQ(of(Measure::Previous), (0.25 + 0.5) / 2); }
TEST_F(MeasuresTest, Next) { EXPECT_DOUBLE_EQ(of(Measure::Next), (0.0 + 0.125) / 2); }
TEST_F(MeasuresTest, Self) { EXPECT_DOUBLE_EQ(of(Measure::Self), (0.25 + 0.25) / 2); }
TEST_F(MeasuresTest, ConfidenceDoesNotCountTheEnd) { EXPECT_DOUBLE_EQ(of(Measure::Confidence), (0.25 + 0.5) / 2); }
TEST_F(MeasuresTest, Distance) { EXPECT_DOUBLE_EQ(of(Measure::Distance), ((0.25 + 1.0) + (0.25 + 0.5 + 0.125)) / 2); }
TEST_F(MeasuresTest, Entropy) {
  const double first = 0.5 * std::log(4.0) + 0.5 * std::log(2.0);
  const double second = 0.25 * std::log(8.0) + 0.5 * std::log(2.0) + 0.25 * std::log(4.0);
  EXPECT_NEAR(of(Measure::Entropy), (first + second) / 2, 1e-15 * 8);
}

TEST_F(MeasuresTest, NoRowsGiveZero) { EXPECT_EQ(measure(Measure::Entropy, table_, {0, 0}, units_, {}), 0.0); }

TEST_F(MeasuresTest, UnitsOfAnotherSentenceAreRefused) {
  units_.pop_back();
  EXPECT_THROW(of(Measure::Special), ShapeError);
}

TEST_F(MeasuresTest, TheListNamesEveryMeasureOnce) {
  std::set<std::string_view> names;
  for (const MeasureInfo& info : measures()) {
    names.insert(info.name);
    EXPECT_FALSE(info.meaning.empty());
    if (info.share) {
      EXPECT_LE(of(info.measure), 1.0) << info.name;
    }
  }
  EXPECT_EQ(names.size(), measures().size());
}

}  // namespace
}  // namespace mha
