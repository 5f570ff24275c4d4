// shmap-test: devices
// Variance where it is easily lost: in types written by hand, in values that the library makes
// inside of an op if users must write casts, and in results of an unchecked body.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

Mesh mesh_i() { return make_mesh({4}, {"i"}); }
Mesh mesh_ij() { return make_mesh({4, 2}, {"i", "j"}); }
Array add(Array x, Array y) { return x + y; }

// ---- types written by hand

// The program's type; it is checked on its way.
template <class F, class... A>
std::string type_of(F f, const A&... args) {
  return to_string(typecheck(make_jaxpr(f)(args...)));
}

TEST(WrittenTypes, SeveralAxesAreOneEnvironment) {
  const ShapedArray i({3}, f32, "i"), j({3}, f32, "j"), both({3}, f32, axes("i", "j")),
      swapped({3}, f32, axes("j", "i"));
  EXPECT_EQ(type_of(add, i, j), "(f32[3]{i}, f32[3]{j}) -> (f32[3]{i,j})");
  EXPECT_EQ(type_of(add, both, j), "(f32[3]{i,j}, f32[3]{j}) -> (f32[3]{i,j})");
  EXPECT_EQ(type_of(add, swapped, both), "(f32[3]{j,i}, f32[3]{j,i}) -> (f32[3]{j,i})");
  EXPECT_EQ(type_of([](Array x, Array y) { return psum(x * y, "j"); }, i, j),
            "(f32[3]{i}, f32[3]{j}) -> (f32[3]{i})");
  const std::string text = to_string(make_jaxpr(add)(both, j));
  EXPECT_NE(text.find("pbroadcast[axes=('i',)] b"), std::string::npos) << text;
  EXPECT_EQ(text.find("pbroadcast[axes=('j',)]"), std::string::npos) << text;
}

TEST(WrittenTypes, InABodyTheyAreOfItsAxes) {
  std::vector<std::string> seen;
  shard_map(
      [&](Array x) {
        const ShapedArray i({2, 1}, f32, "i"), j({2, 1}, f32, "j");
        const auto sum_j = [](Array a) { return psum(a, "j"); };
        seen = {type_of(sum_j, j), type_of(add, j, i),
                type_of([&](Array a) { return add(sum_j(a), x); }, j)};
        const ClosedJaxpr program = make_jaxpr(add)(j, i);
        seen.push_back(to_string(eval_jaxpr(program, {psum(x, "i"), psum(x, "j")})[0].type()));
        return x;
      },
      mesh_ij(), P("i", "j"), P("i", "j"))(ones({8, 2}));
  EXPECT_EQ(seen, (std::vector<std::string>{"(f32[2,1]{j}) -> (f32[2,1])",
                                            "(f32[2,1]{j}, f32[2,1]{i}) -> (f32[2,1]{i,j})",
                                            "(f32[2,1]{j}) -> (f32[2,1]{i,j})", "f32[2,1]{i,j}"}));
}

TEST(WrittenTypes, AProgramOfOtherAxesRunsInABody) {
  // Loops inside have types of the environment that they were traced in.
  const ShapedArray j({2, 1}, f32, "j");
  const ClosedJaxpr program = make_jaxpr([](Array a) {
    return fori_loop(
        0, 3, [](Array, Array c) { return c + psum(c, "j"); }, a);
  })(j);
  EXPECT_EQ(to_string(typecheck(program)), "(f32[2,1]{j}) -> (f32[2,1]{j})");
  const auto f = shard_map(
      [&](Array x) {
        const Array y = eval_jaxpr(program, {psum(x, "i")})[0];
        EXPECT_EQ(to_string(y.type()), "f32[2,1]{j}");
        return y;
      },
      mesh_ij(), P("i", "j"), P(none, "j"));
  const Array x = ones({8, 2});
  // 4, then three times c + 2 c.
  EXPECT_EQ(f(x).to_vector<float>(), std::vector<float>(4, 108));
  EXPECT_EQ(jit(f)(x).to_vector<float>(), std::vector<float>(4, 108));
}

TEST(WrittenTypes, AxesThatAreNotInScopeAreRefused) {
  shard_map(
      [](Array x) {
        expect_error<TypeError>(
            [] { make_jaxpr([](Array y) { return sin(y); })(ShapedArray({3}, f32, "k")); },
            {"'k'", "('i', 'j')", "unbound axis name"});
        return x;
      },
      mesh_ij(), P("i", "j"), P("i", "j"))(ones({8, 2}));
  expect_error<ValueError>([] { ShapedArray({3}, f32, axes("i", "i")); }, {"'i'", "twice"});
}

// ---- casts that are the user's to write

