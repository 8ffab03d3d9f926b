// Zero-size tensors give empty or zero results of the right shape, never an error.
#include <gtest/gtest.h>

#include <cmath>

#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

class ZeroSizeTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, ZeroSizeTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(ZeroSizeTest, EveryCombinationOfZeros) {
  for (unsigned zeros = 1; zeros < 64; ++zeros) {
    for (const DType dtype : {DType::F32, DType::Bf16, DType::F64}) {
      Problem p = {.dtype = dtype, .mask = causal(), .align = Align::BottomRight};
      if ((zeros & 1) != 0) p.batch = 0;
      if ((zeros & 2) != 0) p.q_len = 0;
      if ((zeros & 4) != 0) p.kv_len = 0;
      if ((zeros & 8) != 0) p.kv_heads = 0;
      if ((zeros & 16) != 0) p.head_dim = 0;
      if ((zeros & 32) != 0) p.value_dim = 0;
      const Instance instance(p);
      const Results got = run(instance);
      for (const double value : elements(got.out())) ASSERT_TRUE(p.head_dim > 0 && p.kv_len > 0 ? std::isfinite(value) : value == 0) << p;
      if (p.kv_len == 0 || p.head_dim == 0) {
        for (const double value : elements(got.lse())) ASSERT_EQ(value, -HUGE_VAL) << p;
        for (const double value : elements(got.weights())) ASSERT_EQ(value, 0) << p;
      }
      ASSERT_EQ(mismatch(instance, got), "") << p;
    }
  }
}

TEST_P(ZeroSizeTest, NullPointersAreFineWhereThereIsNothing) {
  const ConstTensorView nothing(nullptr, DType::F32, {2, 0, 3, 4});
  Tensor q(DType::F32, {2, 5, 3, 4});
  Tensor out(DType::F32, {2, 5, 3, 4});
  fill(out.view(), kMark);
  Workspace workspace(serial_executor());
  attention_forward({}, {.q = q, .k = nothing, .v = nothing}, {.out = out}, workspace);
  for (const double value : elements(out.view())) EXPECT_EQ(value, 0);
}

TEST_P(ZeroSizeTest, WithDropoutBiasAndAllowed) {
  Problem p = {
      .q_len = 5, .kv_len = 0, .bias = {BiasData::Content::Finite, {}, DType::F32}, .allowed = {true, {}, 0.5}, .dropout = {0.5F, 1}};
  const Instance instance(p);
  EXPECT_EQ(mismatch(instance, run(instance)), "");
  p.q_len = 0;
  p.kv_len = 5;
  const Instance other(p);
  EXPECT_EQ(mismatch(other, run(other)), "");
}

}  // namespace
}  // namespace mha::test
