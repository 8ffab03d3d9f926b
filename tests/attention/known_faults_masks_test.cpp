// Faults that other implementations had with masks: fully masked rows, broadcasting, polarity, alignment, windows. One test per line of the
// project's list of known faults, named after it.
#include <gtest/gtest.h>

#include <cfloat>

#include "attention/known_faults.h"
#include "mha/error.h"
#include "support/errors.h"

namespace mha::test {
namespace {

class KnownFaultsMasks : public KnownFaults {};
INSTANTIATE_TEST_SUITE_P(Isa, KnownFaultsMasks, testing::ValuesIn(all_isas()), isa_name);

TEST_P(KnownFaultsMasks, A1_FullyMaskedRowIsZero) {
  const Tensor q = normal_tensor(DType::F32, {1, 6, 2, 8}, 1);
  const Tensor k = normal_tensor(DType::F32, {1, 10, 2, 8}, 2);
  const Tensor v = normal_tensor(DType::F32, {1, 10, 2, 8}, 3);
  Tensor allowed(DType::Bool, {1, 1, 6, 10});
  for (Index i = 0; i < 5; ++i) {
    for (Index j = 0; j <= i; ++j) set_element(allowed.view(), 0, 0, i, j, 1);
  }
  const AttentionSpec spec = {.scale = 0.125F};
  const Said all = forward(spec, {.q = q, .k = k, .v = v, .allowed = allowed});
  const Said five = forward(spec, {.q = q.view().slice(1, 0, 5), .k = k, .v = v, .allowed = allowed.view().slice(2, 0, 5)});
  EXPECT_TRUE(all_zero(out_rows(all, 5, 6)));
  EXPECT_TRUE(all_zero(all.weights.view().slice(2, 5, 6)));
  EXPECT_EQ(element(all.lse.view(), 0, 1, 5), -kInfinity);
  EXPECT_LE(relative_error(out_rows(all, 0, 5), five.out.view()), forward_tolerance(DType::F32));
}

TEST_P(KnownFaultsMasks, A2_WholeTilesMaskedForLateRows) {
  const Index n = current_isa() == "reference" ? 200 : 640;
  const Tensor x = normal_tensor(DType::F32, {1, n, 1, 4}, 1);
  Tensor bias(DType::F32, {1, 1, n, n});
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) set_element(bias.view(), 0, 0, i, j, j > i || j <= i - 10 ? -kInfinity : 0);
  }
  const Said biased = forward({.bias = DenseBias{bias}}, {.q = x, .k = x, .v = x});
  const Said windowed = forward({.mask = window(9)}, {.q = x, .k = x, .v = x});
  EXPECT_TRUE(all_finite(biased.out.view()));
  EXPECT_LE(relative_error(biased.out.view(), windowed.out.view()), forward_tolerance(DType::F32));
  EXPECT_LE(max_difference(biased.lse.view(), windowed.lse.view()), element_tolerance(4, 10, 20, DType::F32));
}

TEST_P(KnownFaultsMasks, A3_BatchEntryWithoutAnyKey) {
  const Tensor q = normal_tensor(DType::F32, {2, 3, 2, 8}, 1);
  const Tensor k = normal_tensor(DType::F32, {2, 4, 2, 8}, 2);
  const Tensor v = normal_tensor(DType::F32, {2, 4, 2, 8}, 3);
  const Tensor allowed = bools({2, 1, 1, 4}, {1, 1, 1, 1, 0, 0, 0, 0});
  const std::vector<Index> lengths = {4, 0};
  for (const Said& said :
       {forward({}, {.q = q, .k = k, .v = v, .allowed = allowed}), forward({}, {.q = q, .k = k, .v = v, .kv_lengths = lengths})}) {
    EXPECT_TRUE(all_zero(said.out.view().slice(0, 1, 2)));
    EXPECT_TRUE(all_zero(said.weights.view().slice(0, 1, 2)));
    EXPECT_FALSE(all_zero(said.out.view().slice(0, 0, 1)));
  }
}

