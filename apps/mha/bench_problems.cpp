// The grid of problems and its checks. Sizes are multiplied as doubles until they are known to fit.
#include "bench_problems.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace mha::app {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double real(Index n) { return static_cast<double>(n); }

double memory_bytes() { return real(sysconf(_SC_PHYS_PAGES)) * real(sysconf(_SC_PAGESIZE)); }

/// As the kernel tells for the first core ("32768K"). The C library's figure is that of the whole host in some virtual machines.
Index cache_size(int level, Index otherwise) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", level));
  Index kib = 0;
  return file >> kib && kib > 0 && kib < (Index{1} << 30) ? kib << 10 : otherwise;
}

/// What a run of the problem allocates, roughly.
double bytes_of(const BenchProblem& p) {
  const double queries =
      2.0 * real(p.batch) * real(p.heads) * real(p.q_len) * real(p.head_dim) * real(static_cast<Index>(size_of(p.dtype)));
  if (p.group != BenchGroup::Layer) return queries + p.kv_bytes() * (p.group == BenchGroup::Decode ? real(p.kv_copies()) : 1.0);
  const double weights = 4.0 * real(p.d_model) * 2.0 * (real(p.heads) + real(p.kv_heads)) * real(p.head_dim);  // twice: packed, too
  return queries + p.kv_bytes() + 2.0 * weights + 8.0 * real(p.batch) * real(p.q_len) * real(p.d_model);
}

void check_fits(const BenchProblem& p) {
  const double bytes = bytes_of(p);
  if (bytes <= 0.8 * memory_bytes()) return;
  std::string sizes =
      fmt::format("--batch {}, --length {}, --heads {}, --kv-heads {}, --head-dim {}", p.batch, p.kv_len, p.heads, p.kv_heads, p.head_dim);
  if (p.group == BenchGroup::Decode) sizes += fmt::format(", --queries {}", p.q_len);
  if (p.group == BenchGroup::Layer) sizes += fmt::format(", --d-model {}", p.d_model);
  throw Error(fmt::format("bench: {} needs {:.3g} GiB ({}); this machine has {:.3g}, of which bench takes up to 80 %", name_of(p.group),
                          bytes / kGiB, sizes, memory_bytes() / kGiB));
}

void check_options(const BenchOptions& options) {
  for (const auto& [name, value] : {std::pair{"--length", options.length},
                                    {"--queries", options.queries},
                                    {"--heads", options.heads},
                                    {"--kv-heads", options.kv_heads},
                                    {"--head-dim", options.head_dim},
                                    {"--d-model", options.d_model},
                                    {"--batch", options.batch}}) {
    if (value && *value < 1) throw Error(fmt::format("bench: {} is {}, must be at least 1", name, *value));
  }
  const auto only_for = [&](const char* name, bool given, const char* group) {
    if (given && !options.only.empty() && options.only != group) {
      throw Error(fmt::format("bench: {} belongs to {}, but --only is {}", name, group, options.only));
    }
  };
  only_for("--queries", options.queries.has_value(), "decode");
  only_for("--d-model", options.d_model.has_value(), "layer");
  if (options.only == "layer" && !options.dtype.empty() && options.dtype != "f32") {
    throw Error(fmt::format("bench: --dtype is {}, but the layer computes in f32", options.dtype));
  }
}

std::vector<Index> given_or(const std::optional<Index>& given, std::vector<Index> otherwise) {
  return given ? std::vector<Index>{*given} : std::move(otherwise);
}

std::vector<DType> dtypes(const BenchOptions& options) {
  if (options.dtype.empty()) return {DType::F32, DType::Bf16};
  return {options.dtype == "f32" ? DType::F32 : options.dtype == "bf16" ? DType::Bf16 : DType::F16};
}

std::vector<bool> masks(const BenchOptions& options, std::vector<bool> otherwise) {
  if (options.causal) return {true};
  return options.full ? std::vector<bool>{false} : std::move(otherwise);
}

/// The heads of a group of problems that has `heads` and `kv_heads` where the options say nothing.
BenchProblem with_heads(BenchGroup group, const BenchOptions& options, Index heads, Index kv_heads) {
  heads = options.heads.value_or(heads);
  kv_heads = options.kv_heads.value_or(options.heads ? heads : kv_heads);
  if (heads % kv_heads != 0) {
    throw Error(
        fmt::format("bench: {} has --heads {} and --kv-heads {}: heads must be a multiple of kv-heads", name_of(group), heads, kv_heads));
  }
  return {.group = group,
          .dtype = DType::F32,
          .causal = false,
          .batch = options.batch.value_or(1),
          .heads = heads,
          .kv_heads = kv_heads,
          .q_len = 1,
          .kv_len = 1,
          .head_dim = options.head_dim.value_or(128),
          .d_model = 0};
}

void add_attention(const BenchOptions& options, std::vector<BenchProblem>& problems) {
  BenchProblem p = with_heads(BenchGroup::Attention, options, 8, 8);
  for (const DType dtype : dtypes(options)) {
    for (const bool causal : masks(options, {false, true})) {
      for (const Index head_dim : given_or(options.head_dim, {32, 64, 128})) {
        for (const Index length : given_or(options.length, {128, 512, 2048})) {
          p.dtype = dtype;
          p.causal = causal;
          p.head_dim = head_dim;
          p.q_len = p.kv_len = length;
          problems.push_back(p);
        }
      }
    }
  }
}

