// Primitives of one's own, with kernels of one's own (jax.extend.core.Primitive): they stand in
// programs as the library's do, eagerly, in shard_map bodies, under jit, grad and vmap, as far as
// their rules go.
//
//   extend::Primitive mul_add("mul_add");
//   mul_add.def_abstract_eval([](ShapedArray a, ShapedArray, ShapedArray) { return a; })
//       .def_cpu_kernel([](const extend::KernelArgs& k) { … })
//       .def_cuda_kernel([](const extend::KernelArgs& k) { … })  // launches on k.stream
//       .def_jvp(…);
//   Array r = mul_add.bind(x, y, z);
//
// Parameters are named and typed by their defaults, and are a part of what programs print, compare
// and keep:
//
//   roll.def_params({{"axis", 0}, {"shift", 1}})
//       .def_impl([](Array x, const extend::Params& p) { … get_param<int>(p, "axis") … });
//   Array r = roll.bind(extend::Params{{"shift", 2}}, x);
//
// Rules are given before the first bind; afterwards def_… throws Error. A Primitive is a handle;
// what it names lives to the end of the process, as jit's caches may hold it.
//
// Where a rule takes operands, its function has a parameter for each of them, or one std::vector of
// all; where it gives several results, it returns a std::vector of them. Every rule may have one
// parameter more, the last: a `const extend::Params&`. A function that can be called in neither way
// is accepted, and a TypeError, which says what is wanted, where the rule is needed; so is a rule
// that was not given.
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

// One call of a kernel, on one device's blocks, contiguous and row-major. Addresses are of that
// device's memory. Of what does not vary over devices of one memory space one call computes all.
// A CPU kernel runs on any thread, also on several at once; a CUDA kernel's function runs on the
// host, has to enqueue its work on the stream and return without waiting, and is called under
// stream capture too. It may throw; it calls no ops.
struct KernelArgs {
  std::span<const void* const> in;
  std::span<void* const> out;  // not those of operands
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
  bool calls_sharding = false;  // whether the function can be called so
  std::function<std::vector<Axes>(extend::ArrayTypes, const Params&)> variance;
  std::function<std::string(const Params&)> print;
  Params defaults;
};
class ExtendPrimitive;

// What is wrong with a function that is given as a kernel.
template <class F>
constexpr void check_kernel() {
  static_assert(std::is_invocable_v<F&, const extend::KernelArgs&> || std::is_invocable_v<F&>,
                "a kernel takes a `const extend::KernelArgs&` and returns nothing");
}

// Why a rule cannot be called; throws TypeError.
[[noreturn]] void throw_unusable_rule(const std::string& primitive, const char* rule,
                                      std::size_t operands);

template <class T, class F, std::size_t... I>
constexpr bool takes_each(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, decltype((void)I, std::declval<T>())...>;
}
template <class T, class F, std::size_t... I>
constexpr bool takes_each_and_params(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, decltype((void)I, std::declval<T>())..., const extend::Params&>;
}
// f(x...) or f(x..., params), whichever it is.
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

