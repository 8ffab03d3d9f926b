// A table of weights as coloured cells: vectors in an SVG, an image where there are many, bytes of a PNG. Called by matrix_svg.cpp,
// atlas_svg.cpp and png.cpp; knows nothing of words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mha/tensor.h"

namespace mha::view {

/// Levels of colour (svg.h), row by row.
struct Levels {
  Index rows = 0;
  Index columns = 0;
  std::vector<std::uint8_t> cells;
  std::uint8_t& at(Index row, Index column) { return cells[static_cast<std::size_t>(row * columns + column)]; }
  std::uint8_t at(Index row, Index column) const { return cells[static_cast<std::size_t>(row * columns + column)]; }
};

/// Of the given rows and columns of a table, f32 and dense.
Levels levels_of(ConstTensorView weights, const std::vector<Index>& rows, const std::vector<Index>& columns);

inline constexpr Index kMostPixels = 16384;  // of a PNG, a side

/// A palette PNG of them. Throws Error where it has no pixels or more than kMostPixels a side.
std::string png_of(const Levels& levels);

inline constexpr Index kMostVectors = 4096;  // cells of one table; more become an image

/// Markup that fills the rectangle at x, y with cells of width and height `cell`. Hidden cells are hatched (`hatch_definition`).
std::string cells_svg(const Levels& levels, double x, double y, double cell);
/// Once per SVG with cells.
std::string hatch_definition();

}  // namespace mha::view
