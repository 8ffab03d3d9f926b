// The layer's two forms against each other and against a double implementation of its definition, under every ISA.
#include "mha/layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <utility>

#include "layer_case.h"
#include "support/executors.h"
#include "support/gen.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

MultiHeadAttention fused_layer(const LayerInstance& instance) { return {instance.config(), instance.parameters().view()}; }

NaiveMultiHeadAttention naive_layer(const LayerInstance& instance) {
  return {instance.config(), to_naive(instance.config(), instance.parameters().view())};
}

std::string described(const LayerCase& c) {
  std::ostringstream text;
  text << c;
  return text.str();
}

/// Everything that must hold for one case.
void expect_both_forms_right(const LayerCase& c) {
  const LayerInstance instance(c);
  Workspace workspace;
  const LayerResults fused = run_layer(fused_layer(instance), instance, workspace);
  const LayerResults naive = run_layer(naive_layer(instance), instance, workspace);
  const LayerOracle expected = oracle(instance);
  EXPECT_EQ(beyond(fused.y, expected.y, expected.y_error), "") << "fused y";
  EXPECT_EQ(beyond(naive.y, expected.y, expected.y_error), "") << "naive y";
  EXPECT_EQ(beyond(fused.weights, expected.weights, expected.weights_error), "") << "fused weights";
  EXPECT_EQ(beyond(naive.weights, expected.weights, expected.weights_error), "") << "naive weights";
  EXPECT_EQ(beyond(fused.y, naive.y, expected.y_error, 2), "") << "fused against naive y";
  EXPECT_EQ(fused.y.shape(), instance.inputs().x.shape);
}

class LayerTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, LayerTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(LayerTest, BothFormsMatchTheDefinition) {
  check("fused == naive == definition", [] {
    const LayerCase c = some_layer_case();
    RC_LOG() << described(c) << '\n';
    const LayerInstance instance(c);
    Workspace workspace;
    const LayerResults fused = run_layer(fused_layer(instance), instance, workspace);
    const LayerResults naive = run_layer(naive_layer(instance), instance, workspace);
    const LayerOracle expected = oracle(instance);
    RC_ASSERT(beyond(fused.y, expected.y, expected.y_error) == "");
    RC_ASSERT(beyond(naive.y, expected.y, expected.y_error) == "");
    RC_ASSERT(beyond(fused.weights, expected.weights, expected.weights_error) == "");
    RC_ASSERT(beyond(naive.weights, expected.weights, expected.weights_error) == "");
    RC_ASSERT(beyond(fused.y, naive.y, expected.y_error, 2) == "");
  });
}

TEST_P(LayerTest, PaperConfiguration) {
  expect_both_forms_right({.q_len = 2, .d_model = 512, .heads = 8, .kv_heads = 8, .head_dim = 64, .key_width = 512, .value_width = 512});
}

// Qwen3-0.6B: d_model 1024, 16 heads of 128, so projections are 1024 x 2048 and W_O is 2048 x 1024.
TEST_P(LayerTest, DecoupledHeadDim) {
  const LayerCase c = {.batch = 1,
                       .q_len = 3,
                       .d_model = 1024,
                       .heads = 16,
                       .kv_heads = 8,
                       .head_dim = 128,
                       .key_width = 1024,
                       .value_width = 1024,
                       .bias = false,
                       .mask = causal()};
  const LayerInstance instance(c);
  EXPECT_EQ(instance.parameters().wq.shape(), Dims({2048, 1024}));
  EXPECT_EQ(instance.parameters().wk.shape(), Dims({1024, 1024}));
  EXPECT_EQ(instance.parameters().wo.shape(), Dims({1024, 2048}));
  expect_both_forms_right(c);
}

TEST_P(LayerTest, CrossAttentionWithWidthsOfItsOwn) {
  expect_both_forms_right({.q_len = 7,
                           .kv_len = 19,
                           .d_model = 48,
                           .heads = 6,
                           .kv_heads = 2,
                           .head_dim = 8,
                           .key_width = 30,
                           .value_width = 21,
                           .memory = Memory::KeyAndValue});
}

