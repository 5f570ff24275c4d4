// custom_jvp and custom_vjp: whose rule is called where, eagerly, staged, mapped and nested, and
// what rules may not return.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using Floats = std::vector<float>;
using A1 = std::tuple<Array>;
using A2 = std::tuple<Array, Array>;

Array vec(std::initializer_list<float> v) {
  return array<float>(Floats(v), {static_cast<std::int64_t>(v.size())});
}
Floats values(const Array& x) { return x.to_vector<float>(); }
float value(const Array& x) { return x.item<float>(); }

// x² with a derivative of 3x, which no other code gives.
Array square_of(Array x) { return x * x; }
auto wrong_jvp() {
  return custom_jvp(square_of, [](A1 primals, A1 tangents) {
    auto [x] = primals;
    auto [t] = tangents;
    return std::pair{x * x, 3.f * x * t};
  });
}
auto wrong_vjp() {
  return custom_vjp(
      square_of,
      [](Array x) {
        return std::pair{x * x, x};
      },
      [](Array x, Array ct) { return std::tuple{3.f * x * ct}; });
}

// ---- custom_jvp

TEST(CustomJvp, ItsRuleIsTheDerivative) {
  const auto f = wrong_jvp();
  EXPECT_EQ(value(f(2.f)), 4.f);
  EXPECT_EQ(value(jvp(f, std::tuple{2.f}, std::tuple{1.f}).second), 6.f);
  EXPECT_EQ(value(grad(f)(2.f)), 6.f);
  EXPECT_EQ(value(linearize(f, 2.f).second(10.f)), 60.f);
  EXPECT_EQ(value(grad(grad(f))(2.f)), 3.f);  // of the rule's code
  EXPECT_EQ(value(jacfwd(f)(2.f)), 6.f);
}

TEST(CustomJvp, StaysUnderTracesInEveryOrder) {
  const auto f = wrong_jvp();
  EXPECT_EQ(value(jit(grad(f))(2.f)), 6.f);
  EXPECT_EQ(value(grad(jit(f))(2.f)), 6.f);
  EXPECT_EQ(value(jit(grad(jit(f)))(2.f)), 6.f);
  EXPECT_EQ(value(grad(grad(jit(f)))(2.f)), 3.f);
  EXPECT_EQ(value(jit(f)(3.f)), 9.f);
  EXPECT_EQ(values(vmap(grad(f))(vec({1, 2}))), (Floats{3, 6}));
  EXPECT_EQ(values(grad([&](Array x) { return sum(vmap(f)(x)); })(vec({1, 2}))), (Floats{3, 6}));
  EXPECT_EQ(values(jit(grad([&](Array x) { return sum(vmap(jit(f))(x)); }))(vec({1, 2}))),
            (Floats{3, 6}));
  EXPECT_EQ(values(grad([&](Array x) { return sum(jit(vmap(f))(x)); })(vec({1, 2}))),
            (Floats{3, 6}));
}

TEST(CustomJvp, IsAnEquation) {
  const std::string text = to_string(make_jaxpr(wrong_jvp())(ShapedArray({}, f32)));
  EXPECT_NE(text.find("custom_jvp_call["), std::string::npos) << text;
  EXPECT_NE(text.find("mul"), std::string::npos) << text;
  EXPECT_EQ(value(eval_jaxpr(make_jaxpr(wrong_jvp())(2.f), {3.f})[0]), 9.f);
}

TEST(CustomJvp, RunsEagerly) {
  // Host control flow in the function, and in the rule on the primal.
  std::vector<float> seen;
  const auto f = custom_jvp([](Array x) { return x > 0 ? x : -x; },
                            [&](A1 primals, A1 tangents) {
                              auto [x] = primals;
                              auto [t] = tangents;
                              seen.push_back(x.item<float>());
                              return x > 0 ? std::pair{x, t} : std::pair{-x, 7.f * t};
                            });
  EXPECT_EQ(value(f(-2.f)), 2.f);
  EXPECT_EQ(value(grad(f)(-2.f)), 7.f);
  EXPECT_EQ(value(grad(f)(3.f)), 1.f);
  EXPECT_EQ(seen, (std::vector<float>{-2, 3}));
  // If nothing is differentiated, the function itself is called.
  grad([&](Array x) { return x * f(-4.f); })(1.f);
  EXPECT_EQ(seen.size(), 2u);
}