void add_decode(const BenchOptions& options, std::vector<BenchProblem>& problems) {
  BenchProblem p = with_heads(BenchGroup::Decode, options, 32, 8);
  for (const DType dtype : dtypes(options)) {
    for (const bool causal : masks(options, {false})) {
      for (const Index queries : given_or(options.queries, {1, 8})) {
        for (const Index keys : given_or(options.length, {4096, 32768})) {
          if (options.queries && queries > keys) {
            throw Error(fmt::format("bench: --queries is {}, must be at most --length, which is {}", queries, keys));
          }
          p.dtype = dtype;
          p.causal = causal;
          p.q_len = std::min(queries, keys);
          p.kv_len = keys;
          problems.push_back(p);
        }
      }
    }
  }
}

void add_layer(const BenchOptions& options, std::vector<BenchProblem>& problems) {
  for (const bool causal : masks(options, {false})) {
    for (const Index d_model : given_or(options.d_model, {512, 768, 1024})) {
      const Index heads = std::max<Index>(1, d_model / options.head_dim.value_or(64));
      BenchProblem p = with_heads(BenchGroup::Layer, options, heads, options.kv_heads ? *options.kv_heads : heads);
      if (!options.head_dim && d_model % p.heads != 0) {
        throw Error(fmt::format("bench: layer has --d-model {} and --heads {}: one must be a multiple of the other, or --head-dim given",
                                d_model, p.heads));
      }
      p.head_dim = options.head_dim.value_or(d_model / p.heads);
      p.d_model = d_model;
      p.causal = causal;
      for (const Index length : given_or(options.length, {128, 512, 2048})) {
        p.q_len = p.kv_len = length;
        problems.push_back(p);
      }
    }
  }
}

/// One head, so that long texts take seconds and not minutes.
void add_statistics(const BenchOptions& options, std::vector<BenchProblem>& problems) {
  BenchProblem p = with_heads(BenchGroup::Statistics, options, 1, 1);
  p.head_dim = options.head_dim.value_or(64);
  p.dtype = options.dtype.empty() ? DType::F32 : dtypes(options).front();
  for (const bool causal : masks(options, {false, true})) {
    for (const Index length : given_or(options.length, {512, 2048, 8192})) {
      p.causal = causal;
      p.q_len = p.kv_len = length;
      problems.push_back(p);
    }
  }
}

}  // namespace

const char* name_of(BenchGroup group) {
  constexpr const char* kNames[] = {"attention", "decode", "layer", "statistics"};
  return kNames[static_cast<std::size_t>(group)];
}

double BenchProblem::flops() const {
  const double all = real(q_len) * real(kv_len);
  const double pairs = causal ? all - real(q_len) * real(q_len - 1) / 2 : all;  // row i of the last q_len rows sees all but those after it
  const double products = 4.0 * real(batch) * real(heads) * real(head_dim) * pairs;
  const double columns = 2.0 * (real(heads) + real(kv_heads)) * real(head_dim);  // of W_q, W_k, W_v and W_O
  return products + 2.0 * real(batch) * real(q_len) * real(d_model) * columns;
}

double BenchProblem::kv_bytes() const {
  return 2.0 * real(batch) * real(kv_heads) * real(kv_len) * real(head_dim) * real(static_cast<Index>(size_of(dtype)));
}

Index BenchProblem::kv_copies() const { return static_cast<Index>(std::max(2.0, std::ceil(4.0 * real(cache_sizes().last) / kv_bytes()))); }

std::string BenchProblem::label() const {
  const char* mask = causal ? "causal" : "full";
  if (group == BenchGroup::Layer) return fmt::format("d_model {}, {} tokens{}", d_model, q_len, causal ? ", causal" : "");
  if (group != BenchGroup::Decode) return fmt::format("{} {} d{}, {}", mha::name_of(dtype), mask, head_dim, q_len);
  return fmt::format("{}, {} {}, {} keys", mha::name_of(dtype), q_len, q_len == 1 ? "query" : "queries", kv_len);
}

AttentionSpec BenchProblem::spec() const {
  return {.mask = causal ? mha::causal() : Mask{}, .align = group == BenchGroup::Decode ? Align::BottomRight : Align::Unset};
}

MhaConfig BenchProblem::config() const {
  return resolved({.d_model = d_model, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .attention = spec()});
}

std::vector<BenchProblem> bench_problems(const BenchOptions& options) {
  check_options(options);
  std::vector<BenchProblem> problems;
  const auto chosen = [&](const char* group) { return options.only.empty() || options.only == group; };
  if (chosen("attention")) add_attention(options, problems);
  if (chosen("decode")) add_decode(options, problems);
  if (chosen("layer") && (options.dtype.empty() || options.dtype == "f32")) add_layer(options, problems);
  if (chosen("statistics")) add_statistics(options, problems);
  for (const BenchProblem& problem : problems) check_fits(problem);
  return problems;
}

CacheSizes cache_sizes() {
  static const CacheSizes sizes = {cache_size(2, Index{1} << 20), cache_size(3, Index{32} << 20)};
  return sizes;
}

}  // namespace mha::app
