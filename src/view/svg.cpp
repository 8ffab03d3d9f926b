// Colours, escaping and widths. Letters are told apart by utf8proc; widths are guesses that hold for the fonts of the stack below.
#include "view/svg.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace mha::view {
namespace {

constexpr std::array<Colour, 11> kViridis = {{{0x44, 0x01, 0x54},
                                              {0x48, 0x25, 0x76},
                                              {0x41, 0x44, 0x87},
                                              {0x35, 0x60, 0x8d},
                                              {0x2a, 0x78, 0x8e},
                                              {0x21, 0x91, 0x8c},
                                              {0x22, 0xa8, 0x84},
                                              {0x43, 0xbf, 0x71},
                                              {0x7a, 0xd1, 0x51},
                                              {0xbd, 0xdf, 0x26},
                                              {0xfd, 0xe7, 0x25}}};
constexpr Colour kHiddenColour = {0x9a, 0x9a, 0x9a};

// Dark only where the viewer asks for it: a program that knows no media queries shows the light card.
constexpr std::string_view kStyle = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",Arial,sans-serif}
.card{fill:#fdfdfe;stroke:#dfe3ea}.ink{fill:#1b2330}.muted{fill:#566070}.strong{font-weight:600}
.rule{stroke:#dfe3ea}.arc{fill:none;stroke:#8fa1c0}.head{fill:#8fa1c0}.faint{stroke:#c9d2e2}.fainthead{fill:#c9d2e2}
.mark{fill:none;stroke:#c2410c}.markhead{fill:#c2410c}.marked{fill:#b23a08;font-weight:600}.chip{fill:#fdfdfe}
.number{font-variant-numeric:tabular-nums}.onDark{fill:#fff}.onLight{fill:#000}.frame{fill:none;stroke:#8a94a3}
@media (prefers-color-scheme:dark){.card{fill:#151a22;stroke:#2b3340}.ink{fill:#e8ebf0}.muted{fill:#a3adbb}
.rule{stroke:#2b3340}.arc{stroke:#6d84ab}.head{fill:#6d84ab}.faint{stroke:#35425a}.fainthead{fill:#35425a}.mark{stroke:#ff9d4d}.markhead{fill:#ff9d4d}.marked{fill:#ffab66}.chip{fill:#151a22}}
</style>
)";

struct Letter {
  utf8proc_int32_t code = 0;
  std::size_t bytes = 1;
};

/// The first letter of a text that is not empty; U+FFFD for a byte that is no UTF-8.
Letter first_letter(std::string_view text) {
  Letter letter;
  const auto bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()), &letter.code);
  if (bytes <= 0) return {0xfffd, 1};
  letter.bytes = static_cast<std::size_t>(bytes);
  return letter;
}

bool in_xml(utf8proc_int32_t code) {
  return (code >= 0x20 && code != 0x7f && code != 0xfffe && code != 0xffff) || code == '\t' || code == '\n' || code == '\r';
}

double ascii_width(char letter) {
  constexpr std::string_view kNarrow = "iljtfIr.,:;'!|()[]`\"-/\\ ";
  constexpr std::string_view kWide = "mwMW@%";
  if (kNarrow.find(letter) != std::string_view::npos) return 0.40;
  if (kWide.find(letter) != std::string_view::npos) return 0.98;
  return letter >= 'A' && letter <= 'Z' ? 0.74 : 0.61;
}

double letter_width(utf8proc_int32_t code) {
  if (code < 0x80) return ascii_width(static_cast<char>(code));
  const int cells = utf8proc_charwidth(code);
  if (cells == 0) return 0.0;
  if (cells == 2) return utf8proc_category(code) == UTF8PROC_CATEGORY_SO ? 1.4 : 1.05;  // emoji are wider than their fonts say
  return code < 0x900 ? 0.70 : 0.85;
}

}  // namespace

int level_of(float weight) {
  if (std::isnan(weight)) return kHiddenLevel;
  return static_cast<int>(std::lround(std::clamp(weight, 0.0F, 1.0F) * static_cast<float>(kLevels - 1)));
}

Colour colour_of(int level) {
  if (level >= kLevels) return kHiddenColour;
  const double place = static_cast<double>(level) / (kLevels - 1) * static_cast<double>(kViridis.size() - 1);
  const auto step = std::min(static_cast<std::size_t>(place), kViridis.size() - 2);
  const double share = place - static_cast<double>(step);
  Colour colour{};
  for (std::size_t i = 0; i < colour.size(); ++i) {
    colour[i] = static_cast<std::uint8_t>(std::lround(kViridis[step][i] + share * (kViridis[step + 1][i] - kViridis[step][i])));
  }
  return colour;
}

std::string hex(Colour colour) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "#";
  for (std::uint8_t part : colour) {
    out += kDigits[part / 16];
    out += kDigits[part % 16];
  }
  return out;
}

bool is_dark(Colour colour) { return 0.30 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] < 140.0; }

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    switch (letter.code) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += in_xml(letter.code) && letter.code != 0xfffd ? text.substr(0, letter.bytes) : "\xEF\xBF\xBD";
    }
    text.remove_prefix(letter.bytes);
  }
  return out;
}

