// Interventions against models whose weights were changed to have the same effect, and against texts without the hidden piece.
#include "mha/analysis/intervention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

class InterventionTest : public testing::Test {
 protected:
  static constexpr Index kLength = 9;

  Tensor run(const Intervention& intervention) { return run(model_, ids_, intervention); }
  Tensor run(const Transformer& model, const std::vector<Index>& ids, const Intervention& intervention) {
    Tensor hidden(DType::F32, {1, static_cast<Index>(ids.size()), model.config().d_model});
    run_with(model, ids, intervention, hidden, workspace_);
    return hidden;
  }

  test::ModelFiles files_ = test::ModelFiles::read(test::test_data("tiny_bert"));
  Transformer model_ = Transformer::load(test::test_data("tiny_bert"));
  std::vector<Index> ids_ = test::some_ids(kLength, model_.config().vocabulary, 1);
  Workspace workspace_;
};

TEST_F(InterventionTest, NoneIsAPlainRun) {
  EXPECT_TRUE(test::bitwise_equal(run({}), test::hidden_states(model_, {.ids = ids_}, workspace_)));
}

TEST_F(InterventionTest, TemperatureIsQueriesThatMuchSmaller) {
  for (const float temperature : {0.25F, 3.0F}) {
    test::ModelFiles changed = test::ModelFiles::read(test::test_data("tiny_bert"));
    for (auto& [name, tensor] : changed.tensors) {
      if (name.find("attention.self.query") == std::string::npos) continue;
      float* weights = tensor.data<float>();
      for (Index i = 0; i < element_count(tensor.shape()); ++i) weights[i] /= temperature;
    }
    const Tensor expected = test::hidden_states(changed.load(), {.ids = ids_}, workspace_);
    const Tensor got = run({.temperature = temperature, .hidden = {}, .zeroed = {}});
    EXPECT_LE(test::max_difference(got, expected), test::kHiddenLimit);
    EXPECT_GT(test::max_difference(got, run({})), 100 * test::kHiddenLimit) << "a change that changes nothing proves nothing";
  }
}

TEST_F(InterventionTest, AZeroedHeadIsOneThatTheOutputProjectionDoesNotRead) {
  const HeadId id{.layer = 1, .head = 2};
  const Index dim = model_.config().head_dim;
  bool found = false;
  for (auto& [name, tensor] : files_.tensors) {
    if (name.find("layer.1.attention.output.dense.weight") == std::string::npos) continue;
    found = true;
    for (Index row = 0; row < tensor.size(0); ++row) {
      for (Index d = 0; d < dim; ++d) tensor.data<float>()[row * tensor.size(1) + id.head * dim + d] = 0.0F;
    }
  }
  ASSERT_TRUE(found);
  const Tensor expected = test::hidden_states(files_.load(), {.ids = ids_}, workspace_);
  const Tensor got = run({.temperature = 1.0F, .hidden = {}, .zeroed = {id}});
  EXPECT_LE(test::max_difference(got, expected), test::kHiddenLimit);
  EXPECT_GT(test::max_difference(got, run({})), 100 * test::kHiddenLimit);
}

TEST_F(InterventionTest, AHiddenPieceIsNotThereForTheOthers) {
  const std::vector<Index> shorter(ids_.begin(), ids_.end() - 1);
  const Tensor expected = run(model_, shorter, {});
  const Tensor got = run({.temperature = 1.0F, .hidden = {kLength - 1}, .zeroed = {}});
  EXPECT_LE(test::max_difference(got.view().slice(1, 0, kLength - 1), expected), test::kHiddenLimit);
  EXPECT_GT(test::max_difference(got, run({})), 100 * test::kHiddenLimit);
}

