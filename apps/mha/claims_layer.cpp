// Claims about the mechanism. Every figure is taken from tensors of a run or from a clock; nothing is derived on paper.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include "claims.h"
#include "layer_walk.h"
#include "mha/error.h"
#include "mha/layer.h"

namespace mha::app {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr int kRounds = 9;

Tensor normal_tensor(const Dims& shape, std::uint64_t seed) {
  Tensor tensor(DType::F32, shape);
  fill_normal(tensor, seed);
  return tensor;
}

MhaConfig plain_config(Index d_model, Index heads) {
  MhaConfig config{.d_model = d_model, .heads = heads};
  config.bias = false;
  return resolved(config);
}

/// The layer's answer to x, [1, tokens, d_model].
Tensor answer(const MultiHeadAttention& layer, const Tensor& x) {
  Tensor y(DType::F32, x.shape());
  Workspace workspace;
  layer.forward({.x = x}, {.y = y}, workspace);
  return y;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0.0;
  for (Index i = 0; i < element_count(a.shape()); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.data<float>()[i]) - static_cast<double>(b.data<float>()[i])));
  }
  return largest;
}

double median_ms(const std::function<void()>& run) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

// ---- one softmax row -----------------------------------------------------------------------------------------------------------------

/// Three tokens as one-hot rows: man, astronomer, telescope. `strength[h]` holds head h's raw scores of man for the other two; a head needs
/// two numbers for that, its queries and keys, and heads share the width of the one that has it all.
struct TwoLinks {
  double astronomer, telescope;
};
std::vector<TwoLinks> weights_of_man(const std::vector<TwoLinks>& strength) {
  const auto heads = static_cast<Index>(strength.size());
  const Index width = 4;
  const Index dim = width / heads;
  MhaConfig config = plain_config(width, heads);
  config.attention.scale = 1.0F;
  MhaParameters parameters = xavier_parameters(config, kSeed);
  std::fill_n(parameters.wq.data<float>(), width * width, 0.0F);
  std::fill_n(parameters.wk.data<float>(), width * width, 0.0F);
  for (Index h = 0; h < heads; ++h) {  // weights are [outputs, inputs]; input 0 is man, 1 astronomer, 2 telescope
    float* wq = parameters.wq.data<float>() + h * dim * width;
    float* wk = parameters.wk.data<float>() + h * dim * width;
    wq[0] = static_cast<float>(strength[static_cast<std::size_t>(h)].astronomer);
    wq[width] = static_cast<float>(strength[static_cast<std::size_t>(h)].telescope);
    wk[1] = 1.0F;
    wk[width + 2] = 1.0F;
  }
  Tensor x(DType::F32, {1, 3, width});
  for (Index token = 0; token < 3; ++token) x.data<float>()[token * width + token] = 1.0F;
  Tensor y(DType::F32, x.shape());
  Tensor weights(DType::F32, {1, heads, 3, 3});
  Workspace workspace;
  MultiHeadAttention(config, parameters.view()).forward({.x = x}, {.y = y, .weights = weights}, workspace);
  std::vector<TwoLinks> rows;
  for (Index h = 0; h < heads; ++h) {
    const float* man = weights.data<float>() + h * 9;
    rows.push_back({static_cast<double>(man[1]), static_cast<double>(man[2])});
  }
  return rows;
}

Claim one_row_cannot_hold_two() {
  TwoLinks best{0.0, 0.0};
  int tried = 0;
  for (int astronomer = -2; astronomer <= 20; ++astronomer) {
    for (int telescope = -2; telescope <= 20; ++telescope, ++tried) {
      const TwoLinks row = weights_of_man({{static_cast<double>(astronomer), static_cast<double>(telescope)}}).front();
      if (std::min(row.astronomer, row.telescope) > std::min(best.astronomer, best.telescope)) best = row;
    }
  }
  const std::vector<TwoLinks> two = weights_of_man({{20.0, 0.0}, {0.0, 20.0}});
  const double smaller = std::min(best.astronomer, best.telescope);
  return {.statement = "One softmax row cannot give two keys more than half each; two heads can.",
          .holds = smaller <= 0.5 && two[0].astronomer > 0.99 && two[1].telescope > 0.99,
          .figures = {fmt::format("one head, the best of {} settings: man -> astronomer {:.3f}, man -> telescope {:.3f}", tried,
                                  best.astronomer, best.telescope),
                      fmt::format("two heads of half the width: man -> astronomer {:.3f} in head 0, man -> telescope {:.3f} in head 1",
                                  two[0].astronomer, two[1].telescope)}};
}

