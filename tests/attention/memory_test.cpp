// Memory is O(tile) per thread: 16,384 tokens, 8 heads, head_dim 64 must stay below 64 MiB beyond inputs and outputs. Measured two ways:
// what the workspace holds, and how far the process's peak resident size rises during the call.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "support/executors.h"
#include "support/isa_test.h"
#include "support/near.h"
#include "support/problem.h"

namespace mha::test {
namespace {

constexpr std::size_t kLimit = std::size_t{64} << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // shadow memory and slow code: fewer tokens per row, no resident size
#else
constexpr bool kSanitized = false;
#endif

/// Peak resident bytes since the last reset; 0 where the kernel does not say.
std::size_t peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6)) * 1024;
  }
  return 0;
}

bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << "5" << std::flush);
}

class MemoryTest : public IsaTest {
 protected:
  /// Every row sees every key before it; slow ISAs and sanitizers look at a window of them, which asks for the same memory or more.
  static AttentionSpec spec() {
    const bool fast = !kSanitized && current_isa() != "scalar";
    return {.mask = fast ? causal() : causal() & window(255)};
  }
  static void check(int threads, DType dtype) {
    const Dims shape = {1, 16'384, 8, 64};
    Tensor q(dtype, shape);
    Tensor k(dtype, shape);
    Tensor v(dtype, shape);
    Tensor out(dtype, shape);
    fill(v.view(), 1);  // touches every page: what comes later is growth
    fill(q.view(), 0.01);
    fill(k.view(), 0.01);
    fill(out.view(), kMark);
    ThreadExecutor executor(threads);
    const bool reset = reset_peak();
    const std::size_t before = peak_resident();
    Workspace workspace(executor.executor());
    attention_forward(spec(), {.q = q, .k = k, .v = v}, {.out = out}, workspace);
    const std::size_t after = peak_resident();
    EXPECT_LT(workspace.bytes(), kLimit);
    if (!kSanitized && reset && before > 0) {
      EXPECT_LT(after - before, kLimit) << "peak resident size rose from " << before << " to " << after;
    }
    RecordProperty("workspace_kib", static_cast<int>(workspace.bytes() >> 10));
    RecordProperty("growth_kib", static_cast<int>((after - before) >> 10));
    // It did compute: all values are 1, so every output is.
    for (const Index query : {0, 1, 8191, 16'383}) {
      EXPECT_NEAR(element(out.view(), 0, query, 7, 63), 1, element_tolerance(64, 16'384, 1, dtype));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, MemoryTest, testing::ValuesIn(kernel_isas()), isa_name);

TEST_P(MemoryTest, SixteenThousandTokensInF32) { check(2, DType::F32); }
TEST_P(MemoryTest, SixteenThousandTokensInBf16OnSixteenThreads) { check(16, DType::Bf16); }

}  // namespace
}  // namespace mha::test
