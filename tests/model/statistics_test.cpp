// Statistics of rows asked from a run of the encoder: every layer's are those of its table of weights, tokens that do not exist are rows
// that see no key, and nothing is computed or kept where nobody asks.
#include <gtest/gtest.h>

#include <limits>

#include "mha/error.h"
#include "mha/model/transformer.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/isa_test.h"
#include "support/problem.h"
#include "support/row_statistics.h"

namespace mha::test {
namespace {

class EncoderStatistics : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, EncoderStatistics, testing::ValuesIn(all_isas()), isa_name);

Tensor some_keys(Index length) {
  Tensor chosen(DType::Bool, {1, length});
  for (Index key = 0; key < length; key += 4) set_element(chosen, 0, key, 0, 0, 1);
  return chosen;
}

TEST_P(EncoderStatistics, OfEveryLayerAreThoseOfItsWeights) {
  const Transformer model = random_model(48, 3, 80, 2).load();
  const std::vector<Index> ids = some_ids(2 * 29, model.config().vocabulary, 3);
  const Tensor chosen = some_keys(29);
  Workspace workspace;
  const TransformerInputs inputs{.ids = ids, .batch = 2, .temperature = 0.5F, .statistics = true, .links = 5, .chosen = chosen};
  const EncoderRun tables = run_encoder(model, inputs, workspace);
  Index layers = 0;
  Tensor hidden(DType::F32, {2, 29, 48});
  model.forward(inputs, hidden, workspace, [&](Index layer, const MhaTrace& trace) {
    ++layers;
    EXPECT_EQ(beyond_table(trace.statistics, tables.weights[static_cast<std::size_t>(layer)], trace.lse, relative_of(trace)), "");
  });
  EXPECT_EQ(layers, 2);
  EXPECT_TRUE(bitwise_equal(hidden, hidden_states(model, {.ids = ids, .batch = 2, .temperature = 0.5F}, workspace)));
}

/// All numbers of one text among others, and of the same text alone.
TEST_P(EncoderStatistics, PaddingIsCountedByNobody) {
  const Transformer model = random_model(48, 3, 80, 2).load();
  const std::vector<Index> lengths = {5, 19, 0, 1};
  const std::vector<Index> ids = some_ids(4 * 19, model.config().vocabulary, 4);
  const Tensor chosen = some_keys(19);
  Workspace workspace;
  const auto numbers = [](const RowStatistics& s) {
    return std::vector<ConstTensorView>{s.max_score,    s.max_key,       s.entropy,      s.distance, s.distance_variance,
                                        s.first_weight, s.chosen_weight, s.link_weights, s.link_keys};
  };
  const std::vector<double> blank = {-std::numeric_limits<double>::infinity(), -1, 0, 0, 0, 0, 0, 0, -1};
  std::vector<std::vector<Tensor>> together;  // [layer][number]
  Tensor hidden(DType::F32, {4, 19, 48});
  const TransformerInputs batch{.ids = ids, .batch = 4, .lengths = lengths, .statistics = true, .links = 3, .chosen = chosen};
  model.forward(batch, hidden, workspace, [&](Index, const MhaTrace& trace) {
    together.emplace_back();
    for (const ConstTensorView& view : numbers(trace.statistics)) together.back().push_back(converted(view, view.dtype));
  });
  for (Index b = 0; b < 4; ++b) {
    const Index own = lengths[static_cast<std::size_t>(b)];
    for (const std::vector<Tensor>& layer : together) {
      for (std::size_t i = 0; i < layer.size(); ++i) {
        for (const double value : elements(layer[i].view().slice(0, b, b + 1).slice(2, own, 19))) ASSERT_EQ(value, blank[i]) << i;
      }
    }
    if (own == 0) continue;
    const std::span<const Index> text = std::span(ids).subspan(static_cast<std::size_t>(b * 19), static_cast<std::size_t>(own));
    Tensor own_hidden(DType::F32, {1, own, 48});
    const TransformerInputs alone{.ids = text, .statistics = true, .links = 3, .chosen = chosen.view().slice(1, 0, own)};
    model.forward(alone, own_hidden, workspace, [&](Index layer, const MhaTrace& trace) {
      for (std::size_t i = 0; i < blank.size(); ++i) {
        const Tensor& all = together[static_cast<std::size_t>(layer)][i];
        EXPECT_TRUE(bitwise_equal(numbers(trace.statistics)[i], all.view().slice(0, b, b + 1).slice(2, 0, own))) << layer << " " << i;
      }
    });
  }
}

TEST(EncoderStatisticsAsked, NobodyWhoDoesNotAskPays) {
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  const std::vector<Index> ids = some_ids(40, 50, 5);
  Workspace plain(serial_executor());
  Workspace asked(serial_executor());
  Tensor hidden(DType::F32, {1, 40, 32});
  int without = 0;
  const auto look = [&](Index, const MhaTrace& trace) { without += trace.statistics ? 0 : 1; };
  for (int i = 0; i < 3; ++i) model.forward({.ids = ids}, hidden, plain, look);
  EXPECT_EQ(without, 3 * model.config().layers);
  for (int i = 0; i < 3; ++i) model.forward({.ids = ids, .statistics = true}, hidden, asked);
  EXPECT_LE(asked.bytes(), plain.bytes()) << "no hook, nobody to tell";
  for (int i = 0; i < 3; ++i) model.forward({.ids = ids, .statistics = true}, hidden, asked, look);
  EXPECT_EQ(without, 3 * model.config().layers);
  const std::size_t held = asked.bytes();
  model.forward({.ids = ids, .statistics = true}, hidden, asked, look);
  EXPECT_EQ(asked.bytes(), held);
}

TEST(EncoderStatisticsAsked, WrongRequestsAreRefused) {
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  const std::vector<Index> ids = some_ids(6, 50, 5);
  Workspace workspace;
  Tensor hidden(DType::F32, {1, 6, 32});
  const auto refused = [&](const TransformerInputs& inputs) {
    return text_of<ShapeError>([&] { model.forward(inputs, hidden, workspace, [](Index, const MhaTrace&) {}); });
  };
  const Tensor five(DType::Bool, {1, 5});
  const Tensor six(DType::Bool, {1, 6});
  EXPECT_TRUE(mentions(refused({.ids = ids, .statistics = true, .chosen = five}), "chosen", "[1, 5]", "6"));
  EXPECT_TRUE(mentions(refused({.ids = ids, .chosen = six}), "chosen", "statistics"));
  EXPECT_TRUE(mentions(refused({.ids = ids, .links = 33}), "33 links", "32"));
}

}  // namespace
}  // namespace mha::test
