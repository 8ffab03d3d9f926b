// No read or write outside a view: every case with every one of its views in memory of its own, flush with a page that may not be touched,
// behind it and before it, gaps of strided views included; under every ISA. The results are those of ordinary memory.
#include "support/guard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/cases.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class GuardTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, GuardTest, testing::ValuesIn(all_isas()), isa_name);

/// Elements from a view's first to its last, both included.
Index span_of(const ConstTensorView& view) {
  Index last = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.size(axis) == 0) return 0;
    last += (view.size(axis) - 1) * view.stride(axis);
  }
  return last + 1;
}

/// The same bytes between forbidden pages under the same strides, and not one byte more than the view spans.
class GuardedCopy {
 public:
  GuardedCopy(const ConstTensorView& from, Guard guard)
      : bytes_(static_cast<std::size_t>(span_of(from)) * size_of(from.dtype), guard), from_(from) {
    if (from) std::memcpy(bytes_.data(), from.data, static_cast<std::size_t>(span_of(from)) * size_of(from.dtype));
  }
  TensorView view() const { return from_ ? TensorView(bytes_.data(), from_.dtype, from_.shape, from_.strides) : TensorView(); }

 private:
  GuardedBytes bytes_;
  ConstTensorView from_;
};

/// The list of cases and head sizes around the vectors' widths. f64 is the reference under every ISA: once is enough.
std::vector<Problem> guarded_problems() {
  std::vector<Problem> list = cases();
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F16, DType::F64}) {
    for (const Index head_dim : {1, 3, 16, 33, 67}) {
      list.push_back({.q_len = 21,
                      .kv_len = 37,
                      .group = 2,
                      .head_dim = head_dim,
                      .value_dim = head_dim + 1,
                      .dtype = dtype,
                      .mask = causal(),
                      .align = Align::BottomRight});
    }
  }
  if (current_isa() != "reference") std::erase_if(list, [](const Problem& p) { return p.dtype == DType::F64; });
  return list;
}

TEST_P(GuardTest, NothingOutsideTheViewsIsTouched) {
  for (const Problem& problem : guarded_problems()) {
    Instance instance(problem);
    const Results expected = run(instance);
    for (const Guard guard : {Guard::After, Guard::Before}) {
      const GuardedCopy q(instance.q(), guard);
      const GuardedCopy k(instance.k(), guard);
      const GuardedCopy v(instance.v(), guard);
      const GuardedCopy bias(instance.bias(), guard);
      const GuardedCopy allowed(instance.allowed(), guard);
      const GuardedCopy out(expected.out(), guard);
      const GuardedCopy lse(expected.lse(), guard);
      const GuardedCopy weights(expected.weights(), guard);
      for (const GuardedCopy* output : {&out, &lse, &weights}) fill(output->view(), kMark);
      AttentionSpec spec = instance.spec();
      if (bias.view()) spec.bias = DenseBias{bias.view()};
      const AttentionInputs inputs = {
          .q = q.view(), .k = k.view(), .v = v.view(), .allowed = allowed.view(), .kv_lengths = instance.inputs().kv_lengths};
      Workspace workspace(serial_executor());
      attention_forward(spec, inputs, {.out = out.view(), .lse = lse.view(), .weights = weights.view()}, workspace);
      ASSERT_TRUE(bitwise_equal(out.view(), expected.out())) << problem;
      ASSERT_TRUE(bitwise_equal(lse.view(), expected.lse())) << problem;
      ASSERT_TRUE(bitwise_equal(weights.view(), expected.weights())) << problem;
      if (problem.dtype == DType::F64) continue;  // attention_weights refuses it
      const GuardedTensor table(DType::F32, {problem.q_len, problem.kv_len}, guard);
      const Interval queries = {problem.q_len / 3, problem.q_len};
      const Interval keys = {problem.kv_len / 4, problem.kv_len};
      const TensorView region = table.view().slice(0, queries.lo, queries.hi).slice(1, keys.lo, keys.hi);
      fill(region, kMark);
      attention_weights(spec, {.q = q.view(), .k = k.view(), .allowed = allowed.view(), .kv_lengths = inputs.kv_lengths}, lse.view(),
                        {.batch = problem.batch - 1, .head = problem.heads() - 1, .queries = queries, .keys = keys}, region, workspace);
      for (const double weight : elements(region)) ASSERT_TRUE(weight >= 0 && weight < 1.01) << problem;
    }
  }
}

}  // namespace
}  // namespace mha::test
