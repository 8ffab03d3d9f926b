// Both forms of the layer against torch.nn.MultiheadAttention: tests/data/layer_*.safetensors, written by tools/make_layer_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mha/layer.h"
#include "mha/model/safetensors.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

struct Golden {
  explicit Golden(const std::string& name) : file(std::string(MHA_TEST_SOURCE_DIR) + "/tests/data/layer_" + name + ".safetensors") {}

  ConstTensorView get(const std::string& name) const { return file.contains(name) ? file.tensor(name) : ConstTensorView(); }

  MhaConfig config() const {
    const Index d_model = get("x").size(2);
    return {.d_model = d_model,
            .heads = std::stoll(file.metadata().at("heads")),
            .key_width = get("key") ? get("key").size(2) : 0,
            .value_width = get("value") ? get("value").size(2) : 0,
            .bias = file.contains("in_proj_bias")};
  }

  MhaWeights weights() const {
    const Index d = config().d_model;
    const auto third = [d](const ConstTensorView& packed, Index i) { return packed ? packed.slice(0, i * d, (i + 1) * d) : packed; };
    const ConstTensorView packed = get("in_proj_weight");
    const ConstTensorView bias = get("in_proj_bias");
    return {.wq = packed ? third(packed, 0) : get("q_proj_weight"),
            .wk = packed ? third(packed, 1) : get("k_proj_weight"),
            .wv = packed ? third(packed, 2) : get("v_proj_weight"),
            .wo = get("out_proj.weight"),
            .bq = third(bias, 0),
            .bk = third(bias, 1),
            .bv = third(bias, 2),
            .bo = get("out_proj.bias")};
  }

  SafetensorsFile file;
};

const std::vector<std::string> kGoldens = {"self", "self_no_bias", "causal", "per_head_mask", "lengths", "cross", "cross_widths"};

/// Scores are of magnitude 8 at most here, sums of at most d_model terms: the roundings of four matrix products and one attention.
double tolerance(const MhaConfig& config) {
  return 8 * dot_tolerance(std::max(config.key_width, config.d_model)) + forward_tolerance(DType::F32);
}

class GoldenTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, GoldenTest, testing::ValuesIn(all_isas()), isa_name);

template <class Layer>
void expect_golden(const Layer& layer, const Golden& golden) {
  Workspace workspace;
  Tensor y(DType::F32, golden.get("y").shape);
  Tensor weights(DType::F32, golden.get("weights").shape);
  std::vector<Index> lengths;
  if (const ConstTensorView given = golden.get("kv_lengths")) lengths.assign(given.as<Index>(), given.as<Index>() + given.size(0));
  layer.forward({.x = golden.get("x"),
                 .key = golden.get("key"),
                 .value = golden.get("value"),
                 .allowed = golden.get("allowed"),
                 .kv_lengths = lengths},
                {.y = y, .weights = weights}, workspace);
  EXPECT_LE(relative_error(y, golden.get("y")), tolerance(layer.config()));
  EXPECT_LE(relative_error(weights, golden.get("weights")), tolerance(layer.config()));
}

TEST_P(GoldenTest, BothFormsMatchTorch) {
  for (const std::string& name : kGoldens) {
    SCOPED_TRACE(name);
    const Golden golden(name);
    expect_golden(MultiHeadAttention(golden.config(), golden.weights()), golden);
    expect_golden(NaiveMultiHeadAttention(golden.config(), to_naive(golden.config(), golden.weights())), golden);
  }
}

// A causal rule instead of torch's table says the same.
TEST_P(GoldenTest, CausalRuleMatchesTorchsTable) {
  const Golden golden("causal");
  MhaConfig config = golden.config();
  config.attention.mask = causal();
  const MultiHeadAttention layer(config, golden.weights());
  Workspace workspace;
  Tensor y(DType::F32, golden.get("y").shape);
  layer.forward({.x = golden.get("x")}, {.y = y}, workspace);
  EXPECT_LE(relative_error(y, golden.get("y")), tolerance(config));
}

}  // namespace
}  // namespace mha::test
