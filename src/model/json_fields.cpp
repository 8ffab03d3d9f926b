// The parser with limits (a builder fed by nlohmann's event parser, which does not recurse) and JsonFields.
#include "model/json_fields.h"

#include <utility>
#include <vector>

#include "core/check.h"
#include "core/mmap.h"

namespace mha::model {
namespace {

// Builds the value from the parser's events; its members are called by nlohmann::json::sax_parse and return true to go on.
class Builder {
 public:
  Builder(std::string file, std::size_t file_offset, const JsonLimits& limits)
      : file_(std::move(file)), file_offset_(file_offset), limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() { return put(nullptr) != nullptr; }
  bool boolean(bool value) { return put(value) != nullptr; }
  bool number_integer(Json::number_integer_t value) { return put(value) != nullptr; }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value) != nullptr; }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value) != nullptr; }
  bool string(std::string& value) { return put(std::move(value)) != nullptr; }
  bool binary(Json::binary_t&) { return false; }  // not in JSON text
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(name, nullptr);
    MHA_CHECK(FormatError, is_new, file_, ": JSON has the key ", printable(name), " twice in one object");
    member_ = &place->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // The library's text may quote the whole of a hostile token; its first part says what was expected.
    std::string why = error.what();
    if (const auto start = why.find(": "); start != std::string::npos) why = why.substr(start + 2);
    if (const auto end = why.find("; last read"); end != std::string::npos) why = why.substr(0, end);
    const std::size_t byte = file_offset_ + (position > 0 ? position - 1 : 0);
    throw FormatError(core::join(file_, ": broken JSON at byte ", byte, ": ", why.substr(0, 120)));
  }

 private:
  Json* put(Json value) {
    ++values_;
    MHA_CHECK(FormatError, values_ <= limits_.values, file_, ": JSON with more than ", limits_.values, " values");
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (Json& parent = *open_.back(); parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    *member_ = std::move(value);
    return member_;
  }

  // The pointer kept stays valid: a parent gets no further element while a child of it is open.
  bool open(Json container) {
    MHA_CHECK(FormatError, open_.size() < limits_.depth, file_, ": JSON nested deeper than ", limits_.depth);
    open_.push_back(put(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string file_;
  std::size_t file_offset_;
  JsonLimits limits_;
  std::size_t values_ = 0;
  Json root_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file, std::size_t file_offset, const JsonLimits& limits) {
  // The parser takes a NUL for the end of the text and would not look at what follows; JSON has no place for one.
  const std::size_t nul = text.find('\0');
  MHA_CHECK(FormatError, nul == std::string_view::npos, file, ": broken JSON at byte ", file_offset + nul, ": a NUL");
  Builder builder(file, file_offset, limits);
  const bool complete = Json::sax_parse(text.begin(), text.end(), &builder);
  MHA_CHECK(FormatError, complete, file, ": broken JSON");
  return builder.take();
}

Json read_json_file(const std::string& path, const JsonLimits& limits) {
  const core::MappedFile file(path);
  const auto bytes = file.bytes();
  MHA_CHECK(FormatError, !bytes.empty(), path, ": is empty, JSON was expected");
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, 0, limits);
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char letter : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x20 && byte < 0x7F) {
      out += letter;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (text.size() > kMost ? "'..." : "'");
}

std::optional<Index> to_integer(const Json& value, Index least, Index most) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<Json::number_unsigned_t>();
    if (std::cmp_greater_equal(number, least) && std::cmp_less_equal(number, most)) return static_cast<Index>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.get<Json::number_integer_t>();
    if (number >= least && number <= most) return number;
  }
  return std::nullopt;
}

JsonFields::JsonFields(const Json& value, std::string file, std::string place)
    : value_(&value), file_(std::move(file)), place_(std::move(place)) {
  MHA_CHECK(FormatError, value.is_object(), file_, ": ", place_.empty() ? "the file" : place_, " is ", value.type_name(),
            ", a JSON object was expected");
}

const Json* JsonFields::find(const std::string& key) const {
  const auto place = value_->find(key);
  return place == value_->end() || place->is_null() ? nullptr : &*place;
}

void JsonFields::fail(const std::string& key, const std::string& message) const {
  throw FormatError(core::join(file_, ": ", place_, place_.empty() ? "" : ".", key, ": ", message));
}

void JsonFields::wrong_type(const std::string& key, const Json& value, const char* wanted) const {
  fail(key, core::join("is ", value.type_name(), ", ", wanted, " was expected"));
}

const Json& JsonFields::at(const std::string& key) const {
  const Json* const value = find(key);
  if (value == nullptr) fail(key, "is missing");
  return *value;
}

JsonFields JsonFields::object(const std::string& key) const { return {at(key), file_, place_.empty() ? key : place_ + "." + key}; }

std::string JsonFields::text(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_string()) wrong_type(key, value, "a string");
  return value.get<std::string>();
}

bool JsonFields::flag(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_boolean()) wrong_type(key, value, "true or false");
  return value.get<bool>();
}

Index JsonFields::integer(const std::string& key, Index least, Index most) const {
  const Json& value = at(key);
  if (!value.is_number()) wrong_type(key, value, "an integer");
  const auto number = to_integer(value, least, most);
  if (!number) fail(key, core::join("is ", value.dump(), ", an integer from ", least, " to ", most, " was expected"));
  return *number;
}

double JsonFields::number(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_number()) wrong_type(key, value, "a number");
  return value.get<double>();
}

std::string JsonFields::text_or(const std::string& key, std::string fallback) const { return has(key) ? text(key) : std::move(fallback); }

bool JsonFields::flag_or(const std::string& key, bool fallback) const { return has(key) ? flag(key) : fallback; }

Index JsonFields::integer_or(const std::string& key, Index least, Index most, Index fallback) const {
  return has(key) ? integer(key, least, most) : fallback;
}

double JsonFields::number_or(const std::string& key, double fallback) const { return has(key) ? number(key) : fallback; }

}  // namespace mha::model
