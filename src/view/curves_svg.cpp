// A panel per number: a frame with ticks, a band for what was measured several times, a line for each curve, names beneath.
#include <algorithm>
#include <cmath>

#include "mha/view/curves.h"
#include "view/svg.h"

namespace mha::view {
namespace {

constexpr double kWide = 400;  // of a panel's frame
constexpr double kHigh = 260;
constexpr double kLeft = 46;  // for the numbers of y
constexpr double kApart = 34;

/// From numbers to places within a frame.
struct Scale {
  double x_most = 1.0;
  double y_least = 0.0, y_most = 1.0;
  double left = 0.0, top = 0.0;

  double x(double value) const { return left + kWide * value / x_most; }
  double y(double value) const { return top + kHigh * (y_most - value) / (y_most - y_least); }
};

Scale scale_of(const CurvePanel& panel, double left, double top) {
  Scale scale{.left = left, .top = top};
  for (const Curve& curve : panel.curves) {
    for (const CurvePoint& point : curve.points) {
      scale.x_most = std::max(scale.x_most, point.x);
      for (const double y : {point.y, point.least, point.most}) {
        if (!std::isfinite(y)) continue;
        scale.y_least = std::min(scale.y_least, y);
        scale.y_most = std::max(scale.y_most, y);
      }
    }
  }
  if (scale.y_least < 0.0) scale.y_least = std::floor(scale.y_least * 5.0) / 5.0;  // a tick
  return scale;
}

void line(Svg& svg, const char* classes, double x1, double y1, double x2, double y2) {
  svg.raw(std::string("<line class=\"") + classes + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
          "\" y2=\"" + number(y2) + "\"/>\n");
}

void draw_frame(Svg& svg, const CurvePanel& panel, const Scale& scale, const std::string& x_name) {
  svg.text(scale.left, scale.top - 14, panel.title, {.classes = "ink strong", .size = 14});
  for (double y = scale.y_least; y <= scale.y_most + 1e-9; y += 0.2) {
    line(svg, "rule", scale.left, scale.y(y), scale.left + kWide, scale.y(y));
    svg.text(scale.left - 8, scale.y(y) + 4, fixed(std::abs(y) < 1e-9 ? 0.0 : y, 2),
             {.classes = "muted number", .size = 11, .anchor = "end"});
  }
  const double step = scale.x_most <= 12 ? 1 : std::max(1.0, std::round(scale.x_most / 6.0));
  for (double x = 0.0; x <= scale.x_most + 1e-9; x += step) {
    svg.text(scale.x(x), scale.top + kHigh + 17, number(x), {.classes = "muted number", .size = 11, .anchor = "middle"});
  }
  svg.text(scale.left + kWide / 2, scale.top + kHigh + 36, x_name, {.classes = "muted", .size = 12, .anchor = "middle"});
  if (!panel.rule) return;
  line(svg, "mark\" stroke-dasharray=\"4 4", scale.left, scale.y(*panel.rule), scale.left + kWide, scale.y(*panel.rule));
  svg.text(scale.left + kWide, scale.y(*panel.rule) + 14, number(*panel.rule), {.classes = "marked number", .size = 11, .anchor = "end"});
}

std::string place(const Scale& scale, double x, double y) { return number(scale.x(x)) + ' ' + number(scale.y(y)); }

void draw_curve(Svg& svg, const Curve& curve, const Scale& scale) {
  std::string band;
  std::string back;
  std::string path;
  for (const CurvePoint& point : curve.points) {
    if (std::isfinite(point.y)) path += (path.empty() ? "M" : "L") + place(scale, point.x, point.y);
    if (!std::isfinite(point.least) || !std::isfinite(point.most)) continue;
    band += (band.empty() ? "M" : "L") + place(scale, point.x, point.most);
    back = "L" + place(scale, point.x, point.least) + back;
  }
  if (!band.empty()) svg.raw("<path class=\"head\" fill-opacity=\"0.25\" d=\"" + band + back + "Z\"/>\n");
  if (path.empty()) return;
  svg.raw(std::string("<path class=\"") + (curve.aside ? "arc" : "mark") + "\" stroke-width=\"" + (curve.aside ? "1.5" : "2.5") +
          "\" stroke-linejoin=\"round\" d=\"" + path + "\"/>\n");
}

void draw_names(Svg& svg, const CurvePanel& panel, double left, double y) {
  for (const Curve& curve : panel.curves) {
    line(svg, curve.aside ? "arc\" stroke-width=\"1.5" : "mark\" stroke-width=\"2.5", left, y - 4, left + 22, y - 4);
    svg.fitted_text(left + 30, y, curve.name, {.classes = "ink", .size = 12}, 16);
    left += 30 + 12 * std::min(em_width(curve.name), 16.0) + 24;
  }
}

}  // namespace
}  // namespace mha::view

namespace mha {

std::string curves_svg(const CurvesPicture& picture) {
  using namespace view;
  Svg svg;
  const auto panels = static_cast<double>(std::max<std::size_t>(picture.panels.size(), 1));
  const double width = 2 * kMargin + panels * (kLeft + kWide) + (panels - 1) * kApart;
  svg.text(kMargin, kMargin + 12, picture.title, {.classes = "ink strong", .size = 17});
  const double told = svg.paragraph(kMargin, kMargin + 36, width - 2 * kMargin, picture.description, {.classes = "muted", .size = 12});
  const double top = told + 26;
  double left = kMargin + kLeft;
  for (const CurvePanel& panel : picture.panels) {
    const Scale scale = scale_of(panel, left, top);
    draw_frame(svg, panel, scale, picture.x);
    for (const bool aside : {true, false}) {
      for (const Curve& curve : panel.curves) {
        if (curve.aside == aside) draw_curve(svg, curve, scale);
      }
    }
    draw_names(svg, panel, left, top + kHigh + 62);
    left += kWide + kLeft + kApart;
  }
  return svg.card(width, top + kHigh + 62 + kMargin, picture.title, picture.description);
}

}  // namespace mha
