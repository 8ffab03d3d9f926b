// The table of families and its look-up.
#include "model/family.h"

namespace mha::model {
namespace {

constexpr Family kFamilies[] = {
    {.model_type = "bert",
     .keys = {.d_model = "hidden_size",
              .layers = "num_hidden_layers",
              .heads = "num_attention_heads",
              .hidden_width = "intermediate_size",
              .activation = "hidden_act",
              .norm_eps = "layer_norm_eps",
              .token_types = "type_vocab_size"},
     .names = {.prefix = "bert.",
               .layer = "encoder.layer.",
               .query = "attention.self.query",
               .key = "attention.self.key",
               .value = "attention.self.value",
               .out = "attention.output.dense",
               .attention_norm = "attention.output.LayerNorm",
               .up = "intermediate.dense",
               .down = "output.dense",
               .output_norm = "output.LayerNorm"}},
    {.model_type = "distilbert",
     .keys = {.d_model = "dim",
              .layers = "n_layers",
              .heads = "n_heads",
              .hidden_width = "hidden_dim",
              .activation = "activation",
              .norm_eps = nullptr,
              .token_types = nullptr},
     .names = {.prefix = "distilbert.",
               .layer = "transformer.layer.",
               .query = "attention.q_lin",
               .key = "attention.k_lin",
               .value = "attention.v_lin",
               .out = "attention.out_lin",
               .attention_norm = "sa_layer_norm",
               .up = "ffn.lin1",
               .down = "ffn.lin2",
               .output_norm = "output_layer_norm"}},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* family_named(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string family_list() {
  std::string list;
  for (const Family& family : kFamilies) list += (list.empty() ? "" : ", ") + std::string(family.model_type);
  return list;
}

}  // namespace mha::model
