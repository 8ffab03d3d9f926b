// One multi-head attention layer in a safetensors file: its weights under our names or as torch's nn.MultiheadAttention keeps them.
//
//   mha::SafetensorsFile file("layer.safetensors");
//   mha::MultiHeadAttention layer(config, mha::load_layer(file, "", config).view());
#pragma once

#include <cstdint>
#include <string>

#include "mha/layer.h"
#include "mha/model/safetensors.h"

namespace mha {

/// How the tensors are named. Weights are [outputs, inputs] in both, heads in ascending order along the outputs.
enum class LayerLayout : std::uint8_t {
  Ours,   // wq, wk, wv, wo, bq, bk, bv, bo, learned_k, learned_v
  Torch,  // in_proj_weight [3 * d_model, d_model] where keys and values are as wide as x, else q_proj_weight, k_proj_weight, v_proj_weight;
          // in_proj_bias [3 * d_model]; out_proj.weight, out_proj.bias; bias_k, bias_v [1, 1, d_model]: learned_k, learned_v
};

/// The layer's weights, in either layout, copied out of the file in its dtype: f32, bf16 and f16 (may be mixed), or all f64. `prefix`
/// stands before every name, its dot included, as in "encoder.0.attention.". Throws ShapeError for a config that cannot be; FormatError,
/// naming the tensor, where one is missing, of another shape than the config says (both are named), or where the file has biases (a
/// learned key) and the config none.
MhaParameters load_layer(const SafetensorsFile& file, const std::string& prefix, const MhaConfig& config);

/// Writes a file of the layer alone. Throws ShapeError or DTypeError where weights contradict the config or torch has no such layer (its
/// heads * head_dim is d_model, without groups, and in_proj_weight has one dtype), IoError where the file cannot be written.
void save_layer(const std::string& path, const std::string& prefix, const MhaConfig& config, const MhaWeights& weights,
                LayerLayout layout = LayerLayout::Ours);

}  // namespace mha
