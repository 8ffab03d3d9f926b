// Tolerances are formulas and live here: how far two tensors are apart, and how far they may be. Used by the tests of every room.
// No test states a number of its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "mha/tensor.h"

namespace mha::test {

/// One element as double. Positions beyond the view's rank are ignored.
inline double element(const ConstTensorView& view, Index i0, Index i1 = 0, Index i2 = 0, Index i3 = 0) {
  const Index at[4] = {i0, i1, i2, i3};
  Index offset = 0;
  for (int axis = 0; axis < view.rank(); ++axis) offset += at[axis] * view.stride(axis);
  switch (view.dtype) {
    case DType::F32:
      return view.as<float>()[offset];
    case DType::F64:
      return view.as<double>()[offset];
    case DType::Bf16:
      return view.as<Bf16>()[offset].to_float();
    case DType::F16:
      return view.as<F16>()[offset].to_float();
    case DType::Bool:
      return view.as<bool>()[offset] ? 1 : 0;
    case DType::I64:
      return static_cast<double>(view.as<Index>()[offset]);
  }
  return 0;
}

/// Calls visit(i0, i1, i2, i3) for every position of the shape, last axis fastest; missing axes are 0.
template <class Visit>
void for_each_position(const Dims& shape, Visit&& visit) {
  Index size[4] = {1, 1, 1, 1};
  for (int axis = 0; axis < shape.rank(); ++axis) size[axis] = shape[axis];
  for (Index i = 0; i < size[0]; ++i)
    for (Index j = 0; j < size[1]; ++j)
      for (Index k = 0; k < size[2]; ++k)
        for (Index l = 0; l < size[3]; ++l) visit(i, j, k, l);
}

/// All elements as double, in row-major order.
inline std::vector<double> elements(const ConstTensorView& view) {
  std::vector<double> values;
  for_each_position(view.shape, [&](Index i, Index j, Index k, Index l) { values.push_back(element(view, i, j, k, l)); });
  return values;
}

/// Frobenius norm of (got - expected) over that of expected. Equal infinities differ by 0; a NaN that is not matched gives NaN, which
/// no EXPECT_LE accepts; a NaN in both places counts as equal.
inline double relative_error(const ConstTensorView& got, const ConstTensorView& expected) {
  double difference = 0;
  double norm = 0;
  for_each_position(expected.shape, [&](Index i, Index j, Index k, Index l) {
    const double a = element(got, i, j, k, l);
    const double b = element(expected, i, j, k, l);
    if (a == b || (std::isnan(a) && std::isnan(b))) {
      norm += std::isfinite(b) ? b * b : 0;
      return;
    }
    difference += (a - b) * (a - b);
    norm += b * b;
  });
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

/// The largest |got - expected|; NaN where one is NaN and the other is not, equal infinities differ by 0.
inline double max_difference(const ConstTensorView& got, const ConstTensorView& expected) {
  double worst = 0;
  for_each_position(expected.shape, [&](Index i, Index j, Index k, Index l) {
    const double a = element(got, i, j, k, l);
    const double b = element(expected, i, j, k, l);
    if (a == b || (std::isnan(a) && std::isnan(b))) return;
    const double difference = std::abs(a - b);
    if (!(difference <= worst)) worst = difference;
  });
  return worst;
}

/// The same bits everywhere (so +0 and -0 differ, and a NaN equals itself). False on different shapes or dtypes.
inline bool bitwise_equal(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.dtype != b.dtype || !(a.shape == b.shape)) return false;
  bool equal = true;
  const auto size = size_of(a.dtype);
  for_each_position(a.shape, [&](Index i, Index j, Index k, Index l) {
    const Index at[4] = {i, j, k, l};
    Index x = 0;
    Index y = 0;
    for (int axis = 0; axis < a.rank(); ++axis) {
      x += at[axis] * a.stride(axis);
      y += at[axis] * b.stride(axis);
    }
    const auto* left = static_cast<const char*>(a.data) + x * static_cast<Index>(size);
    const auto* right = static_cast<const char*>(b.data) + y * static_cast<Index>(size);
    equal = equal && std::memcmp(left, right, size) == 0;
  });
  return equal;
}

/// Half the distance from 1 to the next number: the largest relative error of one rounding.
inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return std::ldexp(1.0, -24);
    case DType::F64:
      return std::ldexp(1.0, -53);
    case DType::Bf16:
      return std::ldexp(1.0, -8);
    case DType::F16:
      return std::ldexp(1.0, -11);
    default:
      return 0;
  }
}

/// The largest absolute error of one rounding among the subnormal numbers.
inline double subnormal_roundoff(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return std::ldexp(1.0, -150);
    case DType::F64:
      return std::ldexp(1.0, -1075);
    case DType::Bf16:
      return std::ldexp(1.0, -134);
    case DType::F16:
      return std::ldexp(1.0, -25);
    default:
      return 0;
  }
}

/// The dtype arithmetic is done in, for tensors stored as `storage`.
inline DType arithmetic(DType storage) { return storage == DType::F64 ? DType::F64 : DType::F32; }

/// Relative Frobenius error allowed to attention's output on well-spread data (|scores| up to about 8): 32 roundings of the arithmetic
/// (f32: 1.9e-6, below the project's limit of 2e-6) and one of the storage.
inline double forward_tolerance(DType storage) {
  return 32 * unit_roundoff(arithmetic(storage)) + (storage == arithmetic(storage) ? 0 : unit_roundoff(storage));
}

/// A sum of `length` products in f32, relative to the sum of their absolute values: length roundings of the adds, one of the multiply.
inline double dot_tolerance(Index length, DType dtype = DType::F32) { return static_cast<double>(length + 1) * unit_roundoff(dtype); }

/// Relative error allowed to exp(x): 4 roundings for the polynomial, its coefficients and the last product; and |x| roundings because
/// x * log2(e) is rounded before its whole part is taken off, a quarter more because log2(e) as an f32 is off by 0.23 roundings.
inline double exp_tolerance(double x) { return (4 + 1.25 * std::abs(x)) * unit_roundoff(DType::F32); }

/// Bound on one element of attention's output, relative to sum over keys of weight * |v|. Each score is off by (head_dim + 3) roundings
/// of `score_magnitude` = max over keys of (scale * sum |q d| |k d| + |bias|), which exp turns into a relative error, twice (numerator
/// and normaliser); exp itself and the sums over keys add `kv_len` + 16 roundings, twice.
inline double element_tolerance(Index head_dim, Index kv_len, double score_magnitude, DType storage) {
  const double roundings = 2 * (static_cast<double>(head_dim + 3) * score_magnitude + static_cast<double>(kv_len + 16));
  return roundings * unit_roundoff(arithmetic(storage)) + (storage == arithmetic(storage) ? 0 : unit_roundoff(storage));
}

}  // namespace mha::test
