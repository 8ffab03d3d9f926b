// Which tokens of a text that is longer than the model reads are taken. Defined in sentence.cpp; also asked by head_health.cpp.
#pragma once

#include <cstddef>
#include <vector>

#include "mha/model/tokenizer.h"

namespace mha::analysis {

/// The first tokens of the text as far as they fit, and the frame around them.
std::vector<std::size_t> kept_tokens(const Encoding& encoding, std::size_t most);

}  // namespace mha::analysis
