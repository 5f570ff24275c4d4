// shmap-test: devices
// Users' primitives: eagerly, in bodies, in programs, differentiated and mapped, by their own rules
// and kernels; and the errors if one is missing.
#include "shmap/extend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using extend::Arrays;
using extend::ArrayTypes;
using extend::KernelArgs;
using test::expect_error;
using testing::ElementsAre;

Mesh mesh_i() { return make_mesh({8}, {"i"}); }

ShapedArray same(const ShapedArray& a) { return a; }

template <class T>
void mul_add_elements(const KernelArgs& k) {
  const auto at = [&](std::size_t i, std::int64_t e) {
    return k.input<T>(i)[k.in_types[i].dims().num_elements() == 1 ? 0 : e];
  };
  for (std::int64_t e = 0; e < k.out_types[0].dims().num_elements(); ++e)
    k.output<T>()[e] = at(0, e) * at(1, e) + at(2, e);
}

// How errors name a line of this file.
std::string here(int line) { return "extend_primitive_test.cpp:" + std::to_string(line); }

// x y + z by a kernel on the CPU, and by its impl elsewhere.
extend::Primitive mul_add_with_kernel() {
  extend::Primitive p("mul_add");
  p.def_abstract_eval([](ShapedArray a, ShapedArray, ShapedArray) { return a; })
      .def_impl([](Array x, Array y, Array z) { return x * y + z; })
      .def_cpu_kernel([](const KernelArgs& k) {
        k.in_types[0].dtype() == f32 ? mul_add_elements<float>(k)
                                     : mul_add_elements<std::int32_t>(k);
      })
      .def_jvp([p](Arrays x, Arrays dx) {
        return std::pair{p.bind(x[0], x[1], x[2]), dx[0] * x[1] + x[0] * dx[1] + dx[2]};
      })
      .def_batching([p](Arrays x, std::vector<int> dims) {
        for (std::size_t i = 0; i < x.size(); ++i) EXPECT_LE(dims[i], 0);
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (dims[i] < 0) {
            for (std::size_t j = 0; j < x.size(); ++j)
              if (dims[j] >= 0) x[i] = broadcast_to(x[i], x[j].shape());
          }
        }
        return std::pair{p.bind(x[0], x[1], x[2]), 0};
      })
      .def_sharding_rule([](ArrayTypes in, ArrayTypes) {
        const std::string dims =
            std::string("abcdefgh").substr(0, static_cast<std::size_t>(in[0].rank()));
        return dims + "," + dims + "," + dims + "->" + dims;
      });
  return p;
}
// The same of other ops alone.
extend::Primitive mul_add_of_ops() {
  extend::Primitive p("mul_add");
  p.def_impl([](Array x, Array y, Array z) {
     return x * y + z;
   }).def_abstract_eval([](ShapedArray a, ShapedArray, ShapedArray) { return a; });
  return p;
}

class Both : public testing::TestWithParam<bool> {
 protected:
  extend::Primitive mul_add = GetParam() ? mul_add_with_kernel() : mul_add_of_ops();
};
INSTANTIATE_TEST_SUITE_P(ExtendPrimitive, Both, testing::Bool(),
                         [](const auto& info) { return info.param ? "Kernel" : "Impl"; });

TEST_P(Both, RunsOnHostScalars) {
  EXPECT_EQ(mul_add.bind(2, 3, 4).item<std::int32_t>(), 10);
  EXPECT_EQ(mul_add.name(), "mul_add");
}

TEST_P(Both, RunsOnArraysAndUnderJit) {
  const Array x = arange(4) + 1.f, y = full({4}, 2.f), z = full({4}, 0.5f);
  EXPECT_THAT(mul_add.bind(x, y, z).to_vector<float>(), ElementsAre(2.5f, 4.5f, 6.5f, 8.5f));
  const auto f = jit([p = mul_add](Array x, Array y, Array z) { return p.bind(x, y, z) * 2.f; });
  for (int call = 0; call < 3; ++call)
    EXPECT_THAT(f(x, y, z).to_vector<float>(), ElementsAre(5, 9, 13, 17)) << call;
  EXPECT_EQ(jit([p = mul_add](Array x) { return p.bind(x, x, x); })(2).item<std::int32_t>(), 6);
}