struct Op {
  const char* name;
  std::function<Array(Array)> f;
  bool has_gradient = true;  // in reverse mode
};

// Values that the library creates inside adapt to the values that they meet, in every mode.
TEST(WithoutCasts, ConstantsOfTheLibraryGoWithWhatTheyMeet) {
  const auto first = [](Array a) { return a[{range(), 0}]; };
  const std::vector<Op> ops = {
      {"sort", [](Array a) { return sort(a); }},
      {"argsort", [](Array a) { return astype(argsort(a), f32) * a; }},
      {"one_hot", [=](Array a) { return one_hot(astype(first(a), i32), 6) * a; }},
      {"x % 2", [](Array a) { return a % 2.f; }},
      {"2 % x", [](Array a) { return 2.f % a; }},
      {"index % 2", [](Array a) { return a * astype(axis_index("i") % 2, f32); }},
      {"floor_divide", [](Array a) { return floor_divide(a, 2) * a; }},
      {"pow", [](Array a) { return pow(a, 3); }},
      {"pad",
       [](Array a) {
         return pad(a, {{1, 0}, {0, 1}}, 0.5f);
       }},
      {"mixed dynamic_slice",
       [=](Array a) {
         return dynamic_slice(a, {argmax(first(a)), 1}, {1, 3});
       }},
      {"dynamic_update_slice",
       [](Array a) {
         return dynamic_update_slice(a, a[{range(0, 1)}], {axis_index("i") % 2, 0});
       }},
      {"dynamic_index_in_dim",
       [](Array a) { return dynamic_index_in_dim(a, axis_index("i") % 2); }},
      {"x[i]", [](Array a) { return a[axis_index("i") % 2]; }},
      {"x[[i, i]]",
       [](Array a) {
         return a[stack({axis_index("i") % 2, 0})];
       }},
      {"take", [=](Array a) { return take(a, astype(first(a), i32) % 2, 0); }},
      {"stack",
       [](Array a) {
         return stack({sum(a), Array(1.f)});
       }},
      {"top_k", [](Array a) { return top_k(a, 2).first; }},
      {"cumsum", [](Array a) { return cumsum(a, 0); }},
      {"cumprod", [](Array a) { return cumprod(a, 1); }},
      {"var", [](Array a) { return var(a, 0); }},
      {"prod", [](Array a) { return prod(a, 1); }},
      {"max", [](Array a) { return max(a, 1); }},
      {"where", [](Array a) { return where(a > 0, a, 0.f); }},
      {"where of numbers", [](Array a) { return where(a > 0, 1.f, 0.f) * a; }},
      {"clip", [](Array a) { return clip(a, 0, 1); }},
      {"softmax", [](Array a) { return softmax(a, 1); }},
      {"logsumexp", [](Array a) { return logsumexp(a); }},
      {"gelu", [](Array a) { return gelu(a); }},
      {"zeros_like", [](Array a) { return a + zeros_like(a) + full_like(a, 2.f); }},
      {"cond",
       [](Array a) {
         return cond(
             psum(sum(a), "i") > 0, [](Array b) { return b % 2.f; }, [](Array b) { return b; }, a);
       }},
      {"scan",
       [](Array a) {
         return scan(
                    [](Array c, Array e) {
                      return std::pair{c + e % 2.f, sort(c)};
                    },
                    zeros_like(a[0]), a)
             .second;
       }},
      {"while_loop",
       [](Array a) {
         return while_loop([](Array c) { return psum(sum(c), "i") < 10; },
                           [](Array c) { return c + 1 + floor_divide(abs(c), 7); }, a);
       },
       false},
      {"checkpoint", [](Array a) { return checkpoint([](Array b) { return sort(b) % 2.f; })(a); }},
      {"psum_scatter",
       [](Array a) {
         return psum_scatter(all_gather(a, "i", {.tiled = true}), "i", {.tiled = true});
       }},
      {"pscatter",
       [](Array a) {
         return pscatter(all_gather_invariant(a, "i", {.tiled = true}), "i", {.tiled = true});
       }},
      {"ragged_all_to_all",
       [](Array a) {
         const Array at = pvary(zeros({8}, i32), "i"), size = at + 1;
         const Array few = ragged_all_to_all(a, a * 2.f, at, size, at, size, "i");
         return few * ragged_all_to_all(concatenate({a, sin(a)}), a, size, size, at, size, "i");
       }},
      {"pmax", [](Array a) { return a - pbroadcast(pmax(a, "i"), "i"); }},
      {"custom_vjp", [](Array a) {
         return custom_vjp([](Array x) { return sin(x); },
                           [](Array x) {
                             return std::pair{sin(x), x};
                           },
                           [](Array x, Array y_bar) { return std::tuple{x % 2.f * y_bar}; })(a);
       }}};
  const Array x = reshape(sin(arange(48) + 1.f), {8, 6});
  for (const Op& op : ops) {
    SCOPED_TRACE(op.name);
    const auto mapped = [&](bool casts) {
      return shard_map([f = op.f](Array a) { return astype(f(a), f32)[none]; }, mesh_i(), P("i"),
                       P("i"), {.auto_pbroadcast = casts});
    };
    const auto loss = [&](bool casts) {
      return [f = mapped(casts)](Array a) { return sum(f(a) * f(a)); };
    };
    const auto same = [&](const char* mode, auto run) {
      try {
        EXPECT_EQ(run(false).template to_vector<float>(), run(true).template to_vector<float>())
            << mode;
      } catch (const std::exception& e) {
        ADD_FAILURE() << mode << ": " << e.what();
      }
    };
    same("eager", [&](bool casts) { return mapped(casts)(x); });
    same("jit", [&](bool casts) { return jit(mapped(casts))(x); });
    same("vmap", [&](bool casts) { return vmap(mapped(casts))(stack({x, cos(x)})); });
    if (std::string(op.name) != "custom_vjp") {
      same("jvp",
           [&](bool casts) { return jvp(loss(casts), std::tuple{x}, std::tuple{cos(x)}).second; });
    }
    same("grad", [&](bool casts) {
      typecheck(make_jaxpr(loss(casts))(x));
      return op.has_gradient ? grad(loss(casts))(x) : x;
    });
    same("jit of grad",
         [&](bool casts) { return op.has_gradient ? jit(grad(loss(casts)))(x) : x; });
  }
}

