// Offsets are 64-bit everywhere: views whose elements lie more than 2^31 and 2^32 elements apart, along every axis of every argument, and
// keys counted beyond 2^32. The memory is address space of which only the touched pages exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "support/guard.h"
#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

class FarOffsetsTest : public IsaTest {
 protected:
  /// A view of `from`'s shape and numbers with its axis `axis` `far` elements apart; absent where the system gives no address space.
  TensorView apart(const ConstTensorView& from, int axis, Index far) {
    Dims strides = contiguous_strides(from.shape);
    strides[axis] = far;
    memory_.push_back(std::make_unique<Reserved>(static_cast<std::size_t>(2 * far + 1000) * size_of(from.dtype)));
    if (memory_.back()->data() == nullptr) return {};
    const TensorView view(memory_.back()->data(), from.dtype, from.shape, strides);
    copy(from, view);
    return view;
  }
  /// Zeroes of any shape; absent as above.
  TensorView zeroes(DType dtype, const Dims& shape) {
    memory_.push_back(std::make_unique<Reserved>(static_cast<std::size_t>(element_count(shape)) * size_of(dtype)));
    return memory_.back()->data() == nullptr ? TensorView() : TensorView(memory_.back()->data(), dtype, shape);
  }
  void forget() { memory_.clear(); }

 private:
  std::vector<std::unique_ptr<Reserved>> memory_;
};
INSTANTIATE_TEST_SUITE_P(Isa, FarOffsetsTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(FarOffsetsTest, EveryAxisOfEveryView) {
  const Index far = (Index{1} << 31) + 11;  // the third element of an axis lies beyond 2^32
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F64}) {
    const Problem p = {.batch = 3,
                       .q_len = 3,
                       .kv_len = 3,
                       .kv_heads = 3,
                       .group = 1,
                       .head_dim = 3,
                       .value_dim = 3,
                       .dtype = dtype,
                       .bias = {BiasData::Content::Finite, {}, DType::F32},
                       .allowed = {true, {}, 0.8}};
    Instance instance(p);
    const Results expected = run(instance);
    for (int axis = 0; axis < 4; ++axis) {
      const TensorView q = apart(instance.q(), axis, far);
      const TensorView k = apart(instance.k(), axis, far);
      const TensorView v = apart(instance.v(), axis, far);
      const TensorView bias = apart(instance.bias(), axis, far);
      const TensorView allowed = apart(instance.allowed(), axis, far);
      const TensorView out = apart(expected.out(), axis, far);
      const TensorView weights = apart(expected.weights(), axis, far);
      const TensorView lse = apart(expected.lse(), std::min(axis, 2), far);
      for (const TensorView& view : {q, k, v, bias, allowed, out, weights, lse}) {
        if (!view) GTEST_SKIP() << "this system gives no " << 2 * far << " elements of address space";
      }
      for (const TensorView& view : {out, weights, lse}) fill(view, kMark);
      AttentionSpec spec = instance.spec();
      spec.bias = DenseBias{bias};
      Workspace workspace(serial_executor());
      attention_forward(spec, {.q = q, .k = k, .v = v, .allowed = allowed}, {.out = out, .lse = lse, .weights = weights}, workspace);
      EXPECT_TRUE(bitwise_equal(out, expected.out())) << name_of(dtype) << " axis " << axis;
      EXPECT_TRUE(bitwise_equal(lse, expected.lse())) << name_of(dtype) << " axis " << axis;
      EXPECT_TRUE(bitwise_equal(weights, expected.weights())) << name_of(dtype) << " axis " << axis;
      forget();
    }
  }
}

/// attention_weights reads far q, k and lse, and writes a far table.
TEST_P(FarOffsetsTest, RecomputedWeights) {
  const Index far = (Index{1} << 31) + 11;
  Instance instance({.batch = 3, .q_len = 3, .kv_len = 3, .kv_heads = 3, .head_dim = 3, .value_dim = 3});
  const Results whole = run(instance);
  const WeightsRegion region = {.batch = 2, .head = 2, .queries = {0, 3}, .keys = {0, 3}};
  Tensor expected(DType::F32, {3, 3});
  Workspace workspace(serial_executor());
  attention_weights(instance.spec(), {.q = instance.q(), .k = instance.k()}, whole.lse(), region, expected, workspace);
  for (int axis = 0; axis < 4; ++axis) {
    const TensorView q = apart(instance.q(), axis, far);
    const TensorView k = apart(instance.k(), axis, far);
    const TensorView lse = apart(whole.lse(), std::min(axis, 2), far);
    const TensorView table = apart(expected.view(), axis % 2, far);
    if (!q || !k || !lse || !table) GTEST_SKIP() << "this system gives no " << 2 * far << " elements of address space";
    fill(table, kMark);
    attention_weights(instance.spec(), {.q = q, .k = k}, lse, region, table, workspace);
    EXPECT_TRUE(bitwise_equal(table, expected.view())) << "axis " << axis;
    forget();
  }
}

