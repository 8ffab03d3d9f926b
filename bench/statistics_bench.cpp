// What numbers of rows, links, weight received and a map cost beside plain attention, on one thread, head_dim 64: in turn, medians of the
// ratios.
//   statistics_bench            512, 2,048 and 8,192 tokens
//   statistics_bench 131072     so many (one head, once: minutes)
//   statistics_bench 131072 --memory [--causal]
//                               everything at once of 4 heads on all cores: peak memory beside that of inputs and outputs; exit code 1
//                               where it is more than 128 MiB above (minutes)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mha/limits.h"
#include "mha/mha.h"

namespace {

using mha::Index;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// [1, length, heads, 64], heads first in memory.
struct Operand {
  Operand(Index heads, Index length, unsigned seed) : memory(mha::DType::F32, {1, heads, length, 64}) {
    std::minstd_rand engine(seed);
    std::normal_distribution<float> normal;
    std::generate_n(memory.data<float>(), heads * length * 64, [&] { return normal(engine); });
  }
  mha::TensorView view() { return memory.view().transpose(1, 2); }
  mha::Tensor memory;
};

template <class Call>
double seconds(Call&& call) {
  const double start = mha::thread_seconds();
  call();
  return mha::thread_seconds() - start;
}

void measure(Index length, bool causal, int rounds) {
  const Index heads = std::max<Index>(1, 4096 / length);
  Operand q(heads, length, 1), k(heads, length, 2), v(heads, length, 3), out(heads, length, 4);
  const mha::Dims rows = {1, heads, length};
  const auto numbers = [&] { return mha::Tensor(mha::DType::F32, rows); };
  mha::Tensor lse = numbers(), received = numbers(), score = numbers(), entropy = numbers(), distance = numbers(), variance = numbers();
  mha::Tensor first = numbers(), key(mha::DType::I64, rows);
  const mha::RowStatistics all{score, key, entropy, distance, variance, first, {}, {}, {}, {}};
  const auto some_links = [&](mha::Index count) {
    return std::pair{mha::Tensor(mha::DType::F32, {1, heads, length, count}), mha::Tensor(mha::DType::I64, {1, heads, length, count})};
  };
  auto few = some_links(8), many = some_links(32);
  const Index cells = std::min<Index>(length, 1024);
  mha::Tensor mean(mha::DType::F32, {cells, cells}), max(mha::DType::F32, {cells, cells});
  const mha::AttentionSpec spec{.mask = causal ? mha::causal() : mha::Mask{}};
  const mha::AttentionInputs inputs{.q = q.view(), .k = k.view(), .v = v.view()};
  mha::Workspace workspace(mha::serial_executor());
  std::vector<double> plain, with, links8, links32, second, map;
  for (int i = 0; i < rounds; ++i) {
    plain.push_back(seconds([&] { mha::attention_forward(spec, inputs, {.out = out.view(), .lse = lse}, workspace); }));
    with.push_back(seconds([&] { mha::attention_forward(spec, inputs, {.out = out.view(), .statistics = all}, workspace); }) /
                   plain.back());
    const auto with_links = [&](auto& to) {
      return seconds([&] {
               const mha::RowStatistics links{.link_weights = to.first.view(), .link_keys = to.second.view()};
               mha::attention_forward(spec, inputs, {.out = out.view(), .statistics = links}, workspace);
             }) /
             plain.back();
    };
    links8.push_back(with_links(few));
    links32.push_back(with_links(many));
    second.push_back(seconds([&] { mha::attention_received(spec, inputs, lse, received, workspace); }) / plain.back());
    const mha::WeightsRegion head{.batch = 0, .head = 0, .queries = {0, length}, .keys = {0, length}};
    map.push_back(seconds([&] { mha::attention_map(spec, inputs, lse, head, {mean, max}, workspace); }) * static_cast<double>(heads) /
                  plain.back());
  }
  std::printf(
      "%-6s %7ld tokens  forward %9.2f ms  with statistics %.3f  8 links %.3f  32 links %.3f  received %.3f  map of %ld x %ld, of a head's "
      "forward %.3f\n",
      causal ? "causal" : "full", static_cast<long>(length), 1e3 * median(plain), median(with), median(links8), median(links32),
      median(second), static_cast<long>(cells), static_cast<long>(cells), median(map));
}

/// The most memory this process has had resident, in MiB; 0 where the system does not tell.
double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

/// Of the memory of one run that asks for everything. Returns whether it kept to its bound.
bool run_within_memory(Index length, bool causal) {
  constexpr double kBound = 128;  // MiB
  constexpr Index kHeads = 4, kLinks = 8, kCells = 1024;
  Operand q(kHeads, length, 1), k(kHeads, length, 2), v(kHeads, length, 3), out(kHeads, length, 4);
  const mha::Dims rows = {1, kHeads, length}, links = {1, kHeads, length, kLinks},
                  cells = {std::min(length, kCells), std::min(length, kCells)};
  const auto f32 = [](const mha::Dims& shape) { return mha::Tensor(mha::DType::F32, shape); };
  mha::Tensor lse = f32(rows), score = f32(rows), entropy = f32(rows), distance = f32(rows), variance = f32(rows), first = f32(rows),
              chosen_weight = f32(rows), received = f32(rows), link_weights = f32(links), mean = f32(cells), max = f32(cells);
  mha::Tensor key(mha::DType::I64, rows), link_keys(mha::DType::I64, links), chosen(mha::DType::Bool, {1, length});
  double mib = 0;
  for (const mha::Tensor* held : {&q.memory, &k.memory, &v.memory, &out.memory, &lse, &score, &entropy, &distance, &variance, &first,
                                  &chosen_weight, &received, &link_weights, &mean, &max, &key, &link_keys, &chosen}) {
    mib += static_cast<double>(mha::element_count(held->shape()) * static_cast<Index>(mha::size_of(held->dtype()))) / (1024 * 1024);
  }
  const mha::AttentionSpec spec{.mask = causal ? mha::causal() : mha::Mask{}};
  const mha::AttentionInputs inputs{.q = q.view(), .k = k.view(), .v = v.view()};
  mha::Workspace workspace;
  const double before = peak_mib();
  const auto start = std::chrono::steady_clock::now();
  mha::attention_forward(spec, inputs,
                         {.out = out.view(),
                          .lse = lse,
                          .statistics = {score, key, entropy, distance, variance, first, chosen_weight, link_weights, link_keys, chosen}},
                         workspace);
  mha::attention_received(spec, inputs, lse, received, workspace);
  mha::attention_map(spec, inputs, lse, {.batch = 0, .head = 0, .queries = {0, length}, .keys = {0, length}}, {mean, max}, workspace);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double peak = peak_mib();
  std::printf("%s, %ld tokens, 4 heads of 64, all numbers, 8 links, received, a map of %ld x %ld: %.1f s on %d threads\n",
              causal ? "causal" : "full", static_cast<long>(length), static_cast<long>(cells[0]), static_cast<long>(cells[1]), took,
              workspace.executor().concurrency);
  std::printf("peak resident %.1f MiB (%.1f before the run), inputs and outputs %.1f MiB: %.1f MiB above, the bound is %.0f\n", peak,
              before, mib, peak - mib, kBound);
  return peak > 0 && peak - mib <= kBound;
}

}  // namespace

int main(int argc, char** argv) {
  const Index one = argc > 1 ? std::atol(argv[1]) : 0;
  const bool memory = argc > 2 && std::string_view(argv[2]) == "--memory";
  const bool causal_memory = argc > 3 && std::string_view(argv[3]) == "--causal";
  if ((argc > 1 && one < 1) || (argc > 2 && !memory) || (argc > 3 && !causal_memory) || argc > 4) {
    std::fprintf(stderr, "usage: statistics_bench [TOKENS [--memory [--causal]]]\n");
    return 2;
  }
  if (memory) return run_within_memory(one, causal_memory) ? 0 : 1;
  for (const bool causal : {false, true}) {
    for (const Index length : one > 0 ? std::vector<Index>{one} : std::vector<Index>{512, 2048, 8192})
      measure(length, causal, one > 16384 ? 1 : 15);
  }
}
