// Folders and calls that cannot be: every one gives an error of the right kind that names what is wrong, and nothing is written.
#include <gtest/gtest.h>

#include <algorithm>

#include "mha/error.h"
#include "mha/model/transformer.h"
#include "model/encoder_case.h"
#include "support/errors.h"

namespace mha::test {
namespace {

using nlohmann::json;

std::string tiny() { return test_data("tiny_bert"); }

/// The text of the FormatError that loading `files` gives.
std::string refusal(const ModelFiles& files) {
  return text_of<FormatError>([&] { files.load(); });
}

std::string refusal_of_config(const std::string& key, const json& value) {
  SCOPED_TRACE(key + " = " + value.dump());
  ModelFiles files = ModelFiles::read(tiny());
  files.config[key] = value;
  return refusal(files);
}

TEST(TransformerConfigErrors, TextThatIsNoConfig) {
  const std::string deep = std::string(100000, '[');
  const std::string not_utf8 = "{\"model_type\": \"be\xff\"}";
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("42"), deep,
                                  not_utf8, std::string("{\"model_type\": \"bert\"} x"), std::string(10, '\0')}) {
    SCOPED_TRACE(text.substr(0, 30));
    const TempFolder folder;
    ModelFiles::read(tiny()).write(folder);
    write_text(folder.file("config.json"), text);
    EXPECT_TRUE(mentions(text_of<FormatError>([&] { Transformer::load(folder.path()); }), "config.json"));
  }
}

TEST(TransformerConfigErrors, SizesThatCannotBe) {
  for (const char* const key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                "max_position_embeddings", "type_vocab_size"}) {
    for (const json& value : {json(0), json(-1), json(1.5), json(32.0), json("32"), json(true), json::array({32}), json(1e30),
                              json(18446744073709551615U), json(INT64_MIN), json(1LL << 40)}) {
      EXPECT_TRUE(mentions(refusal_of_config(key, value), "config.json", key));
    }
  }
  for (const char* const key : {"model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                "max_position_embeddings"}) {
    ModelFiles files = ModelFiles::read(tiny());
    files.config.erase(key);
    EXPECT_TRUE(mentions(refusal(files), "config.json", key));
    EXPECT_TRUE(mentions(refusal_of_config(key, nullptr), "config.json", key));
  }
}

TEST(TransformerConfigErrors, HeadsMustDivide) {
  EXPECT_TRUE(mentions(refusal_of_config("num_attention_heads", 7), "num_attention_heads", "7", "32"));
  EXPECT_TRUE(mentions(refusal_of_config("num_attention_heads", 64), "num_attention_heads", "64", "32"));
}

TEST(TransformerConfigErrors, OtherMathematics) {
  for (const char* const family : {"gpt2", "roberta", "BERT", "", "ber\nt"}) {
    EXPECT_TRUE(mentions(refusal_of_config("model_type", family), "model_type", "supported are: bert, distilbert"));
  }
  EXPECT_TRUE(mentions(refusal_of_config("model_type", 3), "model_type"));
  EXPECT_TRUE(
      mentions(refusal_of_config("position_embedding_type", "relative_key"), "position_embedding_type", "relative_key", "absolute"));
  EXPECT_TRUE(mentions(refusal_of_config("position_embedding_type", 1), "position_embedding_type"));
  EXPECT_TRUE(mentions(refusal_of_config("is_decoder", true), "is_decoder"));
  EXPECT_TRUE(mentions(refusal_of_config("is_decoder", "no"), "is_decoder"));
  EXPECT_TRUE(mentions(refusal_of_config("add_cross_attention", true), "add_cross_attention"));
  EXPECT_TRUE(mentions(refusal_of_config("hidden_act", "swish"), "hidden_act", "swish", "gelu"));
  EXPECT_TRUE(mentions(refusal_of_config("hidden_act", 1), "hidden_act"));
  for (const json& eps : {json("1e-12"), json(-1e-12), json(2), json(true)}) {
    EXPECT_TRUE(mentions(refusal_of_config("layer_norm_eps", eps), "layer_norm_eps"));
  }
}

