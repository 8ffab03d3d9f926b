// Writing of SVG: escaped text, estimated widths, the card all pictures are drawn on, its light and dark colours, the bar of colours.
// Used by arcs_svg.cpp, matrix_svg.cpp and atlas_svg.cpp; knows nothing of heads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mha/analysis/sentence.h"

namespace mha::view {

using Colour = std::array<std::uint8_t, 3>;

inline constexpr int kLevels = 255;       // of colour: 0 is weight 0, 254 is weight 1
inline constexpr int kHiddenLevel = 255;  // nobody may look there

/// Level of a weight; kHiddenLevel for NaN.
int level_of(float weight);
/// Viridis, between eleven of its colours in straight lines; of kHiddenLevel a grey that viridis does not have.
Colour colour_of(int level);
std::string hex(Colour colour);
/// Whether white text is easier to read on it than black.
bool is_dark(Colour colour);

/// For element content and attribute values alike. What XML cannot hold becomes U+FFFD.
std::string escaped(std::string_view text);
/// At most two decimals, no trailing zeros.
std::string number(double value);
/// Two or three decimals always.
std::string fixed(double value, int decimals);

/// Width in em that the text needs in any common sans-serif font; rather more than less.
double em_width(std::string_view text);
/// Cut to `most` em between what readers take for letters, with an ellipsis.
std::string fitted(std::string_view text, double most);
/// Words of a text in lines of at most `most` em.
std::vector<std::string> lines_of(std::string_view text, double most);
/// Whether the first letter with a direction is one of a script that runs to the left.
bool runs_left(std::string_view text);

/// What to write beside a text element.
struct TextStyle {
  std::string_view classes = "ink";
  double size = 13;
  std::string_view anchor = "start";
  double turn = 0;  // degrees about its own place
};

class Svg {
 public:
  void text(double x, double y, std::string_view content, const TextStyle& style);
  /// As fitted; the whole text then as a tooltip.
  void fitted_text(double x, double y, std::string_view content, const TextStyle& style, double most_em);
  /// Lines of 1.45 times their size; returns where the next would stand.
  double paragraph(double x, double y, double width, std::string_view content, const TextStyle& style);
  /// The fixed scale from 0 to 1.
  void colour_bar(double x, double y);
  void raw(std::string_view markup) { body_ += markup; }
  /// All of it, on a card of this size, with a title and a description for those who do not see it.
  std::string card(double width, double height, std::string_view title, std::string_view description) const;

 private:
  std::string body_;
};

inline constexpr double kBarWidth = 190;  // of colour_bar, its words included
inline constexpr double kMargin = 28;     // of a card

}  // namespace mha::view
