// The leaves, written once against the traits of an instruction set. An ISA file defines `struct Isa` in an anonymous namespace, includes
// this file, and exports `leaf_table(name)`. What each leaf promises stands in table.h; what an Isa must say, in isa_scalar.cpp.
// Everything here has internal linkage: a shared inline function compiled with AVX flags would reach machines without AVX.

namespace {

using mha::kernels::Index;
using mha::kernels::KernelTable;
using mha::kernels::kMaxLanes;
using mha::kernels::kMaxPanelVectors;
using mha::kernels::Largest;
using mha::kernels::Moments;
using mha::kernels::Rows;
using mha::kernels::RowState;
using mha::kernels::StoredRows;
using mha::kernels::Strip;

using F32 = Isa::F32;
constexpr int kLanes = Isa::kLanes;
constexpr float kNegInf = -__builtin_inff();

// The pieces of a leaf are always_inline: they must meet in one function, or a tile's accumulators leave the registers.

template <int N>
struct Count {
  static constexpr int value = N;
};

/// fn(Count<vectors>), vectors in [1, kMaxPanelVectors].
template <class Fn>
[[gnu::always_inline]] inline void for_vectors(int vectors, Fn&& fn) {
  switch (vectors) {
    case 1:
      return fn(Count<1>{});
    case 2:
      return fn(Count<2>{});
    case 3:
      return fn(Count<3>{});
    default:
      return fn(Count<kMaxPanelVectors>{});
  }
}

// ---- exp -----------------------------------------------------------------------------------------------------------------------------

/// exp(x) for x <= 0 (or a little above) as 2^(x log2 e): degree-5 minimax polynomial of 2^f on [0, 1) (Remez exchange on the relative
/// error; 1.5e-7 with f32 coefficients). Exactly +0 where the result would not be a normal number; NaN stays NaN.
[[gnu::always_inline]] inline F32 exp_nonpositive(F32 x) {
  const F32 t = Isa::mul(x, Isa::set(1.44269504F));
  const F32 f = Isa::fraction(t);
  F32 p = Isa::set(0.0018775766948238015F);
  p = Isa::fma(p, f, Isa::set(0.00898933969438076F));
  p = Isa::fma(p, f, Isa::set(0.05582631751894951F));
  p = Isa::fma(p, f, Isa::set(0.24015361070632935F));
  p = Isa::fma(p, f, Isa::set(0.6931530833244324F));
  p = Isa::fma(p, f, Isa::set(0.9999999403953552F));
  return Isa::scale_by_floor_power(p, t);
}

/// The maximum to subtract: 0 in place of -inf, so that a row without any score gives exp(-inf) = 0 and not NaN.
[[gnu::always_inline]] inline F32 subtractable(F32 max) { return Isa::where_neg_inf(max, Isa::set(0.0F), max); }

// ---- convert -------------------------------------------------------------------------------------------------------------------------

template <class Stored>
[[gnu::always_inline]] inline F32 load_first(const Stored* src, Index count) {
  Stored padded[kLanes] = {};
  for (Index i = 0; i < count; ++i) padded[i] = src[i];
  return Isa::load(padded);
}
[[gnu::always_inline]] inline F32 load_first(const float* src, Index count) { return Isa::load_n(src, static_cast<int>(count)); }

template <class Stored>
void load_rows(const void* src, Index src_stride, Index rows, Index dim, float* dst, Index dst_stride) {
  for (Index r = 0; r < rows; ++r) {
    const Stored* from = static_cast<const Stored*>(src) + r * src_stride;
    float* to = dst + r * dst_stride;
    Index d = 0;
    for (; d + kLanes <= dim; d += kLanes) Isa::store(to + d, Isa::load(from + d));
    if (d < dim) Isa::store_n(to + d, load_first(from + d, dim - d), static_cast<int>(dim - d));
  }
}

template <class Stored>
void store_row(const float* src, Index dim, void* dst) {
  Stored* to = static_cast<Stored*>(dst);
  Index d = 0;
  for (; d + kLanes <= dim; d += kLanes) Isa::store(to + d, Isa::load(src + d));
  if (d == dim) return;
  Stored last[kLanes];
  Isa::store(last, Isa::load_n(src + d, static_cast<int>(dim - d)));
  for (Index i = 0; d + i < dim; ++i) to[d + i] = last[i];
}

void load_queries(const float* const* rows, int count, Index dim, float scale, float* dst, Index ld) {
  const F32 factor = Isa::set(scale);
  F32 block[kLanes];
  for (Index d = 0; d < dim; d += kLanes) {
    const int width = dim - d < kLanes ? static_cast<int>(dim - d) : kLanes;
    for (int l = 0; l < kLanes; ++l) {
      const F32 row = l >= count ? Isa::set(0.0F) : width == kLanes ? Isa::load(rows[l] + d) : Isa::load_n(rows[l] + d, width);
      block[l] = Isa::mul(row, factor);
    }
    Isa::transpose(block);
    for (int i = 0; i < width; ++i) Isa::store(dst + (d + i) * ld, block[i]);
  }
}

void store_rows(const float* src, Index ld, int count, Index dim, const float* factor, float* const* out) {
  const F32 by = Isa::load(factor);
  F32 block[kLanes];
  for (Index d = 0; d < dim; d += kLanes) {
    const int width = dim - d < kLanes ? static_cast<int>(dim - d) : kLanes;
    for (int i = 0; i < kLanes; ++i) block[i] = i < width ? Isa::mul(Isa::load(src + (d + i) * ld), by) : Isa::set(0.0F);
    Isa::transpose(block);
    for (int l = 0; l < count; ++l) {
      if (width == kLanes) {
        Isa::store(out[l] + d, block[l]);
      } else {
        Isa::store_n(out[l] + d, block[l], width);
      }
    }
  }
}

// ---- gemm tile -----------------------------------------------------------------------------------------------------------------------

/// acc[i][v] += sum over d of a[i * a_row + d * a_step] * b[d * ld + v * lanes], d ascending: the register tile of all three products.
/// Scores broadcast keys (a_row = their stride, a_step = 1); output broadcasts values (a_row = 1, a_step = their stride).
template <int R, int V>
[[gnu::always_inline]] inline void multiply(const float* a, Index a_row, Index a_step, const float* b, Index ld, Index depth,
                                            F32 (&acc)[R][V]) {
#pragma GCC unroll 2
  for (Index d = 0; d < depth; ++d) {
    F32 lanes[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) lanes[v] = Isa::load(b + d * ld + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const F32 one = Isa::set(a[i * a_row + d * a_step]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[i][v] = Isa::fma(one, lanes[v], acc[i][v]);
    }
  }
}

/// fn(Count<rows of the tile>, first row) over `rows` rows: tiles of the ISA's height for V vectors, then 4, then 1.
template <int V, class Fn>
[[gnu::always_inline]] inline void for_tiles(Index rows, Fn&& fn) {
  constexpr int kTile = Isa::tile_rows(V);
  Index r = 0;
  // Where eight are left, two tiles of 4 rather than one of 6 and two of 1.
  for (; r + kTile <= rows && (kTile != 6 || rows - r != 8); r += kTile) fn(Count<kTile>{}, r);
  if constexpr (kTile > 4) {
    for (; r + 4 <= rows; r += 4) fn(Count<4>{}, r);
  }
  for (; r < rows; ++r) fn(Count<1>{}, r);
}

/// The running maxima stay in memory: in registers, beside 24 accumulators, they would push an operand of the inner loop to the stack.
template <int R, int V, bool WithMax>
[[gnu::always_inline]] inline void scores_tile(Rows keys, const float* queries, Index ld, float* scores, float* max) {
  F32 acc[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[i][v] = Isa::set(0.0F);
  multiply<R, V>(keys.data, keys.stride, 1, queries, ld, keys.dim, acc);
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    F32 top = Isa::set(0.0F);
    if constexpr (WithMax) top = Isa::load(max + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      if constexpr (WithMax) top = Isa::max(acc[i][v], top);
      Isa::store(scores + i * ld + v * kLanes, acc[i][v]);
    }
    if constexpr (WithMax) Isa::store(max + v * kLanes, top);
  }
}

template <int V, bool WithMax>
[[gnu::always_inline]] inline void scores_of(Rows keys, const float* queries, Index ld, float* scores, float* max) {
  for_tiles<V>(keys.count, [&](auto rows, Index k) __attribute__((always_inline)) {
    constexpr int R = decltype(rows)::value;
    scores_tile<R, V, WithMax>({keys.data + k * keys.stride, keys.stride, R, keys.dim}, queries, ld, scores + k * ld, max);
  });
}

void scores(Rows keys, const float* queries, Index ld, int vectors, float* out, float* max) {
  for_vectors(vectors, [&](auto n) {
    constexpr int V = decltype(n)::value;
    if (max != nullptr) {
      scores_of<V, true>(keys, queries, ld, out, max);
    } else {
      scores_of<V, false>(keys, queries, ld, out, nullptr);
    }
  });
}

template <int R, int V>
[[gnu::always_inline]] inline void linear_tile(Rows x, const float* panel, const float* init, Index columns, float* y, Index y_stride) {
  F32 acc[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[i][v] = Isa::load(init + v * kLanes);
  multiply<R, V>(x.data, x.stride, 1, panel, Isa::kPanelVectors * kLanes, x.dim, acc);
  const int last = static_cast<int>(columns - (V - 1) * kLanes);  // columns of the last vector
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v + 1 < V; ++v) Isa::store(y + i * y_stride + v * kLanes, acc[i][v]);
    float* end = y + i * y_stride + (V - 1) * kLanes;
    if (last == kLanes) {
      Isa::store(end, acc[i][V - 1]);
    } else {
      Isa::store_n(end, acc[i][V - 1], last);
    }
  }
}

void linear(Rows x, const float* panel, const float* init, Index columns, float* y, Index y_stride) {
  for_vectors(static_cast<int>((columns + kLanes - 1) / kLanes), [&](auto n) {
    constexpr int V = decltype(n)::value;
    for_tiles<V>(x.count, [&](auto rows, Index r) __attribute__((always_inline)) {
      constexpr int R = decltype(rows)::value;
      linear_tile<R, V>({x.data + r * x.stride, x.stride, R, x.dim}, panel, init, columns, y + r * y_stride, y_stride);
    });
  });
}

template <int R, int V, bool Rescale>
[[gnu::always_inline]] inline void accumulate_tile(Rows values, const float* weights, Index ld, const F32* alpha, float* acc) {
  F32 sum[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      sum[i][v] = Isa::load(acc + i * ld + v * kLanes);
      if constexpr (Rescale) sum[i][v] = Isa::mul(alpha[v], sum[i][v]);
    }
  multiply<R, V>(values.data, 1, values.stride, weights, ld, values.count, sum);
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) Isa::store(acc + i * ld + v * kLanes, sum[i][v]);
}