TEST_F(InterventionTest, WithoutAnyHeadAPieceKnowsNothingOfTheOthers) {
  Intervention none;
  for (Index layer = 0; layer < model_.config().layers; ++layer) {
    for (Index head = 0; head < model_.config().heads; ++head) none.zeroed.push_back({layer, head});
  }
  const Tensor before = run(none);
  ids_[4] = (ids_[4] + 1) % model_.config().vocabulary;
  const Tensor after = run(none);
  for (Index piece = 0; piece < kLength; ++piece) {
    EXPECT_EQ(test::bitwise_equal(before.view().slice(1, piece, piece + 1), after.view().slice(1, piece, piece + 1)), piece != 4);
  }
}

TEST_F(InterventionTest, TheHookSeesTheChange) {
  Tensor hidden(DType::F32, {1, kLength, model_.config().d_model});
  int layers = 0;
  run_with(model_, ids_, {.temperature = 2.0F, .hidden = {}, .zeroed = {{0, 1}}}, hidden, workspace_,
           [&](Index layer, const MhaTrace& trace) {
             ++layers;
             EXPECT_FLOAT_EQ(static_cast<float>(trace.spec.scale.value()), 0.5F / std::sqrt(static_cast<float>(model_.config().head_dim)));
             for (Index head = 0; head < model_.config().heads; ++head) {
               const Tensor zeros(DType::F32, {1, kLength, 1, model_.config().head_dim});
               const ConstTensorView out = ConstTensorView(trace.head_out).slice(2, head, head + 1);
               EXPECT_EQ(test::max_difference(out, zeros) == 0, layer == 0 && head == 1);
             }
           });
  EXPECT_EQ(layers, model_.config().layers);
}

TEST_F(InterventionTest, RefusesWhatIsNotThere) {
  const auto refused = [&](const Intervention& intervention) { return test::text_of<ShapeError>([&] { run(intervention); }); };
  EXPECT_TRUE(test::mentions(refused({.temperature = 1.0F, .hidden = {}, .zeroed = {{2, 0}}}), "layer is 2", "2 layers"));
  EXPECT_TRUE(test::mentions(refused({.temperature = 1.0F, .hidden = {}, .zeroed = {{0, -1}}}), "head is -1"));
  EXPECT_TRUE(test::mentions(refused({.temperature = 1.0F, .hidden = {kLength}, .zeroed = {}}), "hidden piece is 9", "9"));
  for (const float temperature : {0.0F, -1.0F, INFINITY, NAN}) {
    EXPECT_TRUE(test::mentions(refused({.temperature = temperature, .hidden = {}, .zeroed = {}}), "temperature"));
  }
}

TEST(SentenceVector, IsTheMeanOfAllPiecesAtLengthOne) {
  const std::vector<float> states = {1, 2, 8,  //
                                     5, 6, 8};
  const std::vector<double> vector = sentence_vector({states.data(), {1, 2, 3}});
  const double length = std::sqrt(3.0 * 3.0 + 4.0 * 4.0 + 8.0 * 8.0);
  ASSERT_EQ(vector.size(), 3U);
  EXPECT_DOUBLE_EQ(vector[0], 3.0 / length);
  EXPECT_DOUBLE_EQ(vector[1], 4.0 / length);
  EXPECT_DOUBLE_EQ(vector[2], 8.0 / length);
  EXPECT_THROW(sentence_vector({states.data(), {1, 0, 3}}), ShapeError);
  EXPECT_THROW(sentence_vector({states.data(), {2, 3}}), ShapeError);
}

TEST(Cosine, IsThatOfTheAngle) {
  EXPECT_DOUBLE_EQ(cosine(std::vector<double>{1, 0}, std::vector<double>{2, 2}), std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(cosine(std::vector<double>{1, 2}, std::vector<double>{-2, -4}), -1.0);
  EXPECT_EQ(cosine(std::vector<double>{0, 0}, std::vector<double>{1, 1}), 0.0);
  EXPECT_THROW(cosine(std::vector<double>{1}, std::vector<double>{1, 1}), ShapeError);
}

}  // namespace
}  // namespace mha
