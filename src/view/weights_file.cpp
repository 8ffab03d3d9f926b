// Weights as CSV and JSON, written as they come: a table of all heads is larger as text than what it is read from.
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "view/panels.h"

namespace mha::view {
namespace {

/// The shortest decimal that gives the f32 back; `missing` for NaN, and for infinity, which JSON has no word for.
void append(std::string& out, float weight, std::string_view missing) {
  std::array<char, 32> buffer{};
  if (!std::isfinite(weight)) {
    out += missing;
  } else {
    out.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), weight).ptr);
  }
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (char letter : text) out += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return out + '"';
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_units(const std::vector<Unit>& units) {
  std::string out = "[";
  for (std::size_t i = 0; i < units.size(); ++i) {
    out += (i == 0 ? "" : ", ") + ("{\"text\": " + json_text(units[i].text)) + ", \"first\": " + std::to_string(units[i].first) +
           ", \"count\": " + std::to_string(units[i].count) + ", \"special\": " + (units[i].special ? "true}" : "false}");
  }
  return out + ']';
}

void append_head(std::string& out, const PictureHead& head) {
  out += "    {\"layer\": " + std::to_string(head.id.layer) + ", \"head\": " + std::to_string(head.id.head) + ", \"weights\": [";
  for (Index query = 0; query < head.weights.size(0); ++query) {
    out += query == 0 ? "\n      [" : ",\n      [";
    for (Index key = 0; key < head.weights.size(1); ++key) {
      if (key > 0) out += ", ";
      append(out, weight_at(head, query, key), "null");
    }
    out += ']';
  }
  out += "]}";
}

}  // namespace
}  // namespace mha::view

std::string mha::weights_csv(const Picture& picture) {
  using namespace view;
  check(picture);
  std::vector<std::string> queries;
  std::vector<std::string> keys;
  for (const Unit& unit : picture.queries) queries.push_back(csv_text(unit.text));
  for (const Unit& unit : picture.columns()) keys.push_back(csv_text(unit.text));
  std::string out = "layer,head,query,key,query_text,key_text,weight\r\n";
  for (const PictureHead& head : picture.heads) {
    const std::string id = std::to_string(head.id.layer) + ',' + std::to_string(head.id.head) + ',';
    for (std::size_t query = 0; query < queries.size(); ++query) {
      for (std::size_t key = 0; key < keys.size(); ++key) {
        out += id + std::to_string(query) + ',' + std::to_string(key) + ',' + queries[query] + ',' + keys[key] + ',';
        append(out, weight_at(head, static_cast<Index>(query), static_cast<Index>(key)), "");
        out += "\r\n";
      }
    }
  }
  return out;
}

std::string mha::weights_json(const Picture& picture) {
  using namespace view;
  check(picture);
  std::string out = "{\n  \"text\": " + json_text(picture.text) + ",\n  \"model\": " + json_text(picture.model) +
                    ",\n  \"change\": " + (picture.change.empty() ? "null" : json_text(picture.change)) + ",\n  \"unit\": \"" +
                    (picture.pieces ? "piece" : "word") + "\",\n  \"queries\": " + json_units(picture.queries) +
                    ",\n  \"keys\": " + (picture.keys.empty() ? "null" : json_units(picture.keys)) + ",\n  \"heads\": [\n";
  for (std::size_t i = 0; i < picture.heads.size(); ++i) {
    append_head(out, picture.heads[i]);
    out += i + 1 < picture.heads.size() ? ",\n" : "\n";
  }
  return out + "  ]\n}\n";
}
