// What the machine can do at most, for those who measure (mha/limits.h): chains of fused multiply-adds, and reading. Neither computes
// anything for attention. Included by leaves.inl, between its leaves and its table; same rules.

/// Chains at once: 2 units x 4 cycles of latency need 8, and 12 fit into 16 registers beside the factor and the addend.
constexpr int kFmaChains = kLanes == 1 ? 48 : 12;  // single lanes are joined to vectors of four by the compiler

void fma_chains(float* values, Index rounds, float factor, float addend) {
  F32 chain[kFmaChains];
#pragma GCC unroll 48
  for (int i = 0; i < kFmaChains; ++i) chain[i] = Isa::load(values + i * kLanes);
  const F32 x = Isa::set(factor);
  const F32 y = Isa::set(addend);
  for (Index round = 0; round < rounds; ++round) {
#pragma GCC unroll 48
    for (int i = 0; i < kFmaChains; ++i) chain[i] = Isa::fma(chain[i], x, y);
  }
#pragma GCC unroll 48
  for (int i = 0; i < kFmaChains; ++i) Isa::store(values + i * kLanes, chain[i]);
}

/// `Ahead`: whether to ask for what comes. It is worth something in memory, where the hardware stops at each page, and costs in caches.
template <bool Ahead>
[[gnu::always_inline]] inline float read_sum_of(const float* data, Index count) {
  constexpr int kSums = 8;
  constexpr Index kFloatsAhead = 1024;  // 4 KiB: a page
  F32 sum[kSums];
#pragma GCC unroll 8
  for (int i = 0; i < kSums; ++i) sum[i] = Isa::set(0.0F);
  Index at = 0;
  for (; at + kSums * kLanes <= count; at += kSums * kLanes) {
#pragma GCC unroll 8
    for (int i = 0; i < kSums; ++i) {
      if (Ahead && i * kLanes % 16 == 0) __builtin_prefetch(data + at + kFloatsAhead + i * kLanes, 0, 2);
      sum[i] = Isa::add(sum[i], Isa::load(data + at + i * kLanes));
    }
  }
  for (; at < count; at += kLanes) {
    sum[0] = Isa::add(sum[0], count - at < kLanes ? Isa::load_n(data + at, static_cast<int>(count - at)) : Isa::load(data + at));
  }
#pragma GCC unroll 8
  for (int i = 1; i < kSums; ++i) sum[0] = Isa::add(sum[0], sum[i]);
  float lanes[kLanes];
  Isa::store(lanes, sum[0]);
  float total = 0.0F;
  for (const float lane : lanes) total += lane;
  return total;
}

float read_sum(const float* data, Index count) {
  constexpr Index kBeyondCaches = Index{4} << 20;  // 16 MiB
  return count >= kBeyondCaches ? read_sum_of<true>(data, count) : read_sum_of<false>(data, count);
}
