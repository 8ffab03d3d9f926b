#include "nn/appended.h"

namespace mha::nn {

Tensor appended_rows(const MhaConfig& config, const ConstTensorView& learned, Index width, DType dtype) {
  Tensor rows(dtype, {config.appended_keys(), width});  // zeros
  if (config.learned_key) copy(learned, rows.view().slice(0, 0, 1).reshape({width}));
  return rows;
}

void put_last(const Tensor& appended, const TensorView& rows) {
  const Index count = appended.size(0);
  const Dims shape = {rows.size(0), count, rows.size(2)};
  copy(ConstTensorView(appended.view().data, appended.dtype(), shape, {0, rows.size(2), 1}),
       rows.slice(1, rows.size(1) - count, rows.size(1)));
}

}  // namespace mha::nn
