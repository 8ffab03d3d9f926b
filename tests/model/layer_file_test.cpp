// Layers in files: torch's own files compute what torch computes, every layout comes back as it went, and what cannot be is refused.
#include "mha/model/layer_file.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

/// torch's layer of make_goldens.py called `name`.
MhaConfig torch_config(const std::string& name) {
  MhaConfig config{.d_model = 24, .heads = 3};
  if (name == "no_bias") config.bias = false;
  if (name == "learned_key") config.learned_key = true;
  if (name == "cross") {
    config.key_width = 20;
    config.value_width = 12;
  }
  return config;
}
const std::vector<std::string> kTorchLayers = {"packed", "no_bias", "cross"};  // in the golden file
const std::vector<std::string> kTorchConfigs = {"packed", "no_bias", "cross", "learned_key"};

/// Every config a file may hold; torch has the first four only.
std::vector<MhaConfig> our_configs() {
  std::vector<MhaConfig> configs;
  for (const std::string& name : kTorchConfigs) configs.push_back(torch_config(name));
  configs.push_back({.d_model = 24, .heads = 4, .kv_heads = 2});
  configs.push_back({.d_model = 24, .heads = 4, .kv_heads = 1, .head_dim = 5, .key_width = 7, .value_width = 9, .bias = false});
  configs.push_back({.d_model = 24, .heads = 4, .kv_heads = 2, .learned_key = true, .zero_key = true});
  return configs;
}

MhaParameters some_parameters(const MhaConfig& config, DType dtype = DType::F32) {
  MhaParameters parameters = xavier_parameters(config, 1);
  float value = 0;
  for (Tensor* bias : {&parameters.bq, &parameters.bk, &parameters.bv, &parameters.bo}) {
    if (!*bias) continue;
    for (Index i = 0; i < bias->size(0); ++i) bias->data<float>()[i] = value += 0.25F;
  }
  for (Tensor* each : {&parameters.wq, &parameters.wk, &parameters.wv, &parameters.wo, &parameters.bq, &parameters.bk, &parameters.bv,
                       &parameters.bo, &parameters.learned_k, &parameters.learned_v}) {
    if (*each) *each = converted(*each, dtype);
  }
  return parameters;
}

void expect_same(const MhaParameters& got, const MhaParameters& expected) {
  const MhaWeights a = got.view();
  const MhaWeights b = expected.view();
  const auto same = [](const char* name, const ConstTensorView& x, const ConstTensorView& y) {
    ASSERT_EQ(static_cast<bool>(x), static_cast<bool>(y)) << name;
    if (x) {
      EXPECT_TRUE(bitwise_equal(x, y)) << name;
    }
  };
  same("wq", a.wq, b.wq);
  same("wk", a.wk, b.wk);
  same("wv", a.wv, b.wv);
  same("wo", a.wo, b.wo);
  same("bq", a.bq, b.bq);
  same("bk", a.bk, b.bk);
  same("bv", a.bv, b.bv);
  same("bo", a.bo, b.bo);
  same("learned_k", a.learned_k, b.learned_k);
  same("learned_v", a.learned_v, b.learned_v);
}

class LayerFileTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, LayerFileTest, testing::ValuesIn(all_isas()), isa_name);

TEST_P(LayerFileTest, TorchLayersComputeWhatTorchComputes) {
  const SafetensorsFile file(test_data("torch_layer.safetensors"));
  for (const std::string& name : kTorchLayers) {
    SCOPED_TRACE(name);
    const MhaConfig config = torch_config(name);
    const MultiHeadAttention layer(config, load_layer(file, name + ".", config).view());
    Tensor y(DType::F32, {2, 5, 24});
    Workspace workspace;
    layer.forward({.x = file.tensor(name + ".x"), .key = file.tensor(name + ".key"), .value = file.tensor(name + ".value")}, {.y = y},
                  workspace);
    EXPECT_LE(relative_error(y, file.tensor(name + ".y")), forward_tolerance(DType::F32));
  }
}

