#include "core/ir/params.h"

#include <fmt/format.h>

#include "core/ir/quoted.h"

namespace shmap {

const Params no_params;

std::string quoted(std::string_view text, char quote) {
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + quote;
}

namespace {

class ParamPrinter final : public ParamVisitor {
 public:
  std::vector<ParamText> params;

  void value(std::string_view name, std::int64_t v) override { add(name, std::to_string(v)); }
  // Prints the fewest digits that are read back as the same number; for an f32, as the same f32.
  void value(std::string_view name, double v) override {
    const auto narrow = static_cast<float>(v);
    add(name, static_cast<double>(narrow) == v ? fmt::format("{}", narrow) : fmt::format("{}", v));
  }
  void value(std::string_view name, bool v) override { add(name, v ? "True" : "False"); }
  void value(std::string_view name, DType v) override { add(name, numpy_name(v)); }
  void value(std::string_view name, std::string_view v) override { add(name, std::string(v)); }
  void value(std::string_view name, const IntList& v) override {
    add(name, list(v.size(), [&](std::size_t i) { return std::to_string(v[i]); }));
  }
  void value(std::string_view name, const std::vector<std::string>& v) override {
    add(name, list(v.size(), [&](std::size_t i) { return shmap::quoted(v[i], '\''); }));
  }
  void value(std::string_view name, const std::vector<std::pair<int, int>>& v) override {
    add(name, list(v.size(), [&](std::size_t i) {
          return "(" + std::to_string(v[i].first) + ", " + std::to_string(v[i].second) + ")";
        }));
  }
  void value(std::string_view name, const std::vector<std::vector<int>>& v) override {
    add(name, list(v.size(), [&](std::size_t i) {
          return list(v[i].size(), [&](std::size_t k) { return std::to_string(v[i][k]); });
        }));
  }
  void value(std::string_view name, const Jaxpr& v) override {
    params.push_back({std::string(name), {}, &v});
  }

 private:
  void add(std::string_view name, std::string text) {
    params.push_back({std::string(name), std::move(text), nullptr});
  }
  template <class F>
  static std::string list(std::size_t n, F item) {
    std::string text = "(";
    for (std::size_t i = 0; i < n; ++i) text += (i ? ", " : "") + item(i);
    return text + (n == 1 ? ",)" : ")");
  }
};

class Keyer final : public ParamVisitor {
 public:
  explicit Keyer(std::string& key) : key_(key) {}
  void value(std::string_view name, std::int64_t v) override { begin(name), raw(v); }
  void value(std::string_view name, double v) override { begin(name), raw(v); }
  void value(std::string_view name, bool v) override { begin(name), raw(v); }
  void value(std::string_view name, DType v) override { begin(name), raw(v); }
  void value(std::string_view name, std::string_view v) override { begin(name), text(v); }
  void value(std::string_view name, const IntList& v) override {
    begin(name), raw(v.size());
    for (std::int64_t x : v) raw(x);
  }
  void value(std::string_view name, const std::vector<std::string>& v) override {
    begin(name), raw(v.size());
    for (const std::string& x : v) text(x);
  }
  void value(std::string_view name, const std::vector<std::pair<int, int>>& v) override {
    begin(name), raw(v.size());
    for (const auto& x : v) raw(x);
  }
  void value(std::string_view name, const std::vector<std::vector<int>>& v) override {
    begin(name), raw(v.size());
    for (const std::vector<int>& x : v) {
      raw(x.size());
      for (int i : x) raw(i);
    }
  }
  void value(std::string_view name, const Jaxpr& v) override { begin(name), raw(&v); }

 private:
  void begin(std::string_view name) { text(name); }
  void text(std::string_view v) {
    raw(v.size());
    key_ += v;
  }
  template <class T>
  void raw(const T& v) {
    key_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }

  std::string& key_;
};

}  // namespace

std::vector<ParamText> param_texts(const Params& params) {
  ParamPrinter printer;
  params.visit(printer);
  return std::move(printer.params);
}

std::string to_string(const Params& params) {
  std::string text;
  for (const ParamText& p : param_texts(params)) {
    text += (text.empty() ? "" : " ") + p.name + "=" + (p.jaxpr ? "{ … }" : p.text);
  }
  return text;
}

void append_key(const Params& params, std::string& key) {
  Keyer keyer(key);
  params.visit(keyer);
}

}  // namespace shmap
