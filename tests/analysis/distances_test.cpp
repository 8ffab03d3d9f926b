// Jensen-Shannon distances against their definition with two logarithms, and by hand; the map of points whose distances are given.
#include "mha/analysis/distances.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/synthetic.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

constexpr double kU = 0x1p-53;

/// By the definition: (KL(p, m) + KL(q, m)) / 2 over smoothed rows.
double by_definition(const ConstTensorView& a, const ConstTensorView& b) {
  const auto keys = static_cast<double>(a.size(1));
  double sum = 0.0;
  test::for_each_position(a.shape, [&](Index row, Index key, Index, Index) {
    const double p = 0.001 / keys + 0.999 * test::element(a, row, key);
    const double q = 0.001 / keys + 0.999 * test::element(b, row, key);
    const double middle = (p + q) / 2;
    sum += (p * std::log(p / middle) + q * std::log(q / middle)) / 2;
  });
  return sum;
}

Tensor whole_table(const CapturedLayer& layer, Index head, Workspace& workspace) {
  Tensor table(DType::F32, {layer.q_len(), layer.kv_len()});
  captured_weights(layer, {.batch = 0, .head = head, .queries = {0, layer.q_len()}, .keys = {0, layer.kv_len()}}, table, workspace);
  return table;
}

/// Entropies up to ln n per row cancel; each is a sum of n terms.
double tolerance(Index rows, Index keys) {
  return 4 * static_cast<double>(rows * (keys + 4)) * kU * (1 + std::log(static_cast<double>(keys)));
}

void expect_definition(const Capture& capture) {
  Workspace workspace;
  const HeadMatrix got = head_distances({&capture, 1}, workspace);
  const Index length = capture.layers[0].q_len();
  EXPECT_EQ(got.rows, length);
  std::vector<Tensor> tables;
  for (const HeadId& id : got.heads) tables.push_back(whole_table(capture.layers[static_cast<std::size_t>(id.layer)], id.head, workspace));
  for (Index a = 0; a < got.size(); ++a) {
    for (Index b = 0; b < got.size(); ++b) {
      const double expected = by_definition(tables[static_cast<std::size_t>(a)], tables[static_cast<std::size_t>(b)]);
      EXPECT_NEAR(got.at(a, b), expected, tolerance(length, length)) << a << " " << b;
      EXPECT_EQ(got.at(a, b), got.at(b, a));
    }
    EXPECT_EQ(got.at(a, a), 0.0);
  }
}

TEST(HeadDistances, AreTheirDefinitionOnAModel) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  Workspace workspace;
  const Capture capture = capture_heads(model, test::some_ids(12, model.config().vocabulary, 6), workspace);
  expect_definition(capture);
  const HeadMatrix got = head_distances({&capture, 1}, workspace);
  EXPECT_EQ(got.heads[5], (HeadId{.layer = 1, .head = 1}));
  Workspace serial(serial_executor());
  EXPECT_EQ(head_distances({&capture, 1}, serial).values, got.values);
}

TEST(HeadDistances, OfManyBlocksOfRows) {
  constexpr Index kLength = 421;  // three heads: blocks of 415 rows
  test::SyntheticCapture synthetic(kLength);
  synthetic.add_layer({test::uniform_head(kLength), test::previous_head(), test::back_head(400)});
  expect_definition(synthetic.capture());
}

TEST(HeadDistances, KnownAnswersAndSeveralTexts) {
  test::SyntheticCapture synthetic(4);
  synthetic.add_layer({test::self_head(), test::previous_head()});
  synthetic.add_layer({test::previous_head(), test::sink_head()});
  Workspace workspace;
  const HeadMatrix one = head_distances({&synthetic.capture(), 1}, workspace);
  EXPECT_EQ(one.at(1, 2), 0.0) << "two equal heads of different layers";
  const double high = 0.999 + 0.001 / 4;
  const double low = 0.001 / 4;
  const double middle = (high + low) / 2;
  const double apart = high * std::log(high / middle) + low * std::log(low / middle);  // of two rows on different keys
  EXPECT_NEAR(one.at(0, 1), 3 * apart, tolerance(4, 4)) << "row 0 is the same";
  EXPECT_NEAR(one.at(1, 3), 2 * apart, tolerance(4, 4)) << "rows 0 and 1 are the same";
  EXPECT_LT(apart, std::log(2.0));
  const std::vector<Capture> twice = {synthetic.capture(), synthetic.capture()};
  const HeadMatrix two = head_distances(twice, workspace);
  EXPECT_NEAR(two.at(1, 3), 4 * apart, tolerance(8, 4));
  EXPECT_EQ(two.rows, 8);
}

