// The activations of BERT-family feed-forward parts, element by element and in place. Called by src/model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha::nn {

enum class Activation : std::uint8_t {
  Gelu,      // x * Phi(x), exact (Hendrycks & Gimpel 2016)
  GeluTanh,  // its tanh approximation
  Relu,
};

/// By the name in a Hugging Face config.json: "gelu", "gelu_new" or "gelu_pytorch_tanh", "relu". Empty for any other.
std::optional<Activation> activation_named(std::string_view name);

/// x = activation(x). x: rank 1 to 3, f32 or f64, any strides. Throws ShapeError or DTypeError.
void activate(Activation activation, TensorView x, Workspace& workspace);

}  // namespace mha::nn
