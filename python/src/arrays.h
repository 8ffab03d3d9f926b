// Arrays of Python as views of the library: any object with DLPack or the buffer protocol, its strides and memory as they are.
// Used by every binding of this folder. Copies nothing and owns nothing but a reference to the object.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "mha/tensor.h"

namespace mha::python {

namespace nb = nanobind;

/// A strided array in CPU memory, of any rank, that keeps the Python object alive whose memory it is.
class Array {
 public:
  /// `name` is what errors call it. `dtype` re-reads 16-bit integers as another dtype (NumPy has no bf16 that DLPack could name).
  /// Throws DTypeError or ShapeError where the object is no such array, is not in CPU memory or not aligned, or may not be written though
  /// `writable` is asked for.
  Array(nb::handle object, std::string name, bool writable, const std::optional<std::string>& dtype);

  /// The same elements under a larger shape: axes are added in front, axes of size 1 repeated with stride 0. Throws ShapeError.
  Array broadcast_to(const std::vector<Index>& shape) const;
  /// Throws ShapeError for an axis that is not there. Negative axes count from the last.
  Array swap_axes(int a, int b) const;

  /// Whether axis `axis` and the next are one axis in memory, and these two as one. `axis` must be one of the first rank - 1.
  bool can_join(std::size_t axis) const;
  void join(std::size_t axis);

  int rank() const { return static_cast<int>(shape_.size()); }
  const std::vector<Index>& shape() const { return shape_; }
  const std::vector<Index>& strides() const { return strides_; }  // in elements
  DType dtype() const { return dtype_; }
  const std::string& name() const { return name_; }

  /// The last `rank` axes (at most four), with all earlier axes at index `at` each. Throws ShapeError for fewer axes than `rank`.
  ConstTensorView view(int rank, const std::vector<Index>& at = {}) const;
  /// The same, to be written. Throws ShapeError unless the array was asked for as writable.
  TensorView writable_view(int rank, const std::vector<Index>& at = {}) const;

 private:
  void read(const void* data, const nb::dlpack::dtype& found, const std::optional<std::string>& wanted);

  std::variant<std::monostate, nb::ndarray<nb::ro>, nb::ndarray<>> owner_;
  std::string name_;
  void* data_ = nullptr;  // never null
  DType dtype_ = DType::F32;
  std::vector<Index> shape_;
  std::vector<Index> strides_;
};

/// "[2, 5, 8, 64]"
std::string to_string(const std::vector<Index>& numbers);

/// Adds Array to the module.
void bind_arrays(nb::module_& module);

}  // namespace mha::python
