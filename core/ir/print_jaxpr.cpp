// Jaxprs as text: in JAX's short style, and exactly as autodidax prints them (NumPy dtype names).
#include <algorithm>
#include <atomic>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/format_float.h"
#include "core/ir/jaxpr.h"
#include "core/ir/literal_type.h"
#include "core/ir/nesting.h"
#include "core/ir/node.h"
#include "core/ir/variable_name.h"

namespace shmap {

std::string variable_name(std::size_t index) {
  for (std::size_t length = 1;; ++length) {
    std::size_t count = 1;
    for (std::size_t i = 0; i < length; ++i) count *= 26 - i;
    if (index >= count) {
      index -= count;
      continue;
    }
    std::string letters = "abcdefghijklmnopqrstuvwxyz", name;
    for (std::size_t left = length; left > 0; --left) {
      count /= 26 - (length - left);
      name += letters[index / count];
      letters.erase(index / count, 1);
      index %= count;
    }
    return name;
  }
}

namespace {

// A block of lines. `a >> b` appends b, indented, to the end of a's last line.
using Lines = std::vector<std::string>;

std::size_t columns(const std::string& line) {  // of UTF-8 text
  std::size_t n = 0;
  for (char c : line) n += (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
  return n;
}

Lines indent(std::size_t by, Lines lines) {
  for (std::string& line : lines) line.insert(0, by, ' ');
  return lines;
}

Lines hang(Lines left, const Lines& right) {
  if (right.empty()) return left;
  if (left.empty()) return right;
  const std::size_t by = columns(left.back());
  left.back() += right.front();
  for (std::size_t i = 1; i < right.size(); ++i) left.push_back(std::string(by, ' ') + right[i]);
  return left;
}

void append(Lines& lines, Lines more) {
  for (std::string& line : more) lines.push_back(std::move(line));
}

std::string type_text(const ShapedArray& type, DTypeNames names) {
  std::string text = to_string(type);
  if (names == DTypeNames::numpy) {
    const std::string short_dtype = short_name(type.dtype());
    text = numpy_name(type.dtype()) + text.substr(short_dtype.size());
  }
  return text;
}

class JaxprPrinter {
 public:
  explicit JaxprPrinter(DTypeNames names) : names_(names) {}

  Lines jaxpr(const Jaxpr& j) {
    const PassVisit visit("printing", j);
    std::string head = "{ lambda ";
    for (std::size_t i = 0; i < j.binders.size(); ++i)
      head += (i ? ", " : "") + binder(*j.binders[i]);
    Lines lines{head + " ."};
    Lines eqns;
    for (const Eqn& e : j.eqns) append(eqns, eqn(e));
    append(lines, indent(2, hang({"let "}, eqns)));
    std::string outs = "in ( ";
    for (std::size_t i = 0; i < j.outs.size(); ++i) outs += (i ? ", " : "") + atom(j.outs[i]);
    append(lines, indent(2, {outs + " ) }"}));
    return lines;
  }

 private:
  const std::string& name(const Var& v) {
    auto [it, fresh] = known_.try_emplace(&v);
    if (fresh) {
      it->second = variable_name(known_.size() - 1);
      has_inf_ = has_inf_ || it->second == "inf";
    }
    return it->second;
  }
  std::string binder(const Var& v) { return name(v) + ":" + type_text(v.type, names_); }
  // A literal prints its dtype where the parser would infer another, or would read the text as the
  // variable `inf`.
  std::string atom(const Atom& a, std::span<const ShapedArray> beside = {},
                   std::span<const ShapedArray> results = {}) {
    if (!a.is_literal()) return name(*a.var());
    const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
    const DType dtype = literal.type.dtype();
    const std::string text = detail::format_scalar(literal.value, dtype);
    const bool clear =
        implied_dtype(text, beside, results) == dtype && !(has_inf_ && text == "inf");
    return clear || names_ == DTypeNames::numpy ? text : text + ":" + short_name(dtype) + "[]";
  }

  Lines eqn(const Eqn& e) {
    std::string operands;
    std::vector<ShapedArray> beside, given;
    if (std::any_of(e.in.begin(), e.in.end(), [](const Atom& a) { return a.is_literal(); })) {
      for (const Atom& a : e.in)
        if (!a.is_literal()) beside.push_back(a.type());
      for (const VarRef& v : e.out) given.push_back(v->type);
    }
    for (const Atom& a : e.in) operands += (operands.empty() ? "" : " ") + atom(a, beside, given);
    std::string results;
    for (const VarRef& v : e.out) results += (results.empty() ? "" : " ") + binder(*v);
    Lines left{results + (results.empty() ? "" : " = ") + e.primitive->name};
    std::string own_text;
    const bool has_own_text = e.params->print(&own_text);
    const std::vector<ParamText> texts =
        has_own_text ? std::vector<ParamText>() : param_texts(*e.params);
    Lines params;
    if (!own_text.empty()) params.push_back(own_text);
    bool nested = false;
    for (const ParamText& p : texts) nested = nested || p.jaxpr != nullptr;
    for (const ParamText& p : texts) {
      if (p.jaxpr) {
        append(params, hang({p.name + "="}, JaxprPrinter(names_).jaxpr(*p.jaxpr)));
      } else if (names_ == DTypeNames::jax && !nested && !params.empty()) {
        params.back() += " " + p.name + "=" + p.text;
      } else {
        params.push_back(p.name + "=" + p.text);
      }
    }
    if (names_ == DTypeNames::numpy) {
      if (params.empty()) return hang(hang(left, {" "}), {operands});
      return hang(hang(hang(hang(left, {" [ "}), params), {" ] "}), {operands});
    }
    if (!params.empty()) left = hang(hang(hang(left, {"["}), params), {"]"});
    return operands.empty() ? left : hang(left, {" " + operands});
  }

  DTypeNames names_;
  VarMap<std::string> known_;
  bool has_inf_ = false;  // a variable of that name
};

std::string types_text(const std::vector<ShapedArray>& types, DTypeNames names) {
  std::string text = "(";
  for (std::size_t i = 0; i < types.size(); ++i)
    text += (i ? ", " : "") + type_text(types[i], names);
  return text + ")";
}

}  // namespace

std::string to_string(const Jaxpr& jaxpr, PrintOptions options) {
  std::string text;
  for (const std::string& line : JaxprPrinter(options.dtype_names).jaxpr(jaxpr))
    text += (text.empty() ? "" : "\n") + line;
  return text;
}

std::string to_string(const ClosedJaxpr& jaxpr, PrintOptions options) {
  return to_string(*jaxpr.impl().jaxpr, options);
}
std::ostream& operator<<(std::ostream& out, const ClosedJaxpr& jaxpr) {
  return out << to_string(jaxpr);
}

std::string to_string(const JaxprType& type, PrintOptions options) {
  return types_text(type.in_types, options.dtype_names) + " -> " +
         types_text(type.out_types, options.dtype_names);
}
std::ostream& operator<<(std::ostream& out, const JaxprType& type) {
  return out << to_string(type);
}

}  // namespace shmap
