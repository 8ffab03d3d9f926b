// The layer's weights by themselves: Xavier initialisation, and the conversions between the fused and the naive form.
#include <cmath>

#include "core/check.h"
#include "mha/layer.h"
#include "nn/layer_checks.h"

namespace mha {
namespace {

/// splitmix64 (Steele, Lea & Flood 2014): number i of a stream is a pure function of (stream, i), the same on every platform.
std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}
std::uint64_t draw(std::uint64_t stream, std::uint64_t i) { return mixed(stream + (i + 1) * 0x9E3779B97F4A7C15U); }

/// U(-bound, bound): 53 random bits, an odd multiple of 2^-53, one rounding to double and one to float, so no library or FMA can differ.
Tensor uniform(Index outputs, Index inputs, double bound, std::uint64_t stream) {
  Tensor weights(DType::F32, {outputs, inputs});
  float* data = weights.data<float>();
  for (Index i = 0; i < outputs * inputs; ++i) {
    const auto bits = static_cast<std::int64_t>(draw(stream, static_cast<std::uint64_t>(i)) >> 11);
    const std::int64_t centred = 2 * bits + 1 - (std::int64_t{1} << 53);
    data[i] = static_cast<float>(static_cast<double>(centred) * (bound * 0x1p-53));
  }
  return weights;
}

Tensor zeros(Index size, bool wanted) { return wanted ? Tensor(DType::F32, {size}) : Tensor(); }

/// 16-bit weights become f32, which is exact.
DType widened(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

/// Rows [begin, end) of a fused [outputs, inputs] matrix as one head's [inputs, outputs].
Tensor head_matrix(const ConstTensorView& fused, Index begin, Index end) {
  Tensor head(widened(fused.dtype), {fused.size(1), end - begin});
  copy(fused.slice(0, begin, end).transpose(0, 1), head);
  return head;
}

Tensor head_bias(const ConstTensorView& fused, Index begin, Index end) {
  if (!fused) return {};
  Tensor head(widened(fused.dtype), {end - begin});
  copy(fused.slice(0, begin, end), head);
  return head;
}

void put_matrix(const Tensor& head, Tensor& fused, Index begin) {
  copy(head.view().transpose(0, 1), fused.view().slice(0, begin, begin + head.size(1)));
}

void put_bias(const Tensor& head, Tensor& fused, Index begin) {
  if (fused) copy(head, fused.view().slice(0, begin, begin + head.size(0)));
}

}  // namespace

MhaWeights MhaParameters::view() const {
  return {.wq = wq, .wk = wk, .wv = wv, .wo = wo, .bq = bq, .bk = bk, .bv = bv, .bo = bo, .learned_k = learned_k, .learned_v = learned_v};
}

MhaParameters xavier_parameters(const MhaConfig& given, std::uint64_t seed) {
  const MhaConfig config = resolved(given);
  const Index q_width = config.heads * config.head_dim;
  const Index kv_width = config.kv_heads * config.head_dim;
  const bool packed = q_width == kv_width && config.d_model == config.key_width && config.d_model == config.value_width;
  const auto bound = [](Index outputs, Index inputs) { return std::sqrt(6.0 / static_cast<double>(outputs + inputs)); };
  const auto matrix = [&](Index outputs, Index inputs, std::uint64_t number) {
    return uniform(outputs, inputs, bound(packed && number < 3 ? 3 * outputs : outputs, inputs), mixed(mixed(seed) + number));
  };
  const auto learned = [&](std::uint64_t number) {
    if (!config.learned_key) return Tensor();
    Tensor row(DType::F32, {kv_width});
    copy(uniform(1, kv_width, bound(kv_width, kv_width), mixed(mixed(seed) + number)).view().reshape({kv_width}), row);
    return row;
  };
  return {.wq = matrix(q_width, config.d_model, 0),
          .wk = matrix(kv_width, config.key_width, 1),
          .wv = matrix(kv_width, config.value_width, 2),
          .wo = matrix(config.d_model, q_width, 3),
          .bq = zeros(q_width, config.bias),
          .bk = zeros(kv_width, config.bias),
          .bv = zeros(kv_width, config.bias),
          .bo = zeros(config.d_model, config.bias),
          .learned_k = learned(4),
          .learned_v = learned(5)};
}

NaiveParameters to_naive(const MhaConfig& given, const MhaWeights& weights) {
  const MhaConfig config = resolved(given);
  nn::check_weights(config, weights);
  NaiveParameters parameters;
  for (Index h = 0; h < config.heads; ++h) {
    const Index begin = h * config.head_dim;
    const Index end = begin + config.head_dim;
    const Index kv_begin = h / (config.heads / config.kv_heads) * config.head_dim;
    const Index kv_end = kv_begin + config.head_dim;
    parameters.heads.push_back({.wq = head_matrix(weights.wq, begin, end),
                                .wk = head_matrix(weights.wk, kv_begin, kv_end),
                                .wv = head_matrix(weights.wv, kv_begin, kv_end),
                                .bq = head_bias(weights.bq, begin, end),
                                .bk = head_bias(weights.bk, kv_begin, kv_end),
                                .bv = head_bias(weights.bv, kv_begin, kv_end),
                                .learned_k = head_bias(weights.learned_k, kv_begin, kv_end),
                                .learned_v = head_bias(weights.learned_v, kv_begin, kv_end)});
  }
  parameters.wo = head_matrix(weights.wo, 0, config.d_model);
  parameters.bo = head_bias(weights.bo, 0, config.d_model);
  return parameters;
}

MhaParameters to_fused(const MhaConfig& given, const NaiveParameters& parameters) {
  const MhaConfig config = resolved(given);
  const DType dtype = nn::check_naive(config, parameters);
  const Index q_width = config.heads * config.head_dim;
  const Index kv_width = config.kv_heads * config.head_dim;
  const auto row = [&](Index size, bool wanted) { return wanted ? Tensor(dtype, {size}) : Tensor(); };
  MhaParameters fused = {.wq = Tensor(dtype, {q_width, config.d_model}),
                         .wk = Tensor(dtype, {kv_width, config.key_width}),
                         .wv = Tensor(dtype, {kv_width, config.value_width}),
                         .wo = Tensor(dtype, {config.d_model, q_width}),
                         .bq = row(q_width, config.bias),
                         .bk = row(kv_width, config.bias),
                         .bv = row(kv_width, config.bias),
                         .bo = row(config.d_model, config.bias),
                         .learned_k = row(kv_width, config.learned_key),
                         .learned_v = row(kv_width, config.learned_key)};
  const Index group = config.heads / config.kv_heads;
  for (Index h = 0; h < config.heads; ++h) {
    const NaiveHead& head = parameters.heads[static_cast<std::size_t>(h)];
    put_matrix(head.wq, fused.wq, h * config.head_dim);
    put_bias(head.bq, fused.bq, h * config.head_dim);
    if (h % group != 0) continue;  // the others of the group were checked to be equal
    put_matrix(head.wk, fused.wk, h / group * config.head_dim);
    put_matrix(head.wv, fused.wv, h / group * config.head_dim);
    put_bias(head.bk, fused.bk, h / group * config.head_dim);
    put_bias(head.bv, fused.bv, h / group * config.head_dim);
    put_bias(head.learned_k, fused.learned_k, h / group * config.head_dim);
    put_bias(head.learned_v, fused.learned_v, h / group * config.head_dim);
  }
  put_matrix(parameters.wo, fused.wo, 0);
  put_bias(parameters.bo, fused.bo, 0);
  return fused;
}

}  // namespace mha
