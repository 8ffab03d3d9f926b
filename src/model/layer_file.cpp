// The two layouts of a layer's weights, read and written. Called by users; the shapes are checked here, before a layer is built.
#include "mha/model/layer_file.h"

#include <array>
#include <vector>

#include "core/check.h"
#include "model/checked_tensor.h"
#include "nn/layer_checks.h"

namespace mha {
namespace {

struct Widths {
  Index q;   // heads * head_dim
  Index kv;  // kv_heads * head_dim
};

Widths widths_of(const MhaConfig& config) { return {config.heads * config.head_dim, config.kv_heads * config.head_dim}; }

/// torch packs the three input projections into one matrix where all have one shape.
bool is_packed(const MhaConfig& config) { return config.key_width == config.d_model && config.value_width == config.d_model; }

void check_torch_has_it(const MhaConfig& config) {
  MHA_CHECK(ShapeError, config.kv_heads == config.heads, "layer: kv_heads is ", config.kv_heads, ", heads is ", config.heads,
            ": torch's layer has no groups");
  MHA_CHECK(ShapeError, config.heads * config.head_dim == config.d_model, "layer: heads * head_dim is ", config.heads * config.head_dim,
            ", d_model is ", config.d_model, ": torch's layer has them equal");
}

class Reader {
 public:
  Reader(const SafetensorsFile& file, const std::string& prefix) : file_(file), prefix_(prefix) {}

  bool has(const std::string& name) const { return file_.contains(prefix_ + name); }
  std::string full(const std::string& name) const { return prefix_ + name; }
  const std::string& path() const { return file_.path(); }

  ConstTensorView view(const std::string& name, const Dims& shape) const {
    return model::checked_tensor(file_, prefix_ + name, shape, model::WithF64::Yes);
  }

  void refuse(const std::string& name, const char* why) const {
    MHA_CHECK(FormatError, !has(name), file_.path(), ": tensor ", full(name), " is there, ", why);
  }

