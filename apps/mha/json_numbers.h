// How numbers go into --json output: an f32 as the shortest decimal that gives it back, heads by their two numbers.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "mha/analysis/links.h"

namespace mha::app {

using Json = nlohmann::ordered_json;

/// 0.41, not 0.40999999642372131.
inline double json_number(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

inline Json head_json(HeadId id) { return {{"layer", id.layer}, {"head", id.head}}; }

inline Json link_json(const HeadLink& link) {
  Json json = head_json(link.id);
  json["weight"] = json_number(link.weight);
  return json;
}

}  // namespace mha::app
