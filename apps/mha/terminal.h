// Text for terminals: colour or not, how wide, how many columns a word takes. Used by all commands that print; knows nothing of attention.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mha::app {

/// Makes `display_width` right for UTF-8, whatever the user's locale. Call once, first.
void use_utf8();

/// Where output goes to.
struct Terminal {
  bool colour = false;
  int width = 80;
};

/// Colour only where standard output is a terminal that is not dumb and NO_COLOR is unset or empty; the terminal's width, 80 without one.
Terminal this_terminal();

/// Columns that UTF-8 text takes: wide letters count 2, combining marks 0.
int display_width(std::string_view text);
/// Control characters replaced, so that text from outside can neither break a line nor talk to the terminal.
std::string printable(std::string_view text);
/// As `printable`, with line ends turned into single spaces: for error messages.
std::string one_line(std::string_view text);
/// Cut to at most `width` columns, with a sign that something is missing.
std::string shorten(std::string_view text, int width);
std::string pad_right(std::string_view text, int width);
std::string pad_left(std::string_view text, int width);
/// Items joined by `separator` and wrapped to `width`, none of them broken; lines after the first start with `indent` spaces (the first is
/// taken to start there too).
std::string wrap_items(const std::vector<std::string>& items, std::string_view separator, int width, int indent);
/// The same for the words of a text.
std::string wrap(std::string_view text, int width, int indent);

std::string bold(std::string_view text, const Terminal& terminal);
/// `text` on the background for `share` (0 to 1) of a dark-to-bright scale that colour-blind people can read; plain without colour.
std::string shaded(std::string_view text, double share, const Terminal& terminal);

/// How far a long command is: a bar on standard error, only where that is a terminal, and gone at the end.
class Progress {
 public:
  explicit Progress(std::size_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// The next step begins.
  void begin(std::string_view what);

 private:
  bool shown_;
  std::size_t steps_;
  std::size_t begun_ = 0;
};

}  // namespace mha::app
