#include "nn/layer_checks.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "attention/row_numbers.h"
#include "core/check.h"

namespace mha {

MhaConfig resolved(MhaConfig config) {
  const auto at_least = [](Index value, Index least, const char* name) {
    MHA_CHECK(ShapeError, value >= least, "layer: ", name, " is ", value, ", must be at least ", least);
  };
  at_least(config.d_model, 1, "d_model");
  at_least(config.heads, 1, "heads");
  at_least(config.kv_heads, 0, "kv_heads");
  at_least(config.head_dim, 0, "head_dim");
  at_least(config.key_width, 0, "key_width");
  at_least(config.value_width, 0, "value_width");
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  MHA_CHECK(ShapeError, config.heads % config.kv_heads == 0, "layer: heads ", config.heads, " is not a multiple of kv_heads ",
            config.kv_heads);
  if (config.head_dim == 0) {
    MHA_CHECK(ShapeError, config.d_model % config.heads == 0, "layer: d_model ", config.d_model, " is not a multiple of heads ",
              config.heads);
    config.head_dim = config.d_model / config.heads;
  }
  if (config.key_width == 0) config.key_width = config.d_model;
  if (config.value_width == 0) config.value_width = config.key_width;
  element_count({config.heads, config.head_dim});  // throws where the projections' width does not fit an Index
  const float p = config.attention.dropout.probability;
  MHA_CHECK(ShapeError, p >= 0 && p <= 1, "layer: dropout probability is ", p, ", must be in [0, 1]");
  return config;
}

namespace nn {
namespace {

struct Named {
  const char* name;
  const ConstTensorView& view;
};

bool is_16_bit(DType dtype) { return dtype == DType::Bf16 || dtype == DType::F16; }

void check_matrix(const char* name, const ConstTensorView& view, Index outputs, Index inputs) {
  MHA_CHECK(ShapeError, static_cast<bool>(view), "layer: ", name, " is absent, [", outputs, ", ", inputs, "] is wanted");
  const Dims wanted = {outputs, inputs};
  MHA_CHECK(ShapeError, view.shape == wanted, "layer: ", name, " has shape ", to_string(view.shape), ", the config wants ",
            to_string(wanted));
}

void check_bias(const char* name, const ConstTensorView& view, Index outputs, bool wanted) {
  MHA_CHECK(ShapeError, wanted || !view, "layer: ", name, " is given with shape ", to_string(view.shape),
            ", but the config says bias = false");
  if (!wanted) return;
  MHA_CHECK(ShapeError, static_cast<bool>(view), "layer: ", name, " is absent, [", outputs, "] is wanted (the config says bias = true)");
  MHA_CHECK(ShapeError, view.shape == Dims({outputs}), "layer: ", name, " has shape ", to_string(view.shape), ", the config wants [",
            outputs, "]");
}

void check_learned(const char* name, const ConstTensorView& view, Index width, bool wanted) {
  MHA_CHECK(ShapeError, wanted || !view, "layer: ", name, " is given with shape ", to_string(view.shape),
            ", but the config says learned_key = false");
  if (!wanted) return;
  MHA_CHECK(ShapeError, view && view.shape == Dims({width}), "layer: ", name, view ? " has shape " + to_string(view.shape) : " is absent",
            ", [", width, "] is wanted (the config says learned_key = true)");
}

void check_input(const char* name, const ConstTensorView& view, Index width, DType dtype) {
  MHA_CHECK(ShapeError, static_cast<bool>(view), "layer: ", name, " is absent");
  MHA_CHECK(DTypeError, view.dtype == dtype, "layer: ", name, " is ", name_of(view.dtype), ", the layer computes in ", name_of(dtype));
  MHA_CHECK(ShapeError, view.rank() == 3, "layer: ", name, " has shape ", to_string(view.shape), ", [batch, length, width] is wanted");
  MHA_CHECK(ShapeError, view.size(2) == width, "layer: ", name, " has width ", view.size(2), ", the config wants ", width);
}

}  // namespace

DType compute_dtype(const MhaWeights& weights) {
  const std::array<Named, 10> all = {{{"wq", weights.wq},
                                      {"wk", weights.wk},
                                      {"wv", weights.wv},
                                      {"wo", weights.wo},
                                      {"bq", weights.bq},
                                      {"bk", weights.bk},
                                      {"bv", weights.bv},
                                      {"bo", weights.bo},
                                      {"learned_k", weights.learned_k},
                                      {"learned_v", weights.learned_v}}};
  const DType dtype = weights.wq.dtype == DType::F64 ? DType::F64 : DType::F32;
  for (const Named& each : all) {
    if (!each.view) continue;
    const bool fits = each.view.dtype == dtype || (dtype == DType::F32 && is_16_bit(each.view.dtype));
    MHA_CHECK(DTypeError, fits, "layer: ", each.name, " is ", name_of(each.view.dtype), ", wq is ", name_of(weights.wq.dtype),
              ": f32, bf16 and f16 may be mixed, or all must be f64");
  }
  return dtype;
}

void check_weights(const MhaConfig& config, const MhaWeights& weights) {
  const Index q_width = config.heads * config.head_dim;
  const Index kv_width = config.kv_heads * config.head_dim;
  check_matrix("wq", weights.wq, q_width, config.d_model);
  check_matrix("wk", weights.wk, kv_width, config.key_width);
  check_matrix("wv", weights.wv, kv_width, config.value_width);
  check_matrix("wo", weights.wo, config.d_model, q_width);
  check_bias("bq", weights.bq, q_width, config.bias);
  check_bias("bk", weights.bk, kv_width, config.bias);
  check_bias("bv", weights.bv, kv_width, config.bias);
  check_bias("bo", weights.bo, config.d_model, config.bias);
  check_learned("learned_k", weights.learned_k, kv_width, config.learned_key);
  check_learned("learned_v", weights.learned_v, kv_width, config.learned_key);
  compute_dtype(weights);
}

namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a || !b) return static_cast<bool>(a) == static_cast<bool>(b);
  const auto bytes = static_cast<std::size_t>(element_count(a.shape())) * size_of(a.dtype());
  return std::memcmp(a.view().data, b.view().data, bytes) == 0;
}

