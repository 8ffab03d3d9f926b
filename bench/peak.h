// The machine's own limit: f32 fused multiply-adds per second of one core under an ISA, from twelve independent chains in registers.
// Printed beside every figure, since these machines change speed from minute to minute.
#pragma once

#include <immintrin.h>

#include <ctime>
#include <string_view>

namespace mha::bench {

/// Seconds this thread has computed: what another process takes away does not count.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline constexpr int kChains = 12;  // 2 units x 4 cycles of latency need 8
inline volatile float peak_sink;    // keeps the chains alive

[[gnu::target("avx512f")]] inline double fma_flops_avx512(long rounds) {
  __m512 chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = _mm512_set1_ps(1e-3F * static_cast<float>(i));
  __m512 x = _mm512_set1_ps(0.999F);
  __m512 y = _mm512_set1_ps(1e-4F);
  for (long round = 0; round < rounds; ++round) {
    asm volatile("" : "+v"(x), "+v"(y));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm512_fmadd_ps(chain[i], x, y);
  }
  for (int i = 1; i < kChains; ++i) chain[0] = _mm512_add_ps(chain[0], chain[i]);
  peak_sink = _mm512_cvtss_f32(chain[0]);
  return static_cast<double>(rounds) * kChains * 32;
}

[[gnu::target("avx2,fma")]] inline double fma_flops_avx2(long rounds) {
  __m256 chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = _mm256_set1_ps(1e-3F * static_cast<float>(i));
  __m256 x = _mm256_set1_ps(0.999F);
  __m256 y = _mm256_set1_ps(1e-4F);
  for (long round = 0; round < rounds; ++round) {
    asm volatile("" : "+x"(x), "+x"(y));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm256_fmadd_ps(chain[i], x, y);
  }
  for (int i = 1; i < kChains; ++i) chain[0] = _mm256_add_ps(chain[0], chain[i]);
  peak_sink = _mm256_cvtss_f32(chain[0]);
  return static_cast<double>(rounds) * kChains * 16;
}

/// GFLOP/s of one core right now, from about 2 ms; 0 for an ISA without such a loop.
inline double fma_peak(std::string_view isa) {
  auto* const loop = isa == "avx512" ? fma_flops_avx512 : isa == "avx2" ? fma_flops_avx2 : nullptr;
  if (loop == nullptr) return 0.0;
  const double start = thread_seconds();
  const double flops = loop(500000);
  return flops / (thread_seconds() - start) * 1e-9;
}

}  // namespace mha::bench
