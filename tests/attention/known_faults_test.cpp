// Faults that other implementations had with shapes, strides, sizes, scale, special values, dropout and determinism. One test per line of
// the project's list of known faults, named after it.
#include "attention/known_faults.h"

#include <gtest/gtest.h>

#include "attention/dropout.h"
#include "mha/error.h"
#include "support/errors.h"
#include "support/executors.h"
#include "support/guard.h"

namespace mha::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Isa, KnownFaults, testing::ValuesIn(all_isas()), isa_name);

/// A dense copy.
Tensor dense(const ConstTensorView& view) {
  Tensor tensor(view.dtype, view.shape);
  copy(view, tensor);
  return tensor;
}

TEST_P(KnownFaults, A12_TransposedViewsEqualContiguousOnes) {
  const Tensor q = normal_tensor(DType::F32, {1, 16, 1, 128}, 1);
  const Tensor k = normal_tensor(DType::F32, {1, 16, 16, 128}, 2);
  const Tensor allowed = filled_tensor(DType::Bool, {1, 1, 1, 16}, 1);
  const ConstTensorView qt = q.view().transpose(1, 2);
  const ConstTensorView kt = k.view().transpose(1, 2);
  const Tensor qc = dense(qt);
  const Tensor kc = dense(kt);
  EXPECT_TRUE(same_said(forward({}, {.q = qt, .k = kt, .v = kt, .allowed = allowed}),
                        forward({}, {.q = qc, .k = kc, .v = kc, .allowed = allowed})));
}

TEST_P(KnownFaults, A13_HeadDimOneAndAnyStrideOfSizeOne) {
  const float q[2] = {0.5F, -3};
  const float kv[1] = {7};
  const ConstTensorView q_view(q, DType::F32, {1, 2, 1, 1}, {99, 1, 12345, 777});
  const ConstTensorView kv_view(kv, DType::F32, {1, 1, 1, 1}, {3, 1 << 20, 0, 55});
  const Said said = forward({}, {.q = q_view, .k = kv_view, .v = kv_view});
  EXPECT_NEAR(element(said.out.view(), 0, 0), 7, 8 * unit_roundoff(DType::F32) * 7);
  EXPECT_NEAR(element(said.out.view(), 0, 1), 7, 8 * unit_roundoff(DType::F32) * 7);
}

TEST_P(KnownFaults, A14_SamplesDoNotMixUpTheirMasks) {
  const Tensor x = normal_tensor(DType::F32, {2, 6, 2, 4}, 1);
  Tensor allowed = filled_tensor(DType::Bool, {2, 2, 6, 6}, 1);
  for (Index h = 0; h < 2; ++h) {
    for (Index i = 0; i < 6; ++i) {
      for (Index j = 3; j < 6; ++j) set_element(allowed.view(), 1, h, i, j, 0);
    }
  }
  const Said both = forward({}, {.q = x, .k = x, .v = x, .allowed = allowed});
  for (Index b = 0; b < 2; ++b) {
    const ConstTensorView one = x.view().slice(0, b, b + 1);
    const Said alone = forward({}, {.q = one, .k = one, .v = one, .allowed = allowed.view().slice(0, b, b + 1)});
    EXPECT_TRUE(bitwise_equal(alone.out.view(), both.out.view().slice(0, b, b + 1)));
    EXPECT_TRUE(bitwise_equal(alone.weights.view(), both.weights.view().slice(0, b, b + 1)));
  }
}

TEST_P(KnownFaults, A26_A27_A29_ZeroSizes) {
  const Dims shapes[][2] = {{{0, 0, 2, 0}, {0, 0, 1, 0}}, {{0, 0, 2, 4}, {0, 13, 2, 4}}, {{0, 3952, 10, 64}, {0, 16, 10, 64}},
                            {{2, 3, 0, 4}, {2, 5, 0, 4}}, {{1, 5, 2, 4}, {1, 0, 2, 4}},  {{1, 0, 2, 4}, {1, 5, 2, 4}}};
  for (const auto& [q_shape, k_shape] : shapes) {
    for (const DType dtype : {DType::F32, DType::F16}) {
      const Tensor q(dtype, q_shape);
      const Tensor k(dtype, k_shape);
      const Said said = forward({}, {.q = q, .k = k, .v = k});
      EXPECT_EQ(said.out.shape(), (Dims{q_shape[0], q_shape[1], q_shape[2], k_shape[3]}));
      EXPECT_TRUE(all_zero(said.out.view()));
    }
  }
}