TEST(CustomJvp, SeveralArgumentsTreesAndIntegers) {
  using Map = std::map<std::string, Array>;
  const auto f = custom_jvp(
      [](Map p, Array n) {
        return std::pair{p["a"] * p["b"], n + 1};
      },
      [](std::tuple<Map, Array> primals, std::tuple<Map, Array> tangents) {
        auto [p, n] = primals;
        auto [t, n_dot] = tangents;
        EXPECT_EQ(n_dot.dtype(), i32);
        return std::pair{std::pair{p["a"] * p["b"], n + 1},
                         std::pair{10.f * t["a"] + 100.f * t["b"], n_dot}};
      });
  const auto loss = [&](Map p, Array n) { return f(p, n).first; };
  const Map g = grad(loss)(Map{{"a", 2.f}, {"b", 3.f}}, 1);
  EXPECT_EQ(value(g.at("a")), 10.f);
  EXPECT_EQ(value(g.at("b")), 100.f);
  auto [y, y_dot] = jvp(f, std::tuple{Map{{"a", 2.f}, {"b", 3.f}}, 1},
                        std::tuple{Map{{"a", 1.f}, {"b", 0.f}}, none});
  EXPECT_EQ(value(y.first), 6.f);
  EXPECT_EQ(value(y_dot.first), 10.f);
  EXPECT_EQ(y_dot.second.item<std::int32_t>(), 0);
}

TEST(CustomJvp, WorksInAMappedBody) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto f = wrong_jvp();
  const auto g = shard_map([&](Array s, Array block) { return psum(sum(f(s) * block), "i"); }, mesh,
                           {P(), P("i")}, P());
  const Array x = arange(8);
  EXPECT_EQ(value(grad(g)(2.f, x)), 6.f * 28);
  EXPECT_EQ(value(jit(grad(g))(2.f, x)), 6.f * 28);
  EXPECT_EQ(value(grad(jit(g))(2.f, x)), 6.f * 28);
}

TEST(CustomJvp, ItsResultIsChecked) {
  const auto with = [](auto rule) { return custom_jvp([](Array x) { return x * 2; }, rule); };
  const auto run = [](const auto& f) { jvp(f, std::tuple{vec({1, 2})}, std::tuple{vec({1, 1})}); };
  expect_error<TypeError>(
      [&] {
        run(with([](A1 p, A1) { return std::pair{std::get<0>(p), vec({1, 2, 3})}; }));
      },
      {"custom_jvp: the rule's y_dot has type f32[3]", "f32[2]", "custom_rules_test.cpp"});
  expect_error<TypeError>(
      [&] {
        run(with([](A1 p, A1 t) {
          return std::pair{std::get<0>(p), astype(std::get<0>(t), f64)};
        }));
      },
      {"custom_jvp: the rule's y_dot has type f64[2]", "f32[2]", "astype"});
  expect_error<TypeError>(
      [&] {
        run(custom_jvp(
            [](Array x) {
              return std::vector{x, x};
            },
            [](A1 p, A1 t) {
              return std::pair{std::vector{std::get<0>(p), std::get<0>(p)},
                               std::vector{std::get<0>(t)}};
            }));
      },
      {"custom_jvp: the rule's y_dot has the structure [*]", "[*, *]"});
  // Staged, the function's type is known: y has to have it.
  expect_error<TypeError>(
      [&] {
        run(jit(with([](A1, A1 t) { return std::pair{vec({1, 2, 3}), std::get<0>(t)}; })));
      },
      {"custom_jvp: the rule's y has type f32[3]", "f32[2]"});
  expect_error<TypeError>(
      [&] {
        grad([&](Array x) {
          return sum(with([](A1, A1 t) { return std::pair{std::get<0>(t), std::get<0>(t)}; })(x));
        })(vec({1, 2}));
      },
      {"custom_jvp: the rule's y", "computed from the tangents"});
}

