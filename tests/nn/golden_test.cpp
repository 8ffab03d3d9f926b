// Both forms of the layer against torch.nn.MultiheadAttention: tests/data/layer_*.safetensors, written by tools/make_layer_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mha/layer.h"
#include "mha/model/safetensors.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

/// A golden with every floating tensor in `dtype`: as torch computed it (F64), or rounded.
struct Golden {
  Golden(const std::string& name, DType dtype) : file(std::string(MHA_TEST_SOURCE_DIR) + "/tests/data/layer_" + name + ".safetensors") {
    for (const std::string& tensor : file.names()) {
      const ConstTensorView view = file.tensor(tensor);
      if (view.dtype != DType::F64) continue;
      Tensor rounded(dtype, view.shape);
      copy(view, rounded);
      floating.emplace(tensor, std::move(rounded));
    }
  }

  ConstTensorView get(const std::string& name) const {
    if (const auto found = floating.find(name); found != floating.end()) return found->second;
    return file.contains(name) ? file.tensor(name) : ConstTensorView();
  }

  MhaConfig config() const {
    const Index d_model = get("x").size(2);
    return {.d_model = d_model,
            .heads = get("heads").as<Index>()[0],
            .key_width = get("key") ? get("key").size(2) : 0,
            .value_width = get("value") ? get("value").size(2) : 0,
            .bias = file.contains("in_proj_bias"),
            .learned_key = file.contains("bias_k"),
            .zero_key = file.contains("zero_key"),
            .attention = {.bias = get("bias") ? Bias(DenseBias{get("bias")}) : Bias(NoBias{})}};
  }

  MhaWeights weights() const {
    const Index d = config().d_model;
    const auto third = [d](const ConstTensorView& packed, Index i) { return packed ? packed.slice(0, i * d, (i + 1) * d) : packed; };
    const auto row = [d](const ConstTensorView& view) { return view ? view.reshape({d}) : view; };
    const ConstTensorView packed = get("in_proj_weight");
    const ConstTensorView bias = get("in_proj_bias");
    return {.wq = packed ? third(packed, 0) : get("q_proj_weight"),
            .wk = packed ? third(packed, 1) : get("k_proj_weight"),
            .wv = packed ? third(packed, 2) : get("v_proj_weight"),
            .wo = get("out_proj.weight"),
            .bq = third(bias, 0),
            .bk = third(bias, 1),
            .bv = third(bias, 2),
            .bo = get("out_proj.bias"),
            .learned_k = row(get("bias_k")),
            .learned_v = row(get("bias_v"))};
  }

  SafetensorsFile file;
  std::map<std::string, Tensor> floating;
};

const std::vector<std::string> kGoldens = {
    "self",         "self_no_bias", "causal",         "per_head_mask",        "lengths",       "cross",
    "cross_widths", "float_mask",   "float_per_head", "table_and_padding",    "float_padding", "cross_widths_no_bias",
    "learned_key",  "zero_key",     "appended_keys",  "appended_keys_no_bias"};

/// Scores are of magnitude 8 at most here, sums of at most d_model terms: the roundings of four matrix products and one attention. In f32
/// the inputs' own rounding counts as one more term.
double tolerance(const MhaConfig& config, DType dtype) {
  return 8 * dot_tolerance(std::max(config.key_width, config.d_model) + 1, dtype) + forward_tolerance(dtype);
}

class GoldenTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, GoldenTest, testing::ValuesIn(all_isas()), isa_name);

template <class Layer>
void expect_golden(const Layer& layer, const Golden& golden) {
  Workspace workspace;
  const DType dtype = golden.get("y").dtype;
  Tensor y(dtype, golden.get("y").shape);
  Tensor weights(dtype, golden.get("weights").shape);
  std::vector<Index> lengths;
  if (const ConstTensorView given = golden.get("kv_lengths")) lengths.assign(given.as<Index>(), given.as<Index>() + given.size(0));
  layer.forward({.x = golden.get("x"),
                 .key = golden.get("key"),
                 .value = golden.get("value"),
                 .allowed = golden.get("allowed"),
                 .kv_lengths = lengths},
                {.y = y, .weights = weights}, workspace);
  EXPECT_LE(relative_error(y, golden.get("y")), tolerance(layer.config(), dtype));
  EXPECT_LE(relative_error(weights, golden.get("weights")), tolerance(layer.config(), dtype));
}

void expect_both_forms(DType dtype) {
  for (const std::string& name : kGoldens) {
    SCOPED_TRACE(name);
    const Golden golden(name, dtype);
    expect_golden(MultiHeadAttention(golden.config(), golden.weights()), golden);
    expect_golden(NaiveMultiHeadAttention(golden.config(), to_naive(golden.config(), golden.weights())), golden);
  }
}

TEST_P(GoldenTest, BothFormsMatchTorchInF64) { expect_both_forms(DType::F64); }
TEST_P(GoldenTest, BothFormsMatchTorchInF32) { expect_both_forms(DType::F32); }

// A causal rule instead of torch's table says the same.
TEST_P(GoldenTest, CausalRuleMatchesTorchsTable) {
  const Golden golden("causal", DType::F32);
  MhaConfig config = golden.config();
  config.attention.mask = causal();
  const MultiHeadAttention layer(config, golden.weights());
  Workspace workspace;
  Tensor y(DType::F32, golden.get("y").shape);
  layer.forward({.x = golden.get("x")}, {.y = y}, workspace);
  EXPECT_LE(relative_error(y, golden.get("y")), tolerance(config, DType::F32));
}

}  // namespace
}  // namespace mha::test
