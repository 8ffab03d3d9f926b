// attention_forward against the double reference: every case of cases.h and random problems, under every ISA.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/cases.h"
#include "support/gen.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class ForwardTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, ForwardTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(ForwardTest, AgreesWithTheOracleOnEveryCase) {
  for (const Problem& problem : cases()) {
    const Instance instance(problem);
    EXPECT_EQ(mismatch(instance, run(instance)), "") << problem;
  }
}

/// Worst cases aside, the whole output is within a few roundings: the project's figure for f32 is 2e-6.
TEST_P(ForwardTest, RelativeErrorOfWholeOutputs) {
  for (const Problem& problem : cases()) {
    if (problem.scale && *problem.scale > 1) continue;  // scores beyond what forward_tolerance speaks of
    const Instance instance(problem);
    const Results got = run(instance, {.lse = false, .weights = false});
    EXPECT_LE(relative_error(got.out(), oracle(instance).out()), forward_tolerance(problem.dtype)) << problem;
  }
}

/// Long sums are taken in parts, so that the error does not grow with the number of keys: of few rows and of many, one task or several.
TEST_P(ForwardTest, RelativeErrorOfLongRows) {
  if (current_isa() == "reference") GTEST_SKIP() << "the reference sums in double";
  const Problem few = {.batch = 1, .q_len = 1, .kv_len = 60'000, .kv_heads = 1, .group = 2, .head_dim = 16, .value_dim = 16};
  const Problem many = {.batch = 1, .q_len = 400, .kv_len = 16'000, .kv_heads = 1, .head_dim = 4, .value_dim = 3};
  Problem windowed = many;
  windowed.mask = window(9000, 0, 3);
  windowed.align = Align::BottomRight;
  windowed.first_sink = 1.0F;
  windowed.dtype = DType::Bf16;
  for (const Problem& problem : {few, many, windowed}) {
    const Instance instance(problem);
    const Results got = run(instance, {.lse = false, .weights = false});
    EXPECT_LE(relative_error(got.out(), oracle(instance, {.lse = false, .weights = false}).out()), forward_tolerance(problem.dtype))
        << problem;
  }
}

TEST_P(ForwardTest, AgreesWithTheOracleOnRandomProblems) {
  check("f32 under " + GetParam(), [] {
    const Problem problem = *gen::problem({DType::F32});
    const Instance instance(problem);
    RC_ASSERT(mismatch(instance, run(instance)) == "");
  });
  check("16-bit storage under " + GetParam(), [] {
    const Problem problem = *gen::problem({DType::Bf16, DType::F16});
    const Instance instance(problem);
    RC_ASSERT(mismatch(instance, run(instance)) == "");
  });
}

/// Outputs that were not asked for change nothing about those that were.
TEST_P(ForwardTest, WhatIsAskedForDoesNotChangeOut) {
  for (const Mask& mask : {Mask{}, causal(), window(9, 0, 2)}) {
    const Instance instance({.q_len = 67, .kv_len = 67, .group = 3, .head_dim = 17, .value_dim = 33, .mask = mask});
    const Results all = run(instance);
    const Results none = run(instance, {.lse = false, .weights = false});
    const Results lse = run(instance, {.lse = true, .weights = false});
    EXPECT_TRUE(bitwise_equal(all.out(), none.out()));
    EXPECT_TRUE(bitwise_equal(all.lse(), lse.lse()));
  }
}

/// The reference is exact to double precision for f64, whatever the ISA.
TEST(ForwardF64Test, KnownSoftmax) {
  Tensor q(DType::F64, {1, 1, 1, 1});
  Tensor k(DType::F64, {1, 3, 1, 1});
  Tensor v(DType::F64, {1, 3, 1, 1});
  Tensor out(DType::F64, {1, 1, 1, 1});
  Tensor lse(DType::F64, {1, 1, 1});
  q.data<double>()[0] = 1;
  for (Index i = 0; i < 3; ++i) {
    k.data<double>()[i] = std::log(static_cast<double>(i + 1));  // weights 1/6, 2/6, 3/6
    v.data<double>()[i] = static_cast<double>(10 * i);
  }
  Workspace workspace(serial_executor());
  attention_forward({}, {.q = q, .k = k, .v = v}, {.out = out, .lse = lse}, workspace);
  EXPECT_NEAR(out.data<double>()[0], (0 * 1 + 10 * 2 + 20 * 3) / 6.0, 40 * unit_roundoff(DType::F64));
  EXPECT_NEAR(lse.data<double>()[0], std::log(6.0), 4 * unit_roundoff(DType::F64));
}

/// One output row of an f64 problem in long double, from the definition and by an order of its own: softmax over all keys at once, no
/// maximum taken off.
std::vector<long double> exact_row(Instance& instance, Index b, Index h, Index q) {
  const Problem& p = instance.problem();
  const AttentionSpec spec = instance.spec();
  const Index keys = p.kv_lengths.empty() ? p.kv_len : p.kv_lengths[static_cast<std::size_t>(b)];
  const MaskContext context{p.q_len, keys, p.align == Align::BottomRight ? keys - p.q_len : 0};
  long double sum = spec.sink_logits.empty() ? 0 : std::exp(static_cast<long double>(spec.sink_logits[static_cast<std::size_t>(h)]));
  std::vector<long double> row(static_cast<std::size_t>(p.value_dim), 0);
  for (Index key = keys - 1; key >= 0; --key) {
    if (!p.mask.sees(q, key, context)) continue;
    if (p.allowed.present && element(instance.allowed(), b, h, q, key) == 0) continue;
    long double score = 0;
    for (Index d = p.head_dim - 1; d >= 0; --d)
      score += static_cast<long double>(element(instance.q(), b, q, h, d)) * element(instance.k(), b, key, h / p.group, d);
    score *= spec.scale ? static_cast<long double>(*spec.scale) : 1 / std::sqrt(static_cast<long double>(p.head_dim));
    if (spec.softcap) score = *spec.softcap * std::tanh(score / *spec.softcap);
    if (p.bias.has_tensor()) score += element(instance.bias(), b, h, q, key);
    const long double share = std::exp(score);
    sum += share;
    for (Index d = 0; d < p.value_dim; ++d) row[static_cast<std::size_t>(d)] += share * element(instance.v(), b, key, h / p.group, d);
  }
  for (long double& value : row) value = sum == 0 ? 0 : value / sum;
  return row;
}

/// Every rule in f64, to f64's own bound: nothing on the way is f32.
TEST(ForwardF64Test, AgreesWithLongDouble) {
  const Problem base = {
      .q_len = 9, .kv_len = 23, .group = 3, .head_dim = 7, .value_dim = 5, .dtype = DType::F64, .align = Align::BottomRight};
  std::vector<Problem> list(7, base);
  list[0].mask = causal();
  list[1].mask = window(5, 2, 1);
  list[1].softcap = 2.0F;
  list[2].bias = {BiasData::Content::Finite, {}, DType::F64};
  list[3].first_sink = 0.5F;
  list[4].allowed = {true, {}, 0.4};
  list[5].kv_lengths = {4, 0};
  list[6].scale = 0.3;  // no f32
  list[6].softcap = 1.1;
  for (const Problem& p : list) {
    Instance instance(p);
    const Results got = run(instance);
    // Standard normal numbers: 7 products of at most 4 * 4, scaled, and a bias of at most 4; values of at most 4.
    const double tolerance = 4 * element_tolerance(p.head_dim, p.kv_len, 16 * std::sqrt(7.0) + 4, DType::F64);
    for_each_position(Dims{p.batch, p.heads(), p.q_len}, [&](Index b, Index h, Index q, Index) {
      const std::vector<long double> expected = exact_row(instance, b, h, q);
      for (Index d = 0; d < p.value_dim; ++d)
        ASSERT_NEAR(element(got.out(), b, q, h, d), static_cast<double>(expected[static_cast<std::size_t>(d)]), tolerance) << p;
    });
  }
}

}  // namespace
}  // namespace mha::test
