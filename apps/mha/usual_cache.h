// Usual weights of a model, computed once and kept in the user's cache folder. Used by `mha find` and `mha view`.
#pragma once

#include "mha/analysis/usual.h"
#include "model_folder.h"

namespace mha::app {

/// From the cache where it holds this model, these sentences and this format; computed, and then kept, otherwise. A cache that is damaged
/// is replaced, one that cannot be written is no error. Throws IoError where the model's files cannot be read.
UsualWeights cached_usual_weights(const OpenModel& model);

}  // namespace mha::app
