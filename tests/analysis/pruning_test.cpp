// The curve of removed heads against models really without them; Spearman's correlation against known values.
#include "mha/analysis/pruning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "mha/error.h"
#include "mha/model/prune.h"
#include "model/encoder_case.h"
#include "support/errors.h"

namespace mha {
namespace {

TEST(RankCorrelation, IsThatOfRanksWithTiesAtTheirMean) {
  const std::vector<double> rising = {-3, 0, 0.5, 1e9};
  const auto with = [&](std::vector<double> other) { return rank_correlation(rising, other); };
  EXPECT_DOUBLE_EQ(with({1, 2, 3, 4}), 1.0);
  EXPECT_DOUBLE_EQ(with({4, 3, 2, 1}), -1.0);
  EXPECT_DOUBLE_EQ(with({2, 1, 3, 4}), 1.0 - 6.0 * 2.0 / (4.0 * 15.0));  // 1 - 6 sum d^2 / (n (n^2 - 1))
  EXPECT_DOUBLE_EQ(with({3, 4, 1, 2}), 1.0 - 6.0 * 16.0 / (4.0 * 15.0));
  EXPECT_DOUBLE_EQ(with({1, 1, 2, 2}), 2.0 / std::sqrt(5.0));  // ranks 0.5 0.5 2.5 2.5: covariance 4, variances 5 and 4
  EXPECT_TRUE(std::isnan(with({7, 7, 7, 7})));
  EXPECT_TRUE(std::isnan(rank_correlation(std::vector<double>{1}, std::vector<double>{1})));
  EXPECT_TRUE(std::isnan(rank_correlation({}, {})));
  EXPECT_THROW(with({1}), ShapeError);
}

TEST(RemovalOrder, TheLeastEffectGoesFirst) {
  const std::vector<HeadEffect> effects = {{{0, 0}, 0.3, 0}, {{0, 1}, 0.1, 9}, {{1, 0}, 0.2, 0}, {{1, 1}, 0.1, 0}};
  EXPECT_EQ(removal_order(effects), (std::vector<HeadId>{{0, 1}, {1, 1}, {1, 0}, {0, 0}}));
}

TEST(RandomOrder, IsAnOrderOfAllHeadsByItsSeed) {
  std::vector<HeadId> heads;
  for (Index head = 0; head < 72; ++head) heads.push_back({head / 12, head % 12});
  std::set<std::vector<HeadId>> orders;
  std::vector<int> first(72);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    std::vector<HeadId> order = random_order(heads, seed);
    EXPECT_EQ(random_order(heads, seed), order);
    ++first[static_cast<std::size_t>(order[0].layer * 12 + order[0].head)];
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, heads);
  }
  EXPECT_EQ(orders.size(), 1000U);
  // 13.9 times each is expected; 5 standard deviations (3.7) are missed by one of 72 once in 20,000 tries.
  for (const int times : first) EXPECT_LE(std::abs(times - 13.9), 5 * 3.7);
}

class PruningCurve : public testing::Test {
 protected:
  static std::vector<double> vector_of(const Transformer& model, const TextIds& ids) {
    Workspace workspace;
    return sentence_vector(test::hidden_states(model, {.ids = ids}, workspace));
  }

  std::string folder_ = test::test_data("tiny_bert");
  Transformer model_ = Transformer::load(folder_);
  std::vector<TextIds> texts_;
  Workspace workspace_;

  PruningCurve() {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      texts_.push_back(test::some_ids(static_cast<Index>(4 + seed), model_.config().vocabulary, seed));
    }
  }
};

TEST_F(PruningCurve, IsThatOfModelsWithoutTheHeads) {
  const std::vector<HeadId> order = random_order(all_heads(model_.config()), 7);
  const std::vector<std::size_t> counts = {0, 3, 8, 1};
  int begun = 0;
  const std::vector<PruningPoint> curve = pruning_curve(model_, texts_, order, counts, workspace_, [&] { ++begun; });
  EXPECT_EQ(begun, 6);
  ASSERT_EQ(curve.size(), counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::map<Index, std::vector<Index>> removed;
    for (std::size_t n = 0; n < counts[i]; ++n) removed[order[n].layer].push_back(order[n].head);
    const test::TempFolder out;
    save_without_heads(folder_, out.file("pruned"), removed);
    const Transformer pruned = Transformer::load(out.file("pruned"));
    double cosines = 0.0;
    std::vector<double> before;
    std::vector<double> after;
    for (std::size_t a = 0; a < texts_.size(); ++a) {
      cosines += cosine(vector_of(model_, texts_[a]), vector_of(pruned, texts_[a]));
      for (std::size_t b = a + 1; b < texts_.size(); ++b) {
        before.push_back(cosine(vector_of(model_, texts_[a]), vector_of(model_, texts_[b])));
        after.push_back(cosine(vector_of(pruned, texts_[a]), vector_of(pruned, texts_[b])));
      }
    }
    EXPECT_EQ(curve[i].removed, counts[i]);
    EXPECT_NEAR(curve[i].cosine, cosines / 6.0, 1e-12);
    EXPECT_NEAR(curve[i].correlation, rank_correlation(before, after), 1e-12);
    EXPECT_EQ(curve[i].cosine > 1.0 - 1e-12, counts[i] == 0);
    EXPECT_EQ(curve[i].correlation == 1.0, counts[i] == 0) << "an order that stays proves nothing";
  }
}

TEST_F(PruningCurve, OfAModelThatLostHeadsBefore) {
  const test::TempFolder out;
  save_without_heads(folder_, out.file("pruned"), {{0, {0, 1, 2, 3}}, {1, {2}}});
  const Transformer pruned = Transformer::load(out.file("pruned"));
  const std::vector<HeadEffect> effects = head_effects(pruned, texts_, Ablation::Mean, workspace_);
  std::vector<HeadId> there;
  for (const HeadEffect& effect : effects) there.push_back(effect.id);
  EXPECT_EQ(there, (std::vector<HeadId>{{1, 0}, {1, 1}, {1, 3}}));
  const std::vector<std::size_t> counts = {3};
  EXPECT_LT(pruning_curve(pruned, texts_, removal_order(effects), counts, workspace_)[0].cosine, 1.0 - 1e-6);
}

TEST_F(PruningCurve, WhatCannotBe) {
  const std::vector<HeadId> order = all_heads(model_.config());
  const std::vector<std::size_t> counts = {9};
  const std::vector<std::size_t> none = {0};
  const auto refused = [&](std::span<const TextIds> texts, std::span<const std::size_t> wanted) {
    return test::text_of<ShapeError>([&] { pruning_curve(model_, texts, order, wanted, workspace_); });
  };
  EXPECT_TRUE(test::mentions(refused({}, none), "no texts"));
  EXPECT_TRUE(test::mentions(refused(texts_, counts), "9 heads", "8"));
  EXPECT_TRUE(std::isnan(pruning_curve(model_, std::span(texts_).first(2), order, none, workspace_)[0].correlation));
}

}  // namespace
}  // namespace mha