TEST(TransformerConfigErrors, HeadsThatCannotHaveBeenRemoved) {
  for (const json& value :
       {json("0"), json(1), json::array({1}), json({{"2", {0}}}), json({{"-1", {0}}}), json({{"00", {0}}}), json({{"", {0}}}),
        json({{"x", {0}}}), json({{"99999999999999999999", {0}}}), json({{"0", 1}}), json({{"0", {{"1", 2}}}}), json({{"0", {4}}}),
        json({{"0", {-1}}}), json({{"0", {1.5}}}), json({{"0", {"1"}}}), json({{"1", {2, 2}}})}) {
    EXPECT_TRUE(mentions(refusal_of_config("pruned_heads", value), "config.json", "pruned_heads"));
  }
  EXPECT_TRUE(mentions(refusal_of_config("pruned_heads", {{"1", {2}}}), "model.safetensors", "layer.1.attention.self.query.weight",
                       "[32, 32]", "[24, 32]"));
}

TEST(TransformerConfigErrors, DistilBertHasItsOwnNames) {
  ModelFiles files = ModelFiles::read(test_data("tiny_distilbert"));
  for (const char* const key : {"dim", "n_layers", "n_heads", "hidden_dim"}) {
    const json before = files.config[key];
    files.config[key] = 0;
    EXPECT_TRUE(mentions(refusal(files), key));
    files.config[key] = before;
  }
}

TEST(TransformerWeightErrors, EveryTensorIsNeeded) {
  for (const char* const folder : {"tiny_bert", "tiny_distilbert"}) {
    for (const auto& [name, unused] : ModelFiles::read(test_data(folder)).tensors) {
      SCOPED_TRACE(name);
      ModelFiles files = ModelFiles::read(test_data(folder));
      files.tensors.erase(name);
      EXPECT_TRUE(mentions(refusal(files), "model.safetensors", name, "missing"));
    }
  }
}

TEST(TransformerWeightErrors, EveryShapeIsChecked) {
  for (const auto& [name, unused] : ModelFiles::read(tiny()).tensors) {
    SCOPED_TRACE(name);
    ModelFiles files = ModelFiles::read(tiny());
    const Dims right = files.tensors.at(name).shape();
    Dims wrong = right;
    wrong[wrong.rank() - 1] += 1;
    for (const Dims& shape : {wrong, Dims{}, Dims{0}, Dims{1, 1, 1, 32}}) {
      files.tensors[name] = Tensor(DType::F32, shape);
      EXPECT_TRUE(mentions(refusal(files), "model.safetensors", name, to_string(right), to_string(shape)));
    }
    files.tensors[name] = Tensor(DType::F64, right);
    EXPECT_TRUE(mentions(refusal(files), "model.safetensors", name, "F64"));
    files.tensors[name] = Tensor(DType::I64, right);
    EXPECT_TRUE(mentions(refusal(files), "model.safetensors", name, "I64"));
  }
}

TEST(TransformerWeightErrors, NumberOfLayers) {
  EXPECT_TRUE(mentions(refusal_of_config("num_hidden_layers", 1), "encoder.layer.1.", "1 layers"));
  EXPECT_TRUE(mentions(refusal_of_config("num_hidden_layers", 3), "encoder.layer.2.", "missing"));
  EXPECT_TRUE(mentions(refusal_of_config("num_hidden_layers", 16777216), "encoder.layer.2.", "missing"));
}

TEST(TransformerWeightErrors, FilesThatAreNotThereOrCutOff) {
  const TempFolder folder;
  EXPECT_TRUE(mentions(text_of<IoError>([&] { Transformer::load(folder.file("nowhere")); }), "nowhere", "config.json"));
  EXPECT_TRUE(mentions(text_of<IoError>([&] { Transformer::load(folder.path()); }), "config.json"));
  ModelFiles::read(tiny()).write(folder);
  const std::string whole = read_bytes(folder.file("model.safetensors"));
  for (std::size_t size = 0; size < whole.size(); size += 1511) {
    write_text(folder.file("model.safetensors"), whole.substr(0, size));
    EXPECT_TRUE(mentions(text_of<FormatError>([&] { Transformer::load(folder.path()); }), "model.safetensors")) << size;
  }
  std::filesystem::remove(folder.file("model.safetensors"));
  EXPECT_TRUE(mentions(text_of<IoError>([&] { Transformer::load(folder.path()); }), "model.safetensors"));
}

class TransformerCallErrors : public testing::Test {
 protected:
  TransformerCallErrors() { std::ranges::fill(hidden_data(), kUntouched); }