 private:
  const SafetensorsFile& file_;
  const std::string& prefix_;
};

constexpr const char* kNoBias = "the config has no bias";
constexpr const char* kNoLearnedKey = "the config has no learned_key (torch: add_bias_kv)";

/// Torch keeps them as [1, 1, d_model].
ConstTensorView as_row(const ConstTensorView& torchs) { return torchs.reshape({torchs.size(2)}); }

MhaWeights read_ours(const Reader& reader, const MhaConfig& config) {
  const Widths width = widths_of(config);
  MhaWeights weights{.wq = reader.view("wq", {width.q, config.d_model}),
                     .wk = reader.view("wk", {width.kv, config.key_width}),
                     .wv = reader.view("wv", {width.kv, config.value_width}),
                     .wo = reader.view("wo", {config.d_model, width.q})};
  if (config.learned_key) {
    weights.learned_k = reader.view("learned_k", {width.kv});
    weights.learned_v = reader.view("learned_v", {width.kv});
  } else {
    for (const char* const name : {"learned_k", "learned_v"}) reader.refuse(name, kNoLearnedKey);
  }
  if (!config.bias) {
    for (const char* const name : {"bq", "bk", "bv", "bo"}) reader.refuse(name, kNoBias);
    return weights;
  }
  weights.bq = reader.view("bq", {width.q});
  weights.bk = reader.view("bk", {width.kv});
  weights.bv = reader.view("bv", {width.kv});
  weights.bo = reader.view("bo", {config.d_model});
  return weights;
}

MhaWeights read_torch(const Reader& reader, const MhaConfig& config) {
  check_torch_has_it(config);
  const Index width = config.d_model;
  MhaWeights weights{.wq = {}, .wk = {}, .wv = {}, .wo = reader.view("out_proj.weight", {width, width})};
  if (is_packed(config)) {
    const ConstTensorView packed = reader.view("in_proj_weight", {3 * width, width});
    weights.wq = packed.slice(0, 0, width);
    weights.wk = packed.slice(0, width, 2 * width);
    weights.wv = packed.slice(0, 2 * width, 3 * width);
  } else {
    weights.wq = reader.view("q_proj_weight", {width, width});
    weights.wk = reader.view("k_proj_weight", {width, config.key_width});
    weights.wv = reader.view("v_proj_weight", {width, config.value_width});
  }
  if (config.learned_key) {
    weights.learned_k = as_row(reader.view("bias_k", {1, 1, width}));
    weights.learned_v = as_row(reader.view("bias_v", {1, 1, width}));
  } else {
    for (const char* const name : {"bias_k", "bias_v"}) reader.refuse(name, kNoLearnedKey);
  }
  if (!config.bias) {
    for (const char* const name : {"in_proj_bias", "out_proj.bias"}) reader.refuse(name, kNoBias);
    return weights;
  }
  const ConstTensorView packed = reader.view("in_proj_bias", {3 * width});
  weights.bq = packed.slice(0, 0, width);
  weights.bk = packed.slice(0, width, 2 * width);
  weights.bv = packed.slice(0, 2 * width, 3 * width);
  weights.bo = reader.view("out_proj.bias", {width});
  return weights;
}

Tensor owned(const ConstTensorView& view) {
  if (!view) return {};
  Tensor tensor(view.dtype, view.shape);
  copy(view, tensor);
  return tensor;
}

/// A row as torch keeps it.
Tensor as_torch_row(const ConstTensorView& row) {
  Tensor tensor(row.dtype, {1, 1, row.size(0)});
  copy(row, tensor.view().reshape(row.shape));
  return tensor;
}

/// The three stacked along the outputs, as torch keeps them.
Tensor packed(const std::array<ConstTensorView, 3>& parts) {
  Dims shape = parts[0].shape;
  const Index rows = shape[0];
  shape[0] = 3 * rows;
  Tensor all(parts[0].dtype, shape);
  for (Index i = 0; i < 3; ++i) {
    const ConstTensorView& part = parts[static_cast<std::size_t>(i)];
    MHA_CHECK(DTypeError, part.dtype == all.dtype(), "layer: the projections of q and ", i == 1 ? "k" : "v", " are ", name_of(all.dtype()),
              " and ", name_of(part.dtype), ": torch keeps them in one tensor");
    copy(part, all.view().slice(0, i * rows, (i + 1) * rows));
  }
  return all;
}

void save_torch(const std::string& path, const std::string& prefix, const MhaConfig& config, const MhaWeights& weights) {
  check_torch_has_it(config);
  std::vector<NamedTensor> tensors = {{prefix + "out_proj.weight", weights.wo}};
  Tensor in_weight, in_bias, bias_k, bias_v;
  if (is_packed(config)) {
    in_weight = packed({weights.wq, weights.wk, weights.wv});
    tensors.push_back({prefix + "in_proj_weight", in_weight});
  } else {
    tensors.push_back({prefix + "q_proj_weight", weights.wq});
    tensors.push_back({prefix + "k_proj_weight", weights.wk});
    tensors.push_back({prefix + "v_proj_weight", weights.wv});
  }
  if (config.bias) {
    in_bias = packed({weights.bq, weights.bk, weights.bv});
    tensors.push_back({prefix + "in_proj_bias", in_bias});
    tensors.push_back({prefix + "out_proj.bias", weights.bo});
  }
  if (config.learned_key) {
    bias_k = as_torch_row(weights.learned_k);
    bias_v = as_torch_row(weights.learned_v);
    tensors.push_back({prefix + "bias_k", bias_k});
    tensors.push_back({prefix + "bias_v", bias_v});
  }
  save_safetensors(path, tensors);
}

void save_ours(const std::string& path, const std::string& prefix, const MhaWeights& weights) {
  std::vector<NamedTensor> tensors = {
      {prefix + "wq", weights.wq}, {prefix + "wk", weights.wk}, {prefix + "wv", weights.wv}, {prefix + "wo", weights.wo}};
  if (weights.bq) {
    tensors.push_back({prefix + "bq", weights.bq});
    tensors.push_back({prefix + "bk", weights.bk});
    tensors.push_back({prefix + "bv", weights.bv});
    tensors.push_back({prefix + "bo", weights.bo});
  }
  if (weights.learned_k) {
    tensors.push_back({prefix + "learned_k", weights.learned_k});
    tensors.push_back({prefix + "learned_v", weights.learned_v});
  }
  save_safetensors(path, tensors);
}

}  // namespace

MhaParameters load_layer(const SafetensorsFile& file, const std::string& prefix, const MhaConfig& config) {
  const MhaConfig sizes = resolved(config);
  const Reader reader(file, prefix);
  const bool ours = reader.has("wq");
  const bool torch = reader.has("in_proj_weight") || reader.has("q_proj_weight");
  MHA_CHECK(FormatError, ours || torch, file.path(), ": tensor ", reader.full("wq"), " is missing, and so are ",
            reader.full("in_proj_weight"), " and ", reader.full("q_proj_weight"));
  MHA_CHECK(FormatError, !(ours && torch), file.path(), ": tensors of both layouts are there, ", reader.full("wq"), " and torch's");
  const MhaWeights weights = ours ? read_ours(reader, sizes) : read_torch(reader, sizes);
  try {
    nn::compute_dtype(weights);
  } catch (const DTypeError& error) {
    throw FormatError(file.path() + ": " + error.what());
  }
  return {.wq = owned(weights.wq),
          .wk = owned(weights.wk),
          .wv = owned(weights.wv),
          .wo = owned(weights.wo),
          .bq = owned(weights.bq),
          .bk = owned(weights.bk),
          .bv = owned(weights.bv),
          .bo = owned(weights.bo),
          .learned_k = owned(weights.learned_k),
          .learned_v = owned(weights.learned_v)};
}

void save_layer(const std::string& path, const std::string& prefix, const MhaConfig& config, const MhaWeights& weights,
                LayerLayout layout) {
  const MhaConfig sizes = resolved(config);
  nn::check_weights(sizes, weights);
  if (layout == LayerLayout::Torch) {
    save_torch(path, prefix, sizes, weights);
  } else {
    save_ours(path, prefix, weights);
  }
}

}  // namespace mha
