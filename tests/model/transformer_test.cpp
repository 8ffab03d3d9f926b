// The encoder against Hugging Face transformers (goldens of tools/make_goldens.py) and against itself: padding, ablation, dtypes.
#include "mha/model/transformer.h"

#include <gtest/gtest.h>

#include "model/encoder_case.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

ConstTensorView row_of(const Tensor& hidden, Index batch, Index row) {
  return hidden.view().slice(0, batch, batch + 1).slice(1, row, row + 1).reshape({hidden.size(2)});
}

void expect_text(const Transformer& model, const SafetensorsFile& golden, const std::string& name) {
  SCOPED_TRACE(name);
  const GoldenText text = golden_text(golden, name);
  Workspace workspace;
  const EncoderRun run = run_encoder(model, {.ids = text.ids, .token_types = text.token_types}, workspace);
  ASSERT_EQ(static_cast<Index>(run.weights.size()), model.config().layers);
  for (std::size_t r = 0; r < text.rows.size(); ++r) {
    const Index row = text.rows[r];
    const auto at = static_cast<Index>(r);
    EXPECT_LE(max_difference(row_of(run.hidden, 0, row), text.hidden.slice(0, at, at + 1).reshape({model.config().d_model})), kHiddenLimit)
        << "row " << row;
  }
  const Index length = static_cast<Index>(text.ids.size());
  for (Index layer = 0; layer < model.config().layers; ++layer) {
    for (Index head = 0; head < model.config().heads; ++head) {
      const ConstTensorView table = run.weights[static_cast<std::size_t>(layer)].view().slice(1, head, head + 1).reshape({length, length});
      const ConstTensorView expected = text.weights.slice(0, layer, layer + 1).slice(1, head, head + 1);
      for (std::size_t r = 0; r < text.rows.size(); ++r) {
        const auto at = static_cast<Index>(r);
        EXPECT_LE(max_difference(table.slice(0, text.rows[r], text.rows[r] + 1).reshape({length}),
                                 expected.slice(2, at, at + 1).reshape({length})),
                  kWeightsLimit)
            << "layer " << layer << " head " << head << " row " << text.rows[r];
      }
    }
  }
}

void expect_batch(const Transformer& model, const SafetensorsFile& golden) {
  const std::vector<Index> ids = golden_numbers(golden, "batch.ids");
  const std::vector<Index> types = golden_numbers(golden, "batch.token_types");
  const std::vector<Index> lengths = golden_numbers(golden, "batch.lengths");
  Workspace workspace;
  const TransformerInputs inputs{.ids = ids, .batch = static_cast<Index>(lengths.size()), .lengths = lengths, .token_types = types};
  EXPECT_LE(max_difference(hidden_states(model, inputs, workspace), golden.tensor("batch.hidden")), kHiddenLimit);
}

class TransformerTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, TransformerTest, testing::ValuesIn(all_isas()), isa_name);

class TinyBert : public TransformerTest {
 protected:
  const SafetensorsFile golden_{test_data("tiny_bert/golden.safetensors")};
};
INSTANTIATE_TEST_SUITE_P(Isa, TinyBert, testing::ValuesIn(all_isas()), isa_name);

TEST_P(TinyBert, AgreesWithTransformers) {
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  for (const char* const name : {"one", "seven", "full"}) expect_text(model, golden_, name);
  expect_batch(model, golden_);
}

TEST_P(TinyBert, EveryFieldOfTheConfigIsObeyed) {
  const GoldenText text = golden_text(golden_, "seven");
  const std::vector<std::pair<std::string, nlohmann::json>> changes = {
      {"hidden_act", "gelu_new"}, {"hidden_act", "relu"}, {"layer_norm_eps", 0.05}, {"num_attention_heads", 2}};
  for (const auto& [key, value] : changes) {
    const std::string name = key + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
    SCOPED_TRACE(name);
    ModelFiles files = ModelFiles::read(test_data("tiny_bert"));
    files.config[key] = value;
    Workspace workspace;
    const Tensor hidden = hidden_states(files.load(), {.ids = text.ids, .token_types = text.token_types}, workspace);
    EXPECT_LE(max_difference(hidden.view().reshape({7, 32}), golden_.tensor(name + ".hidden")), kHiddenLimit);
    EXPECT_GT(max_difference(hidden.view().reshape({7, 32}), text.hidden), kHiddenLimit) << "the change must matter";
  }
}

// The bias of keys adds the same to all scores of a row: neither hidden states nor weights would show a wrong one.
TEST_P(TransformerTest, KeysAgreeWithTransformers) {
  for (const std::string name : {"tiny_bert", "tiny_distilbert"}) {
    SCOPED_TRACE(name);
    const SafetensorsFile golden(test_data(name + "/golden.safetensors"));
    const GoldenText text = golden_text(golden, "seven");
    const ConstTensorView expected = golden.tensor("seven.keys");
    Workspace workspace;
    run_encoder(Transformer::load(test_data(name)), {.ids = text.ids, .token_types = text.token_types}, workspace,
                [&](Index layer, const MhaTrace& trace) {
                  const Tensor keys = converted(trace.k, DType::F32);
                  EXPECT_LE(max_difference(keys.view().reshape({1, 7, 32}), expected.slice(0, layer, layer + 1)), kHiddenLimit);
                });
  }
}

