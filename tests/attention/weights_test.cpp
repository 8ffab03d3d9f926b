// attention_weights: any rectangle of the table that attention_forward gives whole, under every ISA; lse as the one thing it needs.
#include <gtest/gtest.h>

#include <cmath>

#include "support/cases.h"
#include "support/gen.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class WeightsTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, WeightsTest, testing::ValuesIn(all_isas()), isa_name);

/// Relative error of exp(score - lse): the score's and the lse's own, as in element_tolerance, and |lse| roundings more.
double tolerance(const Instance& instance, double lse) {
  const Problem& p = instance.problem();
  const double scale = p.scale ? std::abs(static_cast<double>(*p.scale)) : 1 / std::sqrt(static_cast<double>(p.head_dim));
  const double scores = 6 + scale * 16 * static_cast<double>(p.head_dim);  // |q| and |k| stay below 4 per element, bias below 6
  return 2 * element_tolerance(p.head_dim, p.kv_len, scores, DType::F32) + 4 * std::abs(lse) * unit_roundoff(DType::F32);
}

std::string wrong_region(const Instance& instance, const WeightsRegion& region) {
  const Results whole = run(instance);
  Tensor table(DType::F32, {region.queries.hi - region.queries.lo, region.keys.hi - region.keys.lo});
  fill(table.view(), kMark);
  AttentionInputs inputs = instance.inputs();
  inputs.v = {};
  Workspace workspace(serial_executor());
  attention_weights(instance.spec(), inputs, whole.lse(), region, table, workspace);
  std::string wrong;
  for_each_position(table.shape(), [&](Index q, Index k, Index, Index) {
    const Index query = region.queries.lo + q;
    const double expected = element(whole.weights(), region.batch, region.head, query, region.keys.lo + k);
    const double got = element(table.view(), q, k);
    const double lse = element(whole.lse(), region.batch, region.head, query);
    if (std::abs(got - expected) <= (std::isfinite(lse) ? tolerance(instance, lse) * expected + std::ldexp(1.0, -125) : 0)) return;
    wrong = "query " + std::to_string(query) + " key " + std::to_string(region.keys.lo + k) + ": " + std::to_string(got) + " for " +
            std::to_string(expected);
  });
  return wrong;
}

TEST_P(WeightsTest, TheWholeTableOfEveryCase) {
  for (const Problem& problem : cases()) {
    if (problem.dtype == DType::F64) continue;  // refused
    const Instance instance(problem);
    const WeightsRegion all = {
        .batch = problem.batch - 1, .head = problem.heads() - 1, .queries = {0, problem.q_len}, .keys = {0, problem.kv_len}};
    EXPECT_EQ(wrong_region(instance, all), "") << problem;
  }
}

TEST_P(WeightsTest, RandomRectangles) {
  check("any rectangle equals the same part of the weights output, under " + GetParam(), [] {
    const Problem p = *gen::problem({DType::F32, DType::Bf16, DType::F16});
    const Instance instance(p);
    const WeightsRegion region = gen::region(p);
    RC_ASSERT(wrong_region(instance, region) == "");
  });
}

TEST_P(WeightsTest, WritesAStridedView) {
  const Instance instance({.q_len = 9, .kv_len = 21, .mask = causal(), .align = Align::BottomRight});
  const Results whole = run(instance);
  Tensor storage(DType::F32, {30, 12});  // [keys, queries]: transposed, with gaps
  fill(storage.view(), kMark);
  const TensorView target(storage.data<float>(), DType::F32, {5, 13}, {2, 24});
  Workspace workspace(serial_executor());
  attention_weights(instance.spec(), instance.inputs(), whole.lse(), {.batch = 1, .head = 1, .queries = {3, 8}, .keys = {6, 19}}, target,
                    workspace);
  Index written = 0;
  for (const double value : elements(storage.view())) written += value == static_cast<double>(kMark) ? 0 : 1;
  EXPECT_EQ(written, 5 * 13);
  for_each_position(target.shape, [&](Index q, Index k, Index, Index) {
    const double expected = element(whole.weights(), 1, 1, q + 3, k + 6);
    EXPECT_LE(std::abs(element(target, q, k) - expected), tolerance(instance, 4) * expected);
  });
}

}  // namespace
}  // namespace mha::test