TEST(LayerFile, ComesBackAsItWent) {
  const TempFolder folder;
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F16, DType::F64}) {
    for (const MhaConfig& config : our_configs()) {
      const MhaParameters parameters = some_parameters(config, dtype);
      save_layer(folder.file("ours"), "a.b.", config, parameters.view());
      expect_same(load_layer(SafetensorsFile(folder.file("ours")), "a.b.", config), parameters);
    }
    for (const std::string& name : kTorchConfigs) {
      const MhaConfig config = torch_config(name);
      const MhaParameters parameters = some_parameters(config, dtype);
      save_layer(folder.file("torch"), "", config, parameters.view(), LayerLayout::Torch);
      expect_same(load_layer(SafetensorsFile(folder.file("torch")), "", config), parameters);
    }
  }
}

TEST(LayerFile, TorchFilesAreWrittenAsTorchWritesThem) {
  const SafetensorsFile golden(test_data("torch_layer.safetensors"));
  const TempFolder folder;
  for (const std::string& name : kTorchLayers) {
    SCOPED_TRACE(name);
    const MhaConfig config = torch_config(name);
    save_layer(folder.file("torch"), name + ".", config, load_layer(golden, name + ".", config).view(), LayerLayout::Torch);
    const SafetensorsFile written(folder.file("torch"));
    std::vector<std::string> expected;
    for (const std::string& each : golden.names()) {
      if (each.starts_with(name + ".") && each.find("proj") != std::string::npos) expected.push_back(each);
    }
    ASSERT_EQ(written.names(), expected);
    for (const std::string& each : expected) EXPECT_TRUE(bitwise_equal(written.tensor(each), golden.tensor(each))) << each;
  }
}

TEST(LayerFile, StridedWeightsAreWrittenDense) {
  const TempFolder folder;
  const MhaConfig config{.d_model = 4, .heads = 2, .bias = false};
  const MhaParameters parameters = some_parameters(config);
  MhaWeights weights = parameters.view();
  weights.wq = weights.wq.transpose(0, 1);
  for (const LayerLayout layout : {LayerLayout::Ours, LayerLayout::Torch}) {
    save_layer(folder.file("layer"), "", config, weights, layout);
    EXPECT_TRUE(bitwise_equal(load_layer(SafetensorsFile(folder.file("layer")), "", config).wq, weights.wq));
  }
}

/// A layer's file with one tensor changed (absent: taken out).
class ChangedFile {
 public:
  ChangedFile(const MhaConfig& config, LayerLayout layout) {
    save_layer(folder_.file("layer"), "p.", config, some_parameters(config).view(), layout);
    const SafetensorsFile file(folder_.file("layer"));
    for (const std::string& name : file.names()) tensors_[name] = converted(file.tensor(name), file.tensor(name).dtype);
  }
  std::map<std::string, Tensor>& tensors() { return tensors_; }
  std::string refusal(const MhaConfig& config) {
    std::vector<NamedTensor> list;
    for (const auto& [name, tensor] : tensors_) list.push_back({name, tensor});
    save_safetensors(folder_.file("changed"), list);
    return text_of<FormatError>([&] { load_layer(SafetensorsFile(folder_.file("changed")), "p.", config); });
  }

 private:
  TempFolder folder_;
  std::map<std::string, Tensor> tensors_;
};

TEST(LayerFile, MissingTensorsAndWrongShapesAreNamed) {
  for (const LayerLayout layout : {LayerLayout::Ours, LayerLayout::Torch}) {
    for (const char* const kind : {"packed", "cross", "learned_key"}) {
      const MhaConfig config = torch_config(kind);
      ChangedFile names(config, layout);
      for (const auto& [name, unused] : names.tensors()) {
        SCOPED_TRACE(name);
        ChangedFile changed(config, layout);
        const Dims right = changed.tensors().at(name).shape();
        Dims wrong = right;
        wrong[0] += 1;
        changed.tensors()[name] = Tensor(DType::F32, wrong);
        EXPECT_TRUE(mentions(changed.refusal(config), name, to_string(right), to_string(wrong)));
        changed.tensors()[name] = Tensor(DType::I64, right);
        EXPECT_TRUE(mentions(changed.refusal(config), name, "I64"));
        changed.tensors().erase(name);
        EXPECT_TRUE(mentions(changed.refusal(config), name, "missing"));
      }
    }
  }
}

