// A user of the installed library: attention of two tokens that can be checked by hand. Built by check.sh.
#include <cmath>
#include <cstdio>

#include "mha/mha.h"

int main() {
  const mha::Dims shape = {1, 2, 1, 1};
  mha::Tensor q(mha::DType::F32, shape), v(mha::DType::F32, shape), out(mha::DType::F32, shape);
  v.data<float>()[0] = 1.0F;
  v.data<float>()[1] = 3.0F;

  mha::Workspace workspace;  // with q = k = 0 every visible key weighs the same
  mha::attention_forward({.mask = mha::causal()}, {.q = q, .k = q, .v = v}, {.out = out}, workspace);
  const float first = out.data<float>()[0];
  const float second = out.data<float>()[1];
  std::printf("%g %g\n", static_cast<double>(first), static_cast<double>(second));
  return std::abs(first - 1.0F) < 1e-6F && std::abs(second - 2.0F) < 1e-6F ? 0 : 1;
}
