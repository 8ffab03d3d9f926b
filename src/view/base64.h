// Bytes as text, RFC 4648. Used for images in SVG and numbers in the self-contained page.
#pragma once

#include <string>
#include <string_view>

namespace mha::view {

std::string base64(std::string_view bytes);

}  // namespace mha::view