template <int V, bool Rescale>
[[gnu::always_inline]] inline void accumulate_of(Rows values, const float* weights, Index ld, const float* alpha, float* acc) {
  F32 factor[V];
  if constexpr (Rescale) {
    for (int v = 0; v < V; ++v) factor[v] = Isa::load(alpha + v * kLanes);
  }
  for_tiles<V>(values.dim, [&](auto rows, Index d) __attribute__((always_inline)) {
    constexpr int R = decltype(rows)::value;
    accumulate_tile<R, V, Rescale>({values.data + d, values.stride, values.count, R}, weights, ld, factor, acc + d * ld);
  });
}

void accumulate(Rows values, const float* weights, Index ld, int vectors, const float* alpha, float* acc) {
  for_vectors(vectors, [&](auto n) {
    constexpr int V = decltype(n)::value;
    if (alpha != nullptr) {
      accumulate_of<V, true>(values, weights, ld, alpha, acc);
    } else {
      accumulate_of<V, false>(values, weights, ld, nullptr, acc);
    }
  });
}

void accumulate_visible(Rows values, const float* weights, Index ld, const std::uint16_t* visible, float* acc) {
  for (Index k = 0; k < values.count; ++k) {
    const F32 weight = Isa::load(weights + k * ld);
    for (Index d = 0; d < values.dim; ++d) {
      const F32 old = Isa::load(acc + d * ld);
      const F32 grown = Isa::fma(Isa::set(values.data[k * values.stride + d]), weight, old);
      Isa::store(acc + d * ld, Isa::where_bits(visible[k], grown, old));
    }
  }
}

