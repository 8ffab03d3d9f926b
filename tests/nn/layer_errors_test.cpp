// What the layer refuses: every message names both numbers, and y is untouched.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "layer_case.h"
#include "mha/error.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha::test {
namespace {

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const ShapeError& error) {
    return error.what();
  } catch (const DTypeError& error) {
    return std::string("dtype: ") + error.what();
  }
  return "nothing was thrown";
}

TEST(LayerConfig, Resolves) {
  const MhaConfig config = resolved({.d_model = 512, .heads = 8});
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.key_width, 512);
  EXPECT_EQ(config.value_width, 512);
  EXPECT_EQ(resolved({.d_model = 512, .heads = 8, .key_width = 100}).value_width, 100);
  EXPECT_EQ(resolved({.d_model = 1024, .heads = 16, .head_dim = 128}).head_dim, 128);
  EXPECT_EQ(resolved({.d_model = 10, .heads = 3, .head_dim = 4}).head_dim, 4) << "given, so d_model need not divide";
}

TEST(LayerConfig, Refuses) {
  constexpr Index kHuge = std::numeric_limits<Index>::max() / 2;
  const auto message = [](const MhaConfig& config) { return refusal([&] { resolved(config); }); };
  EXPECT_EQ(message({.d_model = 512, .heads = 7}), "layer: d_model 512 is not a multiple of heads 7");
  EXPECT_EQ(message({.d_model = 512, .heads = 8, .kv_heads = 3}), "layer: heads 8 is not a multiple of kv_heads 3");
  EXPECT_EQ(message({.d_model = 512, .heads = 4, .kv_heads = 8}), "layer: heads 4 is not a multiple of kv_heads 8");
  EXPECT_EQ(message({.d_model = 512, .heads = 0}), "layer: heads is 0, must be at least 1");
  EXPECT_EQ(message({.d_model = 512, .heads = -8}), "layer: heads is -8, must be at least 1");
  EXPECT_EQ(message({.d_model = 0, .heads = 8}), "layer: d_model is 0, must be at least 1");
  EXPECT_EQ(message({.d_model = -512, .heads = 8}), "layer: d_model is -512, must be at least 1");
  EXPECT_EQ(message({.d_model = 512, .heads = 8, .kv_heads = -2}), "layer: kv_heads is -2, must be at least 0");
  EXPECT_EQ(message({.d_model = 512, .heads = 8, .head_dim = -1}), "layer: head_dim is -1, must be at least 0");
  EXPECT_EQ(message({.d_model = 512, .heads = 8, .key_width = -1}), "layer: key_width is -1, must be at least 0");
  EXPECT_EQ(message({.d_model = 512, .heads = 8, .value_width = -1}), "layer: value_width is -1, must be at least 0");
  EXPECT_NE(message({.d_model = 512, .heads = kHuge, .head_dim = kHuge}), "nothing was thrown");
  EXPECT_EQ(message({.d_model = 512, .heads = 8, .attention = {.dropout = {1.5F, 0}}}),
            "layer: dropout probability is 1.5, must be in [0, 1]");
  EXPECT_NE(message({.d_model = 512, .heads = 8, .attention = {.dropout = {std::nanf(""), 0}}}), "nothing was thrown");
}

class LayerWeights : public testing::Test {
 protected:
  LayerWeights() : config{.d_model = 12, .heads = 4, .kv_heads = 2}, p(xavier_parameters(config, 1)) {}
  std::string message(const MhaWeights& weights) const {
    const std::string fused = refusal([&] { MultiHeadAttention(config, weights); });
    EXPECT_EQ(refusal([&] { to_naive(config, weights); }), fused);
    return fused;
  }
  MhaConfig config;
  MhaParameters p;
};

TEST_F(LayerWeights, WrongShapes) {
  MhaWeights w = p.view();
  w.wq = p.wk;
  EXPECT_EQ(message(w), "layer: wq has shape [6, 12], the config wants [12, 12]");
  w = p.view();
  w.wv = p.wo;
  EXPECT_EQ(message(w), "layer: wv has shape [12, 12], the config wants [6, 12]");
  w = p.view();
  w.wo = {};
  EXPECT_EQ(message(w), "layer: wo is absent, [12, 12] is wanted");
  w = p.view();
  w.bk = p.bq;
  EXPECT_EQ(message(w), "layer: bk has shape [12], the config wants [6]");
}

