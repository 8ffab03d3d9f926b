// Bodies: JSON that is valid whatever bytes a text held, and little-endian numbers.
#include "view/respond.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "view/request.h"

namespace mha::view {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are sent as they lie in memory");

std::size_t size_of(Numbers encoding) { return encoding == Numbers::U8 ? 1 : encoding == Numbers::F16 ? 2 : 4; }

template <class Number, class Convert>
std::string encoded(std::span<const float> numbers, Convert&& convert) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Number number = convert(numbers[i]);
    std::memcpy(bytes.data() + i * sizeof(Number), &number, sizeof(Number));
  }
  return bytes;
}

std::uint8_t to_u8(float weight) {
  if (!(weight > 0.0F)) return 0;
  return static_cast<std::uint8_t>(std::lround(255.0F * std::min(weight, 1.0F)));
}

}  // namespace

Response json_response(const Json& json) {
  return {.status = 200, .type = "application/json", .body = json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

Response error_response(int status, const std::string& error, const std::string& remedy) {
  Response response = json_response({{"error", error}, {"remedy", remedy}});
  response.status = status;
  return response;
}

Response numbers_response(std::span<const float> numbers, const std::vector<Index>& shape, Numbers encoding) {
  std::string sizes;
  for (const Index size : shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  Response response{.type = "application/octet-stream", .headers = {{"X-Mha-Shape", sizes}}};
  switch (encoding) {
    case Numbers::U8:
      response.body = encoded<std::uint8_t>(numbers, to_u8);
      response.headers.emplace_back("X-Mha-Dtype", "u8");
      break;
    case Numbers::F16:
      response.body = encoded<std::uint16_t>(numbers, [](float x) { return F16::from_float(x).bits; });
      response.headers.emplace_back("X-Mha-Dtype", "f16");
      break;
    case Numbers::F32:
      response.body = encoded<float>(numbers, [](float x) { return x; });
      response.headers.emplace_back("X-Mha-Dtype", "f32");
      break;
  }
  return response;
}

void check_answer(Index numbers, Numbers encoding, const MicroscopeOptions& options, const std::string& remedy) {
  const auto most = static_cast<Index>(options.answer_bytes / size_of(encoding));
  if (numbers <= most) return;
  throw RequestError(413, core::join("the answer would be ", numbers, " numbers, at most ", most, " are sent at once"), remedy);
}

}  // namespace mha::view
