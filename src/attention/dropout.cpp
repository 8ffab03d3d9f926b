#include "attention/dropout.h"

#include <array>

namespace mha::attention {

namespace {

struct Product {
  std::uint64_t high;
  std::uint64_t low;
};

Product multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
}

// Constants of Philox4x64 and the number of rounds as in the paper.
std::array<std::uint64_t, 4> philox(std::array<std::uint64_t, 4> counter, std::uint64_t seed) {
  std::uint64_t key_low = seed;
  std::uint64_t key_high = 0;
  for (int round = 0; round < 10; ++round) {
    const Product a = multiply(0xD2E7470EE14C6C93U, counter[0]);
    const Product b = multiply(0xCA5A826395121157U, counter[2]);
    counter = {b.high ^ counter[1] ^ key_low, b.low, a.high ^ counter[3] ^ key_high, a.low};
    key_low += 0x9E3779B97F4A7C15U;
    key_high += 0xBB67AE8584CAA73BU;
  }
  return counter;
}

}  // namespace

float dropout_factor(const Dropout& dropout, Index batch, Index head, Index query, Index key) {
  const auto bits = philox({static_cast<std::uint64_t>(key) / 4, static_cast<std::uint64_t>(query), static_cast<std::uint64_t>(head),
                            static_cast<std::uint64_t>(batch)},
                           dropout.seed)[static_cast<std::size_t>(key % 4)];
  const double uniform = static_cast<double>(bits >> 11) * 0x1p-53;  // [0, 1)
  const auto probability = static_cast<double>(dropout.probability);
  return uniform < probability ? 0.0F : static_cast<float>(1.0 / (1.0 - probability));
}

}  // namespace mha::attention
