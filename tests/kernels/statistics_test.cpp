// The leaves that statistics of rows need: the first key with a value, sums by distance, and the sums softmax_update takes besides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/leaf_test.h"

namespace mha::test {
namespace {

class StatisticsLeafTest : public LeafTest {};
INSTANTIATE_TEST_SUITE_P(Isa, StatisticsLeafTest, testing::ValuesIn(leaf_params()), isa_name);

TEST_P(StatisticsLeafTest, FirstEqualFindsTheFirst) {
  for (const Index keys : {1, 2, 3, 7, 64, 129}) {
    const Index ld = lanes();
    const Guarded<float> scores = normals(keys * ld, 5);
    for (float& score : scores) score = std::round(2 * score);  // many ties
    const Guarded<float> value = filled(ld, 0.0F);
    const Guarded<float> key = filled(ld, kUntouched);
    for (Index l = 0; l < ld; ++l) value[l] = l % 3 == 2 ? 99.0F : scores[(keys - 1 - l % keys) * ld + l];
    if (ld > 1) value[1] = kNaN;  // equal to nothing
    table().first_equal(scores.data(), ld, keys, value.data(), key.data());
    for (Index l = 0; l < ld; ++l) {
      float first = kUntouched;
      for (Index k = keys - 1; k >= 0; --k) first = scores[k * ld + l] == value[l] ? static_cast<float>(k) : first;
      ASSERT_EQ(key[l], first) << "keys " << keys << " lane " << l;
    }
  }
}

TEST_P(StatisticsLeafTest, MomentsAreSumsByDistance) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const Index keys : {0, 1, 5, 128}) {
      const Index width = vectors * lanes();
      const Index ld = width + lanes();
      const Guarded<float> weights = normals(std::max<Index>(0, (keys - 1) * ld + width), 7);
      for (float& weight : weights) weight = std::abs(weight);
      const Guarded<float> from = filled(width, 0.0F);
      for (Index l = 0; l < width; ++l) from[l] = static_cast<float>((l * 37) % 200 - 20);
      const Guarded<float> distance = filled(width, 3.0F);
      const Guarded<float> square = filled(width, 5.0F);
      table().add_moments(weights.data(), ld, vectors, keys, {10.0F, from.data(), distance.data(), square.data()});
      for (Index l = 0; l < width; ++l) {
        double one = 3;
        double two = 5;
        for (Index k = 0; k < keys; ++k) {
          const double away = std::abs(static_cast<double>(10 + k) - static_cast<double>(from[l]));
          one += static_cast<double>(weights[k * ld + l]) * away;
          two += static_cast<double>(weights[k * ld + l]) * away * away;
        }
        ASSERT_NEAR(distance[l], one, dot_tolerance(keys + 1) * one) << vectors << " vectors, " << keys << " keys, lane " << l;
        ASSERT_NEAR(square[l], two, dot_tolerance(keys + 2) * two) << vectors << " vectors, " << keys << " keys, lane " << l;
      }
    }
  }
}

/// Lists of every length take in tile after tile, as sorting all scores would have it: ties by key, NaN and -inf passed over.
TEST_P(StatisticsLeafTest, LargestAreKeptSorted) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const int count : {1, 2, 3, 8, 32}) {
      const Index width = vectors * lanes();
      const Index ld = width + lanes();
      const Index size = (count - 1) * ld + width;
      const Guarded<float> score = filled(size, -kInf);
      const Guarded<std::int32_t> key(size, leaf_guard);
      std::fill(key.begin(), key.end(), -1);
      std::vector<std::vector<std::pair<float, std::int32_t>>> all(static_cast<std::size_t>(width));
      std::int32_t first = 0;
      for (const Index keys : {1, 7, 128, 33, 50}) {
        const Guarded<float> scores = normals((keys - 1) * ld + width, static_cast<std::uint64_t>(first + 3));
        for (float& one : scores) one = one > 1.5F ? kNaN : one < -1.5F ? -kInf : std::round(4 * one);
        table().keep_largest(scores.data(), ld, vectors, keys, first, {score.data(), key.data(), count});
        for (Index k = 0; k < keys; ++k, ++first) {
          for (Index l = 0; l < width; ++l) {
            const float one = scores[k * ld + l];
            if (one > -kInf) all[static_cast<std::size_t>(l)].emplace_back(-one, first);
          }
        }
        for (Index l = 0; l < width; ++l) {
          auto& sorted = all[static_cast<std::size_t>(l)];
          std::sort(sorted.begin(), sorted.end());
          for (int j = 0; j < count; ++j) {
            const bool there = j < static_cast<int>(sorted.size());
            ASSERT_EQ(score[j * ld + l], there ? -sorted[static_cast<std::size_t>(j)].first : -kInf) << count << " lane " << l;
            ASSERT_EQ(key[j * ld + l], there ? sorted[static_cast<std::size_t>(j)].second : -1) << count << " lane " << l;
          }
        }
      }
    }
  }
}

