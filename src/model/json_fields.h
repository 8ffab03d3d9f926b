// JSON from untrusted files: parsing with limits (depth, number of values, no key twice) and typed access to fields, both with errors that
// name the file and the field. Used by every reader of the room model. The only way JSON gets into the library.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "mha/tensor.h"

namespace mha::model {

using Json = nlohmann::json;

/// Bounds on what a hostile text can make us build: a value of two bytes in the file costs 16 and more in memory.
struct JsonLimits {
  std::size_t depth = 32;
  std::size_t values = 4'000'000;
};

/// Parses the whole text. `file` names it in errors, `file_offset` is where the text begins in that file.
/// Throws FormatError for broken JSON, text that is no UTF-8, a key that is there twice, or one of the limits.
Json parse_json(std::string_view text, const std::string& file, std::size_t file_offset = 0, const JsonLimits& limits = {});

/// Maps and parses a file. Throws IoError where it cannot be read, FormatError as above.
Json read_json_file(const std::string& path, const JsonLimits& limits = {});

/// Untrusted text made fit for one line of a message: in quotes, control and non-ASCII bytes as \xNN, cut after 80 bytes.
std::string printable(std::string_view text);

/// A JSON object and where it stands. Holds a reference: the Json must outlive it.
class JsonFields {
 public:
  /// `place` is the path of the object inside the file, "" for the top. Throws FormatError where the value is no object.
  JsonFields(const Json& value, std::string file, std::string place = "");

  /// The field, or nullptr where it is absent or null.
  const Json* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }

  // Each throws FormatError where the field is absent (or null) or of another type.
  const Json& at(const std::string& key) const;
  JsonFields object(const std::string& key) const;
  std::string text(const std::string& key) const;
  bool flag(const std::string& key) const;
  /// An integer in [least, most]; 1.0 is no integer.
  Index integer(const std::string& key, Index least, Index most) const;
  double number(const std::string& key) const;

  // The same with a value for an absent (or null) field; another type is still an error.
  std::string text_or(const std::string& key, std::string fallback) const;
  bool flag_or(const std::string& key, bool fallback) const;
  Index integer_or(const std::string& key, Index least, Index most, Index fallback) const;
  double number_or(const std::string& key, double fallback) const;

  /// Throws the FormatError "<file>: <place>.<key>: <message>".
  [[noreturn]] void fail(const std::string& key, const std::string& message) const;
  const Json& value() const { return *value_; }
  const std::string& file() const { return file_; }
  const std::string& place() const { return place_; }

 private:
  [[noreturn]] void wrong_type(const std::string& key, const Json& value, const char* wanted) const;

  const Json* value_;
  std::string file_;
  std::string place_;
};

/// The integer in [least, most] that `value` is, or nothing.
std::optional<Index> to_integer(const Json& value, Index least, Index most);

}  // namespace mha::model
