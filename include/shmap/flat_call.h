// Turns a user's function of trees into a function of leaves, the form in which shard_map,
// make_jaxpr, jit and the control flow functions hand a user's function to the library.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/tree.h"

namespace shmap::detail {

// A reference to a function of leaves: given the arguments' leaves, it calls the user's function
// and appends the result's leaves and structure to `result`.
class BodyRef {
 public:
  // The template excludes F = BodyRef: for a BodyRef that is not const it would be a better match
  // than the copy constructor.
  template <class F>
  requires(!std::is_same_v<std::remove_const_t<F>, BodyRef>) explicit BodyRef(F& f)
      : f_(&f), call_([](void* p, std::vector<Array>& leaves, FlatTree& result) {
          (*static_cast<F*>(p))(leaves, result);
        }) {}
  void operator()(std::vector<Array>& leaves, FlatTree& result) const { call_(f_, leaves, result); }

 private:
  void* f_;
  void (*call_)(void*, std::vector<Array>&, FlatTree&);
};

// f with arguments of the structure of `args`, which must outlive this object. After a call, like()
// has the structure and the static members of the result; the leaves of like() are empty.
template <class F, class... A>
class FlatCall {
 public:
  using Returned = std::invoke_result_t<F&, arg_t<A>...>;
  using Result = std::decay_t<something_t<Returned>>;
  explicit FlatCall(F& f, const A&... args) : f_(f), args_(args...) {}

  void operator()(std::vector<Array>& leaves, FlatTree& result) {
    [[maybe_unused]] std::size_t next = 0;  // unused where there are no arguments
    auto inputs = std::apply(
        [&](const A&... args) {
          return std::tuple<arg_t<A>...>{shmap::detail::rebuild(args, leaves, next)...};
        },
        args_);
    like_.emplace(std::apply(
        [&](auto&... in) -> Result {
          if constexpr (std::is_void_v<Returned>) {
            std::invoke(f_, std::move(in)...);
            return none;
          } else {
            return std::invoke(f_, std::move(in)...);
          }
        },
        inputs));
    // The leaves are moved out of like_, so that the receiver of `result` may be their only owner.
    flatten(std::move(*like_), result, result.node);
  }

  const Result& like() const { return *like_; }
  arg_t<Result> rebuild(std::vector<Array> leaves) const {
    std::size_t next = 0;
    return shmap::detail::rebuild(*like_, leaves, next);
  }

 private:
  F& f_;
  std::tuple<const A&...> args_;
  std::optional<Result> like_;
};

// An operation of one array, which jit(sum) and vmap(sum) take by its name where there are several
// functions of that name. A parameter that is a pointer itself would be matched against a generic
// lambda too: the lambda would be compiled for Operand, which is not a type of arrays.
struct NamedOp {
  NamedOp(Array (*op)(Operand)) : f(op) {}
  Array (*f)(Operand);
};

// The leaves of the arguments; the root has one child per argument. An rvalue argument is moved
// into the FlatTree, which donates its buffers.
template <class... A>
FlatTree flatten_arguments(A&&... args) {
  FlatTree flat;
  flat.node.kind = TreeNode::list;
  flat.node.children.resize(sizeof...(A));
  [[maybe_unused]] std::size_t argument = 0;
  (flatten(std::forward<A>(args), flat, flat.node.children[argument++]), ...);
  return flat;
}

// One object for each list of types. The object's address stands for the list in a cache's key.
template <class... T>
inline constexpr char type_tag = 0;

// The cache of a transformed callable. A callable without state has one cache per type, so that
// jit(lambda)(x) in a loop traces once; a callable with state has one cache per object, which its
// copies share.
template <class Cache, class F>
std::shared_ptr<Cache> cache_for() {
  if constexpr (std::is_empty_v<F>) {
    static const std::shared_ptr<Cache> shared = std::make_shared<Cache>();
    return shared;
  } else {
    return std::make_shared<Cache>();
  }
}

}  // namespace shmap::detail
