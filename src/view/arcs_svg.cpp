// Arcs along the sentence. Links to later words lie above the words, links to earlier ones below, so that direction needs no second look.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "mha/error.h"
#include "view/panels.h"
#include "view/svg.h"

namespace mha::view {
namespace {

constexpr double kWord = 17;  // size of letters
constexpr double kGap = 20;   // between words, at least
constexpr double kWidestGap = 44;
constexpr double kLongestWord = 16;  // em
constexpr double kWidest = 14;       // of an arc, at weight 1
constexpr double kLeastWidth = 780;  // of a card
constexpr std::size_t kMostArcs = 500;

struct Arc {
  Index from = 0, to = 0;
  double weight = 0;
  bool marked = false;
};

/// Where words stand: centres, in the order of the text, from the right where its script runs to the left.
struct Line {
  std::vector<Index> units;
  std::vector<double> centre;  // by position in the text; only of `units`
  double width = 0;
};

Line line_of(const Picture& picture) {
  Line line{.units = shown_units(picture.queries, picture.special), .centre = std::vector<double>(picture.queries.size(), 0.0)};
  std::string plain;
  for (Index unit : line.units) plain += picture.queries[static_cast<std::size_t>(unit)].text + ' ';
  std::vector<Index> order = line.units;
  if (runs_left(plain)) std::reverse(order.begin(), order.end());
  const auto width_of_word = [&](Index unit) {
    return kWord * std::min(1.06 * em_width(picture.queries[static_cast<std::size_t>(unit)].text), kLongestWord);
  };
  const double gaps = std::max(static_cast<double>(order.size()) - 1, 1.0);
  double words = 2 * kMargin;
  for (Index unit : order) words += width_of_word(unit);
  const double gap = std::clamp((kLeastWidth - words) / gaps, kGap, kWidestGap);
  line.width = std::max(words + gap * gaps, kLeastWidth);
  double x = kMargin + (line.width - words - gap * gaps) / 2;
  for (Index unit : order) {
    line.centre[static_cast<std::size_t>(unit)] = x + width_of_word(unit) / 2;
    x += width_of_word(unit) + gap;
  }
  return line;
}

/// Weak ones first, so that strong and marked ones lie on top.
std::vector<Arc> arcs_of(const Picture& picture, const PictureHead& head, const Line& line) {
  std::vector<Arc> arcs;
  for (Index from : line.units) {
    for (Index to : line.units) {
      const auto weight = static_cast<double>(weight_at(head, from, to));
      const bool marked =
          std::any_of(head.marks.begin(), head.marks.end(), [&](const PictureLink& m) { return m.from == from && m.to == to; });
      if (from != to && !std::isnan(weight) && (weight >= picture.least || marked)) arcs.push_back({from, to, weight, marked});
    }
  }
  std::stable_sort(arcs.begin(), arcs.end(),
                   [](const Arc& a, const Arc& b) { return a.marked != b.marked ? b.marked : a.weight < b.weight; });
  if (arcs.size() > kMostArcs) arcs.erase(arcs.begin(), arcs.end() - static_cast<std::ptrdiff_t>(kMostArcs));
  return arcs;
}

double rise(double distance) { return std::min(14.0 + 0.25 * distance, 200.0); }

double width_of(double weight) { return std::max(0.8, kWidest * weight); }

class ArcsPanel {
 public:
  ArcsPanel(const Picture& picture, const PictureHead& head, const Line& line)
      : picture_(picture), head_(head), line_(line), arcs_(arcs_of(picture, head, line)) {
    for (const Arc& arc : arcs_) {
      double& room = arc.to > arc.from ? above_ : below_;
      room = std::max(room, rise(std::abs(centre(arc.to) - centre(arc.from))) + width_of(arc.weight) / 2 + (arc.marked ? 10 : 2));
    }
  }

  /// Draws from `y` on; returns where it ends.
  double draw(Svg& svg, double y) const {
    y += 18;
    svg.text(kMargin, y, heading(head_), {.classes = "ink strong", .size = 16});
    if (!head_.title.empty()) {
      svg.text(line_.width - kMargin, y, head_name(head_.id), {.classes = "muted number", .size = 13, .anchor = "end"});
    }
    const double top = y + 14 + above_;        // where arcs above the words stand
    const double bottom = top + kWord * 1.75;  // and those below them
    for (const Arc& arc : arcs_) draw_arc(svg, arc, arc.to > arc.from ? top : bottom);
    for (Index unit : line_.units) {
      const bool marked =
          std::any_of(head_.marks.begin(), head_.marks.end(), [&](const PictureLink& m) { return m.from == unit || m.to == unit; });
      svg.fitted_text(centre(unit), top + kWord * 1.2, picture_.queries[static_cast<std::size_t>(unit)].text,
                      {.classes = marked ? "marked" : "ink", .size = kWord, .anchor = "middle"}, kLongestWord);
    }
    for (const Arc& arc : arcs_) {
      if (arc.marked) draw_weight(svg, arc, arc.to > arc.from ? top : bottom);
    }
    y = bottom + below_ + 20;
    return svg.paragraph(kMargin, y, line_.width - 2 * kMargin, told_shares(picture_, head_, true), {.classes = "muted", .size = 12});
  }

