#include "core/ir/params.h"

#include <cstdio>

namespace shmap {

const Params no_params;

namespace {

class Printer final : public ParamVisitor {
 public:
  std::string text;
  void value(std::string_view name, std::int64_t v) override { begin(name) += std::to_string(v); }
  void value(std::string_view name, double v) override {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%g", v);
    begin(name) += buffer;
  }
  void value(std::string_view name, bool v) override { begin(name) += v ? "True" : "False"; }
  void value(std::string_view name, DType v) override { begin(name) += numpy_name(v); }
  void value(std::string_view name, std::string_view v) override { begin(name) += v; }
  void value(std::string_view name, const IntList& v) override {
    begin(name);
    list(v.size(), [&](std::size_t i) { return std::to_string(v[i]); });
  }
  void value(std::string_view name, const std::vector<std::string>& v) override {
    begin(name);
    list(v.size(), [&](std::size_t i) { return "'" + v[i] + "'"; });
  }
  void value(std::string_view name, const std::vector<std::pair<int, int>>& v) override {
    begin(name);
    list(v.size(), [&](std::size_t i) {
      return "(" + std::to_string(v[i].first) + ", " + std::to_string(v[i].second) + ")";
    });
  }
  void value(std::string_view name, const std::vector<std::vector<int>>& v) override {
    begin(name);
    list(v.size(), [&](std::size_t i) {
      Printer inner;
      inner.list(v[i].size(), [&](std::size_t k) { return std::to_string(v[i][k]); });
      return inner.text;
    });
  }

 private:
  std::string& begin(std::string_view name) {
    if (!text.empty()) text += ' ';
    text += name;
    return text += '=';
  }
  template <class F>
  void list(std::size_t n, F item) {
    text += '(';
    for (std::size_t i = 0; i < n; ++i) text += (i ? ", " : "") + item(i);
    text += n == 1 ? ",)" : ")";
  }
};

}  // namespace

std::string to_string(const Params& params) {
  Printer printer;
  params.visit(printer);
  return printer.text;
}

}  // namespace shmap
