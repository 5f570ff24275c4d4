// Primitives and kernels that a user defines (jax.extend.core.Primitive). They appear in programs
// as the library's primitives do, and work eagerly, in shard_map bodies, and under jit, grad and
// vmap, as far as the user gives the rules that each of these needs.
//
//   extend::Primitive mul_add("mul_add");
//   mul_add.def_abstract_eval([](ShapedArray a, ShapedArray, ShapedArray) { return a; })
//       .def_cpu_kernel([](const extend::KernelArgs& k) { … })
//       .def_cuda_kernel([](const extend::KernelArgs& k) { … })  // launches on k.stream
//       .def_jvp(…);
//   Array r = mul_add.bind(x, y, z);
//
// Parameters are declared with default values, which fix their types. They are part of a program
// where it is printed or compared.
//
//   roll.def_params({{"axis", 0}, {"shift", 1}})
//       .def_impl([](Array x, const extend::Params& p) { … get_param<int>(p, "axis") … });
//   Array r = roll.bind(extend::Params{{"shift", 2}}, x);
//
// All rules must be given before the first bind; afterwards def_… throws Error. A Primitive is a
// handle; the primitive itself lives until the process ends, because jit's caches may hold it.
//
// A rule that takes operands is a function with one parameter per operand, or with one std::vector
// of all operands; a rule with several results returns a std::vector of them. Every rule may take a
// `const extend::Params&` as an additional last parameter. def_… accepts a function that can be
// called in none of these ways; a TypeError that says what is wanted is thrown only when the rule
// is needed. A rule that was not given is a TypeError when it is needed, too.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/extend/params.h"
#include "shmap/shaped_array.h"

namespace shmap {
namespace extend {

// The arguments of one call of a kernel, on the blocks of one device. Blocks are contiguous and
// row-major; addresses are in that device's memory. Where a value is the same on several devices of
// one memory space, the kernel is called once for all of them. A CPU kernel runs on any thread, and
// on several threads at once. The function of a CUDA kernel runs on the host, must enqueue its work
// on the stream and return without waiting, and is also called while the stream is captured. A
// kernel may throw; it must not call operations.
struct KernelArgs {
  std::span<const void* const> in;
  std::span<void* const> out;  // never the memory of an operand
  std::span<const ShapedArray> in_types, out_types;
  void* stream = nullptr;  // a cudaStream_t; null on the CPU
  const Params* params = nullptr;

