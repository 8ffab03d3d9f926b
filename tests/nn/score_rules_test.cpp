// What changes scores head by head (ALiBi slopes, sink logits, softcap) through both forms of the layer: the naive form hands each head its
// own numbers, the fused one all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "mha/error.h"
#include "mha/layer.h"
#include "support/errors.h"
#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

class ScoreRulesTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, ScoreRulesTest, testing::ValuesIn(all_isas()), isa_name);

MhaConfig config_with(const AttentionSpec& spec) { return {.d_model = 24, .heads = 6, .kv_heads = 3, .attention = spec}; }

Tensor output_of(const auto& layer, const Tensor& x, bool training) {
  Tensor y(DType::F32, x.shape());
  Workspace workspace(serial_executor());
  layer.forward({.x = x, .training = training}, {.y = y}, workspace);
  return y;
}

/// Attention in f32, and rounding of the projections before and after it, in each of the two forms.
double tolerance() { return 2 * (forward_tolerance(DType::F32) + 2 * dot_tolerance(24)); }

TEST_P(ScoreRulesTest, BothFormsAgree) {
  Tensor x(DType::F32, {2, 19, 24});
  fill_normal(x.view(), 5);
  AttentionSpec all = {
      .mask = causal(), .bias = AlibiBias{alibi_slopes(6)}, .softcap = 1.5F, .sink_logits = {-1, 0, 0.5F, 1, 2, -3}, .dropout = {0.3F, 7}};
  Tensor plain;
  for (const AttentionSpec& spec : {AttentionSpec{.mask = causal()}, AttentionSpec{.bias = AlibiBias{alibi_slopes(6)}},
                                    AttentionSpec{.softcap = 0.5F}, AttentionSpec{.sink_logits = {-1, 0, 0.5F, 1, 2, -3}}, all}) {
    const MhaConfig config = config_with(spec);
    const MhaParameters parameters = xavier_parameters(config, 3);
    const bool training = spec.dropout.probability > 0;
    const Tensor fused = output_of(MultiHeadAttention(config, parameters.view()), x, training);
    const Tensor naive = output_of(NaiveMultiHeadAttention(config, to_naive(config, parameters.view())), x, training);
    EXPECT_LE(relative_error(fused.view(), naive.view()), tolerance());
    if (plain) {
      EXPECT_GT(relative_error(fused.view(), plain.view()), 1000 * tolerance()) << "the rule changed nothing";
    }
    plain = fused.clone();
  }
}

TEST_P(ScoreRulesTest, TemperatureDividesTheScale) {
  Tensor x(DType::F32, {2, 19, 24});
  fill_normal(x.view(), 5);
  for (const std::optional<float> scale : {std::optional<float>(), std::optional<float>(0.7F)}) {
    const MhaConfig config = config_with({.scale = scale});
    const MhaConfig divided = config_with({.scale = scale.value_or(1.0F / 2.0F) / 4.0F});  // head_dim is 4
    const MhaParameters parameters = xavier_parameters(config, 3);
    const auto at = [&](const auto& layer, float temperature) {
      Tensor y(DType::F32, x.shape());
      Workspace workspace(serial_executor());
      layer.forward({.x = x, .temperature = temperature}, {.y = y}, workspace);
      return y;
    };
    const Tensor expected = at(MultiHeadAttention(divided, parameters.view()), 1.0F);
    EXPECT_TRUE(bitwise_equal(at(MultiHeadAttention(config, parameters.view()), 4.0F), expected));
    EXPECT_LE(relative_error(at(NaiveMultiHeadAttention(config, to_naive(config, parameters.view())), 4.0F), expected), tolerance());
    EXPECT_FALSE(bitwise_equal(at(MultiHeadAttention(config, parameters.view()), 1.0F), expected));
    for (const float refused : {0.0F, -2.0F, INFINITY, NAN}) {
      EXPECT_THROW(at(MultiHeadAttention(config, parameters.view()), refused), ShapeError);
    }
  }
}

TEST(ScoreRulesErrors, NumbersPerHead) {
  const Tensor x(DType::F32, {1, 4, 24});
  for (const AttentionSpec& spec : {AttentionSpec{.bias = AlibiBias{{0.5F}}}, AttentionSpec{.sink_logits = {1.0F, 2.0F}}}) {
    const MhaConfig config = config_with(spec);
    const MhaParameters parameters = xavier_parameters(config, 3);
    EXPECT_THROW(output_of(MultiHeadAttention(config, parameters.view()), x, false), ShapeError);
    EXPECT_THROW(output_of(NaiveMultiHeadAttention(config, to_naive(config, parameters.view())), x, false), ShapeError);
  }
}

}  // namespace
}  // namespace mha::test
