// Folding of pieces into words by hand and by property; reading of heads against the encoder's own weights.
#include "mha/analysis/head_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "analysis/units.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"

namespace mha {
namespace {

TEST(FoldPieces, SumsOverPiecesAttendedToAndAveragesOverPiecesAttending) {
  const std::vector<float> pieces = {0.5F, 0.25F, 0.25F,  //
                                     0.1F, 0.2F,  0.7F,   //
                                     0.3F, 0.3F,  0.4F};
  std::vector<Unit> units = {test::unit("man", 0), test::unit("stargazer", 1)};
  units[1].count = 2;
  std::vector<float> folded(4);
  fold_pieces(ConstTensorView(pieces.data(), {3, 3}), units, TensorView(folded.data(), {2, 2}));
  EXPECT_FLOAT_EQ(folded[0], 0.5F);
  EXPECT_FLOAT_EQ(folded[1], 0.25F + 0.25F);
  EXPECT_FLOAT_EQ(folded[2], (0.1F + 0.3F) / 2);
  EXPECT_FLOAT_EQ(folded[3], (0.2F + 0.7F + 0.3F + 0.4F) / 2);
}

TEST(FoldPieces, RefusesWhatDoesNotFit) {
  std::vector<float> four(4);
  const ConstTensorView pieces(four.data(), {2, 2});
  std::vector<float> out(1);
  std::vector<Unit> units = {test::unit("man", 0)};
  units[0].count = 3;
  EXPECT_TRUE(
      test::mentions(test::text_of<ShapeError>([&] { fold_pieces(pieces, units, TensorView(out.data(), {1, 1})); }), "man", "3", "2"));
  units[0].count = 2;
  EXPECT_THROW(fold_pieces(ConstTensorView(four.data(), {1, 4}), units, TensorView(out.data(), {1, 1})), ShapeError);
  EXPECT_THROW(fold_pieces(pieces, units, TensorView(four.data(), {2, 2})), ShapeError);
}

RC_GTEST_PROP(FoldPieces, RowsStillSumToOne, ()) {
  const auto sizes = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 4)));
  std::vector<Unit> units;
  Index length = 0;
  for (int size : sizes) {
    units.push_back(test::unit("w", length));
    units.back().count = size;
    length += size;
  }
  std::vector<float> pieces(static_cast<std::size_t>(length * length));
  for (Index q = 0; q < length; ++q) {
    float sum = 0.0F;
    for (Index k = 0; k < length; ++k)
      sum += pieces[static_cast<std::size_t>(q * length + k)] = static_cast<float>(*rc::gen::inRange(1, 100));
    for (Index k = 0; k < length; ++k) pieces[static_cast<std::size_t>(q * length + k)] /= sum;
  }
  const auto count = static_cast<Index>(units.size());
  std::vector<float> folded(static_cast<std::size_t>(count * count));
  fold_pieces(ConstTensorView(pieces.data(), {length, length}), units, TensorView(folded.data(), {count, count}));
  const double limit = static_cast<double>(length) * std::numeric_limits<float>::epsilon();
  for (Index q = 0; q < count; ++q) {
    const auto row = folded.begin() + q * count;
    RC_ASSERT(std::abs(std::accumulate(row, row + count, 0.0) - 1.0) <= limit);
  }
}

std::vector<Unit> single_pieces(std::size_t count) {
  std::vector<Unit> units;
  for (std::size_t i = 0; i < count; ++i) units.push_back(test::unit("p", static_cast<Index>(i)));
  return units;
}

TEST(ReadHeads, PiecesAreWhatTheEncoderComputed) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  Workspace workspace;
  const std::vector<Index> ids = test::some_ids(9, model.config().vocabulary, 1);
  const test::EncoderRun run = test::run_encoder(model, {.ids = ids}, workspace);
  const HeadTable table = read_heads(model, ids, single_pieces(ids.size()), workspace);
  ASSERT_EQ(table.layers(), static_cast<Index>(run.weights.size()));
  for (Index layer = 0; layer < table.layers(); ++layer) {
    const float* expected = run.weights[static_cast<std::size_t>(layer)].data<float>();
    for (Index head = 0; head < table.heads(); ++head) {
      for (Index from = 0; from < table.units(); ++from) {
        for (float weight : table.row({layer, head}, from)) ASSERT_EQ(weight, *expected++);
      }
    }
  }
}

TEST(ReadHeads, WordsAreFoldedPieces) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  Workspace workspace;
  const std::vector<Index> ids = {2, 7, 9, 11, 13, 3};
  HeadTable pieces = read_heads(model, ids, single_pieces(ids.size()), workspace);
  std::vector<Unit> words = {test::unit("[CLS]", 0, true), test::unit("a", 1), test::unit("b", 4), test::unit("[SEP]", 5, true)};
  words[1].count = 3;
  HeadTable table = read_heads(model, ids, words, workspace);
  std::vector<float> folded(16);
  for (Index layer = 0; layer < table.layers(); ++layer) {
    for (Index head = 0; head < table.heads(); ++head) {
      fold_pieces(pieces.head({layer, head}), words, TensorView(folded.data(), {4, 4}));
      for (Index from = 0; from < 4; ++from) {
        for (Index to = 0; to < 4; ++to) EXPECT_EQ(table.weight({layer, head}, from, to), folded[static_cast<std::size_t>(from * 4 + to)]);
      }
    }
  }
}

TEST(ReadHeads, ATextBeyondTheModelsPositionsIsAnErrorWithBothNumbers) {
  const Transformer model = Transformer::load(test::test_data("tiny_bert"));
  Workspace workspace;
  const std::vector<Index> ids(static_cast<std::size_t>(model.config().max_positions + 1), 5);
  const std::string text = test::text_of<ShapeError>([&] { read_heads(model, ids, single_pieces(ids.size()), workspace); });
  EXPECT_TRUE(test::mentions(text, std::to_string(ids.size()), std::to_string(model.config().max_positions)));
}

TEST(HeadTable, HeadsThatAreNotThereAreErrorsWithTheNumbers) {
  const HeadTable table(6, 12, 2);
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { table.weight({6, 0}, 0, 0); }), "layer is 6", "6 layers"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { table.weight({0, 12}, 0, 0); }), "head is 12", "12 heads"));
  EXPECT_THROW(table.weight({0, 0}, 0, 2), ShapeError);
  EXPECT_THROW(table.row({0, 0}, -1), ShapeError);
}

}  // namespace
}  // namespace mha