TEST_P(LayerTest, MultiQuery) {
  expect_both_forms_right(
      {.q_len = 20, .d_model = 40, .heads = 5, .kv_heads = 1, .head_dim = 16, .key_width = 40, .value_width = 40, .mask = causal()});
}

TEST_P(LayerTest, DoubleThroughout) {
  expect_both_forms_right({.q_len = 6,
                           .d_model = 24,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 7,
                           .key_width = 24,
                           .value_width = 24,
                           .weights = DType::F64,
                           .mask = causal()});
}

TEST_P(LayerTest, EmptyBatchesAndLengths) {
  for (const LayerCase& c : {LayerCase{.batch = 0}, LayerCase{.q_len = 0}, LayerCase{.kv_len = 0, .memory = Memory::Key}}) {
    SCOPED_TRACE(described(c));
    expect_both_forms_right(c);
  }
}

// A row that sees nothing: attention gives 0, so y is W_O's bias exactly.
TEST_P(LayerTest, BlindRowGivesTheOutputBias) {
  const LayerCase c = {.kv_lengths = {0, 3}};
  const LayerInstance instance(c);
  Workspace workspace;
  const LayerResults got = run_layer(fused_layer(instance), instance, workspace);
  for (Index d = 0; d < c.d_model; ++d) EXPECT_EQ(element(got.y, 0, 1, d), element(instance.parameters().bo, d));
}

TEST_P(LayerTest, BothFormsShowTheHookTheSame) {
  const LayerCase c = {.q_len = 9,
                       .kv_len = 6,
                       .d_model = 20,
                       .heads = 6,
                       .kv_heads = 3,
                       .head_dim = 5,
                       .key_width = 20,
                       .value_width = 20,
                       .memory = Memory::Key};
  const LayerInstance instance(c);
  Workspace workspace;
  const LayerResults fused = run_layer(fused_layer(instance), instance, workspace);
  const LayerResults naive = run_layer(naive_layer(instance), instance, workspace);
  // Projections of 20 terms; 64 is a generous bound on |x| |w| sums here: standard normal x, Xavier w.
  const double tolerance = 64 * dot_tolerance(c.d_model);
  EXPECT_EQ(fused.q.shape(), Dims({c.batch, c.q_len, c.heads, c.head_dim}));
  EXPECT_EQ(fused.k.shape(), Dims({c.batch, c.kv_len, c.kv_heads, c.head_dim}));
  EXPECT_EQ(fused.lse.shape(), Dims({c.batch, c.heads, c.q_len}));
  EXPECT_LE(max_difference(fused.q, naive.q), tolerance);
  EXPECT_LE(max_difference(fused.k, naive.k), tolerance);
  EXPECT_LE(max_difference(fused.v, naive.v), tolerance);
  EXPECT_LE(max_difference(fused.lse, naive.lse), tolerance);
  EXPECT_LE(max_difference(fused.head_out, naive.head_out), tolerance);
}

// What a hook writes is what W_O gets: without heads 1 and 2, y is what remains of W_O's sum.
TEST_P(LayerTest, HookAblatesHeads) {
  const LayerCase c = {.d_model = 16, .heads = 4, .kv_heads = 4, .head_dim = 4, .key_width = 16, .value_width = 16};
  const LayerInstance instance(c);
  Workspace workspace;
  const auto ablated_by = [&](const auto& layer, Tensor& rest) {
    Tensor y(DType::F32, {c.batch, c.q_len, c.d_model});
    const MhaHook hook = [&](const MhaTrace& trace) {
      fill(trace.head_out.slice(2, 1, 3), 0);
      rest = Tensor(DType::F32, trace.head_out.shape);
      copy(trace.head_out, rest);
    };
    layer.forward(instance.inputs(), {.y = y, .hook = hook}, workspace);
    return y;
  };
  Tensor rest;
  for (const Tensor& y : {ablated_by(fused_layer(instance), rest), ablated_by(naive_layer(instance), rest)}) {
    for_each_position(y.shape(), [&](Index b, Index q, Index n, Index) {
      double sum = element(instance.parameters().bo, n);
      double magnitude = std::abs(sum);
      for (Index h : {0, 3}) {
        for (Index d = 0; d < 4; ++d) {
          const double term = element(rest, b, q, h, d) * element(instance.parameters().wo, n, h * 4 + d);
          sum += term;
          magnitude += std::abs(term);
        }
      }
      EXPECT_NEAR(element(y, b, q, n), sum, dot_tolerance(17) * magnitude);
    });
  }
}

