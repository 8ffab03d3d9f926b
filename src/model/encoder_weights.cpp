// Names and shapes of an encoder's tensors. The names differ by family (family.h), the shapes do not.
#include "model/encoder_weights.h"

#include <string>
#include <utility>

#include "core/check.h"
#include "model/checked_tensor.h"
#include "model/family.h"

namespace mha::model {
namespace {

constexpr const char* kWords = "embeddings.word_embeddings.weight";

class Finder {
 public:
  Finder(const SafetensorsFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  ConstTensorView table(const std::string& name, Index rows, Index width) const {
    return checked_tensor(file_, prefix_ + name, {rows, width});
  }

  Affine linear(const std::string& module, Index outputs, Index inputs) const {
    return {checked_tensor(file_, prefix_ + module + ".weight", {outputs, inputs}),
            checked_tensor(file_, prefix_ + module + ".bias", {outputs})};
  }

  /// Files converted from TensorFlow call the two gamma and beta.
  Affine norm(const std::string& module, Index width) const {
    const bool old_names = file_.contains(prefix_ + module + ".gamma");
    return {checked_tensor(file_, prefix_ + module + (old_names ? ".gamma" : ".weight"), {width}),
            checked_tensor(file_, prefix_ + module + (old_names ? ".beta" : ".bias"), {width})};
  }

 private:
  const SafetensorsFile& file_;
  std::string prefix_;
};

const TensorNames& names_of(const TransformerConfig& config) {
  const Family* const family = family_named(config.family);
  MHA_CHECK(FormatError, family != nullptr, "transformer: family ", config.family, " is unknown, supported are: ", family_list());
  return family->names;
}

EncoderLayerWeights find_layer(const Finder& find, const TensorNames& names, Index number, const TransformerConfig& config) {
  const std::string layer = names.layer + std::to_string(number) + ".";
  const Index width = config.d_model;
  const Index heads_width = static_cast<Index>(config.heads_of(number).size()) * config.head_dim;
  const Affine query = find.linear(layer + names.query, heads_width, width);
  const Affine key = find.linear(layer + names.key, heads_width, width);
  const Affine value = find.linear(layer + names.value, heads_width, width);
  const Affine out = find.linear(layer + names.out, width, heads_width);
  return {.attention = {.wq = query.weight,
                        .wk = key.weight,
                        .wv = value.weight,
                        .wo = out.weight,
                        .bq = query.bias,
                        .bk = key.bias,
                        .bv = value.bias,
                        .bo = out.bias},
          .attention_norm = find.norm(layer + names.attention_norm, width),
          .up = find.linear(layer + names.up, config.hidden_width, width),
          .down = find.linear(layer + names.down, width, config.hidden_width),
          .output_norm = find.norm(layer + names.output_norm, width)};
}

}  // namespace

std::string tensor_prefix(const SafetensorsFile& file, const TransformerConfig& config) {
  const std::string prefix = names_of(config).prefix;
  if (file.contains(prefix + kWords)) return prefix;
  MHA_CHECK(FormatError, file.contains(kWords), file.path(), ": tensor ", kWords, " is missing, with and without the prefix ", prefix);
  return "";
}

EncoderWeights find_encoder_weights(const SafetensorsFile& file, const TransformerConfig& config) {
  const TensorNames& names = names_of(config);
  const std::string prefix = tensor_prefix(file, config);
  const Finder find(file, prefix);

  EncoderWeights weights;
  weights.words = find.table(kWords, config.vocabulary, config.d_model);
  weights.positions = find.table("embeddings.position_embeddings.weight", config.max_positions, config.d_model);
  if (config.token_types > 0) {
    weights.token_types = find.table("embeddings.token_type_embeddings.weight", config.token_types, config.d_model);
  }
  weights.norm = find.norm("embeddings.LayerNorm", config.d_model);
  for (Index layer = 0; layer < config.layers; ++layer) {
    weights.layers.push_back(find_layer(find, names, layer, config));
  }
  const std::string beyond = prefix + names.layer + std::to_string(config.layers) + "." + names.query + ".weight";
  MHA_CHECK(FormatError, !file.contains(beyond), file.path(), ": tensor ", beyond, " belongs to no layer, the config has ", config.layers,
            " layers");
  return weights;
}

}  // namespace mha::model
