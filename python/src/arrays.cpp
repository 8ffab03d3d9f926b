// Reading arrays of Python; see arrays.h.
#include "arrays.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>

#include "mha/error.h"

namespace mha::python {

namespace {

// What an array of no elements points to, where its owner has no memory for it: views of the library are absent only where data is null.
alignas(64) std::byte nothing[64];

std::optional<DType> dtype_from(const nb::dlpack::dtype& type) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  if (type.lanes != 1) return std::nullopt;
  if (code == Code::Float && type.bits == 32) return DType::F32;
  if (code == Code::Float && type.bits == 64) return DType::F64;
  if (code == Code::Float && type.bits == 16) return DType::F16;
  if (code == Code::Bfloat && type.bits == 16) return DType::Bf16;
  if (code == Code::Bool && type.bits == 8) return DType::Bool;
  if (code == Code::Int && type.bits == 64) return DType::I64;
  return std::nullopt;
}

std::string describe(const nb::dlpack::dtype& type) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  const char* kind = code == Code::Int       ? "int"
                     : code == Code::UInt    ? "uint"
                     : code == Code::Float   ? "float"
                     : code == Code::Complex ? "complex"
                                             : "another kind of ";
  return kind + std::to_string(type.bits);
}

// Shape and strides, where every index lies within 63 bits of bytes.
void check_extent(const std::string& name, const std::vector<Index>& shape, const std::vector<Index>& strides, std::size_t item) {
  Index reach = static_cast<Index>(item);
  for (const Index size : shape) {
    if (size == 0) return;
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    Index step = 0;
    if (__builtin_mul_overflow(shape[axis] - 1, strides[axis], &step) || __builtin_mul_overflow(step, static_cast<Index>(item), &step) ||
        __builtin_add_overflow(reach, step < 0 ? -step : step, &reach)) {
      throw ShapeError(name + " has shape " + to_string(shape) + " and strides " + to_string(strides) + ", which reach beyond 63 bits");
    }
  }
}

}  // namespace

std::string to_string(const std::vector<Index>& numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}

Array::Array(nb::handle object, std::string name, bool writable, const std::optional<std::string>& dtype) : name_(std::move(name)) {
  const auto take = [&](auto array) {
    if (array.device_type() != nb::device::cpu::value) {
      throw ShapeError(name_ + " is in the memory of DLPack device type " + std::to_string(array.device_type()) +
                       ", must be in CPU memory (type 1)");
    }
    for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
      shape_.push_back(static_cast<Index>(array.shape(axis)));
      strides_.push_back(array.stride(axis));
    }
    // Strides of an empty array mean nothing, and NumPy's are 0; the library's are those of a dense one.
    if (std::find(shape_.begin(), shape_.end(), 0) != shape_.end()) {
      Index step = 1;
      for (std::size_t axis = shape_.size(); axis-- > 0; step *= std::max<Index>(shape_[axis], 1)) strides_[axis] = step;
    }
    read(array.data(), array.dtype(), dtype);
    owner_ = std::move(array);
  };
  nb::ndarray<nb::ro> to_read;
  nb::ndarray<> to_write;
  if (writable && nb::try_cast(object, to_write, false)) {
    take(std::move(to_write));
    return;
  }
  if (!nb::try_cast(object, to_read, false)) {
    throw DTypeError(name_ + " is a " + std::string(nb::type_name(object.type()).c_str()) +
                     " that cannot be read: it must be an array of native numbers in CPU memory, "
                     "with DLPack or the buffer protocol");
  }
  if (writable) throw ShapeError(name_ + " is read-only: it must be writable");
  take(std::move(to_read));
}

void Array::read(const void* data, const nb::dlpack::dtype& found, const std::optional<std::string>& wanted) {
  std::optional<DType> type = dtype_from(found);
  if (wanted == "bf16" && found.bits == 16) type = DType::Bf16;
  if (!type) throw DTypeError(name_ + " is " + describe(found) + ", must be f32, bf16, f16, f64 or, for a mask, bool");
  dtype_ = *type;
  check_extent(name_, shape_, strides_, size_of(dtype_));
  const bool empty = std::find(shape_.begin(), shape_.end(), 0) != shape_.end();
  if (data == nullptr && !empty) throw ShapeError(name_ + " has shape " + to_string(shape_) + " and no memory");
  data_ = data == nullptr ? static_cast<void*>(nothing) : const_cast<void*>(data);
  if (reinterpret_cast<std::uintptr_t>(data_) % size_of(dtype_) != 0) {
    throw ShapeError(name_ + " lies at an address that is no multiple of the " + std::to_string(size_of(dtype_)) + " bytes of an element");
  }
}