void check_head(const MhaConfig& config, const NaiveHead& head, const std::string& number) {
  check_matrix((number + "wq").c_str(), head.wq, config.d_model, config.head_dim);
  check_matrix((number + "wk").c_str(), head.wk, config.key_width, config.head_dim);
  check_matrix((number + "wv").c_str(), head.wv, config.value_width, config.head_dim);
  check_bias((number + "bq").c_str(), head.bq, config.head_dim, config.bias);
  check_bias((number + "bk").c_str(), head.bk, config.head_dim, config.bias);
  check_bias((number + "bv").c_str(), head.bv, config.head_dim, config.bias);
  check_learned((number + "learned_k").c_str(), head.learned_k, config.head_dim, config.learned_key);
  check_learned((number + "learned_v").c_str(), head.learned_v, config.head_dim, config.learned_key);
}

/// Whether two heads may share a kv head.
bool same_keys_and_values(const NaiveHead& a, const NaiveHead& b) {
  return same_bits(a.wk, b.wk) && same_bits(a.wv, b.wv) && same_bits(a.bk, b.bk) && same_bits(a.bv, b.bv) &&
         same_bits(a.learned_k, b.learned_k) && same_bits(a.learned_v, b.learned_v);
}

}  // namespace

DType check_naive(const MhaConfig& config, const NaiveParameters& parameters) {
  const auto heads = static_cast<Index>(parameters.heads.size());
  MHA_CHECK(ShapeError, heads == config.heads, "layer: ", heads, " naive heads are given, the config has heads ", config.heads);
  const Index group = config.heads / config.kv_heads;
  const DType dtype = parameters.wo.dtype();
  for (Index h = 0; h < heads; ++h) {
    const NaiveHead& head = parameters.heads[static_cast<std::size_t>(h)];
    const NaiveHead& first = parameters.heads[static_cast<std::size_t>(h / group * group)];
    const std::string number = "naive head " + std::to_string(h) + ": ";
    check_head(config, head, number);
    for (const Tensor* tensor : {&head.wq, &head.wk, &head.wv, &head.bq, &head.bk, &head.bv, &head.learned_k, &head.learned_v}) {
      MHA_CHECK(DTypeError, !*tensor || tensor->dtype() == dtype, "layer: ", number, "a weight is ", name_of(tensor->dtype()), ", wo is ",
                name_of(dtype));
    }
    MHA_CHECK(ShapeError, same_keys_and_values(head, first), "layer: naive heads ", h / group * group, " and ", h,
              " share a kv head (heads ", config.heads, ", kv_heads ", config.kv_heads,
              ") but differ in wk, wv, their biases or learned_k, learned_v");
  }
  check_matrix("wo", parameters.wo, config.heads * config.head_dim, config.d_model);
  check_bias("bo", parameters.bo, config.d_model, config.bias);
  MHA_CHECK(DTypeError, !parameters.bo || parameters.bo.dtype() == dtype, "layer: bo is ", name_of(parameters.bo.dtype()), ", wo is ",
            name_of(dtype));
  MHA_CHECK(DTypeError, dtype == DType::F32 || dtype == DType::F64, "layer: naive weights are ", name_of(dtype), ", f32 or f64 is wanted");
  return dtype;
}

