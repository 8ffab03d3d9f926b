// All heads at a glance: one small table each, a row per layer, in the order of their numbers.
#include <algorithm>
#include <map>
#include <set>

#include "view/cells.h"
#include "view/panels.h"
#include "view/svg.h"

namespace mha::view {
namespace {

constexpr double kGap = 8;

/// Places of layers (rows) and heads (columns) that are there.
struct Places {
  std::map<Index, double> layers, heads;
};

Places places_of(const Picture& picture) {
  std::set<Index> layers;
  std::set<Index> heads;
  for (const PictureHead& head : picture.heads) {
    layers.insert(head.id.layer);
    heads.insert(head.id.head);
  }
  Places places;
  for (Index layer : layers) places.layers.emplace(layer, static_cast<double>(places.layers.size()));
  for (Index head : heads) places.heads.emplace(head, static_cast<double>(places.heads.size()));
  return places;
}

}  // namespace
}  // namespace mha::view

std::string mha::atlas_svg(const Picture& picture) {
  using namespace view;
  check(picture);
  const std::vector<Index> rows = shown_units(picture.queries, picture.special);
  const std::vector<Index> columns = shown_units(picture.columns(), picture.special);
  const Places places = places_of(picture);
  const auto most = static_cast<double>(std::max<std::size_t>({rows.size(), columns.size(), 1}));
  const double cell = most <= 64 ? std::max(1.0, 72.0 / most) : 96.0 / most;
  const double wide = cell * static_cast<double>(columns.size());
  const double tall = cell * static_cast<double>(rows.size());
  const double left = kMargin + 62;
  const double top = 62;
  Svg svg;
  svg.raw(hatch_definition());
  const auto x_of = [&](Index head) { return left + places.heads.at(head) * (wide + kGap); };
  const auto y_of = [&](Index layer) { return top + places.layers.at(layer) * (tall + kGap); };
  for (const auto& [layer, place] : places.layers) {
    svg.text(left - 10, y_of(layer) + tall / 2 + 4, "layer " + std::to_string(layer),
             {.classes = "muted number", .size = 12, .anchor = "end"});
  }
  for (const auto& [head, place] : places.heads) {
    svg.text(x_of(head) + wide / 2, top - 10, (place == 0 ? "head " : "") + std::to_string(head),
             {.classes = "muted number", .size = 12, .anchor = "middle"});
  }
  for (const PictureHead& head : picture.heads) {
    const double x = x_of(head.id.head);
    const double y = y_of(head.id.layer);
    const std::string marks = told_marks(picture, head);
    svg.raw("<g><title>" + escaped(head_name(head.id) + (marks.empty() ? "" : ": " + marks)) + "</title>\n" +
            cells_svg(levels_of(head.weights, rows, columns), x, y, cell));
    if (!head.marks.empty()) {
      svg.raw("<rect class=\"mark\" stroke-width=\"2.5\" x=\"" + number(x - 2.5) + "\" y=\"" + number(y - 2.5) + "\" width=\"" +
              number(wide + 5) + "\" height=\"" + number(tall + 5) + "\"/>\n");
    }
    svg.raw("</g>\n");
  }
  const double width = std::max(left + static_cast<double>(places.heads.size()) * (wide + kGap) - kGap + kMargin, 480.0);
  double y = top + static_cast<double>(places.layers.size()) * (tall + kGap) + 16;
  svg.fitted_text(kMargin, 30, picture.text, {.classes = "ink strong", .size = 16}, (width - 2 * kMargin) / 16);
  svg.colour_bar(kMargin, y);
  y = svg.paragraph(kMargin, y + 48, width - 2 * kMargin,
                    "One table a head: row attends, column is attended to, in the order of the text" +
                        std::string(picture.special ? ". " : ", special tokens left out. ") + source_of(picture),
                    {.classes = "muted", .size = 12});
  return svg.card(width, y + 8, title_of(picture), description_of(picture, "One small table of weights for every head."));
}