// A tangent that is the same whatever the tangents are is that of a constant.
TEST(CustomJvp, AConstantTangentIsZeroToWhatComesAfter) {
  const auto f = custom_jvp([](Array x) { return round(x); },
                            [](A1 p, A1) {
                              const Array x = std::get<0>(p);
                              return std::pair{round(x), zeros_like(x)};
                            });
  const auto g = custom_vjp([](Array x) { return sin(x); },
                            [](Array x) {
                              return std::pair{sin(x), x};
                            },
                            [](Array x, Array ct) { return std::tuple{ct * cos(x)}; });
  const auto c = checkpoint([](Array x) { return sin(x); });
  // The gradient is that of the x beside it.
  const std::vector<std::pair<const char*, std::function<Array(Array)>>> programs = {
      {"custom_vjp", [=](Array x) { return g(f(x)) + x; }},
      {"custom_vjp under jit", [=](Array x) { return jit(g)(f(x)) + x; }},
      {"custom_vjp of custom_vjp", [=](Array x) { return g(g(f(x))) + x; }},
      {"checkpoint", [=](Array x) { return c(f(x)) + x; }},
      {"checkpoint of custom_vjp", [=](Array x) { return checkpoint(g)(f(x)) + x; }},
      {"sin", [=](Array x) { return sin(f(x)) + x; }},
      {"scan",
       [=](Array x) {
         return scan(
                    [=](Array s, Array y) {
                      return std::pair{g(s), y};
                    },
                    f(x), ones({2}))
                    .first +
                x;
       }},
      {"cond",
       [=](Array x) {
         return cond(
                    x > 0.f, [=](Array s) { return g(s); }, [](Array s) { return s; }, f(x)) +
                x;
       }},
      {"fori_loop", [=](Array x) {
         return fori_loop(
                    0, 2, [=](Array, Array s) { return g(s); }, f(x)) +
                x;
       }}};
  const Mesh mesh = make_mesh({2}, {"i"});
  for (const auto& [name, program] : programs) {
    SCOPED_TRACE(name);
    const auto one = [p = program](Array x) { return p(x); };
    EXPECT_EQ(value(grad(one)(1.3f)), 1.f);
    EXPECT_EQ(value(jit(grad(one))(1.3f)), 1.f);
    EXPECT_EQ(values(vmap(grad(one))(vec({1.3f, 2.f}))), (Floats{1, 1}));
    const auto mapped =
        shard_map([=](Array x) { return psum(sum(vmap(one)(x)), "i"); }, mesh, P("i"), P());
    EXPECT_EQ(values(grad(mapped)(vec({1.3f, 2.f}))), (Floats{1, 1}));
    EXPECT_EQ(values(jit(grad(mapped))(vec({1.3f, 2.f}))), (Floats{1, 1}));
  }
  EXPECT_EQ(value(grad([=](Array x) { return g(f(x)); })(1.3f)), 0.f);
  EXPECT_EQ(value(linearize(f, 1.3f).second(7.f)), 0.f);
}

TEST(CustomJvp, MayNotCloseOverWhatIsDifferentiated) {
  const auto f = [](Array x) {
    return jit([&](Array one) {
      const auto g = custom_jvp([&](Array y) { return x * y; },
                                [](A1 p, A1 t) {
                                  return std::pair{std::get<0>(p), std::get<0>(t)};
                                });
      return g(one);
    })(x);
  };
  expect_error<TypeError>([&] { grad(f)(2.f); },
                          {"custom_jvp", "closes over", "argument", "in the custom_jvp made at"});
}