TEST_F(LayerWeights, BiasesThatContradictTheConfig) {
  MhaWeights w = p.view();
  w.bv = {};
  EXPECT_EQ(message(w), "layer: bv is absent, [6] is wanted (the config says bias = true)");
  config.bias = false;
  w = p.view();
  EXPECT_EQ(message(w), "layer: bq is given with shape [12], but the config says bias = false");
}

TEST_F(LayerWeights, LearnedKeysThatContradictTheConfig) {
  MhaWeights w = p.view();
  w.learned_v = p.bk;
  EXPECT_EQ(message(w), "layer: learned_v is given with shape [6], but the config says learned_key = false");
  config.learned_key = true;
  EXPECT_EQ(message(w), "layer: learned_k is absent, [6] is wanted (the config says learned_key = true)");
  w.learned_k = p.bq;
  EXPECT_EQ(message(w), "layer: learned_k has shape [12], [6] is wanted (the config says learned_key = true)");
  const Tensor wide(DType::F64, {6});
  w.learned_k = wide;
  EXPECT_EQ(message(w), "dtype: layer: learned_k is f64, wq is f32: f32, bf16 and f16 may be mixed, or all must be f64");
}

TEST_F(LayerWeights, WrongDTypes) {
  MhaWeights w = p.view();
  const Tensor wide(DType::F64, {12, 12});
  w.wo = wide;
  EXPECT_EQ(message(w), "dtype: layer: wo is f64, wq is f32: f32, bf16 and f16 may be mixed, or all must be f64");
  const Tensor ints(DType::I64, {12, 12});
  w.wo = ints;
  EXPECT_EQ(message(w).substr(0, 22), "dtype: layer: wo is i6");
}

/// Both forms refuse a call in the same words, and leave y as it was.
class LayerCalls : public testing::Test {
 protected:
  LayerCalls()
      : config{.d_model = 12, .heads = 4, .kv_heads = 2, .key_width = 10, .value_width = 8},
        fused(config, xavier_parameters(config, 1).view()),
        naive(config, to_naive(config, xavier_parameters(config, 1).view())) {
    fill(y, kMark);
    fill(weights, kMark);
  }
  MhaInputs inputs() const { return {.x = x, .key = key, .value = value}; }
  std::string message(const MhaInputs& in) { return message(in, {.y = y, .weights = weights}); }
  std::string message(const MhaInputs& in, const MhaOutputs& out) {
    const std::string first = refusal([&] { fused.forward(in, out, workspace); });
    const std::string second = refusal([&] { naive.forward(in, out, workspace); });
    EXPECT_TRUE(first == second || first.substr(0, 9) == "attention") << first << "\n" << second;
    EXPECT_EQ(elements(y), std::vector<double>(elements(y).size(), static_cast<double>(kMark)));
    EXPECT_EQ(elements(weights), std::vector<double>(elements(weights).size(), static_cast<double>(kMark)));
    return first;
  }
  /// Both layers anew, after a change of the config.
  void make_layers() {
    const MhaParameters p = xavier_parameters(config, 1);
    fused = MultiHeadAttention(config, p.view());
    naive = NaiveMultiHeadAttention(config, to_naive(config, p.view()));
  }
  MhaConfig config;
  MultiHeadAttention fused;
  NaiveMultiHeadAttention naive;
  Workspace workspace;
  Tensor x{DType::F32, {2, 5, 12}};
  Tensor key{DType::F32, {2, 7, 10}};
  Tensor value{DType::F32, {2, 7, 8}};
  Tensor y{DType::F32, {2, 5, 12}};
  Tensor weights{DType::F32, {2, 4, 5, 7}};
};

TEST_F(LayerCalls, WrongWidthsAndLengths) {
  MhaInputs in = inputs();
  in.x = value;
  EXPECT_EQ(message(in), "layer: x has width 8, the config wants 12");
  in = inputs();
  in.key = {};
  in.value = {};
  EXPECT_EQ(message(in), "layer: key (absent: x) has width 12, the config wants 10");
  in = inputs();
  in.value = {};
  EXPECT_EQ(message(in), "layer: value (absent: key) has width 10, the config wants 8");
  in = inputs();
  in.key = key.view().slice(1, 0, 6);
  EXPECT_EQ(message(in), "layer: value has length 7, key has length 6");
  in = inputs();
  in.key = key.view().slice(0, 0, 1);
  EXPECT_EQ(message(in), "layer: key has batch 1, x has batch 2");
  in = inputs();
  in.x = {};
  EXPECT_EQ(message(in), "layer: x is absent");
  in = inputs();
  in.x = x.view().reshape({10, 12});
  EXPECT_EQ(message(in), "layer: x has shape [10, 12], [batch, length, width] is wanted");
}

