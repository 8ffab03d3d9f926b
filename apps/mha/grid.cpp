// Drawing of grids: column widths, blocks, and the dense form for long sentences.
#include "grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace mha::app {
namespace {

constexpr int kLongestName = 14;
constexpr int kMostBlocks = 3;

struct Block {
  std::size_t begin;
  std::size_t end;
};

int longest(const std::vector<std::string>& names) {
  int width = 0;
  for (const std::string& name : names) width = std::max(width, display_width(name));
  return std::min(width, kLongestName);
}

int label_width(const Grid& grid) { return std::max(longest(grid.rows), std::min(display_width(grid.corner), kLongestName)); }

std::string number(double value) {
  return std::isnan(value) ? "-" : value < 9.995 ? fmt::format("{:.2f}", value) : fmt::format("{:.1f}", value);
}

double share(const Grid& grid, double value) { return grid.top > 0.0 && !std::isnan(value) ? value / grid.top : 0.0; }

/// A column's width, the space before it not counted.
int column_width(const Grid& grid, std::size_t column) { return std::max(4, std::min(display_width(grid.columns[column]), kLongestName)); }

std::vector<Block> blocks(const Grid& grid, int room) {
  std::vector<Block> found;
  for (std::size_t column = 0; column < grid.columns.size();) {
    Block block{column, column};
    int used = 0;
    while (block.end < grid.columns.size() && (block.end == block.begin || used + 1 + column_width(grid, block.end) <= room)) {
      used += 1 + column_width(grid, block.end++);
    }
    found.push_back(block);
    column = block.end;
  }
  return found;
}

std::string draw_block(const Grid& grid, const Block& block, int label, const Terminal& terminal) {
  std::string out = pad_right(shorten(grid.corner, kLongestName), label);
  for (std::size_t column = block.begin; column < block.end; ++column) {
    out += fmt::format(" {}", pad_left(shorten(grid.columns[column], kLongestName), column_width(grid, column)));
  }
  out += '\n';
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    out += pad_right(shorten(grid.rows[row], kLongestName), label);
    for (std::size_t column = block.begin; column < block.end; ++column) {
      const double value = grid.values[row][column];
      out += shaded(pad_left(number(value), column_width(grid, column) + 1), share(grid, value), terminal);
    }
    out += '\n';
  }
  return out;
}

char tenths(double share_of_top) {
  const int tenth = static_cast<int>(std::lround(share_of_top * 10.0));
  return tenth <= 0 ? '.' : tenth > 9 ? '#' : static_cast<char>('0' + tenth);
}

/// Rows are numbered; the number of a column is written downwards over it.
std::string draw_dense(const Grid& grid, const Terminal& terminal) {
  const int digits = static_cast<int>(std::to_string(std::max(grid.rows.size(), grid.columns.size())).size());
  const int label = digits + 1 + longest(grid.rows);
  const auto room = static_cast<std::size_t>(std::max(terminal.width - label - 1, 10));
  std::string out =
      wrap(fmt::format("One character a number, in tenths of {}: . is less than half a tenth, # all or nearly.", number(grid.top)),
           terminal.width, 0);
  out += '\n';
  for (std::size_t column = grid.rows.size(); column < grid.columns.size(); ++column) {
    out += fmt::format("Column {} is {}.\n", column + 1, grid.columns[column]);
  }
  for (std::size_t begin = 0; begin < grid.columns.size(); begin += room) {
    const std::size_t end = std::min(begin + room, grid.columns.size());
    out += '\n';
    for (int digit = 0; digit < digits; ++digit) {
      out += std::string(static_cast<std::size_t>(label + 1), ' ');
      for (std::size_t column = begin; column < end; ++column) {
        out += fmt::format("{:>{}}", column + 1, digits)[static_cast<std::size_t>(digit)];
      }
      out += '\n';
    }
    for (std::size_t row = 0; row < grid.rows.size(); ++row) {
      out += pad_right(fmt::format("{:>{}} {}", row + 1, digits, shorten(grid.rows[row], kLongestName)), label) + ' ';
      for (std::size_t column = begin; column < end; ++column) {
        const double of_top = share(grid, grid.values[row][column]);
        out += shaded(std::string(1, std::isnan(grid.values[row][column]) ? '-' : tenths(of_top)), of_top, terminal);
      }
      out += '\n';
    }
  }
  return out;
}

}  // namespace

std::string draw(const Grid& grid, const Terminal& terminal) {
  const int label = label_width(grid);
  const std::vector<Block> parts = blocks(grid, terminal.width - label);
  if (parts.size() > kMostBlocks) return draw_dense(grid, terminal);
  std::string out;
  for (const Block& block : parts) {
    if (!out.empty()) out += '\n';
    out += draw_block(grid, block, label, terminal);
  }
  return out;
}

std::string scale(const Grid& grid, const Terminal& terminal) {
  if (!terminal.colour) return {};
  constexpr int kSteps = 8;
  std::string out = pad_right("scale", label_width(grid));
  for (int step = 0; step < kSteps; ++step) {
    const double of_top = static_cast<double>(step) / (kSteps - 1);
    out += shaded(pad_left(number(of_top * grid.top), 5), of_top, terminal);
  }
  return out + '\n';
}

}  // namespace mha::app