// Called eagerly under a derivative, with an argument that is differentiated too or not; and by
// jit.
TEST(CustomRules, MayNotCloseOverTracedValues) {
  const auto vjp_of = [](Array w, Array x) {
    return custom_vjp([&](Array y) { return y * w; },
                      [&](Array y) {
                        return std::pair{y * w, none};
                      },
                      [&](none_t, Array c) { return std::tuple{c * w}; })(x);
  };
  const auto jvp_of = [](Array w, Array x) {
    return custom_jvp([&](Array y) { return y * w; },
                      [&](A1 y, A1 t) {
                        return std::pair{std::get<0>(y) * w, std::get<0>(t) * w};
                      })(x);
  };
  const auto vjp_names = {"custom_vjp closes over", "one more argument",
                          "in the custom_vjp made at", "custom_rules_test.cpp:"};
  const auto jvp_names = {"custom_jvp closes over", "one more argument",
                          "in the custom_jvp made at", "custom_rules_test.cpp:"};
  expect_error<TypeError>([&] { grad([&](Array w) { return vjp_of(w, 3.f); })(2.f); }, vjp_names);
  expect_error<TypeError>([&] { grad([&](Array w) { return vjp_of(w, w * w); })(2.f); }, vjp_names);
  expect_error<TypeError>([&] { grad([&](Array w) { return jvp_of(w, w * w); })(2.f); }, jvp_names);
  expect_error<TypeError>(
      [&] {
        vmap([&](Array w) { return vjp_of(w, 3.f); })(vec({1, 2}));
      },
      vjp_names);
  const auto f = [&](Array w) { return vjp_of(w, w * w); };
  expect_error<TypeError>([&] { jit(grad(f))(2.f); }, {"closes over", "argument"});
}

// ---- custom_vjp

TEST(CustomVjp, ItsRuleIsTheTranspose) {
  const auto f = wrong_vjp();
  EXPECT_EQ(value(f(2.f)), 4.f);
  EXPECT_EQ(value(grad(f)(2.f)), 6.f);
  EXPECT_EQ(value(grad(grad(f))(2.f)), 3.f);
  EXPECT_EQ(value(jacrev(f)(2.f)), 6.f);
  auto [y, g] = value_and_grad(f)(3.f);
  EXPECT_EQ(value(y), 9.f);
  EXPECT_EQ(value(g), 9.f);
  auto [z, z_dot] = jvp(grad(f), std::tuple{2.f}, std::tuple{1.f});
  EXPECT_EQ(value(z_dot), 3.f);
}

TEST(CustomVjp, StaysUnderTracesInEveryOrder) {
  const auto f = wrong_vjp();
  EXPECT_EQ(value(jit(grad(f))(2.f)), 6.f);
  EXPECT_EQ(value(grad(jit(f))(2.f)), 6.f);
  EXPECT_EQ(value(jit(grad(jit(f)))(2.f)), 6.f);
  EXPECT_EQ(value(grad(grad(jit(f)))(2.f)), 3.f);
  EXPECT_EQ(value(grad(jit(grad(jit(f))))(2.f)), 3.f);
  EXPECT_EQ(value(jit(f)(3.f)), 9.f);
  EXPECT_EQ(values(vmap(grad(f))(vec({1, 2}))), (Floats{3, 6}));
  EXPECT_EQ(values(grad([&](Array x) { return sum(vmap(f)(x)); })(vec({1, 2}))), (Floats{3, 6}));
  EXPECT_EQ(values(grad([&](Array x) { return sum(jit(vmap(f))(x)); })(vec({1, 2}))),
            (Floats{3, 6}));
  EXPECT_EQ(values(grad([&](Array x) { return sum(vmap(jit(f))(x)); })(vec({1, 2}))),
            (Floats{3, 6}));
  const std::string text = to_string(make_jaxpr(f)(ShapedArray({}, f32)));
  EXPECT_NE(text.find("custom_vjp_call["), std::string::npos) << text;
}

TEST(CustomVjp, AnArgumentThatIsOneForAllGetsTheSum) {
  const auto f = custom_vjp([](Array x, Array w) { return x * w; },
                            [](Array x, Array w) {
                              return std::pair{x * w, std::tuple{x, w}};
                            },
                            [](A2 saved, Array ct) {
                              auto [x, w] = saved;
                              return std::tuple{w * ct, 10.f * x * ct};
                            });
  const auto loss = [&](Array x, Array w) { return sum(vmap(f, {0, none})(x, w)); };
  auto [x_bar, w_bar] = grad<0, 1>(loss)(vec({1, 2, 3}), 5.f);
  EXPECT_EQ(values(x_bar), (Floats{5, 5, 5}));
  EXPECT_EQ(value(w_bar), 60.f);
}

