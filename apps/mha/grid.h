// A table of weights as numbers, shaded where there is colour, cut into blocks of columns where it is wider than the terminal.
#pragma once

#include <string>
#include <vector>

#include "terminal.h"

namespace mha::app {

struct Grid {
  std::string corner;                       // over the row names
  std::vector<std::string> rows;            // names
  std::vector<std::string> columns;         // names
  std::vector<std::vector<double>> values;  // [rows][columns]; NaN: nothing is there
  double top = 1.0;                         // the value with the brightest shade; 0 has the darkest
};

/// Every value with two decimals; as one digit of tenths where the table would take more than three blocks. Ends with a line end.
std::string draw(const Grid& grid, const Terminal& terminal);

/// One line that explains the shades: "0.0 ... top". Empty without colour (the numbers are there).
std::string scale(const Grid& grid, const Terminal& terminal);

}  // namespace mha::app