TEST_P(TransformerTest, TinyDistilBertAgreesWithTransformers) {
  const SafetensorsFile golden(test_data("tiny_distilbert/golden.safetensors"));
  const Transformer model = Transformer::load(test_data("tiny_distilbert"));
  EXPECT_EQ(model.config().family, "distilbert");
  for (const char* const name : {"one", "seven", "full"}) expect_text(model, golden, name);
  expect_batch(model, golden);
}

TEST_P(TransformerTest, DefaultModelAgreesWithTransformers) {
  const std::string folder = default_model_folder();
  if (folder.empty()) GTEST_SKIP() << "the default model is not there: set MHA_TEST_MODEL or run the set-up";
  const SafetensorsFile golden(test_data("encoder_minilm.safetensors"));
  const Transformer model = Transformer::load(folder);
  for (const char* const name : {"telescope", "word", "question", "accents", "long"}) expect_text(model, golden, name);
  expect_batch(model, golden);
}

// A padded batch gives every text, bit for bit, what it gives alone, whatever stands in the padding.
TEST_P(TransformerTest, BatchMatesAndPaddingChangeNothing) {
  const Transformer model = random_model(48, 3, 80, 2).load();
  const std::vector<Index> lengths = {5, 33, 1, 17};
  const Index length = 33;
  const std::vector<Index> ids = some_ids(4 * length, model.config().vocabulary, 2);
  Workspace workspace;
  const EncoderRun batch = run_encoder(model, {.ids = ids, .batch = 4, .lengths = lengths}, workspace);
  for (Index b = 0; b < 4; ++b) {
    const Index own = lengths[static_cast<std::size_t>(b)];
    const std::span<const Index> text = std::span(ids).subspan(static_cast<std::size_t>(b * length), static_cast<std::size_t>(own));
    const EncoderRun alone = run_encoder(model, {.ids = text}, workspace);
    EXPECT_TRUE(bitwise_equal(batch.hidden.view().slice(0, b, b + 1).slice(1, 0, own), alone.hidden)) << "text " << b;
    for (std::size_t layer = 0; layer < alone.weights.size(); ++layer) {
      const ConstTensorView tables = batch.weights[layer].view().slice(0, b, b + 1);
      EXPECT_TRUE(bitwise_equal(tables.slice(2, 0, own).slice(3, 0, own), alone.weights[layer])) << "text " << b << " layer " << layer;
      for (const double weight : elements(tables.slice(3, own, length))) ASSERT_EQ(weight, 0) << "a token that does not exist is seen";
    }
  }
}

TEST(Transformer, RepeatedCallsNeedNoNewMemory) {
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  const std::vector<Index> ids = some_ids(40, 50, 5);
  Workspace workspace;
  hidden_states(model, {.ids = ids}, workspace);
  hidden_states(model, {.ids = ids}, workspace);
  const std::size_t held = workspace.bytes();
  EXPECT_GT(held, 0U);
  for (int i = 0; i < 3; ++i) hidden_states(model, {.ids = ids}, workspace);
  EXPECT_EQ(workspace.bytes(), held);
}

TEST(Transformer, HiddenMayHaveStridesAndEmptyTextsAreNoError) {
  const Transformer model = Transformer::load(test_data("tiny_bert"));
  const std::vector<Index> ids = some_ids(6, 50, 6);
  Workspace workspace;
  const Tensor expected = hidden_states(model, {.ids = ids, .batch = 2}, workspace);
  Tensor wide(DType::F32, {3, 2, 33});
  const TensorView strided = wide.view().slice(2, 1, 33).transpose(0, 1);
  model.forward({.ids = ids, .batch = 2}, strided, workspace);
  EXPECT_TRUE(bitwise_equal(strided, expected));
  for (const double value : elements(wide.view().slice(2, 0, 1))) EXPECT_EQ(value, 0);

  EXPECT_EQ(hidden_states(model, {.ids = {}, .batch = 2}, workspace).shape(), Dims({2, 0, 32}));
  Tensor none(DType::F32, {0, 3, 32});
  model.forward({.ids = {}, .batch = 0}, none, workspace);
}

void zero_head(const MhaTrace& trace, Index head) {
  const TensorView part = trace.head_out.slice(2, head, head + 1);
  Tensor zeros(DType::F32, part.shape);
  copy(zeros, part);
}

