// What the fuzz targets share: a file that exists in memory alone, a check that stays in every build, and changing one part of an input.
// Used by *_fuzz.cpp; a target must let nothing but mha::Error end a reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace mha::test {

/// Whatever path is opened next holds these bytes (memory_file.cpp), until the next call.
void set_file(std::span<const std::uint8_t> bytes);

/// Ends the program where the library broke its word, so that libFuzzer keeps the input.
void require(bool holds, const char* what);

/// Requires that an error's text is one line of a modest length, whatever the file holds.
void require_line(const std::exception& error);

/// Reads every byte, so that the sanitizers see them all.
void touch(std::span<const std::byte> bytes);

/// The two parts of an input, changed by libFuzzer: one of them, chosen by the seed. Together they stay within `most` bytes.
struct Parts {
  std::vector<std::uint8_t> first, second;
};
void mutate_one(Parts& parts, std::size_t most, unsigned seed);

}  // namespace mha::test

// libFuzzer's names; replay.cpp calls the first one too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);
