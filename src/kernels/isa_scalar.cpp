// The ISA of any CPU, one lane wide, and the readable definition of each operation an Isa must offer. Called through its table only.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/table.h"

namespace {

struct Isa {
  using F32 = float;         // a vector of kLanes floats
  using I32 = std::int32_t;  // a vector of kLanes integers
  struct Bf16 {
    std::uint16_t bits;
  };
  struct F16 {
    std::uint16_t bits;
  };

  static constexpr int kLanes = 1;
  static constexpr int kPanelVectors = 4;
  /// Height of the register tile that is `vectors` wide: tile_rows * vectors accumulators, one broadcast and `vectors` operands must fit.
  static constexpr int tile_rows(int) { return 4; }

  static F32 set(float x) { return x; }
  static F32 load(const float* p) { return *p; }
  static F32 load_n(const float* p, int n) { return n > 0 ? *p : 0.0F; }  // the first n, 0 beyond; touches no memory beyond
  static void store(float* p, F32 x) { *p = x; }
  static void store_n(float* p, F32 x, int n) {
    if (n > 0) *p = x;
  }
  static I32 load(const std::int32_t* p) { return *p; }
  static void store(std::int32_t* p, I32 x) { *p = x; }
  static I32 set_int(std::int32_t x) { return x; }

  static F32 add(F32 a, F32 b) { return a + b; }
  static F32 sub(F32 a, F32 b) { return a - b; }
  static F32 mul(F32 a, F32 b) { return a * b; }
  static F32 div(F32 a, F32 b) { return a / b; }
  static F32 fma(F32 a, F32 b, F32 c) { return a * b + c; }  // fused where the CPU fuses; the promise of equal bits is per ISA
  static F32 max(F32 a, F32 b) { return a > b ? a : b; }     // b where either is NaN
  static F32 min(F32 a, F32 b) { return a < b ? a : b; }     // b where either is NaN
  static F32 magnitude(F32 x) { return std::fabs(x); }

  static F32 where_neg_inf(F32 test, F32 yes, F32 no) { return test == -std::numeric_limits<float>::infinity() ? yes : no; }
  static F32 where_equal(F32 a, F32 b, F32 yes, F32 no) { return a == b ? yes : no; }
  static F32 where_less(F32 a, F32 b, F32 yes, F32 no) { return a < b ? yes : no; }  // no where either is NaN
  static I32 where_less(F32 a, F32 b, I32 yes, I32 no) { return a < b ? yes : no; }
  static F32 where_bits(std::uint32_t bits, F32 yes, F32 no) { return (bits & 1U) != 0 ? yes : no; }  // bit l for lane l
  static F32 where_inside(I32 lo, I32 hi, std::int32_t k, F32 yes, F32 no) { return lo <= k && k < hi ? yes : no; }
  static bool any_differs(F32 a, F32 b) { return !(a == b); }  // NaN differs from everything
  static bool any_less(F32 a, F32 b) { return a < b; }

  /// x - floor(x) in [0, 1); anything but NaN where x is infinite or huge; NaN where x is NaN.
  static F32 fraction(F32 x) {
    const float bounded = clamped(x);
    return bounded - std::floor(bounded);
  }
  /// p * 2^floor(x), and exactly +0 where x <= -126 (there p may be a little below 1); NaN where x is NaN. x <= 127.
  static F32 scale_by_floor_power(F32 p, F32 x) {
    if (x <= -126.0F) return 0.0F;
    if (x != x) return x;
    const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(std::floor(x)) + 127);
    const std::uint32_t bits = exponent << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return p * power;
  }

  static F32 load(const Bf16* p) {
    const std::uint32_t bits = static_cast<std::uint32_t>(p->bits) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  static void store(Bf16* p, F32 x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
    p->bits = static_cast<std::uint16_t>((x == x ? rounded : bits | 0x400000U) >> 16);
  }
  static F32 load(const F16* p) {
    const std::uint32_t sign = static_cast<std::uint32_t>(p->bits & 0x8000U) << 16;
    const std::uint32_t rest = p->bits & 0x7FFFU;
    float x = static_cast<float>(rest) * 0x1p-24F;  // subnormal
    if (rest >= 0x400U) {
      std::uint32_t bits = (rest << 13) + (rest >= 0x7C00U ? 0x70000000U : 0x38000000U);
      if (rest > 0x7C00U) bits |= 0x400000U;
      std::memcpy(&x, &bits, sizeof x);
    }
    std::uint32_t signed_bits;
    std::memcpy(&signed_bits, &x, sizeof x);
    signed_bits |= sign;
    std::memcpy(&x, &signed_bits, sizeof x);
    return x;
  }
  static void store(F16* p, F32 x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t rest = bits & 0x7FFFFFFFU;
    std::uint32_t half;
    if (rest > 0x7F800000U) {
      half = 0x7E00U | ((rest >> 13) & 0x3FFU);
    } else if (rest >= 0x477FF000U) {
      half = 0x7C00U;
    } else if (rest < 0x38800000U) {  // subnormal: adding 0.5 aligns the mantissa to multiples of 2^-24 and rounds to even
      float aligned;
      std::memcpy(&aligned, &rest, sizeof aligned);
      aligned += 0.5F;
      std::memcpy(&half, &aligned, sizeof half);
      half -= 0x3F000000U;
    } else {
      half = (rest + 0xFFFU + ((rest >> 13) & 1U) - 0x38000000U) >> 13;
    }
    p->bits = static_cast<std::uint16_t>(sign | half);
  }

  /// block[i] lane l <-> block[l] lane i.
  static void transpose(F32 (&)[kLanes]) {}
  /// Lane i: the sum of the lanes of r[i], added in a tree.
  static F32 sums(const F32 (&r)[kLanes]) { return r[0]; }

 private:
  static float clamped(float x) { return -127.0F > x ? -127.0F : x; }
};

}  // namespace

#include "kernels/leaves.inl"

namespace mha::kernels {
extern const KernelTable k_scalar;
const KernelTable k_scalar = leaf_table("scalar");
}  // namespace mha::kernels
