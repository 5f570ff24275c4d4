// The rows of the wide table, each a call as a user would write it. A row has a name, its arguments
// as a text, and a function of arrays; peers/wide_rows/ has rows of the same names in JAX and
// torch, which make the same data from the same text.
//
// The text lists the arguments, separated by blanks: `f32[1024,512]` has values in [-1, 1);
// `i32[4096]<50000` has integers from 0 to 49999 (to 99 without `<`; a bool is true or false with
// equal probability); `f32[64]+` has values in [0.5, 1.5); `f32[64,64]*0.1` has its values times
// 0.1. On a mesh a dim may be split: `f32[1024@i,512@j]`.
#pragma once
#include <shmap/shmap.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shmap::bench {

using Leaves = std::vector<Array>;

inline Leaves leaves(const Array& x) { return {x}; }
inline Leaves leaves(const Leaves& all) { return all; }
template <class... A>
Leaves leaves(const std::tuple<A...>& tuple);
template <class A, class B>
Leaves leaves(const std::pair<A, B>& both) {
  Leaves all = leaves(both.first);
  for (const Array& x : leaves(both.second)) all.push_back(x);
  return all;
}
template <class... A>
Leaves leaves(const std::tuple<A...>& tuple) {
  Leaves all;
  const auto append = [&all](const Leaves& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  std::apply([&](const auto&... x) { (append(leaves(x)), ...); }, tuple);
  return all;
}

struct WideRow {
  std::string name, args;
  std::string mesh_text;  // "i=8", "x=4,y=2"; empty: one device
  double flop_count = 0;  // 0: the row has no figure of flops
  double byte_count = 0;  // bytes read and written; 0: the bytes of all arguments and results
  std::function<std::function<Leaves()>(Leaves)> bind;

  WideRow& on(std::string mesh) {
    mesh_text = std::move(mesh);
    return *this;
  }
  WideRow& flops(double n) {
    flop_count = n;
    return *this;
  }
  WideRow& bytes(double n) {
    byte_count = n;
    return *this;
  }
};

class WideRows {
 public:
  // Adds a row of `jit(f)`, replayed; f takes one Array per argument.
  template <class F>
  WideRow& jit(std::string name, std::string args, F f) {
    return add(std::move(name), std::move(args),
               [f](Leaves values) { return called(shmap::jit(f), std::move(values), arity<F>()); });
  }
  // Adds a row of f itself, one operation at a time. The peers do the same as for `jit`.
  template <class F>
  WideRow& eager(std::string name, std::string args, F f) {
    return add(std::move(name), std::move(args),
               [f](Leaves values) { return called(f, std::move(values), arity<F>()); });
  }
  const std::vector<WideRow>& all() const { return rows_; }

 private:
  template <class R, class... A>
  static std::index_sequence_for<A...> arguments_of(R (*)(A...));
  template <class R, class C, class... A>
  static std::index_sequence_for<A...> arguments_of(R (C::*)(A...) const);
  template <class F>
  static constexpr auto arity() {
    if constexpr (std::is_pointer_v<F>)
      return decltype(arguments_of(F())){};
    else
      return decltype(arguments_of(&F::operator())){};
  }
  template <class G, std::size_t... k>
  static std::function<Leaves()> called(G g, Leaves values, std::index_sequence<k...>) {
    return [g, values] { return leaves(g(values[k]...)); };
  }
  WideRow& add(std::string name, std::string args,
               std::function<std::function<Leaves()>(Leaves)> bind) {
    WideRow& row = rows_.emplace_back();
    row.name = std::move(name);
    row.args = std::move(args);
    row.bind = std::move(bind);
    return row;
  }

  std::vector<WideRow> rows_;
};

// "x=4,y=2" as a mesh of the first devices; each text gives one mesh.
const Mesh& mesh_of(const std::string& text);

// The arrays that a row's text describes. They are the same at every call and in every program.
Leaves make_arguments(const std::string& words, const std::string& mesh);

// Some 64 values of each leaf, evenly spread, as doubles.
std::vector<std::vector<double>> sample_of(const Leaves& all);

// One file per family of rows.
void add_elementwise(WideRows& rows);
void add_reductions(WideRows& rows);
void add_products(WideRows& rows);
void add_shapes(WideRows& rows);
void add_gathers(WideRows& rows);
void add_loops(WideRows& rows);
void add_random(WideRows& rows);
void add_training(WideRows& rows);
void add_meshes(WideRows& rows);

}  // namespace shmap::bench
