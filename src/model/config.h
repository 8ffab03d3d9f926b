// config.json of a Hugging Face folder, turned into TransformerConfig. Called by transformer.cpp. Trusts nothing in the file.
#pragma once

#include <string>

#include "mha/model/transformer.h"

namespace mha::model {

/// Throws IoError where the file cannot be read; FormatError, naming the field, where it is no JSON, a size is absent, of the wrong type or
/// cannot be, or the model is none that this library computes.
TransformerConfig read_config(const std::string& path);

}  // namespace mha::model
