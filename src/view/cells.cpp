// Cells of one colour that touch in a row become one rectangle, rectangles of one colour one path: a table of words is mostly background.
#include "view/cells.h"

#include <png.h>

#include <array>
#include <map>

#include "core/check.h"
#include "mha/error.h"
#include "view/base64.h"
#include "view/svg.h"

namespace mha::view {
namespace {

std::string rectangle(double x, double y, double width, double height, const std::string& fill) {
  return "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) + "\" height=\"" + number(height) + "\" fill=\"" +
         fill + "\"/>\n";
}

std::string vectors(const Levels& levels, double x, double y, double cell) {
  std::map<int, std::string> paths;  // by level
  for (Index row = 0; row < levels.rows; ++row) {
    for (Index column = 0; column < levels.columns;) {
      const int level = levels.at(row, column);
      Index end = column + 1;
      while (end < levels.columns && levels.at(row, end) == level) ++end;
      const double width = static_cast<double>(end - column) * cell;
      if (level != 0) {
        paths[level] += "M" + number(x + static_cast<double>(column) * cell) + ' ' + number(y + static_cast<double>(row) * cell) + 'h' +
                        number(width) + 'v' + number(cell) + 'h' + number(-width) + 'z';
      }
      column = end;
    }
  }
  std::string out = "<g shape-rendering=\"crispEdges\">\n" +
                    rectangle(x, y, static_cast<double>(levels.columns) * cell, static_cast<double>(levels.rows) * cell, hex(colour_of(0)));
  for (const auto& [level, path] : paths) {
    out += "<path fill=\"" + (level == kHiddenLevel ? std::string("url(#mha-hatch)") : hex(colour_of(level))) + "\" d=\"" + path + "\"/>\n";
  }
  return out + "</g>\n";
}

}  // namespace

Levels levels_of(ConstTensorView weights, const std::vector<Index>& rows, const std::vector<Index>& columns) {
  Levels levels{.rows = static_cast<Index>(rows.size()), .columns = static_cast<Index>(columns.size()), .cells = {}};
  levels.cells.reserve(rows.size() * columns.size());
  for (Index row : rows) {
    for (Index column : columns) {
      levels.cells.push_back(static_cast<std::uint8_t>(level_of(weights.as<float>()[row * weights.size(1) + column])));
    }
  }
  return levels;
}

std::string png_of(const Levels& levels) {
  MHA_CHECK(Error, levels.rows > 0 && levels.columns > 0 && levels.rows <= kMostPixels && levels.columns <= kMostPixels,
            "png: ", levels.columns, " x ", levels.rows, " pixels, must be 1 to ", kMostPixels, " a side");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(levels.columns);
  image.height = static_cast<png_uint_32>(levels.rows);
  image.format = PNG_FORMAT_RGB_COLORMAP;
  image.colormap_entries = kLevels + 1;
  std::array<std::uint8_t, 3 * (kLevels + 1)> palette{};
  for (int level = 0; level <= kLevels; ++level) {
    const Colour colour = colour_of(level);
    std::copy(colour.begin(), colour.end(), palette.begin() + 3 * level);
  }
  const auto write = [&](void* memory, png_alloc_size_t& size) {
    const int done = png_image_write_to_memory(&image, memory, &size, 0, levels.cells.data(), 0, palette.data());
    MHA_CHECK(Error, done != 0, "png: ", image.message);
  };
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  write(bytes.data(), size);
  bytes.resize(size);
  return bytes;
}

std::string cells_svg(const Levels& levels, double x, double y, double cell) {
  if (levels.rows * levels.columns <= kMostVectors) return vectors(levels, x, y, cell);
  return "<image style=\"image-rendering:pixelated\" preserveAspectRatio=\"none\" x=\"" + number(x) + "\" y=\"" + number(y) +
         "\" width=\"" + number(static_cast<double>(levels.columns) * cell) + "\" height=\"" +
         number(static_cast<double>(levels.rows) * cell) + "\" href=\"data:image/png;base64," + base64(png_of(levels)) + "\"/>\n";
}

std::string hatch_definition() {
  return "<defs><pattern id=\"mha-hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
         "<rect width=\"5\" height=\"5\" fill=\"#8e8e8e\"/><rect width=\"2\" height=\"5\" fill=\"#b9b9b9\"/></pattern></defs>\n";
}

}  // namespace mha::view