TEST_P(KnownFaults, A30_ZeroKvHeadsAreRefusedBeforeTheDivision) {
  const Tensor q = normal_tensor(DType::F32, {1, 3, 4, 8}, 1);
  const Tensor k(DType::F32, {1, 3, 0, 8});
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { forward({}, {.q = q, .k = k, .v = k}); }), "0 heads", "4"));
}

TEST_P(KnownFaults, A31_ScaleIsThatOfTheTrueHeadDim) {
  for (const Index head_dim : {36, 80, 3, 5}) {
    const Tensor x = normal_tensor(DType::F32, {1, 7, 2, head_dim}, 1);
    const AttentionInputs in = {.q = x, .k = x, .v = x};
    const Said by_default = forward({}, in);
    const Said by_hand = forward({.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))}, in);
    EXPECT_LE(relative_error(by_default.out.view(), by_hand.out.view()), forward_tolerance(DType::F32));
    EXPECT_EQ(by_default.out.shape(), (Dims{1, 7, 2, head_dim}));
  }
}

TEST_P(KnownFaults, A32_A35_ValueDimOfItsOwn) {
  for (const Dims& sizes : {Dims{1, 1, 4, 2}, Dims{64, 4, 192, 128}}) {
    const Tensor q = normal_tensor(DType::F32, {1, 3, sizes[0], sizes[2]}, 1);
    const Tensor k = normal_tensor(DType::F32, {1, 8, sizes[1], sizes[2]}, 2);
    const Tensor v = normal_tensor(DType::F32, {1, 8, sizes[1], sizes[3]}, 3);
    const Said first = forward({}, {.q = q, .k = k, .v = v});
    EXPECT_EQ(first.out.shape(), (Dims{1, 3, sizes[0], sizes[3]}));
    EXPECT_TRUE(same_said(first, forward({}, {.q = q, .k = k, .v = v})));
    EXPECT_TRUE(all_finite(first.out.view()));
  }
}

TEST_P(KnownFaults, A33_LargeHeadDims) {
  for (const Index head_dim : {512, 576, 1024, 2048}) {
    const Instance instance({.batch = 1, .q_len = 5, .kv_len = 9, .kv_heads = 1, .group = 2, .head_dim = head_dim, .value_dim = head_dim});
    EXPECT_EQ(mismatch(instance, run(instance)), "") << head_dim;
  }
}

/// The corner [8, 28, 2, 3] of a mask of [8, 28, 4096, 4096] elements: batch entry 7 begins 3.3e9 elements in.
TEST_P(KnownFaults, A36_MaskOffsetsBeyond32Bits) {
  const Dims strides = {Index{28} * 4096 * 4096, Index{4096} * 4096, 4096, 1};
  const Reserved memory(static_cast<std::size_t>(8 * strides[0]) * sizeof(float));
  if (memory.data() == nullptr) GTEST_SKIP() << "this system gives no 15 GB of address space";
  const TensorView bias(memory.data(), DType::F32, {8, 28, 2, 3}, strides);
  fill_normal(bias, 5);
  set_element(bias, 7, 27, 1, 2, -kInfinity);
  Tensor near(DType::F32, {8, 28, 2, 3});
  copy(bias, near);
  const Tensor q = normal_tensor(DType::F32, {8, 2, 28, 4}, 1);
  const Tensor k = normal_tensor(DType::F32, {8, 3, 7, 4}, 2);
  const Said said = forward({.bias = DenseBias{bias}}, {.q = q, .k = k, .v = k});
  EXPECT_TRUE(same_said(said, forward({.bias = DenseBias{near}}, {.q = q, .k = k, .v = k})));
  EXPECT_EQ(element(said.weights.view(), 7, 27, 1, 2), 0);
}

TEST_P(KnownFaults, A38_ProductsBeyondF16) {
  const Tensor x = filled_tensor(DType::F16, {1, 4, 1, 64}, 40);  // q.k = 102,400 > 65,504
  const Said said = forward({}, {.q = x, .k = x, .v = x});
  EXPECT_TRUE(all_finite(said.lse.view()));
  for (const double value : elements(said.out.view())) EXPECT_NEAR(value, 40, 40 * unit_roundoff(DType::F16));
  EXPECT_NEAR(element(said.lse.view(), 0, 0, 0), 12'800 + std::log(4.0), 12'800 * dot_tolerance(64));
}

