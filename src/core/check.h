// MHA_CHECK and MHA_ASSERT. A failed check throws an Error whose text names the argument and the numbers; an assertion is for what only
// a fault in this library can break, and exists in debug and sanitizer builds alone.
#pragma once

#include <cassert>
#include <sstream>
#include <string>

#include "mha/error.h"

namespace mha::core {

template <class... Parts>
std::string join(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace mha::core

// MHA_CHECK(ShapeError, heads > 0, "layer: heads is ", heads, ", must be at least 1");
#define MHA_CHECK(Kind, condition, ...)                                  \
  do {                                                                   \
    if (!(condition)) throw ::mha::Kind(::mha::core::join(__VA_ARGS__)); \
  } while (false)

#define MHA_ASSERT(condition) assert(condition)
