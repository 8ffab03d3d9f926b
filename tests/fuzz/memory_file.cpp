// Stands in for src/core/mmap.cpp in the fuzz programs: a file is a block of the heap of exactly its size, so that the address sanitizer
// sees a read behind its end, which inside the last page of a mapping nobody does; and nothing is written to any disk.
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "core/mmap.h"
#include "fuzz/fuzz.h"

namespace mha {
namespace {

std::span<const std::uint8_t>& current() {
  static std::span<const std::uint8_t> bytes;
  return bytes;
}

}  // namespace

void test::set_file(std::span<const std::uint8_t> bytes) { current() = bytes; }

namespace core {

MappedFile::MappedFile(const std::string&) : size_(current().size()) {
  if (size_ == 0) return;
  data_ = std::malloc(size_);
  if (data_ == nullptr) throw std::bad_alloc();
  std::memcpy(data_, current().data(), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() { std::free(data_); }

}  // namespace core
}  // namespace mha
