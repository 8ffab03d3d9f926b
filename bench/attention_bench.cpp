// Prefill: GFLOP/s of attention_forward on one thread beside the FMA peak of the same core in the same moments.
//   attention_bench --benchmark_filter=d128          MHA_ISA=avx2 attention_bench
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <string>

#include "meter.h"
#include "mha/mha.h"

namespace {

using mha::Index;

struct Shape {
  Index length;
  Index head_dim;
  bool causal;
  bool heads_first;  // memory order [batch, heads, length, dim]; else [batch, length, heads, dim]
};

mha::Tensor random_tensor(mha::Dims shape, unsigned seed) {
  mha::Tensor tensor(mha::DType::F32, shape);
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::generate_n(tensor.data<float>(), mha::element_count(shape), [&] { return normal(engine); });
  return tensor;
}

void run(benchmark::State& state, const Shape& shape) {
  const Index heads = std::max<Index>(2, 4096 / shape.length / 2);
  const mha::Dims memory =
      shape.heads_first ? mha::Dims{1, heads, shape.length, shape.head_dim} : mha::Dims{1, shape.length, heads, shape.head_dim};
  mha::Tensor q = random_tensor(memory, 1);
  mha::Tensor k = random_tensor(memory, 2);
  mha::Tensor v = random_tensor(memory, 3);
  mha::Tensor out(mha::DType::F32, memory);
  const auto view = [&](mha::Tensor& tensor) { return shape.heads_first ? tensor.view().transpose(1, 2) : tensor.view(); };
  const mha::AttentionSpec spec{.mask = shape.causal ? mha::causal() : mha::Mask{}};
  mha::Workspace workspace(mha::serial_executor());

  mha::bench::Meter meter(mha::current_isa());
  for (auto _ : state) {
    mha::attention_forward(spec, {.q = view(q), .k = view(k), .v = view(v)}, {.out = view(out)}, workspace);
    benchmark::ClobberMemory();
  }
  meter.stop();

  const auto length = static_cast<double>(shape.length);
  const double pairs = shape.causal ? length * (length + 1) / 2 : length * length;  // what must be computed; masked work does not count
  const double flops = 4.0 * static_cast<double>(heads * shape.head_dim) * pairs;
  meter.report(state, flops);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Index head_dim : {32, 64, 128}) {
    for (const bool causal : {false, true}) {
      for (const bool heads_first : {true, false}) {
        for (const Index length : {128, 512, 1024, 2048}) {
          const std::string name = "prefill/d" + std::to_string(head_dim) + (causal ? "/causal" : "/full") +
                                   (heads_first ? "/bhld/" : "/blhd/") + std::to_string(length);
          benchmark::RegisterBenchmark(name.c_str(), run, Shape{length, head_dim, causal, heads_first})->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", std::string(mha::current_isa()));
  benchmark::RunSpecifiedBenchmarks();
}
