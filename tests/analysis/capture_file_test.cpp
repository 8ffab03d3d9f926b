// Capture files: what they give, and that nothing but a FormatError comes of wrong ones.
#include "mha/analysis/capture_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "mha/error.h"
#include "mha/model/safetensors.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/near.h"

namespace mha {
namespace {

using nlohmann::json;

constexpr Index kBatch = 2, kHeads = 4, kKvHeads = 2, kLength = 6, kDim = 8;

Tensor random_tensor(Dims shape, unsigned seed) {
  std::mt19937 source(seed);
  std::normal_distribution<float> normal;
  Tensor tensor(DType::F32, shape);
  for (Index i = 0; i < element_count(shape); ++i) tensor.data<float>()[i] = normal(source);
  return tensor;
}

Tensor i64_tensor(Dims shape, const std::vector<Index>& values) {
  Tensor tensor(DType::I64, shape);
  std::copy(values.begin(), values.end(), tensor.data<Index>());
  return tensor;
}

/// A file in memory, to be changed and written: one causal layer with grouped heads of two texts, the first padded on its left.
struct Written {
  std::map<std::string, Tensor> tensors;
  json layers, texts, pieces;
  std::map<std::string, std::string> metadata = {{"format", "mha.capture"}, {"version", "1"}, {"model", "tiny"}};
  Tensor weights{DType::F32, {kBatch, kHeads, kLength, kLength}};  // as computed