  std::span<float> hidden_data() { return {hidden_.data<float>(), 2 * 41 * 32}; }

  template <class Kind = ShapeError>
  std::string refusal(const TransformerInputs& inputs, const TensorView& hidden) {
    const std::string text = text_of<Kind>([&] { model_.forward(inputs, hidden, workspace_); });
    EXPECT_TRUE(std::ranges::all_of(hidden_data(), [](float value) { return value == kUntouched; })) << text;
    return text;
  }

  TensorView hidden(Index batch, Index length) { return {hidden_.data<float>(), {batch, length, 32}}; }

  static constexpr float kUntouched = 1234;
  const Transformer model_ = Transformer::load(tiny());
  Tensor hidden_{DType::F32, {2, 41, 32}};
  Workspace workspace_;
  std::vector<Index> ids_ = some_ids(12, 50, 1);
};

TEST_F(TransformerCallErrors, Ids) {
  for (const Index bad : {Index{50}, Index{-1}, INT64_MAX, INT64_MIN}) {
    ids_[7] = bad;
    EXPECT_TRUE(mentions(refusal({.ids = ids_}, hidden(1, 12)), "ids[7]", std::to_string(bad), "50"));
  }
  ids_.assign(41, 0);
  EXPECT_TRUE(mentions(refusal({.ids = ids_}, hidden(1, 41)), "text has 41 tokens, the model has 40 positions"));
}

TEST_F(TransformerCallErrors, Counts) {
  EXPECT_TRUE(mentions(refusal({.ids = ids_}, hidden(1, 11)), "12 ids", "11"));
  EXPECT_TRUE(mentions(refusal({.ids = ids_, .batch = 2}, hidden(1, 12)), "batch 1", "2"));
  EXPECT_TRUE(mentions(refusal({.ids = ids_, .batch = -1}, hidden(1, 12)), "-1"));
  const std::vector<Index> three = {1, 1, 1};
  EXPECT_TRUE(mentions(refusal({.ids = ids_, .batch = 2, .lengths = three}, hidden(2, 6)), "3 lengths", "2"));
  EXPECT_TRUE(mentions(refusal({.ids = ids_, .token_types = three}, hidden(1, 12)), "3 token types", "12 ids"));
}

TEST_F(TransformerCallErrors, LengthsAndTokenTypes) {
  for (const Index bad : {Index{7}, Index{-1}}) {
    const std::vector<Index> lengths = {6, bad};
    EXPECT_TRUE(mentions(refusal({.ids = ids_, .batch = 2, .lengths = lengths}, hidden(2, 6)), "lengths[1]", std::to_string(bad), "6"));
  }
  for (const Index bad : {Index{2}, Index{-1}}) {
    std::vector<Index> types(12, 0);
    types[3] = bad;
    EXPECT_TRUE(mentions(refusal({.ids = ids_, .token_types = types}, hidden(1, 12)), "token_types[3]", std::to_string(bad), "2"));
  }
}

TEST_F(TransformerCallErrors, Hidden) {
  const TransformerInputs inputs{.ids = ids_};
  EXPECT_TRUE(mentions(refusal(inputs, {}), "hidden"));
  EXPECT_TRUE(mentions(refusal(inputs, hidden_.view().slice(0, 0, 1).reshape({41, 32})), "hidden", "[41, 32]"));
  EXPECT_TRUE(mentions(refusal(inputs, hidden(1, 12).slice(2, 0, 31)), "31", "32"));
  Tensor doubles(DType::F64, {1, 12, 32});
  EXPECT_TRUE(mentions(refusal<DTypeError>(inputs, doubles), "f64", "f32"));
}

TEST(TransformerCalls, DistilBertKnowsOneTokenType) {
  const Transformer model = Transformer::load(test_data("tiny_distilbert"));
  const std::vector<Index> ids = some_ids(3, 50, 1);
  Workspace workspace;
  const std::vector<Index> zeros = {0, 0, 0};
  hidden_states(model, {.ids = ids, .token_types = zeros}, workspace);
  const std::vector<Index> ones = {0, 1, 0};
  EXPECT_TRUE(
      mentions(text_of<ShapeError>([&] { hidden_states(model, {.ids = ids, .token_types = ones}, workspace); }), "token_types[1]", "1"));
}

}  // namespace
}  // namespace mha::test