TEST(CustomVjp, AMaskThatIsOneForAllGetsNoSum) {
  const auto masked = [](Array x, Array m) { return where(m, x, 0.f); };
  const auto f = custom_vjp(
      masked,
      [&](Array x, Array m) {
        return std::pair{masked(x, m), m};
      },
      [&](Array m, Array ct) {
        return std::tuple{masked(3.f * ct, m), zeros_like(m)};
      });
  const Array mask = array<bool>({true, false}, {2});
  const auto loss = [&](Array x) { return sum(vmap(f, {0, none})(x, mask)); };
  EXPECT_EQ(values(grad(loss)(ones({3, 2}))), (Floats{3, 0, 3, 0, 3, 0}));
  EXPECT_EQ(grad(loss)(ones({0, 2})).shape(), Shape({0, 2}));
}

// The programs that derivatives and calls are made of end with the functions.
TEST(CustomVjp, WhatItsRulesCaptureIsReleased) {
  std::weak_ptr<int> seen;
  {
    const auto captured = std::make_shared<int>(3);
    seen = captured;
    const auto f =
        custom_vjp([captured](Array x) { return x * x; },
                   [captured](Array x) {
                     return std::pair{x * x, x};
                   },
                   [captured](Array x, Array ct) { return std::tuple{float(*captured) * x * ct}; });
    const auto loss = jit([f](Array x) { return sum(f(x)); });
    const Array x = vec({1, 2});
    for (int call = 0; call < 2; ++call) {
      EXPECT_EQ(values(grad(loss)(x)), (Floats{3, 6}));
      EXPECT_EQ(values(jit(grad(loss))(x)), (Floats{3, 6}));
      EXPECT_EQ(values(vmap(jit(f))(x)), (Floats{1, 4}));
      EXPECT_EQ(values(grad([&](Array a) { return sum(vmap(jit(f))(a)); })(x)), (Floats{3, 6}));
    }
  }
  EXPECT_TRUE(seen.expired());
}

TEST(CustomVjp, ResidualsOfAnyTreeAndNoneForZero) {
  struct Saved {
    std::vector<Array> arrays;
    int power = 0;
  };
  const auto f = custom_vjp(
      [](Array x, Array w, Array) {
        return std::tuple{x * w, w};
      },
      [](Array x, Array w, Array) {
        return std::pair{std::tuple{x * w, w}, Saved{{x, w}, 2}};
      },
      [](Saved saved, A2 ct) {
        EXPECT_EQ(saved.power, 2);
        auto [a, b] = ct;
        return std::tuple{saved.arrays[1] * a + b, none, none};
      });
  auto [y, pullback] = vjp(f, 2.f, 3.f, 4);
  const auto& pull = pullback;
  auto [x_bar, w_bar, n_bar] = pull({10.f, 1.f});
  EXPECT_EQ(value(x_bar), 31.f);
  EXPECT_EQ(value(w_bar), 0.f);
  EXPECT_EQ(n_bar.dtype(), i32);
}

TEST(CustomVjp, RunsEagerly) {
  std::vector<float> seen;
  const auto f = custom_vjp([](Array x) { return x > 0 ? x : -x; },
                            [&](Array x) {
                              seen.push_back(x.item<float>());
                              return std::pair{x > 0 ? x : -x, x};
                            },
                            [&](Array x, Array ct) {
                              seen.push_back(ct.item<float>());
                              return std::tuple{x > 0 ? ct : 7.f * ct};
                            });
  EXPECT_EQ(value(grad([&](Array x) { return f(x) * 2; })(-3.f)), 14.f);
  EXPECT_EQ(seen, (std::vector<float>{-3, 2}));
}

