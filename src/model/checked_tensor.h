// A tensor of weights out of a safetensors file, checked against what its reader expects. Called by encoder_weights.cpp and layer_file.cpp.
#pragma once

#include <string>

#include "mha/model/safetensors.h"
#include "mha/tensor.h"

namespace mha::model {

/// Whether f64 will do beside f32, bf16 and f16.
enum class WithF64 : bool { No, Yes };

/// The tensor's view. Throws FormatError, naming file and tensor, where it is missing, of another dtype, or of another
/// shape than `shape` (both are named).
ConstTensorView checked_tensor(const SafetensorsFile& file, const std::string& name, const Dims& shape, WithF64 f64 = WithF64::No);

}  // namespace mha::model
