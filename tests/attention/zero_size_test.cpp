// Zero-size tensors give empty or zero results of the right shape, never an error; and strides may reach beyond 2^31 elements.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "support/guard.h"
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

/// The same numbers with the elements of axis `axis` more than 2^31 elements apart.
TEST_P(ZeroSizeTest, StridesBeyond32Bits) {
  const Problem p = {.batch = 2,
                     .q_len = 3,
                     .kv_len = 3,
                     .kv_heads = 2,
                     .group = 1,
                     .head_dim = 3,
                     .value_dim = 3,
                     .bias = {BiasData::Content::Finite, {}, DType::F32},
                     .allowed = {true, {}, 0.8}};
  Instance instance(p);
  const Results expected = run(instance);
  const Index far = (Index{1} << 31) + 11;
  for (int axis = 0; axis < 4; ++axis) {
    const auto apart = [&](const ConstTensorView& view, const Reserved& memory) {
      Dims strides = contiguous_strides(view.shape);
      strides[axis] = far;
      return TensorView(memory.data(), view.dtype, view.shape, strides);
    };
    const std::size_t floats = static_cast<std::size_t>(2 * far + 1000) * sizeof(float);
    const Reserved memory[6] = {Reserved(floats), Reserved(floats), Reserved(floats), Reserved(floats), Reserved(floats), Reserved(floats)};
    for (const Reserved& reserved : memory) {
      if (reserved.data() == nullptr) GTEST_SKIP() << "this system gives no " << floats << " bytes of address space";
    }
    const TensorView q = apart(instance.q(), memory[0]);
    const TensorView k = apart(instance.k(), memory[1]);
    const TensorView v = apart(instance.v(), memory[2]);
    const TensorView bias = apart(instance.bias(), memory[3]);
    const TensorView allowed = apart(instance.allowed(), memory[4]);
    const TensorView out = apart(expected.out(), memory[5]);
    for (const auto& [from, to] :
         {std::pair{instance.q(), q}, {instance.k(), k}, {instance.v(), v}, {instance.bias(), bias}, {instance.allowed(), allowed}})
      copy(from, to);
    AttentionSpec spec = instance.spec();
    spec.bias = DenseBias{bias};
    Workspace workspace(serial_executor());
    attention_forward(spec, {.q = q, .k = k, .v = v, .allowed = allowed}, {.out = out}, workspace);
    EXPECT_TRUE(bitwise_equal(out, expected.out())) << "axis " << axis;
  }
}

}  // namespace
}  // namespace mha::test
