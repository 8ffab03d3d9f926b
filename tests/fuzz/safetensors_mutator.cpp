// How libFuzzer changes a safetensors file; compiled into the targets that read one.
#include <algorithm>
#include <cstring>

#include "fuzz/fuzz.h"

#ifdef MHA_LIBFUZZER
// Changes the header or the data and mostly writes the header's true length before it: without that nearly every change of a length would
// end at the first check.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  constexpr std::size_t kLengthBytes = 8;
  if (size < kLengthBytes || most < kLengthBytes) size = 0;
  std::uint64_t length = 0;
  if (size > 0) std::memcpy(&length, data, kLengthBytes);
  const std::uint8_t* const begin = size > 0 ? data + kLengthBytes : data;
  const std::size_t rest = size > 0 ? size - kLengthBytes : 0;
  const std::size_t cut = length < rest ? static_cast<std::size_t>(length) : rest;
  mha::test::Parts parts{.first = {begin, begin + cut}, .second = {begin + cut, begin + rest}};
  mha::test::mutate_one(parts, most - kLengthBytes, seed);
  length = seed % 64 == 7 ? length ^ (std::uint64_t{1} << (seed / 64 % 64)) : parts.first.size();
  std::memcpy(data, &length, kLengthBytes);
  std::uint8_t* to = std::copy(parts.first.begin(), parts.first.end(), data + kLengthBytes);
  to = std::copy(parts.second.begin(), parts.second.end(), to);
  return static_cast<std::size_t>(to - data);
}
#endif
