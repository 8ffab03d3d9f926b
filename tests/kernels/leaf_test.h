// Fixture of all leaf tests: the table of the ISA under test, and numbers in memory between two forbidden pages. Every leaf test runs twice
// per ISA: once with all memory flush with the page behind it, once with the page before it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/table.h"
#include "support/guard.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
/// What outputs hold before a leaf runs, to see what it left alone.
inline constexpr float kUntouched = -12345.0F;

/// The side on which the running test's memory is flush with a forbidden page.
inline Guard leaf_guard = Guard::After;

inline constexpr std::string_view kBefore = "_before";

/// Every ISA with a kernel table, and the same name with kBefore.
inline std::vector<std::string> leaf_params() {
  std::vector<std::string> params;
  for (const std::string& isa : kernel_isas()) {
    params.push_back(isa);
    params.push_back(isa + std::string(kBefore));
  }
  return params;
}

class LeafTest : public IsaTest {
 protected:
  std::string isa() const override { return GetParam().substr(0, GetParam().find('_')); }
  void SetUp() override {
    leaf_guard = GetParam().ends_with(kBefore) ? Guard::Before : Guard::After;
    IsaTest::SetUp();
  }
  static const kernels::KernelTable& table() { return *kernels::current(); }
  static Index lanes() { return table().lanes; }
};

inline Guarded<float> normals(Index count, std::uint64_t seed, Guard guard = leaf_guard) {
  Guarded<float> numbers(count, guard);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (float& number : numbers) number = normal(random);
  return numbers;
}

inline Guarded<float> filled(Index count, float value, Guard guard = leaf_guard) {
  Guarded<float> numbers(count, guard);
  for (float& number : numbers) number = value;
  return numbers;
}

inline Guarded<float> copy_of(const Guarded<float>& from) {
  Guarded<float> numbers(static_cast<Index>(from.size()), leaf_guard);
  std::copy(from.begin(), from.end(), numbers.begin());
  return numbers;
}

/// Equal bits, or both NaN.
inline bool same(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b); }

}  // namespace mha::test