TEST(WithoutCasts, WhatTheUserMixesIsRefusedByName) {
  struct Mix {
    const char* name;
    const char* operand;  // the one to cast
    std::function<Array(Array, Array)> f;
  };
  // a varies, b does not.
  const std::vector<Mix> mixes = {
      {"add", "operand 1", [](Array a, Array b) { return a + b; }},
      {"mul", "operand 0", [](Array a, Array b) { return b * a; }},
      {"add", "operand 1", [](Array a, Array) { return a + arange(6); }},
      {"remainder", "operand 1", [](Array a, Array b) { return a % b; }},
      {"floor_divide", "operand 0", [](Array a, Array b) { return floor_divide(b, a); }},
      {"maximum", "operand 1", [](Array a, Array b) { return maximum(a, b); }},
      {"where", "operand 0", [](Array a, Array b) { return where(b > 0, a, 0.f); }},
      {"clip", "operand 2", [](Array a, Array b) { return clip(a, 0, b); }},
      {"matmul", "operand 0", [](Array a, Array b) { return matmul(b, transpose(a)); }},
      {"einsum", "operand 1", [](Array a, Array b) { return einsum("ij,ij->i", a, b); }},
      {"stack", "operand 0 with pbroadcast(x, 'i') and operand 2",
       [](Array a, Array b) {
         return stack({b, a, b});
       }},
      {"take", "operand 1", [](Array a, Array b) { return take(a, astype(b[0], i32), 0); }},
      {"x[...]", "operand 1", [](Array a, Array b) { return a[astype(b[0], i32)]; }},
      {"layer_norm", "operand 1", [](Array a, Array b) { return layer_norm(a, b[0], a[0], 1e-5); }},
      {"rms_norm", "operand 1", [](Array a, Array b) { return rms_norm(a, b[0], 1e-5); }}};
  for (const Mix& mix : mixes) {
    SCOPED_TRACE(mix.name);
    const auto f = [&](bool casts) {
      return shard_map([g = mix.f](Array a, Array b) { return g(a, b)[none]; }, mesh_i(),
                       {P("i"), P()}, P("i"), {.auto_pbroadcast = casts});
    };
    const Array x = reshape(sin(arange(48)), {8, 6}), y = ones({2, 6});
    EXPECT_NO_THROW(f(true)(x, y));
    const auto refused = [&](auto run) {
      expect_error<TypeError>(run, {mix.name, "]{i}", mix.operand, "pbroadcast(x, 'i')",
                                    "varying axes to match", "variance_test.cpp:"});
    };
    refused([&] { f(false)(x, y); });
    refused([&] { jit(f(false))(x, y); });
    refused([&] { vmap(f(false), {0, none})(stack({x, x}), y); });
    refused([&] { grad([&](Array a) { return sum(f(false)(a, y)); })(x); });
  }
  // A user's rules are user code, wherever they are called from.
  const auto rule = shard_map(
      [](Array a) {
        const auto f = custom_jvp([](Array x) { return sin(x); },
                                  [](std::tuple<Array> p, std::tuple<Array> t) {
                                    const Array x = std::get<0>(p);
                                    return std::pair{sin(x), arange(6) * std::get<0>(t)};
                                  });
        return f(a);
      },
      mesh_i(), P("i"), P("i"), {.auto_pbroadcast = false});
  const Array x = ones({8, 6});
  const auto loss = [&](Array a) { return sum(rule(a)); };
  expect_error<TypeError>([&] { grad(loss)(x); }, {"mul", "operand 0", "pbroadcast"});
  expect_error<TypeError>([&] { jit(grad(loss))(x); }, {"mul", "operand 0", "pbroadcast"});
}

