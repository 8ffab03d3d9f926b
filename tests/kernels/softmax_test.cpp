// exp and the running softmax: relative error on a dense sweep, exact zeros, NaN kept, strips, and agreement with a softmax in double.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <vector>

#include "kernels/leaf_test.h"

namespace mha::test {
namespace {

using kernels::RowState;
using kernels::Strip;

class SoftmaxTest : public LeafTest {
 protected:
  /// exp of up to `lanes` numbers, through exp_minus with maximum 0.
  static std::vector<float> exp_of(const std::vector<float>& x) {
    const auto rows = static_cast<Index>(x.size() + static_cast<std::size_t>(lanes()) - 1) / lanes();
    const Guarded<float> scores = filled(rows * lanes(), 0.0F);
    std::copy(x.begin(), x.end(), scores.begin());
    const Guarded<float> zero = filled(lanes(), 0.0F);
    table().exp_minus(scores.data(), lanes(), 1, rows, zero.data());
    return {scores.begin(), scores.begin() + x.size()};
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, SoftmaxTest, testing::ValuesIn(kernel_isas()), isa_name);

/// Relative error allowed to exp(x): 4 roundings for the polynomial, its coefficients and the last product; and |x| roundings because
/// x * log2(e) is rounded before its whole part is taken off, a quarter more because log2(e) as an f32 is off by 0.23 roundings.
double exp_tolerance(double x) { return (4 + 1.25 * std::abs(x)) * unit_roundoff(DType::F32); }

TEST_P(SoftmaxTest, ExpStaysWithinItsFormula) {
  std::vector<float> x;
  for (float value = 0; value > -87.33F; value = std::nextafter(value - 3e-5F, -kInf)) x.push_back(value);
  for (float value = 1e-30F; value < 1; value *= 1.003F) x.push_back(-value);
  const std::vector<float> got = exp_of(x);
  double worst = 0;
  double worst_near_zero = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const double error = std::abs(static_cast<double>(got[i]) - exact) / exact;
    worst = std::max(worst, error / exp_tolerance(static_cast<double>(x[i])));
    if (x[i] > -1) worst_near_zero = std::max(worst_near_zero, error);
    ASSERT_LE(error, exp_tolerance(static_cast<double>(x[i]))) << "exp(" << x[i] << ") = " << got[i];
  }
  RecordProperty("worst_share_of_tolerance_percent", static_cast<int>(100 * worst));
  RecordProperty("worst_relative_error_above_minus_1_e9", static_cast<int>(1e9 * worst_near_zero));
}

TEST_P(SoftmaxTest, ExpIsExactlyZeroWhereItWouldNotBeNormal) {
  const double limit = std::log(static_cast<double>(FLT_MIN));
  std::vector<float> x = {-kInf, -1e30F, -FLT_MAX, -1e5F, -1000.0F, -104.0F, -103.0F, -90.0F, -88.0F};
  for (float value = -87.2F; value > -88.5F; value = std::nextafter(value, -kInf)) x.push_back(value);
  const std::vector<float> got = exp_of(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(got[i] == 0 || got[i] >= FLT_MIN) << "exp(" << x[i] << ") is denormal: " << got[i];
    ASSERT_FALSE(std::signbit(got[i])) << x[i];
    const double distance = static_cast<double>(x[i]) - limit;
    const double blur = std::abs(limit) * 3 * unit_roundoff(DType::F32);  // within the rounding of x * log2(e) either answer is right
    if (std::abs(distance) <= blur) continue;
    ASSERT_EQ(got[i] > 0, distance > 0) << x[i];
  }
}

TEST_P(SoftmaxTest, ExpKeepsNaN) {
  for (Index at = 0; at < lanes(); ++at) {
    std::vector<float> x(static_cast<std::size_t>(lanes()), -1.0F);
    x[static_cast<std::size_t>(at)] = at % 2 == 0 ? kNaN : -kNaN;
    const std::vector<float> got = exp_of(x);
    for (Index l = 0; l < lanes(); ++l) ASSERT_EQ(std::isnan(got[static_cast<std::size_t>(l)]), l == at) << at;
  }
}

TEST_P(SoftmaxTest, ExpMinusIsZeroWhereTheMaximumIsMinusInfinity) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    const Index keys = 5;
    const Index ld = vectors * lanes();
    const Guarded<float> scores = filled(keys * ld, -kInf);  // a row whose maximum is -inf holds nothing else
    const Guarded<float> max = filled(ld, -kInf);
    table().exp_minus(scores.data(), ld, vectors, keys, max.data());
    for (const float weight : scores) ASSERT_TRUE(same(weight, 0.0F));
  }
}

