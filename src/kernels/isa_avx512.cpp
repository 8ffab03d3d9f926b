// AVX-512 (F, BW, DQ, VL): 16 lanes, register tiles of 6 x 4 vectors. See isa_scalar.cpp for what each operation means.
#include <immintrin.h>

#include <cstdint>

#include "kernels/table.h"

namespace {

struct Isa {
  using F32 = __m512;
  using I32 = __m512i;
  struct Bf16 {
    std::uint16_t bits;
  };
  struct F16 {
    std::uint16_t bits;
  };

  static constexpr int kLanes = 16;
  static constexpr int kPanelVectors = 4;
  static constexpr int tile_rows(int vectors) { return vectors == 4 ? 6 : 8; }

  static F32 set(float x) { return _mm512_set1_ps(x); }
  static F32 load(const float* p) { return _mm512_loadu_ps(p); }
  static F32 load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store(float* p, F32 x) { _mm512_storeu_ps(p, x); }
  static void store_n(float* p, F32 x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
  static I32 load(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  static void store(std::int32_t* p, I32 x) { _mm512_storeu_si512(p, x); }
  static I32 set_int(std::int32_t x) { return _mm512_set1_epi32(x); }

  static F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
  static F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
  static F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
  static F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
  static F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
  static F32 magnitude(F32 x) { return _mm512_abs_ps(x); }

  static F32 where_neg_inf(F32 test, F32 yes, F32 no) { return where_equal(test, set(-__builtin_inff()), yes, no); }
  static F32 where_equal(F32 a, F32 b, F32 yes, F32 no) { return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), yes); }
  static F32 where_less(F32 a, F32 b, F32 yes, F32 no) { return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), yes); }
  static I32 where_less(F32 a, F32 b, I32 yes, I32 no) { return _mm512_mask_mov_epi32(no, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), yes); }
  static F32 where_bits(std::uint32_t bits, F32 yes, F32 no) { return _mm512_mask_mov_ps(no, static_cast<__mmask16>(bits), yes); }
  static F32 where_inside(I32 lo, I32 hi, std::int32_t k, F32 yes, F32 no) {
    const I32 key = _mm512_set1_epi32(k);
    return _mm512_mask_mov_ps(no, _mm512_mask_cmple_epi32_mask(_mm512_cmpgt_epi32_mask(hi, key), lo, key), yes);
  }
  static bool any_differs(F32 a, F32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ) != 0; }
  static bool any_less(F32 a, F32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) != 0; }

  static F32 fraction(F32 x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }  // of an infinity: 0
  static F32 scale_by_floor_power(F32 p, F32 x) { return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, set(-126.0F), _CMP_NLE_UQ), p, x); }

  static F32 load(const Bf16* p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load16(p)), 16)); }
  static void store(Bf16* p, F32 x) {
    const I32 bits = _mm512_castps_si512(x);
    const I32 odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const I32 rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const I32 quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const I32 chosen = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    store16(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16)));
  }
  static F32 load(const F16* p) { return _mm512_cvtph_ps(load16(p)); }
  static void store(F16* p, F32 x) { store16(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }

  static void transpose(F32 (&r)[kLanes]) {
    F32 t[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {  // pairs of rows, element-wise
      t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
      t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // groups of four rows: r[4i + c] holds column c (mod 4) of each 128-bit part
      r[4 * i] = low_pairs(t[4 * i], t[4 * i + 2]);
      r[4 * i + 1] = high_pairs(t[4 * i], t[4 * i + 2]);
      r[4 * i + 2] = low_pairs(t[4 * i + 1], t[4 * i + 3]);
      r[4 * i + 3] = high_pairs(t[4 * i + 1], t[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // 128-bit parts 0, 2 and 1, 3 of eight rows
      t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
      t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xDD);
      t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
      t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xDD);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
      r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
      r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xDD);
      r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xDD);
    }
  }

  static F32 sums(const F32 (&r)[kLanes]) {
    F32 t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) t[i] = add(_mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) t[i] = add(low_pairs(t[2 * i], t[2 * i + 1]), high_pairs(t[2 * i], t[2 * i + 1]));
    t[0] = add(_mm512_shuffle_f32x4(t[0], t[1], 0x88), _mm512_shuffle_f32x4(t[0], t[1], 0xDD));
    t[1] = add(_mm512_shuffle_f32x4(t[2], t[3], 0x88), _mm512_shuffle_f32x4(t[2], t[3], 0xDD));
    return add(_mm512_shuffle_f32x4(t[0], t[1], 0x88), _mm512_shuffle_f32x4(t[0], t[1], 0xDD));
  }

 private:
  static __mmask16 first(int n) { return static_cast<__mmask16>((1U << n) - 1U); }
  static __m256i load16(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void store16(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  static F32 low_pairs(F32 a, F32 b) { return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))); }
  static F32 high_pairs(F32 a, F32 b) { return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))); }
};

}  // namespace

#include "kernels/leaves.inl"

namespace mha::kernels {
extern const KernelTable k_avx512;
const KernelTable k_avx512 = leaf_table("avx512");
}  // namespace mha::kernels