TEST(HeadDistances, RefusesWhatDoesNotFit) {
  Workspace workspace;
  test::SyntheticCapture one(4);
  one.add_layer({test::self_head()});
  test::SyntheticCapture other(4);
  other.add_layer({test::self_head(), test::sink_head()});
  const std::vector<Capture> both = {one.capture(), other.capture()};
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { head_distances({}, workspace); }), "no text"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { head_distances(both, workspace); }), "2 and 1"));
  EXPECT_THROW(head_distances({&one.capture(), 1}, workspace).at(0, 1), ShapeError);
}

HeadMatrix distances_of(const std::vector<std::array<double, 2>>& points) {
  HeadMatrix distances;
  for (std::size_t i = 0; i < points.size(); ++i) {
    distances.heads.push_back({0, static_cast<Index>(i)});
    for (const auto& other : points) distances.values.push_back(std::hypot(points[i][0] - other[0], points[i][1] - other[1]));
  }
  return distances;
}

TEST(PlaneMap, PointsOfAPlaneComeBackButForTurningAndMirroring) {
  std::vector<std::array<double, 2>> points;
  for (int i = 0; i < 40; ++i) points.push_back({5 * std::sin(1.7 * i) + i % 3, 2 * std::cos(2.9 * i)});
  const HeadMatrix given = distances_of(points);
  const PlaneMap map = plane_map(given);
  const HeadMatrix got = distances_of(map.points);
  for (std::size_t i = 0; i < given.values.size(); ++i) EXPECT_NEAR(got.values[i], given.values[i], 1600 * kU * 12);
  EXPECT_NEAR(map.shown, 1.0, 1600 * kU);
  EXPECT_EQ(plane_map(given).points, map.points);
}

TEST(PlaneMap, ALineIsOnTheFirstAxisAndItsFirstEndIsPositive) {
  const PlaneMap map = plane_map(distances_of({{0, 0}, {0, 3}, {0, 4}, {0, 1}}));
  const std::vector<double> along = {2, -1, -2, 1};
  for (std::size_t i = 0; i < along.size(); ++i) {
    EXPECT_NEAR(map.points[i][0], along[i], 64 * kU);
    EXPECT_NEAR(map.points[i][1], 0.0, std::sqrt(64 * kU)) << "the root of a rounding";
  }
}

TEST(PlaneMap, CornersOfATetrahedronDoNotFit) {
  HeadMatrix distances{.heads = {{0, 0}, {0, 1}, {0, 2}, {0, 3}}, .values = std::vector<double>(16, 1.0)};
  for (std::size_t i = 0; i < 4; ++i) distances.values[i * 5] = 0.0;
  EXPECT_NEAR(plane_map(distances).shown, 2.0 / 3, 64 * kU);
}

TEST(PlaneMap, EdgesAndErrors) {
  EXPECT_TRUE(plane_map({}).points.empty());
  const PlaneMap one = plane_map(distances_of({{3, 4}}));
  EXPECT_EQ(one.points[0], (std::array<double, 2>{0, 0}));
  HeadMatrix wrong = distances_of({{0, 0}, {1, 1}});
  wrong.values[1] = NAN;
  EXPECT_TRUE(test::mentions(test::text_of<Error>([&] { plane_map(wrong); }), "heads 0 and 1", "nan"));
  wrong.values.pop_back();
  EXPECT_THROW(plane_map(wrong), ShapeError);
}

}  // namespace
}  // namespace mha
