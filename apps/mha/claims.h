// What is claimed of multi-head attention, as statements that are measured: claims_layer.cpp asks the layer, claims_model.cpp a trained
// model, cmd_claims.cpp prints.
#pragma once

#include <string>
#include <vector>

#include "model_folder.h"

namespace mha::app {

struct Claim {
  std::string statement;
  bool holds = false;
  std::vector<std::string> figures;  // what was measured, a line each
};

/// About the mechanism: weights constructed or random, nothing trained.
std::vector<Claim> layer_claims();

/// About heads of a trained model.
std::vector<Claim> model_claims(const OpenModel& model);

}  // namespace mha::app
