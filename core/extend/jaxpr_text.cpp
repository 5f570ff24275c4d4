#include "core/extend/jaxpr_text.h"

#include <charconv>

#include "shmap/error.h"
#include "shmap/shape.h"

namespace shmap {

std::string to_string(TextPosition place) {
  return "line " + std::to_string(place.line) + ", column " + std::to_string(place.column);
}

namespace {

constexpr int kMostPrograms = 100;
constexpr std::size_t kMostAxes = 31;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || c == '+';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  JaxprText whole() {
    spaces();
    JaxprText jaxpr = program();
    spaces();
    if (at_ != text_.size()) fail("the end of the text after a whole program");
    return jaxpr;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void step() {
    // Columns count bytes, so that a column can be found in a hexadecimal dump too.
    if (text_[at_] == '\n') {
      ++place_.line;
      place_.column = 1;
    } else {
      ++place_.column;
    }
    ++at_;
  }
  void spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) step();
  }
  // Skips blanks within a line.
  void blanks() {
    while (at_ < text_.size() && is_space(text_[at_]) && text_[at_] != '\n') step();
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    std::string found;
    for (std::size_t i = at_; i < text_.size() && i < at_ + 12 && text_[i] != '\n'; ++i) {
      const auto c = static_cast<unsigned char>(text_[i]);
      if (c < 0x20 || c >= 0x7f) break;
      found += text_[i];
    }
    throw ValueError("parse_jaxpr: " + to_string(place_) + ": wanted " + wanted + ", and found " +
                     (at_ >= text_.size() ? "the end of the text"
                      : found.empty()     ? "a byte that is not printable ASCII"
                                          : "'" + found + "'"));
  }
  bool skip_if(std::string_view word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    for (std::size_t i = 0; i < word.size(); ++i) step();
    return true;
  }
  void skip(std::string_view word, const char* wanted) {
    if (!skip_if(word)) fail(wanted);
  }
  std::string word(const char* wanted) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) step();
    if (at_ == begin) fail(wanted);
    return std::string(text_.substr(begin, at_ - begin));
  }

  JaxprText program() {
    if (++depth_ > kMostPrograms) fail("programs nested no more than 100 deep");
    JaxprText jaxpr;
    jaxpr.place = place_;
    skip("{", "a program, which begins with '{ lambda'");
    spaces();
    skip("lambda", "'lambda'");
    spaces();
    while (peek() != '.') {
      if (!jaxpr.binders.empty()) {
        skip(",", "',' or ' .' after an argument");
        spaces();
      }
      jaxpr.binders.push_back(binder());
      spaces();
    }
    skip(".", "'.'");
    spaces();
    skip("let", "'let'");
    spaces();
    while (!at_results()) {
      jaxpr.eqns.push_back(eqn());
      spaces();
    }
    skip("in", "'in ('");
    spaces();
    skip("(", "'('");
    spaces();
    while (peek() != ')') {
      if (!jaxpr.outs.empty()) {
        skip(",", "',' or ')' after a result");
        spaces();
      }
      jaxpr.outs.push_back(atom());
      spaces();
    }
    skip(")", "')'");
    spaces();
    skip("}", "'}' at the end of the program");
    --depth_;
    return jaxpr;
  }

  // True if "in (" follows, which begins the results: a variable or an operation may also be called
  // `in`.
  bool at_results() const {
    if (text_.compare(at_, 2, "in") != 0) return false;
    std::size_t i = at_ + 2;
    while (i < text_.size() && is_space(text_[i])) ++i;
    return i < text_.size() && text_[i] == '(';
  }

  BinderText binder() {
    BinderText b;
    b.place = place_;
    b.name = word("a variable, as a:f32[3]");
    skip(":", "':' and the variable's type");
    b.type = type();
    return b;
  }

  TypeText type() {
    TypeText t;
    t.place = place_;
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '<' || text_[at_] == '>'))
      step();
    const std::string_view name = text_.substr(begin, at_ - begin);
    bool known = false;
    for (int i = 0; i < kDTypeCount && !known; ++i) {
      const auto dtype = static_cast<DType>(i);
      known = name == short_name(dtype) || name == numpy_name(dtype);
      if (known) t.dtype = dtype;
    }
    if (!known) {
      throw ValueError("parse_jaxpr: " + to_string(t.place) + ": '" +
                       std::string(name.substr(0, 40)) +
                       "' is not a dtype: wanted a type like f32[2,3]{i}");
    }
    skip("[", "'[' and the extents");
    while (peek() != ']') {
      if (!t.dims.empty()) skip(",", "',' or ']' after an extent");
      std::int64_t v = 0;
      const auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
      if (r.ec != std::errc() || v < 0) fail("an extent, 0 or more and below 2^63");
      while (text_.data() + at_ != r.ptr) step();
      if (t.dims.size() == static_cast<std::size_t>(kMaxRank)) fail("no more than 16 extents");
      t.dims.push_back(v);
    }
    skip("]", "']'");
    if (!skip_if("{")) return t;
    while (peek() != '}') {
      if (!t.axes.empty()) skip(",", "',' or '}' after a mesh axis");
      const std::size_t from = at_;
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}' && !is_space(text_[at_]))
        step();
      if (from == at_ || t.axes.size() == kMostAxes) fail("the name of a mesh axis, 31 at most");
      t.axes.emplace_back(text_.substr(from, at_ - from));
    }
    skip("}", "'}'");
    return t;
  }

  AtomText atom() {
    AtomText a;
    a.place = place_;
    a.text = word("a variable or a literal");
    if (skip_if(":")) a.type = type();
    return a;
  }

  EqnText eqn() {
    EqnText e;
    e.place = place_;
    for (;;) {
      const TextPosition place = place_;
      const std::string name = word("an equation, as b:f32[3] = sin a, or 'in ('");
      if (peek() != ':') {
        if (!e.results.empty()) fail("':' and a type: results are variables, as b:f32[3]");
        e.primitive = name;  // an equation without results
        break;
      }
      step();
      e.results.push_back({name, type(), place});
      spaces();
      if (!skip_if("=")) continue;
      spaces();
      e.primitive = word("the name of a primitive");
      break;
    }
    // autodidax has a space before the parameters, and they may begin a line.
    const std::size_t here = at_;
    const TextPosition there = place_;
    blanks();
    if (skip_if("[")) {
      spaces();
      while (!skip_if("]")) {
        e.params.push_back(param());
        spaces();
      }
    } else {
      at_ = here;
      place_ = there;
    }
    for (;;) {
      blanks();
      if (at_ >= text_.size() || peek() == '\n') return e;
      e.operands.push_back(atom());
    }
  }

  ParamValueText param() {
    ParamValueText p;
    p.place = place_;
    p.name = word("a parameter, as axes=(0, 1), or ']'");
    if (skip_if("[")) {  // branches[0]
      p.name += "[" + word("a number") + "]";
      skip("]", "']'");
    }
    skip("=", "'=' and the parameter's value");
    if (peek() == '{') {
      p.program = std::make_unique<JaxprText>(program());
      return p;
    }
    const std::size_t begin = at_;
    std::string open;  // brackets that are still to be closed
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (open.empty() && (is_space(c) || c == ']')) break;
      if (c == '\'' || c == '"') {
        step();
        while (at_ < text_.size() && text_[at_] != c) {
          if (text_[at_] == '\\' && at_ + 1 < text_.size()) step();
          step();
        }
        if (at_ >= text_.size()) fail("the end of a text in quotes");
      } else if (c == '(' || c == '[' || c == '{') {
        open += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) fail("the bracket that is open to be closed first");
        open.pop_back();
      }
      step();
    }
    if (!open.empty()) fail("a closing bracket");
    if (at_ == begin) fail("the parameter's value");
    p.text = std::string(text_.substr(begin, at_ - begin));
    return p;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  TextPosition place_;
  int depth_ = 0;
};

}  // namespace

JaxprText parse_jaxpr_text(std::string_view text) { return Parser(text).whole(); }

}  // namespace shmap