// What the hook is given is enough for `attention_weights`.
TEST_P(LayerTest, HookCanAskForAnyWeights) {
  const LayerCase c = {
      .q_len = 9, .d_model = 16, .heads = 4, .kv_heads = 2, .head_dim = 4, .key_width = 16, .value_width = 16, .mask = causal()};
  const LayerInstance instance(c);
  Workspace workspace;
  Tensor region(DType::F32, {4, 5});
  Tensor y(DType::F32, {c.batch, c.q_len, c.d_model});
  const MhaHook hook = [&](const MhaTrace& trace) {
    attention_weights(trace.spec, {.q = trace.q, .k = trace.k, .v = {}, .allowed = trace.allowed, .kv_lengths = trace.kv_lengths},
                      trace.lse, {.batch = 1, .head = 3, .queries = {2, 6}, .keys = {1, 6}}, region, workspace);
  };
  fused_layer(instance).forward(instance.inputs(), {.y = y, .hook = hook}, workspace);
  const LayerOracle expected = oracle(instance);
  for_each_position(region.shape(), [&](Index q, Index k, Index, Index) {
    // A score and an lse enter the exponent, each with the error the oracle allows: a weight of its own, and the recomputed one.
    EXPECT_NEAR(element(region, q, k), element(expected.weights, 1, 3, q + 2, k + 1),
                2 * element(expected.weights_error, 1, 3, q + 2, k + 1));
  });
}

TEST_P(LayerTest, DropoutActsInTrainingOnly) {
  LayerCase c = {.q_len = 20, .d_model = 32, .heads = 4, .kv_heads = 2, .head_dim = 8, .key_width = 32, .value_width = 32};
  Workspace workspace;
  const LayerInstance plain(c);
  const LayerResults without = run_layer(fused_layer(plain), plain, workspace);
  c.dropout = {0.5F, 99};
  const LayerInstance evaluated(c);
  EXPECT_TRUE(bitwise_equal(run_layer(fused_layer(evaluated), evaluated, workspace).y, without.y));
  EXPECT_TRUE(bitwise_equal(run_layer(naive_layer(evaluated), evaluated, workspace).y, run_layer(naive_layer(plain), plain, workspace).y));
  c.training = true;
  const LayerInstance trained(c);
  const LayerResults fused = run_layer(fused_layer(trained), trained, workspace);
  EXPECT_GT(relative_error(fused.y, without.y), 0.1);
  EXPECT_TRUE(bitwise_equal(fused.weights, without.weights)) << "weights are those before dropout";
}

// Both forms drop the same weights: each head has its own number in either.
TEST_P(LayerTest, BothFormsDropTheSame) {
  check("fused == naive in training", [] {
    const LayerCase c = some_layer_case(true);
    RC_LOG() << described(c) << '\n';
    const LayerInstance instance(c);
    Workspace workspace;
    const LayerResults fused = run_layer(fused_layer(instance), instance, workspace);
    const LayerResults naive = run_layer(naive_layer(instance), instance, workspace);
    const LayerOracle undropped = oracle(instance);  // its error bound, times what survivors are multiplied by
    RC_ASSERT(beyond(fused.y, naive.y, undropped.y_error, 2 / (1 - static_cast<double>(c.dropout.probability))) == "");
    RC_ASSERT(beyond(fused.weights, undropped.weights, undropped.weights_error) == "");
  });
}