TEST_P(KnownFaultsMasks, A4_LeftPaddingWithCausal) {
  const Tensor x = normal_tensor(DType::F32, {1, 12, 2, 8}, 1);
  Tensor allowed(DType::Bool, {1, 1, 1, 12});
  for (Index j = 5; j < 12; ++j) set_element(allowed.view(), 0, 0, 0, j, 1);
  const Said padded = forward({.mask = causal()}, {.q = x, .k = x, .v = x, .allowed = allowed});
  const ConstTensorView real = x.view().slice(1, 5, 12);
  const Said alone = forward({.mask = causal()}, {.q = real, .k = real, .v = real});
  EXPECT_TRUE(all_zero(out_rows(padded, 0, 5)));
  EXPECT_LE(relative_error(out_rows(padded, 5, 12), alone.out.view()), forward_tolerance(DType::F32));
}

TEST_P(KnownFaultsMasks, A5_CausalAndPaddingIntersect) {
  const Tensor x = normal_tensor(DType::F32, {1, 5, 1, 4}, 1);
  const Tensor allowed = bools({1, 1, 1, 5}, {0, 0, 0, 1, 1});
  const Said said = forward({.mask = causal()}, {.q = x, .k = x, .v = x, .allowed = allowed});
  EXPECT_TRUE(all_zero(out_rows(said, 0, 3)));
  EXPECT_LE(max_difference(out_rows(said, 3, 4), x.view().slice(1, 3, 4)), 4 * unit_roundoff(DType::F32) * 4) << "one live key: its value";
  EXPECT_TRUE(all_finite(said.out.view()));
}

TEST_P(KnownFaultsMasks, A6_FiniteSentinelInsteadOfMinusInfinity) {
  const Tensor q = tensor_of(DType::F32, {1, 2, 1, 1}, {-20000, 0});
  const Tensor k = tensor_of(DType::F32, {1, 2, 1, 1}, {1, 0});
  const Tensor v = tensor_of(DType::F32, {1, 2, 1, 1}, {1, 100});
  const Tensor allowed = bools({1, 1, 1, 2}, {1, 0});
  const Said said = forward({.scale = 1.0F}, {.q = q, .k = k, .v = v, .allowed = allowed});
  EXPECT_NEAR(element(said.out.view(), 0, 0), 1.0, 4 * unit_roundoff(DType::F32));
}

TEST_P(KnownFaultsMasks, A7_MaskedF64HasNoInfinity) {
  const Tensor x = normal_tensor(DType::F64, {1, 6, 1, 4}, 1);
  const Said said = forward({.mask = causal()}, {.q = x, .k = x, .v = x});
  EXPECT_TRUE(all_finite(said.out.view()));
  EXPECT_TRUE(all_finite(said.lse.view()));
  EXPECT_EQ(element(said.weights.view(), 0, 0, 0, 1), 0);
}

TEST_P(KnownFaultsMasks, A8_RowOfLowestFloatsIsNotEmpty) {
  const Tensor x = normal_tensor(DType::F32, {1, 4, 1, 8}, 1);
  Tensor bias(DType::F32, {1, 1, 4, 4});
  for (Index j = 0; j < 4; ++j) set_element(bias.view(), 0, 0, 2, j, -static_cast<double>(FLT_MAX));
  const Said said = forward({.bias = DenseBias{bias}}, {.q = x, .k = x, .v = x});
  EXPECT_TRUE(all_finite(said.out.view()));
  for (Index j = 0; j < 4; ++j) EXPECT_NEAR(element(said.weights.view(), 0, 0, 2, j), 0.25, 4 * unit_roundoff(DType::F32));
}

