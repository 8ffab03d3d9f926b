// Runs a test under every ISA that is compiled in. What this CPU lacks is reported as skipped; the environment variable
// MHA_REQUIRE_ISA=avx512 (or a list: avx512,avx2) makes such a skip an error.
//
//   class ForwardTest : public mha::test::IsaTest {};
//   TEST_P(ForwardTest, DoesIt) { ... }
//   INSTANTIATE_TEST_SUITE_P(Isa, ForwardTest, testing::ValuesIn(mha::test::all_isas()), mha::test::isa_name);
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "mha/cpu.h"

namespace mha::test {

inline bool isa_is_required(std::string_view name) {
  const char* required = std::getenv("MHA_REQUIRE_ISA");
  if (required == nullptr) return false;
  const auto in_commas = [](std::string_view text) {
    std::string list(1, ',');  // appended to: GCC 12 warns falsely at "," + std::string (PR105651)
    return list.append(text).append(1, ',');
  };
  return in_commas(required).find(in_commas(name)) != std::string::npos;
}

/// Every ISA compiled in, supported or not, with the reference.
inline std::vector<std::string> all_isas() {
  std::vector<std::string> names;
  for (const Isa& isa : isas()) names.emplace_back(isa.name);
  return names;
}

/// Those with a kernel table.
inline std::vector<std::string> kernel_isas() {
  std::vector<std::string> names;
  for (const Isa& isa : isas()) {
    if (isa.name != "reference") names.emplace_back(isa.name);
  }
  return names;
}

inline bool isa_is_supported(std::string_view name) {
  for (const Isa& isa : isas()) {
    if (isa.name == name) return isa.supported;
  }
  return false;
}

/// The kernel ISAs this CPU has, best first: for tests that compare ISAs with each other.
inline std::vector<std::string> supported_kernel_isas() {
  std::vector<std::string> names;
  for (const std::string& name : kernel_isas()) {
    if (isa_is_supported(name)) names.push_back(name);
  }
  return names;
}

/// Puts an ISA in use until the end of the scope.
class IsaScope {
 public:
  explicit IsaScope(std::string_view name) : before_(current_isa()) { use_isa(name); }
  ~IsaScope() { use_isa(before_); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  std::string before_;
};

/// A fixture whose parameter is the name of the ISA in use during the test.
class IsaTest : public testing::TestWithParam<std::string> {
 protected:
  /// For fixtures whose parameter says more than the ISA.
  virtual std::string isa() const { return GetParam(); }
  void SetUp() override {
    if (isa_is_supported(isa())) {
      before_ = std::string(current_isa());
      use_isa(isa());
      return;
    }
    if (isa_is_required(isa())) FAIL() << "MHA_REQUIRE_ISA names " << isa() << ", which this CPU does not support";
    GTEST_SKIP() << "this CPU does not support " << isa();
  }
  void TearDown() override {
    if (!before_.empty()) use_isa(before_);
  }

 private:
  std::string before_;
};

inline std::string isa_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace mha::test
