// Targets: split at '/', '?' and '&', percent-decoded, numbers read whole or not at all.
#include "view/request.h"

#include <charconv>
#include <optional>

#include "core/check.h"
#include "model/json_fields.h"

namespace mha::view {
namespace {

using core::join;
using model::printable;

constexpr std::size_t kMostParameters = 32;

[[noreturn]] void refuse(const std::string& error, const std::string& remedy) { throw RequestError(400, error, remedy); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0)
      refuse(join("the address has a % at byte ", i, " that two hexadecimal digits do not follow"), "write %25 for %");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::optional<Index> whole_number(std::string_view text) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Target::Target(std::string_view text) {
  if (text.empty() || text[0] != '/') refuse(join("the address is ", printable(text), ", must begin with /"), "ask for / or /api/info");
  const std::size_t mark = text.find('?');
  std::string_view path = text.substr(1, mark == std::string_view::npos ? mark : mark - 1);
  std::string_view query = mark == std::string_view::npos ? std::string_view() : text.substr(mark + 1);
  while (!path.empty()) {
    const std::size_t end = path.find('/');
    path_.push_back(decoded(path.substr(0, end)));
    path = end == std::string_view::npos ? std::string_view() : path.substr(end + 1);
  }
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view part = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    const std::size_t equals = part.find('=');
    const std::string name = decoded(part.substr(0, equals));
    if (parameters_.size() == kMostParameters) refuse(join("the address has more than ", kMostParameters, " parameters"), "leave some out");
    const bool is_new = parameters_.emplace(name, equals == std::string_view::npos ? "" : decoded(part.substr(equals + 1))).second;
    if (!is_new) refuse(join("the address has the parameter ", printable(name), " twice"), "give it once");
  }
}

std::string Target::text(const std::string& name, const std::string& fallback) const {
  const auto found = parameters_.find(name);
  return found == parameters_.end() ? fallback : found->second;
}

std::string Target::choice(const std::string& name, const std::vector<std::string>& choices) const {
  const std::string given = text(name, choices.front());
  std::string list;
  for (const std::string& choice : choices) {
    if (given == choice) return given;
    list += (list.empty() ? "" : ", ") + choice;
  }
  refuse(join(name, " is ", printable(given), ", there are ", list), join("give ", name, "=", choices.front()));
}

Index Target::index(const std::string& name, Index end, const std::string& what) const {
  const std::string given = text(name, "");
  const std::optional<Index> value = whole_number(given);
  if (!value || *value < 0 || *value >= end) {
    refuse(join(name, " is ", printable(given), ", there are ", end, " ", what, ", counted from 0"), join("give ", name, "=0 or another"));
  }
  return *value;
}

Index Target::number(const std::string& name, Index fallback, Index least, Index most) const {
  const std::string given = text(name, "");
  if (given.empty()) return fallback;
  const std::optional<Index> value = whole_number(given);
  if (!value || *value < least || *value > most) {
    refuse(join(name, " is ", printable(given), ", must be a whole number from ", least, " to ", most), join("give ", name, "=", fallback));
  }
  return *value;
}

Interval Target::range(const std::string& name, Index size) const {
  const std::string given = text(name, "");
  if (given.empty()) return {0, size};
  const std::size_t colon = given.find(':');
  const bool parted = colon != std::string::npos;
  const Index lo = parted ? whole_number(std::string_view(given).substr(0, colon)).value_or(-1) : -1;
  const Index hi = parted ? whole_number(std::string_view(given).substr(colon + 1)).value_or(-1) : -1;
  if (lo < 0 || hi <= lo || hi > size) {
    refuse(join(name, " is ", printable(given), ", must be A:B with 0 <= A < B <= ", size), join("give ", name, "=0:", size));
  }
  return {lo, hi};
}

}  // namespace mha::view