// f(x...) or f(x), and the parameters with them, as it can be called with so many.
template <class T, std::size_t n = 1, class F>
std::vector<T> call_with_each(const std::string& primitive, const char* rule, F& f,
                              std::vector<T>& x, const extend::Params& params) {
  constexpr std::size_t kMost = 8;
  if constexpr (takes_each<T, F>(std::make_index_sequence<n>()) ||
                takes_each_and_params<T, F>(std::make_index_sequence<n>())) {
    if (x.size() == n) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        using R = decltype(call_rule(f, params, std::move(x[I])...));
        static_assert(is_list_of<T, R>, "the rule returns a result, or a std::vector of them");
        return list_of<T>(call_rule(f, params, std::move(x[I])...));
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
  // The name as programs print it.
  explicit Primitive(std::string name);

  // The results' types of the operands', as ShapedArray(shape, dtype); what varies is taken care
  // of: a result varies over the axes that an operand varies over. Needed for all but eager calls
  // of a primitive that has an impl.
  template <class F>
  Primitive& def_abstract_eval(F&& f) {
    rules().abstract_eval = [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
                                ArrayTypes in, const Params& params) mutable {
      return shmap::detail::call_with_each<ShapedArray>(name, "def_abstract_eval", f, in, params);
    };
    return *this;
  }
  // The primitive in terms of other ops: runs it on devices whose kernel was not given. Its results
  // have to be those that def_abstract_eval promises: TypeError where it gives another number of
  // them, other shapes or dtypes, or one that varies over mesh axes over which no operand does. One
  // that varies over fewer is cast.
  template <class F>
  Primitive& def_impl(F&& f) {
    rules().impl = [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
                       Arrays in, const Params& params) mutable {
      return shmap::detail::call_with_each<Array>(name, "def_impl", f, in, params);
    };
    return *this;
  }
  // void(const KernelArgs&), and other functions do not compile; but one without parameters, which
  // stands for a kernel that is still to be written, and is as none.
  template <class F>
  Primitive& def_cpu_kernel(F&& f) {
    shmap::detail::check_kernel<std::decay_t<F>>();
    if constexpr (std::is_invocable_v<std::decay_t<F>&, const KernelArgs&>)
      rules().cpu_kernel = std::forward<F>(f);
    return *this;
  }
  template <class F>
  Primitive& def_cuda_kernel(F&& f) {
    shmap::detail::check_kernel<std::decay_t<F>>();
    if constexpr (std::is_invocable_v<std::decay_t<F>&, const KernelArgs&>)
      rules().cuda_kernel = std::forward<F>(f);
    return *this;
  }
  // A CUDA kernel as text, which NVRTC compiles when it first runs: source that holds
  //
  //   extern "C" __global__ void name(Kernel k)
  //
  // for a thread for each element of result 0, at least, in blocks of `threads`. k.in[i] and
  // k.out[i] are addresses (const void*, void*), k.in_size[i] and k.out_size[i] numbers of elements
  // (long long), of up to 16 operands and 16 results. Parameters that are numbers or bools stand in
  // the text as PARAM_<name>. DeviceError, with the compiler's log, where it does not compile or
  // there is no NVRTC. ValueError where the source has no such name.
  Primitive& def_cuda_source(std::string source, std::string name, int threads = 256);
  // std::pair{results, tangents}(Arrays primals, Arrays tangents): each an Array, or Arrays where
  // there are several. Zero tangents are zeros. Written in ops; linear in the tangents.
  template <class F>
  Primitive& def_jvp(F&& f) {
    rules().jvp = [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
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
  // Arrays(Arrays cotangents, Arrays operands): of a primitive that is linear in those operands
  // that come as empty Arrays; gives a cotangent for each of these, and an empty Array for the
  // others.
  template <class F>
  Primitive& def_transpose(F&& f) {
    rules().transpose = [f = std::decay_t<F>(std::forward<F>(f)), name = name()](
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
  // std::pair{results, dims}(Arrays operands, std::vector<int> dims): dims say along which dim an
  // operand, or a result, is many; -1: it is one.
  template <class F>
  Primitive& def_batching(F&& f) {
    rules().batching =
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
  // How it goes over arrays that are split over devices: "ab,bc->ac", a letter a dim; or a function
  // of (ArrayTypes operands, ArrayTypes results) that returns such a text. Dims whose letter stands
  // in a result may be split, each device computing its part of the results from its part of the
  // operands; over the others operands are gathered. Without a rule all is gathered. A text that
  // does not fit the operands and results is a ValueError of bind.
  template <class F>
  Primitive& def_sharding_rule(F&& f) {
    using G = std::decay_t<F>;
    constexpr bool is_rule =
        std::is_invocable_r_v<std::string, G&, ArrayTypes, ArrayTypes> ||
        std::is_invocable_r_v<std::string, G&, ArrayTypes, ArrayTypes, const Params&>;
    rules().calls_sharding = std::is_convertible_v<F, std::string> || is_rule;
    if constexpr (std::is_convertible_v<F, std::string>) {
      rules().sharding = [text = std::string(std::forward<F>(f))](
                             const ArrayTypes&, const ArrayTypes&, const Params&) { return text; };
    } else {
      rules().sharding = [f = G(std::forward<F>(f)), name = name()](
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
  // Over which mesh axes results vary in a body: Axes for one result, std::vector<Axes> for
  // several, of ArrayTypes operands, whose vma() says over which those do. Without a rule a result
  // varies over what an operand varies over, and operands are cast to vary alike, which those of a
  // primitive with a rule are not. A result that varies over less than an operand is the rule's
  // promise that it is equal over those axes; an impl keeps it by a collective. ValueError of bind
  // where it names an axis that is not in scope.
  template <class F>
  Primitive& def_variance(F&& f) {
    using G = std::decay_t<F>;
    rules().variance = [f = G(std::forward<F>(f)), name = name()](
                           ArrayTypes in,
                           [[maybe_unused]] const Params& params) mutable -> std::vector<Axes> {
      if constexpr (shmap::detail::is_rule_for<G, ArrayTypes>) {
        return shmap::detail::list_of<Axes>(shmap::detail::call_rule(f, params, std::move(in)));
      } else {
        shmap::detail::throw_unusable_rule(name, "def_variance", in.size());
      }
    };
    return *this;
  }
  // The names of the parameters with their types, as the values that they have where bind is not
  // given another. bind throws ValueError of other names, TypeError of other types (an integer goes
  // for a float). Without it a primitive has no parameters.
  Primitive& def_params(Params defaults);
  // std::string(const Params&): what stands in brackets after the name in printed programs, in the
  // place of "name=value …"; nothing does where it is empty. parse_jaxpr refuses such a primitive,
  // as what stands there need not say all.
  Primitive& def_print(std::function<std::string(const Params&)> f);

  // Under the current trace, as any op. Host scalars are operands of shape () and weak type.
  // TypeError where the primitive has not one result.
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
  // With parameters that are not the defaults.
  Array bind(const Params& params, std::initializer_list<Array> operands,
             SourceLine source = SourceLine::current()) const {
    return bind_one(Arrays(operands), params, source);
  }
  template <std::convertible_to<Array>... A>
  Array bind(const Params& params, const A&... operands) const {
    return bind_one({Array(operands)...}, params, SourceLine{});
  }
  template <std::convertible_to<Array>... A>
  requires(sizeof...(A) > 6) Array bind(const A&... operands)
  const {
    return bind_one({Array(operands)...}, {}, SourceLine{});  // a pack leaves no room for the line
  }
  // The same of any number of operands and results.
  Arrays bind_all(Arrays operands, SourceLine source = SourceLine::current()) const {
    return bind_all(std::move(operands), Params(), source);
  }
  Arrays bind_all(Arrays operands, const Params& params,
                  SourceLine source = SourceLine::current()) const;

  const std::string& name() const;

 private:
  Array bind_each(std::initializer_list<Operand*> operands, SourceLine source) const;
  Array bind_one(Arrays operands, const Params& params, SourceLine source) const;
  shmap::detail::ExtendRules& rules();  // throws Error after the first bind

  shmap::detail::ExtendPrimitive* primitive_;
};

}  // namespace extend
}  // namespace shmap