// Forward 2 x, backward 3: value 2 * sum = 12 of the four threes … the sum of 0, 1, 2, 3.
TEST(CustomVjp, InAMappedBody) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto doubled = custom_vjp([](Array x) { return 2 * x; },
                                  [](Array x) {
                                    return std::pair{2 * x, none};
                                  },
                                  [](none_t, Array ct) { return std::tuple{3 * ct}; });
  const auto f = shard_map([&](Array x) { return psum(sum(doubled(x)), "i"); }, mesh, P("i"), P());
  const Array x = arange(4);
  for (const auto& [y, g] :
       {value_and_grad(f)(x), jit(value_and_grad(f))(x), value_and_grad(jit(f))(x)}) {
    EXPECT_EQ(value(y), 12.f);
    EXPECT_EQ(values(g), (Floats{3, 3, 3, 3}));
  }
}

TEST(CustomVjp, CotangentsThatVaryMoreAreRefused) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto with = [&](bool summed) {
    const auto f = custom_vjp([](Array w, Array x) { return w * x; },
                              [](Array w, Array x) {
                                return std::pair{w * x, std::tuple{w, x}};
                              },
                              [=](A2 saved, Array ct) {
                                auto [w, x] = saved;
                                Array w_bar = sum(x * ct);
                                return std::tuple{summed ? psum(w_bar, "i") : w_bar, w * ct};
                              });
    return shard_map([=](Array w, Array x) { return psum(sum(f(w, x)), "i"); }, mesh, {P(), P("i")},
                     P());
  };
  EXPECT_EQ(value(grad(with(true))(2.f, arange(8))), 28.f);
  expect_error<TypeError>([&] { grad(with(false))(2.f, arange(8)); },
                          {"custom_vjp: the second rule's x_bars[0] has type f32[]{i}", "psum"});
}

// JAX: "the manual axis types do not match". A cast made silently would stand for another rule.
TEST(CustomVjp, RulesGiveTheTypesOfTheirFunctions) {
  const Mesh mesh = make_mesh({8}, {"batch"});
  const auto pair_of = [&](bool typed, bool checked) {
    const auto psum_idrev = custom_vjp(
        [](Array x) { return psum(x, "batch"); },
        [](Array x) {
          return std::pair{psum(x, "batch"), none};
        },
        [=](none_t, Array ct) { return std::tuple{typed ? pbroadcast(ct, "batch") : ct}; });
    const auto into = [=](Array x) { return typed ? pbroadcast(x, "batch") : x; };
    const auto id_psumrev = custom_vjp(
        into,
        [=](Array x) {
          return std::pair{into(x), none};
        },
        [](none_t, Array ct) { return std::tuple{psum(ct, "batch")}; });
    return shard_map([=](Array w, Array x) { return psum_idrev(sum(sin(id_psumrev(w) * x))); },
                     mesh, {P(), P("batch")}, P(), {.check_vma = checked});
  };
  const Array x = arange(16) / 7.f, w = 0.5f * ones({});
  const float want = value(grad([&](Array v) { return sum(sin(v * x)); })(w));
  const auto every_mode = [&](auto f, auto check) {
    const auto one = [=](Array v) { return f(v, x); };
    const auto many = [=](Array v) { return sum(vmap(one)(v * ones({3}))); };
    check([=] { return grad(one)(w); }, 1.f);
    check([=] { return jit(grad(one))(w); }, 1.f);
    check([=] { return grad(jit(one))(w); }, 1.f);
    check([=] { return grad(checkpoint(one))(w); }, 1.f);
    check([=] { return vmap(grad(one))(w * ones({2}))[0]; }, 1.f);
    check([=] { return grad(many)(w); }, 3.f);
    check([=] { return jit(grad(many))(w); }, 3.f);
    check(
        [=] {
          return grad([=](Array v) {
            return scan(
                       [=](Array c, none_t) {
                         return std::pair{one(c), none};
                       },
                       v, none, {.length = 1})
                .first;
          })(w);
        },
        1.f);
  };
  const auto right = [&](auto run, float times) {
    EXPECT_NEAR(value(run()), times * want, 1e-4f * times * want);
  };
  every_mode(pair_of(true, true), right);
  every_mode(pair_of(false, false), right);
  every_mode(pair_of(false, true), [](auto run, float) {
    expect_error<TypeError>(run, {"custom_vjp: the second rule's x_bars[0]", "{batch}",
                                  "pbroadcast(x, 'batch')", "custom_rules_test.cpp"});
  });
}

