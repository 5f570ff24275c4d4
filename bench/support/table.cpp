#include "bench/support/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace shmap::bench {

Table::Table(std::vector<std::string> header) { lines_.push_back(std::move(header)); }

void Table::add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }

std::string Table::text() const {
  std::vector<std::size_t> widths(lines_[0].size(), 0);
  for (std::size_t column = 0; column < widths.size(); ++column) {
    bool any = false;
    for (std::size_t line = 0; line < lines_.size(); ++line) {
      widths[column] = std::max(widths[column], lines_[line][column].size());
      any = any || (line > 0 && !lines_[line][column].empty());
    }
    if (!any) widths[column] = 0;
  }
  std::string out;
  for (const auto& line : lines_) {
    for (std::size_t column = 0; column < widths.size(); ++column) {
      if (widths[column] == 0) continue;
      std::string gap(widths[column] - line[column].size(), ' ');
      if (column > 0) out += "  ";
      out += column == 0 ? line[column] + gap : gap + line[column];
    }
    out += '\n';
  }
  return out;
}

std::string digits(double value) {
  int before = value >= 1 ? static_cast<int>(std::floor(std::log10(value))) + 1 : 1;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", std::clamp(3 - before, 0, 3), value);
  return text;
}

}  // namespace shmap::bench
