// softcap: cap * tanh(score / cap), against the double function on a dense sweep, and its special values.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/leaf_test.h"

namespace mha::test {
namespace {

class SoftcapTest : public LeafTest {};
INSTANTIATE_TEST_SUITE_P(Isa, SoftcapTest, testing::ValuesIn(leaf_params()), isa_name);

std::vector<float> sweep(float cap) {
  std::vector<float> scores;
  for (float y = 1e-20F; y < 60; y *= 1.0007F) {
    scores.push_back(y * cap);
    scores.push_back(-y * cap);
  }
  for (float y = 0.62F; y < 0.63F; y = std::nextafter(y + 1e-7F, 1.0F)) scores.push_back(y * cap);  // where the two forms meet
  return scores;
}

/// Six roundings of the result: of score / cap (tanh passes on at most as much), of the polynomial or the quotient, of the product.
TEST_P(SoftcapTest, AgreesWithTanh) {
  for (const float cap : {0.5F, 1.0F, 30.0F, 50.0F}) {
    const std::vector<float> x = sweep(cap);
    const auto rows = (static_cast<Index>(x.size()) + lanes() - 1) / lanes();
    const Guarded<float> scores = filled(rows * lanes(), 0.0F);
    std::copy(x.begin(), x.end(), scores.begin());
    table().softcap(scores.data(), lanes(), 1, rows, cap);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wide = static_cast<double>(cap);
      const double exact = wide * std::tanh(static_cast<double>(x[i]) / wide);
      ASSERT_NEAR(static_cast<double>(scores.begin()[i]), exact, 6 * unit_roundoff(DType::F32) * std::abs(exact)) << x[i] << " cap " << cap;
    }
  }
}

TEST_P(SoftcapTest, SpecialValues) {
  for (Index at = 0; at < lanes(); ++at) {
    for (const auto& [score, capped] : {std::pair{kInf, 3.0F}, std::pair{-kInf, -3.0F}, std::pair{3e38F, 3.0F}, std::pair{0.0F, 0.0F}}) {
      const Guarded<float> scores = filled(lanes(), 1.0F);
      scores.begin()[at] = score;
      table().softcap(scores.data(), lanes(), 1, 1, 3.0F);
      EXPECT_EQ(scores.begin()[at], capped) << score;
    }
    const Guarded<float> scores = filled(lanes(), 1.0F);
    scores.begin()[at] = kNaN;
    table().softcap(scores.data(), lanes(), 1, 1, 3.0F);
    EXPECT_TRUE(std::isnan(scores.begin()[at]));
  }
}

/// Every vector of the panel, and nothing beside or beyond it.
TEST_P(SoftcapTest, WholePanels) {
  for (int vectors = 1; vectors <= table().panel_vectors; ++vectors) {
    for (const Index keys : {0, 1, 2, 7}) {
      const Index ld = (vectors + 1) * lanes();
      const Guarded<float> scores = filled(keys == 0 ? 0 : (keys - 1) * ld + vectors * lanes(), 4.0F);
      table().softcap(scores.data(), ld, vectors, keys, 1.0F);
      for (Index i = 0; i < static_cast<Index>(scores.size()); ++i) {
        if (i % ld < vectors * lanes()) {
          ASSERT_LT(scores[i], 1.0F);
        } else {
          ASSERT_EQ(scores[i], 4.0F);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mha::test
