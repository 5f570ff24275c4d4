// A learning curve as an SVG picture.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace transformer {

struct Line {
  std::string name, color;                        // any that SVG knows: "#3060c0"
  std::vector<std::pair<double, double>> points;  // x not descending
};

// Draws the lines over one pair of axes, which start at 0 and have numbers at round steps, with the
// lines' names above them. If a line has few points, they have dots.
std::string curve_svg(const std::string& title, const std::string& x_name,
                      const std::string& y_name, const std::vector<Line>& lines);

}  // namespace transformer
