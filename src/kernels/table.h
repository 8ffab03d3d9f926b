// The leaves: what the algorithm asks of an instruction set. Read this first. Every ISA file fills one KernelTable (from leaves.inl and
// its traits); src/kernels/dispatch.cpp chooses one; attention and nn call through it.
//
// Leaves know nothing of masks, biases, caches, batches or threads: they get pointers and sizes, work on one tile and return. They never
// allocate, throw or print. Widths: a *vector* is `lanes` f32; a *panel* is up to `panel_vectors` vectors of lanes side by side.
// Scores are held transposed, keys x lanes: row k, lane l at scores[k * ld + l], with ld a multiple of lanes. What the caller pads up to
// whole vectors may hold anything finite; results there are never read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mha::kernels {

using Index = std::int64_t;

inline constexpr int kMaxLanes = 16;
inline constexpr int kMaxPanelVectors = 4;
inline constexpr int kMaxPanelLanes = kMaxLanes * kMaxPanelVectors;
inline constexpr int kMaxFmaFloats = 12 * kMaxLanes;

/// Storage types rows can be read from and written to.
enum class Storage : std::uint8_t { F32, Bf16, F16 };
inline constexpr int kStorages = 3;

/// Rows of f32, `stride` elements apart, `dim` elements each (contiguous).
struct Rows {
  const float* data;
  Index stride;
  Index count;
  Index dim;
};

/// Rows as they are stored, in the storage type of the leaf that reads them; `stride` counts its elements, which are contiguous in a row.
struct StoredRows {
  const void* data;
  Index stride;
  Index count;
  Index dim;
};

/// A run of keys seen by the same vectors of the panel: keys [key, key + count) of the tile by vectors [first_vector, first_vector +
/// vectors).
struct Strip {
  int key;
  int count;
  int first_vector;
  int vectors;
  bool partial;  // some (key, lane) pair in it is hidden
};

/// Running softmax state of a panel, one float per lane.
struct RowState {
  float* max;    // largest score so far, -inf where none
  float* sum;    // sum of exp(score - max)
  float* alpha;  // out of softmax_update: exp(old max - new max), what accumulated output must be multiplied by
  // Where given, out of softmax_update: sums over its strips, with the new max, of weight * (score - max) and of the weights.
  float* spread = nullptr;
  float* weight = nullptr;
};

/// Sums of weights by their distance from a place among the keys, one float per lane.
struct Moments {
  float key;  // place of the first key
  const float* from;
  float* distance;
  float* square;
};

/// The largest scores of every lane and their keys, from the largest down: entry j of lane l at [j * ld + l]; -inf where there are fewer.
struct Largest {
  float* score;
  std::int32_t* key;
  int count;  // entries of each lane, at least 1
};

struct KernelTable {
  const char* name;
  int lanes;
  int panel_vectors;
  int few_rows;  // up to so many rows, `scores_few` and `accumulate_few` beat a panel

  /// dst[r][d] = src[r][d] for rows x dim, converted to f32. Strides count elements of their own type.
  void (*load_rows[kStorages])(const void* src, Index src_stride, Index rows, Index dim, float* dst, Index dst_stride);
  /// One row of dim f32 to storage, rounded to nearest even.
  void (*store_row[kStorages])(const float* src, Index dim, void* dst);

  /// Up to `lanes` rows of dim, transposed and scaled: dst[d * ld + l] = scale * rows[l][d]; lanes beyond `count` become 0.
  void (*load_queries)(const float* const* rows, int count, Index dim, float scale, float* dst, Index ld);
  /// The way back: out[l][d] = src[d * ld + l] * factor[l] for l < count.
  void (*store_rows)(const float* src, Index ld, int count, Index dim, const float* factor, float* const* out);

  /// scores[k * ld + l] = sum over d of keys[k][d] * queries[d * ld + l], d ascending, for all keys and `vectors` vectors of lanes.
  /// Where max is given, max[l] = max(max[l], largest score of lane l); NaN does not take part.
  void (*scores)(Rows keys, const float* queries, Index ld, int vectors, float* scores, float* max);
  /// y[r * y_stride + n] = init[n] + sum over d of x[r][d] * panel[d * panel_vectors * lanes + n], for n < columns: one panel of packed
  /// weights. The same tile as `scores`; y is written for exactly `columns` columns.
  void (*linear)(Rows x, const float* panel, const float* init, Index columns, float* y, Index y_stride);

  /// scores[k][l] = cap * tanh(scores[k][l] / cap), cap > 0.
  void (*softcap)(float* scores, Index ld, int vectors, Index keys, float cap);
  /// scores[k][l] += bias[l][k], where bias[l] are `lanes` row pointers of one vector; -inf in bias sets -inf (hides, whatever the score).
  void (*add_bias)(float* scores, Index ld, Index keys, const float* const* bias);
  /// Scores of keys outside [lo[l], hi[l]) (relative to the strip) become -inf, by select; then max as in `scores`.
  void (*hide_outside)(float* scores, Index ld, int vectors, Index keys, const std::int32_t* lo, const std::int32_t* hi, float* max);
  /// One vector: where bit l of visible[k] is 0 the score becomes -inf, by select; then max.
  void (*hide_bits)(float* scores, Index ld, Index keys, const std::uint16_t* visible, float* max);
  /// max[l] = max(max[l], scores[.][l]) for what was scored without it.
  void (*row_max)(const float* scores, Index ld, int vectors, Index keys, float* max);

