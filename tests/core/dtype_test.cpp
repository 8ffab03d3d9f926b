// Conversions between storage dtypes and f32: exhaustive over all 65,536 values, and rounding to nearest even against computations that
// share no code with ours: the definition of binary16 and a search among all its values, and for bf16 a search between the two
// neighbours, all in double. (_Float16 would be shorter, but clang 14 has none on x86.)
#include "mha/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace mha {
namespace {

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// The number that the 15 lower bits mean, by IEEE 754's definition; beyond the largest finite one as if the exponent went on.
double f16_magnitude(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

/// Nearest f16 of a number or infinity, ties to even, found among all magnitudes up to 2^16, which stands for infinity.
std::uint16_t nearest_f16(float value) {
  static const std::vector<double> magnitudes = [] {
    std::vector<double> all;
    for (std::uint16_t bits = 0; bits <= 0x7C00U; ++bits) all.push_back(f16_magnitude(bits));
    return all;
  }();
  const double magnitude = std::abs(static_cast<double>(value));
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  auto bits = static_cast<std::uint16_t>(above - magnitudes.begin());
  if (above == magnitudes.end()) {
    bits = 0x7C00U;
  } else if (above != magnitudes.begin()) {
    const double to_above = *above - magnitude;
    const double to_below = magnitude - *std::prev(above);
    if (to_below < to_above || (to_below == to_above && bits % 2 == 1)) --bits;
  }
  return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000U : 0U));
}

/// Nearest bf16 of a finite float that does not overflow, ties to even, decided in double between the two neighbours.
std::uint16_t nearest_bf16(float value) {
  const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);  // towards zero
  const auto above = static_cast<std::uint16_t>(below + 1);
  const double magnitude = std::abs(static_cast<double>(value));
  const double low = std::abs(static_cast<double>(Bf16{below}.to_float()));
  // Above the largest finite number stands 2^128, as if the exponent went on.
  const bool overflows = (above & 0x7FFFU) == 0x7F80U;
  const double high = overflows ? std::ldexp(1.0, 128) : std::abs(static_cast<double>(Bf16{above}.to_float()));
  if (magnitude - low < high - magnitude) return below;
  if (magnitude - low > high - magnitude) return above;
  return (below & 1U) == 0 ? below : above;
}

/// Floats that are hard to round: all exponents, mantissas at, beside and between ties.
template <class Check>
void for_hard_floats(Check&& check) {
  for (std::uint32_t upper = 0; upper <= 0xFFFFU; ++upper) {
    for (const std::uint32_t lower :
         {0x0000U, 0x0001U, 0x0FFFU, 0x1000U, 0x1001U, 0x2FFFU, 0x3000U, 0x3001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      check(float_of(upper << 16 | lower));
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 1'000'000; ++i) check(float_of(static_cast<std::uint32_t>(random())));
}

TEST(Bf16Test, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const Bf16 value{static_cast<std::uint16_t>(bits)};
    const float wide = value.to_float();
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), bits << 16);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(Bf16::from_float(wide).to_float())) << bits;
    } else {
      ASSERT_EQ(Bf16::from_float(wide).bits, bits);
    }
  }
}

TEST(Bf16Test, RoundsToNearestEven) {
  for_hard_floats([](float value) {
    const std::uint16_t bits = Bf16::from_float(value).bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(Bf16{bits}.to_float())) << std::bit_cast<std::uint32_t>(value);
    } else if (std::isinf(value)) {
      ASSERT_EQ(bits, std::bit_cast<std::uint32_t>(value) >> 16);
    } else {
      ASSERT_EQ(bits, nearest_bf16(value)) << std::bit_cast<std::uint32_t>(value);
    }
  });
}

TEST(F16Test, EveryValueIsWhatItsBitsMean) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const std::uint32_t magnitude = bits & 0x7FFFU;
    const float got = F16{static_cast<std::uint16_t>(bits)}.to_float();
    if (magnitude > 0x7C00U) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_TRUE(std::isnan(F16::from_float(got).to_float())) << bits;
      continue;
    }
    const double expected =
        magnitude == 0x7C00U ? std::numeric_limits<double>::infinity() : f16_magnitude(static_cast<std::uint16_t>(magnitude));
    ASSERT_EQ(std::abs(static_cast<double>(got)), expected) << bits;
    ASSERT_EQ(std::signbit(got), (bits & 0x8000U) != 0) << bits;
    ASSERT_EQ(F16::from_float(got).bits, bits);
  }
}

TEST(F16Test, RoundsToNearestEven) {
  for_hard_floats([](float value) {
    const std::uint16_t bits = F16::from_float(value).bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(F16{bits}.to_float())) << std::bit_cast<std::uint32_t>(value);
    } else {
      ASSERT_EQ(bits, nearest_f16(value)) << std::bit_cast<std::uint32_t>(value);
    }
  });
}

TEST(F16Test, TheEdges) {
  EXPECT_EQ(F16::from_float(65504.0F).bits, 0x7BFFU);
  EXPECT_EQ(F16::from_float(65519.996F).bits, 0x7BFFU);
  EXPECT_EQ(F16::from_float(65520.0F).bits, 0x7C00U);
  EXPECT_EQ(F16::from_float(-1e38F).bits, 0xFC00U);
  EXPECT_EQ(F16::from_float(0x1p-24F).bits, 0x0001U);
  EXPECT_EQ(F16::from_float(0x1p-25F).bits, 0x0000U);  // a tie, to even
  EXPECT_EQ(F16::from_float(0x1.000002p-25F).bits, 0x0001U);
  EXPECT_EQ(F16::from_float(-0.0F).bits, 0x8000U);
}

TEST(DTypeTest, SizesAndNames) {
#define X(name, type, text)                      \
  EXPECT_EQ(size_of(DType::name), sizeof(type)); \
  EXPECT_STREQ(name_of(DType::name), text);      \
  static_assert(dtype_of<type> == DType::name);
  MHA_FOR_EACH_DTYPE(X)
#undef X
}

}  // namespace
}  // namespace mha
