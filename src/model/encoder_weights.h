// The tensors of an encoder, found in a safetensors file and checked against the config. Called by transformer.cpp, which builds the
// layers from them. Views only: they live as long as the file they point into.
#pragma once

#include <string>
#include <vector>

#include "mha/layer.h"
#include "mha/model/safetensors.h"
#include "mha/model/transformer.h"

namespace mha::model {

struct Affine {
  ConstTensorView weight;  // [outputs, inputs] of a linear map, [width] of a normalisation
  ConstTensorView bias;    // [outputs]
};

struct EncoderLayerWeights {
  MhaWeights attention;
  Affine attention_norm;
  Affine up;    // [hidden_width, d_model]
  Affine down;  // [d_model, hidden_width]
  Affine output_norm;
};

struct EncoderWeights {
  ConstTensorView words;        // [vocabulary, d_model]
  ConstTensorView positions;    // [max_positions, d_model]
  ConstTensorView token_types;  // [token_types, d_model], absent where the config has none
  Affine norm;
  std::vector<EncoderLayerWeights> layers;
};

/// Every tensor is f32, bf16 or f16. A layer whose heads were removed has narrower projections, of no rows or columns where all were.
/// Throws FormatError, naming the tensor, where one is missing, of another dtype or shape (both shapes are named), or where the file holds
/// more layers than the config.
EncoderWeights find_encoder_weights(const SafetensorsFile& file, const TransformerConfig& config);

/// What stands before every name of the family in this file: nothing, where it was saved without. Throws FormatError where it holds no
/// encoder.
std::string tensor_prefix(const SafetensorsFile& file, const TransformerConfig& config);

}  // namespace mha::model
