// The fused layer, forward, self-attention: GFLOP/s on one thread beside the FMA peak of the same core in the same moments, and the naive
// form at the smallest shape. Counted: four projections and two products per (query, key) pair; softmax and biases are not.
//   layer_bench --benchmark_filter=minilm          MHA_ISA=avx2 layer_bench
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <string>

#include "meter.h"
#include "mha/mha.h"

namespace {

using mha::Index;

struct Shape {
  const char* name;
  mha::MhaConfig config;
};

template <class Layer>
void run(benchmark::State& state, const mha::MhaConfig& config, const Layer& layer, Index length) {
  mha::Tensor x(mha::DType::F32, {1, length, config.d_model});
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::generate_n(x.data<float>(), length * config.d_model, [&] { return normal(engine); });
  mha::Tensor y(mha::DType::F32, x.shape());
  mha::Workspace workspace(mha::serial_executor());

  mha::bench::Meter meter(mha::current_isa());
  for (auto _ : state) {
    layer.forward({.x = x}, {.y = y}, workspace);
    benchmark::ClobberMemory();
  }
  meter.stop();

  const auto rows = static_cast<double>(length);
  const auto columns = static_cast<double>((2 * config.heads + 2 * config.kv_heads) * config.head_dim);  // of W_q, W_k, W_v and W_O
  const double flops =
      2 * rows * static_cast<double>(config.d_model) * columns + 4 * rows * rows * static_cast<double>(config.heads * config.head_dim);
  meter.report(state, flops);
}

void run_fused(benchmark::State& state, const mha::MhaConfig& config, Index length) {
  const mha::MhaParameters parameters = mha::xavier_parameters(config, 1);
  run(state, config, mha::MultiHeadAttention(config, parameters.view()), length);
}

void run_naive(benchmark::State& state, const mha::MhaConfig& config, Index length) {
  const mha::MhaParameters parameters = mha::xavier_parameters(config, 1);
  run(state, config, mha::NaiveMultiHeadAttention(config, mha::to_naive(config, parameters.view())), length);
}

}  // namespace

int main(int argc, char** argv) {
  const Shape shapes[] = {{"minilm", mha::resolved({.d_model = 384, .heads = 12})},
                          {"paper", mha::resolved({.d_model = 512, .heads = 8})},
                          {"bert_base", mha::resolved({.d_model = 768, .heads = 12})},
                          {"qwen3_0.6b", mha::resolved({.d_model = 1024, .heads = 16, .kv_heads = 8, .head_dim = 128, .bias = false})}};
  for (const Shape& shape : shapes) {
    for (const Index length : {9, 128, 512}) {
      const std::string name = std::string("layer/") + shape.name + "/" + std::to_string(length);
      benchmark::RegisterBenchmark(name.c_str(), run_fused, shape.config, length)->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RegisterBenchmark("naive/minilm/9", run_naive, shapes[0].config, Index{9})->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", std::string(mha::current_isa()));
  benchmark::RunSpecifiedBenchmarks();
}