TEST_P(KnownFaults, A39_MaskedKeysMayHoldAnything) {
  Tensor x = tensor_of(DType::F32, {1, 2, 1, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor allowed = bools({1, 1, 2, 2}, {1, 0, 1, 0});
  const Tensor v0 = dense(x.view().slice(1, 0, 1));
  for (const double culprit : {kNotANumber, 1e10, kInfinity}) {
    Tensor k = x.clone();
    Tensor v = x.clone();
    set_element(k.view(), 0, 1, 0, 0, culprit);
    set_element(v.view(), 0, 1, 0, 2, culprit);
    const Said said = forward({}, {.q = x, .k = k, .v = v, .allowed = allowed});
    for (Index i = 0; i < 2; ++i) EXPECT_LE(max_difference(out_rows(said, i, i + 1), v0.view()), 3 * 4 * unit_roundoff(DType::F32));
  }
}

TEST_P(KnownFaults, A40_SoftmaxOfSpecialRows) {
  struct Case {
    double bias[3];
    bool nan;
    bool empty;
  };
  const Case all[] = {{{-kInfinity, -kInfinity, -kInfinity}, false, true},
                      {{kInfinity, 0, 0}, true, false},
                      {{kInfinity, kInfinity, 0}, true, false},
                      {{0, kNotANumber, 0}, true, false},
                      {{kNotANumber, kNotANumber, kNotANumber}, true, false},
                      {{0, -kInfinity, 0}, false, false}};
  const Tensor x = normal_tensor(DType::F32, {1, 3, 1, 4}, 1);
  for (const Case& c : all) {
    Tensor bias(DType::F32, {1, 1, 1, 3});
    for (Index j = 0; j < 3; ++j) set_element(bias.view(), 0, 0, 0, j, c.bias[j]);
    const Said said = forward({.bias = DenseBias{bias}}, {.q = x, .k = x, .v = x});
    for (const double value : elements(said.out.view()))
      EXPECT_EQ(std::isnan(value), c.nan) << c.bias[0] << " " << c.bias[1] << " " << c.bias[2];
    EXPECT_EQ(all_zero(said.out.view()), c.empty);
  }
}

TEST_P(KnownFaults, A41_MinusInfinityInK) {
  for (const Index head_dim : {4, 128}) {
    for (const Index length : {1, 8}) {
      const Tensor q = filled_tensor(DType::F32, {1, length, 4, head_dim}, 1);
      Tensor k = filled_tensor(DType::F32, {1, 8, 4, head_dim}, 1);
      for (Index h = 0; h < 4; ++h) {
        for (Index d = 0; d < head_dim; ++d) set_element(k.view(), 0, 0, h, d, -kInfinity);
      }
      const Tensor v = normal_tensor(DType::F32, {1, 8, 4, head_dim}, 2);
      const Said said = forward({.scale = 1.0F}, {.q = q, .k = k, .v = v});
      EXPECT_TRUE(all_finite(said.out.view()));
      EXPECT_TRUE(all_zero(said.weights.view().slice(3, 0, 1)));
    }
  }
}

TEST_P(KnownFaults, A43_A89_PaddedColumnsWeighExactlyNothing) {
  const Tensor x = normal_tensor(DType::F32, {1, 40, 2, 8}, 1);
  for (const double sentinel : {-1e30, -1e4, -200.0}) {
    Tensor bias(DType::F32, {1, 1, 1, 40});
    for (Index j = 20; j < 40; ++j) set_element(bias.view(), 0, 0, 0, j, sentinel);
    const Said said = forward({.bias = DenseBias{bias}}, {.q = x, .k = x, .v = x});
    EXPECT_TRUE(all_zero(said.weights.view().slice(3, 20, 40))) << sentinel;
  }
}

TEST_P(KnownFaults, A44_ReturnedWeightsAreBeforeDropout) {
  const Tensor x = normal_tensor(DType::F32, {4, 5, 5, 4}, 1);
  const std::vector<Index> lengths = {5, 3, 1, 0};
  const Said said = forward({.dropout = {0.1F, 3}}, {.q = x, .k = x, .v = x, .kv_lengths = lengths});
  for_each_position(said.lse.shape(), [&](Index b, Index h, Index q, Index) {
    double sum = 0;
    for (Index k = 0; k < 5; ++k) sum += element(said.weights.view(), b, h, q, k);
    EXPECT_NEAR(sum, b == 3 ? 0 : 1, 16 * unit_roundoff(DType::F32));
  });
}

TEST_P(KnownFaults, A47_QueryHeadHReadsKvHeadHOverGroup) {
  const Tensor q = normal_tensor(DType::F32, {1, 2, 9, 4}, 1);
  const Tensor k = normal_tensor(DType::F32, {1, 3, 3, 4}, 2);
  Tensor v(DType::F32, {1, 3, 3, 1});
  for_each_position(v.shape(),
                    [&](Index b, Index j, Index h, Index d) { set_element(v.view(), b, j, h, d, static_cast<double>(100 * h)); });
  const Said said = forward({}, {.q = q, .k = k, .v = v});
  for (Index h = 0; h < 9; ++h)
    EXPECT_NEAR(element(said.out.view(), 0, 1, h, 0), static_cast<double>(100 * (h / 3)), 200 * 16 * unit_roundoff(DType::F32));
}

TEST_P(KnownFaults, A63_NormaliserComesBeforeDropout) {
  const Tensor x = normal_tensor(DType::F32, {1, 64, 2, 4}, 1);
  const Dropout dropout = {0.6F, 11};
  const Said said = forward({.mask = causal(), .dropout = dropout}, {.q = x, .k = x, .v = x});
  EXPECT_TRUE(all_finite(said.out.view()));
  int all_dropped = 0;
  for (Index h = 0; h < 2; ++h) {  // row 0 sees one key: it is dropped, or scaled by 1 / (1 - p)
    const double factor = static_cast<double>(attention::dropout_factor(dropout, 0, h, 0, 0));
    for (Index d = 0; d < 4; ++d) {
      const double value = element(x.view(), 0, 0, h, d);
      EXPECT_NEAR(element(said.out.view(), 0, 0, h, d), factor * value, 8 * unit_roundoff(DType::F32) * std::abs(factor * value));
    }
  }
  for (std::uint64_t seed = 0; seed < 20; ++seed) all_dropped += attention::dropout_factor({0.6F, seed}, 0, 0, 0, 0) == 0 ? 1 : 0;
  EXPECT_GT(all_dropped, 0);
  const Said none = forward({.mask = causal(), .dropout = {1.0F, 1}}, {.q = x, .k = x, .v = x});
  EXPECT_TRUE(all_zero(none.out.view()));
}

TEST_P(KnownFaults, A64_DropoutIsTheSameForAnyThreads) {
  const Index length = current_isa() == "reference" ? 40 : 400;
  const Tensor x = normal_tensor(DType::F32, {1, length, 4, 8}, 1);
  const AttentionSpec spec = {.mask = causal(), .dropout = {0.3F, 5}};
  const Said serial = forward(spec, {.q = x, .k = x, .v = x});
  for (const int count : {2, 7}) {
    ThreadExecutor threads(count);
    Workspace workspace(threads.executor());
    Tensor out(DType::F32, {1, length, 4, 8});
    attention_forward(spec, {.q = x, .k = x, .v = x}, {.out = out}, workspace);
    EXPECT_TRUE(bitwise_equal(out.view(), serial.out.view()));
  }
}

TEST_P(KnownFaults, A68_OneQueryPerSampleInABatch) {
  const Tensor q = normal_tensor(DType::F32, {3, 1, 4, 16}, 1);
  const Tensor k = normal_tensor(DType::F32, {3, 50, 2, 16}, 2);
  const Tensor v = normal_tensor(DType::F32, {3, 50, 2, 16}, 3);
  const std::vector<Index> lengths = {50, 33, 1};
  const AttentionSpec spec = {.mask = causal(), .align = Align::BottomRight};
  const Said all = forward(spec, {.q = q, .k = k, .v = v, .kv_lengths = lengths});
  EXPECT_TRUE(all_finite(all.out.view()));
  for (Index b = 0; b < 3; ++b) {
    const Index length = lengths[static_cast<std::size_t>(b)];
    const Said one = forward(spec, {.q = q.view().slice(0, b, b + 1),
                                    .k = k.view().slice(0, b, b + 1).slice(1, 0, length),
                                    .v = v.view().slice(0, b, b + 1).slice(1, 0, length)});
    EXPECT_LE(relative_error(one.out.view(), all.out.view().slice(0, b, b + 1)), forward_tolerance(DType::F32));
  }
}

TEST_P(KnownFaults, A70_A86_ExplicitScaleIsUsedAsItIs) {
  const Tensor q = normal_tensor(DType::F32, {1, 6, 1, 16}, 1);
  const Tensor k = normal_tensor(DType::F32, {1, 6, 1, 16}, 2);
  Tensor scaled(DType::F32, {1, 6, 1, 16});
  for_each_position(
      q.shape(), [&](Index b, Index i, Index h, Index d) { set_element(scaled.view(), b, i, h, d, element(q.view(), b, i, h, d) * 0.25); });
  const Said by_default = forward({}, {.q = q, .k = k, .v = k});  // 1 / sqrt(16) = 0.25
  const Said by_caller = forward({.scale = 1.0F}, {.q = scaled, .k = k, .v = k});
  EXPECT_LE(relative_error(by_caller.out.view(), by_default.out.view()), forward_tolerance(DType::F32));
}

TEST_P(KnownFaults, A71_AbsentScaleAndScaleZero) {
  const Tensor q = tensor_of(DType::F32, {1, 3, 1, 2}, {.1, .2, .3, .4, .5, .6});
  const Tensor k = tensor_of(DType::F32, {1, 3, 1, 2}, {.7, .8, .9, 1.0, 1.1, 1.2});
  const Tensor v = tensor_of(DType::F32, {1, 3, 1, 2}, {1, 2, 3, 4, 5, 6});
  const Said by_default = forward({.mask = causal()}, {.q = q, .k = k, .v = v});
  // Recomputed in double from the report's inputs; its own third row, 3.206577, is off by 9e-6.
  const Tensor expected = tensor_of(DType::F32, {1, 3, 1, 2}, {1, 2, 2.049457091, 3.049457091, 3.206585766, 4.206585766});
  EXPECT_LE(max_difference(by_default.out.view(), expected.view()), 4 * forward_tolerance(DType::F32));
  const Said zero = forward({.mask = causal(), .scale = 0.0F}, {.q = q, .k = k, .v = v});
  const Tensor means = tensor_of(DType::F32, {1, 3, 1, 2}, {1, 2, 2, 3, 3, 4});
  EXPECT_LE(max_difference(zero.out.view(), means.view()), 4 * forward_tolerance(DType::F32));
}

TEST_P(KnownFaults, A72_A73_RunToRun) {
  const Index length = current_isa() == "reference" ? 40 : 500;
  const Tensor x = normal_tensor(DType::F32, {1, length, 4, 16}, 1);
  Workspace workspace;
  Tensor first(DType::F32, x.shape());
  attention_forward({.mask = causal()}, {.q = x, .k = x, .v = x}, {.out = first}, workspace);
  for (int run = 0; run < 5; ++run) {
    Tensor again(DType::F32, x.shape());
    attention_forward({.mask = causal()}, {.q = x, .k = x, .v = x}, {.out = again}, workspace);
    ASSERT_TRUE(bitwise_equal(again.view(), first.view())) << run;
  }
}

TEST_P(KnownFaults, A79_KeysExpandedOverTheBatch) {
  const Tensor q = normal_tensor(DType::Bf16, {3, 5, 4, 16}, 1);
  const Tensor k = normal_tensor(DType::Bf16, {1, 65, 2, 16}, 2);
  const Tensor v = normal_tensor(DType::Bf16, {1, 65, 2, 16}, 3);
  const Tensor bias = normal_tensor(DType::F32, {3, 1, 5, 65}, 4);
  const auto expanded = [](ConstTensorView view) {
    view.shape[0] = 3;
    view.strides[0] = 0;
    return view;
  };
  const ConstTensorView wide_k = expanded(k.view());
  const ConstTensorView wide_v = expanded(v.view());
  const Tensor own_k = dense(wide_k);
  const Tensor own_v = dense(wide_v);
  const AttentionSpec spec = {.bias = DenseBias{bias}};
  EXPECT_TRUE(same_said(forward(spec, {.q = q, .k = wide_k, .v = wide_v}), forward(spec, {.q = q, .k = own_k, .v = own_v})));
}

TEST_P(KnownFaults, A87_AGrowingBatchMateChangesNoBit) {
  const Index keys = current_isa() == "reference" ? 300 : 4000;
  const Tensor q = normal_tensor(DType::F32, {2, 9, 2, 16}, 1);
  const Tensor k = normal_tensor(DType::F32, {2, keys, 1, 16}, 2);
  const AttentionSpec spec = {.mask = causal(), .align = Align::BottomRight};
  const auto row_a = [&](Index mate) {
    const std::vector<Index> lengths = {keys, mate};
    return forward(spec, {.q = q, .k = k, .v = k, .kv_lengths = lengths});
  };
  const Said nine = row_a(9);
  const Said ten = row_a(10);
  EXPECT_TRUE(bitwise_equal(nine.out.view().slice(0, 0, 1), ten.out.view().slice(0, 0, 1)));
  EXPECT_FALSE(bitwise_equal(nine.out.view().slice(0, 1, 2), ten.out.view().slice(0, 1, 2)));
}

}  // namespace
}  // namespace mha::test
