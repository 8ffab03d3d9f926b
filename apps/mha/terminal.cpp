// Widths by the C library's own tables (wcwidth), colours by the 256-colour escape codes that every common terminal knows.
#include "terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

namespace mha::app {
namespace {

/// One step of the scale: background and the text colour that can be read on it.
struct Shade {
  int background;
  int text;
};
// The nearest of the 256 colours to eight equal steps of viridis.
constexpr std::array<Shade, 8> kShades = {{{53, 15}, {54, 15}, {24, 15}, {30, 15}, {36, 16}, {77, 16}, {149, 16}, {226, 16}}};

struct Character {
  std::size_t bytes;
  int columns;
  bool control;
};

/// The first character of `text` (not empty); a byte that is no UTF-8 counts as a control character.
Character first_character(std::string_view text) {
  std::mbstate_t state{};
  wchar_t wide = 0;
  const std::size_t bytes = std::mbrtowc(&wide, text.data(), text.size(), &state);
  if (bytes == 0 || bytes > text.size()) return {1, 1, true};
  const int columns = wcwidth(wide);
  return {bytes, std::max(columns, 0), columns < 0};
}

bool set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

void use_utf8() { std::setlocale(LC_CTYPE, "C.UTF-8"); }

Terminal this_terminal() {
  Terminal terminal;
  if (isatty(STDOUT_FILENO) == 0) return terminal;
  const char* kind = std::getenv("TERM");
  terminal.colour = !set("NO_COLOR") && kind != nullptr && std::strcmp(kind, "dumb") != 0;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.width = std::max<int>(size.ws_col, 40);
  return terminal;
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    width += character.columns;
    text.remove_prefix(character.bytes);
  }
  return width;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.control) {
      out += "\xEF\xBF\xBD";  // U+FFFD
    } else {
      out += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string line;
  for (char c : text) {
    const bool space = c == '\n' || c == '\r' || c == '\t';
    if (!space) line += c;
    if (space && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return printable(line);
}

std::string shorten(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  std::string out;
  int used = 1;  // for the sign
  while (!text.empty()) {
    const Character character = first_character(text);
    if (used + character.columns > width) break;
    out += text.substr(0, character.bytes);
    used += character.columns;
    text.remove_prefix(character.bytes);
  }
  return out + "\xE2\x80\xA6";  // ...
}

std::string pad_right(std::string_view text, int width) {
  return std::string(text) + std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ');
}

std::string pad_left(std::string_view text, int width) {
  return std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ') + std::string(text);
}

std::string wrap_items(const std::vector<std::string>& items, std::string_view separator, int width, int indent) {
  std::string out;
  int column = indent;
  for (const std::string& item : items) {
    const int columns = display_width(item);
    const int apart = static_cast<int>(separator.size());
    if (column > indent && column + apart + columns > width) {
      while (!out.empty() && out.back() == ' ') out.pop_back();
      out += '\n';
      out.append(static_cast<std::size_t>(indent), ' ');
      column = indent;
    } else if (column > indent) {
      out += separator;
      column += apart;
    }
    out += item;
    column += columns;
  }
  return out;
}

std::string wrap(std::string_view text, int width, int indent) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wrap_items(words, " ", width, indent);
}

std::string bold(std::string_view text, const Terminal& terminal) {
  return terminal.colour ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

std::string shaded(std::string_view text, double share, const Terminal& terminal) {
  if (!terminal.colour) return std::string(text);
  const double clamped = std::clamp(share, 0.0, 1.0);
  const auto step = static_cast<std::size_t>(std::min(clamped * kShades.size(), static_cast<double>(kShades.size() - 1)));
  return fmt::format("\x1b[48;5;{};38;5;{}m{}\x1b[0m", kShades[step].background, kShades[step].text, text);
}

Progress::Progress(std::size_t steps) : shown_(isatty(STDERR_FILENO) != 0), steps_(steps) {}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::begin(std::string_view what) {
  constexpr std::size_t kWidth = 24;
  const std::size_t done = steps_ == 0 ? kWidth : kWidth * begun_ / steps_;
  ++begun_;
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K[{}{}] {}/{} {}", std::string(done, '#'), std::string(kWidth - done, '.'), begun_, steps_, what);
  std::fflush(stderr);
}

}  // namespace mha::app
