// The check behind every tensor of weights that is read.
#include "model/checked_tensor.h"

#include <algorithm>

#include "core/check.h"

namespace mha::model {
namespace {

std::string shape_text(const std::vector<Index>& shape) {
  std::string text;
  for (const Index size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

}  // namespace

ConstTensorView checked_tensor(const SafetensorsFile& file, const std::string& name, const Dims& shape, WithF64 f64) {
  MHA_CHECK(FormatError, file.contains(name), file.path(), ": tensor ", name, " is missing");
  const SafetensorsFile::Info info = file.info(name);
  const bool fits = info.dtype == "F32" || info.dtype == "BF16" || info.dtype == "F16" || (f64 == WithF64::Yes && info.dtype == "F64");
  MHA_CHECK(FormatError, fits, file.path(), ": tensor ", name, " is ", info.dtype, ", expected F32, BF16, F16",
            f64 == WithF64::Yes ? " or F64" : "");
  MHA_CHECK(FormatError, std::equal(info.shape.begin(), info.shape.end(), shape.begin(), shape.end()), file.path(), ": tensor ", name,
            " is ", shape_text(info.shape), ", expected ", to_string(shape));
  return file.tensor(name);
}

}  // namespace mha::model
