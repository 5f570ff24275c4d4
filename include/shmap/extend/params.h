// The parameters of primitives as data: named values of a few types. Equations of a program return
// their parameters in this form; JaxprBuilder and Primitive take parameters in it.
//
//   extend::Params{{"axes", {0, 1}}, {"keepdims", true}, {"mode", "clip"}}
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "shmap/dtype.h"
#include "shmap/jaxpr.h"
#include "shmap/shape.h"

namespace shmap {

namespace extend {

// One string of a parameter that is a list of strings.
struct ParamWord {
  template <std::size_t n>
  ParamWord(const char (&word)[n]) : text(word) {}
  ParamWord(std::string word) : text(std::move(word)) {}
  std::string text;
};

class ParamValue {
 public:
  using Pairs = std::vector<std::pair<int, int>>;
  using Groups = std::vector<std::vector<int>>;
  using Variant =
      std::variant<bool, std::int64_t, double, DType, std::string, std::vector<std::int64_t>,
                   std::vector<std::string>, Pairs, Groups, ClosedJaxpr>;

  ParamValue(bool v) : value_(v) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) ParamValue(T v) : value_(static_cast<std::int64_t>(v)) {}
  template <std::floating_point T>
  ParamValue(T v) : value_(static_cast<double>(v)) {}
  ParamValue(DType v) : value_(v) {}
  ParamValue(const char* v) : value_(std::string(v)) {}
  ParamValue(std::string v) : value_(std::move(v)) {}
  ParamValue(std::string_view v) : value_(std::string(v)) {}
  ParamValue(std::initializer_list<Extent> v) {
    std::vector<std::int64_t> list;
    for (const Extent& e : v) list.push_back(e.value);
    value_ = std::move(list);
  }
  ParamValue(std::initializer_list<ParamWord> v) {
    std::vector<std::string> list;
    for (const ParamWord& w : v) list.push_back(w.text);
    value_ = std::move(list);
  }
  ParamValue(const IntList& v) : value_(std::vector<std::int64_t>(v.data(), v.data() + v.size())) {}
  ParamValue(const std::vector<int>& v) : value_(std::vector<std::int64_t>(v.begin(), v.end())) {}
  ParamValue(std::vector<std::int64_t> v) : value_(std::move(v)) {}
  ParamValue(std::vector<std::string> v) : value_(std::move(v)) {}
  ParamValue(Pairs v) : value_(std::move(v)) {}
  ParamValue(Groups v) : value_(std::move(v)) {}
  ParamValue(ClosedJaxpr v) : value_(std::move(v)) {}

  const Variant& variant() const { return value_; }
  // Reads the value as a T. T is bool; an integer type; double or float; DType; std::string; a
  // std::vector of integers, Shape or Dims; std::vector<std::string>; Pairs; Groups; or
  // ClosedJaxpr. Returns false where the value has another type or does not fit into T.
  template <class T>
  bool read(T& out) const;

  friend bool operator==(const ParamValue& a, const ParamValue& b) { return a.value_ == b.value_; }

 private:
  Variant value_;
};

using Param = ParamValue;
using Params = std::map<std::string, ParamValue, std::less<>>;

// As programs print it: 3, 0.5, True, float32, 'clip', (0, 1), ('i',), ((0, 1),); a program prints
// as "{ … }".
std::string to_string(const ParamValue& value);
std::string to_string(const Params& params);  // "axis=0 mode='clip'"

// The errors of get_param: a TypeError for a wrong type; a ValueError for a name that does not
// exist, which lists the names that do.
[[noreturn]] void throw_param_type(std::string_view primitive, std::string_view name,
                                   const ParamValue& value, const char* wanted, SourceLine source);
[[noreturn]] void throw_param_name(std::string_view primitive, std::string_view name,
                                   const Params& params, SourceLine source);

template <class T>
constexpr const char* param_type_name() {
  if constexpr (std::is_same_v<T, bool>) return "a bool";
  if constexpr (std::is_integral_v<T>) return "an integer (that fits into the type)";
  if constexpr (std::is_floating_point_v<T>) return "a float";
  if constexpr (std::is_same_v<T, DType>) return "a dtype";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a list of texts";
  if constexpr (std::is_same_v<T, ParamValue::Pairs>) return "a list of pairs";
  if constexpr (std::is_same_v<T, ParamValue::Groups>) return "a list of lists of integers";
  if constexpr (std::is_same_v<T, ClosedJaxpr>) return "a program";
  return "a list of integers";
}

// The parameter of the given name, read as a T (ParamValue::read). ValueError where there is no
// parameter of that name (the message lists the names); TypeError where the parameter cannot be
// read as a T.
template <class T>
T get_param(const Params& params, std::string_view name, std::string_view primitive = "the params",
            SourceLine source = SourceLine::current()) {
  const auto it = params.find(name);
  if (it == params.end()) throw_param_name(primitive, name, params, source);
  if constexpr (std::is_same_v<T, ClosedJaxpr>) {
    if (const auto* program = std::get_if<ClosedJaxpr>(&it->second.variant())) return *program;
  } else {
    T value{};
    if (it->second.read(value)) return value;
  }
  throw_param_type(primitive, name, it->second, param_type_name<T>(), source);
}

template <class T>
bool ParamValue::read(T& out) const {
  const auto list_of = [&](auto push) {
    const auto* list = std::get_if<std::vector<std::int64_t>>(&value_);
    if (!list) return false;
    for (std::int64_t v : *list)
      if (!push(v)) return false;
    return true;
  };
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const auto* v = std::get_if<std::int64_t>(&value_);
    if (!v || !std::in_range<T>(*v)) return false;
    out = static_cast<T>(*v);
    return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    const auto* v = std::get_if<double>(&value_);
    if (v) out = static_cast<T>(*v);
    return v != nullptr;
  } else if constexpr (std::is_base_of_v<IntList, T>) {
    const auto* list = std::get_if<std::vector<std::int64_t>>(&value_);
    if (!list || list->size() > static_cast<std::size_t>(kMaxRank)) return false;
    out = T(*list);
    return true;
  } else if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string> &&
                       !std::is_same_v<T, Pairs> && !std::is_same_v<T, Groups> &&
                       !std::is_same_v<T, std::vector<std::string>>) {
    using V = typename T::value_type;
    static_assert(std::is_integral_v<V>, "a parameter is read as one of ParamValue's types");
    out.clear();
    return list_of([&](std::int64_t v) {
      if (!std::in_range<V>(v)) return false;
      out.push_back(static_cast<V>(v));
      return true;
    });
  } else {
    // An empty list of integers can be read as an empty list of any element type.
    if constexpr (requires { out.clear(); } && !std::is_same_v<T, std::string>) {
      const auto* list = std::get_if<std::vector<std::int64_t>>(&value_);
      if (list && list->empty()) {
        out.clear();
        return true;
      }
    }
    const auto* v = std::get_if<T>(&value_);
    if (v) out = *v;
    return v != nullptr;
  }
}

}  // namespace extend
}  // namespace shmap
