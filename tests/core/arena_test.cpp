// The arena: alignment, stack discipline, growth without moving what is in use, and no allocation on a repeated call.
#include "core/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "support/gen.h"

namespace mha {
namespace {

TEST(ArenaTest, TakesAreAlignedAndDisjoint) {
  Arena arena;
  const ArenaScope scope(arena);
  std::vector<std::pair<char*, Index>> taken;
  for (const Index bytes : {1, 63, 64, 65, 1000, 0, 7, 100'000, 3}) {
    char* memory = arena.take<char>(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kAlignment, 0U);
    std::memset(memory, static_cast<int>(taken.size()), static_cast<std::size_t>(bytes));
    taken.emplace_back(memory, bytes);
  }
  for (std::size_t i = 0; i < taken.size(); ++i) {
    for (Index byte = 0; byte < taken[i].second; ++byte) ASSERT_EQ(taken[i].first[byte], static_cast<char>(i));
  }
}

TEST(ArenaTest, AScopeGivesBack) {
  Arena arena;
  const ArenaScope outer(arena);
  float* kept = arena.take<float>(10);
  kept[9] = 5;
  float* first = nullptr;
  {
    const ArenaScope inner(arena);
    first = arena.take<float>(100);
  }
  const std::size_t held = arena.bytes();
  {
    const ArenaScope inner(arena);
    EXPECT_EQ(arena.take<float>(100), first);
  }
  EXPECT_EQ(arena.bytes(), held);
  EXPECT_EQ(kept[9], 5);
}

TEST(ArenaTest, TheSecondCallAllocatesNothing) {
  Arena arena;
  const auto call = [&] {
    const ArenaScope scope(arena);
    for (const Index count : {100, 5000, 3, 70'000}) static_cast<void>(arena.take<float>(count));
    return arena.bytes();
  };
  call();
  const std::size_t held = arena.bytes();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(), held);
  EXPECT_EQ(arena.bytes(), held);
}

TEST(ArenaTest, MoreThanThereIsIsRefused) {
  Arena arena;
  const ArenaScope scope(arena);
  constexpr Index kMost = std::numeric_limits<Index>::max();
  for (const Index count : {kMost, kMost / 4, kMost / 8 + 1, Index{-1}}) EXPECT_THROW(arena.take<double>(count), std::bad_alloc) << count;
  std::memset(arena.take<double>(8), 1, 64);
}

TEST(ArenaTest, ReserveMakesTakesFree) {
  Arena arena;
  arena.reserve(64 + 128 + 4096);
  const std::size_t held = arena.bytes();
  EXPECT_GE(held, 64U + 128U + 4096U);
  const ArenaScope scope(arena);
  static_cast<void>(arena.take<char>(10));
  static_cast<void>(arena.take<char>(100));
  static_cast<void>(arena.take<char>(4096));
  EXPECT_EQ(arena.bytes(), held);
}

TEST(ArenaTest, NestedScopesNeverHandOutMemoryInUse) {
  test::check("values written into every live take survive", [] {
    Arena arena;
    std::vector<std::unique_ptr<ArenaScope>> scopes;
    std::vector<std::vector<std::pair<int*, Index>>> live;
    int mark = 0;
    for (int step = 0; step < 60; ++step) {
      const int action = *rc::gen::inRange(0, 4);
      if (action == 0 || scopes.empty()) {
        scopes.push_back(std::make_unique<ArenaScope>(arena));
        live.emplace_back();
      } else if (action == 1) {
        for (const auto& [memory, count] : live.back()) {
          for (Index i = 1; i < count; ++i) RC_ASSERT(memory[i] == memory[0]);
        }
        live.pop_back();
        scopes.pop_back();
      } else {
        const Index count = *rc::gen::inRange<Index>(1, 2000);
        int* memory = arena.take<int>(count);
        ++mark;
        for (Index i = 0; i < count; ++i) memory[i] = mark;
        live.back().emplace_back(memory, count);
      }
    }
    while (!scopes.empty()) {
      for (const auto& [memory, count] : live.back()) {
        for (Index i = 1; i < count; ++i) RC_ASSERT(memory[i] == memory[0]);
      }
      live.pop_back();
      scopes.pop_back();
    }
  });
}

}  // namespace
}  // namespace mha
