// Every measure of the room on one capture of heads built to have it: a previous-token head and its double, an induction head, a uniform
// head, a sink head, a head of the token itself and one of its copy. Attention computes them from q, k and v. What health says of such
// heads is tested in head_health_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "analysis/synthetic.h"
#include "analysis/units.h"
#include "mha/analysis/distances.h"
#include "mha/analysis/links.h"
#include "mha/analysis/measures.h"
#include "mha/analysis/norms.h"
#include "mha/analysis/repeated.h"
#include "mha/analysis/rollout.h"
#include "mha/analysis/similarity.h"
#include "mha/error.h"
#include "support/near.h"

namespace mha {
namespace {

// [CLS] a b c d e a b c d e [SEP]
constexpr Index kPeriod = 5;
constexpr Index kLength = 2 * kPeriod + 2;
enum Head : Index { kPrevious, kInduction, kUniform, kSink, kPreviousToo, kSelf, kCopy, kHeads };

class SyntheticHeads : public testing::Test {
 protected:
  SyntheticHeads()
      : units_(test::sentence_of({"a", "b", "c", "d", "e", "a", "b", "c", "d", "e"})), rows_(plain_units(units_)), synthetic_(kLength) {
    // v of token j is (j, j^2 mod 7) in every head.
    Tensor v(DType::F32, {1, kLength, kHeads, 2});
    for (Index i = 0; i < kLength * kHeads; ++i) {
      const Index token = i / kHeads;
      v.data<float>()[2 * i] = static_cast<float>(token);
      v.data<float>()[2 * i + 1] = static_cast<float>(token * token % 7);
    }
    synthetic_.add_attended_layer({test::previous_head(), test::back_head(kPeriod - 1), test::uniform_head(kLength), test::sink_head(),
                                   test::previous_head(), test::self_head(), test::back_head(kPeriod)},
                                  std::move(v));
  }

  /// Mean over the plain rows of what the rule of a head says.
  void expect_measure(const HeadTable& table, Measure which, const std::map<Head, double>& expected) const {
    for (Index head = 0; head < kHeads; ++head) {
      const auto known = expected.find(static_cast<Head>(head));
      const double value = known == expected.end() ? 0.0 : known->second;
      EXPECT_NEAR(measure(which, table, {0, head}, units_, rows_), value, kTolerance * kLength)
          << "measure " << static_cast<int>(which) << " of head " << head;
    }
  }

