// Test helper of safetensors_live.py: for each line of standard input, "<file>" or "<file>\t<copy>", writes a line of JSON: name -> [dtype,
// shape, data in hexadecimal], or {"error": text}. With <copy>, all tensors and the metadata are saved there again.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "mha/error.h"
#include "mha/model/safetensors.h"

namespace {

std::string hexadecimal(const void* data, std::size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

nlohmann::json dump(const std::string& path, const std::string& copy) {
  const mha::SafetensorsFile file(path);
  nlohmann::json out = nlohmann::json::object();
  std::vector<mha::NamedTensor> tensors;
  for (const std::string& name : file.names()) {
    const mha::SafetensorsFile::Info info = file.info(name);
    nlohmann::json entry = {info.dtype, info.shape, nullptr};
    try {
      const mha::ConstTensorView view = file.tensor(name);
      entry[2] = hexadecimal(view.data, info.bytes);
      tensors.push_back({name, view});
    } catch (const mha::DTypeError&) {  // listed only
    } catch (const mha::ShapeError&) {
    }
    out[name] = entry;
  }
  if (!copy.empty()) mha::save_safetensors(copy, tensors, file.metadata());
  return {{"tensors", out}, {"metadata", file.metadata()}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const std::size_t tab = line.find('\t');
    nlohmann::json out;
    try {
      out = dump(line.substr(0, tab), tab == std::string::npos ? "" : line.substr(tab + 1));
    } catch (const mha::Error& error) {
      out = {{"error", error.what()}};
    }
    std::cout << out.dump() << '\n';
  }
  return 0;
}
