// Reads and checks config.json. What would change the mathematics and is not implemented is refused by name.
#include "model/config.h"

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
  if (const Json* const pruned = fields.find("pruned_heads"); pruned != nullptr && !pruned->empty()) {
    fields.fail("pruned_heads", "is not empty, models with removed heads are not supported");
  }
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
  return config;
}

}  // namespace mha::model
