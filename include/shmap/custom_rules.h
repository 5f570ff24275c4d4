// custom_jvp and custom_vjp: functions whose derivatives are rules that the user writes
// (jax.custom_jvp, jax.custom_vjp).
//
//   auto f = custom_jvp(f, [](std::tuple<…> primals, std::tuple<…> tangents) {
//     return std::pair{y, y_dot};
//   });
//   auto g = custom_vjp(g, [](x…) { return std::pair{y, residuals}; },
//                       [](residuals, y_bar) { return std::tuple{x_bar…}; });
//
// When the function is differentiated, its rule is called instead of the function. In an eager call
// the operations of the rule run eagerly. The rule may itself be differentiated. y, y_dot and y_bar
// have the type of f's result; residuals may be any tree; `none` in place of an x_bar is a
// cotangent of zeros. Integers and bools have tangents and cotangents that are zeros of their
// dtype. Under jit and make_jaxpr and in bodies of shard_map, f becomes one equation,
// custom_jvp_call or custom_vjp_call, which keeps the program of f and its rules.
//
// Throws TypeError where a rule's result has the wrong structure, shape or dtype; where a rule's
// result varies over more mesh axes than it should (a result that varies over fewer axes is cast);
// and where forward mode is applied to a function with a custom_vjp. f and its rules must not
// capture values that are being differentiated: pass such values as arguments.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/flat_call.h"

namespace shmap {

namespace detail {

// A user's rule as a function of leaves. Programs whose equations need the rule own a share of
// `object`, which holds the user's function. `like`: null, or a pointer to a std::optional of the
// function's result type, which receives the structure of the y that the rule returns.
struct RuleCode {
  std::shared_ptr<void> object;
  void (*call)(void* object, std::vector<Array>& leaves, FlatTree& result, void* like) = nullptr;
};
// The forward rule of a custom_vjp as a function of leaves. The forward rule returns the backward
// rule for residuals of the structure that the forward rule made. The backward rule takes the
// leaves of the residuals and then those of y_bar, and returns the list of the x_bars.
struct ForwardCode {
  std::shared_ptr<void> object;
  RuleCode (*call)(void* object, std::vector<Array>& leaves, FlatTree& result,
                   void* like) = nullptr;
};

// Whether the current trace stages a program or applies a transform. Only then can the rules be
// needed.
bool wants_rules();
std::vector<Array> custom_jvp_leaves(BodyRef f, RuleCode rule, void* like, FlatTree arguments,
                                     SourceLine source);
std::vector<Array> custom_vjp_leaves(BodyRef f, ForwardCode rule, void* like, FlatTree arguments,
                                     SourceLine source);

template <class T>
inline constexpr bool is_pair = false;
template <class A, class B>
inline constexpr bool is_pair<std::pair<A, B>> = true;
template <class T>
inline constexpr std::size_t tuple_length = ~std::size_t{0};
template <class... T>
inline constexpr std::size_t tuple_length<std::tuple<T...>> = sizeof...(T);

// R: the type of the function's result; A: the types of its arguments.
template <class R, class Rule, class... A>
struct JvpRuleObject {
  std::shared_ptr<Rule> rule;
  std::tuple<A...> arguments;  // only their structure

  static void call(void* object, std::vector<Array>& leaves, FlatTree& result, void* like) {
    auto& self = *static_cast<JvpRuleObject*>(object);
    std::size_t next = 0;
    std::tuple<A...> primals = rebuild(self.arguments, leaves, next);
    std::tuple<A...> tangents = rebuild(self.arguments, leaves, next);
    auto out = (*self.rule)(std::move(primals), std::move(tangents));
    using Out = decltype(out);
    static_assert(is_pair<Out>, "the rule of a custom_jvp returns std::pair{y, y_dot}");
    // The rest is compiled only for rules that return a pair, so that for any other rule the
    // static_assert above is the only error.
    if constexpr (is_pair<Out>) {
      constexpr bool same = std::is_same_v<arg_t<typename Out::first_type>, R>;
      static_assert(same,
                    "the rule of a custom_jvp returns a y of the type that the function returns");
      if constexpr (same) {
        if (like) static_cast<std::optional<R>*>(like)->emplace(structure_of(out.first));
        flatten(std::move(out), result, result.node);
      }
    }
  }
};

template <class Rules, class Y, class Residuals, std::size_t arguments>
struct BackwardObject {
  std::shared_ptr<Rules> rules;
  Y y;
  Residuals residuals;