void rescale(float* acc, Index ld, int vectors, Index dim, const float* alpha) {
  for (int v = 0; v < vectors; ++v) {
    const F32 factor = Isa::load(alpha + v * kLanes);
    for (Index d = 0; d < dim; ++d) {
      float* at = acc + d * ld + v * kLanes;
      Isa::store(at, Isa::mul(factor, Isa::load(at)));
    }
  }
}

// ---- scores: softcap, bias and hiding
// ---------------------------------------------------------------------------------------------------------

/// tanh(x): x + x^3 P(x^2) below 0.625 (P minimax of degree 4, 4e-9), (1 - e) / (1 + e) with e = exp(-2 |x|) above.
[[gnu::always_inline]] inline F32 tanh_of(F32 x) {
  const F32 magnitude = Isa::magnitude(x);
  const F32 z = Isa::mul(x, x);
  F32 p = Isa::set(-0.005704985000193119F);
  p = Isa::fma(p, z, Isa::set(0.0206390842795372F));
  p = Isa::fma(p, z, Isa::set(-0.05373971536755562F));
  p = Isa::fma(p, z, Isa::set(0.13331441581249237F));
  p = Isa::fma(p, z, Isa::set(-0.3333328068256378F));
  const F32 small = Isa::fma(Isa::mul(p, z), x, x);
  const F32 e = exp_nonpositive(Isa::mul(magnitude, Isa::set(-2.0F)));
  const F32 large = Isa::div(Isa::sub(Isa::set(1.0F), e), Isa::add(Isa::set(1.0F), e));
  const F32 signed_large = Isa::where_less(x, Isa::set(0.0F), Isa::sub(Isa::set(0.0F), large), large);
  return Isa::where_less(magnitude, Isa::set(0.625F), small, signed_large);
}

