// What numbers of rows, links, weight received and a map cost beside plain attention, on one thread, head_dim 64: in turn, medians of the
// ratios.
//   statistics_bench            512, 2,048 and 8,192 tokens
//   statistics_bench 131072     so many (one head, once: minutes)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
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

}  // namespace

int main(int argc, char** argv) {
  const Index one = argc > 1 ? std::atol(argv[1]) : 0;
  if (argc > 2 || (argc > 1 && one < 1)) {
    std::fprintf(stderr, "usage: statistics_bench [TOKENS]\n");
    return 2;
  }
  for (const bool causal : {false, true}) {
    for (const Index length : one > 0 ? std::vector<Index>{one} : std::vector<Index>{512, 2048, 8192})
      measure(length, causal, one > 16384 ? 1 : 15);
  }
}
