// Parameter values and their texts.
#include "shmap/extend/params.h"

#include <charconv>

#include "core/base/format_float.h"
#include "core/base/nearest_name.h"
#include "core/extend/param_reader.h"
#include "core/ir/quoted.h"
#include "core/ir/trace.h"

namespace shmap {

namespace {

std::string quote(const std::string& text) { return shmap::quoted(text, '\''); }

template <class T, class F>
std::string tuple(const std::vector<T>& list, F item) {
  std::string text = "(";
  for (std::size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "") + item(list[i]);
  return text + (list.size() == 1 ? ",)" : ")");
}

// Reads a text of values from left to right.
class ValueText {
 public:
  explicit ValueText(std::string_view text) : text_(text) {}

  // Returns false, and reads nothing, where no integer follows.
  bool integer(std::int64_t* out) {
    const char* first = text_.data() + at_;
    const char* last = text_.data() + text_.size();
    const auto r = std::from_chars(first, last, *out);
    if (r.ec != std::errc()) return false;
    at_ = static_cast<std::size_t>(r.ptr - text_.data());
    return true;
  }
  bool quoted(std::string* out) {
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const char quote = text_[at_];
    out->clear();
    for (std::size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == quote) {
        at_ = i + 1;
        return true;
      }
      if (text_[i] == '\\') {
        if (++i == text_.size()) return false;
        *out += text_[i] == 'n' ? '\n' : text_[i];
      } else {
        *out += text_[i];
      }
    }
    return false;
  }
  // Reads "(a, b)", "(a,)" or "()", whose items `item` reads.
  template <class F>
  bool tuple_of(F item) {
    if (!skip('(')) return false;
    bool first = true;
    for (;;) {
      spaces();
      if (skip(')')) return true;
      if (!first && !skip(',')) return false;
      spaces();
      if (!first && skip(')')) return true;
      if (!item()) return false;
      first = false;
    }
  }
  bool at_end() const { return at_ == text_.size(); }

 private:
  bool skip(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void spaces() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }
  std::string_view text_;
  std::size_t at_ = 0;
};

bool read_float(std::string_view text, double* out) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), *out);
  return r.ec == std::errc() && r.ptr == text.data() + text.size() && !text.empty();
}

class Collector final : public ParamVisitor {
 public:
  extend::Params found;
  void value(std::string_view name, std::int64_t v) override { add(name, v); }
  void value(std::string_view name, double v) override { add(name, v); }
  void value(std::string_view name, bool v) override { add(name, v); }
  void value(std::string_view name, DType v) override { add(name, v); }
  void value(std::string_view name, std::string_view v) override { add(name, std::string(v)); }
  void value(std::string_view name, const IntList& v) override { add(name, v); }
  void value(std::string_view name, const std::vector<std::string>& v) override { add(name, v); }
  void value(std::string_view name, const std::vector<std::pair<int, int>>& v) override {
    add(name, v);
  }
  void value(std::string_view name, const std::vector<std::vector<int>>& v) override {
    add(name, v);
  }
  void value(std::string_view name, const Jaxpr& v) override {
    add(name, close_jaxpr(JaxprRef(&v), {}));
  }

 private:
  void add(std::string_view name, extend::ParamValue v) {
    found.insert_or_assign(std::string(name), std::move(v));
  }
};

}  // namespace

bool read_quoted(std::string_view text, std::string* out) {
  ValueText reader(text);
  return reader.quoted(out) && reader.at_end();
}

extend::ParamValue value_of_text(std::string_view text) {
  if (text == "True") return true;
  if (text == "False") return false;
  {
    ValueText reader(text);
    std::int64_t v = 0;
    if (reader.integer(&v) && reader.at_end()) return v;
  }
  if (double v = 0; read_float(text, &v)) return v;
  if (std::string v; read_quoted(text, &v)) return v;
  if (text.starts_with('(')) {
    {
      ValueText reader(text);
      std::vector<std::int64_t> list;
      std::int64_t v = 0;
      if (reader.tuple_of([&] { return reader.integer(&v) && (list.push_back(v), true); }) &&
          reader.at_end())
        return list;
    }
    {
      ValueText reader(text);
      std::vector<std::string> list;
      std::string v;
      if (reader.tuple_of([&] { return reader.quoted(&v) && (list.push_back(v), true); }) &&
          reader.at_end())
        return list;
    }
    ValueText reader(text);
    extend::ParamValue::Groups lists;
    const auto inner = [&] {
      lists.emplace_back();
      return reader.tuple_of([&] {
        std::int64_t v = 0;
        if (!reader.integer(&v) || !std::in_range<int>(v)) return false;
        lists.back().push_back(static_cast<int>(v));
        return true;
      });
    };
    if (reader.tuple_of(inner) && reader.at_end()) return lists;
  }
  for (int t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (text == numpy_name(dtype) || text == short_name(dtype)) return dtype;
  }
  return std::string(text);
}

extend::Params params_of(const Params& params) {
  if (const extend::Params* users = user_params(params)) return *users;
  Collector collector;
  params.visit(collector);
  return std::move(collector.found);
}

namespace extend {

std::string to_string(const ParamValue& value) {
  const auto integers = [](const auto& list) {
    return tuple(list, [](auto v) { return std::to_string(v); });
  };
  struct Visitor {
    decltype(integers)& list;
    std::string operator()(bool v) const { return v ? "True" : "False"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return shmap::detail::format_scalar(&v, DType::f64); }
    std::string operator()(DType v) const { return numpy_name(v); }
    std::string operator()(const std::string& v) const { return quote(v); }
    std::string operator()(const std::vector<std::int64_t>& v) const { return list(v); }
    std::string operator()(const std::vector<std::string>& v) const { return tuple(v, quote); }
    std::string operator()(const ParamValue::Pairs& v) const {
      return tuple(v, [](const std::pair<int, int>& p) {
        return "(" + std::to_string(p.first) + ", " + std::to_string(p.second) + ")";
      });
    }
    std::string operator()(const ParamValue::Groups& v) const {
      return tuple(v, [this](const std::vector<int>& g) { return list(g); });
    }
    std::string operator()(const ClosedJaxpr&) const { return "{ … }"; }
  };
  return std::visit(Visitor{integers}, value.variant());
}

std::string to_string(const Params& params) {
  std::string text;
  for (const auto& [name, value] : params)
    text += (text.empty() ? "" : " ") + name + "=" + to_string(value);
  return text;
}

void throw_param_type(std::string_view primitive, std::string_view name, const ParamValue& value,
                      const char* wanted, SourceLine source) {
  throw TypeError(std::string(primitive) + ": the parameter '" + std::string(name) + "' is " +
                  to_string(value) + ", and " + wanted + " is wanted" + at_line(source));
}

void throw_param_name(std::string_view primitive, std::string_view name, const Params& params,
                      SourceLine source) {
  std::vector<std::string> known;
  std::string list;
  for (const auto& [k, v] : params) {
    known.push_back(k);
    list += (list.empty() ? "" : ", ") + k;
  }
  throw ValueError(std::string(primitive) + ": there is no parameter '" + std::string(name) + "'" +
                   did_you_mean(name, known) +
                   (list.empty() ? ": it has none" : ": it has " + list) + at_line(source));
}

}  // namespace extend
}  // namespace shmap