TEST_P(Both, StandsInPrograms) {
  const auto program = make_jaxpr([p = mul_add](Array x, Array y) { return p.bind(x, y, 1.f); })(
      zeros({3}), zeros({3}));
  EXPECT_EQ(to_string(program),
            "{ lambda a:f32[3], b:f32[3] .\n  let c:f32[3] = mul_add a b 1.0\n  in ( c ) }");
}

TEST_P(Both, RunsInBodiesAndVariesAsItsOperands) {
  const auto body = [p = mul_add](Array x, Array w) {
    Array y = p.bind(x, w, x);
    EXPECT_EQ(y.vma(), std::vector<std::string>{"i"});
    return psum(y, "i");
  };
  const auto mapped = shard_map(body, mesh_i(), {P("i"), P()}, P());
  const Array x = arange(16) * 1.f, w = full({2}, 3.f);
  EXPECT_THAT(mapped(x, w).to_vector<float>(), ElementsAre(4 * 56, 4 * 64));
  const auto staged = jit(mapped);
  for (int call = 0; call < 3; ++call)
    EXPECT_THAT(staged(x, w).to_vector<float>(), ElementsAre(4 * 56, 4 * 64)) << call;
}

TEST_P(Both, TakesSplitArrays) {
  const NamedSharding rows(mesh_i(), P("i"));
  const Array x = device_put(arange(16) * 1.f, rows);
  const Array y = mul_add.bind(x, x, x);
  for (std::int64_t k = 0; k < 16; ++k)
    EXPECT_EQ(y.to_vector<float>()[static_cast<std::size_t>(k)], static_cast<float>(k * k + k));
  EXPECT_EQ(y.sharding(), rows);
}

