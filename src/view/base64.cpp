// Three bytes become four digits; what is missing at the end becomes '='.
#include "view/base64.h"

#include <cstdint>

namespace mha::view {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j) three = three << 8 | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? kDigits[three >> (18 - 6 * j) & 63U] : '=';
  }
  return out;
}

}  // namespace mha::view
