// A model that lost heads, as the tools of this room see it: the others are as in the whole model with those heads masked, the lost ones
// are nobody.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "analysis/tiny_tokenizer.h"
#include "mha/analysis/capture.h"
#include "mha/analysis/head_health.h"
#include "mha/analysis/links.h"
#include "mha/analysis/measures.h"
#include "mha/analysis/repeated.h"
#include "mha/analysis/rollout.h"
#include "mha/analysis/similarity.h"
#include "mha/error.h"
#include "mha/model/prune.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

class RemovedHeads : public testing::Test {
 protected:
  static Transformer pruned_model() {
    const test::TempFolder out;
    save_without_heads(test::test_data("tiny_bert"), out.file("pruned"), {{0, {1, 2}}, {1, {3}}});
    return Transformer::load(out.file("pruned"));
  }

  const std::vector<HeadId> lost_ = {{0, 1}, {0, 2}, {1, 3}};
  bool is_lost(HeadId id) const { return std::find(lost_.begin(), lost_.end(), id) != lost_.end(); }

  Transformer whole_ = Transformer::load(test::test_data("tiny_bert"));
  Transformer pruned_ = pruned_model();
  Tokenizer tokenizer_ = test::tiny_tokenizer();
  std::string text_ = "the man saw the astronomers with a telescope .";
  Sentence sentence_ = read_sentence(tokenizer_, text_);
  Workspace workspace_;
  HeadTable masked_table_ = read_heads(whole_, sentence_.ids, sentence_.words, workspace_, {.zeroed = lost_});
  HeadTable table_ = read_heads(pruned_, sentence_.ids, sentence_.words, workspace_);
};

TEST_F(RemovedHeads, TablesHoldTheOthers) {
  for (Index layer = 0; layer < 2; ++layer) {
    for (Index head = 0; head < 4; ++head) {
      const HeadId id{layer, head};
      EXPECT_EQ(table_.present(id), !is_lost(id));
      EXPECT_TRUE(masked_table_.present(id));
      for (Index from = 0; from < table_.units(); ++from) {
        for (Index to = 0; to < table_.units(); ++to) {
          EXPECT_EQ(table_.weight(id, from, to), is_lost(id) ? 0.0F : masked_table_.weight(id, from, to));
        }
      }
    }
  }
}

TEST_F(RemovedHeads, NoLinkIsOne) {
  const std::vector<Index> words = plain_units(sentence_.words);
  const std::vector<HeadLink> links = ranked_links(table_, words[1], words[2]);
  EXPECT_EQ(links.size(), 5U);
  for (const HeadLink& link : links) EXPECT_FALSE(is_lost(link.id));
  Index chains = 0;
  Index strongest_links = 0;
  for (const Index to : words) {
    for (const HeadLink& link : heads_with_strongest(table_, words[1], to, words)) {
      EXPECT_FALSE(is_lost(link.id));
      ++strongest_links;
    }
    for (const Index last : words) {
      for (const HeadChain& chain : heads_with_chain(table_, words[1], to, last, words)) {
        EXPECT_FALSE(is_lost(chain.id));
        ++chains;
      }
    }
  }
  EXPECT_EQ(strongest_links, 5);
  EXPECT_EQ(chains, 5);
  for (const HeadId& id : lost_) EXPECT_EQ(strongest(table_, id, words[1], words), -1);
  Index heads = 0;
  for (const StandingLink& link : standing_links(table_, sentence_.words, words[1], words, nullptr)) heads += link.heads;
  EXPECT_EQ(heads, 5);
  EXPECT_EQ(heads_with_neighbour(table_, 1, words, 0.0).size(), 5U);
}

TEST_F(RemovedHeads, HaveNoMeasureAndNoHealth) {
  const std::vector<Index> rows = plain_units(sentence_.words);
  HealthWatch watch(2, 4);
  watch_text(pruned_, tokenizer_, text_, watch, workspace_);
  for (Index layer = 0; layer < 2; ++layer) {
    for (Index head = 0; head < 4; ++head) {
      const HeadId id{layer, head};
      for (const MeasureInfo& info : measures()) {
        const double value = measure(info.measure, table_, id, sentence_.words, rows);
        EXPECT_EQ(std::isnan(value), is_lost(id));
        if (!is_lost(id)) {
          EXPECT_EQ(value, measure(info.measure, masked_table_, id, sentence_.words, rows));
        }
      }
      const HeadHealth health = watch.head(id);
      EXPECT_EQ(health.rows, is_lost(id) ? 0 : static_cast<Index>(sentence_.ids.size()));
      EXPECT_EQ(std::isnan(health.entropy), is_lost(id));
    }
  }
}

TEST_F(RemovedHeads, CapturesAndInterventions) {
  const Capture capture = capture_heads(pruned_, sentence_.ids, workspace_);
  const auto pieces = static_cast<Index>(sentence_.ids.size());
  Tensor weights(DType::F32, {pieces, pieces});
  captured_weights(capture.layers[0], {.batch = 0, .head = 1, .queries = {0, pieces}, .keys = {0, pieces}}, weights, workspace_);
  for (const double weight : test::elements(weights)) EXPECT_EQ(weight, 0.0);
  const std::vector<HeadId> left = {{0, 0}, {0, 3}, {1, 0}, {1, 1}, {1, 2}};
  EXPECT_EQ(head_distances({&capture, 1}, workspace_).heads, left);
  EXPECT_EQ(head_similarities({&capture, 1}, workspace_).heads, left);
  const std::vector<double> share = rollout(capture, {.first = 4}, workspace_);
  EXPECT_NEAR(std::accumulate(share.begin(), share.end(), 0.0), 1.0, test::kWeightsLimit);
  const RepeatedText repeated{.ids = sentence_.ids, .first = 1, .period = 4};
  for (const RepeatedScores& scores : repeated_scores(capture, repeated, workspace_)) {
    EXPECT_EQ(std::isnan(scores.previous), is_lost(scores.id));
  }

  Tensor plain(DType::F32, {1, pieces, 32});
  Tensor zeroed(DType::F32, {1, pieces, 32});
  run_with(pruned_, sentence_.ids, {}, plain, workspace_);
  run_with(pruned_, sentence_.ids, {.zeroed = lost_}, zeroed, workspace_);
  EXPECT_TRUE(test::bitwise_equal(plain, zeroed));
  const Tensor output(DType::F32, {1, 8});
  EXPECT_TRUE(test::mentions(
      test::text_of<ShapeError>([&] { run_with(pruned_, sentence_.ids, {.replaced = {{lost_[0], output}}}, plain, workspace_); }),
      "layer 0, head 1", "removed"));
}

}  // namespace
}  // namespace mha
