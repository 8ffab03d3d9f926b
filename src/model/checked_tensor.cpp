// The check behind every tensor of weights that is read.
#include "model/checked_tensor.h"

#include <algorithm>
#include <span>

#include "core/check.h"

namespace mha::model {
namespace {

// A file's shape may be of any rank; a message stays a line.
std::string shape_text(const std::vector<Index>& shape) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (const Index size : std::span(shape).first(std::min(shape.size(), kMost))) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + (shape.size() > kMost ? ", ...]" : "]");
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
