// The exact conversions of the storage dtypes, by bits: the same on every CPU. Vector code has its own; tests hold it to these.
#include "mha/dtype.h"

#include <cmath>

namespace mha {

std::size_t size_of(DType dtype) {
  switch (dtype) {
#define X(name, type, text) \
  case DType::name:         \
    return sizeof(type);
    MHA_FOR_EACH_DTYPE(X)
#undef X
  }
  return 0;
}

const char* name_of(DType dtype) {
  switch (dtype) {
#define X(name, type, text) \
  case DType::name:         \
    return text;
    MHA_FOR_EACH_DTYPE(X)
#undef X
  }
  return "?";
}

Bf16 Bf16::from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};  // quiet, so that no payload rounds to infinity
  const std::uint32_t rounding = 0x7FFFU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((bits + rounding) >> 16)};
}

F16 F16::from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint32_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // NaN keeps the upper bits of its payload
    return {static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU))};
  }
  if (magnitude >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};  // 65520 and beyond round to infinity
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal, a multiple of 2^-24; adding 0.5 aligns the mantissa and rounds to even
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3F000000U))};
  }
  const std::uint32_t rounding = 0xFFFU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | ((magnitude + rounding - 0x38000000U) >> 13))};
}

float F16::to_float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1FU) {  // infinity; NaN comes back quiet, as the CPU's own conversion gives it
    const std::uint32_t quiet = mantissa == 0 ? 0U : 0x400000U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

}  // namespace mha