/// The sums besides are of the tile alone, and asking for them changes no other bit.
TEST_P(StatisticsLeafTest, SoftmaxSumsWhatIsAskedFor) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    const Index keys = 37;
    const Index ld = vectors * lanes();
    const Guarded<float> scores = normals(keys * ld, 11);
    for (Index i = 0; i < keys * ld; i += 5) scores[i] = -kInf;  // hidden
    const Guarded<float> plain = copy_of(scores);
    const Guarded<float> before = copy_of(scores);
    const Guarded<float> tile_max = filled(ld, -kInf);
    for (Index i = 0; i < keys * ld; ++i) tile_max[i % ld] = std::max(tile_max[i % ld], scores[i]);
    const Guarded<kernels::Strip> strip(1, leaf_guard);
    strip[0] = {.key = 0, .count = static_cast<int>(keys), .first_vector = 0, .vectors = vectors, .partial = false};
    const Guarded<float> max = filled(ld, 0.5F), sum = filled(ld, 2.0F), alpha = filled(ld, kUntouched);
    const Guarded<float> plain_max = filled(ld, 0.5F), plain_sum = filled(ld, 2.0F), plain_alpha = filled(ld, kUntouched);
    const Guarded<float> spread = filled(ld, kUntouched), weight = filled(ld, kUntouched);
    const bool grown = table().softmax_update(scores.data(), ld, vectors, strip.data(), 1, tile_max.data(),
                                              {max.data(), sum.data(), alpha.data(), spread.data(), weight.data()});
    EXPECT_EQ(grown, table().softmax_update(plain.data(), ld, vectors, strip.data(), 1, tile_max.data(),
                                            {plain_max.data(), plain_sum.data(), plain_alpha.data()}));
    for (Index i = 0; i < keys * ld; ++i) ASSERT_TRUE(same(scores[i], plain[i]));
    for (Index l = 0; l < ld; ++l) {
      ASSERT_TRUE(same(max[l], plain_max[l]) && same(sum[l], plain_sum[l]) && same(alpha[l], plain_alpha[l]));
      double total = 0, spread_sum = 0;
      for (Index k = 0; k < keys; ++k) {
        const double x = static_cast<double>(before[k * ld + l]) - static_cast<double>(max[l]);
        total += std::exp(x);
        spread_sum += x < -1e30 ? 0 : std::exp(x) * x;
      }
      const double relative = dot_tolerance(keys) + exp_tolerance(10);
      ASSERT_NEAR(weight[l], total, relative * total);
      ASSERT_NEAR(spread[l], spread_sum, relative * std::abs(spread_sum));
    }
  }
}

TEST_P(StatisticsLeafTest, SumsOfWeights) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const Index keys : {0, 1, 33}) {
      const Index width = vectors * lanes();
      const Index ld = width + lanes();
      const Guarded<float> weights = normals(std::max<Index>(0, (keys - 1) * ld + width), 3);
      for (float& weight : weights) weight = std::abs(weight);
      const Guarded<float> sums = filled(keys * lanes(), 2.0F);
      table().add_vectors(weights.data(), ld, vectors, keys, sums.data());
      for (Index k = 0; k < keys; ++k) {
        for (Index l = 0; l < lanes(); ++l) {
          double sum = 2;
          for (int v = 0; v < vectors; ++v) sum += static_cast<double>(weights[k * ld + v * lanes() + l]);
          ASSERT_NEAR(sums[k * lanes() + l], sum, dot_tolerance(vectors) * sum);
        }
      }
      const Guarded<float> total = filled(width, kUntouched);
      const Guarded<float> top = filled(width, kUntouched);
      table().sum_and_max(weights.data(), ld, vectors, keys, total.data(), top.data());
      for (Index l = 0; l < width; ++l) {
        double sum = 0;
        float largest = 0;
        for (Index k = 0; k < keys; ++k) {
          sum += static_cast<double>(weights[k * ld + l]);
          largest = std::max(largest, weights[k * ld + l]);
        }
        ASSERT_NEAR(total[l], sum, dot_tolerance(keys) * sum);
        ASSERT_EQ(top[l], largest);
      }
    }
  }
}

}  // namespace
}  // namespace mha::test
