// Captures: what they give back is what the run had, and replaced heads reach the model.
#include "mha/analysis/capture.h"

#include <gtest/gtest.h>

#include "mha/analysis/head_table.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

class CaptureTest : public testing::Test {
 protected:
  static constexpr Index kLength = 9;

  /// One head's output in a capture, [pieces, head_dim].
  static ConstTensorView output_of(const Capture& capture, HeadId id) {
    const ConstTensorView& out = capture.layers[static_cast<std::size_t>(id.layer)].head_out;
    const ConstTensorView head = out.slice(2, id.head, id.head + 1);
    return {head.data, head.dtype, {head.size(1), head.size(3)}, {head.stride(1), head.stride(3)}};
  }

  Transformer model_ = Transformer::load(test::test_data("tiny_bert"));
  std::vector<Index> ids_ = test::some_ids(kLength, model_.config().vocabulary, 1);
  std::vector<Index> other_ids_ = test::some_ids(kLength, model_.config().vocabulary, 2);
  Workspace workspace_;
};

TEST_F(CaptureTest, WeightsAreThoseOfTheRun) {
  const Capture capture = capture_heads(model_, ids_, workspace_);
  std::vector<Unit> pieces;
  for (Index i = 0; i < kLength; ++i) pieces.push_back({.text = {}, .key = {}, .first = i});
  const HeadTable table = read_heads(model_, ids_, pieces, workspace_);
  ASSERT_EQ(static_cast<Index>(capture.layers.size()), model_.config().layers);
  for (Index layer = 0; layer < table.layers(); ++layer) {
    const CapturedLayer& captured = capture.layers[static_cast<std::size_t>(layer)];
    for (Index head = 0; head < table.heads(); ++head) {
      Tensor weights(DType::F32, {3, 4});
      captured_weights(captured, {.batch = 0, .head = head, .queries = {2, 5}, .keys = {1, 5}}, weights, workspace_);
      for (Index q = 0; q < 3; ++q) {
        for (Index k = 0; k < 4; ++k) EXPECT_EQ(weights.data<float>()[q * 4 + k], table.weight({layer, head}, 2 + q, 1 + k));
      }
    }
  }
}

TEST_F(CaptureTest, ReadyWeightsAreCopied) {
  Tensor ready(DType::F32, {1, 2, 3, 4});
  for (Index i = 0; i < 24; ++i) ready.data<float>()[i] = static_cast<float>(i);
  const CapturedLayer layer{.name = {}, .q = {}, .k = {}, .lse = {}, .weights = ready};
  Tensor weights(DType::F32, {2, 2});
  captured_weights(layer, {.batch = 0, .head = 1, .queries = {1, 3}, .keys = {2, 4}}, weights, workspace_);
  const float* got = weights.data<float>();
  EXPECT_EQ(std::vector<float>(got, got + 4), (std::vector<float>{18, 19, 22, 23}));
  const auto refused = [&](const WeightsRegion& region) {
    return test::text_of<ShapeError>([&] { captured_weights(layer, region, weights, workspace_); });
  };
  EXPECT_TRUE(test::mentions(refused({.batch = 0, .head = 2, .queries = {0, 2}, .keys = {0, 2}}), "head 2 of 1 x 2"));
  EXPECT_TRUE(test::mentions(refused({.batch = 0, .head = 0, .queries = {2, 4}, .keys = {0, 2}}),
                             "queries 2 to 4, keys 0 to 2 of a table of 3 x 4"));
}

TEST_F(CaptureTest, AHeadReplacedByItsOwnOutputChangesNothing) {
  const HeadId id{.layer = 0, .head = 1};
  Tensor plain(DType::F32, {1, kLength, model_.config().d_model});
  const Capture capture = capture_heads(model_, ids_, workspace_, {}, plain);
  Tensor patched(DType::F32, plain.shape());
  run_with(model_, ids_, {.replaced = {{id, output_of(capture, id)}}}, patched, workspace_);
  EXPECT_TRUE(test::bitwise_equal(patched, plain));
}

TEST_F(CaptureTest, AReplacedHeadIsSeenByTheHookAndChangesTheOutput) {
  const HeadId id{.layer = 1, .head = 0};
  const Capture other = capture_heads(model_, other_ids_, workspace_);
  const ConstTensorView output = output_of(other, id);
  Tensor plain(DType::F32, {1, kLength, model_.config().d_model});
  run_with(model_, ids_, {}, plain, workspace_);
  Tensor patched(DType::F32, plain.shape());
  const Capture capture = capture_heads(model_, ids_, workspace_, {.replaced = {{id, output}}}, patched);
  EXPECT_GT(test::max_difference(patched, plain), 100 * test::kHiddenLimit);
  EXPECT_EQ(test::max_difference(output_of(capture, id), output), 0.0);
}

TEST_F(CaptureTest, OneRowReplacesAllAndZerosAreAsZeroed) {
  const HeadId id{.layer = 0, .head = 2};
  const Tensor zeros(DType::F32, {1, model_.config().head_dim});
  Tensor replaced(DType::F32, {1, kLength, model_.config().d_model});
  run_with(model_, ids_, {.replaced = {{id, zeros}}}, replaced, workspace_);
  Tensor zeroed(DType::F32, replaced.shape());
  run_with(model_, ids_, {.zeroed = {id}}, zeroed, workspace_);
  EXPECT_TRUE(test::bitwise_equal(replaced, zeroed));
}

TEST_F(CaptureTest, ReplacementsThatDoNotFitAreRefused) {
  Tensor hidden(DType::F32, {1, kLength, model_.config().d_model});
  const auto run = [&](HeadId id, const Tensor& output) { run_with(model_, ids_, {.replaced = {{id, output}}}, hidden, workspace_); };
  const Index head_dim = model_.config().head_dim;
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { run({0, 0}, Tensor(DType::F32, {kLength - 1, head_dim})); }),
                             "replaced output of layer 0, head 0"));
  EXPECT_TRUE(test::mentions(test::text_of<DTypeError>([&] { run({0, 0}, Tensor(DType::F64, {kLength, head_dim})); }), "must be f32"));
  EXPECT_TRUE(test::mentions(test::text_of<ShapeError>([&] { run({99, 0}, Tensor(DType::F32, {1, head_dim})); }), "layer is 99"));
}

}  // namespace
}  // namespace mha