  /// Of a weight: products with 0 and 1 are exact, what is left is exp and lse.
  const double kTolerance = test::element_tolerance(0, kLength, std::log(static_cast<double>(kLength)), DType::F32);
  std::vector<Unit> units_;
  std::vector<Index> rows_;
  test::SyntheticCapture synthetic_;
  Workspace workspace_;
};

TEST_F(SyntheticHeads, Measures) {
  const HeadTable table = fold_weights(synthetic_.capture(), units_, workspace_);
  const double each = 1.0 / kLength;
  expect_measure(table, Measure::Special,
                 {{kPrevious, 0.1}, {kPreviousToo, 0.1}, {kInduction, 0.4}, {kUniform, 2 * each}, {kSink, 1}, {kCopy, 0.5}});
  expect_measure(table, Measure::Entropy, {{kUniform, std::log(12.0)}});
  expect_measure(table, Measure::Confidence,
                 {{kPrevious, 1}, {kPreviousToo, 1}, {kInduction, 1}, {kUniform, each}, {kSink, 1}, {kSelf, 1}, {kCopy, 1}});
  expect_measure(table, Measure::Previous,
                 {{kPrevious, 1}, {kPreviousToo, 1}, {kInduction, 0.1}, {kUniform, each}, {kSink, 0.1}, {kCopy, 0.1}});
  expect_measure(table, Measure::Next, {{kUniform, each}});
  expect_measure(table, Measure::Self, {{kSelf, 1}, {kUniform, each}});
  double spread = 0.0;  // mean distance of a uniform row
  for (const Index row : rows_) {
    for (Index key = 0; key < kLength; ++key) spread += static_cast<double>(std::abs(row - key)) * each / 10;
  }
  expect_measure(table, Measure::Distance,
                 {{kPrevious, 1}, {kPreviousToo, 1}, {kInduction, 3.4}, {kUniform, spread}, {kSink, 5.5}, {kCopy, 4}});
}

TEST_F(SyntheticHeads, LinksAndUsualWeights) {
  const HeadTable table = fold_weights(synthetic_.capture(), units_, workspace_);
  const std::vector<HeadLink> ranked = ranked_links(table, 7, 6);
  EXPECT_EQ(ranked[0].id.head, kPrevious);
  EXPECT_EQ(ranked[1].id.head, kPreviousToo);
  EXPECT_EQ(ranked[2].id.head, kUniform);
  EXPECT_EQ(strongest(table, {0, kInduction}, 7, rows_), 3);
  EXPECT_EQ(strongest(table, {0, kCopy}, 7, rows_), 2);
  const std::vector<NeighbourHead> neighbours = heads_with_neighbour(table, -1, rows_, 0.9);
  ASSERT_EQ(neighbours.size(), 2U);
  EXPECT_EQ(neighbours[0].id.head + neighbours[1].id.head, kPrevious + kPreviousToo);
  EXPECT_EQ(neighbours[0].share, 1.0);
  UsualWeights usual(1, kHeads);
  usual.add(table, units_);
  EXPECT_NEAR(usual.at({0, kPrevious}, -1).value(), 1.0, kTolerance);
  EXPECT_NEAR(usual.at({0, kPrevious}, 1).value(), 0.0, kTolerance);
  EXPECT_NEAR(usual.at({0, kInduction}, -4).value(), 1.0, kTolerance);
  EXPECT_NEAR(usual.at({0, kUniform}, 3).value(), 1.0 / kLength, kTolerance);
  EXPECT_NEAR(usual.at({0, kSink}, -1).value(), 0.0, kTolerance);
}

TEST_F(SyntheticHeads, NormsOfASinkWithoutValue) {
  Tensor projection(DType::F32, {2, 2 * kHeads});  // every head's first number, twice as large
  for (Index head = 0; head < kHeads; ++head) projection.data<float>()[2 * head] = 2.0F;
  const std::vector<ConstTensorView> projections = {projection};
  const HeadTable norms = fold_norms(synthetic_.capture(), projections, units_, workspace_);
  for (const Index row : rows_) EXPECT_NEAR(norms.weight({0, kSink}, row, 0), 0.0, kTolerance) << "all weight, nothing moved";
  EXPECT_NEAR(norms.weight({0, kPrevious}, 9, 8), 16.0, 16 * kTolerance);
  EXPECT_NEAR(row_shares(norms).weight({0, kUniform}, 4, 11), 11.0 / 66, kTolerance);
}

TEST_F(SyntheticHeads, Rollout) {
  const std::vector<double> share = rollout(synthetic_.capture(), {.first = 10}, workspace_);
  std::vector<double> expected(kLength, 1.0 / kLength);  // the uniform head
  expected[9] += 2;                                      // previous, twice
  expected[6] += 1;                                      // induction
  expected[0] += 1;
  expected[10] += 1;  // self
  expected[5] += 1;   // the copy
  for (std::size_t i = 0; i < share.size(); ++i)
    EXPECT_NEAR(share[i], (expected[i] / static_cast<double>(kHeads) + (i == 10 ? 1 : 0)) / 2, kTolerance) << i;
}

TEST_F(SyntheticHeads, RepeatedScores) {
  const RepeatedText text{.ids = std::vector<Index>(kLength), .first = 1, .period = kPeriod};
  const std::vector<mha::RepeatedScores> scores = repeated_scores(synthetic_.capture(), text, workspace_);
  for (const mha::RepeatedScores& head : scores) {
    const double broad = head.id.head == kUniform ? 1.0 / kLength : 0.0;
    EXPECT_NEAR(head.previous, head.id.head == kPrevious || head.id.head == kPreviousToo ? 1.0 : broad, kTolerance) << head.id.head;
    EXPECT_NEAR(head.duplicate, head.id.head == kCopy ? 1.0 : broad, kTolerance) << head.id.head;
    EXPECT_NEAR(head.induction, head.id.head == kInduction ? 1.0 : broad, kTolerance) << head.id.head;
  }
}

TEST_F(SyntheticHeads, DistancesAndTheirMap) {
  const HeadMatrix distances = head_distances({&synthetic_.capture(), 1}, workspace_);
  EXPECT_EQ(distances.at(kPrevious, kPreviousToo), 0.0);
  EXPECT_GT(distances.at(kPrevious, kSelf), 0.9 * 11 * std::log(2.0)) << "apart in all rows but the first";
  EXPECT_LT(distances.at(kPrevious, kUniform), distances.at(kPrevious, kSelf))
      << "uniform is nearer to every head than these are to one another";
  const PlaneMap map = plane_map(distances);
  const auto gap = [&](Index a, Index b) {
    const auto& p = map.points[static_cast<std::size_t>(a)];
    const auto& q = map.points[static_cast<std::size_t>(b)];
    return std::hypot(p[0] - q[0], p[1] - q[1]);
  };
  EXPECT_NEAR(gap(kPrevious, kPreviousToo), 0.0, std::sqrt(test::unit_roundoff(DType::F64)) * distances.at(kPrevious, kSelf));
  EXPECT_GT(gap(kPrevious, kSink), 0.5 * std::log(2.0));
}

TEST_F(SyntheticHeads, Similarities) {
  const HeadMatrix alike = head_similarities({&synthetic_.capture(), 1}, workspace_);
  EXPECT_NEAR(alike.at(kPrevious, kPreviousToo), 1.0, 4 * test::unit_roundoff(DType::F64));
  EXPECT_LT(alike.at(kPrevious, kInduction), 1.0 - kTolerance);
  EXPECT_TRUE(std::isnan(alike.at(kSink, kSelf))) << "a sink head says the same in every row";
}

// As a hook is given a head that was removed from its model: rows whose lse is +infinity.
TEST_F(SyntheticHeads, RemovedHeadsAreLeftOut) {
  Capture capture = synthetic_.capture();
  Tensor lse(DType::F32, capture.layers[0].lse.shape);
  copy(capture.layers[0].lse, lse);
  for (const Index head : {kUniform, kSink, kPreviousToo, kSelf, kCopy}) {
    std::fill_n(lse.data<float>() + head * kLength, kLength, INFINITY);
  }
  capture.layers[0].lse = lse;
  const HeadMatrix distances = head_distances({&capture, 1}, workspace_);
  EXPECT_EQ(distances.heads, (std::vector<HeadId>{{0, kPrevious}, {0, kInduction}}));
  EXPECT_EQ(head_similarities({&capture, 1}, workspace_).heads, distances.heads);
  const std::vector<double> share = rollout(capture, {.first = 10}, workspace_);
  EXPECT_NEAR(share[10], 0.5, kTolerance);
  EXPECT_NEAR(share[9], 0.25, kTolerance);
  EXPECT_NEAR(share[6], 0.25, kTolerance);
  std::fill_n(lse.data<float>(), kHeads * kLength, INFINITY);
  EXPECT_EQ(rollout(capture, {.first = 10}, workspace_)[10], 1.0);
  const Tensor short_lse(DType::F32, {1, kHeads, kLength - 1});
  capture.layers[0].lse = short_lse;
  EXPECT_THROW(rollout(capture, {.first = 10}, workspace_), ShapeError);
}

}  // namespace
}  // namespace mha
