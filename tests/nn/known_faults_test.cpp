// Faults that other implementations' layers had: masks in training and in evaluation, axis orders, biases, a head that sees nothing. One
// test per line of the project's list of known faults, named after it; other lines are held by the layer's own tests.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "layer_case.h"
#include "mha/error.h"
#include "support/errors.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class KnownFaultsLayer : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, KnownFaultsLayer, testing::ValuesIn(all_isas()), isa_name);

Tensor normal(const Dims& shape, std::uint64_t seed) {
  Tensor tensor(DType::F32, shape);
  fill_normal(tensor.view(), seed);
  return tensor;
}

struct Said {
  Tensor y, weights;
};
template <class Layer>
Said say(const Layer& layer, const MhaInputs& inputs) {
  const Index keys = inputs.key ? inputs.key.size(1) : inputs.x.size(1);
  Said said{Tensor(DType::F32, inputs.x.shape), Tensor(DType::F32, {inputs.x.size(0), layer.config().heads, inputs.x.size(1), keys})};
  Workspace workspace;
  layer.forward(inputs, {.y = said.y, .weights = said.weights}, workspace);
  return said;
}

/// MHA(3, 3) on x(1, 5, 3), head 2 sees nothing: asking for weights changes nothing, and they are 0.
TEST_P(KnownFaultsLayer, A10_FullyMaskedHeadWithWeights) {
  const MhaConfig config = {.d_model = 3, .heads = 3};
  const MultiHeadAttention layer(config, xavier_parameters(config, 1).view());
  const Tensor x = normal({1, 5, 3}, 2);
  Tensor allowed(DType::Bool, {1, 3, 5, 5});
  fill(allowed.view().slice(1, 0, 2), 1);
  const Said with = say(layer, {.x = x, .allowed = allowed});
  Tensor without(DType::F32, {1, 5, 3});
  Workspace workspace;
  layer.forward({.x = x, .allowed = allowed}, {.y = without}, workspace);
  EXPECT_TRUE(bitwise_equal(with.y.view(), without.view()));
  for (const double weight : elements(with.weights.view().slice(1, 2, 3))) EXPECT_EQ(weight, 0);
  for (const double value : elements(with.y.view())) EXPECT_TRUE(std::isfinite(value));
}

/// Memory [length, batch, width] under the view [batch, length, width], length != batch, with a table [length, kv_len].
TEST_P(KnownFaultsLayer, A46_LengthFirstMemory) {
  const MhaConfig config = {.d_model = 12, .heads = 4, .kv_heads = 2};
  const MultiHeadAttention layer(config, xavier_parameters(config, 1).view());
  const Tensor x = normal({7, 3, 12}, 2);
  const Tensor key = normal({5, 3, 12}, 3);
  Tensor allowed(DType::Bool, {1, 1, 7, 5});
  for_each_position(allowed.shape(),
                    [&](Index b, Index h, Index q, Index k) { set_element(allowed.view(), b, h, q, k, (q + k) % 3 > 0 ? 1 : 0); });
  const ConstTensorView x_view = x.view().transpose(0, 1);
  const ConstTensorView key_view = key.view().transpose(0, 1);
  Tensor dense_x(DType::F32, {3, 7, 12});
  Tensor dense_key(DType::F32, {3, 5, 12});
  copy(x_view, dense_x);
  copy(key_view, dense_key);
  const Said expected = say(layer, {.x = dense_x, .key = dense_key, .allowed = allowed});
  const Said got = say(layer, {.x = x_view, .key = key_view, .allowed = allowed});
  EXPECT_TRUE(bitwise_equal(got.y.view(), expected.y.view()));
  EXPECT_TRUE(bitwise_equal(got.weights.view(), expected.weights.view()));
  Tensor y(DType::F32, {7, 3, 12});
  Workspace workspace;
  layer.forward({.x = x_view, .key = key_view, .allowed = allowed}, {.y = y.view().transpose(0, 1)}, workspace);
  EXPECT_TRUE(bitwise_equal(y.view().transpose(0, 1), expected.y.view()));
}

/// Padding and a table per head together: training (without dropout) and evaluation take the same masks and say the same, in both forms.
TEST_P(KnownFaultsLayer, A82_SameMasksInTrainingAndEvaluation) {
  const MhaConfig config = {.d_model = 4, .heads = 4};
  const MhaParameters parameters = xavier_parameters(config, 1);
  const Tensor x = normal({2, 8, 4}, 2);
  Tensor allowed(DType::Bool, {2, 4, 8, 8});
  for_each_position(allowed.shape(), [&](Index b, Index h, Index q, Index k) {
    set_element(allowed.view(), b, h, q, k, k <= q + h && (b == 0 || k < 6) ? 1 : 0);
  });
  const auto expect_same = [&](const auto& layer) {
    const Said evaluated = say(layer, {.x = x, .allowed = allowed});
    const Said trained = say(layer, {.x = x, .allowed = allowed, .training = true});
    EXPECT_TRUE(bitwise_equal(evaluated.y.view(), trained.y.view()));
    EXPECT_TRUE(bitwise_equal(evaluated.weights.view(), trained.weights.view()));
    for_each_position(allowed.shape(), [&](Index b, Index h, Index q, Index k) {
      EXPECT_EQ(element(trained.weights.view(), b, h, q, k) > 0, element(allowed.view(), b, h, q, k) > 0);
    });
  };
  expect_same(MultiHeadAttention(config, parameters.view()));
  expect_same(NaiveMultiHeadAttention(config, to_naive(config, parameters.view())));
}

/// Padding in the order [length, batch] for x in [batch, length]: refused, with both shapes.
TEST_P(KnownFaultsLayer, A83_PaddingOfAnotherAxisOrderIsRefused) {
  const MhaConfig config = {.d_model = 8, .heads = 2};
  const MultiHeadAttention layer(config, xavier_parameters(config, 1).view());
  const Tensor x = normal({6, 20, 8}, 2);
  const Tensor padding(DType::Bool, {20, 1, 1, 6});
  EXPECT_TRUE(
      mentions(text_of<ShapeError>([&] { say(layer, {.x = x, .allowed = padding}); }), "allowed", "[20, 1, 1, 6]", "[6, 2, 20, 20]"));
}

TEST_P(KnownFaultsLayer, A84_WithoutBiasesInEvaluation) {
  const LayerInstance instance({.batch = 1,
                                .q_len = 5,
                                .d_model = 10,
                                .heads = 1,
                                .kv_heads = 1,
                                .head_dim = 10,
                                .key_width = 10,
                                .value_width = 10,
                                .bias = false});
  const LayerOracle expected = oracle(instance);
  const Said fused = say(MultiHeadAttention(instance.config(), instance.parameters().view()), instance.inputs());
  const Said naive =
      say(NaiveMultiHeadAttention(instance.config(), to_naive(instance.config(), instance.parameters().view())), instance.inputs());
  EXPECT_EQ(beyond(fused.y, expected.y, expected.y_error), "");
  EXPECT_EQ(beyond(naive.y, expected.y, expected.y_error), "");
}

}  // namespace
}  // namespace mha::test