// ---- cost ----------------------------------------------------------------------------------------------------------------------------

struct Cost {
  Index parameters = 0;
  Index flops = 0;         // of matrix products: 2 per multiply-add
  Index exponentials = 0;  // one per weight
  Index tables = 0;        // of scores
  double ms = 0.0;
};

/// Sizes are read off the tensors that take part in a run.
Cost cost_of(Index d_model, Index heads, Index tokens) {
  const MhaConfig config = plain_config(d_model, heads);
  const MhaParameters parameters = xavier_parameters(config, kSeed);
  const MultiHeadAttention layer(config, parameters.view());
  const Tensor x = normal_tensor({1, tokens, d_model}, kSeed);
  Tensor y(DType::F32, x.shape());
  Tensor weights(DType::F32, {1, heads, tokens, tokens});
  Workspace workspace;
  Cost cost;
  for (const Tensor* weight : {&parameters.wq, &parameters.wk, &parameters.wv, &parameters.wo}) {
    cost.parameters += element_count(weight->shape());
    cost.flops += 2 * x.size(1) * weight->size(0) * weight->size(1);
  }
  const MhaHook count = [&](const MhaTrace& trace) {
    const Index pairs = trace.q.size(1) * trace.k.size(1) * trace.q.size(2);
    cost.flops += 2 * pairs * trace.q.size(3) + 2 * pairs * trace.v.size(3);
  };
  layer.forward({.x = x}, {.y = y, .weights = weights, .hook = count}, workspace);
  cost.exponentials = element_count(weights.shape());
  cost.tables = weights.size(1);
  cost.ms = median_ms([&] { layer.forward({.x = x}, {.y = y}, workspace); });
  return cost;
}

Claim heads_are_free() {
  const Index d_model = 512;
  const Index tokens = 256;
  Claim claim{
      .statement =
          "H heads of width d_model / H have the parameters and the matrix FLOPs of one head of width d_model; only exponentials and "
          "score tables grow, as H.",
      .holds = true,
      .figures = {
          fmt::format("d_model {}, {} tokens, from the tensors of live runs; the time is the median of {}", d_model, tokens, kRounds),
          fmt::format("{:>3}{:>13}{:>10}{:>15}{:>14}{:>8}", "H", "parameters", "MFLOP", "exponentials", "score tables", "ms")}};
  Cost one;
  for (Index heads : {1, 2, 4, 8, 16}) {
    const Cost cost = cost_of(d_model, heads, tokens);
    if (heads == 1) one = cost;
    claim.holds = claim.holds && cost.parameters == one.parameters && cost.flops == one.flops &&
                  cost.exponentials == heads * one.exponentials && cost.tables == heads * one.tables;
    claim.figures.push_back(fmt::format("{:>3}{:>13}{:>10.1f}{:>15}{:>14}{:>8.2f}", heads, cost.parameters,
                                        static_cast<double>(cost.flops) / 1e6, cost.exponentials, cost.tables, cost.ms));
  }
  return claim;
}

Claim tables_are_not_held() {
  const Index tokens = 4096;
  const Index heads = 8;
  const MhaConfig config = plain_config(64 * heads, heads);
  const MultiHeadAttention layer(config, xavier_parameters(config, kSeed).view());
  const Tensor x = normal_tensor({1, tokens, config.d_model}, kSeed);
  Tensor y(DType::F32, x.shape());
  Workspace workspace;
  layer.forward({.x = x}, {.y = y}, workspace);
  const double table = 4.0 * static_cast<double>(heads * tokens * tokens);
  const auto scratch = static_cast<double>(workspace.bytes());
  return {.statement = "The score tables need not be held: the layer computes exact attention tile by tile.",
          .holds = scratch < table / 4,
          .figures = {fmt::format(
              "{} heads, {} tokens: the tables would take {:.0f} MB; the layer's scratch memory, Q, K, V and Z included, is {:.0f} MB",
              heads, tokens, table / 1e6, scratch / 1e6)}};
}