TEST(ExtendPrimitive, IsDifferentiatedAndMapped) {
  const extend::Primitive mul_add = mul_add_with_kernel();
  const auto f = [p = mul_add](Array x, Array y) { return sum(p.bind(x, y, x)); };
  const Array x = arange(3) + 1.f, y = arange(3) * 2.f;
  EXPECT_THAT(grad(f)(x, y).to_vector<float>(), ElementsAre(1, 3, 5));
  EXPECT_THAT(grad<1>(f)(x, y).to_vector<float>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(jit(grad(f))(x, y).to_vector<float>(), ElementsAre(1, 3, 5));
  const Array xs = reshape(arange(6) * 1.f, {2, 3});
  EXPECT_THAT(vmap(f, {0, none})(xs, y).to_vector<float>(), ElementsAre(13, 40));
  EXPECT_THAT(vmap(grad(f), {0, none})(xs, y).to_vector<float>(), ElementsAre(1, 3, 5, 1, 3, 5));
}

TEST(ExtendPrimitive, IsTransposedByItsRule) {
  extend::Primitive thrice("thrice");
  thrice.def_abstract_eval(same)
      .def_impl([](Array x) { return x * 3.f; })
      .def_jvp([thrice](Arrays x, Arrays dx) {
        return std::pair{thrice.bind(x[0]), thrice.bind(dx[0])};
      })
      .def_transpose([thrice](Arrays bars, Arrays operands) {
        EXPECT_EQ(operands[0].node(), nullptr);
        return thrice.bind(bars[0]);
      });
  EXPECT_EQ(grad([thrice](Array x) { return thrice.bind(x) * x; })(2.f).item<float>(), 12);
}

TEST(ExtendPrimitive, OfSeveralResults) {
  extend::Primitive both("sum_and_difference");
  both.def_abstract_eval([](ShapedArray a, ShapedArray) {
        return ArrayTypes{a, a};
      })
      .def_impl([](Arrays x) {
        return Arrays{x[0] + x[1], x[0] - x[1]};
      });
  const auto f = [both](Array x, Array y) {
    Arrays out = both.bind_all({x, y});
    return std::pair{out[0], out[1]};
  };
  for (int call = 0; call < 3; ++call) {
    auto [s, d] = call == 0 ? f(5.f, 2.f) : jit(f)(5.f, 2.f);
    EXPECT_EQ(s.item<float>(), 7);
    EXPECT_EQ(d.item<float>(), 3);
  }
  expect_error<TypeError>([&] { both.bind(1, 2); }, {"sum_and_difference", "has 2", "bind_all"});
}

TEST(ExtendPrimitive, SaysWhichRuleIsMissing) {
  const extend::Primitive bare("bare");
  expect_error<TypeError>([&] { bare.bind(1); }, {"bare has no def_abstract_eval"});
  extend::Primitive typed("typed");
  typed.def_abstract_eval(same);
  expect_error<TypeError>([&] { typed.bind(1); }, {"typed has neither a def_impl nor a kernel"});
  extend::Primitive value("value");
  value.def_impl([](Array x) { return x + 1; });
  EXPECT_EQ(value.bind(1).item<std::int32_t>(), 2);
  expect_error<TypeError>([&] { jit([&](Array x) { return value.bind(x); })(1); },
                          {"value has no def_abstract_eval"});
  const extend::Primitive plain = mul_add_of_ops();
  expect_error<TypeError>(
      [&] { grad([&](Array x) { return plain.bind(x, x, x); })(1.f); },
      {"mul_add cannot be differentiated", ".def_jvp", "extend_primitive_test.cpp:"});
  expect_error<TypeError>([&] { vmap([&](Array x) { return plain.bind(x, x, x); })(zeros({2})); },
                          {"mul_add cannot be mapped", ".def_batching"});
  extend::Primitive linear("linear");
  linear.def_abstract_eval(same)
      .def_impl([](Array x) { return x; })
      .def_jvp([linear](Arrays x, Arrays dx) {
        return std::pair{linear.bind(x[0]), linear.bind(dx[0])};
      });
  expect_error<TypeError>([&] { grad([&](Array x) { return linear.bind(x); })(1.f); },
                          {"linear cannot be transposed", ".def_transpose"});
}

// A front end may trace primitives that it cannot run.
TEST(ExtendPrimitive, IsTracedWithoutAnImpl) {
  extend::Primitive typed("typed");
  typed.def_abstract_eval(same);
  const auto f = [typed](Array x) { return typed.bind(x) + 1.f; };
  EXPECT_EQ(
      to_string(make_jaxpr(f)(ShapedArray({3}, f32))),
      "{ lambda a:f32[3] .\n  let b:f32[3] = typed a\n      c:f32[3] = add b 1.0\n  in ( c ) }");
  expect_error<TypeError>([&] { jit(f)(zeros({3})); }, {"typed has neither a def_impl nor a kernel",
                                                        "extend_primitive_test.cpp:"});
  expect_error<TypeError>([&] { f(zeros({3})); }, {"typed has neither a def_impl nor a kernel",
                                                   "extend_primitive_test.cpp:"});
}

// An impl whose results differ from those that def_abstract_eval promises is refused in every mode,
// since the program around it has memory and types for the promised results.
template <class Impl>
void expect_refused(const ShapedArray& promised, Impl impl,
                    std::initializer_list<const char*> fragments) {
  extend::Primitive bad("bad");
  bad.def_abstract_eval([promised](ShapedArray) { return promised; }).def_impl(impl);
  const auto f = [bad](Array x) { return bad.bind(x); };
  const auto after = [bad](Array x) { return sum(astype(bad.bind(x), f32)) + 1.f; };
  const Array x = arange(3), many = arange(24);
  expect_error<TypeError>([&] { f(x); }, fragments);
  for (int call = 0; call < 3; ++call) {
    expect_error<TypeError>([&] { jit(f)(x); }, fragments);
    expect_error<TypeError>([&] { jit(after)(x); }, fragments);
  }
  const NamedSharding rows(mesh_i(), P("i"));
  expect_error<TypeError>([&] { jit(after)(device_put(many, rows)); }, {"bad"});
  const auto mapped = shard_map(after, mesh_i(), P("i"), P(), {.check_vma = false});
  expect_error<TypeError>([&] { mapped(many); }, fragments);
  expect_error<TypeError>([&] { jit(mapped)(many); }, fragments);
  const auto loop = [after](Array x) {
    return fori_loop(
        0, 1000, [&](Array, Array c) { return c + after(x); }, Array(0.f));
  };
  expect_error<TypeError>([&] { loop(x); }, fragments);
  expect_error<TypeError>([&] { jit(loop)(x); }, fragments);
}

TEST(ExtendPrimitive, ItsImplGivesWhatWasPromised) {
  const auto twice = [](Array x) { return x * 2.f; };
  expect_refused(ShapedArray({7}, f32), twice,
                 {"bad: result 0 of its def_impl has type f32[3]", "promised f32[7]",
                  "extend_primitive_test.cpp:"});
  expect_refused(ShapedArray({1 << 27}, f32), twice, {"bad", "def_impl", "f32[134217728]"});
  expect_refused(ShapedArray({3}, f64), twice, {"bad", "def_impl", "f32[3]", "promised f64[3]"});
  expect_refused(ShapedArray({3}, f32),
                 [](Arrays x) {
                   return Arrays{x[0], x[0]};
                 },
                 {"bad: its def_impl gave 2 results", "promised 1"});
}

TEST(ExtendPrimitive, ItsImplVariesAsItsOperands) {
  extend::Primitive rank("rank"), total("total");
  rank.def_abstract_eval([](ShapedArray a) { return a; }).def_impl([](Array x) {
    return x + astype(axis_index("i"), f32);
  });
  total.def_abstract_eval(same).def_impl([](Array x) { return psum(x, "i"); });
  const auto of_whole =
      shard_map([rank](Array x) { return rank.bind(x); }, mesh_i(), P(), P(), {.check_vma = false});
  const auto of_blocks = shard_map(
      [total](Array x) {
        const Array y = total.bind(x);
        EXPECT_EQ(y.vma(),
                  std::vector<std::string>{"i"});  // as a primitive without a variance rule
        return y;
      },
      mesh_i(), P("i"), P("i"));
  for (int call = 0; call < 3; ++call) {
    const std::initializer_list<const char*> wanted = {"rank: result 0", "f32[2]{i}",
                                                       "no operand varies", "pbroadcast"};
    expect_error<TypeError>([&] { of_whole(zeros({2})); }, wanted);
    expect_error<TypeError>([&] { jit(of_whole)(zeros({2})); }, wanted);
    EXPECT_EQ(of_blocks(arange(8)).to_vector<float>(), std::vector<float>(8, 28.f));
    EXPECT_EQ(jit(of_blocks)(arange(8)).to_vector<float>(), std::vector<float>(8, 28.f));
  }
}

// A function under jit whose body, or loop in the body, runs an impl that waits for another thread,
// which calls the same function. (Where that thread cannot go on, the impl gives it up, so that the
// test ends.)
TEST(ExtendPrimitive, ItsImplMayWaitForACallOfTheFunctionThatRunsIt) {
  for (const bool in_loop : {false, true}) {
    SCOPED_TRACE(in_loop ? "in a loop" : "in the body");
    std::atomic<bool> waits{false};
    std::function<void()> call;
    std::future<void> called;
    std::future_status status = std::future_status::deferred;
    extend::Primitive p(in_loop ? "waits_in_loop" : "waits");
    p.def_abstract_eval(same).def_impl([&](Array x) {
      if (waits.exchange(false)) {
        called = std::async(std::launch::async, call);
        status = called.wait_for(std::chrono::seconds(20));
      }
      return x * 2.f;
    });
    const auto f = jit(shard_map(
        [&](Array b) {
          if (!in_loop) return p.bind(b) + 1.f;
          return fori_loop(
              0, 2, [&](Array, Array v) { return p.bind(v) + 1.f; }, b);
        },
        mesh_i(), P("i"), P("i")));
    const float at_2 = in_loop ? 11 : 5;
    const Array x = full({8}, 2.f);
    std::vector<float> other;
    call = [&] { other = f(full({8}, 2.f)).to_vector<float>(); };
    for (int turn = 0; turn < 4; ++turn) {
      waits = true;
      EXPECT_EQ(f(x).to_vector<float>(), std::vector<float>(8, at_2)) << turn;
      EXPECT_EQ(status, std::future_status::ready) << turn;
      ASSERT_TRUE(called.valid());
      called.get();
      EXPECT_EQ(other, std::vector<float>(8, at_2)) << turn;
    }
  }
}

// Programs that an impl traces at each call have no plans under jit, which would outlive them.
TEST(ExtendPrimitive, ItsImplMayEvaluateProgramsThatItTraces) {
  extend::Primitive p("three_programs");
  p.def_abstract_eval(same).def_impl([](Array x) {
    const auto run = [&](auto f) { x = eval_jaxpr(make_jaxpr(f)(x), {x})[0]; };
    const float scale = 1;
    run([scale](Array v) { return scale * cumsum(v, 0) + 1.f; });
    run([scale](Array v) { return scale * concatenate({v, v}, 0); });
    run([scale](Array v) { return scale * slice(v, {v.shape()[0] / 4}, {v.shape()[0] * 3 / 4}); });
    return x;
  });
  const auto f = shard_map([&](Array b) { return p.bind(b); }, mesh_i(), P("i"), P("i"));
  const Array x = arange(64);
  const std::vector<float> want = f(x).to_vector<float>();
  EXPECT_EQ(want[0], 11);  // of 1, 2, 4, 7, 11, 16, 22, 29 twice, from the fifth on
  const auto under_jit = jit(f);
  for (int call = 0; call < 20; ++call) EXPECT_EQ(under_jit(x).to_vector<float>(), want) << call;
  const std::string text = under_jit.plan_text();
  EXPECT_EQ(text.find("  plan on"), std::string::npos) << text;
}

// Functions that cannot be called as the rule requires are accepted, and reported when they are
// needed.
TEST(ExtendPrimitive, SaysWhichRuleCannotBeCalled) {
  extend::Primitive p("p");
  p.def_abstract_eval([](ShapedArray a) { return a; })
      .def_impl([](Array x) { return x; })
      .def_cuda_kernel([] {})
      .def_jvp([] {})
      .def_transpose([] {})
      .def_batching([] {})
      .def_sharding_rule([] {});
  EXPECT_EQ(p.bind(1).item<std::int32_t>(), 1);
  expect_error<TypeError>([&] { p.bind(1, 2); },
                          {"def_abstract_eval", "2 operands", here(__LINE__ - 1).c_str()});
  expect_error<TypeError>([&] { grad([&](Array x) { return p.bind(x); })(1.f); },
                          {"def_jvp", here(__LINE__ - 1).c_str()});
  expect_error<TypeError>([&] { vmap([&](Array x) { return p.bind(x); })(zeros({2})); },
                          {"def_batching", here(__LINE__ - 1).c_str()});
  expect_error<TypeError>([&] { p.bind(zeros({2})); },
                          {"p:", "def_sharding_rule", "1 operand,", here(__LINE__ - 1).c_str()});
  const auto jvp = [](Arrays x, Arrays dx) { return std::pair{x, dx}; };
  expect_error<Error>([&] { p.def_jvp(jvp); },
                      {"p:", "after the first bind", here(__LINE__ - 1).c_str()});
  expect_error<Error>([&] { p.def_params(extend::Params()); },
                      {"p:", "after the first bind", here(__LINE__ - 1).c_str()});
  expect_error<ValueError>([&] { extend::Primitive(""); },
                           {"the name is empty", here(__LINE__ - 1).c_str()});
}

// The line is that of the first operand, however many follow, with and without parameters.
TEST(ExtendPrimitive, ErrorsOfBindsOfAnyNumberOfOperandsNameTheCallersLine) {
  extend::Primitive p("p");
  p.def_params({{"n", 1}}).def_abstract_eval([](ShapedArray a) { return a; });
  const Array x = zeros({2});
  const extend::Params params{{"n", 2}};
  expect_error<TypeError>([&] { p.bind(params, x, x); }, {"2 operands", here(__LINE__).c_str()});
  expect_error<TypeError>([&] { p.bind(params, 1, x, 2.f); },
                          {"3 operands", here(__LINE__ - 1).c_str()});
  expect_error<TypeError>([&] { p.bind(params); }, {"0 operands", here(__LINE__).c_str()});
  expect_error<TypeError>([&] { p.bind(params, {x, x}); }, {"2 operands", here(__LINE__).c_str()});
  const auto braces = [&] { p.bind({{"n", 2}}, x, x); };
  expect_error<TypeError>(braces, {"2 operands", here(__LINE__ - 1).c_str()});
  expect_error<TypeError>([&] { p.bind(x, x, x, x, x, x, 7); },
                          {"7 operands", here(__LINE__ - 1).c_str()});
  const extend::Params unknown{{"m", 2}};
  expect_error<ValueError>([&] { p.bind(unknown, x); }, {"no parameter", here(__LINE__).c_str()});
  // An error of a type of the user's own leaves bind as it is.
  struct OwnError : ValueError {
    using ValueError::ValueError;
  };
  extend::Primitive own("own");
  own.def_abstract_eval([](ShapedArray) -> ShapedArray { throw OwnError("own"); });
  EXPECT_THROW(own.bind(x), OwnError);
}

TEST(ExtendPrimitive, ItsKernelsErrorsNameIt) {
  if (devices()[0].kind() != DeviceKind::cpu)
    GTEST_SKIP() << "the kernel under test runs on CPU devices only";
  extend::Primitive p("fails");
  p.def_abstract_eval(same).def_cpu_kernel(
      [](const KernelArgs&) { throw std::runtime_error("no luck"); });
  const std::string device = "Device(id=" + std::to_string(local_devices().front().id()) + ")";
  expect_error<DeviceError>([&] { p.bind(ones({2})).block_until_ready(); },
                            {"no luck", "fails", device.c_str()});
  EXPECT_EQ((ones({2}) + 1.f).to_vector<float>()[0], 2);
}

TEST(ExtendPrimitive, ShardingRulesAreChecked) {
  if (devices()[0].kind() != DeviceKind::cpu)
    GTEST_SKIP() << "the kernel under test runs on CPU devices only";
  const Array x = device_put(zeros({8, 2}), NamedSharding(mesh_i(), P("i")));
  const auto with = [](const char* rule) {
    extend::Primitive p("ruled");
    p.def_abstract_eval(same)
        .def_impl([](Array x) { return x; })
        .def_cpu_kernel([](const KernelArgs& k) {
          std::copy_n(k.input<float>(0), k.in_types[0].dims().num_elements(), k.output<float>());
        });
    p.def_sharding_rule(rule);
    return p;
  };
  EXPECT_EQ(with("ab->ab").bind(x).sharding(), x.sharding());
  expect_error<ValueError>([&] { with("ab").bind(x); },
                           {"\"ab\"", "has no '->'", "a function of their types"});
  expect_error<ValueError>([&] { with("a->a").bind(x); },
                           {"gives 1 dim to a value of type f32[8,2]"});
  expect_error<ValueError>([&] { with("ab,ab->ab").bind(x); }, {"has 2 operands", "there are 1"});
  expect_error<ValueError>([&] { with("aa->aa").bind(x); }, {"one letter to dims of 8 and 2"});
  // Also refused for arrays that are not split, and in programs.
  const Array one = zeros({4});
  expect_error<ValueError>([&] { with("ab->a").bind(one); },
                           {"ruled", "\"ab->a\"", "gives 2 dims", "f32[4]"});
  expect_error<ValueError>([&] { with("ab,c->d").bind(one); }, {"ruled", "\"ab,c->d\""});
  expect_error<ValueError>([&] { jit([&](Array x) { return with("ab->a").bind(x); })(one); },
                           {"ruled", "\"ab->a\""});
}

}  // namespace
}  // namespace shmap
