// What the determinism tests share: problems big enough to be spread, and equality of everything a call says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "attention/plan.h"
#include "mha/cpu.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {

/// Big enough for several tasks and for work to leave the caller (about 10 to 40 million operations).
inline std::vector<Problem> determinism_problems() {
  std::vector<Problem> list;
  for (const DType dtype : {DType::F32, DType::Bf16}) {
    list.push_back({.batch = 2, .q_len = 300, .kv_len = 300, .kv_heads = 2, .group = 2, .head_dim = 24, .value_dim = 24, .dtype = dtype});
    list.push_back({.batch = 2,
                    .q_len = 401,
                    .kv_len = 401,
                    .kv_heads = 2,
                    .group = 1,
                    .head_dim = 24,
                    .value_dim = 17,
                    .dtype = dtype,
                    .mask = causal() & window(150, 0, 4),
                    .dropout = {0.1F, 7}});
    list.push_back({.batch = 3,
                    .q_len = 3,
                    .kv_len = 2000,
                    .kv_heads = 4,
                    .group = 5,
                    .head_dim = 32,
                    .value_dim = 32,
                    .dtype = dtype,
                    .mask = causal(),
                    .align = Align::BottomRight,
                    .kv_lengths = {2000, 1234, 77}});
  }
  for (Problem& problem : list) {
    if (current_isa() == "reference") {  // too slow for these sizes; it is serial anyway
      problem.q_len = std::min<Index>(problem.q_len, 20);
      problem.kv_len = problem.kv_lengths.empty() ? problem.q_len : problem.kv_len;
    }
  }
  return list;
}

/// How a problem is cut under the ISA in use; the reference cuts nothing.
inline attention::Plan plan_of(const Instance& instance) {
  if (kernels::current() == nullptr) return {};
  const AttentionSpec spec = instance.spec();
  const AttentionInputs inputs = instance.inputs();
  return attention::make_plan(attention::lower(spec, inputs, {.out = {}, .lse = {}, .weights = {}}), *kernels::current());
}

inline void expect_same(const Results& a, const Results& b, const Problem& problem) {
  EXPECT_TRUE(bitwise_equal(a.out(), b.out())) << problem;
  EXPECT_TRUE(bitwise_equal(a.lse(), b.lse())) << problem;
  EXPECT_TRUE(bitwise_equal(a.weights(), b.weights())) << problem;
}

}  // namespace mha::test
