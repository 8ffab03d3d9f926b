// Keys that follow those of the input (a learned one, one of zeros), and what a call may bring instead of the config: a bias, a dropout
// seed. What both forms compute of them in general is tested with everything else (layer_test.cpp, golden_test.cpp); here is what must be
// exact.
#include <gtest/gtest.h>

#include <cmath>

#include "layer_case.h"
#include "mha/error.h"
#include "support/errors.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class AppendedTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, AppendedTest, testing::ValuesIn(all_isas()), isa_name);

MultiHeadAttention fused_layer(const LayerInstance& instance) { return {instance.config(), instance.parameters().view()}; }

/// heads 4 of 2 kv heads, batch 2.
LayerCase some_case() {
  return {.q_len = 21,
          .kv_len = 18,
          .d_model = 32,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .key_width = 32,
          .value_width = 32,
          .memory = Memory::Key};
}

// A key of zeros scores 0 and its value adds nothing: a sink of logit 0 says the same without the key.
TEST_P(AppendedTest, AKeyOfZerosIsASinkOfLogitZero) {
  LayerCase c = some_case();
  c.zero_key = true;
  const LayerInstance appended(c);
  c.zero_key = false;
  const LayerInstance plain(c);
  MhaConfig with_sinks = plain.config();
  with_sinks.attention.sink_logits = {0, 0, 0, 0};
  Workspace workspace;
  const LayerResults got = run_layer(fused_layer(appended), appended, workspace);
  const LayerResults expected = run_layer(MultiHeadAttention(with_sinks, plain.parameters().view()), plain, workspace);
  const LayerOracle bound = oracle(appended);
  EXPECT_EQ(beyond(got.y, expected.y, bound.y_error, 2), "");
  EXPECT_EQ(beyond(got.weights.view().slice(3, 0, 18), expected.weights, bound.weights_error.view().slice(3, 0, 18), 2), "");
  const ConstTensorView appended_key = got.k.view().slice(1, 18, 19);
  for_each_position(appended_key.shape, [&](Index b, Index k, Index h, Index d) { EXPECT_EQ(element(appended_key, b, k, h, d), 0); });
}

// Nothing to attend to but what is appended: every head gives its learned value.
TEST_P(AppendedTest, WithoutKeysOfTheInputTheLearnedOneIsAll) {
  LayerCase c = some_case();
  c.kv_len = 0;
  c.learned_key = true;
  const LayerInstance instance(c);
  Workspace workspace;
  const LayerResults got = run_layer(fused_layer(instance), instance, workspace);
  for_each_position(got.head_out.shape(), [&](Index b, Index q, Index h, Index d) {
    const double learned = element(instance.parameters().learned_v, h / 2 * c.head_dim + d);
    EXPECT_NEAR(element(got.head_out, b, q, h, d), learned, forward_tolerance(DType::F32) * std::abs(learned));
  });
  for (const double weight : elements(got.weights)) EXPECT_NEAR(weight, 1, forward_tolerance(DType::F32));
}

// The order is torch's: input, learned, zeros. A table that hides the last two leaves the layer without them, bit by bit.
TEST_P(AppendedTest, HiddenOnesChangeNoBit) {
  LayerCase c = some_case();
  c.learned_key = true;
  c.zero_key = true;
  const LayerInstance instance(c);
  Tensor allowed(DType::Bool, {1, 1, 1, 20});
  fill(allowed.view().slice(3, 0, 18), 1);
  MhaInputs inputs = instance.inputs();
  inputs.allowed = allowed;
  Workspace workspace;
  Tensor y(DType::F32, {c.batch, c.q_len, c.d_model});
  fused_layer(instance).forward(inputs, {.y = y}, workspace);

  MhaConfig config = instance.config();
  config.learned_key = config.zero_key = false;
  MhaWeights weights = instance.parameters().view();
  weights.learned_k = weights.learned_v = {};
  Tensor expected(DType::F32, {c.batch, c.q_len, c.d_model});
  MultiHeadAttention(config, weights).forward(instance.inputs(), {.y = expected}, workspace);
  EXPECT_TRUE(bitwise_equal(y, expected));
}

