// Attention in three lines: causal, eight query heads on two key/value heads.
#include <cstdio>

#include "mha/mha.h"

int main() {
  mha::Tensor q(mha::DType::F32, {1, 5, 8, 64});  // [batch, length, heads, head_dim]
  mha::Tensor k(mha::DType::F32, {1, 5, 2, 64});  // fewer key heads: query head h reads key head h / 4
  mha::Tensor v(mha::DType::F32, {1, 5, 2, 64});
  mha::Tensor out(mha::DType::F32, {1, 5, 8, 64});
  for (int i = 0; i < 5; ++i) v.data<float>()[i * 2 * 64] = static_cast<float>(i);  // value i at token i, so averages can be read off

  mha::Workspace workspace;
  mha::attention_forward({.mask = mha::causal()}, {.q = q, .k = k, .v = v}, {.out = out}, workspace);

  std::printf("all keys look alike, so token i gets the mean of the values 0 to i:\n");
  for (int i = 0; i < 5; ++i) std::printf("  token %d: %.1f\n", i, static_cast<double>(out.data<float>()[i * 8 * 64]));
}
