// Curves of one number against another, side by side on one card, as the text of an SVG that follows the reader's light or dark setting.
// Called by `mha prune`; no file, no clock and no font is looked at.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace mha {

/// NaN: no point there. `least` and `most` are drawn as a band.
struct CurvePoint {
  double x = 0.0, y = 0.0;
  double least = std::numeric_limits<double>::quiet_NaN(), most = std::numeric_limits<double>::quiet_NaN();
};

struct Curve {
  std::string name = {};
  std::vector<CurvePoint> points = {};  // by rising x
  bool aside = false;                   // what the others are held against: drawn fainter
};

struct CurvePanel {
  std::string title = {};
  std::vector<Curve> curves = {};
  std::optional<double> rule = {};  // a border worth seeing, as a line across
};

struct CurvesPicture {
  std::string title = {}, description = {};
  std::string x = {};  // what x counts, from 0
  std::vector<CurvePanel> panels = {};
};

/// The scale of y is from the lowest number of a panel, but 0 where all are above, to 1 or the highest. Text from outside is escaped.
std::string curves_svg(const CurvesPicture& picture);

}  // namespace mha
