// Leave-one-out against runs with one head changed, one at a time; heads built to have no effect.
#include "mha/analysis/ablation.h"

#include <gtest/gtest.h>

#include "mha/analysis/capture.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

class AblationTest : public testing::Test {
 protected:
  Tensor run(const TextIds& ids, const Intervention& intervention) {
    Tensor hidden(DType::F32, {1, static_cast<Index>(ids.size()), model_.config().d_model});
    run_with(model_, ids, intervention, hidden, workspace_);
    return hidden;
  }

  /// The definition, for one head.
  template <class MakeIntervention>
  HeadEffect effect_of(HeadId id, const MakeIntervention& without) {
    HeadEffect effect{.id = id};
    for (const TextIds& ids : texts_) {
      const Tensor whole = run(ids, {});
      const Tensor other = run(ids, without(id));
      effect.vector += 1.0 - cosine(sentence_vector(whole), sentence_vector(other));
      effect.hidden += test::relative_error(other, whole);
    }
    const auto count = static_cast<double>(texts_.size());
    return {.id = id, .vector = effect.vector / count, .hidden = effect.hidden / count};
  }

  Transformer model_ = Transformer::load(test::test_data("tiny_bert"));
  std::vector<TextIds> texts_ = {test::some_ids(9, model_.config().vocabulary, 1), test::some_ids(5, model_.config().vocabulary, 2)};
  Workspace workspace_;
};

constexpr double kRounding = 1e-12;  // of sums of a few doubles of size 1, taken in another order

TEST_F(AblationTest, EffectsAreThoseOfRunsWithoutOneHead) {
  int begun = 0;
  const std::vector<HeadEffect> effects = head_effects(model_, texts_, Ablation::Zero, workspace_, [&] { ++begun; });
  EXPECT_EQ(begun, 2);
  ASSERT_EQ(effects.size(), 8U);
  for (std::size_t i = 0; i < effects.size(); ++i) {
    EXPECT_EQ(effects[i].id, (HeadId{static_cast<Index>(i) / 4, static_cast<Index>(i) % 4}));
    const HeadEffect expected = effect_of(effects[i].id, [](HeadId id) { return Intervention{.zeroed = {id}}; });
    EXPECT_NEAR(effects[i].vector, expected.vector, kRounding);
    EXPECT_NEAR(effects[i].hidden, expected.hidden, kRounding);
    EXPECT_GT(effects[i].vector, 1e-5) << "an effect that is none proves nothing";
  }
}

TEST_F(AblationTest, MeansAreOverAllTokensOfAllTexts) {
  const Tensor means = mean_outputs(model_, texts_, workspace_);
  const auto dim = model_.config().head_dim;
  std::vector<double> sums(static_cast<std::size_t>(element_count(means.shape())));
  for (const TextIds& ids : texts_) {
    const Capture capture = capture_heads(model_, ids, workspace_);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto at = static_cast<Index>(i);
      const ConstTensorView& out = capture.layers[static_cast<std::size_t>(at / (4 * dim))].head_out;
      for (Index q = 0; q < out.size(1); ++q) sums[i] += test::element(out, 0, q, at / dim % 4, at % dim);
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_NEAR(means.data<float>()[i], sums[i] / 14, std::abs(sums[i]) * test::unit_roundoff(DType::F32)) << i;
  }
}

TEST_F(AblationTest, MeanEffectsAreThoseOfReplacedHeads) {
  const Tensor means = mean_outputs(model_, texts_, workspace_);
  const std::vector<HeadEffect> effects = head_effects(model_, texts_, Ablation::Mean, workspace_);
  const std::vector<HeadEffect> zeroed = head_effects(model_, texts_, Ablation::Zero, workspace_);
  const auto dim = model_.config().head_dim;
  for (std::size_t i = 0; i < effects.size(); ++i) {
    const HeadEffect expected = effect_of(effects[i].id, [&](HeadId id) {
      return Intervention{.replaced = {{id, {means.data<float>() + (id.layer * 4 + id.head) * dim, {1, dim}}}}};
    });
    EXPECT_NEAR(effects[i].vector, expected.vector, kRounding);
    EXPECT_NEAR(effects[i].hidden, expected.hidden, kRounding);
    EXPECT_NE(effects[i].vector, zeroed[i].vector);
  }
}

TEST_F(AblationTest, AHeadThatTheOutputProjectionDoesNotReadHasNoEffect) {
  test::ModelFiles files = test::ModelFiles::read(test::test_data("tiny_bert"));
  const HeadId id{.layer = 0, .head = 3};
  const Index dim = model_.config().head_dim;
  Tensor& projection = files.tensors.at("encoder.layer.0.attention.output.dense.weight");
  for (Index row = 0; row < projection.size(0); ++row) {
    for (Index d = 0; d < dim; ++d) projection.data<float>()[row * projection.size(1) + id.head * dim + d] = 0.0F;
  }
  for (const Ablation ablation : {Ablation::Zero, Ablation::Mean}) {
    for (const HeadEffect& effect : head_effects(files.load(), texts_, ablation, workspace_)) {
      EXPECT_EQ(effect.hidden == 0.0, effect.id == id);
      EXPECT_LE(effect.id == id ? effect.vector : 0.0, kRounding);
    }
  }
}

TEST_F(AblationTest, SetsOfAnyNumberComeInOrder) {
  const TextIds ids = test::some_ids(40, model_.config().vocabulary, 3);
  std::vector<std::vector<HeadId>> sets;
  for (Index i = 0; i < 110; ++i) {  // more than go into one batch
    sets.emplace_back();
    for (const HeadId& id : all_heads(model_.config())) {
      if ((i >> (id.layer * 4 + id.head) & 1) != 0) sets.back().push_back(id);
    }
  }
  std::size_t next = 0;
  run_without(
      model_, ids, sets, {},
      [&](std::size_t set, ConstTensorView hidden) {
        EXPECT_EQ(set, next++);
        if (set % 9 == 1) {
          EXPECT_TRUE(test::bitwise_equal(hidden, run(ids, {.zeroed = sets[set]}))) << set;
        }
      },
      workspace_);
  EXPECT_EQ(next, sets.size());
}

TEST_F(AblationTest, WhatCannotBeIsRefused) {
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { head_effects(model_, {}, Ablation::Zero, workspace_); }), "no texts"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { head_effects(model_, {}, Ablation::Mean, workspace_); }), "no texts"));
  const std::vector<TextIds> empty(1);
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { mean_outputs(model_, empty, workspace_); }), "no tokens"));
  EXPECT_THROW(head_effects(model_, empty, Ablation::Zero, workspace_), ShapeError);
  const std::vector<std::vector<HeadId>> sets = {{{0, 1}}, {{1, 4}}};
  const auto refused = [&](ConstTensorView means, std::size_t count) {
    return test::text_of<ShapeError>([&] {
      run_without(model_, texts_[0], std::span(sets).first(count), means, [](std::size_t, ConstTensorView) { FAIL(); }, workspace_);
    });
  };
  EXPECT_TRUE(test::mentions(refused({}, 2), "layer 1, head 4 of 2 x 4"));
  EXPECT_TRUE(test::mentions(refused(Tensor(DType::F32, {2, 4, 7}), 1), "[2, 4, 7]", "[2, 4, 8]"));
}

}  // namespace
}  // namespace mha