void softcap(float* scores, Index ld, int vectors, Index keys, float cap) {
  const F32 factor = Isa::set(cap);
  const F32 inverse = Isa::set(1.0F / cap);
  for (int v = 0; v < vectors; ++v) {
    for (Index k = 0; k < keys; ++k) {
      float* at = scores + k * ld + v * kLanes;
      Isa::store(at, Isa::mul(factor, tanh_of(Isa::mul(Isa::load(at), inverse))));
    }
  }
}

void add_bias(float* scores, Index ld, Index keys, const float* const* bias) {
  F32 block[kLanes];
  for (Index k = 0; k < keys; k += kLanes) {
    const int width = keys - k < kLanes ? static_cast<int>(keys - k) : kLanes;
    for (int l = 0; l < kLanes; ++l) block[l] = Isa::load_n(bias[l] + k, width);
    Isa::transpose(block);
    for (int i = 0; i < width; ++i) {
      float* at = scores + (k + i) * ld;
      Isa::store(at, Isa::where_neg_inf(block[i], block[i], Isa::add(Isa::load(at), block[i])));
    }
  }
}

void hide_outside(float* scores, Index ld, int vectors, Index keys, const std::int32_t* lo, const std::int32_t* hi, float* max) {
  const F32 hidden = Isa::set(kNegInf);
  for (int v = 0; v < vectors; ++v) {
    const Isa::I32 from = Isa::load(lo + v * kLanes);
    const Isa::I32 to = Isa::load(hi + v * kLanes);
    F32 top = Isa::load(max + v * kLanes);
    for (Index k = 0; k < keys; ++k) {
      float* at = scores + k * ld + v * kLanes;
      const F32 score = Isa::where_inside(from, to, static_cast<std::int32_t>(k), Isa::load(at), hidden);
      Isa::store(at, score);
      top = Isa::max(score, top);
    }
    Isa::store(max + v * kLanes, top);
  }
}

