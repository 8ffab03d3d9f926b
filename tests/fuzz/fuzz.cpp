// The helpers of fuzz.h. mutate_one needs libFuzzer's own mutator, which programs that replay the corpus do not have: there it is absent.
#include "fuzz/fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>

namespace mha::test {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: broken: %s\n", what);
  std::abort();
}

void require_line(const std::exception& error) {
  const std::string_view text = error.what();
  require(text.size() < 600, "a message is a line, not the file");
  require(std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; }), "a message is printable");
}

void touch(std::span<const std::byte> bytes) {
  [[maybe_unused]] static volatile unsigned sum = 0;  // volatile: the reading must happen
  sum = std::accumulate(bytes.begin(), bytes.end(), 0U, [](unsigned a, std::byte b) { return a + std::to_integer<unsigned>(b); });
}

}  // namespace mha::test

#ifdef MHA_LIBFUZZER
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

void mha::test::mutate_one(Parts& parts, std::size_t most, unsigned seed) {
  std::vector<std::uint8_t>& chosen = seed % 4 == 0 ? parts.second : parts.first;
  const std::size_t other = (&chosen == &parts.first ? parts.second : parts.first).size();
  if (most <= other) return;
  const std::size_t size = std::min(chosen.size(), most - other);
  chosen.resize(most - other);
  chosen.resize(LLVMFuzzerMutate(chosen.data(), size, chosen.size()));
}
#endif
