// The two products for few rows against many keys (decoding), where a panel of lanes would be mostly padding: here lanes are elements of
// head_dim. Included by leaves.inl, between its leaves and its table; same rules.

/// Accumulators of a block: with what they are multiplied by they must fit in the registers.
constexpr int kFewSums = kLanes;
/// Asks for row `k` of what comes soon. Memory is the limit here: it must be kept busy through both products, and the rows of one head may
/// lie far apart, where the hardware does not look ahead.
[[gnu::always_inline]] inline void ask_for(const mha::kernels::Soon& soon, Index k) {
  const char* at = static_cast<const char*>(soon.data) + k * soon.stride;
  for (Index byte = 0; byte < soon.bytes; byte += 64) __builtin_prefetch(at + byte, 0, 2);
}

/// Sums of the products of K keys with R rows, in vectors: sums[k * R + r] over d by lanes, d ascending within a lane.
template <int K, int R, class Stored>
[[gnu::always_inline]] inline void few_products(const Stored* keys, Index stride, Index dim, const float* queries, Index q_stride,
                                                F32 (&sums)[kFewSums]) {
  Index d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    F32 query[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) query[r] = Isa::load(queries + r * q_stride + d);
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      const F32 key = Isa::load(keys + k * stride + d);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[k * R + r] = Isa::fma(key, query[r], sums[k * R + r]);
    }
  }
  if (d == dim) return;
#pragma GCC unroll 16
  for (int k = 0; k < K; ++k) {
    const F32 key = load_first(keys + k * stride + d, dim - d);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[k * R + r] = Isa::fma(key, Isa::load(queries + r * q_stride + d), sums[k * R + r]);
  }
}

/// out[i] = sum of the lanes of sums[i]: transposed, then added in pairs.
[[gnu::always_inline]] inline void sum_lanes(F32 (&sums)[kFewSums], float* out) {
  Isa::transpose(sums);
#pragma GCC unroll 5
  for (int half = kFewSums / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) sums[i] = Isa::add(sums[i], sums[i + half]);
  }
  Isa::store(out, sums[0]);
}

/// `ahead`: whether to ask for what comes soon, which one group of rows does for all.
template <int R, class Stored>
[[gnu::always_inline]] inline void scores_few_of(StoredRows rows, const float* queries, Index q_stride, float* scores, Index ld,
                                                 bool ahead) {
  const auto* keys = static_cast<const Stored*>(rows.data);
  const Index stride = rows.stride, count = rows.count, dim = rows.dim;
  constexpr int K = kFewSums / R;
  float sums[kFewSums];
  Index k = 0;
  for (; k + K <= count; k += K) {
    F32 parts[kFewSums];
#pragma GCC unroll 16
    for (int i = 0; i < kFewSums; ++i) parts[i] = Isa::set(0.0F);
    for (int i = 0; ahead && i < K; ++i) ask_for(rows.soon, k + i);
    few_products<K, R>(keys + k * stride, stride, dim, queries, q_stride, parts);
    sum_lanes(parts, sums);
    for (int i = 0; i < K; ++i)
      for (int r = 0; r < R; ++r) scores[(k + i) * ld + r] = sums[i * R + r];
  }
  for (; k < count; ++k) {
    F32 parts[kFewSums];
#pragma GCC unroll 16
    for (int i = 0; i < kFewSums; ++i) parts[i] = Isa::set(0.0F);
    few_products<1, R>(keys + k * stride, stride, dim, queries, q_stride, parts);
    sum_lanes(parts, sums);
    for (int r = 0; r < R; ++r) scores[k * ld + r] = sums[r];
  }
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
    scores_few_of<decltype(n)::value, Stored>(keys, queries + r * q_stride, q_stride, scores + r, ld, r == 0);
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
[[gnu::always_inline]] inline void accumulate_few_block(StoredRows rows, Index d, const FewWeights& few, bool ahead) {
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
    if (ahead && d == 0) ask_for(rows.soon, k);
    F32 value[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const Stored* at = values + k * stride + c * kLanes;
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
[[gnu::always_inline]] inline void accumulate_few_of(StoredRows values, const FewWeights& few, bool ahead) {
  constexpr int C = kFewSums / R >= 8 ? 8 : kFewSums / R;
  Index d = 0;
  for (; d + C * kLanes <= values.dim; d += C * kLanes) accumulate_few_block<R, C, Stored>(values, d, few, ahead);
  if constexpr (C > 4) {
    for (; d + 4 * kLanes <= values.dim; d += 4 * kLanes) accumulate_few_block<R, 4, Stored>(values, d, few, ahead);
  }
  for (; d < values.dim; d += kLanes) accumulate_few_block<R, 1, Stored>(values, d, few, ahead);
}

template <class Stored>
void accumulate_few(StoredRows values, const float* weights, Index ld, int rows, const float* alpha, float* acc, Index a_stride) {
  for_few(rows, [&](auto n, int r) {
    const FewWeights few{weights + r, ld, alpha != nullptr ? alpha + r : nullptr, acc + r * a_stride, a_stride};
    accumulate_few_of<decltype(n)::value, Stored>(values, few, r == 0);
  });
}
