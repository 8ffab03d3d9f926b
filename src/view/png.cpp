// Weights as pixels: one table, all heads beside each other, or a map of a long one.
#include <algorithm>
#include <set>

#include "core/check.h"
#include "mha/error.h"
#include "view/cells.h"
#include "view/panels.h"
#include "view/svg.h"

namespace mha::view {
namespace {

/// The place of each number among those that are there.
Index place_in(const std::set<Index>& numbers, Index number) { return std::distance(numbers.begin(), numbers.find(number)); }

void enlarge(const Levels& from, Index cell, Index top, Index left, Levels& to) {
  for (Index row = 0; row < from.rows * cell; ++row) {
    for (Index column = 0; column < from.columns * cell; ++column) to.at(top + row, left + column) = from.at(row / cell, column / cell);
  }
}

}  // namespace
}  // namespace mha::view

std::string mha::matrix_png(const Picture& picture, Index cell) {
  using namespace view;
  check(picture);
  MHA_CHECK(Error, cell >= 1 && cell <= kMostPixels, "png: cell is ", cell, ", must be 1 to ", kMostPixels, " pixels");
  const std::vector<Index> rows = shown_units(picture.queries, picture.special);
  const std::vector<Index> columns = shown_units(picture.columns(), picture.special);
  std::set<Index> layers;
  std::set<Index> heads;
  for (const PictureHead& head : picture.heads) {
    layers.insert(head.id.layer);
    heads.insert(head.id.head);
  }
  MHA_CHECK(Error, !layers.empty() && !rows.empty() && !columns.empty(), "png: there is nothing to draw");
  const Index tall = static_cast<Index>(rows.size()) * cell;
  const Index wide = static_cast<Index>(columns.size()) * cell;
  const Index gap = layers.size() * heads.size() > 1 ? std::max<Index>(cell, 2) : 0;
  const Index height = static_cast<Index>(layers.size()) * (tall + gap) - gap;
  const Index width = static_cast<Index>(heads.size()) * (wide + gap) - gap;
  MHA_CHECK(Error, height <= kMostPixels && width <= kMostPixels, "png: ", width, " x ", height, " pixels, must be at most ", kMostPixels,
            " a side: fewer heads, or fewer pixels a cell");
  Levels levels{
      .rows = height, .columns = width, .cells = std::vector<std::uint8_t>(static_cast<std::size_t>(height * width), kHiddenLevel)};
  for (const PictureHead& head : picture.heads) {
    enlarge(levels_of(head.weights, rows, columns), cell, place_in(layers, head.id.layer) * (tall + gap),
            place_in(heads, head.id.head) * (wide + gap), levels);
  }
  return png_of(levels);
}

std::string mha::map_png(ConstTensorView map) {
  MHA_CHECK(ShapeError, map.rank() == 2 && map.dtype == DType::F32 && map.is_contiguous(), "png: map has shape ", to_string(map.shape),
            ", must be dense f32 [rows, columns]");
  view::Levels levels{.rows = map.size(0), .columns = map.size(1), .cells = {}};
  for (Index i = 0; i < element_count(map.shape); ++i)
    levels.cells.push_back(static_cast<std::uint8_t>(view::level_of(map.as<float>()[i])));
  return view::png_of(levels);
}