namespace {

AttentionSpec spec_of_call(const MhaConfig& config, const MhaInputs& inputs) {
  AttentionSpec spec = config.attention;
  if (inputs.bias) {
    MHA_CHECK(ShapeError, std::holds_alternative<NoBias>(spec.bias), "layer: bias is given with shape ", to_string(inputs.bias.shape),
              ", but the config's attention has one already: add them up");
    spec.bias = DenseBias{inputs.bias};
  }
  if (inputs.dropout_seed) spec.dropout.seed = *inputs.dropout_seed;
  if (!inputs.training) spec.dropout = {};
  if (inputs.temperature != 1.0F) {
    spec.scale = spec.scale.value_or(1.0 / std::sqrt(static_cast<double>(config.head_dim))) / static_cast<double>(inputs.temperature);
  }
  return spec;
}

}  // namespace

LayerCall checked_call(const MhaConfig& config, DType dtype, const MhaInputs& inputs, const MhaOutputs& outputs) {
  LayerCall call;
  call.x = inputs.x;
  call.key = inputs.key ? inputs.key : inputs.x;
  call.value = inputs.value ? inputs.value : call.key;
  check_input("x", call.x, config.d_model, dtype);
  check_input(inputs.key ? "key" : "key (absent: x)", call.key, config.key_width, dtype);
  check_input(inputs.value ? "value" : "value (absent: key)", call.value, config.value_width, dtype);
  call.batch = call.x.size(0);
  call.q_len = call.x.size(1);
  call.kv_len = call.key.size(1);
  MHA_CHECK(ShapeError, call.key.size(0) == call.batch, "layer: key has batch ", call.key.size(0), ", x has batch ", call.batch);
  MHA_CHECK(ShapeError, call.value.size(0) == call.batch, "layer: value has batch ", call.value.size(0), ", x has batch ", call.batch);
  MHA_CHECK(ShapeError, call.value.size(1) == call.kv_len, "layer: value has length ", call.value.size(1), ", key has length ",
            call.kv_len);
  MHA_CHECK(ShapeError, static_cast<bool>(outputs.y), "layer: y is absent");
  MHA_CHECK(DTypeError, outputs.y.dtype == dtype, "layer: y is ", name_of(outputs.y.dtype), ", x is ", name_of(dtype));
  MHA_CHECK(ShapeError, outputs.y.shape == call.x.shape, "layer: y has shape ", to_string(outputs.y.shape), ", x has shape ",
            to_string(call.x.shape));
  MHA_CHECK(ShapeError, !may_overlap(outputs.y, outputs.weights), "layer: y overlaps weights");
  for (const attention::RowNumber& number : attention::kRowNumbers) {
    MHA_CHECK(ShapeError, !may_overlap(outputs.y, outputs.statistics.*number.view), "layer: y overlaps statistics");
  }
  MHA_CHECK(ShapeError, inputs.temperature > 0 && std::isfinite(inputs.temperature), "layer: temperature is ", inputs.temperature,
            ", must be finite and above 0");
  MHA_CHECK(ShapeError, call.kv_len <= std::numeric_limits<Index>::max() - config.appended_keys(), "layer: key has length ", call.kv_len,
            ", which leaves no room for ", config.appended_keys(), " more");
  call.keys = call.kv_len + config.appended_keys();
  MHA_CHECK(ShapeError, inputs.kv_lengths.empty() || call.keys == call.kv_len, "layer: kv_lengths has ", inputs.kv_lengths.size(),
            " entries, but ", config.appended_keys(), " keys are appended, which lie beyond them: hide keys by allowed");
  call.spec = spec_of_call(config, inputs);
  const bool by_position = !call.spec.mask.empty() || std::holds_alternative<AlibiBias>(call.spec.bias);
  MHA_CHECK(ShapeError, !by_position || call.keys == call.kv_len, "layer: ", config.appended_keys(), " keys are appended, which have no ",
            "position, but ", call.spec.mask.empty() ? "an ALiBi bias" : "mask " + to_string(call.spec.mask),
            " goes by it: use allowed or bias");
  return call;
}

