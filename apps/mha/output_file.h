// Writing of a file that is there whole or not at all. Used by commands that take --out and by the cache.
#pragma once

#include <string>
#include <string_view>

namespace mha::app {

/// Written beside its place and moved there, so that no reader ever sees half a file; straight into what is no ordinary file (a pipe, a
/// device). Throws IoError, and leaves nothing behind, where that fails.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace mha::app
