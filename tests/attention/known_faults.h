// What the known-fault tests share: tensors from literal numbers, one call of attention_forward, and its oracle in the terms of a report.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mha/attention.h"
#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

/// Each test is named after its line in the list of faults that other implementations had, and runs under every ISA.
class KnownFaults : public IsaTest {};

inline Tensor tensor_of(DType dtype, const Dims& shape, const std::vector<double>& values) {
  Tensor tensor(dtype, shape);
  std::size_t i = 0;
  for_each_position(shape, [&](Index a, Index b, Index c, Index d) { set_element(tensor.view(), a, b, c, d, values.at(i++)); });
  return tensor;
}
inline Tensor bools(const Dims& shape, const std::vector<double>& values) { return tensor_of(DType::Bool, shape, values); }

inline Tensor filled_tensor(DType dtype, const Dims& shape, double value) {
  Tensor tensor(dtype, shape);
  fill(tensor.view(), value);
  return tensor;
}
inline Tensor normal_tensor(DType dtype, const Dims& shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  fill_normal(tensor.view(), seed);
  return tensor;
}

/// Everything attention_forward can say, on one thread.
struct Said {
  Tensor out, lse, weights;
};
inline Said forward(const AttentionSpec& spec, const AttentionInputs& in) {
  const DType wide = arithmetic(in.q.dtype);
  Said said{.out = Tensor(in.q.dtype, {in.q.size(0), in.q.size(1), in.q.size(2), in.v.size(3)}),
            .lse = Tensor(wide, {in.q.size(0), in.q.size(2), in.q.size(1)}),
            .weights = Tensor(wide, {in.q.size(0), in.q.size(2), in.q.size(1), in.k.size(1)})};
  for (Tensor* tensor : {&said.out, &said.lse, &said.weights}) fill(tensor->view(), kMark);
  Workspace workspace(serial_executor());
  attention_forward(spec, in, {.out = said.out, .lse = said.lse, .weights = said.weights}, workspace);
  return said;
}

inline bool all_finite(const ConstTensorView& view) {
  for (const double value : elements(view)) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}
inline bool all_zero(const ConstTensorView& view) {
  for (const double value : elements(view)) {
    if (value != 0) return false;
  }
  return true;
}
inline bool same_said(const Said& a, const Said& b) {
  return bitwise_equal(a.out.view(), b.out.view()) && bitwise_equal(a.lse.view(), b.lse.view()) &&
         bitwise_equal(a.weights.view(), b.weights.view());
}
/// Queries along the third axis of lse and weights, the second of out.
inline ConstTensorView out_rows(const Said& said, Index begin, Index end) { return said.out.view().slice(1, begin, end); }

}  // namespace mha::test
