// Runs the layer, copies what its hook shows, and checks that the pieces make up the whole.
#include "layer_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "mha/error.h"

namespace mha::app {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr double kMostBytes = 1024.0 * 1024 * 1024;

Tensor dense(ConstTensorView view) {
  Tensor copied(view.dtype, view.shape);
  copy(view, copied);
  return copied;
}

/// Q K^T / sqrt(head_dim) of all heads: the layer itself never holds more than a tile of it.
Tensor scores_of(const LayerWalk& walk) {
  const Index length = walk.q.size(1);
  const Index heads = walk.q.size(2);
  const Index dim = walk.q.size(3);
  const Index kv_heads = walk.k.size(2);
  Tensor scores(DType::F32, {1, heads, length, length});
  float* out = scores.data<float>();
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  for (Index h = 0; h < heads; ++h) {
    for (Index q = 0; q < length; ++q) {
      const float* query = walk.q.data<float>() + (q * heads + h) * dim;
      for (Index k = 0; k < length; ++k) {
        const float* key = walk.k.data<float>() + (k * kv_heads + h / (heads / kv_heads)) * dim;
        double sum = 0.0;
        for (Index d = 0; d < dim; ++d) sum += static_cast<double>(query[d]) * static_cast<double>(key[d]);
        *out++ = static_cast<float>(sum * scale);
      }
    }
  }
  return scores;
}

void check_output(LayerWalk& walk) {
  const Index width = walk.z.size(2) * walk.z.size(3);
  const Index d_model = walk.y.size(2);
  for (Index row = 0; row < walk.y.size(1); ++row) {
    const float* z = walk.z.data<float>() + row * width;
    for (Index column = 0; column < d_model; ++column) {
      const float* weights = walk.parameters.wo.data<float>() + column * width;
      double sum = 0.0;
      for (Index i = 0; i < width; ++i) sum += static_cast<double>(z[i]) * static_cast<double>(weights[i]);
      walk.output_off = std::max(walk.output_off, std::abs(sum - static_cast<double>(walk.y.data<float>()[row * d_model + column])));
    }
  }
}

void check_weights(LayerWalk& walk) {
  const Index keys = walk.weights.size(3);
  const Index rows = element_count(walk.weights.shape()) / keys;
  for (Index row = 0; row < rows; ++row) {
    const float* score = walk.scores.data<float>() + row * keys;
    const float* weight = walk.weights.data<float>() + row * keys;
    const double top = static_cast<double>(*std::max_element(score, score + keys));
    double denominator = 0.0;
    double sum = 0.0;
    for (Index k = 0; k < keys; ++k) denominator += std::exp(static_cast<double>(score[k]) - top);
    for (Index k = 0; k < keys; ++k) {
      sum += static_cast<double>(weight[k]);
      const double expected = std::exp(static_cast<double>(score[k]) - top) / denominator;
      walk.weights_off = std::max(walk.weights_off, std::abs(static_cast<double>(weight[k]) - expected));
    }
    walk.row_sums_off = std::max(walk.row_sums_off, std::abs(sum - 1.0));
  }
}

}  // namespace

MhaConfig walk_config(const LayerSizes& sizes) {
  for (const auto& [name, value] : {std::pair{"--d-model", sizes.d_model},
                                    {"--heads", sizes.heads},
                                    {"tokens", sizes.tokens},
                                    {"--head-dim", sizes.head_dim.value_or(1)},
                                    {"--kv-heads", sizes.kv_heads.value_or(1)}}) {
    if (value < 1) throw Error(fmt::format("{} is {}, must be at least 1", name, value));
  }
  MhaConfig config{
      .d_model = sizes.d_model, .heads = sizes.heads, .kv_heads = sizes.kv_heads.value_or(0), .head_dim = sizes.head_dim.value_or(0)};
  config.bias = false;
  config = resolved(config);
  const auto d_model = static_cast<double>(config.d_model);
  const auto heads = static_cast<double>(config.heads);
  const auto tokens = static_cast<double>(sizes.tokens);
  const double width = heads * static_cast<double>(config.head_dim);
  // Weights three times (torch's form, packed, split into heads) and twice the table of weights and scores.
  const double bytes = 4.0 * (3.0 * 4.0 * d_model * width + 2.0 * heads * tokens * tokens + 6.0 * tokens * (d_model + width));
  if (bytes > kMostBytes) {
    throw Error(fmt::format("these sizes need about {:.3g} GiB; a walk takes up to {:.3g}", bytes / (1 << 30), kMostBytes / (1 << 30)));
  }
  return config;
}

void fill_normal(TensorView x, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::generate_n(x.as<float>(), element_count(x.shape), [&] { return normal(random); });
}

LayerWalk walk_layer(const MhaConfig& config, Tensor x) {
  LayerWalk walk;
  walk.config = config;
  walk.parameters = xavier_parameters(config, kSeed);
  walk.x = std::move(x);
  const Index tokens = walk.x.size(1);
  walk.by_head = to_naive(config, walk.parameters.view());
  walk.weights = Tensor(DType::F32, {1, config.heads, tokens, tokens});
  walk.y = Tensor(DType::F32, walk.x.shape());
  const MultiHeadAttention layer(config, walk.parameters.view());
  const MhaHook keep = [&](const MhaTrace& trace) {
    walk.q = dense(trace.q);
    walk.k = dense(trace.k);
    walk.v = dense(trace.v);
    walk.z = dense(trace.head_out);
  };
  Workspace workspace;
  layer.forward({.x = walk.x}, {.y = walk.y, .weights = walk.weights, .hook = keep}, workspace);
  walk.scores = scores_of(walk);
  check_weights(walk);
  check_output(walk);
  return walk;
}

}  // namespace mha::app