  template <class T>
  const T* input(std::size_t i) const {
    return static_cast<const T*>(in[i]);
  }
  template <class T>
  T* output(std::size_t i = 0) const {
    return static_cast<T*>(out[i]);
  }
  template <class T>
  T param(std::string_view name) const {
    return get_param<T>(*params, name);
  }
};

using Arrays = std::vector<Array>;
using ArrayTypes = std::vector<ShapedArray>;

}  // namespace extend

namespace detail {

struct ExtendRules {
  using Params = extend::Params;
  std::function<extend::ArrayTypes(extend::ArrayTypes, const Params&)> abstract_eval;
  std::function<extend::Arrays(extend::Arrays, const Params&)> impl;
  std::function<void(const extend::KernelArgs&)> cpu_kernel, cuda_kernel;
  std::function<std::pair<extend::Arrays, extend::Arrays>(extend::Arrays, extend::Arrays,
                                                          const Params&)>
      jvp;
  std::function<extend::Arrays(extend::Arrays, extend::Arrays, const Params&)> transpose;
  std::function<std::pair<extend::Arrays, std::vector<int>>(extend::Arrays, std::vector<int>,
                                                            const Params&)>
      batching;
  std::function<std::string(extend::ArrayTypes, extend::ArrayTypes, const Params&)> sharding;
  bool calls_sharding = false;  // whether `sharding` holds a rule that can be called
  std::function<std::vector<Axes>(extend::ArrayTypes, const Params&)> variance;
  std::function<std::string(const Params&)> print;
  Params defaults;
};
class ExtendPrimitive;

// A compile-time error for a function that cannot be a kernel.
template <class F>
constexpr void check_kernel() {
  static_assert(std::is_invocable_v<F&, const extend::KernelArgs&> || std::is_invocable_v<F&>,
                "a kernel takes a `const extend::KernelArgs&` and returns nothing");
}

// Throws the TypeError that says why a rule cannot be called.
[[noreturn]] void throw_unusable_rule(const std::string& primitive, const char* rule,
                                      std::size_t operands);

template <class T, class F, std::size_t... Is>
constexpr bool takes_each(std::index_sequence<Is...>) {
  return std::is_invocable_v<F&, decltype((void)Is, std::declval<T>())...>;
}
template <class T, class F, std::size_t... Is>
constexpr bool takes_each_and_params(std::index_sequence<Is...>) {
  return std::is_invocable_v<F&, decltype((void)Is, std::declval<T>())..., const extend::Params&>;
}
// Whether f(x...) or f(x..., params) compiles; call_rule calls the one that does.
template <class F, class... X>
constexpr bool is_rule_for =
    std::is_invocable_v<F&, X...> || std::is_invocable_v<F&, X..., const extend::Params&>;
template <class F, class... X>
decltype(auto) call_rule(F& f, [[maybe_unused]] const extend::Params& params, X&&... x) {
  if constexpr (std::is_invocable_v<F&, X...>) {
    return f(std::forward<X>(x)...);
  } else {
    return f(std::forward<X>(x)..., params);
  }
}
template <class T, class R>
constexpr bool is_list_of = std::is_convertible_v<R, T> || std::is_convertible_v<R, std::vector<T>>;
template <class T, class R>
std::vector<T> list_of(R&& result) {
  if constexpr (std::is_convertible_v<R, std::vector<T>>) {
    return std::vector<T>(std::forward<R>(result));
  } else {
    std::vector<T> list;
    list.push_back(T(std::forward<R>(result)));
    return list;
  }
}

// Calls f(x[0], x[1], …) where f takes x.size() arguments, otherwise f(x), each with params as the
// last argument where f takes them.
template <class T, std::size_t n = 1, class F>
std::vector<T> call_with_each(const std::string& primitive, const char* rule, F& f,
                              std::vector<T>& x, const extend::Params& params) {
  constexpr std::size_t kMost = 8;
  if constexpr (takes_each<T, F>(std::make_index_sequence<n>()) ||
                takes_each_and_params<T, F>(std::make_index_sequence<n>())) {
    if (x.size() == n) {
      return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
        using R = decltype(call_rule(f, params, std::move(x[Is])...));
        static_assert(is_list_of<T, R>, "the rule returns a result, or a std::vector of them");
        return list_of<T>(call_rule(f, params, std::move(x[Is])...));
      }
      (std::make_index_sequence<n>());
    }
  }
  if constexpr (n < kMost) {
    return call_with_each<T, n + 1>(primitive, rule, f, x, params);
  } else if constexpr (is_rule_for<F, std::vector<T>>) {
    return list_of<T>(call_rule(f, params, std::move(x)));
  } else {
    throw_unusable_rule(primitive, rule, x.size());
  }
}

}  // namespace detail

namespace extend {

class Primitive {
 public:
  // `name` is the name that programs print. ValueError where it is empty.
  explicit Primitive(std::string name, SourceLine source = SourceLine::current());