// ---- constants like a value

TEST(ConstantsLike, VaryAsTheValueDoes) {
  std::vector<std::string> types;
  shard_map(
      [&](Array x) {
        const Array y = psum(x, "j");
        for (const Array& z : {zeros_like(x), ones_like(y), full_like(sum(y), 2.f), zeros({2})})
          types.push_back(to_string(z.type()));
        return x;
      },
      mesh_ij(), P("i", "j"), P("i", "j"))(ones({8, 2}));
  EXPECT_EQ(types,
            (std::vector<std::string>{"f32[2,1]{i,j}", "f32[2,1]{i}", "f32[]{i}", "f32[2]"}));
}

// ---- results of unchecked bodies

// Results of such a body under a spec that leaves an axis out are equal over it because the user
// says so, whatever their types say: also if more of the program comes after it.
TEST(UncheckedResults, GoOnAsTheirSpecSays) {
  const auto f = shard_map([](Array x) { return all_gather(x, "i", {.tiled = true}) * 0.5f; },
                           mesh_i(), P("i"), P(), {.check_vma = false});
  const auto twice = [](Array c) { return c * 2.f; };
  const auto plus = [](Array c, Array y) { return std::pair{c + y, y}; };
  const std::vector<std::pair<const char*, std::function<Array(Array)>>> programs = {
      {"inner jit", [=](Array x) { return jit(twice)(f(x)); }},
      {"cond's operand", [=](Array x) { return cond(sum(x) > 1.f, twice, twice, f(x)); }},
      {"cond's branch", [=](Array x) { return cond(sum(x) > 1.f, f, twice, x); }},
      {"cond's predicate", [=](Array x) { return cond(sum(f(x)) > 1.f, twice, f, x); }},
      {"switch_",
       [=](Array x) {
         return switch_(astype(f(x)[1], i32), std::tuple{f, twice}, x);
       }},
      {"scan's init", [=](Array x) { return scan(plus, f(x), ones({3})).first; }},
      {"scan's xs", [=](Array x) { return scan(plus, zeros({}), f(x)).second; }},
      {"scan's closure",
       [=](Array x) {
         const Array y = f(x);
         return scan(
                    [=](Array c, Array z) {
                      return std::pair{c + y, z};
                    },
                    zeros({8}), ones({3}))
             .first;
       }},
      {"scan's body",
       [=](Array x) {
         return scan([=](Array c, Array z) { return std::pair{f(c), z}; }, x, ones({3})).first;
       }},
      {"fori_loop's body",
       [=](Array x) {
         return fori_loop(
             0, 3, [=](Array, Array c) { return f(c); }, x);
       }},
      {"a long fori_loop's body",
       [=](Array x) {
         return fori_loop(
             0, 300, [=](Array, Array c) { return f(c) + 1.f; }, x);
       }},
      {"checkpoint", [=](Array x) { return checkpoint([](Array c) { return sin(c); })(f(x)); }},
      {"vmap",
       [=](Array x) {
         return vmap(f)(stack({x, x}));
       }},
      {"second shard_map", [=](Array x) {
         return shard_map([](Array y) { return psum(y * y, "i"); }, mesh_i(), P("i"), P())(f(x));
       }}};
  const Array x = arange(8);
  for (const auto& [name, program] : programs) {
    SCOPED_TRACE(name);
    const auto g = [p = program](Array a) { return p(a); };
    const auto loss = [g](Array a) { return sum(sin(g(a))); };
    const auto jitted = jit(g);
    const std::vector<float> want = g(x).to_vector<float>();
    for (int call = 0; call < 3; ++call) EXPECT_EQ(jitted(x).to_vector<float>(), want);
    EXPECT_EQ(jit(grad(loss))(x).to_vector<float>(), grad(loss)(x).to_vector<float>());
  }
  const auto loop = [=](Array x) {
    return while_loop([](Array c) { return max(c) > 1.f; }, [=](Array c) { return f(c); }, f(x));
  };
  EXPECT_EQ(jit(loop)(x).to_vector<float>(), loop(x).to_vector<float>());
}

}  // namespace
}  // namespace shmap