TEST_P(AppendedTest, BothFormsMatchTheDefinitionInEveryDtype) {
  for (const DType dtype : {DType::F32, DType::F64, DType::Bf16}) {
    LayerCase c = some_case();
    c.learned_key = true;
    c.zero_key = true;
    c.weights = dtype;
    const LayerInstance instance(c);
    Workspace workspace;
    const LayerOracle expected = oracle(instance);
    const LayerResults fused = run_layer(fused_layer(instance), instance, workspace);
    const LayerResults naive = run_layer(
        NaiveMultiHeadAttention(instance.config(), to_naive(instance.config(), instance.parameters().view())), instance, workspace);
    EXPECT_EQ(beyond(fused.y, expected.y, expected.y_error), "") << name_of(dtype);
    EXPECT_EQ(beyond(naive.y, expected.y, expected.y_error), "") << name_of(dtype);
    EXPECT_TRUE(bitwise_equal(fused.k.view().slice(1, 18, 20), naive.k.view().slice(1, 18, 20)));
    EXPECT_TRUE(bitwise_equal(fused.v.view().slice(1, 18, 20), naive.v.view().slice(1, 18, 20)));
  }
}

TEST_P(AppendedTest, ASecondCallAllocatesNoScratch) {
  LayerCase c = some_case();
  c.learned_key = true;
  const LayerInstance instance(c);
  const MultiHeadAttention layer = fused_layer(instance);
  Workspace workspace(serial_executor());
  const LayerResults first = run_layer(layer, instance, workspace);
  const std::size_t bytes = workspace.bytes();
  EXPECT_TRUE(bitwise_equal(run_layer(layer, instance, workspace).y, first.y));
  EXPECT_EQ(workspace.bytes(), bytes);
}

// A bias or a seed of the call is the config's, bit by bit, and reaches the result.
TEST_P(AppendedTest, BiasAndSeedOfACall) {
  LayerCase c = some_case();
  c.position_bias = {BiasData::Content::Finite, {}, DType::F32};
  c.dropout = {0.3F, 99};
  c.training = true;
  const LayerInstance of_config(c);
  Workspace workspace;
  const LayerResults expected = run_layer(fused_layer(of_config), of_config, workspace);
  c.bias_of_call = true;
  c.seed_of_call = true;
  const LayerInstance of_call(c);
  EXPECT_TRUE(bitwise_equal(run_layer(fused_layer(of_call), of_call, workspace).y, expected.y));
  c.dropout.seed = 100;
  const LayerInstance other_seed(c);
  EXPECT_FALSE(bitwise_equal(run_layer(fused_layer(other_seed), other_seed, workspace).y, expected.y));
  c.dropout.seed = 99;
  c.position_bias = {};
  const LayerInstance no_bias(c);
  EXPECT_FALSE(bitwise_equal(run_layer(fused_layer(no_bias), no_bias, workspace).weights, expected.weights));
}

/// Appended keys have no position that a rule or ALiBi could go by.
TEST(AppendedRules, AreRefused) {
  MhaConfig config{.d_model = 8, .heads = 2, .learned_key = true};
  Tensor x(DType::F32, {1, 4, 8});
  Tensor y(DType::F32, {1, 4, 8});
  Workspace workspace(serial_executor());
  for (const Align align : {Align::Unset, Align::TopLeft, Align::BottomRight}) {
    config.attention = {.mask = causal(), .align = align};
    const MultiHeadAttention layer(config, xavier_parameters(config, 1).view());
    EXPECT_TRUE(mentions(text_of<ShapeError>([&] { layer.forward({.x = x}, {.y = y}, workspace); }), "1 keys are appended", "mask causal"));
  }
  config.attention = {.align = Align::TopLeft, .bias = AlibiBias{{0.5F, 0.25F}}};
  const MultiHeadAttention layer(config, xavier_parameters(config, 1).view());
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { layer.forward({.x = x}, {.y = y}, workspace); }), "ALiBi"));
}

}  // namespace
}  // namespace mha::test