/// Padding and a table together leave a row nothing, though neither does alone.
TEST_P(KnownFaultsMasks, A9_RowWithoutKeysByTwoMasks) {
  const Tensor x = normal_tensor(DType::F32, {2, 3, 1, 1}, 1);
  const Tensor padding = bools({2, 1, 1, 3}, {1, 1, 1, 1, 0, 0});
  const Tensor table = tensor_of(DType::F32, {1, 1, 3, 3}, {0, -kInfinity, -kInfinity, 0, 0, -kInfinity, -kInfinity, 0, 0});
  const Said said = forward({.bias = DenseBias{table}}, {.q = x, .k = x, .v = x, .allowed = padding});
  EXPECT_TRUE(all_finite(said.out.view()));
  EXPECT_TRUE(all_zero(said.out.view().slice(0, 1, 2).slice(1, 2, 3)));
  EXPECT_TRUE(all_zero(said.weights.view().slice(0, 1, 2).slice(2, 2, 3)));
  for (Index i = 0; i < 2; ++i) EXPECT_NEAR(element(said.weights.view(), 1, 0, i, 0), 1, 4 * unit_roundoff(DType::F32));
}

TEST_P(KnownFaultsMasks, A10_FullyMaskedHeadWithWeights) {
  const Tensor x = normal_tensor(DType::F32, {1, 5, 3, 1}, 1);
  Tensor allowed = filled_tensor(DType::Bool, {1, 3, 5, 5}, 1);
  for (Index i = 0; i < 5; ++i) {
    for (Index j = 0; j < 5; ++j) set_element(allowed.view(), 0, 2, i, j, 0);
  }
  const AttentionInputs in = {.q = x, .k = x, .v = x, .allowed = allowed};
  const Said with = forward({}, in);
  Tensor out(DType::F32, {1, 5, 3, 1});
  Workspace workspace(serial_executor());
  attention_forward({}, in, {.out = out}, workspace);
  EXPECT_TRUE(bitwise_equal(out.view(), with.out.view()));
  EXPECT_TRUE(all_zero(with.weights.view().slice(1, 2, 3)));
  EXPECT_TRUE(all_zero(with.out.view().slice(2, 2, 3)));
}

/// A mask of fewer axes gives the same bits as the same mask written out.
TEST_P(KnownFaultsMasks, A11_A80_BroadcastMasksEqualExpandedOnes) {
  const Tensor x = normal_tensor(DType::F32, {2, 8, 4, 64}, 1);
  Tensor bias(DType::F32, {2, 1, 8, 8});
  for (Index i = 4; i < 8; ++i) {
    for (Index j = 0; j < 4; ++j) set_element(bias.view(), 0, 0, i, j, -kInfinity);
  }
  ConstTensorView expanded = bias.view();
  expanded.shape[1] = 4;
  expanded.strides[1] = 0;
  Tensor written(DType::F32, {2, 4, 8, 8});
  copy(expanded, written);
  const AttentionInputs in = {.q = x, .k = x, .v = x};
  const Said expected = forward({.bias = DenseBias{written}}, in);
  EXPECT_TRUE(same_said(forward({.bias = DenseBias{bias}}, in), expected));
  EXPECT_TRUE(same_said(forward({.bias = DenseBias{expanded}}, in), expected));

  const Tensor keys = bools({2, 1, 1, 8}, {1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0});
  ConstTensorView wide = keys.view();
  wide.shape = {2, 4, 8, 8};
  wide.strides = {8, 0, 0, 1};
  Tensor full(DType::Bool, {2, 4, 8, 8});
  copy(wide, full);
  EXPECT_TRUE(same_said(forward({}, {.q = x, .k = x, .v = x, .allowed = keys}), forward({}, {.q = x, .k = x, .v = x, .allowed = full})));
}

TEST_P(KnownFaultsMasks, A15_A16_MasksOfTheWrongShapeAreRefused) {
  const Tensor q = normal_tensor(DType::F32, {2, 4, 8, 8}, 1);
  const Tensor k = normal_tensor(DType::F32, {2, 6, 2, 8}, 2);
  const Tensor three = filled_tensor(DType::Bool, {2, 4, 6}, 1);
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { forward({}, {.q = q, .k = k, .v = k, .allowed = three}); }), "allowed", "[2, 4, 6]"));
  const Tensor too_short = filled_tensor(DType::Bool, {2, 8, 4, 4}, 1);
  EXPECT_TRUE(
      mentions(text_of<ShapeError>([&] { forward({}, {.q = q, .k = k, .v = k, .allowed = too_short}); }), "[2, 8, 4, 4]", "[2, 8, 4, 6]"));
}

