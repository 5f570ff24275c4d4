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
// Rules are given before the first bind; afterwards def_… throws Error. A Primitive is a handle;
// what it names lives to the end of the process, as jit's caches may hold it.
//
// Where a rule takes operands, its function has a parameter for each of them, or one std::vector of
// all; where it gives several results, it returns a std::vector of them. A function that can be
// called in neither way is accepted, and a TypeError, which says what is wanted, where the rule is
// needed; so is a rule that was not given.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/array.h"
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

  template <class T>
  const T* input(std::size_t i) const {
    return static_cast<const T*>(in[i]);
  }
  template <class T>
  T* output(std::size_t i = 0) const {
    return static_cast<T*>(out[i]);
  }
};

using Arrays = std::vector<Array>;
using ArrayTypes = std::vector<ShapedArray>;

}  // namespace extend

namespace detail {

struct ExtendRules {
  std::function<extend::ArrayTypes(extend::ArrayTypes)> abstract_eval;
  std::function<extend::Arrays(extend::Arrays)> impl;
  std::function<void(const extend::KernelArgs&)> cpu_kernel, cuda_kernel;
  std::function<std::pair<extend::Arrays, extend::Arrays>(extend::Arrays, extend::Arrays)> jvp;
  std::function<extend::Arrays(extend::Arrays, extend::Arrays)> transpose;
  std::function<std::pair<extend::Arrays, std::vector<int>>(extend::Arrays, std::vector<int>)>
      batching;
  std::function<std::string(extend::ArrayTypes, extend::ArrayTypes)> sharding;
  bool calls_sharding = false;  // whether the function can be called so
};
class ExtendPrimitive;

// What is wrong with a function that is given as a kernel.
template <class F>
constexpr void check_kernel() {
  static_assert(std::is_invocable_v<F&, const extend::KernelArgs&> || std::is_invocable_v<F&>,
                "a kernel takes a `const extend::KernelArgs&` and returns nothing");
}

// Why a rule cannot be called; throws TypeError.
[[noreturn]] void throw_unusable_rule(const char* rule, std::size_t operands);

template <class T, class F, std::size_t... I>
constexpr bool takes_each(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, decltype((void)I, std::declval<T>())...>;
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

// f(x...) or f(x), as it can be called with so many.
template <class T, std::size_t n = 1, class F>
std::vector<T> call_with_each(const char* rule, F& f, std::vector<T>& x) {
  constexpr std::size_t kMost = 8;
  if constexpr (takes_each<T, F>(std::make_index_sequence<n>())) {
    if (x.size() == n) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        using R = decltype(f(std::move(x[I])...));
        static_assert(is_list_of<T, R>, "the rule returns a result, or a std::vector of them");
        return list_of<T>(f(std::move(x[I])...));
      }
      (std::make_index_sequence<n>());
    }
  }
  if constexpr (n < kMost) {
    return call_with_each<T, n + 1>(rule, f, x);
  } else if constexpr (std::is_invocable_v<F&, std::vector<T>>) {
    return list_of<T>(f(std::move(x)));
  } else {
    throw_unusable_rule(rule, x.size());
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
    rules().abstract_eval = [f = std::decay_t<F>(std::forward<F>(f))](ArrayTypes in) mutable {
      return shmap::detail::call_with_each<ShapedArray>("def_abstract_eval", f, in);
    };
    return *this;
  }
  // The primitive in terms of other ops: runs it on devices whose kernel was not given. Its results
  // have to be those that def_abstract_eval promises: TypeError where it gives another number of
  // them, other shapes or dtypes, or one that varies over mesh axes over which no operand does. One
  // that varies over fewer is cast.
  template <class F>
  Primitive& def_impl(F&& f) {
    rules().impl = [f = std::decay_t<F>(std::forward<F>(f))](Arrays in) mutable {
      return shmap::detail::call_with_each<Array>("def_impl", f, in);
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
  // std::pair{results, tangents}(Arrays primals, Arrays tangents): each an Array, or Arrays where
  // there are several. Zero tangents are zeros. Written in ops; linear in the tangents.
  template <class F>
  Primitive& def_jvp(F&& f) {
    rules().jvp = [f = std::decay_t<F>(std::forward<F>(f))](
                      Arrays primals, Arrays tangents) mutable -> std::pair<Arrays, Arrays> {
      if constexpr (std::is_invocable_v<std::decay_t<F>&, Arrays, Arrays>) {
        auto [y, y_dot] = f(std::move(primals), std::move(tangents));
        return {shmap::detail::list_of<Array>(std::move(y)),
                shmap::detail::list_of<Array>(std::move(y_dot))};
      } else {
        shmap::detail::throw_unusable_rule("def_jvp", primals.size());
      }
    };
    return *this;
  }
  // Arrays(Arrays cotangents, Arrays operands): of a primitive that is linear in those operands
  // that come as empty Arrays; gives a cotangent for each of these, and an empty Array for the
  // others.
  template <class F>
  Primitive& def_transpose(F&& f) {
    rules().transpose = [f = std::decay_t<F>(std::forward<F>(f))](
                            Arrays cotangents, Arrays operands) mutable -> Arrays {
      if constexpr (std::is_invocable_v<std::decay_t<F>&, Arrays, Arrays>) {
        return shmap::detail::list_of<Array>(f(std::move(cotangents), std::move(operands)));
      } else {
        shmap::detail::throw_unusable_rule("def_transpose", operands.size());
      }
    };
    return *this;
  }
  // std::pair{results, dims}(Arrays operands, std::vector<int> dims): dims say along which dim an
  // operand, or a result, is many; -1: it is one.
  template <class F>
  Primitive& def_batching(F&& f) {
    rules().batching = [f = std::decay_t<F>(std::forward<F>(f))](
                           Arrays in,
                           std::vector<int> dims) mutable -> std::pair<Arrays, std::vector<int>> {
      if constexpr (std::is_invocable_v<std::decay_t<F>&, Arrays, std::vector<int>>) {
        auto [y, y_dims] = f(std::move(in), std::move(dims));
        return {shmap::detail::list_of<Array>(std::move(y)),
                shmap::detail::list_of<int>(std::move(y_dims))};
      } else {
        shmap::detail::throw_unusable_rule("def_batching", in.size());
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
    rules().calls_sharding =
        std::is_convertible_v<F, std::string> ||
        std::is_invocable_r_v<std::string, std::decay_t<F>&, ArrayTypes, ArrayTypes>;
    if constexpr (std::is_convertible_v<F, std::string>) {
      rules().sharding = [text = std::string(std::forward<F>(f))](
                             const ArrayTypes&, const ArrayTypes&) { return text; };
    } else {
      rules().sharding = [f = std::decay_t<F>(std::forward<F>(f))](
                             ArrayTypes in, ArrayTypes out) mutable -> std::string {
        if constexpr (std::is_invocable_r_v<std::string, std::decay_t<F>&, ArrayTypes,
                                            ArrayTypes>) {
          return f(std::move(in), std::move(out));
        } else {
          shmap::detail::throw_unusable_rule("def_sharding_rule", in.size());
        }
      };
    }
    return *this;
  }

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
  template <std::convertible_to<Array>... A>
  requires(sizeof...(A) > 6) Array bind(const A&... operands)
  const {
    return bind_one({Array(operands)...}, SourceLine{});  // a pack leaves no room for the line
  }
  // The same of any number of operands and results.
  Arrays bind_all(Arrays operands, SourceLine source = SourceLine::current()) const;

  const std::string& name() const;

 private:
  Array bind_each(std::initializer_list<Operand*> operands, SourceLine source) const;
  Array bind_one(Arrays operands, SourceLine source) const;
  shmap::detail::ExtendRules& rules();  // throws Error after the first bind

  shmap::detail::ExtendPrimitive* primitive_;
};

}  // namespace extend
}  // namespace shmap
