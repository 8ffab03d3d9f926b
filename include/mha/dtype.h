// Element types and the exact conversions between them. bf16 and f16 are storage formats: arithmetic is f32.
// Adding a storage dtype: a struct with `from_float` and `to_float`, and its line in MHA_FOR_EACH_DTYPE.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace mha {

/// bfloat16: the upper half of an f32. Rounds to nearest even; NaN stays NaN.
struct Bf16 {
  std::uint16_t bits = 0;

  static Bf16 from_float(float value);
  float to_float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16. Rounds to nearest even, subnormals included; NaN stays NaN.
struct F16 {
  std::uint16_t bits = 0;

  static F16 from_float(float value);
  float to_float() const;
};

// X(enumerator, C++ type, name as printed). The only list of dtypes there is.
#define MHA_FOR_EACH_DTYPE(X)  \
  X(F32, float, "f32")         \
  X(F64, double, "f64")        \
  X(Bf16, ::mha::Bf16, "bf16") \
  X(F16, ::mha::F16, "f16")    \
  X(Bool, bool, "bool")        \
  X(I64, std::int64_t, "i64")

enum class DType : std::uint8_t {
#define X(name, type, text) name,
  MHA_FOR_EACH_DTYPE(X)
#undef X
};

/// Bytes of one element.
std::size_t size_of(DType dtype);
/// The dtype's name: "f32", "bf16", ...
const char* name_of(DType dtype);

/// The DType of a C++ type, as in `dtype_of<float>`.
template <class T>
inline constexpr DType dtype_of = T::no_such_dtype;
#define X(name, type, text) \
  template <>               \
  inline constexpr DType dtype_of<type> = DType::name;
MHA_FOR_EACH_DTYPE(X)
#undef X

}  // namespace mha