  Written() {
    tensors["layers.0.q"] = random_tensor({kBatch, kHeads, kLength, kDim}, 1);
    tensors["layers.0.k"] = random_tensor({kBatch, kKvHeads, kLength, kDim}, 2);
    tensors["tables.0"] = Tensor(DType::Bool, {kBatch, 1, 1, kLength});
    bool* allowed = tensors["tables.0"].data<bool>();
    std::fill_n(allowed, kBatch * kLength, true);
    allowed[0] = allowed[1] = false;
    tensors["tokens"] = i64_tensor({kBatch, kLength}, {0, 0, 7, 8, 9, 3, 2, 7, 8, 8, 9, 3});
    tensors["tokens.mask"] = Tensor(DType::Bool, {kBatch, kLength});
    std::copy_n(allowed, kBatch * kLength, tensors["tokens.mask"].data<bool>());
    tensors["tokens.words"] = i64_tensor({kBatch, kLength}, {-1, -1, 0, 0, 1, -1, -1, 0, 1, 1, 2, -1});
    tensors["tokens.offsets"] = i64_tensor({kBatch, kLength, 2}, {0, 0, 0, 0, 0, 1, 1, 3, 4, 5, 0, 0, 0, 0, 0, 1, 2, 3, 3, 4, 5, 6, 0, 0});
    texts = {"añb 天", "a bc d"};
    layers = json::array({{{"name", "h.0.attn"},
                           {"heads", kHeads},
                           {"kv_heads", kKvHeads},
                           {"head_dim", kDim},
                           {"q_len", kLength},
                           {"kv_len", kLength},
                           {"scale", 0.25},
                           {"softcap", nullptr},
                           {"causal", true},
                           {"window", nullptr},
                           {"align", "top_left"},
                           {"allowed", "tables.0"},
                           {"bias", nullptr},
                           {"sinks", nullptr},
                           {"queries", "tokens"},
                           {"keys", "tokens"}}});
    compute({.mask = causal(), .align = Align::TopLeft, .scale = 0.25});
  }
  void compute(const AttentionSpec& spec) {
    Tensor v(DType::F32, {kBatch, kLength, kKvHeads, kDim});
    Tensor out(DType::F32, {kBatch, kLength, kHeads, kDim});
    tensors["layers.0.lse"] = Tensor(DType::F32, {kBatch, kHeads, kLength});
    Workspace workspace;
    attention_forward(spec,
                      {.q = tensors["layers.0.q"].view().transpose(1, 2),
                       .k = tensors["layers.0.k"].view().transpose(1, 2),
                       .v = v,
                       .allowed = tensors["tables.0"]},
                      {.out = out, .lse = tensors["layers.0.lse"], .weights = weights}, workspace);
  }
  CaptureFile load() {
    const test::TempFolder folder;
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors) named.push_back({name, tensor});
    if (!layers.is_null()) metadata["layers"] = layers.dump();
    if (!texts.is_null()) metadata["texts"] = texts.dump();
    if (!pieces.is_null()) metadata["pieces"] = pieces.dump();
    save_safetensors(folder.file("capture.safetensors"), named, metadata);
    return load_capture(folder.file("capture.safetensors"));  // stays mapped
  }
  std::string refused() {
    return test::text_of<FormatError>([&] { load(); });
  }
};

std::vector<std::string> texts_of(const std::vector<Unit>& units) {
  std::vector<std::string> texts;
  for (const Unit& unit : units) texts.push_back(unit.text);
  return texts;
}

TEST(CaptureFile, GivesTheWeightsOfTheRun) {
  Written written;
  const CaptureFile file = written.load();
  ASSERT_EQ(file.capture.layers.size(), 1U);
  const CapturedLayer& layer = file.capture.layers[0];
  EXPECT_EQ(layer.name, "h.0.attn");
  EXPECT_EQ(layer.heads(), kHeads);
  EXPECT_EQ(layer.kv_heads(), kKvHeads);
  Workspace workspace;
  Tensor table(DType::F32, {kLength, kLength});
  for (Index b = 0; b < kBatch; ++b) {
    for (Index h = 0; h < kHeads; ++h) {
      captured_weights(layer, {.batch = b, .head = h, .queries = {0, kLength}, .keys = {0, kLength}}, table, workspace);
      const float* expected = written.weights.data<float>() + (b * kHeads + h) * kLength * kLength;
      EXPECT_LE(test::max_difference(table, ConstTensorView(expected, {kLength, kLength})), test::exp_tolerance(8));
    }
  }
}

TEST(CaptureFile, NamesTokensByTheirPlaceInTheText) {
  Written written;
  const CaptureFile file = written.load();
  EXPECT_EQ(captured_tokens(file, "tokens", 0, kLength), (Interval{2, 6}));
  EXPECT_EQ(captured_tokens(file, "tokens", 1, kLength), (Interval{0, 6}));
  EXPECT_EQ(captured_tokens(file, "", 0, 9), (Interval{0, 9}));
  const CapturedUnits first = captured_units(file, "tokens", 0, {2, 6});
  EXPECT_EQ(texts_of(first.pieces), (std::vector<std::string>{"a", "ñb", "天", "3"}));
  EXPECT_EQ(texts_of(first.words), (std::vector<std::string>{"añb", "天", "3"}));
  EXPECT_EQ(first.words[1].first, 2);
  EXPECT_FALSE(first.words[0].special);
  EXPECT_TRUE(first.words[2].special);
  const CapturedUnits second = captured_units(file, "tokens", 1, {0, 6});
  EXPECT_EQ(texts_of(second.words), (std::vector<std::string>{"2", "a", "bc", "d", "3"}));
  written.pieces = {{"tokens", {{"p", "p", "a", "##b", "c", "[SEP]"}, {"[CLS]", "a", "b", "##c", "d", "[SEP]"}}}};
  EXPECT_EQ(texts_of(captured_units(written.load(), "tokens", 1, {0, 6}).words),
            (std::vector<std::string>{"[CLS]", "a", "bc", "d", "[SEP]"}));
  EXPECT_EQ(texts_of(captured_units(file, "", 0, {4, 6}).pieces), (std::vector<std::string>{"4", "5"}));
}

TEST(CaptureFile, ReadyWeightsAndOtherDtypes) {
  Written written;
  written.tensors["layers.0.weights"] = test::converted(written.weights, DType::F16);
  written.layers[0] = {{"name", "ready"}, {"queries", "tokens"}, {"keys", nullptr}};
  const CaptureFile file = written.load();
  Workspace workspace;
  Tensor row(DType::F32, {1, kLength});
  captured_weights(file.capture.layers[0], {.batch = 1, .head = 2, .queries = {4, 5}, .keys = {0, kLength}}, row, workspace);
  for (Index k = 0; k < kLength; ++k) {
    const float weight = written.weights.data<float>()[((kHeads + 2) * kLength + 4) * kLength + k];
    EXPECT_NEAR(row.data<float>()[k], weight, test::unit_roundoff(DType::F16));
  }
}

TEST(CaptureFile, RulesAreReadAsTheyAreWritten) {
  Written written;
  json& said = written.layers[0];
  said["window"] = {2, -1};
  said["softcap"] = 3.5;
  said["align"] = "bottom_right";
  said["sinks"] = "tables.1";
  said["bias"] = "tables.2";
  written.tensors["tables.1"] = random_tensor({kHeads}, 3);
  written.tensors["tables.2"] = test::converted(random_tensor({1, kHeads, kLength, kLength}, 4), DType::Bf16);
  const Tensor bias = test::converted(written.tensors["tables.2"], DType::F32);
  const float* sinks = written.tensors["tables.1"].data<float>();
  written.compute({.mask = causal() & window(2, -1),
                   .align = Align::BottomRight,
                   .bias = DenseBias{bias},
                   .scale = 0.25,
                   .softcap = 3.5,
                   .sink_logits = std::vector<float>(sinks, sinks + kHeads)});
  const CaptureFile file = written.load();
  const AttentionSpec& spec = file.capture.layers[0].spec;
  EXPECT_EQ(to_string(spec.mask), to_string(causal() & window(2, -1)));
  EXPECT_EQ(spec.softcap, 3.5);
  EXPECT_EQ(spec.align, Align::BottomRight);
  EXPECT_EQ(spec.sink_logits.size(), 4U);
  EXPECT_EQ(std::get<DenseBias>(spec.bias).values.dtype, DType::Bf16);
}

struct Case {
  std::function<void(Written&)> change;
  std::vector<std::string> said;
};

void expect_refused(const std::vector<Case>& cases) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Written written;
    cases[i].change(written);
    const std::string text = written.refused();
    EXPECT_TRUE(test::mentions(text, std::string_view("capture.safetensors"))) << i;
    for (const std::string& part : cases[i].said) EXPECT_TRUE(test::mentions(text, part)) << i;
  }
}