  static void call(void* object, std::vector<Array>& leaves, FlatTree& result, void*) {
    auto& self = *static_cast<BackwardObject*>(object);
    std::size_t next = 0;
    arg_t<Residuals> residuals = rebuild(self.residuals, leaves, next);
    arg_t<Y> y_bar = rebuild(self.y, leaves, next);
    auto out = self.rules->second(std::move(residuals), std::move(y_bar));
    constexpr bool right = tuple_length<decltype(out)> == arguments;
    static_assert(right,
                  "the second rule of a custom_vjp returns a std::tuple with an element for each "
                  "argument of the function");
    if constexpr (right) flatten(std::move(out), result, result.node);
  }
};

template <class R, class Rules, class... A>
struct ForwardObject {
  std::shared_ptr<Rules> rules;
  std::tuple<A...> arguments;  // only their structure

  static RuleCode call(void* object, std::vector<Array>& leaves, FlatTree& result, void* like) {
    auto& self = *static_cast<ForwardObject*>(object);
    std::size_t next = 0;
    std::tuple<A...> args = rebuild(self.arguments, leaves, next);
    auto out = std::apply([&](A&... arg) { return self.rules->first(std::move(arg)...); }, args);
    using Out = decltype(out);
    static_assert(is_pair<Out>, "the first rule of a custom_vjp returns std::pair{y, residuals}");
    if constexpr (is_pair<Out>) {
      constexpr bool same = std::is_same_v<arg_t<typename Out::first_type>, R>;
      static_assert(same,
                    "the first rule of a custom_vjp returns a y of the type that the function "
                    "returns");
      if constexpr (same) {
        if (like) static_cast<std::optional<R>*>(like)->emplace(structure_of(out.first));
        flatten(std::move(out), result, result.node);
        using Backward = BackwardObject<Rules, typename Out::first_type, typename Out::second_type,
                                        sizeof...(A)>;
        // flatten moved the leaves out; only the structure is left in `out`.
        auto backward = std::make_shared<Backward>(
            Backward{self.rules, std::move(out.first), std::move(out.second)});
        return {std::move(backward), Backward::call};
      }
    }
    return {};  // not reached: a rule of another shape does not compile
  }
};

// A call makes an Object<R, Rules, A…> for its argument types, and passes it as a Code to `run`.
template <template <class...> class Object, class Code,
          std::vector<Array> (*run)(BodyRef, Code, void*, FlatTree, SourceLine), class F,
          class Rules>
class CustomRule {
 public:
  CustomRule(F f, std::shared_ptr<Rules> rules, SourceLine source)
      : f_(std::move(f)), rules_(std::move(rules)), source_(source) {}

  template <class... A>
  requires Traceable<F, A...> result_t<F, A...>
  operator()(const A&... args) const {
    using R = result_t<F, A...>;
    using Made = Object<R, Rules, arg_t<A>...>;
    FlatCall<F, A...> call(f_, args...);
    Code code;
    if (wants_rules()) {
      code.object = std::make_shared<Made>(Made{rules_, {structure_of(args)...}});
      code.call = Made::call;
    }
    std::optional<R> like;
    std::vector<Array> leaves =
        run(BodyRef(call), std::move(code), &like, flatten_arguments(args...), source_);
    if (!like) return call.rebuild(std::move(leaves));
    std::size_t next = 0;
    return rebuild(*like, leaves, next);
  }
  template <class... A>
  requires(!Traceable<F, A...>) auto operator()(const A&...) const {
    return explain_untraceable<F, A...>();
  }

 private:
  mutable F f_;
  std::shared_ptr<Rules> rules_;
  SourceLine source_;
};

}  // namespace detail

// f with a rule for its derivative along tangents; both forward and reverse mode use this rule.
template <class F, class Rule>
auto custom_jvp(F&& f, Rule&& rule, SourceLine source = SourceLine::current()) {
  using Rules = std::decay_t<Rule>;
  return detail::CustomRule<detail::JvpRuleObject, detail::RuleCode, detail::custom_jvp_leaves,
                            std::decay_t<F>, Rules>(
      std::forward<F>(f), std::make_shared<Rules>(std::forward<Rule>(rule)), source);
}

// f with rules for reverse mode: fwd(x…) and bwd(residuals, y_bar).
template <class F, class Fwd, class Bwd>
auto custom_vjp(F&& f, Fwd&& fwd, Bwd&& bwd, SourceLine source = SourceLine::current()) {
  using Rules = std::pair<std::decay_t<Fwd>, std::decay_t<Bwd>>;
  return detail::CustomRule<detail::ForwardObject, detail::ForwardCode, detail::custom_vjp_leaves,
                            std::decay_t<F>, Rules>(
      std::forward<F>(f), std::make_shared<Rules>(std::forward<Fwd>(fwd), std::forward<Bwd>(bwd)),
      source);
}

}  // namespace shmap
