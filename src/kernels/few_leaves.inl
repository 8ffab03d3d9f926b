// The two products for few rows against many keys (decoding), where a panel of lanes would be mostly padding: here lanes are elements of
// head_dim. Included by leaves.inl, between its leaves and its table; same rules.

/// Accumulators of a block: with what they are multiplied by they must fit in the registers.
constexpr int kFewSums = kLanes;
/// Memory is the limit here, and a core alone does not look far enough ahead: rows this far below are asked for, line by line as their own
/// column is read. (docs/design.md has the measurements.)
constexpr Index kBytesAhead = 16384;
constexpr Index kValuesAtOnce = 16;
/// Elements from a row to the one that is asked for with it.
template <class Stored>
[[gnu::always_inline]] inline Index elements_ahead(const StoredRows& rows) {
  return rows.stride * (kBytesAhead / (rows.dim * static_cast<Index>(sizeof(Stored)) + 64));
}
template <class Stored>
[[gnu::always_inline]] inline void ask_ahead(const Stored* at, Index elements, Index d) {
  if (d * static_cast<Index>(sizeof(Stored)) % 64 == 0) __builtin_prefetch(at + elements, 0, 2);
}

/// Sums of the products of K keys with R rows, in vectors: sums[k * R + r] over d by lanes, d ascending within a lane. Key after key:
/// memory is read in one stream, which is what the hardware looks ahead in.
template <int K, int R, class Stored>
[[gnu::always_inline]] inline void few_products(const Stored* keys, Index stride, Index dim, const float* queries, Index q_stride,
                                                F32 (&sums)[kFewSums], Index ahead) {
#pragma GCC unroll 16
  for (int k = 0; k < K; ++k) {
    F32 sum[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[r] = Isa::set(0.0F);
    Index d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      if (ahead != 0) ask_ahead(keys + k * stride + d, ahead, d);
      const F32 key = Isa::load(keys + k * stride + d);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r] = Isa::fma(key, Isa::load(queries + r * q_stride + d), sum[r]);
    }
    if (d < dim) {
      const F32 key = load_first(keys + k * stride + d, dim - d);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r] = Isa::fma(key, Isa::load(queries + r * q_stride + d), sum[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[k * R + r] = sum[r];
  }
}

/// `ahead`: how far to ask ahead, or 0; one group of rows does it for all.
template <int R, class Stored>
[[gnu::always_inline]] inline void scores_few_of(StoredRows rows, const float* queries, Index q_stride, float* scores, Index ld,
                                                 Index ahead) {
  const auto* keys = static_cast<const Stored*>(rows.data);
  const Index stride = rows.stride, count = rows.count, dim = rows.dim;
  Index k = 0;
  const auto block = [&](auto n) __attribute__((always_inline)) {
    constexpr int kKeys = decltype(n)::value;
    F32 parts[kFewSums];
#pragma GCC unroll 16
    for (int i = kKeys * R; i < kFewSums; ++i) parts[i] = Isa::set(0.0F);  // of a lone key: what is summed, but not read
    few_products<kKeys, R>(keys + k * stride, stride, dim, queries, q_stride, parts, ahead);
    float sums[kFewSums];
    Isa::store(sums, Isa::sums(parts));
    for (int i = 0; i < kKeys; ++i) __builtin_memcpy(scores + (k + i) * ld, sums + i * R, R * sizeof(float));
    k += kKeys;
  };
  while (k + kFewSums / R <= count) block(Count<kFewSums / R>{});
  while (k < count) block(Count<1>{});
}

/// fn(Count<rows>, first row): `rows` rows in groups of 8, 4, 2 and 1, none larger than a block of accumulators.
template <class Fn>
[[gnu::always_inline]] inline void for_few(int rows, Fn&& fn) {
  int r = 0;
  if constexpr (kFewSums >= 8) {
    for (; r + 8 <= rows; r += 8) fn(Count<8>{}, r);
  }
  if constexpr (kFewSums >= 4) {
    for (; r + 4 <= rows; r += 4) fn(Count<4>{}, r);
    for (; r + 2 <= rows; r += 2) fn(Count<2>{}, r);
  }
  for (; r < rows; ++r) fn(Count<1>{}, r);
}

template <class Stored>
void scores_few(StoredRows keys, const float* queries, Index q_stride, int rows, float* scores, Index ld) {
  for_few(rows, [&](auto n, int r) {
    scores_few_of<decltype(n)::value, Stored>(keys, queries + r * q_stride, q_stride, scores + r, ld,
                                              r == 0 ? elements_ahead<Stored>(keys) : 0);
  });
}

/// What all blocks of one group of rows share.
struct FewWeights {
  const float* weights;
  Index ld;
  const float* alpha;
  float* acc;
  Index a_stride;
};

/// acc[r][d .. d + C vectors) over all values. A lone last vector may be cut off by dim.
template <int R, int C, class Stored>
[[gnu::always_inline]] inline void accumulate_few_block(StoredRows rows, Index d, const FewWeights& few, Index ahead) {
  const Index stride = rows.stride, last = rows.dim - d, ld = few.ld, a_stride = few.a_stride;
  const auto* values = static_cast<const Stored*>(rows.data) + d;
  const float* alpha = few.alpha;
  float* acc = few.acc + d;
  F32 sums[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      sums[r][c] = Isa::load(acc + r * a_stride + c * kLanes);
      if (alpha != nullptr) sums[r][c] = Isa::mul(Isa::set(alpha[r]), sums[r][c]);
    }
  for (Index k = 0; k < rows.count; ++k) {
    F32 value[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const Stored* at = values + k * stride + c * kLanes;
      if (ahead != 0) ask_ahead(at, ahead, c * kLanes);
      value[c] = C == 1 && last < kLanes ? load_first(at, last) : Isa::load(at);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F32 weight = Isa::set(few.weights[k * ld + r]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = Isa::fma(weight, value[c], sums[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) Isa::store(acc + r * a_stride + c * kLanes, sums[r][c]);
}

template <int R, class Stored>
[[gnu::always_inline]] inline void accumulate_few_of(StoredRows values, const FewWeights& few, Index ahead) {
  constexpr int C = kFewSums / R;
  Index d = 0;
  for (; d + C * kLanes <= values.dim; d += C * kLanes) accumulate_few_block<R, C, Stored>(values, d, few, ahead);
  if constexpr (C > 8) {
    for (; d + 8 * kLanes <= values.dim; d += 8 * kLanes) accumulate_few_block<R, 8, Stored>(values, d, few, ahead);
  }
  if constexpr (C > 4) {
    for (; d + 4 * kLanes <= values.dim; d += 4 * kLanes) accumulate_few_block<R, 4, Stored>(values, d, few, ahead);
  }
  for (; d < values.dim; d += kLanes) accumulate_few_block<R, 1, Stored>(values, d, few, ahead);
}

template <class Stored>
void accumulate_few(StoredRows values, const float* weights, Index ld, int rows, const float* alpha, float* acc, Index a_stride) {
  for_few(rows, [&](auto n, int r) {
    // Several rows leave registers for a part of a value only. Where that makes more than two passes, they go over few values at a time, so
    // that memory is read in one stream.
    constexpr int R = decltype(n)::value;
    const Index at_once = 2 * (kFewSums / R) * kLanes < values.dim ? kValuesAtOnce : values.count;
    Index k = 0;
    do {  // once without values too: acc is still multiplied by alpha
      const StoredRows part{static_cast<const Stored*>(values.data) + k * values.stride, values.stride,
                            values.count - k < at_once ? values.count - k : at_once, values.dim};
      const FewWeights few{weights + r + k * ld, ld, alpha != nullptr && k == 0 ? alpha + r : nullptr, acc + r * a_stride, a_stride};
      accumulate_few_of<R, Stored>(part, few, r == 0 ? elements_ahead<Stored>(values) : 0);
      k += at_once;
    } while (k < values.count);
  });
}