TEST_F(LayerCalls, WrongOutputsAndDTypes) {
  Tensor small(DType::F32, {2, 5, 11});
  EXPECT_EQ(message(inputs(), {.y = small}), "layer: y has shape [2, 5, 11], x has shape [2, 5, 12]");
  EXPECT_EQ(message(inputs(), {}), "layer: y is absent");
  Tensor wide(DType::F64, {2, 5, 12});
  EXPECT_EQ(message(inputs(), {.y = wide}), "dtype: layer: y is f64, x is f32");
  MhaInputs in = inputs();
  in.x = wide;
  EXPECT_EQ(message(in), "dtype: layer: x is f64, the layer computes in f32");
  Tensor wrong_weights(DType::F32, {2, 3, 5, 7});
  EXPECT_NE(message(inputs(), {.y = y, .weights = wrong_weights}), "nothing was thrown");
}

TEST_F(LayerCalls, WhatAttentionRefuses) {
  MhaInputs in = inputs();
  const Tensor allowed(DType::Bool, {1, 3, 5, 7});
  in.allowed = allowed;
  EXPECT_NE(message(in), "nothing was thrown");
  in = inputs();
  const std::vector<Index> lengths = {7, 8};
  in.kv_lengths = lengths;
  EXPECT_NE(message(in), "nothing was thrown");
  in = inputs();
  const std::vector<Index> few = {7};
  in.kv_lengths = few;
  EXPECT_NE(message(in), "nothing was thrown");
}

TEST_F(LayerCalls, BiasesOfTheCall) {
  MhaInputs in = inputs();
  const Tensor bias(DType::F32, {1, 3, 5, 7});
  in.bias = bias;
  EXPECT_TRUE(mentions(message(in), "bias", "[1, 3, 5, 7]")) << message(in);
  const Tensor ints(DType::I64, {1, 1, 5, 7});
  in.bias = ints;
  EXPECT_TRUE(mentions(message(in), "dtype", "bias", "i64")) << message(in);
  config.attention.bias = AlibiBias{alibi_slopes(4)};
  config.attention.align = Align::TopLeft;
  make_layers();
  EXPECT_EQ(message(in), "layer: bias is given with shape [1, 1, 5, 7], but the config's attention has one already: add them up");
}

TEST_F(LayerCalls, AppendedKeysCountAsKeys) {
  config.learned_key = true;
  config.zero_key = true;
  make_layers();
  EXPECT_TRUE(mentions(message(inputs()), "weights", "[2, 4, 5, 7]", "[2, 4, 5, 9]")) << "a column for each appended key";
  weights = Tensor(DType::F32, {2, 4, 5, 9});
  fill(weights, kMark);
  MhaInputs in = inputs();
  const Tensor allowed(DType::Bool, {1, 1, 5, 7});
  in.allowed = allowed;
  EXPECT_TRUE(mentions(message(in), "allowed", "[1, 1, 5, 7]", "[2, 4, 5, 9]")) << message(in);
  in = inputs();
  const std::vector<Index> lengths = {7, 5};
  in.kv_lengths = lengths;
  EXPECT_EQ(message(in), "layer: kv_lengths has 2 entries, but 2 keys are appended, which lie beyond them: hide keys by allowed");
}

// Views with stride 0 may be longer than any memory: sizes beyond 63 bits are refused, never cut to what fits.
TEST_F(LayerCalls, KeysWithoutEnd) {
  config = {.d_model = 12, .heads = 4, .learned_key = true, .zero_key = true};
  make_layers();
  for (const Index length : {Index{1} << 58, (Index{1} << 58) - 2, Index{1} << 61, std::numeric_limits<Index>::max()}) {
    MhaInputs in = {.x = x, .key = ConstTensorView(x.view().data, DType::F32, {2, length, 12}, {0, 0, 1})};
    EXPECT_THROW(fused.forward(in, {.y = y}, workspace), ShapeError) << length;
    EXPECT_THROW(naive.forward(in, {.y = y}, workspace), ShapeError) << length;
  }
}

// A causal mask with q_len 5 and 7 keys: the alignment must be said.
TEST_F(LayerCalls, AlignmentIsNotGuessed) {
  config.attention.mask = causal();
  make_layers();
  EXPECT_NE(message(inputs()), "nothing was thrown");
}

TEST_F(LayerCalls, ARightCallStillWorks) {
  EXPECT_EQ(refusal([&] { fused.forward(inputs(), {.y = y}, workspace); }), "nothing was thrown");
}

}  // namespace
}  // namespace mha::test
