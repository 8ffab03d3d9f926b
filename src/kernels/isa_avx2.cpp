// AVX2 with FMA and F16C: 8 lanes, register tiles of 4 x 3 vectors. See isa_scalar.cpp for what each operation means.
#include <immintrin.h>

#include <cstdint>

#include "kernels/table.h"

namespace {

struct Isa {
  using F32 = __m256;
  using I32 = __m256i;
  struct Bf16 {
    std::uint16_t bits;
  };
  struct F16 {
    std::uint16_t bits;
  };

  static constexpr int kLanes = 8;
  static constexpr int kPanelVectors = 3;
  static constexpr int tile_rows(int vectors) { return vectors >= 3 ? 4 : vectors == 2 ? 6 : 8; }

  static F32 set(float x) { return _mm256_set1_ps(x); }
  static F32 load(const float* p) { return _mm256_loadu_ps(p); }
  static F32 load_n(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, F32 x) { _mm256_storeu_ps(p, x); }
  static void store_n(float* p, F32 x, int n) { _mm256_maskstore_ps(p, first(n), x); }
  static I32 load(const std::int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void store(std::int32_t* p, I32 x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static I32 set_int(std::int32_t x) { return _mm256_set1_epi32(x); }

  static F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
  static F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
  static F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
  static F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
  static F32 min(F32 a, F32 b) { return _mm256_min_ps(a, b); }
  static F32 magnitude(F32 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x); }

  static F32 where_neg_inf(F32 test, F32 yes, F32 no) { return where_equal(test, set(-__builtin_inff()), yes, no); }
  static F32 where_equal(F32 a, F32 b, F32 yes, F32 no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
  static F32 where_less(F32 a, F32 b, F32 yes, F32 no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  static I32 where_less(F32 a, F32 b, I32 yes, I32 no) {
    return _mm256_castps_si256(where_less(a, b, _mm256_castsi256_ps(yes), _mm256_castsi256_ps(no)));
  }
  static F32 where_bits(std::uint32_t bits, F32 yes, F32 no) {
    const I32 lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const I32 chosen = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane_bit), lane_bit);
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(chosen));
  }
  static F32 where_inside(I32 lo, I32 hi, std::int32_t k, F32 yes, F32 no) {
    const I32 key = _mm256_set1_epi32(k);
    const I32 inside = _mm256_andnot_si256(_mm256_cmpgt_epi32(lo, key), _mm256_cmpgt_epi32(hi, key));
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(inside));
  }
  static bool any_differs(F32 a, F32 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NEQ_UQ)) != 0; }
  static bool any_less(F32 a, F32 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)) != 0; }

  static F32 fraction(F32 x) {
    const F32 bounded = max(set(-127.0F), x);  // in this order a NaN stays
    return sub(bounded, _mm256_floor_ps(bounded));
  }
  static F32 scale_by_floor_power(F32 p, F32 x) {
    const I32 exponent = _mm256_slli_epi32(_mm256_cvttps_epi32(_mm256_floor_ps(max(set(-127.0F), x))), 23);
    const F32 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
    return _mm256_and_ps(_mm256_cmp_ps(x, set(-126.0F), _CMP_NLE_UQ), scaled);
  }

  static F32 load(const Bf16* p) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16)); }
  static void store(Bf16* p, F32 x) {
    const I32 bits = _mm256_castps_si256(x);
    const I32 odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const I32 rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const I32 quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const F32 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const I32 upper = _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
    store16(p, _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
  }
  static F32 load(const F16* p) { return _mm256_cvtph_ps(load16(p)); }
  static void store(F16* p, F32 x) { store16(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }

  static void transpose(F32 (&r)[kLanes]) {
    F32 t[kLanes];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
      t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      r[4 * i] = low_pairs(t[4 * i], t[4 * i + 2]);
      r[4 * i + 1] = high_pairs(t[4 * i], t[4 * i + 2]);
      r[4 * i + 2] = low_pairs(t[4 * i + 1], t[4 * i + 3]);
      r[4 * i + 3] = high_pairs(t[4 * i + 1], t[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
      t[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
    }
    for (int i = 0; i < kLanes; ++i) r[i] = t[i];
  }

  static F32 sums(const F32 (&r)[kLanes]) {
    F32 t[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) t[i] = add(_mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]));
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) t[i] = add(low_pairs(t[2 * i], t[2 * i + 1]), high_pairs(t[2 * i], t[2 * i + 1]));
    return add(_mm256_permute2f128_ps(t[0], t[1], 0x20), _mm256_permute2f128_ps(t[0], t[1], 0x31));
  }

 private:
  static I32 first(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
  static __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static void store16(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
  static F32 low_pairs(F32 a, F32 b) { return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b))); }
  static F32 high_pairs(F32 a, F32 b) { return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b))); }
};

}  // namespace

#include "kernels/leaves.inl"

namespace mha::kernels {
extern const KernelTable k_avx2;
const KernelTable k_avx2 = leaf_table("avx2");
}  // namespace mha::kernels