std::string fixed(double value, int decimals) {
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, decimals).ptr;
  return {buffer.data(), end};
}

std::string number(double value) {
  std::string text = fixed(value, 2);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double em_width(std::string_view text) {
  double width = 0.0;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    width += letter_width(letter.code);
    text.remove_prefix(letter.bytes);
  }
  return width;
}

std::string fitted(std::string_view text, double most) {
  if (em_width(text) <= most) return std::string(text);
  constexpr double kEllipsis = 1.0;
  double width = kEllipsis;
  std::size_t end = 0;  // of the last whole cluster that fits
  std::size_t place = 0;
  utf8proc_int32_t state = 0;
  utf8proc_int32_t before = 0;
  while (place < text.size()) {
    const Letter letter = first_letter(text.substr(place));
    if (place == 0 || utf8proc_grapheme_break_stateful(before, letter.code, &state) != 0) end = place;
    width += letter_width(letter.code);
    if (width > most) break;
    before = letter.code;
    place += letter.bytes;
  }
  return std::string(text.substr(0, end)) + "\xE2\x80\xA6";
}

std::vector<std::string> lines_of(std::string_view text, double most) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string word(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
    const std::string longer = line.empty() ? word : line + ' ' + word;
    if (!line.empty() && em_width(longer) > most) {
      lines.push_back(line);
      line = word;
    } else {
      line = longer;
    }
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

bool runs_left(std::string_view text) {
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    const auto kind = utf8proc_get_property(letter.code)->bidi_class;
    if (kind == UTF8PROC_BIDI_CLASS_L) return false;
    if (kind == UTF8PROC_BIDI_CLASS_R || kind == UTF8PROC_BIDI_CLASS_AL) return true;
    text.remove_prefix(letter.bytes);
  }
  return false;
}

void Svg::text(double x, double y, std::string_view content, const TextStyle& style) { fitted_text(x, y, content, style, 1e9); }

void Svg::fitted_text(double x, double y, std::string_view content, const TextStyle& style, double most_em) {
  const std::string shown = fitted(content, most_em);
  body_ += "<text class=\"" + std::string(style.classes) + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" font-size=\"" +
           number(style.size) + '"';
  if (style.anchor != "start") body_ += " text-anchor=\"" + std::string(style.anchor) + '"';
  if (style.turn != 0.0) body_ += " transform=\"rotate(" + number(style.turn) + ' ' + number(x) + ' ' + number(y) + ")\"";
  body_ += '>';
  if (shown != content) body_ += "<title>" + escaped(content) + "</title>";
  body_ += escaped(shown) + "</text>\n";
}

double Svg::paragraph(double x, double y, double width, std::string_view content, const TextStyle& style) {
  for (const std::string& line : lines_of(content, width / style.size)) {
    text(x, y, line, style);
    y += 1.45 * style.size;
  }
  return y;
}

void Svg::colour_bar(double x, double y) {
  constexpr double kWidth = 120;
  constexpr int kSteps = 10;
  body_ += "<defs><linearGradient id=\"mha-viridis\">";
  for (int step = 0; step <= kSteps; ++step) {
    const double share = static_cast<double>(step) / kSteps;
    body_ += "<stop offset=\"" + number(share) + "\" stop-color=\"" + hex(colour_of(level_of(static_cast<float>(share)))) + "\"/>";
  }
  body_ += "</linearGradient></defs><rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(kWidth) +
           "\" height=\"10\" fill=\"url(#mha-viridis)\"/>\n";
  for (double share : {0.0, 0.5, 1.0}) {
    text(x + share * kWidth, y + 24, number(share), {.classes = "muted number", .size = 11, .anchor = "middle"});
  }
  text(x + kWidth + 12, y + 9.5, "weight", {.classes = "muted", .size = 12});
}

std::string Svg::card(double width, double height, std::string_view title, std::string_view description) const {
  const std::string size = "width=\"" + number(width) + "\" height=\"" + number(height) + '"';
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size + " viewBox=\"0 0 " + number(width) + ' ' + number(height) +
                    "\" role=\"img\" aria-labelledby=\"mha-title mha-desc\">\n<title id=\"mha-title\">" + escaped(title) +
                    "</title>\n<desc id=\"mha-desc\">" + escaped(description) + "</desc>\n";
  out += kStyle;
  out += "<rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"" + number(width - 1) + "\" height=\"" + number(height - 1) + "\" rx=\"10\"/>\n";
  return out + body_ + "</svg>\n";
}

}  // namespace mha::view
