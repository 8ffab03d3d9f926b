// The multi-head attention layer: W_q, W_k, W_v, attention of all heads at once, W_O. The output has the shape of the input.
#include <cstdio>

#include "mha/mha.h"

int main() {
  const mha::MhaConfig config{.d_model = 512, .heads = 8};
  const mha::MhaParameters parameters = mha::xavier_parameters(config, /*seed=*/1);
  const mha::MultiHeadAttention layer(config, parameters.view());

  mha::Tensor x(mha::DType::F32, {1, 2, 512});  // [batch, length, d_model]: "money bank"
  mha::Tensor y(mha::DType::F32, {1, 2, 512});
  for (int i = 0; i < 2 * 512; ++i) x.data<float>()[i] = static_cast<float>(i % 7) - 3.0F;

  mha::Workspace workspace;
  layer.forward({.x = x}, {.y = y}, workspace);
  std::printf("x %s -> y %s\n", mha::to_string(x.shape()).c_str(), mha::to_string(y.shape()).c_str());

  try {
    mha::resolved({.d_model = 512, .heads = 7});
  } catch (const mha::ShapeError& error) {
    std::printf("%s\n", error.what());
  }
}