 private:
  double centre(Index unit) const { return line_.centre[static_cast<std::size_t>(unit)]; }
  /// Ends beside the middle of a word, so that what arrives and what leaves do not touch.
  double start_of(const Arc& arc) const { return centre(arc.from) + (centre(arc.to) > centre(arc.from) ? 7 : -7); }
  double end_of(const Arc& arc) const { return centre(arc.to) + (centre(arc.to) > centre(arc.from) ? -7 : 7); }

  void draw_arc(Svg& svg, const Arc& arc, double y) const {
    const double up = arc.to > arc.from ? -1.0 : 1.0;
    const double peak = y + up * rise(std::abs(centre(arc.to) - centre(arc.from))) * 4 / 3;  // of the two handles
    const double tip = 3.5 + 0.62 * width_of(arc.weight);  // half the width of the arrow, and about its length
    const double x = end_of(arc);
    svg.raw("<path class=\"" +
            std::string(arc.marked            ? "mark"
                        : head_.marks.empty() ? "arc"
                                              : "arc faint") +
            "\" stroke-width=\"" + number(width_of(arc.weight)) + "\" d=\"M" + number(start_of(arc)) + ' ' + number(y) + "C" +
            number(start_of(arc)) + ' ' + number(peak) + ' ' + number(x) + ' ' + number(peak) + ' ' + number(x) + ' ' +
            number(y + up * tip) + "\"><title>" + escaped(tooltip(arc)) + "</title></path><path class=\"" +
            (arc.marked            ? "markhead"
             : head_.marks.empty() ? "head"
                                   : "head fainthead") +
            "\" d=\"M" + number(x - tip) + ' ' + number(y + up * 1.5 * tip) + 'H' + number(x + tip) + 'L' + number(x) + ' ' + number(y) +
            "Z\"/>\n");
  }

  void draw_weight(Svg& svg, const Arc& arc, double y) const {
    const double up = arc.to > arc.from ? -1.0 : 1.0;
    const double x = (start_of(arc) + end_of(arc)) / 2;
    const double middle = y + up * rise(std::abs(centre(arc.to) - centre(arc.from)));
    svg.raw("<rect class=\"chip\" x=\"" + number(x - 24) + "\" y=\"" + number(middle - 10) + "\" width=\"48\" height=\"20\" rx=\"10\"/>\n");
    svg.text(x, middle + 4.6, fixed(arc.weight, 3), {.classes = "marked number", .size = 13, .anchor = "middle"});
  }

  std::string tooltip(const Arc& arc) const {
    return picture_.queries[static_cast<std::size_t>(arc.from)].text + " \xE2\x86\x92 " +
           picture_.queries[static_cast<std::size_t>(arc.to)].text + ' ' + fixed(arc.weight, 3);
  }

  const Picture& picture_;
  const PictureHead& head_;
  const Line& line_;
  std::vector<Arc> arcs_;
  double above_ = 0;
  double below_ = 0;
};

/// What widths and sides mean, and where it all comes from.
double draw_foot(Svg& svg, const Picture& picture, double width, double y) {
  svg.raw("<path class=\"rule\" d=\"M" + number(kMargin) + ' ' + number(y) + 'H' + number(width - kMargin) + "\"/>\n");
  y += 26;
  double x = kMargin;
  for (double weight : {0.1, 0.5, 1.0}) {
    svg.raw("<path class=\"arc\" stroke-width=\"" + number(width_of(weight)) + "\" d=\"M" + number(x) + ' ' + number(y - 4) + "h30\"/>\n");
    svg.text(x + 38, y, number(weight), {.classes = "muted number", .size = 12});
    x += 72;
  }
  svg.text(x, y, "weight. Above: to a later word, below: to an earlier one.", {.classes = "muted", .size = 12});
  return svg.paragraph(kMargin, y + 22, width - 2 * kMargin,
                       "Links below " + number(picture.least) + " are not drawn. " + source_of(picture), {.classes = "muted", .size = 12});
}

}  // namespace
}  // namespace mha::view

std::string mha::arcs_svg(const Picture& picture) {
  view::check(picture);
  MHA_CHECK(Error, picture.keys.empty(),
            "picture: arcs are drawn along one sentence; where keys are of another (cross-attention), take a matrix");
  const view::Line line = view::line_of(picture);
  view::Svg svg;
  double y = 14;
  for (const PictureHead& head : picture.heads) {
    y = view::ArcsPanel(picture, head, line).draw(svg, y + 8) + 6;
  }
  y = view::draw_foot(svg, picture, line.width, y);
  return svg.card(line.width, y, view::title_of(picture), view::description_of(picture, "Arcs from each unit to those it attends to."));
}
