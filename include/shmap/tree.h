// Trees are the arguments and results of mapped and traced functions (JAX's pytrees). Leaves are
// Arrays. Containers are std::vector, tuple, pair, array, optional and map<std::string, …>, and any
// aggregate struct of these; structs need no registration. A host scalar in an argument is a leaf,
// and the function gets it as an Array. In a struct, members that hold only host values (arithmetic
// types, enums, strings, and containers of these) are static: the function gets them unchanged, and
// they are part of the key of jit's cache. A struct does not compile as a tree if it has a base
// class, a member that is a C array, or a member that mixes arrays and host values in one
// container.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/axes.h"
#include "shmap/shaped_array.h"

namespace shmap {

// The type of an argument inside the traced function: T with every leaf replaced by Array.
template <class T>
struct arg {
  using type = T;
};
template <Scalar T>
struct arg<T> {
  using type = Array;
};
template <>
struct arg<float16> {
  using type = Array;
};
template <>
struct arg<bfloat16> {
  using type = Array;
};
template <>
struct arg<ShapedArray> {
  using type = Array;
};
template <class T>
using arg_t = typename arg<std::decay_t<T>>::type;
template <class T>
struct arg<std::vector<T>> {
  using type = std::vector<arg_t<T>>;
};
template <class T>
struct arg<std::optional<T>> {
  using type = std::optional<arg_t<T>>;
};
template <class T, std::size_t N>
struct arg<std::array<T, N>> {
  using type = std::array<arg_t<T>, N>;
};
template <class T>
struct arg<std::map<std::string, T>> {
  using type = std::map<std::string, arg_t<T>>;
};
template <class... T>
struct arg<std::tuple<T...>> {
  using type = std::tuple<arg_t<T>...>;
};
template <class A, class B>
struct arg<std::pair<A, B>> {
  using type = std::pair<arg_t<A>, arg_t<B>>;
};

namespace detail {

// ---- the fields of an aggregate, found by brace initialisation and structured bindings
struct AnyField {
  template <class T>
  operator T() const;
};
// Converts to base classes of T only: a base class would take the first initialiser and be counted
// as a field.
template <class T>
struct AnyBaseOf {
  template <class B>
  requires(std::is_base_of_v<B, T> && !std::same_as<B, T>) operator B() const;
};
template <std::size_t>
constexpr AnyField field() {
  return {};
}
// Whether T{field, field, …} compiles with that many fields.
template <class T, class Fields>
constexpr bool takes = false;
template <class T, std::size_t... Is>
constexpr bool takes<T, std::index_sequence<Is...>> = requires {
  T{field<Is>()...};
};
inline constexpr std::size_t kMaxFields = 24;
inline constexpr std::size_t kUncountable = ~std::size_t{0};
// The largest number of initialisers that T takes: its number of fields. Fewer initialisers may not
// compile, because a member without a default value needs one.
template <class T, std::size_t n = 0, bool taken = false>
constexpr std::size_t field_count() {
  if constexpr (takes<T, std::make_index_sequence<n>>) {
    return field_count<T, n + 1, true>();
  } else if constexpr (taken) {
    return n - 1;
  } else if constexpr (n > kMaxFields) {
    return kUncountable;
  } else {
    return field_count<T, n + 1, false>();
  }
}
template <class T>
constexpr bool has_base() {
  if constexpr (std::is_empty_v<T>) {
    return false;
  } else {
    return requires { T{AnyBaseOf<T>{}}; };
  }
}
// Whether T{fields…, {}, fields…} compiles with these numbers of fields.
template <class T, class Before, class After>
constexpr bool takes_braces = false;
template <class T, std::size_t... Is, std::size_t... Js>
constexpr bool takes_braces<T, std::index_sequence<Is...>, std::index_sequence<Js...>> = requires {
  T{field<Is>()..., {}, field<Js>()...};
};
// Detects a C array member: initialisers without braces initialise the elements of the array one by
// one, while {} initialises the whole array, so that fewer initialisers can follow {} than follow a
// plain member. (An array of one element is not detected.)
template <class T>
constexpr bool has_c_array() {
  constexpr std::size_t n = field_count<T>();
  return []<std::size_t... K>(std::index_sequence<K...>) {
    return ((takes_braces<T, std::make_index_sequence<K>, std::index_sequence<>> &&
             !takes_braces<T, std::make_index_sequence<K>, std::make_index_sequence<n - K - 1>>) ||
            ...);
  }
  (std::make_index_sequence<n>{});
}

// Calls f with a tuple of references to the fields.
template <class T, class F>
constexpr decltype(auto) with_fields(T& t, F&& f) {
  constexpr std::size_t n = field_count<std::remove_const_t<T>>();
#define SHMAP_FIELDS(count, ...)     \
  else if constexpr (n == count) {   \
    auto& [__VA_ARGS__] = t;         \
    return f(std::tie(__VA_ARGS__)); \
  }
  if constexpr (n == 0) return f(std::tuple<>{});
  SHMAP_FIELDS(1, a)
  SHMAP_FIELDS(2, a, b)
  SHMAP_FIELDS(3, a, b, c)
  SHMAP_FIELDS(4, a, b, c, d)
  SHMAP_FIELDS(5, a, b, c, d, e)
  SHMAP_FIELDS(6, a, b, c, d, e, g)
  SHMAP_FIELDS(7, a, b, c, d, e, g, h)
  SHMAP_FIELDS(8, a, b, c, d, e, g, h, i)
  SHMAP_FIELDS(9, a, b, c, d, e, g, h, i, j)
  SHMAP_FIELDS(10, a, b, c, d, e, g, h, i, j, k)
  SHMAP_FIELDS(11, a, b, c, d, e, g, h, i, j, k, l)
  SHMAP_FIELDS(12, a, b, c, d, e, g, h, i, j, k, l, m)
  SHMAP_FIELDS(13, a, b, c, d, e, g, h, i, j, k, l, m, o)
  SHMAP_FIELDS(14, a, b, c, d, e, g, h, i, j, k, l, m, o, p)
  SHMAP_FIELDS(15, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q)
  SHMAP_FIELDS(16, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r)
  SHMAP_FIELDS(17, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s)
  SHMAP_FIELDS(18, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, u)
  SHMAP_FIELDS(19, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, u, v)
  SHMAP_FIELDS(20, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, u, v, w)
  SHMAP_FIELDS(21, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, u, v, w, x)
  SHMAP_FIELDS(22, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, u, v, w, x, y)
  SHMAP_FIELDS(23, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, u, v, w, x, y, z)
  SHMAP_FIELDS(24, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, u, v, w, x, y, z, z2)
#undef SHMAP_FIELDS
}

template <class T>
concept TreeLeaf = std::same_as<T, Array> || std::same_as<T, ShapedArray> || Scalar<T> ||
    std::same_as<T, float16> || std::same_as<T, bfloat16>;
// Types of struct members that hold only host values.
template <class T>
inline constexpr bool is_static = Scalar<T> || std::is_enum_v<T> || std::same_as<T, std::string> ||
                                  std::same_as<T, float16> || std::same_as<T, bfloat16>;
template <class T>
inline constexpr bool is_static<std::vector<T>> = is_static<T>;
template <class T>
inline constexpr bool is_static<std::optional<T>> = is_static<T>;
template <class T, std::size_t N>
inline constexpr bool is_static<std::array<T, N>> = is_static<T>;
template <class T>
inline constexpr bool is_static<std::map<std::string, T>> = is_static<T>;
template <class... T>
inline constexpr bool is_static<std::tuple<T...>> = (is_static<T> && ...);
template <class A, class B>
inline constexpr bool is_static<std::pair<A, B>> = is_static<A>&& is_static<B>;
template <class T>
concept StaticMember = is_static<T>;

template <class T>
struct IsTree;
// A struct's member must have the same type inside the traced function. A container that mixes
// arrays and host values would not: the host values would become Arrays.
template <class T>
constexpr bool fits_struct() {
  if constexpr (is_static<T>) {
    return true;
  } else if constexpr (!IsTree<T>::value) {
    return false;
  } else {
    static_assert(std::same_as<arg_t<T>, T>,
                  "a struct's member mixes arrays with host values or abstract types in one "
                  "container: make the container a struct, or its elements Arrays");
    return std::same_as<arg_t<T>, T>;
  }
}
template <class Tuple>
struct AllFields;
template <class... T>
struct AllFields<std::tuple<T...>> {
  static constexpr bool value = (fits_struct<std::remove_cvref_t<T>>() && ...);
};
struct FieldTypes {
  template <class Tuple>
  AllFields<Tuple> operator()(const Tuple&) const {
    return {};
  }
};
template <class T>
struct IsTree {
  static constexpr bool test() {
    if constexpr (std::is_array_v<T>) {
      static_assert(
          !sizeof(T),
          "a C array cannot be an argument, a result or a part of one: make it a std::array");
      return false;
    } else if constexpr (!std::is_aggregate_v<T> || !std::is_class_v<T>) {
      return false;
    } else if constexpr (field_count<T>() == kUncountable) {
      return false;  // a member that nothing converts to
    } else if constexpr (has_base<T>()) {
      static_assert(!sizeof(T),
                    "a struct with a base class cannot be an argument, a result or a part of one: "
                    "make the base a member");
      return false;
    } else if constexpr (has_c_array<T>()) {
      static_assert(!sizeof(T),
                    "a struct with a C array member cannot be an argument, a result or a part of "
                    "one: make the member a std::array");
      return false;
    } else if constexpr (field_count<T>() > kMaxFields) {
      static_assert(!sizeof(T),
                    "a struct of more than 24 members cannot be an argument, a result or a part of "
                    "one: put some of the members into a struct that is a member");
      return false;
    } else {
      return decltype(with_fields(std::declval<const T&>(), FieldTypes{}))::value;
    }
  }
  static constexpr bool value = test();
};
template <TreeLeaf T>
struct IsTree<T> : std::true_type {};
template <>
struct IsTree<none_t> : std::true_type {};
template <class T>
struct IsTree<std::vector<T>> : IsTree<T> {};
template <class T>
struct IsTree<std::optional<T>> : IsTree<T> {};
template <class T, std::size_t N>
struct IsTree<std::array<T, N>> : IsTree<T> {};
template <class T>
struct IsTree<std::map<std::string, T>> : IsTree<T> {};
template <class... T>
struct IsTree<std::tuple<T...>> {
  static constexpr bool value = (IsTree<T>::value && ...);
};
template <class A, class B>
struct IsTree<std::pair<A, B>> {
  static constexpr bool value = IsTree<A>::value && IsTree<B>::value;
};

// ---- flattening
// The structure of a tree as data: specs are matched against it, and the paths in error messages
// are made from it.
struct TreeNode {
  enum Kind : std::uint8_t { leaf, list, map, fields, absent } kind = leaf;
  std::uint32_t static_members = 0;  // of a struct: bit i is set where member i is static
  std::vector<TreeNode> children;
  std::vector<std::string> keys;  // of a map
};
struct FlatTree {
  std::vector<Array> leaves;
  TreeNode node;
  // The part of the structure that the tree's C++ type does not determine: sizes, map keys, which
  // optionals have a value, values of static members. Two trees of one type with equal keys differ
  // only in their leaves.
  std::string key;
};
// Appends a static value as bytes, sizes before elements, so that different values give different
// keys.
template <class T>
void append_key(FlatTree& flat, const T& value) {
  if constexpr (std::same_as<T, std::string>) {
    append_key(flat, value.size());
    flat.key += value;
  } else if constexpr (requires { value.has_value(); }) {
    append_key(flat, value.has_value());
    if (value.has_value()) append_key(flat, *value);
  } else if constexpr (requires { value.begin(); }) {
    append_key(flat, value.size());
    for (const typename T::value_type& element : value) append_key(flat, element);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... element) { (append_key(flat, element), ...); }, value);
  } else {
    flat.key.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

Array leaf_of_type(const ShapedArray& type);  // a leaf with a type and no value, for make_jaxpr

// A child of a tree that was passed as T&&: an rvalue where the tree is an rvalue.
template <class T, class Part>
constexpr decltype(auto) forward_part(Part& part) {
  if constexpr (std::is_lvalue_reference_v<T>) {
    return (part);
  } else {
    return std::move(part);
  }
}

template <class T>
void flatten(T&& tree, FlatTree& flat, TreeNode& node) {
  using U = std::decay_t<T>;
  if constexpr (std::same_as<U, ShapedArray>) {
    flat.leaves.push_back(leaf_of_type(tree));
  } else if constexpr (TreeLeaf<U>) {
    flat.leaves.emplace_back(std::forward<T>(tree));
  } else if constexpr (std::same_as<U, none_t>) {
    node.kind = TreeNode::absent;
  } else if constexpr (requires { typename U::mapped_type; }) {
    node.kind = TreeNode::map;
    append_key(flat, tree.size());
    for (auto& [key, value] : tree) {
      append_key(flat, key);
      node.keys.push_back(key);
      flatten(forward_part<T>(value), flat, node.children.emplace_back());
    }
  } else if constexpr (requires { tree.has_value(); }) {
    append_key(flat, tree.has_value());
    if (tree.has_value()) {
      flatten(*std::forward<T>(tree), flat, node);
    } else {
      node.kind = TreeNode::absent;
    }
  } else if constexpr (requires { tree.begin(); }) {
    node.kind = TreeNode::list;
    append_key(flat, tree.size());
    for (auto& element : tree)
      flatten(forward_part<T>(element), flat, node.children.emplace_back());
  } else if constexpr (requires { std::tuple_size<U>::value; }) {
    node.kind = TreeNode::list;
    std::apply(
        [&](auto&... element) {
          (flatten(forward_part<T>(element), flat, node.children.emplace_back()), ...);
        },
        tree);
  } else {
    node.kind = TreeNode::fields;
    with_fields(tree, [&](auto&& members) {
      std::apply(
          [&](auto&... member) {
            [[maybe_unused]] std::uint32_t bit = 1;
            const auto one = [&](auto& m) {
              using M = std::remove_cvref_t<decltype(m)>;
              // A static member is part of the key, and not of the tree.
              if constexpr (StaticMember<M>) {
                append_key(flat, m);
                node.static_members |= bit;
              } else {
                flatten(forward_part<T>(m), flat, node.children.emplace_back());
              }
              bit <<= 1;
            };
            (one(member), ...);
          },
          members);
      return 0;
    });
  }
}

// ---- rebuilding: a tree of the structure of `like`, whose leaves are taken from `leaves` in order
template <class T>
arg_t<T> rebuild(const T& like, std::vector<Array>& leaves, std::size_t& next) {
  if constexpr (TreeLeaf<T>) {
    return std::move(leaves[next++]);
  } else if constexpr (std::same_as<T, none_t>) {
    return like;
  } else if constexpr (requires { typename T::mapped_type; }) {
    arg_t<T> out;
    for (const auto& [key, value] : like) out.emplace(key, rebuild(value, leaves, next));
    return out;
  } else if constexpr (requires { like.has_value(); }) {
    arg_t<T> out;
    if (like.has_value()) out.emplace(rebuild(*like, leaves, next));
    return out;
  } else if constexpr (requires(T container) { container.push_back(*container.begin()); }) {
    arg_t<T> out;
    out.reserve(like.size());
    if constexpr (std::same_as<T, std::vector<bool>>) {
      for (bool b : like) out.push_back(rebuild(b, leaves, next));
    } else {
      for (const auto& element : like) out.push_back(rebuild(element, leaves, next));
    }
    return out;
  } else if constexpr (requires { like.begin(); }) {
    arg_t<T> out;
    for (std::size_t i = 0; i < like.size(); ++i) out[i] = rebuild(like[i], leaves, next);
    return out;
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    // A braced list is evaluated from left to right.
    return std::apply(
        [&](const auto&... element) { return arg_t<T>{rebuild(element, leaves, next)...}; }, like);
  } else {
    T out = like;
    with_fields(out, [&](auto&& members) {
      std::apply(
          [&](auto&... member) {
            const auto one = [&](auto& m) {
              using M = std::remove_cvref_t<decltype(m)>;
              if constexpr (!StaticMember<M>) m = rebuild(m, leaves, next);
            };
            (one(member), ...);
          },
          members);
      return 0;
    });
    return out;
  }
}

// The tree with every leaf empty: rebuild() makes trees of this structure from it.
template <class T>
arg_t<T> structure_of(const T& tree) {
  FlatTree flat;
  flatten(tree, flat, flat.node);
  std::vector<Array> empty(flat.leaves.size());
  std::size_t next = 0;
  return rebuild(tree, empty, next);
}

}  // namespace detail

template <class T>
concept Tree = detail::IsTree<std::decay_t<T>>::value;
template <class T>
concept ArrayTree = Tree<T> && !Scalar<T>;

namespace detail {
// R, the result type of a function, with void replaced by none_t, a tree without leaves.
template <class R>
using something_t = std::conditional_t<std::is_void_v<R>, none_t, R>;
}  // namespace detail
template <class F, class... A>
using result_t = arg_t<detail::something_t<std::invoke_result_t<F&, arg_t<A>...>>>;
template <class F, class... A>
concept Traceable = (Tree<A> && ...) && std::invocable<F&, arg_t<A>...>&& Tree<result_t<F, A...>>;

namespace detail {

#define SHMAP_TREES                                                                                \
  "an Array, a host scalar, a std::vector, tuple, pair, array, optional or map<std::string, ...> " \
  "of these, or a plain struct of these"

// The result type of a call that does not compile. It converts to every type, so that the compiler
// reports no further errors after the static_assert that says what is wrong.
struct Untraceable {
  template <class T>
  operator T() const;
};
template <>
struct IsTree<Untraceable> : std::false_type {};

template <class T>
constexpr void explain_argument() {
  static_assert(
      Tree<T>,
      "an argument has a type that no traced function takes. What it may be: " SHMAP_TREES);
}
template <class R>
constexpr void explain_result() {
  if constexpr (!std::is_same_v<R, Untraceable>) {
    static_assert(Tree<arg_t<something_t<R>>>,
                  "the function returns what cannot be traced. What it may be: " SHMAP_TREES);
  }
}

// Called where Traceable<F, A...> does not hold; the static_asserts of this function say why.
// Callers have the return type `auto` and return the result of this function, so that of nested
// transforms the innermost reports the error.
template <class F, class... A>
auto explain_untraceable() {
  (explain_argument<A>(), ...);
  if constexpr ((Tree<A> && ...)) {
    if constexpr (!std::invocable<F&, arg_t<A>...>) {
      static_assert(std::invocable<F&, arg_t<A>...>,
                    "the function cannot be called with these arguments. It has to take as many as "
                    "it is given, arrays and host scalars as Array, containers and structs as they "
                    "are, `none` as none_t");
    } else {
      explain_result<std::invoke_result_t<F&, arg_t<A>...>>();
    }
  }
  return Untraceable{};
}

}  // namespace detail

}  // namespace shmap
