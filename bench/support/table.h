// A table of text with aligned columns.
#pragma once
#include <string>
#include <vector>

namespace shmap::bench {

class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void add(std::vector<std::string> cells);  // as many cells as the header has
  // The first column is flush left, the others flush right; columns without any cell are left out.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> lines_;
};

// A positive number with three significant digits, or more before the point: 0.123, 12.3, 1234.
std::string digits(double value);

}  // namespace shmap::bench