  // The types of the results from the types of the operands, as ShapedArray(shape, dtype); the
  // library adds the variance: a result varies over the axes over which an operand varies. Needed
  // for everything except eager calls of a primitive that has an impl.
  template <class F>
  Primitive& def_abstract_eval(F&& f, SourceLine source = SourceLine::current()) {
    rules(source).abstract_eval = [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
                                      ArrayTypes in, const Params& params) mutable {
      return shmap::detail::call_with_each<ShapedArray>(name, "def_abstract_eval", f, in, params);
    };
    return *this;
  }
  // f computes the primitive with other operations, and is used on devices for which no kernel was
  // given. TypeError where the results of f differ from those of def_abstract_eval in number, shape
  // or dtype, or where a result varies over mesh axes over which no operand varies. A result that
  // varies over fewer axes is cast.
  template <class F>
  Primitive& def_impl(F&& f, SourceLine source = SourceLine::current()) {
    rules(source).impl = [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
                             Arrays in, const Params& params) mutable {
      return shmap::detail::call_with_each<Array>(name, "def_impl", f, in, params);
    };
    return *this;
  }
  // f: void(const KernelArgs&); other functions do not compile. The one exception is a function
  // without parameters: it stands for a kernel that is still to be written, and is ignored.
  template <class F>
  Primitive& def_cpu_kernel(F&& f, SourceLine source = SourceLine::current()) {
    shmap::detail::check_kernel<std::decay_t<F>>();
    if constexpr (std::is_invocable_v<std::decay_t<F>&, const KernelArgs&>)
      rules(source).cpu_kernel = std::forward<F>(f);
    return *this;
  }
  template <class F>
  Primitive& def_cuda_kernel(F&& f, SourceLine source = SourceLine::current()) {
    shmap::detail::check_kernel<std::decay_t<F>>();
    if constexpr (std::is_invocable_v<std::decay_t<F>&, const KernelArgs&>)
      rules(source).cuda_kernel = std::forward<F>(f);
    return *this;
  }
  // A CUDA kernel as source text, which NVRTC compiles at its first run. The source must define
  //
  //   extern "C" __global__ void name(Kernel k)
  //
  // and is launched with at least one thread per element of result 0, in blocks of `threads`
  // threads. k.in[i] and k.out[i] are addresses (const void*, void*), k.in_size[i] and
  // k.out_size[i] numbers of elements (long long), for up to 16 operands and 16 results. Parameters
  // that are numbers or bools are defined as macros PARAM_<name>. DeviceError, with the compiler's
  // log, where the source does not compile, and where there is no NVRTC. ValueError where the
  // source does not contain `name`.
  Primitive& def_cuda_source(std::string source, std::string name, int threads = 256,
                             SourceLine line = SourceLine::current());
  // f: std::pair{results, tangents}(Arrays primals, Arrays tangents), where each of the pair is an
  // Array, or Arrays for several results. A tangent that is zero is an array of zeros. f is written
  // in operations, and must be linear in the tangents.
  template <class F>
  Primitive& def_jvp(F&& f, SourceLine source = SourceLine::current()) {
    rules(source).jvp =
        [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
            Arrays primals, Arrays tangents,
            [[maybe_unused]] const Params& params) mutable -> std::pair<Arrays, Arrays> {
      if constexpr (shmap::detail::is_rule_for<std::decay_t<F>, Arrays, Arrays>) {
        auto [y, y_dot] =
            shmap::detail::call_rule(f, params, std::move(primals), std::move(tangents));
        return {shmap::detail::list_of<Array>(std::move(y)),
                shmap::detail::list_of<Array>(std::move(y_dot))};
      } else {
        shmap::detail::throw_unusable_rule(name, "def_jvp", primals.size());
      }
    };
    return *this;
  }
  // f: Arrays(Arrays cotangents, Arrays operands), for a primitive that is linear in the operands
  // that are passed as empty Arrays. Returns a cotangent for each of those operands, and an empty
  // Array for each other operand.
  template <class F>
  Primitive& def_transpose(F&& f, SourceLine source = SourceLine::current()) {
    rules(source).transpose = [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
                                  Arrays cotangents, Arrays operands,
                                  [[maybe_unused]] const Params& params) mutable -> Arrays {
      if constexpr (shmap::detail::is_rule_for<std::decay_t<F>, Arrays, Arrays>) {
        return shmap::detail::list_of<Array>(
            shmap::detail::call_rule(f, params, std::move(cotangents), std::move(operands)));
      } else {
        shmap::detail::throw_unusable_rule(name, "def_transpose", operands.size());
      }
    };
    return *this;
  }
  // f: std::pair{results, dims}(Arrays operands, std::vector<int> dims). Both lists of dims have
  // the batch dim of each operand or result, and -1 where there is no batch dim.
  template <class F>
  Primitive& def_batching(F&& f, SourceLine source = SourceLine::current()) {
    rules(source).batching =
        [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
            Arrays in, std::vector<int> dims,
            [[maybe_unused]] const Params& params) mutable -> std::pair<Arrays, std::vector<int>> {
      if constexpr (shmap::detail::is_rule_for<std::decay_t<F>, Arrays, std::vector<int>>) {
        auto [y, y_dims] = shmap::detail::call_rule(f, params, std::move(in), std::move(dims));
        return {shmap::detail::list_of<Array>(std::move(y)),
                shmap::detail::list_of<int>(std::move(y_dims))};
      } else {
        shmap::detail::throw_unusable_rule(name, "def_batching", in.size());
      }
    };
    return *this;
  }
  // How the primitive works on sharded arrays: a text such as "ab,bc->ac" with one letter per dim,
  // or a function of (ArrayTypes operands, ArrayTypes results) that returns such a text. Dims whose
  // letter occurs in a result may stay split: each device then computes its block of the results
  // from its blocks of the operands. Operands are gathered along all other dims; without a rule
  // they are gathered whole. bind throws ValueError where the text does not fit the operands and
  // results.
  template <class F>
  Primitive& def_sharding_rule(F&& f, SourceLine source = SourceLine::current()) {
    using G = std::decay_t<F>;
    constexpr bool is_rule =
        std::is_invocable_r_v<std::string, G&, ArrayTypes, ArrayTypes> ||
        std::is_invocable_r_v<std::string, G&, ArrayTypes, ArrayTypes, const Params&>;
    rules(source).calls_sharding = std::is_convertible_v<F, std::string> || is_rule;
    if constexpr (std::is_convertible_v<F, std::string>) {
      rules(source).sharding = [text = std::string(std::forward<F>(f))](
                                   const ArrayTypes&, const ArrayTypes&, const Params&) {
        return text;
      };
    } else {
      rules(source).sharding = [f = G(std::forward<F>(f)), name = name()](
                                   ArrayTypes in, ArrayTypes out,
                                   [[maybe_unused]] const Params& params) mutable -> std::string {
        if constexpr (is_rule) {
          return shmap::detail::call_rule(f, params, std::move(in), std::move(out));
        } else {
          shmap::detail::throw_unusable_rule(name, "def_sharding_rule", in.size());
        }
      };
    }
    return *this;
  }
  // Over which mesh axes the results vary in a body: a function of ArrayTypes operands (vma() of
  // each gives its axes) that returns Axes for one result, std::vector<Axes> for several. Without a
  // rule a result varies over the axes of all operands, and the operands are first cast to vary
  // alike; with a rule the operands are not cast. Where the rule omits an axis over which an
  // operand varies, the rule promises that the result is equal along that axis; an impl makes it
  // equal with a collective. bind throws ValueError where the rule names an axis that is not in
  // scope.
  template <class F>
  Primitive& def_variance(F&& f, SourceLine source = SourceLine::current()) {
    using G = std::decay_t<F>;
    rules(source).variance =
        [f = G(std::forward<F>(f)), name = name()](
            ArrayTypes in, [[maybe_unused]] const Params& params) mutable -> std::vector<Axes> {
      if constexpr (shmap::detail::is_rule_for<G, ArrayTypes>) {
        return shmap::detail::list_of<Axes>(shmap::detail::call_rule(f, params, std::move(in)));
      } else {
        shmap::detail::throw_unusable_rule(name, "def_variance", in.size());
      }
    };
    return *this;
  }
  // The names of the parameters, with the default values that bind uses where it is given no
  // others. The defaults fix the types: bind throws ValueError for other names, TypeError for other
  // types (an integer is accepted for a float). Without def_params a primitive has no parameters.
  Primitive& def_params(Params defaults, SourceLine source = SourceLine::current());
  // f: std::string(const Params&) returns the text that printed programs show in brackets after the
  // name, in place of "name=value …". Where the text is empty, there are no brackets. parse_jaxpr
  // refuses such a primitive, because the text need not contain all parameters.
  Primitive& def_print(std::function<std::string(const Params&)> f,
                       SourceLine source = SourceLine::current());

