// exp and the running softmax: relative error on a dense sweep, exact zeros, NaN kept, strips, and agreement with a softmax in double.
#include <gtest/gtest.h>

#include <algorithm>
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
INSTANTIATE_TEST_SUITE_P(Isa, SoftmaxTest, testing::ValuesIn(leaf_params()), isa_name);

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

/// A tile of keys and the strips of it that are computed.
struct Tile {
  Index keys;
  std::vector<Strip> strips;
};

/// A running softmax of `vectors` vectors, beside what a computation in double says it should be.
class Running {
 public:
  Running(const kernels::KernelTable& table, int vectors)
      : table_(table), lanes_(table.lanes), vectors_(vectors), width_(vectors * table.lanes), ld_(width_ + table.lanes) {}

  void step(const Tile& tile, std::uint64_t seed) {
    const Guarded<float> before = normals((tile.keys - 1) * ld_ + width_, seed);
    for (float& score : before) score *= 5;
    for (Index i = 0; i < static_cast<Index>(before.size()); i += 7) before[i] = -kInf;  // hidden
    const Guarded<float> scores = copy_of(before);
    const Guarded<float> tile_max = filled(width_, -kInf);
    const std::vector<double> old_max = true_max_;
    for (Index l = 0; l < width_; ++l) {
      for (Index k = 0; k < tile.keys; ++k) {
        if (in_strips(tile, k, l) && before[k * ld_ + l] > tile_max[l]) tile_max[l] = before[k * ld_ + l];
      }
      raise(static_cast<std::size_t>(l), static_cast<double>(tile_max[l]));
    }
    const Guarded<Strip> strips(static_cast<Index>(tile.strips.size()), leaf_guard);
    std::copy(tile.strips.begin(), tile.strips.end(), strips.begin());
    const bool grown = table_.softmax_update(scores.data(), ld_, vectors_, strips.data(), static_cast<int>(strips.size()), tile_max.data(),
                                             {max_.data(), sum_.data(), alpha_.data()});
    bool some_alpha = false;
    for (Index l = 0; l < width_; ++l) {
      expect_state(l, old_max[static_cast<std::size_t>(l)]);
      expect_weights(tile, l, before, scores);
      some_alpha |= alpha_[l] != 1.0F;
    }
    EXPECT_EQ(grown, some_alpha);
  }

 private:
  bool in_strips(const Tile& tile, Index k, Index l) const {
    return std::any_of(tile.strips.begin(), tile.strips.end(), [&](const Strip& strip) {
      return k >= strip.key && k < strip.key + strip.count && l >= strip.first_vector * lanes_ &&
             l < (strip.first_vector + strip.vectors) * lanes_;
    });
  }
  void raise(std::size_t lane, double tile_max) {
    const double old = true_max_[lane];
    true_max_[lane] = std::max(old, tile_max);
    true_sum_[lane] = old == -HUGE_VAL ? 0 : true_sum_[lane] * std::exp(old - true_max_[lane]);
  }
  void expect_state(Index l, double old_max) {
    const double new_max = true_max_[static_cast<std::size_t>(l)];
    EXPECT_EQ(static_cast<double>(max_[l]), new_max) << "lane " << l;
    if (old_max == new_max) {
      EXPECT_EQ(alpha_[l], 1.0F) << "lane " << l << ": nothing changed, nothing may be rescaled";
    } else if (old_max != -HUGE_VAL) {
      const double exact = std::exp(old_max - new_max);
      EXPECT_NEAR(static_cast<double>(alpha_[l]), exact, exp_tolerance(old_max - new_max) * exact);
    }
  }
  void expect_weights(const Tile& tile, Index l, const Guarded<float>& before, const Guarded<float>& scores) {
    double& sum = true_sum_[static_cast<std::size_t>(l)];
    double slack = dot_tolerance(160) * sum;  // 50 keys and the factors of earlier tiles
    for (Index k = 0; k < tile.keys; ++k) {
      const float score = before[k * ld_ + l];
      const float weight = scores[k * ld_ + l];
      if (!in_strips(tile, k, l)) {
        ASSERT_TRUE(same(weight, score)) << "outside the strips nothing changes";
      } else if (score == -kInf) {
        ASSERT_TRUE(same(weight, 0.0F));
      } else {
        const double x = static_cast<double>(score) - true_max_[static_cast<std::size_t>(l)];
        const double tolerance = exp_tolerance(x) + std::abs(x) * unit_roundoff(DType::F32);  // score - max is rounded too
        ASSERT_LE(std::abs(static_cast<double>(weight) - std::exp(x)), tolerance * std::exp(x) + FLT_MIN);
        sum += std::exp(x);
        slack += (tolerance + dot_tolerance(160)) * std::exp(x);
      }
    }
    ASSERT_LE(std::abs(static_cast<double>(sum_[l]) - sum), slack) << "lane " << l;
  }

  const kernels::KernelTable& table_;
  Index lanes_;
  int vectors_;
  Index width_, ld_;
  Guarded<float> max_ = filled(width_, -kInf);
  Guarded<float> sum_ = filled(width_, 0.0F);
  Guarded<float> alpha_ = filled(width_, kUntouched);
  std::vector<double> true_max_ = std::vector<double>(static_cast<std::size_t>(width_), -HUGE_VAL);
  std::vector<double> true_sum_ = std::vector<double>(static_cast<std::size_t>(width_), 0.0);
};

class Tiles : public SoftmaxTest {};
INSTANTIATE_TEST_SUITE_P(Isa, Tiles, testing::ValuesIn(leaf_params()), isa_name);

TEST_P(Tiles, UpdatesAgreeWithDouble) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    const std::vector<Tile> tiles = {
        {13, {{0, 13, 0, vectors, false}}},
        {20, {{0, 9, 0, vectors, true}, {9, 4, vectors - 1, 1, true}, {13, 7, 0, 1, true}}},
        {16, {{0, 16, 0, vectors, false}}},
        {1, {{0, 1, 0, vectors, true}}},
    };
    Running softmax(table(), vectors);
    std::uint64_t seed = 10;
    for (const Tile& tile : tiles) softmax.step(tile, ++seed);
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
