// Tables of weights side by side: rows attend, columns are attended to. Names where cells leave room for them, numbers where they are
// large.
#include <algorithm>
#include <cmath>

#include "view/cells.h"
#include "view/panels.h"
#include "view/svg.h"

namespace mha::view {
namespace {

constexpr double kLongestName = 11;   // em
constexpr double kWidestCard = 1500;  // before tables go to the next line
constexpr double kNumbersFrom = 34;   // cells of this size show their weight
constexpr double kSlantedFrom = 18;   // names of columns stand upright where cells are smaller

double cell_size(std::size_t units) {
  if (units <= 16) return 38;
  if (units <= 32) return 24;
  if (units <= 64) return 14;
  if (units <= 128) return 8;
  return std::max(1.0, std::floor(900.0 / static_cast<double>(units)));
}

/// What all panels of a picture have in common.
class Table {
 public:
  explicit Table(const Picture& picture)
      : picture_(picture), rows_(shown_units(picture.queries, picture.special)), columns_(shown_units(picture.columns(), picture.special)) {
    cell_ = cell_size(std::max(rows_.size(), columns_.size()));
    names_ = std::min(13.0, cell_ - 1);
    const bool named = cell_ >= 8;
    const double left_em = named ? longest(picture.queries, rows_) : 3;
    const double top_em = named ? longest(picture.columns(), columns_) : 3;
    if (!named) names_ = 11;
    left_ = left_em * names_ + 10;
    top_ = slanted() ? 0.72 * top_em * names_ + 14 : top_em * names_ + 10;
    right_ = slanted() ? 0.72 * top_em * names_ - cell_ / 2 : 0;
  }

  bool empty() const { return rows_.empty() || columns_.empty(); }
  double width() const { return std::max(left_ + cell_ * static_cast<double>(columns_.size()) + std::max(right_, 0.0), 200.0); }
  double height() const { return 40 + top_ + cell_ * static_cast<double>(rows_.size()) + 10; }

  void draw(Svg& svg, const PictureHead& head, double x, double y) const {
    svg.text(x, y + 16, heading(head), {.classes = "ink strong", .size = 16});
    if (!head.title.empty()) svg.text(x, y + 34, head_name(head.id), {.classes = "muted number", .size = 12});
    const double left = x + left_;
    const double top = y + 40 + top_;
    if (cell_ >= 8) {
      draw_names(svg, left, top);
    } else {
      draw_places(svg, left, top);
    }
    svg.raw(cells_svg(levels_of(head.weights, rows_, columns_), left, top, cell_));
    if (cell_ >= kNumbersFrom) draw_numbers(svg, head, left, top);
    for (const PictureLink& mark : head.marks) draw_mark(svg, mark, left, top);
  }

 private:
  static double longest(const std::vector<Unit>& units, const std::vector<Index>& shown) {
    double em = 0;
    for (Index unit : shown) em = std::max(em, em_width(units[static_cast<std::size_t>(unit)].text));
    return std::min(em, kLongestName);
  }
  bool slanted() const { return cell_ >= kSlantedFrom; }

  void draw_names(Svg& svg, double left, double top) const {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      svg.fitted_text(left - 7, top + cell_ * (static_cast<double>(i) + 0.5) + 0.36 * names_,
                      picture_.queries[static_cast<std::size_t>(rows_[i])].text, {.classes = "ink", .size = names_, .anchor = "end"},
                      kLongestName);
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      svg.fitted_text(left + cell_ * (static_cast<double>(i) + 0.5) + (slanted() ? 0 : 0.36 * names_), top - 6,
                      picture_.columns()[static_cast<std::size_t>(columns_[i])].text,
                      {.classes = "ink", .size = names_, .turn = slanted() ? -45.0 : -90.0}, kLongestName);
    }
  }

  /// Positions instead of names, where cells are too small for them.
  void draw_places(Svg& svg, double left, double top) const {
    const std::size_t step = rows_.size() + columns_.size() > 2000 ? 500 : 100;
    for (std::size_t i = 0; i < rows_.size(); i += step) {
      svg.text(left - 6, top + cell_ * (static_cast<double>(i) + 0.5) + 4, std::to_string(rows_[i]),
               {.classes = "muted number", .size = 11, .anchor = "end"});
    }
    for (std::size_t i = 0; i < columns_.size(); i += step) {
      svg.text(left + cell_ * (static_cast<double>(i) + 0.5), top - 6, std::to_string(columns_[i]),
               {.classes = "muted number", .size = 11, .anchor = "middle"});
    }
  }

  void draw_numbers(Svg& svg, const PictureHead& head, double left, double top) const {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        const float weight = weight_at(head, rows_[i], columns_[j]);
        if (std::isnan(weight) || weight < 0.005F) continue;
        const std::string text = fixed(static_cast<double>(weight), 2);
        svg.text(left + cell_ * (static_cast<double>(j) + 0.5), top + cell_ * (static_cast<double>(i) + 0.5) + 4,
                 weight < 0.995F ? text.substr(1) : text,
                 {.classes = is_dark(colour_of(level_of(weight))) ? "number onDark" : "number onLight", .size = 11, .anchor = "middle"});
      }
    }
  }

  void draw_mark(Svg& svg, const PictureLink& mark, double left, double top) const {
    const auto row = std::find(rows_.begin(), rows_.end(), mark.from);
    const auto column = std::find(columns_.begin(), columns_.end(), mark.to);
    if (row == rows_.end() || column == columns_.end()) return;  // of a special unit that is not drawn
    svg.raw("<rect class=\"mark\" stroke-width=\"2.5\" x=\"" + number(left + cell_ * static_cast<double>(column - columns_.begin())) +
            "\" y=\"" + number(top + cell_ * static_cast<double>(row - rows_.begin())) + "\" width=\"" + number(cell_) + "\" height=\"" +
            number(cell_) + "\"/>\n");
  }

  const Picture& picture_;
  std::vector<Index> rows_, columns_;
  double cell_ = 0, names_ = 0, left_ = 0, top_ = 0, right_ = 0;
};

}  // namespace
}  // namespace mha::view

std::string mha::matrix_svg(const Picture& picture) {
  using namespace view;
  check(picture);
  const Table table(picture);
  const auto across = static_cast<std::size_t>(std::max(1.0, std::floor((kWidestCard - 2 * kMargin + 36) / (table.width() + 36))));
  Svg svg;
  svg.raw(hatch_definition());
  double y = 20;
  double width = 0;
  for (std::size_t i = 0; i < picture.heads.size() && !table.empty(); i += across) {
    double end = y;
    for (std::size_t j = i; j < std::min(i + across, picture.heads.size()); ++j) {
      const double x = kMargin + static_cast<double>(j - i) * (table.width() + 36);
      table.draw(svg, picture.heads[j], x, y);
      width = std::max(width, x + table.width() + kMargin);
      end = std::max(end, svg.paragraph(x, y + table.height() + 10, table.width(), told_shares(picture, picture.heads[j], false),
                                        {.classes = "muted", .size = 12}));
    }
    y = end + 14;
  }
  width = std::max(width, kBarWidth + 2 * kMargin);
  svg.colour_bar(kMargin, y);
  y = svg.paragraph(kMargin, y + 48, width - 2 * kMargin, "Row attends, column is attended to. " + source_of(picture),
                    {.classes = "muted", .size = 12});
  return svg.card(width, y + 8, title_of(picture), description_of(picture, "Tables of weights: row attends, column is attended to."));
}