  // Binds the primitive under the current trace, as every operation does. Host scalars are operands
  // of shape () and weak type. TypeError where the primitive does not have exactly one result.
  Array bind(SourceLine source = SourceLine::current()) const { return bind_each({}, source); }
  Array bind(Operand a) const { return bind_each({&a}, a.source); }
  Array bind(Operand a, Operand b) const { return bind_each({&a, &b}, a.source); }
  Array bind(Operand a, Operand b, Operand c) const { return bind_each({&a, &b, &c}, a.source); }
  Array bind(Operand a, Operand b, Operand c, Operand d) const {
    return bind_each({&a, &b, &c, &d}, a.source);
  }
  Array bind(Operand a, Operand b, Operand c, Operand d, Operand e) const {
    return bind_each({&a, &b, &c, &d, &e}, a.source);
  }
  Array bind(Operand a, Operand b, Operand c, Operand d, Operand e, Operand f) const {
    return bind_each({&a, &b, &c, &d, &e, &f}, a.source);
  }
  // bind with parameters that differ from the defaults.
  Array bind(const Params& params, std::initializer_list<Array> operands,
             SourceLine source = SourceLine::current()) const {
    return bind_one(Arrays(operands), params, source);
  }
  Array bind(const Params& params, SourceLine source = SourceLine::current()) const {
    return bind_one({}, params, source);
  }
  // No default argument can follow a parameter pack, so the caller's line is that of the first
  // operand.
  template <std::convertible_to<Array>... A>
  Array bind(const Params& params, Operand first, const A&... others) const {
    return bind_one({std::move(first.value), Array(others)...}, params, first.source);
  }
  template <std::convertible_to<Array>... A>
  requires(sizeof...(A) >= 6) Array bind(Operand first, const A&... others)
  const { return bind_one({std::move(first.value), Array(others)...}, {}, first.source); }
  // bind for any number of operands and results.
  Arrays bind_all(Arrays operands, SourceLine source = SourceLine::current()) const {
    return bind_all(std::move(operands), Params(), source);
  }
  Arrays bind_all(Arrays operands, const Params& params,
                  SourceLine source = SourceLine::current()) const;

  const std::string& name() const;

 private:
  Array bind_each(std::initializer_list<Operand*> operands, SourceLine source) const;
  Array bind_one(Arrays operands, const Params& params, SourceLine source) const;
  shmap::detail::ExtendRules& rules(SourceLine source);  // throws Error after the first bind

  shmap::detail::ExtendPrimitive* primitive_;
};

}  // namespace extend
}  // namespace shmap
