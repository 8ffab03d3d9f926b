// Scratch memory: a stack of 64-byte aligned blocks that grows and never shrinks. What lies behind Workspace. Not thread-safe.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "mha/tensor.h"

namespace mha {

inline constexpr std::size_t kAlignment = 64;

/// Uninitialised memory of at least `bytes`, aligned to kAlignment; throws std::bad_alloc.
void* aligned_allocate(std::size_t bytes);
void aligned_free(void* memory);

class Arena {
 public:
  /// Room for `count` objects of a trivial type. Valid until the ArenaScope it was taken in ends. Throws std::bad_alloc where there is
  /// none, a count of more bytes than 63 bits included.
  template <class T>
  T* take(Index count) {
    if (count < 0 || count > std::numeric_limits<Index>::max() / static_cast<Index>(sizeof(T))) throw std::bad_alloc();
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }
  /// Makes sure that takes of `bytes` in all (each rounded up to kAlignment) allocate nothing.
  void reserve(std::size_t bytes);
  std::size_t bytes() const;

 private:
  friend class ArenaScope;
  struct Free {
    void operator()(std::byte* memory) const { aligned_free(memory); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t size = 0;
    std::size_t used = 0;
  };
  void* take_bytes(std::size_t bytes);
  void add_block(std::size_t bytes);
  void merge();

  std::vector<Block> blocks_;
  std::size_t current_ = 0;  // block that takes come from; those after it are empty
  int scopes_ = 0;
};

/// Everything taken from the arena during its life is given back at its end. Scopes nest.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena);
  ~ArenaScope();
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  std::size_t block_;
  std::size_t used_;
};

}  // namespace mha
