// Norms: by hand on a head whose answer is plain, and on a model against the vectors themselves, alpha v W_O, written out in double.
#include "mha/analysis/norms.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/synthetic.h"
#include "analysis/units.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

// Two heads of two dims over three tokens; W_O is [2, 4]: head 0 keeps its values, head 1 turns (a, b) to (2a, 0).
class NormsTest : public testing::Test {
 protected:
  NormsTest() {
    CapturedLayer& layer = synthetic_.add_layer({test::uniform_head(3), test::previous_head()});
    const std::vector<float> values = {3, 4, 1, 7, 0, 0, 2, 9, -5, 12, -3, 0};  // [1, 3, 2, 2]
    Tensor& v = synthetic_.keep(Tensor(DType::F32, {1, 3, 2, 2}));
    std::copy(values.begin(), values.end(), v.data<float>());
    layer.v = v;
    projection_ = Tensor(DType::F32, {2, 4});
    const std::vector<float> weights = {1, 0, 2, 0,  //
                                        0, 1, 0, 0};
    std::copy(weights.begin(), weights.end(), projection_.data<float>());
  }
  const CapturedLayer& layer() const { return synthetic_.capture().layers[0]; }

  test::SyntheticCapture synthetic_{3};
  Tensor projection_;
  Workspace workspace_;
};

TEST_F(NormsTest, OfValuesByHand) {
  EXPECT_EQ(value_norms(layer(), projection_, 0), (std::vector<double>{5, 0, 13}));
  EXPECT_EQ(value_norms(layer(), projection_, 1), (std::vector<double>{2, 4, 6}));
}

TEST_F(NormsTest, ARectangleIsWeightsWithColumnsScaled) {
  Tensor table(DType::F32, {2, 2});
  captured_norms(layer(), value_norms(layer(), projection_, 1), {.batch = 0, .head = 1, .queries = {1, 3}, .keys = {0, 2}}, table,
                 workspace_);
  EXPECT_EQ(test::elements(table), (std::vector<double>{2, 0, 0, 4}));
}

TEST_F(NormsTest, FoldAndShares) {
  std::vector<Unit> units = {test::unit("a", 0), test::unit("b", 1)};
  units[1].count = 2;
  const std::vector<ConstTensorView> projections = {projection_};
  const HeadTable norms = fold_norms(synthetic_.capture(), projections, units, workspace_);
  EXPECT_FLOAT_EQ(norms.weight({0, 0}, 0, 0), 5.0F / 3);
  EXPECT_FLOAT_EQ(norms.weight({0, 0}, 1, 1), 13.0F / 3);
  EXPECT_FLOAT_EQ(norms.weight({0, 1}, 1, 0), 1.0F);  // (2 + 0) / 2: only the first piece of b attends to a
  EXPECT_FLOAT_EQ(norms.weight({0, 1}, 1, 1), 2.0F);
  const HeadTable shares = row_shares(norms);
  EXPECT_FLOAT_EQ(shares.weight({0, 0}, 0, 0), 5.0F / 18);
  EXPECT_FLOAT_EQ(shares.weight({0, 1}, 1, 1), 2.0F / 3);
  const HeadTable weights = fold_weights(synthetic_.capture(), units, workspace_);
  EXPECT_FLOAT_EQ(weights.weight({0, 0}, 1, 1), 2.0F / 3);
  const HeadTable nothing = row_shares(HeadTable(1, 1, 2));
  EXPECT_EQ(nothing.weight({0, 0}, 0, 0), 0.0F);
}

TEST_F(NormsTest, RefusesWhatDoesNotFit) {
  CapturedLayer bare = layer();
  bare.v = {};
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { value_norms(bare, projection_, 0); }), "no v"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { value_norms(layer(), projection_, 2); }), "head 2 of 1 x 2"));
  const Tensor narrow(DType::F32, {2, 3});
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { value_norms(layer(), narrow, 0); }), "[2, 3]", "2 heads of 2"));
  const Tensor three_heads(DType::F32, {1, 3, 3, 2});
  bare.v = three_heads;
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { value_norms(bare, projection_, 0); }), "[1, 3, 3, 2]", "1 x 2 heads"));
  Tensor table(DType::F32, {1, 1});
  const std::vector<double> two = {1, 2};
  EXPECT_TRUE(test::mentions(
      test::text_of<ShapeError>([&] { captured_norms(layer(), two, {.queries = {0, 1}, .keys = {0, 1}}, table, workspace_); }), "2 norms",
      "3 keys"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { fold_norms(synthetic_.capture(), {}, {}, workspace_); }),
                             "0 output projections for 1 layers"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { value_norms_by(layer(), two, 0); }), "2 numbers", "2 x 2"));
  EXPECT_TRUE(
      test::mentions(test::text_of<ShapeError>([&] { fold_norms_by(synthetic_.capture(), {two}, {}, workspace_); }), "1 grams", "2 heads"));
  const std::vector<ConstTensorView> projections = {projection_};
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { value_grams(projections, 3); }), "3 heads"));
}

// alpha_ij v_j W_O^h as a vector of d_model numbers, its length taken: what the Gram matrix spares.
TEST(NormsOfAModel, AreThoseOfTheVectorsCarried) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  Workspace workspace;
  const std::vector<Index> ids = test::some_ids(9, model.config().vocabulary, 3);
  const Capture capture = capture_heads(model, ids, workspace);
  const Index length = 9;
  const Index dim = model.config().head_dim;
  Tensor weights(DType::F32, {length, length});
  Tensor table(DType::F32, {length, length});
  for (Index layer = 0; layer < model.config().layers; ++layer) {
    const CapturedLayer& captured = capture.layers[static_cast<std::size_t>(layer)];
    const ConstTensorView projection = model.output_projection(layer);
    for (Index head = 0; head < model.config().heads; ++head) {
      const WeightsRegion all{.batch = 0, .head = head, .queries = {0, length}, .keys = {0, length}};
      captured_weights(captured, all, weights, workspace);
      captured_norms(captured, value_norms(captured, projection, head), all, table, workspace);
      test::for_each_position(weights.shape(), [&](Index q, Index k, Index, Index) {
        double square = 0;
        double magnitude = 0;
        for (Index out = 0; out < model.config().d_model; ++out) {
          double carried = 0;
          for (Index d = 0; d < dim; ++d) {
            const double product = test::element(captured.v, 0, k, head, d) * test::element(projection, out, head * dim + d);
            carried += product;
            magnitude += std::abs(product);
          }
          square += carried * carried;
        }
        const double expected = test::element(weights, q, k) * std::sqrt(square);
        // One rounding to f32; sums in double, whose terms may cancel.
        const double error = test::unit_roundoff(DType::F32) * expected + test::dot_tolerance(dim * dim, DType::F64) * magnitude;
        EXPECT_NEAR(test::element(table, q, k), expected, error) << "layer " << layer << " head " << head << " " << q << " " << k;
      });
    }
  }
}

}  // namespace
}  // namespace mha
