// The families of encoders this library reads, as data: how config.json names the sizes and how the file of weights names the tensors.
// All are the same mathematics (the encoder of Devlin et al. 2018: learned absolute positions, normalisation after each residual sum).
// Called by config.cpp and encoder_weights.cpp. Adding a family: its entry in family.cpp and a golden of a tiny model of it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mha::model {

/// Keys of config.json. nullptr: the family has no such key.
struct ConfigKeys {
  const char* d_model;
  const char* layers;
  const char* heads;
  const char* hidden_width;
  const char* activation;
  const char* norm_eps;
  const char* token_types;
};

/// Names of modules; each is followed by ".weight" or ".bias".
struct TensorNames {
  const char* prefix;  // what may or may not stand before every name
  const char* layer;   // followed by the number of the layer and "."
  const char* query;
  const char* key;
  const char* value;
  const char* out;
  const char* attention_norm;
  const char* up;
  const char* down;
  const char* output_norm;
};

struct Family {
  std::string_view model_type;
  ConfigKeys keys;
  TensorNames names;
};

std::span<const Family> families();
/// nullptr where it is none of ours.
const Family* family_named(std::string_view model_type);
/// "bert, distilbert", for messages.
std::string family_list();

}  // namespace mha::model
