// attention_forward against the double reference: every case of cases.h and random problems, under every ISA.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace mha::test
