// The layer, layer_norm, add_into and the activations read and write inside their views only: every tensor flush with a page that may not
// be touched, behind it and before it, at odd sizes. (linear by itself: linear_test.cpp.)
#include "support/guard.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "layer_case.h"
#include "nn/activation.h"
#include "nn/norm.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class LayerGuardTest : public IsaTest {
 protected:
  /// Standard normal numbers in guarded memory.
  TensorView normal(DType dtype, const Dims& shape, Guard guard, std::uint64_t seed) {
    memory_.push_back(std::make_unique<GuardedTensor>(dtype, shape, guard));
    fill_normal(memory_.back()->view(), seed);
    return memory_.back()->view();
  }

 private:
  std::vector<std::unique_ptr<GuardedTensor>> memory_;
};
INSTANTIATE_TEST_SUITE_P(Isa, LayerGuardTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(LayerGuardTest, TheLayerStaysInsideItsViews) {
  for (const Guard guard : {Guard::After, Guard::Before}) {
    for (const DType dtype : {DType::F32, DType::F64}) {
      for (const Index head_dim : {1, 5, 16, 19}) {
        const Index heads = 3;
        const Index width = heads * head_dim;
        const MhaConfig config = {.d_model = 7, .heads = heads, .head_dim = head_dim, .key_width = 5, .value_width = 3};
        const auto tensor = [&](const Dims& shape, std::uint64_t seed) { return normal(dtype, shape, guard, seed); };
        const MhaWeights weights = {.wq = tensor({width, 7}, 1),
                                    .wk = tensor({width, 5}, 2),
                                    .wv = tensor({width, 3}, 3),
                                    .wo = tensor({7, width}, 4),
                                    .bq = tensor({width}, 5),
                                    .bk = tensor({width}, 6),
                                    .bv = tensor({width}, 7),
                                    .bo = tensor({7}, 8)};
        const MhaInputs inputs = {.x = tensor({2, 9, 7}, 9), .key = tensor({2, 11, 5}, 10), .value = tensor({2, 11, 3}, 11)};
        const TensorView y = tensor({2, 9, 7}, 12);
        const TensorView table = tensor({2, heads, 9, 11}, 13);
        Tensor plain(dtype, {2, 9, 7});
        Workspace workspace(serial_executor());
        MultiHeadAttention(config, weights).forward(inputs, {.y = y, .weights = table}, workspace);
        NaiveMultiHeadAttention(config, to_naive(config, weights)).forward(inputs, {.y = plain}, workspace);
        EXPECT_LE(relative_error(y, plain.view()), 64 * dot_tolerance(width, dtype)) << "fused and naive: nothing was left out";
      }
    }
  }
}

TEST_P(LayerGuardTest, NormsSumsAndActivationsStayInsideTheirViews) {
  for (const Guard guard : {Guard::After, Guard::Before}) {
    for (const DType dtype : {DType::F32, DType::F64}) {
      for (const Index width : {1, 3, 8, 15, 33}) {
        const TensorView x = normal(dtype, {5, width}, guard, 1);
        const TensorView gamma = normal(dtype, {width}, guard, 2);
        const TensorView beta = normal(dtype, {width}, guard, 3);
        const TensorView y = normal(dtype, {5, width}, guard, 4);
        Tensor plain_x(dtype, {5, width});
        Tensor plain(dtype, {5, width});
        copy(x, plain_x);
        Workspace workspace(serial_executor());
        const auto both = [&](auto&& step) {
          step(x, y);
          step(TensorView(plain_x), TensorView(plain));
          EXPECT_TRUE(bitwise_equal(y, plain.view())) << "width " << width;
        };
        both([&](const TensorView& from, const TensorView& to) { nn::layer_norm(from, gamma, beta, 1e-5, to, workspace); });
        both([&](const TensorView& from, const TensorView& to) { nn::add_into(from, to, workspace); });
        for (const nn::Activation activation : {nn::Activation::Gelu, nn::Activation::GeluTanh, nn::Activation::Relu}) {
          both([&](const TensorView&, const TensorView& to) { nn::activate(activation, to, workspace); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace mha::test
