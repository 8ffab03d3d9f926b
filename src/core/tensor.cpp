// Shapes, strides, views, owning tensors, copies and overlap. Knows nothing of attention.
#include "mha/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/arena.h"
#include "core/check.h"

namespace mha {

Dims::Dims(std::initializer_list<Index> values) : rank_(static_cast<int>(values.size())) {
  MHA_CHECK(ShapeError, values.size() <= kMaxRank, "dims: ", values.size(), " numbers given, at most ", kMaxRank, " are possible");
  std::copy(values.begin(), values.end(), values_.begin());
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.rank(); ++i) text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

Index element_count(const Dims& shape) {
  Index count = 1;
  for (const Index size : shape) MHA_CHECK(ShapeError, size >= 0, "tensor: shape ", to_string(shape), " has a negative size");
  for (const Index size : shape) {
    if (size == 0) return 0;
  }
  for (const Index size : shape) {
    MHA_CHECK(ShapeError, count <= std::numeric_limits<Index>::max() / size, "tensor: shape ", to_string(shape),
              " has more than 2^63 elements");
    count *= size;
  }
  return count;
}

Dims contiguous_strides(const Dims& shape) {
  element_count(shape);  // throws where the strides below would not fit
  Dims strides = shape;
  Index step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<Index>(shape[i], 1);
  }
  return strides;
}

namespace {

bool contiguous(const Dims& shape, const Dims& strides) {
  const Dims dense = contiguous_strides(shape);
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] > 1 && strides[i] != dense[i]) return false;
  }
  return true;
}

}  // namespace

ConstTensorView::ConstTensorView(const void* elements, DType type, Dims sizes, Dims steps)
    : data(elements), dtype(type), shape(sizes), strides(steps) {
  MHA_CHECK(ShapeError, shape.rank() == strides.rank(), "tensor: shape ", to_string(shape), " and strides ", to_string(strides),
            " differ in rank");
  for (const Index size : shape) MHA_CHECK(ShapeError, size >= 0, "tensor: shape ", to_string(shape), " has a negative size");
}

ConstTensorView::ConstTensorView(const void* elements, DType type, Dims sizes)
    : ConstTensorView(elements, type, sizes, contiguous_strides(sizes)) {}

bool ConstTensorView::is_contiguous() const { return contiguous(shape, strides); }

void ConstTensorView::require(DType wanted) const {
  MHA_CHECK(DTypeError, dtype == wanted, "tensor: dtype is ", name_of(dtype), ", ", name_of(wanted), " was asked for");
}

ConstTensorView ConstTensorView::slice(int axis, Index begin, Index end) const {
  MHA_CHECK(ShapeError, axis >= 0 && axis < rank(), "tensor: axis ", axis, " of a tensor of rank ", rank());
  MHA_CHECK(ShapeError, 0 <= begin && begin <= end && end <= shape[axis], "tensor: slice [", begin, ", ", end, ") of axis ", axis, " of ",
            to_string(shape));
  ConstTensorView part = *this;
  part.shape[axis] = end - begin;
  if (begin > 0 && begin < shape[axis]) {
    part.data = static_cast<const std::byte*>(data) + begin * strides[axis] * static_cast<Index>(size_of(dtype));
  }
  return part;
}

ConstTensorView ConstTensorView::transpose(int axis_a, int axis_b) const {
  MHA_CHECK(ShapeError, std::min(axis_a, axis_b) >= 0 && std::max(axis_a, axis_b) < rank(), "tensor: axes ", axis_a, " and ", axis_b,
            " of a tensor of rank ", rank());
  ConstTensorView swapped = *this;
  std::swap(swapped.shape[axis_a], swapped.shape[axis_b]);
  std::swap(swapped.strides[axis_a], swapped.strides[axis_b]);
  return swapped;
}

ConstTensorView ConstTensorView::reshape(Dims new_shape) const {
  MHA_CHECK(ShapeError, is_contiguous(), "tensor: reshape needs a contiguous tensor, strides are ", to_string(strides));
  MHA_CHECK(ShapeError, element_count(new_shape) == element_count(shape), "tensor: ", to_string(shape), " cannot be reshaped to ",
            to_string(new_shape));
  return {data, dtype, new_shape};
}

