// Reads and checks config.json. What would change the mathematics and is not implemented is refused by name.
#include "model/config.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/check.h"
#include "mha/error.h"
#include "model/family.h"
#include "model/json_fields.h"
#include "nn/activation.h"

namespace mha::model {
namespace {

// No model comes near these; they keep every product of sizes far inside 63 bits.
constexpr Index kMostSize = Index{1} << 24;
constexpr Index kMostWords = Index{1} << 28;

const Family& read_family(const JsonFields& fields) {
  const std::string model_type = fields.text("model_type");
  const Family* const family = family_named(model_type);
  if (family == nullptr) fields.fail("model_type", "is " + printable(model_type) + ", supported are: " + family_list());
  return *family;
}

void refuse_other_mathematics(const JsonFields& fields) {
  const std::string positions = fields.text_or("position_embedding_type", "absolute");
  if (positions != "absolute") fields.fail("position_embedding_type", "is " + printable(positions) + ", supported is: absolute");
  for (const char* const key : {"is_decoder", "add_cross_attention"}) {
    if (fields.flag_or(key, false)) fields.fail(key, "is true, only encoders are supported");
  }
}

/// {"0": [2, 5]}: heads removed by layer, as transformers wrote it up to version 4.
std::map<Index, std::vector<Index>> read_pruned_heads(const JsonFields& fields, const TransformerConfig& config) {
  if (!fields.has("pruned_heads")) return {};
  const JsonFields pruned = fields.object("pruned_heads");
  std::map<Index, std::vector<Index>> removed;
  for (const auto& [key, heads] : pruned.value().items()) {
    Index layer = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
    const bool number = error == std::errc() && end == key.data() + key.size() && key == std::to_string(layer);
    if (!number || layer < 0 || layer >= config.layers) {
      fields.fail("pruned_heads", "names layer " + printable(key) + ", there are " + std::to_string(config.layers) + " counted from 0");
    }
    if (!heads.is_array()) pruned.fail(key, "is no list of heads");
    std::vector<Index> list;
    for (const Json& each : heads) {
      const std::optional<Index> head = to_integer(each, 0, config.heads - 1);
      if (!head) pruned.fail(key, "holds something that is no head, there are " + std::to_string(config.heads) + " counted from 0");
      list.push_back(*head);
    }
    std::sort(list.begin(), list.end());
    if (std::adjacent_find(list.begin(), list.end()) != list.end()) pruned.fail(key, "names a head twice");
    if (!list.empty()) removed.emplace(layer, std::move(list));
  }
  return removed;
}

}  // namespace

TransformerConfig read_config(const std::string& path) {
  const Json json = read_json_file(path);
  const JsonFields fields(json, path);
  const Family& family = read_family(fields);
  refuse_other_mathematics(fields);

  const ConfigKeys& keys = family.keys;
  TransformerConfig config;
  config.family = family.model_type;
  config.vocabulary = fields.integer("vocab_size", 1, kMostWords);
  config.max_positions = fields.integer("max_position_embeddings", 1, kMostSize);
  config.layers = fields.integer(keys.layers, 1, kMostSize);
  config.d_model = fields.integer(keys.d_model, 1, kMostSize);
  config.heads = fields.integer(keys.heads, 1, kMostSize);
  config.hidden_width = fields.integer(keys.hidden_width, 1, kMostSize);
  if (config.d_model % config.heads != 0) {
    fields.fail(keys.heads, "is " + std::to_string(config.heads) + ", " + keys.d_model + " " + std::to_string(config.d_model) +
                                " is not a multiple of it");
  }
  config.head_dim = config.d_model / config.heads;
  // Where an optional key is absent the value is the one transformers assumes.
  if (keys.token_types != nullptr) config.token_types = fields.integer_or(keys.token_types, 1, kMostSize, 2);
  if (keys.norm_eps != nullptr) config.norm_eps = fields.number_or(keys.norm_eps, config.norm_eps);
  if (!(config.norm_eps >= 0 && config.norm_eps <= 1)) fields.fail(keys.norm_eps, "must be in [0, 1]");
  config.activation = fields.text_or(keys.activation, "gelu");
  if (!nn::activation_named(config.activation)) {
    fields.fail(keys.activation, "is " + printable(config.activation) + ", supported are: gelu, gelu_new, gelu_pytorch_tanh, relu");
  }
  config.pruned_heads = read_pruned_heads(fields, config);
  return config;
}

}  // namespace mha::model

namespace mha {
namespace {

void check_layer(const TransformerConfig& config, Index layer) {
  MHA_CHECK(ShapeError, layer >= 0 && layer < config.layers, "layer is ", layer, ", the model has ", config.layers,
            " layers counted from 0");
}

}  // namespace

bool TransformerConfig::has_head(Index layer, Index head) const {
  check_layer(*this, layer);
  MHA_CHECK(ShapeError, head >= 0 && head < heads, "head is ", head, ", the model has ", heads, " heads counted from 0");
  const auto removed = pruned_heads.find(layer);
  return removed == pruned_heads.end() || !std::binary_search(removed->second.begin(), removed->second.end(), head);
}

std::vector<Index> TransformerConfig::heads_of(Index layer) const {
  check_layer(*this, layer);
  std::vector<Index> kept;
  for (Index head = 0; head < heads; ++head) {
    if (has_head(layer, head)) kept.push_back(head);
  }
  return kept;
}

}  // namespace mha