TEST(LayerFile, AShapeOfAnyRankIsCutInTheMessage) {
  std::string ones = "1";
  for (int i = 1; i < 10'000; ++i) ones += ",1";
  const std::string header = R"({"wq":{"dtype":"F32","shape":[)" + ones + R"(],"data_offsets":[0,4]}})";
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  const TempFolder folder;
  write_text(folder.file("x"), bytes + header + std::string(4, '\0'));
  const std::string text = text_of<FormatError>([&] { load_layer(SafetensorsFile(folder.file("x")), "", torch_config("packed")); });
  EXPECT_TRUE(mentions(text, "wq", "[1, 1, 1, 1, 1, 1, 1, 1, ...]"));
  EXPECT_LT(text.size(), 400U);
}

TEST(LayerFile, BiasesMustBeWhatTheConfigSays) {
  const MhaConfig with = torch_config("packed");
  const MhaConfig without = torch_config("no_bias");
  EXPECT_TRUE(mentions(ChangedFile(with, LayerLayout::Ours).refusal(without), "p.bq", "no bias"));
  EXPECT_TRUE(mentions(ChangedFile(with, LayerLayout::Torch).refusal(without), "p.in_proj_bias", "no bias"));
  EXPECT_TRUE(mentions(ChangedFile(without, LayerLayout::Ours).refusal(with), "p.bq", "missing"));
  EXPECT_TRUE(mentions(ChangedFile(without, LayerLayout::Torch).refusal(with), "p.in_proj_bias", "missing"));
}

TEST(LayerFile, WhatIsAmbiguousOrNotOursIsRefused) {
  const MhaConfig config = torch_config("packed");
  ChangedFile both(config, LayerLayout::Torch);
  both.tensors()["p.wq"] = Tensor(DType::F32, {24, 24});
  EXPECT_TRUE(mentions(both.refusal(config), "both layouts", "p.wq"));
  ChangedFile added(config, LayerLayout::Torch);
  added.tensors()["p.bias_k"] = Tensor(DType::F32, {1, 1, 24});
  EXPECT_TRUE(mentions(added.refusal(config), "p.bias_k", "add_bias_kv"));
  ChangedFile mixed(config, LayerLayout::Ours);
  mixed.tensors()["p.wk"] = Tensor(DType::F64, {24, 24});
  EXPECT_TRUE(mentions(mixed.refusal(config), "wk", "f64", "f32"));
  ChangedFile empty(config, LayerLayout::Ours);
  empty.tensors().clear();
  EXPECT_TRUE(mentions(empty.refusal(config), "p.wq", "p.in_proj_weight", "missing"));
}

TEST(LayerFile, LayersTorchDoesNotHave) {
  const TempFolder folder;
  const auto refusal = [&](const MhaConfig& config) {
    return text_of<ShapeError>([&] { save_layer(folder.file("x"), "", config, some_parameters(config).view(), LayerLayout::Torch); });
  };
  EXPECT_TRUE(mentions(refusal({.d_model = 24, .heads = 4, .kv_heads = 2}), "kv_heads is 2", "heads is 4"));
  EXPECT_TRUE(mentions(refusal({.d_model = 24, .heads = 4, .head_dim = 5}), "20", "24"));
  const MhaConfig config = torch_config("packed");
  MhaParameters mixed = some_parameters(config);
  mixed.wv = converted(mixed.wv, DType::Bf16);
  EXPECT_TRUE(mentions(text_of<DTypeError>([&] { save_layer(folder.file("x"), "", config, mixed.view(), LayerLayout::Torch); }), "v", "f32",
                       "bf16"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("x")));
  EXPECT_TRUE(
      mentions(text_of<ShapeError>([&] { save_layer(folder.file("x"), "", {.d_model = 24, .heads = 7}, mixed.view()); }), "24", "7"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { save_layer(folder.file("x"), "", {.d_model = 20, .heads = 5}, mixed.view()); }), "wq"));
}

}  // namespace
}  // namespace mha::test
