// The leaves that measure the machine do what they are timed for, and the measurements of mha/limits.h refuse what cannot be measured.
// No figure is asserted: it is the machine's.
#include "mha/limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/leaf_test.h"
#include "mha/error.h"
#include "support/errors.h"

namespace mha::test {
namespace {

class LimitsTest : public LeafTest {};
INSTANTIATE_TEST_SUITE_P(Isa, LimitsTest, testing::ValuesIn(leaf_params()), isa_name);

TEST_P(LimitsTest, ChainsMultiplyAndAdd) {
  ASSERT_GE(table().fma_floats, 8 * lanes()) << "two units times four cycles of latency";
  ASSERT_LE(table().fma_floats, kernels::kMaxFmaFloats);
  for (const Index rounds : {0, 1, 2, 37}) {
    const Guarded<float> from = normals(table().fma_floats, 1);
    const Guarded<float> values = copy_of(from);
    table().fma_chains(values.data(), rounds, 0.75F, -2.5F);
    for (Index i = 0; i < table().fma_floats; ++i) {
      double exact = static_cast<double>(from[i]);
      for (Index round = 0; round < rounds; ++round) exact = exact * 0.75 - 2.5;
      // Each round adds at most two roundings of a number below 10 + |x|; those before it shrink by 0.75, so all together by 1 / 0.25.
      EXPECT_NEAR(static_cast<double>(values[i]), exact, 4 * 2 * (10 + std::abs(static_cast<double>(from[i]))) * 0x1p-24) << rounds;
    }
  }
}

TEST_P(LimitsTest, ReadsEveryElementOnce) {
  for (const Index count : {0, 1, 2, 15, 16, 17, 127, 128, 129, 1000, 4133}) {
    const Guarded<float> ones = filled(count, 1.0F);
    EXPECT_EQ(table().read_sum(ones.data(), count), static_cast<float>(count));  // exact: whole numbers below 2^24
    if (count == 0) continue;
    ones[count - 1] = 100.0F;
    EXPECT_EQ(table().read_sum(ones.data(), count), static_cast<float>(count + 99));
  }
}

TEST_P(LimitsTest, ReadsWhatIsLargerThanCaches) {
  const Index count = (Index{4} << 20) + 5;  // 2^24 is not reached: the sums stay exact
  std::vector<float> ones(static_cast<std::size_t>(count), 1.0F);
  EXPECT_EQ(table().read_sum(ones.data(), count), static_cast<float>(count));
}

TEST_P(LimitsTest, PeaksAndBandwidthsAreNumbers) {
  const std::vector<std::byte> data(4096);
  Executor two = default_executor();
  two.concurrency = 2;
  for (const Executor& executor : {serial_executor(), two}) {
    for (const double rate : {fma_peak(isa(), executor), read_bandwidth(data, executor)}) {
      EXPECT_TRUE(std::isfinite(rate));
      EXPECT_GT(rate, 0.0);
    }
  }
}

TEST(LimitsErrorTest, WhatCannotBeMeasured) {
  EXPECT_EQ(fma_peak("reference"), 0.0);
  EXPECT_TRUE(mentions(text_of<Error>([] { static_cast<void>(fma_peak("altivec")); }), "altivec"));
  const std::vector<std::byte> data(7);
  Executor two = default_executor();
  two.concurrency = 2;
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { static_cast<void>(read_bandwidth(data, two)); }), "7 bytes", "2 threads"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([] { static_cast<void>(read_bandwidth({}, serial_executor())); }), "0 bytes"));
}

TEST(LimitsErrorTest, AThreadsOwnTimeOnlyGrows) {
  const double before = thread_seconds();
  static_cast<void>(fma_peak(current_isa()));
  EXPECT_GE(thread_seconds(), before);
}

}  // namespace
}  // namespace mha::test