class Tiles : public SoftmaxTest {
 protected:
  struct Tile {
    Index keys;
    std::vector<Strip> strips;
  };
  static bool in_strips(const Tile& tile, Index k, Index l) {
    for (const Strip& strip : tile.strips) {
      const bool key = k >= strip.key && k < strip.key + strip.count;
      if (key && l >= strip.first_vector * lanes() && l < (strip.first_vector + strip.vectors) * lanes()) return true;
    }
    return false;
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, Tiles, testing::ValuesIn(kernel_isas()), isa_name);

TEST_P(Tiles, UpdatesAgreeWithDouble) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    const Index ld = (vectors + 1) * lanes();
    const Index width = vectors * lanes();
    const Guarded<float> max = filled(width, -kInf);
    const Guarded<float> sum = filled(width, 0.0F);
    const Guarded<float> alpha = filled(width, kUntouched);
    std::vector<double> true_max(static_cast<std::size_t>(width), -HUGE_VAL);
    std::vector<double> true_sum(static_cast<std::size_t>(width), 0.0);
    const std::vector<Tile> tiles = {
        {13, {{0, 13, 0, vectors, false}}},
        {20, {{0, 9, 0, vectors, true}, {9, 4, vectors - 1, 1, true}, {13, 7, 0, 1, true}}},
        {16, {{0, 16, 0, vectors, false}}},
        {1, {{0, 1, 0, vectors, true}}},
    };
    std::uint64_t seed = 10;
    for (const Tile& tile : tiles) {
      const Guarded<float> before = normals((tile.keys - 1) * ld + width, ++seed);
      for (float& score : before) score *= 5;
      for (Index i = 0; i < static_cast<Index>(before.size()); i += 7) before[i] = -kInf;  // hidden
      const Guarded<float> scores = copy_of(before);
      const Guarded<float> tile_max = filled(width, -kInf);
      std::vector<double> old_max = true_max;
      for (Index l = 0; l < width; ++l) {
        const auto lane = static_cast<std::size_t>(l);
        for (Index k = 0; k < tile.keys; ++k) {
          if (in_strips(tile, k, l) && before[k * ld + l] > tile_max[l]) tile_max[l] = before[k * ld + l];
        }
        true_max[lane] = std::max(true_max[lane], static_cast<double>(tile_max[l]));
        true_sum[lane] = old_max[lane] == -HUGE_VAL ? 0 : true_sum[lane] * std::exp(old_max[lane] - true_max[lane]);
      }
      const bool grown = table().softmax_update(scores.data(), ld, vectors, tile.strips.data(), static_cast<int>(tile.strips.size()),
                                                tile_max.data(), {max.data(), sum.data(), alpha.data()});
      bool some_alpha = false;
      for (Index l = 0; l < width; ++l) {
        const auto lane = static_cast<std::size_t>(l);
        ASSERT_EQ(static_cast<double>(max[l]), true_max[lane]) << "lane " << l;
        if (old_max[lane] == true_max[lane]) {
          ASSERT_EQ(alpha[l], 1.0F) << "lane " << l << ": nothing changed, nothing may be rescaled";
        } else if (old_max[lane] != -HUGE_VAL) {
          const double step = old_max[lane] - true_max[lane];
          ASSERT_NEAR(static_cast<double>(alpha[l]), std::exp(step), exp_tolerance(step) * std::exp(step));
        }
        some_alpha |= alpha[l] != 1.0F;
        double magnitude = 0;
        for (Index k = 0; k < tile.keys; ++k) {
          const float score = before[k * ld + l];
          if (!in_strips(tile, k, l)) {
            ASSERT_TRUE(same(scores[k * ld + l], score)) << "outside the strips nothing changes";
            continue;
          }
          if (score == -kInf) {
            ASSERT_TRUE(same(scores[k * ld + l], 0.0F));
            continue;
          }
          const double x = static_cast<double>(score) - true_max[lane];
          const double exact = std::exp(x);
          const double tolerance = exp_tolerance(x) + std::abs(x) * unit_roundoff(DType::F32);  // score - max is rounded too
          ASSERT_LE(std::abs(static_cast<double>(scores[k * ld + l]) - exact), tolerance * exact + FLT_MIN);
          true_sum[lane] += exact;
          magnitude += exact * tolerance;
        }
        ASSERT_LE(std::abs(static_cast<double>(sum[l]) - true_sum[lane]), magnitude + dot_tolerance(60 + 100) * true_sum[lane]) << "lane " << l;
      }
      ASSERT_EQ(grown, some_alpha);
    }
  }
}

TEST_P(Tiles, RowsThatSeeNothingStayEmpty) {
  const Index keys = 6;
  const Guarded<float> scores = filled(keys * lanes(), -kInf);
  const Guarded<float> max = filled(lanes(), -kInf);
  const Guarded<float> sum = filled(lanes(), 0.0F);
  const Guarded<float> alpha = filled(lanes(), kUntouched);
  const Guarded<float> tile_max = filled(lanes(), -kInf);
  const Strip strip = {0, static_cast<int>(keys), 0, 1, true};
  table().softmax_update(scores.data(), lanes(), 1, &strip, 1, tile_max.data(), {max.data(), sum.data(), alpha.data()});
  for (Index l = 0; l < lanes(); ++l) {
    EXPECT_EQ(max[l], -kInf);
    EXPECT_EQ(sum[l], 0.0F);
    EXPECT_FALSE(std::isnan(alpha[l]));
  }
  for (const float weight : scores) EXPECT_TRUE(same(weight, 0.0F));
}

TEST_P(Tiles, NaNPoisonsItsOwnRowOnly) {
  const Index keys = 6;
  for (Index at = 0; at < lanes(); ++at) {
    const Guarded<float> scores = filled(keys * lanes(), 1.0F);
    scores[2 * lanes() + at] = kNaN;
    const Guarded<float> max = filled(lanes(), 0.5F);
    const Guarded<float> sum = filled(lanes(), 1.0F);
    const Guarded<float> alpha = filled(lanes(), kUntouched);
    const Guarded<float> tile_max = filled(lanes(), 1.0F);
    const Strip strip = {0, static_cast<int>(keys), 0, 1, false};
    table().softmax_update(scores.data(), lanes(), 1, &strip, 1, tile_max.data(), {max.data(), sum.data(), alpha.data()});
    for (Index l = 0; l < lanes(); ++l) ASSERT_EQ(std::isnan(sum[l]), l == at) << "NaN at " << at << ", lane " << l;
  }
}

}  // namespace
}  // namespace mha::test