/// Keys 2^32 to 2^32 + 178 of a sequence that long, seen through a window: what the same keys alone give, bit for bit, since 2^32 is a
/// multiple of every tile.
TEST_P(FarOffsetsTest, KeysCountedBeyond32Bits) {
  if (current_isa() == "reference") GTEST_SKIP() << "the reference looks at every key";
  const Index far = Index{1} << 32;
  const Index some = 178;
  const Index length = far + some;
  const TensorView k = zeroes(DType::F32, {1, length, 1, 2});
  const TensorView v = zeroes(DType::F32, {1, length, 1, 2});
  const TensorView bias = zeroes(DType::F32, {1, 1, 1, length});
  const TensorView allowed = zeroes(DType::Bool, {1, 1, 3, length});
  if (!k || !v || !bias || !allowed) GTEST_SKIP() << "this system gives no " << 2 * length << " elements of address space";
  const auto tail = [&](const TensorView& view, int axis) { return view.slice(axis, far, length); };
  fill_normal(tail(k, 1), 1);
  fill_normal(tail(v, 1), 2);
  fill_normal(tail(bias, 3), 3);
  fill(tail(allowed, 3), 1);
  for (Index i = 0; i < 3; ++i) set_element(tail(allowed, 3), 0, 0, i, some - 20 + 3 * i, 0);
  Tensor q(DType::F32, {1, 3, 1, 2});
  fill_normal(q.view(), 4);
  const std::vector<Mask> masks = {causal() & window(40), window(150, 5), chunk(far) & window(90), segments({0, far + 100}) & window(170)};
  for (const Mask& mask : masks) {
    // Rules that count from the first position say of the short sequence the same, 2^32 less.
    Mask near_mask = window(kUnbounded, kUnbounded);
    for (const Rule& rule : mask.rules()) {
      if (std::holds_alternative<Segments>(rule)) {
        near_mask = near_mask & segments({0, 100});
      } else if (!std::holds_alternative<Chunk>(rule)) {
        near_mask = near_mask & Mask(rule);
      }
    }
    Tensor out(DType::F32, {1, 3, 1, 2});
    Tensor lse(DType::F32, {1, 1, 3});
    Tensor near_out(DType::F32, {1, 3, 1, 2});
    Tensor near_lse(DType::F32, {1, 1, 3});
    Workspace workspace(serial_executor());
    const AttentionSpec spec = {.mask = mask, .align = Align::BottomRight, .bias = DenseBias{bias}};
    const AttentionSpec near_spec = {.mask = near_mask, .align = Align::BottomRight, .bias = DenseBias{tail(bias, 3)}};
    const AttentionInputs inputs = {.q = q, .k = k, .v = v, .allowed = allowed};
    const AttentionInputs near_inputs = {.q = q, .k = tail(k, 1), .v = tail(v, 1), .allowed = tail(allowed, 3)};
    attention_forward(spec, inputs, {.out = out, .lse = lse}, workspace);
    attention_forward(near_spec, near_inputs, {.out = near_out, .lse = near_lse}, workspace);
    EXPECT_TRUE(bitwise_equal(out.view(), near_out.view())) << to_string(mask);
    EXPECT_TRUE(bitwise_equal(lse.view(), near_lse.view())) << to_string(mask);
    Tensor table(DType::F32, {3, 100});
    Tensor near_table(DType::F32, {3, 100});
    attention_weights(spec, inputs, lse, {.queries = {0, 3}, .keys = {far + 70, far + 170}}, table, workspace);
    attention_weights(near_spec, near_inputs, near_lse, {.queries = {0, 3}, .keys = {70, 170}}, near_table, workspace);
    EXPECT_TRUE(bitwise_equal(table.view(), near_table.view())) << to_string(mask);
    EXPECT_GT(relative_error(table.view(), Tensor(DType::F32, {3, 100}).view()), 0) << "some weight is there";
  }
}

/// Broadcast axes stay where they are, however long: stride 0 along an axis of 2^32 and more elements.
TEST_P(FarOffsetsTest, StrideZeroOverALongAxis) {
  if (current_isa() == "reference") GTEST_SKIP() << "the reference looks at every key";
  const Index length = (Index{1} << 33) + 3;
  const float key[2] = {0.5F, -1};
  const float value[2] = {3, 4};
  const float zero = 0;
  const bool yes = true;
  const ConstTensorView k(key, DType::F32, {1, length, 1, 2}, {0, 0, 0, 1});
  const ConstTensorView v(value, DType::F32, {1, length, 1, 2}, {0, 0, 0, 1});
  const ConstTensorView bias(&zero, DType::F32, {1, 1, 2, length}, {0, 0, 0, 0});
  const ConstTensorView allowed(&yes, DType::Bool, {1, 1, 2, length}, {0, 0, 0, 0});
  Tensor q(DType::F32, {1, 2, 1, 2});
  fill_normal(q.view(), 1);
  Tensor out(DType::F32, {1, 2, 1, 2});
  Workspace workspace(serial_executor());
  attention_forward({.mask = causal() & window(299), .align = Align::BottomRight, .bias = DenseBias{bias}},
                    {.q = q, .k = k, .v = v, .allowed = allowed}, {.out = out}, workspace);
  for_each_position(out.shape(), [&](Index b, Index i, Index h, Index d) {
    const auto exact = static_cast<double>(value[d]);
    EXPECT_NEAR(element(out.view(), b, i, h, d), exact, dot_tolerance(2 * 300) * exact);
  });
}

}  // namespace
}  // namespace mha::test