void hide_bits(float* scores, Index ld, Index keys, const std::uint16_t* visible, float* max) {
  const F32 hidden = Isa::set(kNegInf);
  F32 top = Isa::load(max);
  for (Index k = 0; k < keys; ++k) {
    const F32 score = Isa::where_bits(visible[k], Isa::load(scores + k * ld), hidden);
    Isa::store(scores + k * ld, score);
    top = Isa::max(score, top);
  }
  Isa::store(max, top);
}

void row_max(const float* scores, Index ld, int vectors, Index keys, float* max) {
  for (int v = 0; v < vectors; ++v) {
    F32 top = Isa::load(max + v * kLanes);
    for (Index k = 0; k < keys; ++k) top = Isa::max(Isa::load(scores + k * ld + v * kLanes), top);
    Isa::store(max + v * kLanes, top);
  }
}

bool all_finite(Rows rows) {
  F32 poison[4];  // stay 0 as long as everything times 0 is 0; four, not to wait for one
  for (F32& one : poison) one = Isa::set(0.0F);
  for (Index r = 0; r < rows.count; ++r) {
    const float* row = rows.data + r * rows.stride;
    Index d = 0;
    for (; d + 4 * kLanes <= rows.dim; d += 4 * kLanes) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) poison[i] = Isa::fma(Isa::load(row + d + i * kLanes), Isa::set(0.0F), poison[i]);
    }
    for (; d + kLanes <= rows.dim; d += kLanes) poison[0] = Isa::fma(Isa::load(row + d), Isa::set(0.0F), poison[0]);
    if (d < rows.dim) poison[1] = Isa::fma(Isa::load_n(row + d, static_cast<int>(rows.dim - d)), Isa::set(0.0F), poison[1]);
  }
  const F32 sum = Isa::add(Isa::add(poison[0], poison[1]), Isa::add(poison[2], poison[3]));
  return !Isa::any_differs(sum, Isa::set(0.0F));
}

#include "kernels/few_leaves.inl"
#include "kernels/limit_leaves.inl"
#include "kernels/link_leaves.inl"
#include "kernels/row_leaves.inl"
#include "kernels/softmax_leaves.inl"

constexpr KernelTable leaf_table(const char* name) {
  return {
      .name = name,
      .lanes = kLanes,
      .panel_vectors = Isa::kPanelVectors,
      .few_rows = kLanes >= 8 ? 8 : 0,
      .load_rows = {load_rows<float>, load_rows<Isa::Bf16>, load_rows<Isa::F16>},
      .store_row = {store_row<float>, store_row<Isa::Bf16>, store_row<Isa::F16>},
      .load_queries = load_queries,
      .store_rows = store_rows,
      .scores = scores,
      .linear = linear,
      .softcap = softcap,
      .add_bias = add_bias,
      .hide_outside = hide_outside,
      .hide_bits = hide_bits,
      .row_max = row_max,
      .softmax_update = softmax_update,
      .exp_minus = exp_minus,
      .add_vectors = add_vectors,
      .sum_and_max = sum_and_max,
      .first_equal = first_equal,
      .add_moments = add_moments,
      .keep_largest = keep_largest,
      .accumulate = accumulate,
      .accumulate_visible = accumulate_visible,
      .rescale = rescale,
      .scores_few = {scores_few<float>, scores_few<Isa::Bf16>, scores_few<Isa::F16>},
      .accumulate_few = {accumulate_few<float>, accumulate_few<Isa::Bf16>, accumulate_few<Isa::F16>},
      .gelu = gelu,
      .all_finite = all_finite,
      .fma_floats = kFmaChains * kLanes,
      .fma_chains = fma_chains,
      .read_sum = read_sum,
  };
}

}  // namespace