// ---- W_O -----------------------------------------------------------------------------------------------------------------------------

/// For a change of head h alone: which of the output's columns move.
std::vector<bool> moved_columns(const MhaConfig& config, MhaParameters& parameters, const Tensor& x, Index h) {
  const Tensor before = answer(MultiHeadAttention(config, parameters.view()), x);
  float* own = parameters.wv.data<float>() + h * config.head_dim * config.d_model;
  const Index count = config.head_dim * config.d_model;
  std::for_each(own, own + count, [](float& weight) { weight += 0.25F; });
  const Tensor after = answer(MultiHeadAttention(config, parameters.view()), x);
  std::for_each(own, own + count, [](float& weight) { weight -= 0.25F; });
  std::vector<bool> moved(static_cast<std::size_t>(config.d_model));
  for (Index i = 0; i < element_count(x.shape()); ++i) {
    if (before.data<float>()[i] != after.data<float>()[i]) moved[static_cast<std::size_t>(i % config.d_model)] = true;
  }
  return moved;
}

Claim output_projection_mixes() {
  const MhaConfig config = plain_config(32, 4);
  const Tensor x = normal_tensor({1, 6, config.d_model}, kSeed);
  Claim claim{.statement = "Without W_O, block h of the output depends on head h alone; with it, all of the output depends on every head.",
              .holds = true,
              .figures = {}};
  for (bool with : {false, true}) {
    MhaParameters parameters = xavier_parameters(config, kSeed);
    if (!with) {  // the identity: the concatenation goes out as it is
      std::fill_n(parameters.wo.data<float>(), element_count(parameters.wo.shape()), 0.0F);
      for (Index i = 0; i < config.d_model; ++i) parameters.wo.data<float>()[i * (config.d_model + 1)] = 1.0F;
    }
    std::string line = with ? "with W_O: " : "without W_O: ";
    for (Index h = 0; h < config.heads; ++h) {
      const std::vector<bool> moved = moved_columns(config, parameters, x, h);
      const auto own = moved.begin() + h * config.head_dim;
      const auto inside = std::count(own, own + config.head_dim, true);
      const auto all = std::count(moved.begin(), moved.end(), true);
      claim.holds = claim.holds && inside == config.head_dim && all == (with ? config.d_model : config.head_dim);
      line += fmt::format("{}head {} moves {} of {} columns, {} of its own {}", h == 0 ? "" : "; ", h, all, config.d_model, inside,
                          config.head_dim);
    }
    claim.figures.push_back(line);
  }
  return claim;
}

// ---- both forms, shapes --------------------------------------------------------------------------------------------------------------

Claim both_forms_agree() {
  const MhaConfig config = plain_config(512, 8);
  const MhaParameters parameters = xavier_parameters(config, kSeed);
  const MultiHeadAttention fused(config, parameters.view());
  const NaiveMultiHeadAttention naive(config, to_naive(config, parameters.view()));
  const Tensor x = normal_tensor({1, 128, config.d_model}, kSeed);
  Tensor y_fused(DType::F32, x.shape());
  Tensor y_naive(DType::F32, x.shape());
  Workspace workspace;
  const double naive_ms = median_ms([&] { naive.forward({.x = x}, {.y = y_naive}, workspace); });
  const double fused_ms = median_ms([&] { fused.forward({.x = x}, {.y = y_fused}, workspace); });
  const double difference = largest_difference(y_fused, y_naive);
  return {.statement = "The literal loop over heads and the fused form are one mathematics; the fused form is faster.",
          .holds = difference < 1e-5 && fused_ms < naive_ms,
          .figures = {fmt::format("largest difference of the outputs {:.1e}", difference),
                      fmt::format("d_model 512, 8 heads, 128 tokens: loop {:.2f} ms, fused {:.2f} ms: {:.0f} times faster", naive_ms,
                                  fused_ms, naive_ms / fused_ms)}};
}

