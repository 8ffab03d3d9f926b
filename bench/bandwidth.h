// The machine's other limit: bytes per second that one core reads, from a buffer of a given size.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <vector>

#include "peak.h"

namespace mha::bench {

/// Sums all of `words`; eight chains, two lines ahead of each load the hardware does the rest.
[[gnu::target("avx2")]] inline void read_all(const std::vector<float>& words) {
  __m256 sum[8] = {};
  const float* at = words.data();
  for (std::size_t i = 0; i + 64 <= words.size(); i += 64) {
#pragma GCC unroll 8
    for (std::size_t lane = 0; lane < 8; ++lane) sum[lane] = _mm256_add_ps(sum[lane], _mm256_loadu_ps(at + i + 8 * lane));
    _mm_prefetch(reinterpret_cast<const char*>(at + i + 1024), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(at + i + 1040), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(at + i + 1056), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(at + i + 1072), _MM_HINT_T0);
  }
  for (int i = 1; i < 8; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  peak_sink = _mm256_cvtss_f32(sum[0]);
}

/// GB/s of this thread reading `words` once, best of `rounds`.
inline double read_bandwidth(const std::vector<float>& words, int rounds = 1) {
  double best = 0.0;
  for (int round = 0; round < rounds; ++round) {
    const double start = thread_seconds();
    read_all(words);
    const double rate = static_cast<double>(words.size() * sizeof(float)) / (thread_seconds() - start) * 1e-9;
    best = rate > best ? rate : best;
  }
  return best;
}

}  // namespace mha::bench
