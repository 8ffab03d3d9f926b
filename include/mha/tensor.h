// Tensors: TensorView and ConstTensorView (non-owning, strided, rank <= 4, dtype known at run time) and Tensor (owning).
// Axis order of attention is [batch, length, heads, dim]; any other memory layout is a matter of strides.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "mha/dtype.h"

namespace mha {

using Index = std::int64_t;

/// A shape or a set of strides: at most four numbers, held inline.
class Dims {
 public:
  static constexpr int kMaxRank = 4;

  Dims() = default;
  /// Throws ShapeError for more than four numbers.
  Dims(std::initializer_list<Index> values);

  int rank() const { return rank_; }
  Index operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  Index& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  const Index* begin() const { return values_.data(); }
  const Index* end() const { return values_.data() + rank_; }
  friend bool operator==(const Dims&, const Dims&) = default;

 private:
  std::array<Index, kMaxRank> values_{};
  int rank_ = 0;
};

/// "[2, 5, 8, 64]"
std::string to_string(const Dims& dims);
/// Product of the numbers; 1 for rank 0. Throws ShapeError for a negative size or a product beyond 63 bits.
Index element_count(const Dims& shape);
/// Strides of a dense tensor, last axis fastest. Throws as element_count does.
Dims contiguous_strides(const Dims& shape);

/// Read-only view. Strides count elements and may be 0 (broadcast). An absent argument is an empty view (data == nullptr).
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::F32;
  Dims shape;
  Dims strides;

  ConstTensorView() = default;
  /// Throws ShapeError where the ranks of shape and strides differ or a size is negative.
  ConstTensorView(const void* elements, DType type, Dims sizes, Dims steps);
  /// A dense tensor.
  ConstTensorView(const void* elements, DType type, Dims sizes);
  template <class T>
  ConstTensorView(const T* elements, Dims sizes) : ConstTensorView(elements, dtype_of<T>, sizes) {}

  int rank() const { return shape.rank(); }
  Index size(int axis) const { return shape[axis]; }
  Index stride(int axis) const { return strides[axis]; }
  /// True unless the view is absent.
  explicit operator bool() const { return data != nullptr; }
  bool is_contiguous() const;

  /// The data as T. Throws DTypeError on another dtype.
  template <class T>
  const T* as() const {
    require(dtype_of<T>);
    return static_cast<const T*>(data);
  }
  /// [begin, end) along `axis`. Throws ShapeError outside the view.
  ConstTensorView slice(int axis, Index begin, Index end) const;
  ConstTensorView transpose(int axis_a, int axis_b) const;
  /// The same elements under another shape. Throws ShapeError unless contiguous and of equal element count.
  ConstTensorView reshape(Dims new_shape) const;

 private:
  void require(DType wanted) const;
};

/// Mutable view; converts to ConstTensorView.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::F32;
  Dims shape;
  Dims strides;

  TensorView() = default;
  TensorView(void* elements, DType type, Dims sizes, Dims steps);
  TensorView(void* elements, DType type, Dims sizes);
  template <class T>
  TensorView(T* elements, Dims sizes) : TensorView(elements, dtype_of<T>, sizes) {}

  operator ConstTensorView() const;  // NOLINT: a view that may write may also read
  int rank() const { return shape.rank(); }
  Index size(int axis) const { return shape[axis]; }
  Index stride(int axis) const { return strides[axis]; }
  explicit operator bool() const { return data != nullptr; }
  bool is_contiguous() const;

  template <class T>
  T* as() const {
    return const_cast<T*>(ConstTensorView(*this).as<T>());
  }
  TensorView slice(int axis, Index begin, Index end) const;
  TensorView transpose(int axis_a, int axis_b) const;
  TensorView reshape(Dims new_shape) const;
};

/// An owning, dense, 64-byte aligned tensor. Move-only: a copy is asked for by name (`clone`).
class Tensor {
 public:
  Tensor() = default;
  /// Zero-filled. Throws ShapeError for a negative size or one beyond the address space, std::bad_alloc when memory runs out.
  Tensor(DType dtype, Dims shape);
  Tensor clone() const;

  DType dtype() const { return view_.dtype; }
  const Dims& shape() const { return view_.shape; }
  Index size(int axis) const { return view_.shape[axis]; }
  explicit operator bool() const { return static_cast<bool>(view_); }

  operator TensorView() { return view_; }             // NOLINT: a tensor is used as its view
  operator ConstTensorView() const { return view_; }  // NOLINT
  TensorView view() { return view_; }
  ConstTensorView view() const { return view_; }
  template <class T>
  T* data() {
    return view_.as<T>();
  }
  template <class T>
  const T* data() const {
    return ConstTensorView(view_).as<T>();
  }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  TensorView view_;
};

/// Copies `from` into `to`, converting between floating dtypes. Throws ShapeError or DTypeError on a mismatch.
void copy(ConstTensorView from, TensorView to);

/// True if some element of `a` and some element of `b` may lie at the same address (exact for equal strides, else by extent).
bool may_overlap(ConstTensorView a, ConstTensorView b);

}  // namespace mha
