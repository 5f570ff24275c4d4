#include "curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace transformer {

namespace {

constexpr double kWidth = 720, kHeight = 416, kLeft = 64, kTop = 64, kRight = 24, kBottom = 56;
constexpr std::size_t kMostDots = 20;

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}

// 1, 2 or 5 times a power of ten: the largest step that gives at least four.
double round_step(double extent) {
  const double power = std::pow(10, std::floor(std::log10(extent / 4)));
  for (const double times : {5.0, 2.0})
    if (extent / (times * power) >= 4) return times * power;
  return power;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text,
                    const std::string& more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"" +
         more + ">" + escaped(text) + "</text>\n";
}

}  // namespace

std::string curve_svg(const std::string& title, const std::string& x_name,
                      const std::string& y_name, const std::vector<Line>& lines) {
  double x_most = 0, y_most = 0;
  for (const Line& line : lines) {
    for (const auto& [x, y] : line.points) {
      x_most = std::max(x_most, x);
      y_most = std::max(y_most, y);
    }
  }
  x_most = x_most > 0 ? x_most : 1;
  y_most = y_most > 0 ? y_most : 1;
  const double x_step = round_step(x_most), y_step = round_step(y_most);
  y_most =
      std::ceil(y_most / y_step * (1 - 1e-9)) * y_step;  // the highest rule is above all points
  const double inner_width = kWidth - kLeft - kRight, inner_height = kHeight - kTop - kBottom;
  const auto at_x = [&](double x) { return kLeft + x / x_most * inner_width; };
  const auto at_y = [&](double y) { return kTop + (1 - y / y_most) * inner_height; };

  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(kWidth) +
                    "\" height=\"" + number(kHeight) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  out += text_at(kWidth / 2, 24, "middle", title, " font-size=\"15\"");
  out += text_at(kLeft + inner_width / 2, kHeight - 14, "middle", x_name);
  out += text_at(16, kTop + inner_height / 2, "middle", y_name,
                 " transform=\"rotate(-90 16 " + number(kTop + inner_height / 2) + ")\"");
  const auto rule = [&](double x1, double y1, double x2, double y2) {
    out += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
           "\" y2=\"" + number(y2) + "\" stroke=\"#d8d8d8\"/>\n";
  };
  for (double x = 0; x <= x_most * (1 + 1e-9); x += x_step) {
    rule(at_x(x), kTop, at_x(x), kHeight - kBottom);
    out += text_at(at_x(x), kHeight - kBottom + 18, "middle", number(x));
  }
  for (double y = 0; y <= y_most * (1 + 1e-9); y += y_step) {
    rule(kLeft, at_y(y), kWidth - kRight, at_y(y));
    out += text_at(kLeft - 8, at_y(y) + 4, "end", number(y));
  }
  double legend = kLeft;
  for (const Line& line : lines) {
    const std::string stroke = " stroke=\"" + line.color + "\"";
    out += "<polyline fill=\"none\" stroke-width=\"1.8\"" + stroke + " points=\"";
    for (const auto& [x, y] : line.points) out += number(at_x(x)) + "," + number(at_y(y)) + " ";
    out += "\"/>\n";
    const bool dots = line.points.size() <= kMostDots;
    const auto dot = [&](double x, double y) {
      out += "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"3\" fill=\"" +
             line.color + "\"/>\n";
    };
    if (dots)
      for (const auto& [x, y] : line.points) dot(at_x(x), at_y(y));
    constexpr double kSample = 24, kAbove = kTop - 14, kCharacter = 7;
    out += "<line x1=\"" + number(legend) + "\" y1=\"" + number(kAbove) + "\" x2=\"" +
           number(legend + kSample) + "\" y2=\"" + number(kAbove) + "\" stroke-width=\"1.8\"" +
           stroke + "/>\n";
    if (dots) dot(legend + kSample / 2, kAbove);
    out += text_at(legend + kSample + 6, kAbove + 4, "start", line.name);
    legend += kSample + kCharacter * static_cast<double>(line.name.size()) + 24;
  }
  return out + "</svg>\n";
}

}  // namespace transformer
