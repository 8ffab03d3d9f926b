// Statistics of rows asked from the layer, in both forms: they are those of the table of weights, the hook is shown them, nothing else
// changes, and what does not fit is refused.
#include <gtest/gtest.h>

#include "layer_case.h"
#include "mha/error.h"
#include "support/errors.h"
#include "support/isa_test.h"
#include "support/row_statistics.h"

namespace mha::test {
namespace {

Tensor some_keys(const LayerCase& c) {
  Tensor chosen(DType::Bool, {c.batch, c.keys()});
  for_each_position(chosen.shape(),
                    [&](Index b, Index key, Index, Index) { set_element(chosen, b, key, 0, 0, (b + key) % 3 == 1 ? 1 : 0); });
  return chosen;
}

std::vector<LayerCase> cases() {
  const LayerCase plain = {.q_len = 37, .d_model = 24, .heads = 6, .kv_heads = 3, .head_dim = 5, .key_width = 24, .value_width = 24};
  LayerCase masked = plain;
  masked.mask = causal();
  masked.allowed.present = true;
  LayerCase cross = plain;
  cross.memory = Memory::Key;
  cross.kv_len = 21;
  cross.align = Align::TopLeft;
  cross.kv_lengths = {0, 13};
  LayerCase appended = plain;
  appended.learned_key = appended.zero_key = true;
  appended.align = Align::TopLeft;
  LayerCase wide = plain;
  wide.weights = DType::F64;
  LayerCase training = plain;
  training.dropout = {0.3F, 7};
  training.training = true;
  return {plain, masked, cross, appended, wide, training};
}

template <class Layer>
void expect_statistics_of_weights(const Layer& layer, const LayerInstance& instance) {
  const LayerCase& c = instance.layer_case();
  const Dims rows = {c.batch, c.heads, c.q_len};
  const Tensor chosen = some_keys(c);
  KeptStatistics statistics(rows, c.dtype(), chosen);
  Workspace workspace;
  const LayerResults without = run_layer(layer, instance, workspace);
  Tensor y(c.dtype(), {c.batch, c.q_len, c.d_model});
  bool shown = false;
  const MhaHook hook = [&](const MhaTrace& trace) {
    EXPECT_EQ(trace.statistics.entropy.data, statistics.asked.entropy.data);
    EXPECT_EQ(beyond_table(trace.statistics, without.weights, trace.lse, relative_of(trace)), "");
    shown = true;
  };
  layer.forward(instance.inputs(), {.y = y, .hook = hook, .statistics = statistics.asked}, workspace);
  EXPECT_TRUE(shown);
  EXPECT_TRUE(bitwise_equal(y, without.y)) << "to be asked changes nothing";
  Tensor alone(c.dtype(), rows);
  layer.forward(instance.inputs(), {.y = y, .statistics = {.entropy = alone}}, workspace);
  EXPECT_TRUE(bitwise_equal(alone, statistics.entropy)) << "one number, without a hook";
}

class LayerStatistics : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, LayerStatistics, testing::ValuesIn(all_isas()), isa_name);

TEST_P(LayerStatistics, AreThoseOfTheWeightsInBothForms) {
  for (const LayerCase& c : cases()) {
    std::ostringstream text;
    text << c;
    SCOPED_TRACE(text.str());
    const LayerInstance instance(c);
    const MhaWeights weights = instance.parameters().view();
    expect_statistics_of_weights(MultiHeadAttention(instance.config(), weights), instance);
    expect_statistics_of_weights(NaiveMultiHeadAttention(instance.config(), to_naive(instance.config(), weights)), instance);
  }
}

TEST(LayerStatisticsErrors, NameTheNumbers) {
  const LayerInstance instance(LayerCase{});
  const MultiHeadAttention fused(instance.config(), instance.parameters().view());
  const NaiveMultiHeadAttention naive(instance.config(), to_naive(instance.config(), instance.parameters().view()));
  Workspace workspace;
  Tensor y(DType::F32, {2, 5, 12});
  fill(y, kMark);
  const Tensor untouched = y.clone();
  Tensor rows(DType::F32, {2, 3, 5});
  const auto refused = [&](const RowStatistics& statistics, auto&&... said) {
    for (const bool form : {true, false}) {
      const MhaOutputs outputs{.y = y, .statistics = statistics};
      const auto call = [&] {
        if (form) fused.forward(instance.inputs(), outputs, workspace);
        if (!form) naive.forward(instance.inputs(), outputs, workspace);
      };
      const std::string text = text_of<ShapeError>(call);
      EXPECT_TRUE(mentions(text, said...)) << text;
    }
  };
  refused({.entropy = rows}, "[2, 3, 5]", "[2, 2, 5]");
  refused({.first_weight = TensorView(y.data<float>(), {2, 2, 5})}, "y overlaps statistics");
  EXPECT_TRUE(bitwise_equal(y, untouched));
}

}  // namespace
}  // namespace mha::test
