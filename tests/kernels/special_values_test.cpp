// NaN, infinities, denormals, FLT_MAX and -0 through every leaf that does arithmetic, in whole vectors and in tails: each result is what
// one IEEE operation on the same operands gives, and nothing leaks into a neighbour. (exp has its own in softmax_test.cpp, tanh in
// softcap_test.cpp, conversions in convert_test.cpp.)
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

#include "core/float_mode.h"
#include "kernels/leaf_test.h"

namespace mha::test {
namespace {

class LeafSpecialsTest : public LeafTest {};
INSTANTIATE_TEST_SUITE_P(Isa, LeafSpecialsTest, testing::ValuesIn(leaf_params()), isa_name);

constexpr float kDenormal = FLT_MIN / 8;
constexpr float kSpecials[] = {kNaN, kInf, -kInf, FLT_MAX, -FLT_MAX, FLT_MIN, -FLT_MIN, kDenormal, -kDenormal, 0.0F, -0.0F, 1.0F, -2.0F};

/// Equal as numbers (so +0 equals -0, which a sum that starts at +0 cannot tell), or both NaN.
testing::AssertionResult is(float got, float expected) {
  if (got == expected || (std::isnan(got) && std::isnan(expected))) return testing::AssertionSuccess();
  return testing::AssertionFailure() << got << " instead of " << expected;
}

/// What one product is: `scores` over one dimension, keys and lanes all pairs of specials.
TEST_P(LeafSpecialsTest, ScoresOfEveryPair) {
  constexpr auto kCount = static_cast<Index>(std::size(kSpecials));
  const int vectors = table().panel_vectors;
  const Index ld = vectors * lanes();
  const Guarded<float> keys = filled(kCount, 0);
  std::copy(std::begin(kSpecials), std::end(kSpecials), keys.begin());
  const Guarded<float> queries = filled(ld, 0);
  for (Index l = 0; l < ld; ++l) queries[l] = kSpecials[l % kCount];
  const Guarded<float> scores = filled(kCount * ld, kUntouched);
  const Guarded<float> max = filled(ld, -kInf);
  table().scores({keys.data(), 1, kCount, 1}, queries.data(), ld, vectors, scores.data(), max.data());
  for (Index l = 0; l < ld; ++l) {
    float largest = -kInf;
    for (Index k = 0; k < kCount; ++k) {
      const float expected = keys[k] * queries[l];
      EXPECT_TRUE(is(scores[k * ld + l], expected)) << keys[k] << " times " << queries[l];
      if (expected > largest) largest = expected;
    }
    EXPECT_EQ(max[l], largest) << "lane " << l;
  }
}

/// One special among ordinary numbers, at every place of a row: it reaches the scores of its own key and no other.
TEST_P(LeafSpecialsTest, ScoresKeepASpecialInItsRow) {
  const Index count = 11;
  for (const Index dim : {1, 5, 16, 33}) {
    for (const float special : {kNaN, kInf, -kInf}) {
      for (Index at = 0; at < dim; ++at) {
        const Guarded<float> keys = filled(count * dim, 1.0F);
        keys[7 * dim + at] = special;
        const Guarded<float> queries = filled(dim * lanes(), 0.5F);
        const Guarded<float> scores = filled(count * lanes(), kUntouched);
        table().scores({keys.data(), dim, count, dim}, queries.data(), lanes(), 1, scores.data(), nullptr);
        for (Index i = 0; i < count * lanes(); ++i) {
          const float expected = i / lanes() == 7 ? special : 0.5F * static_cast<float>(dim);
          ASSERT_TRUE(is(scores[i], expected)) << "dim " << dim << " at " << at << " key " << i / lanes();
        }
      }
    }
  }
}

TEST_P(LeafSpecialsTest, LinearKeepsASpecialInItsRowAndColumn) {
  const Index width = table().panel_vectors * lanes();
  const Index dim = 3;
  const Index count = 9;
  for (const float special : {kNaN, kInf, -kInf, FLT_MAX}) {
    for (const Index columns : {Index{1}, lanes() + 1, width}) {
      const Guarded<float> x = filled(count * dim, 1.0F);
      const Guarded<float> panel = filled(dim * width, 2.0F);
      const Guarded<float> init = filled(width, 0.0F);
      const Guarded<float> y = filled(count * columns, kUntouched);
      x[4 * dim + 1] = special;                  // the whole of row 4
      panel[2 * width + columns - 1] = special;  // the whole of the last column
      table().linear({x.data(), dim, count, dim}, panel.data(), init.data(), columns, y.data(), columns);
      for (Index r = 0; r < count; ++r) {
        for (Index n = 0; n < columns; ++n) {
          const float from_row = r == 4 ? special * 2 : 2.0F;
          const float from_column = n == columns - 1 ? special : 2.0F;
          ASSERT_TRUE(is(y[r * columns + n], 2.0F + from_row + from_column)) << special << " row " << r << " column " << n;
        }
      }
    }
  }
}

/// alpha * acc + value * weight, all pairs; -0 weights and denormals included.
TEST_P(LeafSpecialsTest, AccumulateOfEveryPair) {
  constexpr auto kCount = static_cast<Index>(std::size(kSpecials));
  const int vectors = table().panel_vectors;
  const Index ld = vectors * lanes();
  for (const bool with_alpha : {false, true}) {
    const Guarded<float> values = filled(kCount, 0);  // one key, kCount dims
    std::copy(std::begin(kSpecials), std::end(kSpecials), values.begin());
    const Guarded<float> weights = filled(ld, 0);
    for (Index l = 0; l < ld; ++l) weights[l] = kSpecials[l % kCount];
    const Guarded<float> alpha = filled(ld, 0.5F);
    const Guarded<float> acc = filled(kCount * ld, 1.0F);
    table().accumulate({values.data(), kCount, 1, kCount}, weights.data(), ld, vectors, with_alpha ? alpha.data() : nullptr, acc.data());
    for (Index d = 0; d < kCount; ++d) {
      for (Index l = 0; l < ld; ++l) {
        EXPECT_TRUE(is(acc[d * ld + l], std::fma(values[d], weights[l], with_alpha ? 0.5F : 1.0F))) << values[d] << " times " << weights[l];
      }
    }
  }
}

/// A value that is not finite reaches its own dimension of the lanes that see it, and nothing else.
TEST_P(LeafSpecialsTest, AccumulateVisibleKeepsASpecialInItsColumn) {
  for (const Index dim : {1, 2, 9, 17}) {
    for (const float special : {kNaN, kInf, -kInf}) {
      const Index count = 5;
      for (Index at = 0; at < dim; ++at) {
        const Guarded<float> values = filled(count * dim, 1.0F);
        values[2 * dim + at] = special;
        const Guarded<float> weights = filled(count * lanes(), 0.25F);
        const Guarded<std::uint16_t> visible(count, leaf_guard);
        for (Index k = 0; k < count; ++k) visible[k] = 0xFFFF;
        visible[2] = 0xA5A5;
        const Guarded<float> acc = filled(dim * lanes(), 3.0F);
        table().accumulate_visible({values.data(), dim, count, dim}, weights.data(), lanes(), visible.data(), acc.data());
        for (Index i = 0; i < dim * lanes(); ++i) {
          const bool sees = (0xA5A5 >> (i % lanes()) & 1) != 0;
          const float expected = !sees ? 4.0F : i / lanes() == at ? special : 4.25F;
          ASSERT_TRUE(is(acc[i], expected)) << "dim " << dim << " d " << i / lanes() << " lane " << i % lanes();
        }
      }
    }
  }
}

TEST_P(LeafSpecialsTest, BiasOfEveryPair) {
  constexpr auto kCount = static_cast<Index>(std::size(kSpecials));
  std::vector<Guarded<float>> rows;
  const Guarded<const float*> pointers(lanes(), leaf_guard);
  for (Index l = 0; l < lanes(); ++l) {
    rows.push_back(filled(kCount, 0));
    std::copy(std::begin(kSpecials), std::end(kSpecials), rows.back().begin());
    pointers[l] = rows.back().data();
  }
  for (Index shift = 0; shift < kCount; ++shift) {
    const Guarded<float> scores = filled(kCount * lanes(), 0);
    const auto score = [&](Index k, Index l) { return kSpecials[(k + l + shift) % kCount]; };
    for (Index i = 0; i < kCount * lanes(); ++i) scores[i] = score(i / lanes(), i % lanes());
    table().add_bias(scores.data(), lanes(), kCount, pointers.data());
    for (Index i = 0; i < kCount * lanes(); ++i) {
      const float before = score(i / lanes(), i % lanes());
      const float bias = kSpecials[i / lanes()];
      EXPECT_TRUE(is(scores[i], bias == -kInf ? -kInf : before + bias)) << before << " plus " << bias;
    }
  }
}

/// What is hidden becomes -inf whatever it was; what is not keeps its bits; the maximum is over what is left, without NaN.
TEST_P(LeafSpecialsTest, HidingSelectsAmongSpecials) {
  constexpr auto kCount = static_cast<Index>(std::size(kSpecials));
  for (Index shift = 0; shift < kCount; ++shift) {
    const auto score = [&](Index k) { return kSpecials[(k + shift) % kCount]; };
    const auto check = [&](const Guarded<float>& scores, const Guarded<float>& max, auto&& sees) {
      for (Index l = 0; l < lanes(); ++l) {
        float largest = -kInf;
        for (Index k = 0; k < kCount; ++k) {
          const float expected = sees(k, l) ? score(k) : -kInf;
          ASSERT_TRUE(same(scores[k * lanes() + l], expected)) << "key " << k << " lane " << l;
          if (expected > largest) largest = expected;
        }
        ASSERT_EQ(max[l], largest) << "lane " << l;
      }
    };
    const Guarded<float> scores = filled(kCount * lanes(), 0);
    for (Index i = 0; i < kCount * lanes(); ++i) scores[i] = score(i / lanes());
    const Guarded<float> max = filled(lanes(), -kInf);
    table().row_max(scores.data(), lanes(), 1, kCount, max.data());
    check(scores, max, [](Index, Index) { return true; });

    const Guarded<float> bounded = copy_of(scores);
    const Guarded<std::int32_t> lo(lanes(), leaf_guard);
    const Guarded<std::int32_t> hi(lanes(), leaf_guard);
    for (Index l = 0; l < lanes(); ++l) {
      lo[l] = static_cast<std::int32_t>(l % 5);
      hi[l] = static_cast<std::int32_t>(kCount - l % 3);
    }
    std::fill(max.begin(), max.end(), -kInf);
    table().hide_outside(bounded.data(), lanes(), 1, kCount, lo.data(), hi.data(), max.data());
    check(bounded, max, [&](Index k, Index l) { return lo[l] <= k && k < hi[l]; });

    const Guarded<float> bits = copy_of(scores);
    const Guarded<std::uint16_t> visible(kCount, leaf_guard);
    for (Index k = 0; k < kCount; ++k) visible[k] = static_cast<std::uint16_t>(0x3C5A << (k % 3));
    std::fill(max.begin(), max.end(), -kInf);
    table().hide_bits(bits.data(), lanes(), kCount, visible.data(), max.data());
    check(bits, max, [&](Index k, Index l) { return (visible[k] >> l & 1) != 0; });
  }
}

/// The two transposes multiply once: every special by an ordinary factor and by a special one.
TEST_P(LeafSpecialsTest, RowsInAndOutMultiplyOnce) {
  constexpr auto kCount = static_cast<Index>(std::size(kSpecials));
  for (const Index dim : {Index{1}, Index{7}, kCount, 2 * kCount}) {
    std::vector<Guarded<float>> rows;
    const Guarded<const float*> from(lanes(), leaf_guard);
    const Guarded<float*> to(lanes(), leaf_guard);
    for (Index l = 0; l < lanes(); ++l) {
      rows.push_back(filled(dim, 0));
      for (Index d = 0; d < dim; ++d) rows.back()[d] = kSpecials[(d + l) % kCount];
      from[l] = rows.back().data();
      to[l] = rows.back().data();
    }
    for (const float scale : {0.5F, -1.0F, 0.0F, 4.0F, kInf}) {
      const Guarded<float> dst = filled(dim * lanes(), kUntouched);
      table().load_queries(from.data(), static_cast<int>(lanes()), dim, scale, dst.data(), lanes());
      for (Index i = 0; i < dim * lanes(); ++i) {
        const float row = kSpecials[(i / lanes() + i % lanes()) % kCount];
        ASSERT_TRUE(is(dst[i], scale * row)) << scale << " times " << row;
      }
    }
    const Guarded<float> src = filled(dim * lanes(), 0);
    const Guarded<float> factor = filled(lanes(), 0);
    for (Index i = 0; i < dim * lanes(); ++i) src[i] = kSpecials[(3 * (i / lanes()) + i % lanes()) % kCount];
    for (Index l = 0; l < lanes(); ++l) factor[l] = kSpecials[(l + 5) % kCount];
    table().store_rows(src.data(), lanes(), static_cast<int>(lanes()), dim, factor.data(), to.data());
    for (Index i = 0; i < dim * lanes(); ++i) {
      const Index l = i % lanes();
      ASSERT_TRUE(is(rows[static_cast<std::size_t>(l)][i / lanes()], src[i] * factor[l])) << src[i] << " times " << factor[l];
    }
    const Guarded<float> acc = copy_of(src);
    table().rescale(acc.data(), lanes(), 1, dim, factor.data());
    for (Index i = 0; i < dim * lanes(); ++i)
      ASSERT_TRUE(is(acc[i], src[i] * factor[i % lanes()])) << src[i] << " times " << factor[i % lanes()];
  }
}

TEST_P(LeafSpecialsTest, FiniteIsWhatHasAnEnd) {
  for (const Index dim : {1, 7, 16, 17, 40}) {
    for (const float special : kSpecials) {
      for (Index at = 0; at < 2 * dim; ++at) {
        const Guarded<float> values = filled(2 * dim, -FLT_MAX);
        values[at] = special;
        ASSERT_EQ(table().all_finite({values.data(), dim, 2, dim}), std::isfinite(special)) << special << " at " << at << " of 2 x " << dim;
      }
    }
  }
}

/// A row whose maximum is +inf is NaN where it was +inf, 0 elsewhere before the sum; -FLT_MAX beside FLT_MAX is exactly 0.
TEST_P(LeafSpecialsTest, SoftmaxOfInfiniteAndExtremeRows) {
  const Index keys = 5;
  const Guarded<float> scores = filled(keys * lanes(), 0.0F);
  for (Index l = 0; l < lanes(); ++l) {
    scores[1 * lanes() + l] = l % 2 == 0 ? kInf : FLT_MAX;
    scores[3 * lanes() + l] = -FLT_MAX;
    scores[4 * lanes() + l] = -kInf;
  }
  const Guarded<float> max = filled(lanes(), -kInf);
  const Guarded<float> sum = filled(lanes(), 0.0F);
  const Guarded<float> alpha = filled(lanes(), kUntouched);
  const Guarded<float> tile_max = filled(lanes(), -kInf);
  table().row_max(scores.data(), lanes(), 1, keys, tile_max.data());
  const kernels::Strip strip = {0, static_cast<int>(keys), 0, 1, false};
  table().softmax_update(scores.data(), lanes(), 1, &strip, 1, tile_max.data(), {max.data(), sum.data(), alpha.data()});
  for (Index l = 0; l < lanes(); ++l) {
    for (const Index k : {0, 2, 3, 4}) EXPECT_TRUE(same(scores[k * lanes() + l], 0.0F)) << "key " << k << " lane " << l;
    if (l % 2 == 0) {
      EXPECT_TRUE(std::isnan(scores[1 * lanes() + l]) && std::isnan(sum[l])) << "inf - inf, lane " << l;
    } else {
      EXPECT_NEAR(static_cast<double>(scores[1 * lanes() + l]), 1, exp_tolerance(0));
      EXPECT_EQ(sum[l], scores[1 * lanes() + l]);
    }
  }
}

/// Inside a task results below the smallest normal number are 0, and denormal operands are still read as what they are.
TEST_P(LeafSpecialsTest, DenormalResultsAreFlushedInsideATask) {
  const Guarded<float> keys = filled(1, FLT_MIN);
  const Guarded<float> denormal = filled(1, kDenormal);
  const Guarded<float> queries = filled(lanes(), 0.25F);
  const Guarded<float> large = filled(lanes(), 64.0F);
  const Guarded<float> flushed = filled(lanes(), kUntouched);
  const Guarded<float> kept = filled(lanes(), kUntouched);
  const Guarded<float> outside = filled(lanes(), kUntouched);
  {
    const core::FlushDenormals mode;
    table().scores({keys.data(), 1, 1, 1}, queries.data(), lanes(), 1, flushed.data(), nullptr);
    table().scores({denormal.data(), 1, 1, 1}, large.data(), lanes(), 1, kept.data(), nullptr);
  }
  table().scores({keys.data(), 1, 1, 1}, queries.data(), lanes(), 1, outside.data(), nullptr);
  for (Index l = 0; l < lanes(); ++l) {
#if defined(__SSE2__)
    EXPECT_EQ(flushed[l], 0.0F);
#endif
    EXPECT_EQ(kept[l], 64.0F * kDenormal);
    EXPECT_EQ(outside[l], 0.25F * FLT_MIN) << "the mode ends with its scope";
  }
}

}  // namespace
}  // namespace mha::test
