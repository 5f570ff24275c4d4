// PartitionSpec says how the dims of an array are split over mesh axes, for example P("i", none) or
// P(axes("j", "i")). Specs are trees of PartitionSpecs. A dim that is split over several axes lists
// them major to minor: P(axes("j", "i")) puts chunk j·|i| + i on device (i, j).
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "shmap/axes.h"
#include "shmap/mesh.h"

namespace shmap {

class PartitionSpec {
 public:
  struct Entry {  // the mesh axes over which one dim is split; `none` is no axes
    template <NameLike S>
    Entry(const S& name) : axes(detail::name_view(name, "P")) {}
    Entry(const Axes& names) : axes(names) {}
    Entry(none_t) {}
    template <std::same_as<std::nullptr_t> N>
    Entry(N) {
      static_assert(!sizeof(N*), "nullptr names no mesh axis: a dim that is not split is `none`");
    }
    Axes axes;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  PartitionSpec() = default;  // fully replicated, whatever the rank
  template <class... E>
  requires(
      sizeof...(E) > 0 &&
      (std::convertible_to<const E&, Entry> &&
       ...)) explicit PartitionSpec(const E&... entries)  // a dim over several axes: axes("j", "i")
      : entries_{Entry(entries)...} {}
  // P({"j", "i"}) and P({"j", "i"}, none) are P(axes("j", "i")) and P(axes("j", "i"), none).
  template <NameLike S, std::size_t N, class... E>
  requires(std::convertible_to<const E&, Entry>&&...) explicit PartitionSpec(const S (&first)[N],
                                                                             const E&... entries)
      : entries_{Entry(one_dim(std::span<const S>(first))), Entry(entries)...} {}
  // A template, so that braces do not convert to its parameter.
  template <std::same_as<std::vector<Entry>> List>
  explicit PartitionSpec(List entries) : entries_(std::move(entries)) {}
  std::size_t size() const { return entries_.size(); }
  const Entry& operator[](std::size_t i) const { return entries_[i]; }
  const std::vector<Entry>& entries() const { return entries_; }
  friend bool operator==(const PartitionSpec&, const PartitionSpec&) = default;
  friend std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec);

 private:
  template <NameLike S>
  static Axes one_dim(std::span<const S> names) {
    std::vector<std::string> axes;
    for (const S& name : names) axes.emplace_back(detail::name_view(name, "P"));
    return axes;
  }
  std::vector<Entry> entries_;
};
using P = PartitionSpec;
std::string to_string(const PartitionSpec& spec);  // "P('i', none)", "P(('j', 'i'))", "P()"

// A tree of PartitionSpecs: one P, a list (for a tuple, a vector, or the fields of a struct in
// order), or a map. A spec tree may be a prefix of the tree of values that it describes: a P in
// place of a subtree holds for all its leaves. `none` is not accepted as a leaf: otherwise a list
// of one spec in which P was forgotten, {{"i", none}}, would compile as a map.
class Specs {
 public:
  enum Kind { leaf, list, map };
  struct Field {
    template <NameLike K>
    Field(const K& k, const Specs& v);
    std::string key;
    std::vector<Specs> value;  // one element; a vector because Specs is incomplete here
  };
  Specs() = default;  // {}, a list without entries
  Specs(const PartitionSpec& spec) : kind_(leaf), spec_(spec) {}
  Specs(std::initializer_list<Specs> entries) : children_(entries) {}
  Specs(std::initializer_list<Field> fields) : kind_(map) {
    for (const Field& f : fields) add(f.key, f.value.front());
  }
  template <std::convertible_to<Specs> T>
  Specs(const std::vector<T>& entries) {
    for (const T& e : entries) children_.push_back(e);
  }
  template <std::convertible_to<Specs> T, std::size_t N>
  Specs(const std::array<T, N>& entries) {
    for (const T& e : entries) children_.push_back(e);
  }
  template <std::convertible_to<Specs> T>
  Specs(const std::map<std::string, T>& fields) : kind_(map) {
    for (const auto& [key, value] : fields) add(key, value);
  }
  template <std::convertible_to<Specs>... T>
  Specs(const std::tuple<T...>& entries) {
    std::apply([this](const T&... e) { (children_.push_back(e), ...); }, entries);
  }
  template <std::convertible_to<Specs> A, std::convertible_to<Specs> B>
  Specs(const std::pair<A, B>& entries) : children_{entries.first, entries.second} {}

  Kind kind() const { return kind_; }
  std::size_t size() const { return children_.size(); }
  const PartitionSpec& spec() const { return spec_; }  // of a leaf
  const Specs& operator[](std::size_t i) const { return children_[i]; }
  const std::string& key(std::size_t i) const { return keys_[i]; }  // of a map

 private:
  void add(const std::string& key, const Specs& value) {
    keys_.push_back(key);
    children_.push_back(value);
  }
  Kind kind_ = list;
  PartitionSpec spec_;
  std::vector<Specs> children_;
  std::vector<std::string> keys_;
};
template <NameLike K>
Specs::Field::Field(const K& k, const Specs& v) : key(detail::name_view(k, "Specs")), value{v} {}
std::string to_string(const Specs& specs);

class NamedSharding {
 public:
  // ValueError where the spec names an axis that the mesh does not have, or names one axis twice.
  NamedSharding(Mesh mesh, PartitionSpec spec, SourceLine source = SourceLine::current());
  const Mesh& mesh() const { return mesh_; }
  const PartitionSpec& spec() const { return spec_; }
  // Two shardings are equal where their meshes are equal and their specs split all dims in the same
  // way (P("i") and P("i", none) do).
  friend bool operator==(const NamedSharding& a, const NamedSharding& b);
  friend std::ostream& operator<<(std::ostream& out, const NamedSharding& sharding);

 private:
  Mesh mesh_;
  PartitionSpec spec_;
};
std::string to_string(const NamedSharding& sharding);

// Maps logical axis names to mesh axes: rules("batch", "time", none) returns a PartitionSpec.
class AxisRules {
 public:
  struct Value {
    template <NameLike S>
    Value(const S& name) : axes(name) {}
    Value(const Axes& names) : axes(names) {}
    Value(none_t) {}
    Axes axes;
  };
  struct Rule {
    template <NameLike S>
    Rule(const S& n, const Value& v) : name(detail::name_view(n, "AxisRules")), value(v) {}
    std::string name;
    Value value;
  };
  AxisRules(std::initializer_list<Rule> rules);
  // The first logical name of a call, together with the caller's line. A conversion makes it; user
  // code never names the type.
  struct First {
    template <std::convertible_to<PartitionSpec::Entry> E>
    First(const E& name, const char* file = __builtin_FILE(), int line = __builtin_LINE())
        : entry(name), source{file, line} {}
    PartitionSpec::Entry entry;
    SourceLine source;
  };
  // The spec for the logical names of an array's dims. Of several rules for a name the first
  // applies. ValueError where a name has no rule.
  PartitionSpec operator()() const { return PartitionSpec(); }
  template <class... E>
  requires(std::convertible_to<const E&, PartitionSpec::Entry>&&...) PartitionSpec operator()(
      const First& first, const E&... logical) const {
    return resolve({first.entry, PartitionSpec::Entry(logical)...}, first.source);
  }

 private:
  PartitionSpec resolve(const std::vector<PartitionSpec::Entry>& logical, SourceLine source) const;
  std::vector<Rule> rules_;
};

}  // namespace shmap