void check_per_head(const MhaConfig& config, const LayerCall& call, const MhaInputs& inputs, const MhaOutputs& outputs) {
  const auto check_heads = [&](const char* name, const ConstTensorView& view) {
    const bool fits = !view || (view.rank() == 4 && (view.size(1) == 1 || view.size(1) == config.heads));
    MHA_CHECK(ShapeError, fits, "layer: ", name, " has shape ", to_string(view.shape), ", rank 4 with 1 or ", config.heads,
              " heads is wanted");
  };
  check_heads("allowed", inputs.allowed);
  if (const auto* dense = std::get_if<DenseBias>(&call.spec.bias)) check_heads("bias", dense->values);
  const auto check_numbers = [&](const char* name, const std::vector<float>& per_head) {
    MHA_CHECK(ShapeError, std::cmp_equal(per_head.size(), config.heads), "layer: ", per_head.size(), " ", name, ", heads is ",
              config.heads);
  };
  if (const auto* alibi = std::get_if<AlibiBias>(&call.spec.bias)) check_numbers("ALiBi slopes", alibi->slopes);
  if (!call.spec.sink_logits.empty()) check_numbers("sink logits", call.spec.sink_logits);
  for (const attention::RowNumber& number : attention::kRowNumbers) {
    const TensorView& view = outputs.statistics.*number.view;
    if (!view) continue;
    Dims rows = {call.batch, config.heads, call.q_len};
    if (number.links && view.rank() == 4) rows = {call.batch, config.heads, call.q_len, view.size(3)};
    MHA_CHECK(ShapeError, view.shape == rows, "layer: statistics have a shape ", to_string(view.shape), ", must be ", to_string(rows));
  }
  if (!outputs.weights) return;
  const Dims wanted = {call.batch, config.heads, call.q_len, call.keys};
  MHA_CHECK(ShapeError, outputs.weights.shape == wanted, "layer: weights has shape ", to_string(outputs.weights.shape), ", must be ",
            to_string(wanted));
}

}  // namespace nn
}  // namespace mha