std::function<void(Written&)> field(const char* key, const json& value) {
  return [=](Written& w) { w.layers[0][key] = value; };
}
std::function<void(Written&)> tensor(const char* name, DType dtype, Dims shape) {
  return [=](Written& w) { w.tensors[name] = Tensor(dtype, shape); };
}
/// Leaves out who the tokens are.
void unnamed(Written& w) {
  for (const char* name : {"tokens", "tokens.mask", "tokens.words", "tokens.offsets"}) w.tensors.erase(name);
  w.layers[0]["queries"] = w.layers[0]["keys"] = nullptr;
}

TEST(CaptureFile, WrongTensorsAreRefusedByName) {
  expect_refused({
      {[](Written& w) { w.metadata["format"] = "other"; }, {"format"}},
      {[](Written& w) { w.metadata["version"] = "2"; }, {"version", "2"}},
      {[](Written& w) { w.layers = json::array(); }, {"layers"}},
      {[](Written& w) { w.layers = json::object(); }, {"layers"}},
      {[](Written& w) { w.layers.push_back(w.layers[0]); }, {"layers.1.q"}},
      {[](Written& w) { w.layers[0].erase("name"); }, {"name"}},
      {[](Written& w) { w.layers[0].erase("scale"); }, {"scale"}},
      {[](Written& w) { w.tensors.erase("layers.0.q"); }, {"layers.0.q"}},
      {[](Written& w) { w.tensors.erase("layers.0.lse"); }, {"layers.0.lse"}},
      {[](Written& w) { w.tensors["layers.0.lse"].data<float>()[5] = std::numeric_limits<float>::quiet_NaN(); }, {"lse", "nan", "5"}},
      {tensor("layers.0.lse", DType::F32, {kBatch, kHeads, kLength + 1}), {"lse", "[2, 4, 7]"}},
      {tensor("layers.0.lse", DType::F64, {kBatch, kHeads, kLength}), {"layers.0.lse", "f64"}},
      {tensor("layers.0.k", DType::F16, {kBatch, kKvHeads, kLength, kDim}), {"layers.0.k", "f16"}},
      {tensor("layers.0.k", DType::F32, {kBatch, 3, kLength, kDim}), {"kv_heads"}},
      {tensor("layers.0.k", DType::F32, {kBatch, kKvHeads, kLength, kDim + 1}), {"layers[0]", "9"}},
      {tensor("layers.0.q", DType::F32, {kBatch, kHeads, kLength}), {"layers.0.q", "3 axes"}},
      {tensor("layers.0.q", DType::F32, {kBatch, kHeads, 0, kDim}), {"layers.0.q", "nothing"}},
      {tensor("layers.0.q", DType::I64, {kBatch, kHeads, kLength, kDim}), {"layers.0.q", "i64"}},
      {tensor("layers.0.v", DType::F32, {kBatch, kKvHeads, kLength + 1, kDim}), {"v is"}},
      {tensor("tables.0", DType::Bool, {kBatch, 1, 1, kLength + 1}), {"layers[0]"}},
      {tensor("tables.0", DType::F32, {kBatch, 1, 1, kLength}), {"tables.0", "f32"}},
  });
}

std::function<void(Written&)> lse(const std::function<float(float)>& changed) {
  return [=](Written& w) {
    float* first = w.tensors["layers.0.lse"].data<float>();
    std::transform(first, first + kBatch * kHeads * kLength, first, changed);
  };
}

