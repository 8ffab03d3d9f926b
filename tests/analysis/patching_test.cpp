// Patching against single runs with a replaced head, heads built to make all of the difference or none, and the matching of words.
#include "mha/analysis/patching.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/tiny_tokenizer.h"
#include "mha/analysis/capture.h"
#include "mha/analysis/measures.h"
#include "mha/model/prune.h"
#include "model/encoder_case.h"
#include "support/near.h"

namespace mha {
namespace {

using Pairs = std::vector<std::pair<Index, Index>>;

constexpr double kRounding = 1e-12;  // of sums of a few doubles of size 1, taken in another order

class PatchingTest : public testing::Test {
 protected:
  Sentence read(const std::string& text) const { return read_sentence(tokenizer_, text); }
  Pairs matched(const std::string& a, const std::string& b) const {
    Pairs pairs;
    for (const MatchedWords& words : match_words(read(a), read(b))) pairs.emplace_back(words.a, words.b);
    return pairs;
  }
  std::vector<double> vector_of(const Transformer& model, const Sentence& sentence, const Intervention& intervention = {}) {
    Tensor hidden(DType::F32, {1, static_cast<Index>(sentence.ids.size()), model.config().d_model});
    run_with(model, sentence.ids, intervention, hidden, workspace_);
    return sentence_vector(hidden);
  }

