// What `mha bench` measures: the options as typed, and the list of problems they stand for, checked before anything is allocated. Computes
// nothing; bench_measure.h runs a problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mha/mha.h"

namespace mha::app {

struct BenchOptions {
  std::string only;  // a group, "limits", or empty: all
  std::optional<Index> length, queries, heads, kv_heads, head_dim, d_model, batch;
  std::string dtype;    // empty: the group's own
  bool causal = false;  // only with a causal mask
  bool full = false;    // only without
  Index threads = 1;
  bool json = false;
  bool explain = false;
};

enum class BenchGroup : std::uint8_t { Attention, Decode, Layer, Statistics };
const char* name_of(BenchGroup group);

/// One row of the table.
struct BenchProblem {
  BenchGroup group;
  DType dtype;
  bool causal;
  Index batch, heads, kv_heads, q_len, kv_len, head_dim;
  Index d_model;  // of the layer; else 0

  /// What must be computed: masked pairs do not count, nor do softmax and biases.
  double flops() const;
  /// Of k and v.
  double kv_bytes() const;
  /// Copies of k and v that decoding goes round, so that none is in a cache when it is read.
  Index kv_copies() const;
  std::string label() const;
  AttentionSpec spec() const;
  MhaConfig config() const;
  Dims query_shape() const { return {batch, heads, q_len, head_dim}; }    // in memory
  Dims key_shape() const { return {batch, kv_heads, kv_len, head_dim}; }  // in memory
};

/// The problems of every chosen group. Throws Error, with the option and the numbers, for sizes that are no sizes, contradict each other or
/// are more than this machine's memory holds.
std::vector<BenchProblem> bench_problems(const BenchOptions& options);

/// Bytes of a core's L2 and of the last-level cache, as the system tells; 1 and 32 MiB where it does not.
struct CacheSizes {
  Index l2, last;
};
CacheSizes cache_sizes();

}  // namespace mha::app
