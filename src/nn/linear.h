// y = x W^T + b. PackedLinear holds one weight matrix packed for the `linear` leaf; `linear_forward` runs several of them over the same x
// in one pass. Called by layer.cpp (projections) and by src/model (feed-forward parts). Every y element is one chain of multiply-adds
// over ascending inputs, starting at the bias, so results are bitwise independent of threads, batch mates and row blocking.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "mha/tensor.h"
#include "mha/workspace.h"

namespace mha::nn {

/// One weight matrix, copied and packed at construction. Const objects may be used from several threads at once.
class PackedLinear {
 public:
  /// weight: [outputs, inputs], bias: [outputs] or absent; f32, bf16, f16 (arithmetic f32) or f64 (both; simple loops in double), any
  /// strides. `name` stands in messages, as in "layer: wq". Throws ShapeError or DTypeError.
  PackedLinear(ConstTensorView weight, ConstTensorView bias, std::string name);
  PackedLinear(PackedLinear&& other) noexcept;
  PackedLinear& operator=(PackedLinear&&) = delete;
  ~PackedLinear();

  Index inputs() const { return inputs_; }
  Index outputs() const { return outputs_; }
  /// F32, or F64 where the weights were f64: the dtype of x and y.
  DType dtype() const { return dtype_; }
  const std::string& name() const { return name_; }

  /// x: [rows, inputs] or [batch, rows, inputs], y: [.., outputs]; dtype(), any strides (a contiguous last axis is fast). y must not
  /// overlap x. Throws ShapeError or DTypeError before y is touched.
  void forward(ConstTensorView x, TensorView y, Workspace& workspace) const;

  /// The weights as panels of `width` columns side by side: element (n, d) at panels[(n / width * inputs + d) * width + n % width].
  struct Panels {
    Index width = 0;
    Tensor weights;  // f32, [panels, inputs, width], columns beyond `outputs` are 0
    Tensor init;     // f32, [panels, width]: the bias
  };
  /// Packed for panels of this width: at once, or repacked on first use after the kernel table changed.
  const Panels& panels(Index width) const;
  /// f64 form: weight [outputs, inputs] and bias [outputs], dense.
  const Tensor& weight_f64() const { return weight_f64_; }
  const Tensor& bias_f64() const { return bias_f64_; }

 private:
  void pack(ConstTensorView weight, ConstTensorView bias);
  const Panels& repack(Index width) const;

  std::string name_;
  DType dtype_ = DType::F32;
  Index inputs_ = 0;
  Index outputs_ = 0;
  Tensor weight_f64_;
  Tensor bias_f64_;
  mutable std::mutex mutex_;  // guards forms_
  mutable std::vector<std::unique_ptr<const Panels>> forms_;
  mutable std::atomic<const Panels*> latest_{nullptr};  // the form last asked for
};

struct LinearJob {
  const PackedLinear* linear = nullptr;
  TensorView y;
};

/// Several linears over the same x, as PackedLinear::forward each, in one pass over x.
void linear_forward(ConstTensorView x, std::span<const LinearJob> jobs, Workspace& workspace);

}  // namespace mha::nn