TEST_P(KnownFaultsMasks, A17_TrueMeansMayAttend) {
  const Tensor q = filled_tensor(DType::F32, {1, 1, 1, 2}, 0);
  const Tensor v = tensor_of(DType::F32, {1, 2, 1, 2}, {1, 2, 30, 40});
  const Said said = forward({}, {.q = q, .k = v, .v = v, .allowed = bools({1, 1, 1, 2}, {1, 0})});
  EXPECT_NEAR(element(said.out.view(), 0, 0, 0, 0), 1, 4 * unit_roundoff(DType::F32));
}

TEST_P(KnownFaultsMasks, A18_FloatMasksOfZeroAndOneAreAdded) {
  const Tensor ones = filled_tensor(DType::F32, {1, 8, 2, 3}, 1);
  Tensor bias(DType::F32, {1, 1, 8, 8});
  for (Index i = 0; i < 8; ++i) {
    for (Index j = 0; j <= i; ++j) set_element(bias.view(), 0, 0, i, j, 1);
  }
  const Said said = forward({.bias = DenseBias{bias}}, {.q = ones, .k = ones, .v = ones});
  const double e = std::exp(1.0);
  EXPECT_NEAR(element(said.weights.view(), 0, 0, 0, 0), e / (e + 7), 16 * unit_roundoff(DType::F32));
  EXPECT_NEAR(element(said.weights.view(), 0, 0, 0, 5), 1 / (e + 7), 16 * unit_roundoff(DType::F32)) << "nothing is hidden";
}

TEST_P(KnownFaultsMasks, A19_A81_FloatPaddingOfMinusInfinityEqualsBooleanPadding) {
  const Tensor x = normal_tensor(DType::F32, {2, 9, 2, 8}, 1);
  Tensor allowed = filled_tensor(DType::Bool, {2, 1, 1, 9}, 1);
  Tensor bias(DType::F32, {2, 1, 1, 9});
  for (Index j = 4; j < 9; ++j) {
    set_element(allowed.view(), 1, 0, 0, j, 0);
    set_element(bias.view(), 1, 0, 0, j, -kInfinity);
  }
  const Said by_bool = forward({.mask = causal()}, {.q = x, .k = x, .v = x, .allowed = allowed});
  const Said by_float = forward({.mask = causal(), .bias = DenseBias{bias}}, {.q = x, .k = x, .v = x});
  EXPECT_LE(relative_error(by_float.out.view(), by_bool.out.view()), forward_tolerance(DType::F32));
  EXPECT_TRUE(all_zero(by_float.weights.view().slice(0, 1, 2).slice(3, 4, 9)));
}

TEST_P(KnownFaultsMasks, A20_CausalWithOneQuery) {
  const Tensor q = normal_tensor(DType::F32, {1, 1, 1, 4}, 1);
  const Tensor k = normal_tensor(DType::F32, {1, 8, 1, 4}, 2);
  const AttentionInputs in = {.q = q, .k = k, .v = k};
  EXPECT_THROW(forward({.mask = causal()}, in), ShapeError) << "never guessed";
  const Said top = forward({.mask = causal(), .align = Align::TopLeft}, in);
  const Said bottom = forward({.mask = causal(), .align = Align::BottomRight}, in);
  for (Index j = 0; j < 8; ++j) {
    EXPECT_EQ(element(top.weights.view(), 0, 0, 0, j) > 0, j == 0);
    EXPECT_GT(element(bottom.weights.view(), 0, 0, 0, j), 0);
  }
}

TEST_P(KnownFaultsMasks, A21_OneRuleWhicheverIsLonger) {
  const auto pattern = [](Index q_len, Index kv_len) {
    const Tensor q = normal_tensor(DType::F32, {1, q_len, 1, 4}, 1);
    const Tensor k = normal_tensor(DType::F32, {1, kv_len, 1, 4}, 2);
    const Said said = forward({.mask = causal(), .align = Align::BottomRight}, {.q = q, .k = k, .v = k});
    std::string text;
    for (Index i = 0; i < q_len; ++i) {
      for (Index j = 0; j < kv_len; ++j) text += element(said.weights.view(), 0, 0, i, j) > 0 ? '1' : '0';
      text += ' ';
    }
    return text;
  };
  EXPECT_EQ(pattern(2, 5), "11110 11111 ");
  EXPECT_EQ(pattern(5, 2), "00 00 00 10 11 ");
}