Claim blocks_stack() {
  const MhaConfig config = plain_config(64, 4);
  Tensor x = normal_tensor({1, 5, config.d_model}, kSeed);
  const Dims before = x.shape();
  bool finite = true;
  constexpr int kBlocks = 6;
  for (int block = 0; block < kBlocks; ++block) {
    const MhaParameters parameters = xavier_parameters(config, static_cast<std::uint64_t>(block));
    const Tensor y = answer(MultiHeadAttention(config, parameters.view()), x);
    Tensor next(DType::F32, y.shape());
    for (Index i = 0; i < element_count(y.shape()); ++i) {
      next.data<float>()[i] = x.data<float>()[i] + y.data<float>()[i];
      finite = finite && std::isfinite(next.data<float>()[i]);
    }
    x = std::move(next);
  }
  return {.statement = "The output's shape is the input's, so blocks stack, each adding to what it was given.",
          .holds = x.shape() == before && finite,
          .figures = {fmt::format("{} times x = x + attention(x): {} in, {} out", kBlocks, to_string(before), to_string(x.shape()))}};
}

Claim head_dim_is_free() {
  MhaConfig config{.d_model = 1024, .heads = 16, .kv_heads = 8, .head_dim = 128};
  config.bias = false;
  config = resolved(config);
  const MhaParameters parameters = xavier_parameters(config, kSeed);
  const Tensor x = normal_tensor({1, 3, config.d_model}, kSeed);
  const Tensor y = answer(MultiHeadAttention(config, parameters.view()), x);
  const Dims wq = parameters.wq.view().transpose(0, 1).shape;
  const Dims wo = parameters.wo.view().transpose(0, 1).shape;
  return {
      .statement = "head_dim = d_model / heads is a convention: with another one the output still has the input's shape.",
      .holds = y.shape() == x.shape() && wq[1] == config.heads * config.head_dim && wq[1] != config.d_model,
      .figures = {fmt::format("Qwen3 0.6B's sizes: d_model 1024, 16 heads, head_dim 128 (d_model / heads is 64): W_q {}, W_O {}, {} -> {}",
                              to_string(wq), to_string(wo), to_string(x.shape()), to_string(y.shape()))}};
}

Claim uneven_heads_are_refused() {
  Claim claim{.statement = "A d_model that heads do not divide is refused before anything is computed.", .holds = false, .figures = {}};
  try {
    const MhaConfig config = plain_config(512, 7);
    claim.figures.push_back(fmt::format("d_model 512 with 7 heads was taken, head_dim {}", config.head_dim));
  } catch (const ShapeError& error) {
    claim.holds = true;
    claim.figures.emplace_back(error.what());
  }
  return claim;
}

// ---- heads are not layers; what a cache would hold -------------------------------------------------------------------------------------

/// The parameters with the heads in another order; W_O's columns follow.
MhaParameters reordered(const MhaConfig& config, const MhaParameters& parameters, const std::vector<std::size_t>& order) {
  const NaiveParameters from = to_naive(config, parameters.view());
  NaiveParameters to{.heads = {}, .wo = from.wo.clone(), .bo = {}};
  const Index rows = config.head_dim * config.d_model;
  for (std::size_t h = 0; h < order.size(); ++h) {
    const NaiveHead& head = from.heads[order[h]];
    to.heads.push_back({.wq = head.wq.clone(), .wk = head.wk.clone(), .wv = head.wv.clone(), .bq = {}, .bk = {}, .bv = {}});
    std::copy_n(from.wo.data<float>() + static_cast<Index>(order[h]) * rows, rows, to.wo.data<float>() + static_cast<Index>(h) * rows);
  }
  return to_fused(config, to);
}