TEST_P(TransformerTest, AblatingAHeadIsTakingItsColumnsOutOfTheOutputProjection) {
  const ModelFiles files = ModelFiles::read(test_data("tiny_bert"));
  const Transformer model = files.load();
  const std::vector<Index> ids = some_ids(12, 50, 7);
  Workspace workspace;
  const Tensor whole = hidden_states(model, {.ids = ids}, workspace);
  EXPECT_TRUE(bitwise_equal(run_encoder(model, {.ids = ids}, workspace).hidden, whole)) << "a hook that only looks changes nothing";
  for (Index layer = 0; layer < 2; ++layer) {
    for (Index head = 0; head < 4; ++head) {
      const EncoderRun ablated = run_encoder(model, {.ids = ids}, workspace, [&](Index at, const MhaTrace& trace) {
        if (at == layer) zero_head(trace, head);
      });
      ModelFiles without = ModelFiles::read(test_data("tiny_bert"));
      TensorView wo = without.tensors.at("encoder.layer." + std::to_string(layer) + ".attention.output.dense.weight");
      const Tensor zeros(DType::F32, {32, 8});
      copy(zeros, wo.slice(1, head * 8, head * 8 + 8));
      EXPECT_EQ(max_difference(ablated.hidden, hidden_states(without.load(), {.ids = ids}, workspace)), 0) << layer << "/" << head;
      EXPECT_GT(max_difference(ablated.hidden, whole), 1e-3) << "head " << layer << "/" << head << " does nothing";
    }
  }
}

TEST_P(TransformerTest, AblatingAllHeadsRemovesTheAttentionTerm) {
  ModelFiles without = ModelFiles::read(test_data("tiny_bert"));
  const Transformer model = without.load();
  for (auto& [name, tensor] : without.tensors) {
    if (name.find("attention.output.dense.weight") != std::string::npos) tensor = Tensor(DType::F32, {32, 32});
  }
  const std::vector<Index> ids = some_ids(12, 50, 8);
  Workspace workspace;
  const EncoderRun ablated = run_encoder(model, {.ids = ids}, workspace, [](Index, const MhaTrace& trace) {
    for (Index head = 0; head < 4; ++head) zero_head(trace, head);
  });
  EXPECT_EQ(max_difference(ablated.hidden, hidden_states(without.load(), {.ids = ids}, workspace)), 0);
}

// 16-bit weights are storage: the model computes as with their values in f32.
TEST_P(TransformerTest, SixteenBitWeights) {
  for (const DType dtype : {DType::Bf16, DType::F16}) {
    SCOPED_TRACE(name_of(dtype));
    ModelFiles stored = ModelFiles::read(test_data("tiny_bert"));
    ModelFiles widened = ModelFiles::read(test_data("tiny_bert"));
    for (auto& [name, tensor] : stored.tensors) {
      tensor = converted(tensor, dtype);
      widened.tensors[name] = converted(tensor, DType::F32);
    }
    const std::vector<Index> ids = some_ids(12, 50, 9);
    Workspace workspace;
    const Tensor hidden = hidden_states(stored.load(), {.ids = ids}, workspace);
    EXPECT_TRUE(bitwise_equal(hidden, hidden_states(widened.load(), {.ids = ids}, workspace)));
  }
}

TEST(Transformer, NamesWithPrefixAndOldNormNamesAndForeignTensors) {
  ModelFiles files = ModelFiles::read(test_data("tiny_bert"));
  const std::vector<Index> ids = some_ids(12, 50, 10);
  Workspace workspace;
  const Tensor expected = hidden_states(files.load(), {.ids = ids}, workspace);
  ModelFiles renamed;
  renamed.config = files.config;
  for (auto& [name, tensor] : files.tensors) {
    std::string other = "bert." + name;
    if (const auto at = other.find("LayerNorm.weight"); at != std::string::npos) other.replace(at, 16, "LayerNorm.gamma");
    if (const auto at = other.find("LayerNorm.bias"); at != std::string::npos) other.replace(at, 14, "LayerNorm.beta");
    renamed.tensors[other] = std::move(tensor);
  }
  renamed.tensors["bert.embeddings.position_ids"] = Tensor(DType::I64, {1, 40});
  renamed.tensors["cls.predictions.bias"] = Tensor(DType::F32, {50});
  EXPECT_TRUE(bitwise_equal(hidden_states(renamed.load(), {.ids = ids}, workspace), expected));
}

TEST(Transformer, SaysWhatTheConfigSays) {
  const TransformerConfig config = Transformer::load(test_data("tiny_bert")).config();
  EXPECT_EQ(config.family, "bert");
  EXPECT_EQ(config.vocabulary, 50);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.d_model, 32);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.hidden_width, 48);
  EXPECT_EQ(config.max_positions, 40);
  EXPECT_EQ(config.token_types, 2);
  EXPECT_EQ(config.norm_eps, 1e-12);
  EXPECT_EQ(config.activation, "gelu");
}

}  // namespace
}  // namespace mha::test
