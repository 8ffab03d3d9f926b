// Rollout against the product of whole matrices in double, and on heads whose answer is known.
#include "mha/analysis/rollout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "analysis/synthetic.h"
#include "analysis/units.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

using Matrix = std::vector<std::vector<double>>;

/// (mean of the heads' weights + I) / 2, the whole table.
Matrix mixed(const CapturedLayer& layer, Workspace& workspace) {
  const Index n = layer.q_len();
  const auto size = static_cast<std::size_t>(n);
  Matrix mean(size, std::vector<double>(size));
  Tensor weights(DType::F32, {n, n});
  for (Index head = 0; head < layer.heads(); ++head) {
    captured_weights(layer, {.batch = 0, .head = head, .queries = {0, n}, .keys = {0, n}}, weights, workspace);
    for (std::size_t q = 0; q < size; ++q) {
      for (std::size_t k = 0; k < size; ++k) {
        mean[q][k] += test::element(weights, static_cast<Index>(q), static_cast<Index>(k)) / static_cast<double>(layer.heads());
      }
    }
  }
  for (std::size_t q = 0; q < size; ++q) {
    for (std::size_t k = 0; k < size; ++k) mean[q][k] = (mean[q][k] + (q == k ? 1.0 : 0.0)) / 2;
  }
  return mean;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      for (std::size_t k = 0; k < c[i].size(); ++k) c[i][k] += a[i][j] * b[j][k];
    }
  }
  return c;
}

/// Sums in double of n numbers up to 1, once per layer and head.
double tolerance(Index n, Index layers, Index heads) {
  return static_cast<double>(layers * (heads + n)) * test::unit_roundoff(DType::F64) * 4;
}

TEST(Rollout, IsTheProductOfAllLayers) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  Workspace workspace;
  constexpr Index kLength = 11;
  const Capture capture = capture_heads(model, test::some_ids(kLength, model.config().vocabulary, 4), workspace);
  Matrix all = mixed(capture.layers[0], workspace);
  for (std::size_t layer = 1; layer < capture.layers.size(); ++layer) all = product(mixed(capture.layers[layer], workspace), all);
  const double limit = tolerance(kLength, model.config().layers, model.config().heads);
  for (Index piece = 0; piece < kLength; ++piece) {
    const std::vector<double> got = rollout(capture, {.first = piece}, workspace);
    for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], all[static_cast<std::size_t>(piece)][k], limit);
  }
  const std::vector<double> word = rollout(capture, {.first = 3, .count = 2}, workspace);
  for (std::size_t k = 0; k < word.size(); ++k) EXPECT_NEAR(word[k], (all[3][k] + all[4][k]) / 2, limit);
  // Rows of f32 weights sum to 1 but for the error of weights from lse, which is stored as f32.
  EXPECT_NEAR(std::accumulate(word.begin(), word.end(), 0.0), 1.0, test::kWeightsLimit);
}

// Long enough for several blocks of rows: what a block boundary would lose shows.
TEST(Rollout, OfManyBlocksOfRows) {
  constexpr Index kLength = 701;  // prime: row * 7 + 3 meets every key once
  test::SyntheticCapture synthetic(kLength);
  synthetic.add_layer({[](Index row, Index key) { return key == (row * 7 + 3) % kLength ? 1.0 : 0.0; }});
  synthetic.add_layer({test::uniform_head(kLength)});
  Workspace workspace;
  const std::vector<double> share = rollout(synthetic.capture(), {.first = 5}, workspace);
  // Half of the uniform layer goes through the permutation, which keeps it uniform; the other half starts from piece 5.
  const double each = 0.5 / kLength;
  for (std::size_t k = 0; k < share.size(); ++k) {
    EXPECT_NEAR(share[k], each + (k == 5 || k == 38 ? 0.25 : 0.0), kLength * test::unit_roundoff(DType::F32) * each) << k;
  }
}

TEST(Rollout, KnownAnswers) {
  constexpr Index kLength = 6;
  test::SyntheticCapture synthetic(kLength);
  synthetic.add_layer({test::previous_head(), test::previous_head()});
  synthetic.add_layer({test::previous_head()});
  Workspace workspace;
  EXPECT_EQ(rollout(synthetic.capture(), {.first = 4}, workspace), (std::vector<double>{0, 0, 0.25, 0.5, 0.25, 0}));
  EXPECT_EQ(rollout(synthetic.capture(), {.first = 4, .layers = 1}, workspace), (std::vector<double>{0, 0, 0, 0.5, 0.5, 0}));
  EXPECT_EQ(rollout(synthetic.capture(), {.first = 4, .layers = 0}, workspace), (std::vector<double>{0, 0, 0, 0, 1, 0}));
  std::vector<Unit> units = {test::unit("a", 0), test::unit("b", 3)};
  units[0].count = 3;
  units[1].count = 3;
  const std::vector<double> words = summed_by_unit(rollout(synthetic.capture(), {.first = 4}, workspace), units);
  EXPECT_EQ(words, (std::vector<double>{0.25, 0.75}));
}

TEST(Rollout, RefusesWhatIsNotThere) {
  test::SyntheticCapture synthetic(4);
  synthetic.add_layer({test::self_head()});
  Workspace workspace;
  const auto refused = [&](const RolloutStart& start) {
    return test::text_of<ShapeError>([&] { rollout(synthetic.capture(), start, workspace); });
  };
  EXPECT_TRUE(test::mentions(refused({.first = 3, .count = 2}), "pieces 3 to 5 of 4"));
  EXPECT_TRUE(test::mentions(refused({.first = 0, .count = 0}), "pieces 0 to 0"));
  EXPECT_TRUE(test::mentions(refused({.first = 0, .layers = 2}), "2 layers of 1"));
  EXPECT_TRUE(test::mentions(refused({.first = 0, .batch = 1}), "batch entry 1 of 1"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { rollout({}, {}, workspace); }), "no layer"));
  EXPECT_THROW(summed_by_unit(std::vector<double>{1}, std::vector<Unit>{test::unit("a", 1)}), ShapeError);
}

}  // namespace
}  // namespace mha