  Transformer model_ = Transformer::load(test::test_data("tiny_bert"));
  Tokenizer tokenizer_ = test::tiny_tokenizer();
  Workspace workspace_;
};

TEST_F(PatchingTest, WordsAreMatchedByPositionOrBySequence) {
  // [CLS] is word 0 of both.
  EXPECT_EQ(matched("the man saw", "a telescope with"), (Pairs{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}}));
  EXPECT_EQ(matched("the man saw", "The astronomer saw a man"), (Pairs{{0, 0}, {1, 1}, {2, 5}, {4, 6}}));  // as many with saw
  EXPECT_EQ(matched("the man saw the man", "the man"), (Pairs{{0, 0}, {1, 1}, {2, 2}, {6, 3}}));
  EXPECT_EQ(matched("saw", "the man"), (Pairs{{0, 0}, {2, 3}}));
  EXPECT_EQ(matched("saw man", "man with saw"), (Pairs{{0, 0}, {1, 3}, {3, 4}}));  // two are as long: A's earliest word
  EXPECT_EQ(matched("xyz man", "uvw saw xyz"), (Pairs{{0, 0}, {1, 3}, {3, 4}}));   // unknown words by their text
}

TEST_F(PatchingTest, OfATextWithItselfNothingChanges) {
  const Sentence text = read("the man saw the astronomers with a telescope .");
  const TextComparison comparison = compare_texts(model_, text, text, workspace_);
  EXPECT_TRUE(comparison.by_position);
  EXPECT_NEAR(comparison.cosine, 1.0, kRounding);
  ASSERT_EQ(comparison.heads.size(), 8U);
  for (const HeadComparison& head : comparison.heads) {
    EXPECT_EQ(head.weights, 0.0);
    EXPECT_EQ(head.a, head.b);
    EXPECT_EQ(head.towards, 0.0);
    EXPECT_NEAR(head.moved, 0.0, kRounding);
  }
}

TEST_F(PatchingTest, EachPatchIsARunWithThatHeadReplaced) {
  const Sentence a = read("the man saw the astronomers");
  const Sentence b = read("a telescope with man saw");  // five words too, but other pieces
  const TextComparison comparison = compare_texts(model_, a, b, workspace_);
  const Capture a_run = capture_heads(model_, a.ids, workspace_);
  const Capture b_run = capture_heads(model_, b.ids, workspace_);
  // A: [CLS] the man saw the astronom ##er ##s [SEP]; B: [CLS] a tele ##scope with man saw [SEP].
  const std::vector<std::vector<Index>> from = {{0}, {1}, {2, 3}, {4}, {5}, {6}, {6}, {6}, {7}};
  const Index dim = model_.config().head_dim;
  for (const HeadComparison& head : comparison.heads) {
    Tensor output(DType::F32, {9, dim});
    for (Index piece = 0; piece < 9; ++piece) {
      for (Index d = 0; d < dim; ++d) {
        double sum = 0.0;
        const std::vector<Index>& pieces = from[static_cast<std::size_t>(piece)];
        for (const Index i : pieces)
          sum += test::element(b_run.layers[static_cast<std::size_t>(head.id.layer)].head_out, 0, i, head.id.head, d);
        output.data<float>()[piece * dim + d] = static_cast<float>(sum / static_cast<double>(pieces.size()));
      }
    }
    const std::vector<double> patched = vector_of(model_, a, {.replaced = {{head.id, output}}});
    EXPECT_NEAR(head.moved, 1.0 - cosine(patched, vector_of(model_, a)), kRounding);
    EXPECT_NEAR(head.towards, cosine(patched, vector_of(model_, b)) - cosine(vector_of(model_, a), vector_of(model_, b)), kRounding);
    EXPECT_GT(head.moved, 1e-6) << "a patch that changes nothing proves nothing";
  }
}

TEST_F(PatchingTest, WordsWithoutAPartnerKeepTheirOwn) {
  const Sentence a = read("the man saw");
  const Sentence b = read("the man saw a telescope");
  const TextComparison comparison = compare_texts(model_, a, b, workspace_);
  EXPECT_FALSE(comparison.by_position);
  EXPECT_EQ(comparison.words.size(), 5U);  // all of A
  const TextComparison back = compare_texts(model_, b, a, workspace_);
  EXPECT_EQ(back.words.size(), 5U);
  EXPECT_NEAR(back.cosine, comparison.cosine, kRounding);
  for (std::size_t i = 0; i < back.heads.size(); ++i) {
    EXPECT_NEAR(back.heads[i].weights, comparison.heads[i].weights, kRounding);
    EXPECT_EQ(back.heads[i].a, comparison.heads[i].b);
    EXPECT_NE(back.heads[i].moved, comparison.heads[i].moved);
  }
}

TEST_F(PatchingTest, DifferencesOfWeightsAreTotalVariation) {
  const Sentence a = read("the man saw");
  const Sentence b = read("the man with a telescope saw");
  const TextComparison comparison = compare_texts(model_, a, b, workspace_);
  const HeadTable x = read_heads(model_, a.ids, a.words, workspace_);
  const HeadTable y = read_heads(model_, b.ids, b.words, workspace_);
  // Matched: [CLS] the man saw [SEP]; "with a telescope" of B is one, and A has nothing there.
  const std::vector<Index> of_b = {0, 1, 2, 6, 7};
  for (const HeadComparison& head : comparison.heads) {
    double sum = 0.0;
    for (const Index word : {1, 2, 3}) {
      const Index other = of_b[static_cast<std::size_t>(word)];
      double difference = 0.0;
      double others = 0.0;
      for (Index to = 0; to < 5; ++to) {
        difference += std::abs(static_cast<double>(x.weight(head.id, word, to)) -
                               static_cast<double>(y.weight(head.id, other, of_b[static_cast<std::size_t>(to)])));
      }
      for (const Index to : {3, 4, 5}) others += static_cast<double>(y.weight(head.id, other, to));
      sum += (difference + others) / 2.0;
    }
    EXPECT_NEAR(head.weights, sum / 3.0, 8 * test::unit_roundoff(DType::F32));  // rows of f32 sum to 1 but for their rounding
    EXPECT_GT(head.weights, 0.0);
    EXPECT_LE(head.weights, 1.0);
  }
  const TextComparison strangers = compare_texts(model_, read("saw"), read("the man"), workspace_);
  for (const HeadComparison& head : strangers.heads) EXPECT_TRUE(std::isnan(head.weights));
}

TEST_F(PatchingTest, TheOnlyHeadThatIsReadMakesAllOfTheDifference) {
  // Without feed-forward input, positions and embeddings of the word itself would still differ: so only the last layer's head 2 is read,
  // and B differs from A in a word whose own hidden state is the same.
  test::ModelFiles files = test::ModelFiles::read(test::test_data("tiny_bert"));
  const Index dim = model_.config().head_dim;
  for (const char* const layer : {"0", "1"}) {
    Tensor& wo = files.tensors.at(std::string("encoder.layer.") + layer + ".attention.output.dense.weight");
    for (Index row = 0; row < wo.size(0); ++row) {
      for (Index column = 0; column < wo.size(1); ++column) {
        const bool read_head = layer[0] == '1' && column / dim == 2;
        if (!read_head) wo.data<float>()[row * wo.size(1) + column] = 0.0F;
      }
    }
  }
  const Transformer one = files.load();
  const Sentence a = read("the man saw");
  const Sentence b = read("the man with");
  const TextComparison comparison = compare_texts(one, a, b, workspace_);
  for (const HeadComparison& head : comparison.heads) {
    const bool only = head.id == HeadId{1, 2};
    EXPECT_EQ(head.moved > kRounding, only) << head.id.layer << '.' << head.id.head;
    EXPECT_EQ(head.towards != 0.0, only);
  }
  // With that head from B, what is left of A is the third word's own state: all other pieces are B's.
  Tensor patched(DType::F32, {1, 5, 32});
  Tensor of_b(DType::F32, {1, 5, 32});
  const Capture b_run = capture_heads(one, b.ids, workspace_, {}, of_b);
  const ConstTensorView out = b_run.layers[1].head_out.slice(2, 2, 3);
  run_with(one, a.ids, {.replaced = {{{1, 2}, {out.data, out.dtype, {5, dim}, {out.stride(1), out.stride(3)}}}}}, patched, workspace_);
  for (const Index piece : {0, 1, 2, 4}) {
    EXPECT_TRUE(test::bitwise_equal(patched.view().slice(1, piece, piece + 1), of_b.view().slice(1, piece, piece + 1)));
  }
}

TEST_F(PatchingTest, RemovedHeadsAreNotCompared) {
  const test::TempFolder folder;
  save_without_heads(test::test_data("tiny_bert"), folder.file("pruned"), {{0, {0, 1, 2, 3}}, {1, {2}}});
  const Transformer pruned = Transformer::load(folder.file("pruned"));
  const TextComparison comparison = compare_texts(pruned, read("the man"), read("a telescope"), workspace_);
  ASSERT_EQ(comparison.heads.size(), 3U);
  for (const HeadComparison& head : comparison.heads) EXPECT_GT(head.moved, 1e-9);
}

}  // namespace
}  // namespace mha