Claim heads_are_not_layers() {
  const MhaConfig config = plain_config(64, 4);
  const MhaParameters first = xavier_parameters(config, 1);
  const MhaParameters second = xavier_parameters(config, 2);
  const Tensor x = normal_tensor({1, 6, config.d_model}, kSeed);
  const MultiHeadAttention a(config, first.view());
  const MultiHeadAttention b(config, second.view());
  const MultiHeadAttention shuffled(config, reordered(config, first, {2, 0, 3, 1}).view());
  const double heads = largest_difference(answer(a, x), answer(shuffled, x));
  const double layers = largest_difference(answer(b, answer(a, x)), answer(a, answer(b, x)));
  return {.statement = "Heads are not layers: heads work side by side, in any order; layers one after the other, in theirs.",
          .holds = heads < 1e-5 && layers > 1e-2,
          .figures = {fmt::format("4 heads in another order: the output moves by {:.1e} (rounding)", heads),
                      fmt::format("2 layers in another order: the output moves by {:.2f}", layers)}};
}

/// Bytes of K and V per token, as a layer hands them to attention.
Index cached_bytes(const MhaConfig& config, const MhaParameters& parameters, const Tensor& x) {
  Index bytes = 0;
  Tensor y(DType::F32, x.shape());
  Workspace workspace;
  const MhaHook count = [&](const MhaTrace& trace) {
    for (const ConstTensorView& view : {trace.k, trace.v}) {
      bytes += element_count(view.shape) / view.size(1) * static_cast<Index>(size_of(view.dtype));
    }
  };
  MultiHeadAttention(config, parameters.view()).forward({.x = x}, {.y = y, .hook = count}, workspace);
  return bytes;
}

/// A layer with fewer key and value heads, as one with all of them: every query head gets its group's.
MhaParameters repeated(const MhaConfig& grouped, const MhaParameters& parameters) {
  MhaConfig full = grouped;
  full.kv_heads = full.heads;
  NaiveParameters heads = to_naive(grouped, parameters.view());  // a copy of wk, wv for every head
  return to_fused(full, heads);
}

Claim cache_grows_with_kv_heads() {
  Claim claim{.statement = "The key/value cache grows with the number of key/value heads, which query heads can share (MQA, GQA).",
              .holds = true,
              .figures = {}};
  const Index heads = 8;
  const Tensor x = normal_tensor({1, 16, 512}, kSeed);
  Index one = 0;
  for (Index kv_heads : {1, 2, 4, 8}) {
    MhaConfig config = plain_config(x.size(2), heads);
    config.kv_heads = kv_heads;
    const MhaParameters parameters = xavier_parameters(config, kSeed);
    const Index bytes = cached_bytes(config, parameters, x);
    if (kv_heads == 1) one = bytes;
    MhaConfig full = config;
    full.kv_heads = heads;
    const double off = largest_difference(answer(MultiHeadAttention(config, parameters.view()), x),
                                          answer(MultiHeadAttention(full, repeated(config, parameters).view()), x));
    claim.holds = claim.holds && bytes == kv_heads * one && off < 1e-5;
    const char* name = kv_heads == 1 ? "MQA" : kv_heads == heads ? "MHA" : "GQA";
    claim.figures.push_back(
        fmt::format("{} query heads, {} key/value heads ({}): {} bytes of K and V per token; differs from a layer with copies "
                    "for every head by {:.1e}",
                    heads, kv_heads, name, bytes, off));
  }
  return claim;
}

}  // namespace

std::vector<Claim> layer_claims() {
  std::vector<Claim> claims;
  claims.push_back(one_row_cannot_hold_two());
  claims.push_back(heads_are_free());
  claims.push_back(tables_are_not_held());
  claims.push_back(output_projection_mixes());
  claims.push_back(both_forms_agree());
  claims.push_back(blocks_stack());
  claims.push_back(head_dim_is_free());
  claims.push_back(cache_grows_with_kv_heads());
  claims.push_back(uneven_heads_are_refused());
  claims.push_back(heads_are_not_layers());
  return claims;
}

}  // namespace mha::app
