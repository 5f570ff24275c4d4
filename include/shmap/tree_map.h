// tree_map applies a function to the leaves of trees (jax.tree.map).
#pragma once
#include <concepts>
#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/tree.h"

namespace shmap {

namespace detail {
// ValueError where `other`, the tree of that number among the arguments of a tree_map, has another
// structure than the first tree.
void check_same_tree(const TreeNode& first, const TreeNode& other, std::size_t number,
                     SourceLine source);
template <class>
using LeafOf = Array;

template <class F, class T, class... Rest>
arg_t<T> map_trees(SourceLine source, F&& f, T&& tree, Rest&&... rest) {
  constexpr bool called_with_leaves = std::invocable<F&, Array, LeafOf<Rest>...>;
  static_assert(called_with_leaves, "the function of a tree_map takes one Array for each tree");
  if constexpr (called_with_leaves) {
    static_assert(std::convertible_to<std::invoke_result_t<F&, Array, LeafOf<Rest>...>, Array>,
                  "the function of a tree_map returns an Array");
    FlatTree first;
    const arg_t<T> like = structure_of(tree);
    flatten(std::forward<T>(tree), first, first.node);
    [[maybe_unused]] std::size_t number = 1;
    const auto flat_rest = [&](auto&& other) {
      FlatTree flat;
      flatten(std::forward<decltype(other)>(other), flat, flat.node);
      check_same_tree(first.node, flat.node, number++, source);
      return flat;
    };
    std::tuple<decltype(flat_rest(std::declval<Rest>()))...> others{
        flat_rest(std::forward<Rest>(rest))...};
    for (std::size_t i = 0; i < first.leaves.size(); ++i) {
      std::apply(
          [&](auto&... other) {
            first.leaves[i] = f(std::move(first.leaves[i]), std::move(other.leaves[i])...);
          },
          others);
    }
    std::size_t next = 0;
    return rebuild(like, first.leaves, next);
  }
}
}  // namespace detail

// A tree of f's results: f is called with each leaf of `tree` and, where more trees are given, with
// their leaves in the same place, all as Arrays, and returns an Array. Host scalars in a tree are
// leaves. The static members of a struct are those of the first tree. Arguments that are rvalues
// are donated to f. ValueError where the trees have unlike structures.
template <class F, Tree T>
arg_t<T> tree_map(F&& f, T&& tree, SourceLine source = SourceLine::current()) {
  return detail::map_trees(source, f, std::forward<T>(tree));
}
template <class F, Tree T, Tree A>
arg_t<T> tree_map(F&& f, T&& tree, A&& a, SourceLine source = SourceLine::current()) {
  return detail::map_trees(source, f, std::forward<T>(tree), std::forward<A>(a));
}
template <class F, Tree T, Tree A, Tree B>
arg_t<T> tree_map(F&& f, T&& tree, A&& a, B&& b, SourceLine source = SourceLine::current()) {
  return detail::map_trees(source, f, std::forward<T>(tree), std::forward<A>(a),
                           std::forward<B>(b));
}
template <class F, Tree T, Tree A, Tree B, Tree C>
arg_t<T> tree_map(F&& f, T&& tree, A&& a, B&& b, C&& c, SourceLine source = SourceLine::current()) {
  return detail::map_trees(source, f, std::forward<T>(tree), std::forward<A>(a), std::forward<B>(b),
                           std::forward<C>(c));
}

}  // namespace shmap