TEST(CustomJvp, TangentsHaveTheTypesOfTheirResults) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto with = [&](auto tangent) {
    const auto f = custom_jvp([](Array x) { return sin(x); },
                              [=](A1 p, A1 t) {
                                auto [x] = p;
                                return std::pair{sin(x), tangent(x, std::get<0>(t))};
                              });
    return shard_map(f, mesh, P("i"), P("i"));
  };
  const auto less = with([](Array, Array t) { return psum(t, "i"); });
  const Array x = arange(8.f);
  const auto loss = [=](Array v) { return sum(less(v)); };
  const auto refused = [](auto run) {
    expect_error<TypeError>(
        run, {"custom_jvp: the rule's y_dot has type f32[2]", "f32[2]{i}", "pbroadcast(x, 'i')"});
  };
  refused([&] { jvp(less, std::tuple{x}, std::tuple{x}); });
  refused([&] { jit([=](Array v) { return jvp(less, std::tuple{v}, std::tuple{v}).second; })(x); });
  refused([&] { grad(loss)(x); });
  refused([&] { jit(grad(loss))(x); });
  refused([&] { grad(jit(loss))(x); });
  refused([&] { vmap(grad(loss))(stack({x, x})); });
  // Constants like a value vary as it does.
  const auto like = with([](Array v, Array) { return zeros_like(v); });
  EXPECT_EQ(values(grad([=](Array v) { return sum(like(v)); })(x)), Floats(8, 0));
}

TEST(CustomVjp, ForwardModeIsRefused) {
  const auto f = wrong_vjp();
  const auto refused = {"custom_vjp", "forward mode", "custom_jvp"};
  expect_error<TypeError>([&] { jvp(f, std::tuple{2.f}, std::tuple{1.f}); }, refused);
  expect_error<TypeError>([&] { jvp(jit(f), std::tuple{2.f}, std::tuple{1.f}); }, refused);
  expect_error<TypeError>([&] { jacfwd(f)(2.f); }, refused);
  expect_error<TypeError>([&] { linearize(f, 2.f).second(1.f); }, refused);
  expect_error<TypeError>([&] { jit([&](Array x) { return linearize(f, x).second(1.f); })(2.f); },
                          refused);
}

TEST(CustomVjp, ItsResultIsChecked) {
  const auto with = [](auto bwd) {
    return custom_vjp([](Array x, std::vector<Array> p) { return sum(x * p[0]); },
                      [](Array x, std::vector<Array> p) {
                        return std::pair{sum(x * p[0]), p};
                      },
                      bwd);
  };
  const auto run = [](const auto& f) { grad<0, 1>(f)(vec({1, 2}), std::vector{vec({3, 4})}); };
  using V = std::vector<Array>;
  expect_error<TypeError>(
      [&] {
        run(with([](V p, Array ct) { return std::tuple{ct, V{p[0]}}; }));
      },
      {"custom_vjp: the second rule's x_bars[0] has type f32[]", "and args[0] has type f32[2]"});
  expect_error<TypeError>(
      [&] {
        run(with([](V p, Array) { return std::tuple{p[0], V{p[0], p[0]}}; }));
      },
      {"custom_vjp: the second rule's x_bars has the structure [*, [*, *]]", "[*, [*]]"});
  expect_error<TypeError>(
      [&] {
        run(with([](V p, Array) { return std::tuple{p[0], V{astype(p[0], f64)}}; }));
      },
      {"x_bars[1][0] has type f64[2], and args[1][0] has type f32[2]", "f32[2]",
       "custom_rules_test.cpp"});
}

}  // namespace
}  // namespace shmap