  /// Turns the strips' scores into exp(score - max) after raising state.max to tile_max; updates state.sum and state.alpha. Exactly 0 for
  /// -inf and for anything below the smallest normal f32; NaN stays NaN. Returns whether some alpha is not 1.
  bool (*softmax_update)(float* scores, Index ld, int vectors, const Strip* strips, int strip_count, const float* tile_max, RowState state);
  /// scores[k][l] = exp(scores[k][l] - max[l]), with 0 in place of a max of -inf: weights, once the row's maximum (or lse) is known.
  /// Exactly 0 for a score of -inf, even where max is NaN.
  void (*exp_minus)(float* scores, Index ld, int vectors, Index keys, const float* max);
  /// sums[k * lanes + l] += sum over v of weights[k * ld + v * lanes + l].
  void (*add_vectors)(const float* weights, Index ld, int vectors, Index keys, float* sums);
  /// sum[l] = sum over k of weights[k * ld + l], max[l] = the largest of them; weights are not below 0, and a NaN may miss max.
  void (*sum_and_max)(const float* weights, Index ld, int vectors, Index keys, float* sum, float* max);
  /// One vector: key[l] = the first k with scores[k * ld + l] equal to value[l], as a float; left alone where there is none.
  void (*first_equal)(const float* scores, Index ld, Index keys, const float* value, float* key);
  /// distance[l] += sum over k of w * |key + k - from[l]|, square[l] += sum of w * (key + k - from[l])^2, where w = weights[k * ld + l].
  void (*add_moments)(const float* weights, Index ld, int vectors, Index keys, Moments to);
  /// Each lane's list takes in what is larger than its last entry, the score of row k being that of key first_key + k. Among equals the one
  /// that came earlier stays first. NaN and -inf are passed over.
  void (*keep_largest)(const float* scores, Index ld, int vectors, Index keys, std::int32_t first_key, Largest to);

  /// acc[d * ld + l] = alpha[l] * acc[d * ld + l] + sum over k of values[k][d] * weights[k * ld + l], k ascending. alpha may be null (1).
  void (*accumulate)(Rows values, const float* weights, Index ld, int vectors, const float* alpha, float* acc);
  /// One vector, leaving hidden pairs out of the sum instead of multiplying by 0; for tiles whose values are not finite.
  void (*accumulate_visible)(Rows values, const float* weights, Index ld, const std::uint16_t* visible, float* acc);
  /// acc[d * ld + l] *= alpha[l].
  void (*rescale)(float* acc, Index ld, int vectors, Index dim, const float* alpha);

  // For few rows against many keys: lanes are elements of head_dim, and keys and values are read as they are stored. Scores and weights
  // keep their place, row k, lane l; only lanes below `rows` are written or read. Queries and acc are dense rows, q_stride and a_stride
  // apart, padded to whole vectors (queries with 0).

  /// scores[k * ld + r] = sum over d of keys[k][d] * queries[r * q_stride + d].
  void (*scores_few[kStorages])(StoredRows keys, const float* queries, Index q_stride, int rows, float* scores, Index ld);
  /// acc[r * a_stride + d] = alpha[r] * acc[r * a_stride + d] + sum over k of values[k][d] * weights[k * ld + r], k ascending; alpha may
  /// be null (1).
  void (*accumulate_few[kStorages])(StoredRows values, const float* weights, Index ld, int rows, const float* alpha, float* acc,
                                    Index a_stride);

  /// x[i] = x[i] * Phi(x[i]), Phi the normal distribution function; NaN stays NaN, -inf gives 0.
  void (*gelu)(float* x, Index count);

  /// Whether all elements are finite.
  bool (*all_finite)(Rows rows);

  // The machine's own limits, for those who measure (mha/limits.h).

  int fma_floats;  // floats of fma_chains, at most kMaxFmaFloats
  /// values[i] = values[i] * factor + addend, `rounds` times, for fma_floats values that stay in registers: nothing but multiply-adds.
  void (*fma_chains)(float* values, Index rounds, float factor, float addend);
  /// The sum of `count` floats, in no promised order: nothing but reading, and asking ahead.
  float (*read_sum)(const float* data, Index count);
};

/// The table in use; null where the reference is (MHA_ISA=reference). Throws Error where MHA_ISA names something unknown or not supported.
const KernelTable* current();
/// For nn, which has no reference of its own: the table in use, or the scalar one under "reference".
const KernelTable& current_or_scalar();
/// The table of an ISA by name, null for "reference". Throws Error for one that is unknown or not supported.
const KernelTable* table_of(std::string_view isa);

}  // namespace mha::kernels
