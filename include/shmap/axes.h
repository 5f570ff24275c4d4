// Axes: a list of mesh axis names, major first, as calls write it: "i", axes("j", "i"), {"j", "i"},
// a std::string, or a vector of strings.
#pragma once
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shmap/error.h"

namespace shmap {

struct none_t {};
inline constexpr none_t none;  // in a spec: the dim is not split; in an index: a new dim

// Names are taken by templates, never by std::string or std::string_view parameters: {{"i", "j"}}
// would otherwise bind to the iterator-pair constructor of these classes, compile, and be undefined
// behaviour.
template <class S>
concept NameLike = std::convertible_to<const S&, std::string_view> &&
    !std::same_as<std::remove_cv_t<S>, std::nullptr_t>;

namespace detail {
// what: the function or class that was given the name, or ""; source: the caller's line, if known.
[[noreturn]] void throw_null_name(const char* what, SourceLine source);
// The name as a string_view. ValueError for a null pointer.
template <NameLike S>
constexpr std::string_view name_view(const S& name, const char* what, SourceLine source = {}) {
  if constexpr (std::is_pointer_v<S>) {
    if (!name) throw_null_name(what, source);
  }
  return name;
}
}  // namespace detail

// One axis name. A name converts to AxisName or Axes implicitly, on the caller's line: `source` is
// that line, which the error about a null pointer shows.
struct AxisName {
  template <NameLike S>
  constexpr AxisName(const S& name, SourceLine source = SourceLine::current())
      : view(detail::name_view(name, "", source)) {}
  std::string_view view;
};

class Axes {
 public:
  Axes() = default;
  template <NameLike S>
  Axes(const S& name, SourceLine source = SourceLine::current()) {
    names_.emplace_back(detail::name_view(name, "", source));
  }
  Axes(std::initializer_list<AxisName> names) {
    names_.reserve(names.size());
    for (const AxisName& n : names) names_.emplace_back(n.view);
  }
  Axes(const std::vector<std::string>& names) : names_(names) {}
  std::size_t size() const { return names_.size(); }
  bool empty() const { return names_.empty(); }
  const std::string& operator[](std::size_t i) const { return names_[i]; }
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }
  const std::vector<std::string>& names() const { return names_; }
  friend bool operator==(const Axes&, const Axes&) = default;

 private:
  std::vector<std::string> names_;
};

template <NameLike... S>
Axes axes(const S&... names) {
  return Axes({AxisName(detail::name_view(names, "axes"))...});
}

std::string to_string(const Axes& axes);  // "'i'" for one, "('i', 'j')" for several, "()" for none

}  // namespace shmap