TEST_P(KnownFaultsMasks, A22_CausalMoreQueriesThanKeys) {
  const Tensor q = normal_tensor(DType::F32, {1, 5, 2, 8}, 1);
  const Tensor k = normal_tensor(DType::F32, {1, 2, 2, 8}, 2);
  const Said said = forward({.mask = causal(), .align = Align::BottomRight}, {.q = q, .k = k, .v = k});
  EXPECT_TRUE(all_zero(out_rows(said, 0, 3)));
  for (Index i = 0; i < 5; ++i) EXPECT_EQ(element(said.lse.view(), 0, 1, i) == -kInfinity, i < 3);
}

TEST_P(KnownFaultsMasks, A24_CausalHoldsOnEveryPath) {
  const Tensor x = normal_tensor(DType::F32, {1, 40, 2, 8}, 1);
  const Tensor bias = normal_tensor(DType::F32, {1, 1, 40, 40}, 2);
  const Tensor allowed = filled_tensor(DType::Bool, {1, 1, 1, 40}, 1);
  const std::vector<Index> lengths = {40};
  const AttentionSpec specs[] = {{.mask = causal()}, {.mask = causal(), .dropout = {0.3F, 1}}, {.mask = causal(), .bias = DenseBias{bias}}};
  for (const AttentionSpec& spec : specs) {
    for (const bool dense : {false, true}) {
      AttentionInputs in = {.q = x, .k = x, .v = x, .kv_lengths = lengths};
      if (dense) in.allowed = allowed;
      const Said said = forward(spec, in);
      for (Index i = 0; i < 40; ++i) {
        for (Index j = i + 1; j < 40; ++j) ASSERT_EQ(element(said.weights.view(), 0, 1, i, j), 0);
      }
    }
  }
}

TEST_P(KnownFaultsMasks, A49_WindowCountsTheTokenItself) {
  constexpr Index kWindow = 20;
  const Tensor x = filled_tensor(DType::F32, {1, 50, 1, 4}, 1);
  const Said said = forward({.mask = causal() & window(kWindow - 1)}, {.q = x, .k = x, .v = x});
  for (Index i = 0; i < 50; ++i) {
    Index seen = 0;
    for (Index j = 0; j < 50; ++j) seen += element(said.weights.view(), 0, 0, i, j) > 0 ? 1 : 0;
    EXPECT_EQ(seen, std::min(i + 1, kWindow));
  }
}

TEST_P(KnownFaultsMasks, A77_MaskOfAnotherFloatingDtype) {
  const Tensor x = normal_tensor(DType::Bf16, {1, 9, 2, 8}, 1);
  const Tensor wide = normal_tensor(DType::F32, {1, 1, 9, 9}, 2);
  Tensor rounded(DType::Bf16, {1, 1, 9, 9});
  copy(wide.view(), rounded);
  Tensor back(DType::F32, {1, 1, 9, 9});
  copy(rounded.view(), back);
  const AttentionInputs in = {.q = x, .k = x, .v = x};
  EXPECT_TRUE(same_said(forward({.bias = DenseBias{rounded}}, in), forward({.bias = DenseBias{back}}, in)));
  EXPECT_FALSE(same_said(forward({.bias = DenseBias{wide}}, in), forward({.bias = DenseBias{back}}, in))) << "an f32 bias is added in f32";
}

TEST_P(KnownFaultsMasks, A83_KeysOfAnotherLayoutAreRefused) {
  const Tensor q = normal_tensor(DType::F32, {6, 20, 1, 4}, 1);
  const Tensor k = normal_tensor(DType::F32, {20, 6, 1, 4}, 2);
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { forward({}, {.q = q, .k = k, .v = k}); }), "k", "20", "6"));
}

}  // namespace
}  // namespace mha::test
