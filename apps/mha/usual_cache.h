// Usual weights of a model, computed once and kept in the user's cache folder. Used by `mha find` and `mha view`.
#pragma once

#include "mha/analysis/usual.h"
#include "mha/workspace.h"
#include "model_folder.h"

namespace mha::app {

/// From the cache where it holds this model, these sentences and this format; computed, and then kept, otherwise. A cache that is damaged
/// is replaced, one that cannot be written is no error. What is returned once executor.stop says so is worth nothing, and not kept. Throws
/// IoError where the model's files cannot be read.
UsualWeights cached_usual_weights(const OpenModel& model, const Executor& executor = default_executor());

}  // namespace mha::app