Array Array::broadcast_to(const std::vector<Index>& shape) const {
  Array larger = *this;
  const auto refuse = [&] {
    return ShapeError(name_ + " has shape " + to_string(shape_) + ", which does not broadcast to " + to_string(shape));
  };
  if (shape.size() < shape_.size()) throw refuse();
  const std::size_t added = shape.size() - shape_.size();
  larger.shape_ = shape;
  larger.strides_.assign(shape.size(), 0);
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    if (shape_[axis] == shape[axis + added]) larger.strides_[axis + added] = strides_[axis];
    if (shape_[axis] != shape[axis + added] && shape_[axis] != 1) throw refuse();
  }
  return larger;
}

Array Array::swap_axes(int a, int b) const {
  const auto axis_of = [&](int axis) {
    const int found = axis < 0 ? axis + rank() : axis;
    if (found < 0 || found >= rank())
      throw ShapeError(name_ + " has " + std::to_string(rank()) + " axes, axis " + std::to_string(axis) + " was asked for");
    return static_cast<std::size_t>(found);
  };
  Array swapped = *this;
  std::swap(swapped.shape_[axis_of(a)], swapped.shape_[axis_of(b)]);
  std::swap(swapped.strides_[axis_of(a)], swapped.strides_[axis_of(b)]);
  return swapped;
}

bool Array::can_join(std::size_t axis) const {
  Index count = 0;
  if (__builtin_mul_overflow(shape_[axis], shape_[axis + 1], &count)) return false;
  return shape_[axis] <= 1 || shape_[axis + 1] == 0 || strides_[axis] == strides_[axis + 1] * shape_[axis + 1];
}

void Array::join(std::size_t axis) {
  shape_[axis + 1] *= shape_[axis];
  shape_.erase(shape_.begin() + static_cast<std::ptrdiff_t>(axis));
  strides_.erase(strides_.begin() + static_cast<std::ptrdiff_t>(axis));
}

ConstTensorView Array::view(int rank, const std::vector<Index>& at) const {
  if (rank > this->rank())
    throw ShapeError(name_ + " has shape " + to_string(shape_) + ", must have at least " + std::to_string(rank) + " axes");
  ConstTensorView view;
  view.dtype = dtype_;
  const std::size_t outer = shape_.size() - static_cast<std::size_t>(rank);
  Index offset = 0;
  for (std::size_t axis = 0; axis < outer && axis < at.size(); ++axis) offset += at[axis] * strides_[axis];
  view.data = static_cast<const std::byte*>(data_) + offset * static_cast<Index>(size_of(dtype_));
  Dims sizes = rank == 1 ? Dims{0} : rank == 2 ? Dims{0, 0} : rank == 3 ? Dims{0, 0, 0} : rank == 4 ? Dims{0, 0, 0, 0} : Dims{};
  Dims steps = sizes;
  for (int axis = 0; axis < rank; ++axis) {
    sizes[axis] = shape_[outer + static_cast<std::size_t>(axis)];
    steps[axis] = strides_[outer + static_cast<std::size_t>(axis)];
  }
  view.shape = sizes;
  view.strides = steps;
  return view;
}

TensorView Array::writable_view(int rank, const std::vector<Index>& at) const {
  if (!std::holds_alternative<nb::ndarray<>>(owner_)) throw ShapeError(name_ + " is read-only: it must be writable");
  const ConstTensorView read_only = view(rank, at);
  return {const_cast<void*>(read_only.data), read_only.dtype, read_only.shape, read_only.strides};
}

using Numbers = nb::typed<nb::tuple, Index, nb::ellipsis>;  // tuple[int, ...] in the stubs

void bind_arrays(nb::module_& module) {
  nb::class_<Array>(module, "Array", "A strided array in CPU memory, of any rank, that keeps its owner alive. Nothing is copied.")
      .def(nb::init<nb::handle, std::string, bool, const std::optional<std::string>&>(), nb::arg("object"), nb::arg("name"),
           nb::arg("writable") = false, nb::arg("dtype") = nb::none(),
           "Any object with DLPack or the buffer protocol. `dtype=\"bf16\"` re-reads 16-bit integers. ValueError or TypeError otherwise.")
      .def_prop_ro("shape", [](const Array& array) { return Numbers(nb::cast(array.shape())); })
      .def_prop_ro(
          "strides", [](const Array& array) { return Numbers(nb::cast(array.strides())); }, "In elements.")
      .def_prop_ro(
          "dtype", [](const Array& array) { return name_of(array.dtype()); }, "\"f32\", \"bf16\", \"f16\", \"f64\", \"bool\" or \"i64\".")
      .def("broadcast_to", &Array::broadcast_to, nb::arg("shape"), "The same memory under a larger shape (stride 0). ValueError.")
      .def("swap_axes", &Array::swap_axes, nb::arg("a"), nb::arg("b"), "The same memory, two axes exchanged. ValueError.");
}

}  // namespace mha::python