TEST_P(LayerTest, BatchMatesDoNotMatter) {
  const LayerCase c = {.batch = 3,
                       .q_len = 37,
                       .d_model = 96,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_dim = 24,
                       .key_width = 96,
                       .value_width = 96,
                       .mask = causal(),
                       .align = Align::TopLeft,
                       .kv_lengths = {37, 20, 1}};
  const LayerInstance instance(c);
  const MultiHeadAttention layer = fused_layer(instance);
  Workspace workspace;
  const LayerResults together = run_layer(layer, instance, workspace);
  for (Index b = 0; b < c.batch; ++b) {
    Tensor alone(DType::F32, {1, c.q_len, c.d_model});
    const std::vector<Index> length = {c.kv_lengths[static_cast<std::size_t>(b)]};
    layer.forward({.x = instance.inputs().x.slice(0, b, b + 1), .kv_lengths = length}, {.y = alone}, workspace);
    EXPECT_TRUE(bitwise_equal(alone, together.y.view().slice(0, b, b + 1))) << "batch entry " << b;
  }
}

// A second call of the same shape needs no more scratch memory.
TEST_P(LayerTest, SecondCallAllocatesNoScratch) {
  const LayerCase c = {.q_len = 33, .d_model = 64, .heads = 4, .kv_heads = 4, .head_dim = 16, .key_width = 64, .value_width = 64};
  const LayerInstance instance(c);
  const MultiHeadAttention layer = fused_layer(instance);
  Workspace workspace(serial_executor());
  const LayerResults first = run_layer(layer, instance, workspace);
  const std::size_t bytes = workspace.bytes();
  EXPECT_TRUE(bitwise_equal(run_layer(layer, instance, workspace).y, first.y));
  EXPECT_EQ(workspace.bytes(), bytes);
}

// y may be x: the projections have read it before W_O writes.
TEST_P(LayerTest, InPlace) {
  const LayerCase c = {.q_len = 17, .d_model = 32, .heads = 4, .kv_heads = 4, .head_dim = 8, .key_width = 32, .value_width = 32};
  const LayerInstance instance(c);
  Workspace workspace;
  const LayerResults apart = run_layer(fused_layer(instance), instance, workspace);
  Tensor x(DType::F32, {c.batch, c.q_len, c.d_model});
  copy(instance.inputs().x, x);
  fused_layer(instance).forward({.x = x}, {.y = x}, workspace);
  EXPECT_TRUE(bitwise_equal(x, apart.y));
}

TEST(Layer, MovesAndKeepsItsConfig) {
  const LayerInstance instance(LayerCase{});
  MultiHeadAttention first = fused_layer(instance);
  const MultiHeadAttention second = std::move(first);
  EXPECT_EQ(second.config().heads, 2);
  Workspace workspace;
  EXPECT_EQ(beyond(run_layer(second, instance, workspace).y, oracle(instance).y, oracle(instance).y_error), "");
}

// The same layer object, used under one ISA after the other: its weights are repacked as needed.
TEST(Layer, OneObjectUnderEveryIsa) {
  const LayerCase c = {.q_len = 21, .d_model = 70, .heads = 2, .kv_heads = 2, .head_dim = 35, .key_width = 70, .value_width = 70};
  const LayerInstance instance(c);
  const MultiHeadAttention layer = fused_layer(instance);
  const LayerOracle expected = oracle(instance);
  Workspace workspace;
  for (int round = 0; round < 2; ++round) {
    for (const std::string& isa : supported_kernel_isas()) {
      SCOPED_TRACE(isa);
      const IsaScope scope(isa);
      const LayerResults got = run_layer(layer, instance, workspace);
      EXPECT_EQ(beyond(got.y, expected.y, expected.y_error), "");
      EXPECT_TRUE(bitwise_equal(got.y, run_layer(fused_layer(instance), instance, workspace).y)) << "repacked differs from packed";
    }
  }
}

}  // namespace
}  // namespace mha::test