namespace {
TensorView writable(const ConstTensorView& view) { return {const_cast<void*>(view.data), view.dtype, view.shape, view.strides}; }
}  // namespace

TensorView::TensorView(void* elements, DType type, Dims sizes, Dims steps) : data(elements), dtype(type), shape(sizes), strides(steps) {
  static_cast<void>(ConstTensorView(elements, type, sizes, steps));  // for its checks
}
TensorView::TensorView(void* elements, DType type, Dims sizes) : TensorView(elements, type, sizes, contiguous_strides(sizes)) {}
TensorView::operator ConstTensorView() const { return {data, dtype, shape, strides}; }
bool TensorView::is_contiguous() const { return contiguous(shape, strides); }
TensorView TensorView::slice(int axis, Index begin, Index end) const { return writable(ConstTensorView(*this).slice(axis, begin, end)); }
TensorView TensorView::transpose(int axis_a, int axis_b) const { return writable(ConstTensorView(*this).transpose(axis_a, axis_b)); }
TensorView TensorView::reshape(Dims new_shape) const { return writable(ConstTensorView(*this).reshape(new_shape)); }

void Tensor::Free::operator()(void* memory) const { aligned_free(memory); }

Tensor::Tensor(DType dtype, Dims shape) {
  const Index count = element_count(shape);
  const auto item = static_cast<Index>(size_of(dtype));
  MHA_CHECK(ShapeError, count <= std::numeric_limits<Index>::max() / item, "tensor: shape ", to_string(shape), " of ", name_of(dtype),
            " is beyond the address space");
  const auto bytes = static_cast<std::size_t>(count * item);
  memory_.reset(aligned_allocate(bytes));
  std::memset(memory_.get(), 0, bytes);
  view_ = TensorView(memory_.get(), dtype, shape);
}

Tensor Tensor::clone() const {
  if (!*this) return {};
  Tensor twin(dtype(), shape());
  std::memcpy(twin.view_.data, view_.data, static_cast<std::size_t>(element_count(shape())) * size_of(dtype()));
  return twin;
}

namespace {

double load(const void* data, DType dtype, Index i) {
  switch (dtype) {
    case DType::F32:
      return static_cast<double>(static_cast<const float*>(data)[i]);
    case DType::F64:
      return static_cast<const double*>(data)[i];
    case DType::Bf16:
      return static_cast<double>(static_cast<const Bf16*>(data)[i].to_float());
    case DType::F16:
      return static_cast<double>(static_cast<const F16*>(data)[i].to_float());
    default:
      return 0.0;
  }
}

// Through f32 for the 16-bit types: rounding twice differs from rounding once only for f64 sources, which nothing in the library stores so.
void store(void* data, DType dtype, Index i, double value) {
  switch (dtype) {
    case DType::F32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      break;
    case DType::F64:
      static_cast<double*>(data)[i] = value;
      break;
    case DType::Bf16:
      static_cast<Bf16*>(data)[i] = Bf16::from_float(static_cast<float>(value));
      break;
    case DType::F16:
      static_cast<F16*>(data)[i] = F16::from_float(static_cast<float>(value));
      break;
    default:
      break;
  }
}

bool floating(DType dtype) { return dtype != DType::Bool && dtype != DType::I64; }

// Calls fn(offset_a, offset_b) for every index of `shape`, in row-major order; offsets count elements.
template <class Fn>
void for_each_offset(const Dims& shape, const Dims& strides_a, const Dims& strides_b, Fn&& fn) {
  if (element_count(shape) == 0) return;
  std::array<Index, Dims::kMaxRank> at{};
  while (true) {
    Index a = 0;
    Index b = 0;
    for (int i = 0; i < shape.rank(); ++i) {
      a += at[static_cast<std::size_t>(i)] * strides_a[i];
      b += at[static_cast<std::size_t>(i)] * strides_b[i];
    }
    fn(a, b);
    int axis = shape.rank() - 1;
    while (axis >= 0 && ++at[static_cast<std::size_t>(axis)] == shape[axis]) at[static_cast<std::size_t>(axis--)] = 0;
    if (axis < 0) return;
  }
}

}  // namespace

