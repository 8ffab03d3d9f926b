// How numbers and JSON become the body of a response. Used by every file of this room that answers.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "mha/tensor.h"
#include "mha/view/microscope.h"

namespace mha::view {

using Json = nlohmann::ordered_json;

enum class Numbers { U8, F16, F32 };

Response json_response(const Json& json);
/// Dense numbers under their shape: u8 is round(255 * weight), NaN (a hidden cell) as 0; f16 keeps NaN.
Response numbers_response(std::span<const float> numbers, const std::vector<Index>& shape, Numbers encoding);
/// Throws RequestError (413) where `numbers` of them are more than an answer may hold.
void check_answer(Index numbers, Numbers encoding, const MicroscopeOptions& options, const std::string& remedy);

}  // namespace mha::view
