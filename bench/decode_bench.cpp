// Decoding: one to eight queries against many keys on one thread, GB/s of keys and values beside what the same core reads from memory in
// the same moments. Cold: buffers are used in turn, together larger than the caches.
//   decode_bench --benchmark_filter=bf16
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "mha/limits.h"
#include "mha/mha.h"

namespace {

using mha::Index;

struct Shape {
  Index queries;
  Index heads;
  Index kv_heads;
  Index head_dim;
  Index keys;
  mha::DType dtype;
  bool heads_first;  // memory order of k and v [batch, heads, length, dim]; else [batch, length, heads, dim]
};

constexpr double kColdBytes = 256e6;

mha::Tensor random_tensor(mha::DType dtype, mha::Dims shape, unsigned seed) {
  mha::Tensor normal(mha::DType::F32, shape);
  std::mt19937 engine(seed);
  std::normal_distribution<float> distribution;
  std::generate_n(normal.data<float>(), mha::element_count(shape), [&] { return distribution(engine); });
  mha::Tensor tensor(dtype, shape);
  mha::copy(normal, tensor);
  return tensor;
}

void run(benchmark::State& state, const Shape& s) {
  const mha::Dims cache = s.heads_first ? mha::Dims{1, s.kv_heads, s.keys, s.head_dim} : mha::Dims{1, s.keys, s.kv_heads, s.head_dim};
  const double bytes = 2.0 * static_cast<double>(mha::element_count(cache)) * static_cast<double>(mha::size_of(s.dtype));
  const auto buffers = static_cast<std::size_t>(std::max(2.0, kColdBytes / bytes));
  std::vector<mha::Tensor> k, v;
  for (unsigned i = 0; i < buffers; ++i) {
    k.push_back(i == 0 ? random_tensor(s.dtype, cache, 2) : k[0].clone());
    v.push_back(i == 0 ? random_tensor(s.dtype, cache, 3) : v[0].clone());
  }
  const mha::Tensor q = random_tensor(s.dtype, {1, s.queries, s.heads, s.head_dim}, 1);
  mha::Tensor out(s.dtype, q.shape());
  const auto view = [&](const mha::Tensor& tensor) { return s.heads_first ? tensor.view().transpose(1, 2) : tensor.view(); };
  const mha::AttentionSpec spec{.mask = s.queries > 1 ? mha::causal() : mha::Mask{}, .align = mha::Align::BottomRight};
  mha::Workspace workspace(mha::serial_executor());
  const std::vector<float> words(64'000'000, 1.0F);

  double limit = mha::read_bandwidth(std::as_bytes(std::span(words)));
  double seconds = -mha::thread_seconds();
  std::size_t turn = 0;
  for (auto _ : state) {
    mha::attention_forward(spec, {.q = q, .k = view(k[turn]), .v = view(v[turn])}, {.out = out}, workspace);
    turn = (turn + 1) % buffers;
    benchmark::ClobberMemory();
  }
  seconds += mha::thread_seconds();
  limit = std::max(limit, mha::read_bandwidth(std::as_bytes(std::span(words))));
  const double rate = bytes * static_cast<double>(state.iterations()) / seconds * 1e-9;
  state.counters["GB/s"] = rate;
  state.counters["limit"] = limit;
  state.counters["% of limit"] = 100 * rate / limit;
}

}  // namespace

int main(int argc, char** argv) {
  for (const mha::DType dtype : {mha::DType::F32, mha::DType::Bf16}) {
    for (const bool heads_first : {true, false}) {
      for (const Shape& s : {Shape{1, 32, 8, 128, 4096, dtype, heads_first}, Shape{1, 32, 8, 128, 32768, dtype, heads_first},
                             Shape{1, 8, 8, 64, 4096, dtype, heads_first}, Shape{1, 32, 1, 128, 32768, dtype, heads_first},
                             Shape{8, 32, 8, 128, 4096, dtype, heads_first}}) {
        const std::string name = std::string("decode/") + std::string(mha::name_of(dtype)) + (heads_first ? "/bhld/q" : "/blhd/q") +
                                 std::to_string(s.queries) + "/" + std::to_string(s.heads) + ":" + std::to_string(s.kv_heads) + "/d" +
                                 std::to_string(s.head_dim) + "/" + std::to_string(s.keys);
        benchmark::RegisterBenchmark(name.c_str(), run, s)->Unit(benchmark::kMillisecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", std::string(mha::current_isa()));
  benchmark::RunSpecifiedBenchmarks();
}