TEST(CaptureFile, AnLseOfOtherScoresIsRefused) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  expect_refused({
      {lse([](float one) { return one / std::log(2.0F); }), {"lse does not fit", "natural"}},
      {lse([](float one) { return one - 1; }), {"lse does not fit", "add up to 2.7"}},
      {lse([](float one) { return one + 1; }), {"lse does not fit", "add up to 0.36"}},
      {lse([](float) { return kNothing; }), {"lse does not fit", "-inf"}},
      {[](Written& w) { w.tensors["layers.0.lse"].data<float>()[kBatch * kHeads * kLength - 2] = kNothing; },
       {"batch 1, head 3, query 4", "more than 0"}},
      {field("scale", 0.5), {"lse does not fit"}},
  });
  Written written;  // what bf16 loses is no contradiction
  written.tensors["layers.0.lse"] = test::converted(test::converted(written.tensors["layers.0.lse"], DType::Bf16), DType::F32);
  EXPECT_EQ(written.load().capture.layers.size(), 1U);
}

TEST(CaptureFile, ReadyWeightsAreNeitherNegativeNorInfinite) {
  const auto with = [](float weight) {
    Written written;
    written.tensors["layers.0.weights"] = test::converted(written.weights, DType::F32);
    written.tensors["layers.0.weights"].data<float>()[kLength + 2] = weight;
    written.layers[0] = {{"name", "ready"}, {"queries", "tokens"}, {"keys", nullptr}};
    return written;
  };
  EXPECT_TRUE(test::mentions(with(-2.0F).refused(), std::string_view("layers.0.weights is -2 at element 8")));
  EXPECT_TRUE(test::mentions(with(std::numeric_limits<float>::infinity()).refused(), std::string_view("is inf at element 8")));
  EXPECT_EQ(with(std::numeric_limits<float>::quiet_NaN()).load().capture.layers.size(), 1U);  // 0 / 0
}

TEST(CaptureFile, WrongFieldsAreRefusedByName) {
  expect_refused({
      {field("allowed", "tables.9"), {"tables.9"}},
      {field("allowed", 5), {"allowed"}},
      {field("bias", "tables.0"), {"tables.0", "bool"}},
      {field("sinks", "tokens"), {"tokens"}},
      {field("scale", "big"), {"scale"}},
      {field("softcap", 0), {"softcap"}},
      {field("softcap", -1), {"softcap"}},
      {field("window", json::array({1})), {"window"}},
      {field("window", json::array({-2, 0})), {"window"}},
      {field("window", json::array({0.5, 0})), {"window"}},
      {field("align", "middle"), {"align", "middle"}},
      {field("causal", 1), {"causal"}},
      {field("heads", 5), {"heads", "5", "4"}},
      {field("q_len", -1), {"q_len"}},
      {field("queries", "nobody"), {"queries", "nobody"}},
      {tensor("tokens", DType::I64, {kBatch, kLength + 1}), {"tokens"}},
      {tensor("tokens.mask", DType::Bool, {kBatch, kLength - 1}), {"tokens.mask"}},
      {tensor("tokens.words", DType::Bool, {kBatch, kLength}), {"tokens.words", "bool"}},
      {[](Written& w) { w.tensors["tokens.words"].data<Index>()[3] = -2; }, {"tokens.words", "-2"}},
      {[](Written& w) { w.tensors["tokens.offsets"].data<Index>()[5] = -1; }, {"tokens.offsets", "-1"}},
      {[](Written& w) { w.tensors["tokens.offsets"].data<Index>()[9] = 6; }, {"tokens.offsets", "5 characters"}},
      {[](Written& w) { w.texts = json::array({"one"}); }, {"texts", "1"}},
      {[](Written& w) { w.texts = json::array({1, 2}); }, {"texts"}},
      {[](Written& w) {
         unnamed(w);
         w.texts = json::array({"one"});
       },
       {"texts", "1 texts", "batch of 2"}},
      {[](Written& w) {
         unnamed(w);
         w.texts = nullptr;
         w.tensors["decoder_tokens"] = Tensor(DType::I64, {kBatch + 1, kLength});
       },
       {"decoder_tokens", "[3, 6]", "batch of 2"}},
      {[](Written& w) { w.pieces = {{"tokens", {{"a"}}}}; }, {"pieces"}},
      {[](Written& w) { w.pieces = json::array(); }, {"pieces"}},
      {[](Written& w) {
         w.metadata["layers"] = std::string(100, '[');
         w.layers = nullptr;
       },
       {"layers", "deeper"}},
  });
}

}  // namespace
}  // namespace mha
