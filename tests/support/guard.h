// Memory that ends right before, or starts right after, a page that may not be touched: catches a read or write past a view by a single
// byte, in release builds and in code the sanitizers cannot see into. The test process dies at the access, under a debugger at its line.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "mha/tensor.h"

namespace mha::test {

/// Where the forbidden page lies.
enum class Guard { After, Before };

class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t bytes, Guard guard = Guard::After) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t payload = (bytes + page - 1) / page * page;
    mapped_ = payload + 2 * page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    char* first = static_cast<char*>(base_);
    if (mprotect(first, page, PROT_NONE) != 0 || mprotect(first + page + payload, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = guard == Guard::After ? first + page + payload - bytes : first + page;
  }
  ~GuardedBytes() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }
  GuardedBytes(GuardedBytes&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), mapped_(std::exchange(other.mapped_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  void* data() const { return data_; }

 private:
  void* base_ = nullptr;
  std::size_t mapped_ = 0;
  char* data_ = nullptr;
};

/// `count` elements of T between forbidden pages, flush with the one `guard` names. Zero-filled.
template <class T>
class Guarded {
 public:
  explicit Guarded(Index count, Guard guard = Guard::After)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T), guard), count_(static_cast<std::size_t>(count)) {}
  T* data() const { return static_cast<T*>(bytes_.data()); }
  std::size_t size() const { return count_; }
  T& operator[](Index i) const { return data()[i]; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }

 private:
  GuardedBytes bytes_;
  std::size_t count_;
};

/// A dense copy of `view` between forbidden pages, and the view of it.
class GuardedTensor {
 public:
  GuardedTensor(DType dtype, const Dims& shape, Guard guard = Guard::After)
      : bytes_(static_cast<std::size_t>(element_count(shape)) * size_of(dtype), guard), view_(bytes_.data(), dtype, shape) {}
  TensorView view() const { return view_; }

 private:
  GuardedBytes bytes_;
  TensorView view_;
};

/// Zeroed address space of which only touched pages take memory; data() is null where the system gives none.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes)
      : bytes_(bytes), data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Reserved() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  void* data() const { return data_ == MAP_FAILED ? nullptr : data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace mha::test