void copy(ConstTensorView from, TensorView to) {
  MHA_CHECK(ShapeError, from.shape == to.shape, "copy: from ", to_string(from.shape), " to ", to_string(to.shape));
  MHA_CHECK(DTypeError, from.dtype == to.dtype || (floating(from.dtype) && floating(to.dtype)), "copy: from ", name_of(from.dtype), " to ",
            name_of(to.dtype));
  const auto item = static_cast<Index>(size_of(from.dtype));
  if (from.dtype == to.dtype && from.is_contiguous() && to.is_contiguous()) {
    const Index bytes = element_count(from.shape) * item;
    if (bytes > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(bytes));
  } else if (from.dtype == to.dtype) {
    for_each_offset(from.shape, from.strides, to.strides, [&](Index a, Index b) {
      std::memcpy(static_cast<std::byte*>(to.data) + b * item, static_cast<const std::byte*>(from.data) + a * item,
                  static_cast<std::size_t>(item));
    });
  } else {
    for_each_offset(from.shape, from.strides, to.strides,
                    [&](Index a, Index b) { store(to.data, to.dtype, b, load(from.data, from.dtype, a)); });
  }
}

namespace {

struct Extent {
  std::intptr_t lo;
  std::intptr_t hi;  // one past the last byte
};

Extent extent(const ConstTensorView& view) {
  Extent bytes{reinterpret_cast<std::intptr_t>(view.data), reinterpret_cast<std::intptr_t>(view.data)};
  const auto item = static_cast<Index>(size_of(view.dtype));
  for (int i = 0; i < view.rank(); ++i) {
    const Index reach = (view.size(i) - 1) * view.stride(i) * item;
    (reach < 0 ? bytes.lo : bytes.hi) += reach;
  }
  bytes.hi += item;
  return bytes;
}

// One axis of both views: index differences (of a minus of b) times `step`.
struct AxisReach {
  Index step;  // > 0
  Index lowest, highest;
};

// Whether `delta` is a sum of d * step over the axes, lowest <= d <= highest, steps descending and nested (a step of one axis is longer
// than all shorter axes together), so that at each axis only the two nearest multiples can do.
bool reachable(Index delta, const std::array<AxisReach, Dims::kMaxRank>& axes, std::size_t rank, std::size_t axis) {
  if (axis == rank) return delta == 0;
  const auto [step, lowest, highest] = axes[axis];
  const Index quotient = delta / step;
  for (const Index d : {quotient - 1, quotient, quotient + 1}) {
    if (lowest <= d && d <= highest && reachable(delta - d * step, axes, rank, axis + 1)) return true;
  }
  return false;
}

}  // namespace

bool may_overlap(ConstTensorView a, ConstTensorView b) {
  if (!a || !b || element_count(a.shape) == 0 || element_count(b.shape) == 0) return false;
  const Extent x = extent(a);
  const Extent y = extent(b);
  if (x.hi <= y.lo || y.hi <= x.lo) return false;
  if (a.strides != b.strides || size_of(a.dtype) != size_of(b.dtype)) return true;

  std::array<AxisReach, Dims::kMaxRank> axes{};  // of the axes that matter
  std::size_t rank = 0;
  for (int i = 0; i < a.rank(); ++i) {
    const Index up = (a.stride(i) > 0 ? a.size(i) : b.size(i)) - 1;
    const Index down = (a.stride(i) > 0 ? b.size(i) : a.size(i)) - 1;
    if (up + down > 0 && a.stride(i) != 0) axes[rank++] = {std::abs(a.stride(i)), -down, up};
  }
  std::sort(axes.begin(), axes.end(), [](const AxisReach& p, const AxisReach& q) { return p.step > q.step; });  // unused ones last
  Index shorter = 0;
  for (std::size_t i = rank; i-- > 0;) {
    if (axes[i].step <= shorter) return true;  // not nested: the extents decide
    shorter += axes[i].step * std::max(-axes[i].lowest, axes[i].highest);
  }
  const std::intptr_t bytes = reinterpret_cast<std::intptr_t>(b.data) - reinterpret_cast<std::intptr_t>(a.data);
  const auto item = static_cast<std::intptr_t>(size_of(a.dtype));
  return bytes % item != 0 || reachable(bytes / item, axes, rank, 0);
}

}  // namespace mha
