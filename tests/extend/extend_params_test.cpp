// shmap-test: devices
// Users' primitives with parameters, rules of variance and printing hooks; and the errors if a rule
// is missing or returns something wrong, in every mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using extend::Arrays;
using extend::get_param;
using extend::Params;
using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;

// x times `by`, by an impl; `with_kernel`: on the CPU by a kernel.
extend::Primitive scaled(bool with_kernel) {
  extend::Primitive p("scaled");
  p.def_params({{"by", 2.0}, {"note", "n"}})
      .def_abstract_eval([](ShapedArray x) { return x; })
      .def_impl([](Array x, const Params& q) {
        return x * static_cast<float>(get_param<double>(q, "by"));
      })
      .def_jvp([p](Arrays x, Arrays t, const Params& q) {
        return std::pair{p.bind(q, x[0]), p.bind(q, t[0])};
      })
      .def_batching([p](Arrays x, std::vector<int> dims, const Params& q) {
        return std::pair{p.bind(q, x[0]), dims[0]};
      })
      .def_transpose([p](Arrays bars, Arrays, const Params& q) { return p.bind(q, bars[0]); })
      .def_sharding_rule([](extend::ArrayTypes in, extend::ArrayTypes) {
        return std::string(in[0].rank() == 0 ? "->" : "a->a");
      });
  if (with_kernel) {
    p.def_cpu_kernel([](const extend::KernelArgs& k) {
      const auto by = static_cast<float>(k.param<double>("by"));
      for (std::int64_t e = 0; e < k.out_types[0].dims().num_elements(); ++e)
        k.output<float>()[e] = k.input<float>(0)[e] * by;
    });
  }
  return p;
}

TEST(ExtendParamsTest, ReachEveryRuleInEveryMode) {
  const Array x = arange(8.f);
  const Mesh mesh = make_mesh({8}, {"i"});
  for (const bool with_kernel : {false, true}) {
    const extend::Primitive p = scaled(with_kernel);
    EXPECT_EQ(p.bind(x).to_vector<float>(), (x * 2.f).to_vector<float>());
    const auto f = [&](Array v) { return p.bind(Params{{"by", 3}}, v); };
    const std::vector<float> want = (x * 3.f).to_vector<float>();
    EXPECT_EQ(f(x).to_vector<float>(), want);
    EXPECT_EQ(jit(f)(x).to_vector<float>(), want);
    EXPECT_EQ(vmap(f)(x).to_vector<float>(), want);
    EXPECT_EQ(shard_map(f, mesh, P("i"), P("i"))(x).to_vector<float>(), want);
    EXPECT_EQ(jit(shard_map(f, mesh, P("i"), P("i")))(x).to_vector<float>(), want);
    EXPECT_EQ(f(device_put(x, NamedSharding(mesh, P("i")))).to_vector<float>(), want);
    EXPECT_EQ(grad([&](Array v) { return sum(f(v)); })(x).to_vector<float>(),
              full({8}, 3.f).to_vector<float>());
    EXPECT_EQ(to_string(make_jaxpr(f)(x)),
              "{ lambda a:f32[8] .\n  let b:f32[8] = scaled[by=3.0 note='n'] a\n  in ( b ) }");
  }
}

TEST(ExtendParamsTest, TellEquationsApart) {
  const extend::Primitive p = scaled(true);
  const Array x = arange(4.f);
  const auto f = jit([&](Array v) {
    return p.bind(Params{{"by", 3}}, v) + p.bind(Params{{"by", 5}}, v) + p.bind(v);
  });
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(f(x).to_vector<float>(), (x * 10.f).to_vector<float>());
}

TEST(ExtendParamsTest, AreCheckedByNameAndType) {
  const extend::Primitive p = scaled(false);
  const Array x = arange(4.f);
  expect_error<ValueError>(
      [&] {
        p.bind(Params{{"bye", 3}}, x);
      },
      {"scaled: there is no parameter 'bye' (did you mean 'by'?)", "it has by, note"});
  expect_error<TypeError>(
      [&] {
        p.bind(Params{{"by", "three"}}, x);
      },
      {"scaled: the parameter 'by' is 'three'", "def_params", "2.0"});
  extend::Primitive none("without_params");
  none.def_abstract_eval([](ShapedArray a) { return a; }).def_impl([](Array a) { return a; });
  expect_error<ValueError>(
      [&] {
        none.bind(Params{{"by", 3}}, x);
      },
      {"without_params: there is no parameter 'by'", ".def_params"});
  extend::Primitive bad("bad_names");
  expect_error<ValueError>([&] { bad.def_params({{"a b", 1}}); }, {"def_params", "'a b'"});
}

TEST(ExtendParamsTest, PrintingHooksHaveTheirSay) {
  extend::Primitive p("hooked");
  p.def_params({{"axis", 0}, {"seed", 17}})
      .def_abstract_eval([](ShapedArray x) { return x; })
      .def_impl([](Array x) { return x; })
      .def_print([](const Params& q) {
        return get_param<int>(q, "axis") == 0
                   ? std::string()
                   : "along " + std::to_string(get_param<int>(q, "axis"));
      });
  const auto text = [&](int axis) {
    return to_string(make_jaxpr([&](Array x) {
      return p.bind(Params{{"axis", axis}}, x);
    })(ShapedArray({2}, f32)));
  };
  EXPECT_THAT(text(0), HasSubstr("b:f32[2] = hooked a\n"));
  EXPECT_THAT(text(1), HasSubstr("b:f32[2] = hooked[along 1] a\n"));
  expect_error<ValueError>([&] { extend::parse_jaxpr(text(0)); }, {"hooked", "def_print"});
}

TEST(ExtendVarianceTest, ARuleSaysOverWhatResultsVary) {
  // A sum over the axis that a parameter names: invariant there.
  extend::Primitive total("total_over");
  total.def_params({{"axis", "i"}})
      .def_abstract_eval([](ShapedArray x) { return x; })
      .def_variance([](extend::ArrayTypes in, const Params& q) {
        std::vector<std::string> left;
        for (const std::string& name : in[0].vma())
          if (name != get_param<std::string>(q, "axis")) left.push_back(name);
        return Axes(left);
      })
      .def_impl(
          [](Array x, const Params& q) { return psum(x, get_param<std::string>(q, "axis")); });
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const Array x = arange(8.f);
  const auto f = [&](Array v) { return total.bind(v); };
  const auto ours = shard_map(f, mesh, P(axes("i", "j")), P("j"));
  const auto theirs =
      shard_map([](Array v) { return psum(v, "i"); }, mesh, P(axes("i", "j")), P("j"));
  EXPECT_EQ(ours(x).to_vector<float>(), theirs(x).to_vector<float>());
  EXPECT_EQ(jit(ours)(x).to_vector<float>(), theirs(x).to_vector<float>());
  EXPECT_THAT(to_string(make_jaxpr(ours)(x)), HasSubstr("f32[1]{j} = total_over[axis='i'] a"));

  extend::Primitive wrong("wrong_axes");
  wrong.def_abstract_eval([](ShapedArray v) { return v; })
      .def_variance([](extend::ArrayTypes) { return Axes("k"); })
      .def_impl([](Array v) { return v; });
  const auto g = shard_map([&](Array v) { return wrong.bind(v); }, mesh, P("i"), P("i"));
  expect_error<ValueError>([&] { make_jaxpr(g)(x); },
                           {"wrong_axes: its def_variance", "mesh axis 'k'", "not in scope"});
  // The promise of a rule is compared with the results of the impl.
  extend::Primitive liar("liar");
  liar.def_abstract_eval([](ShapedArray v) { return v; })
      .def_variance([](extend::ArrayTypes) { return Axes(); })
      .def_impl([](Array v) { return v; });
  const auto h = shard_map([&](Array v) { return liar.bind(v); }, mesh, P("i"), P());
  expect_error<TypeError>([&] { h(x); }, {"liar: result 0 of its def_impl", "f32[2]{i}"});
  expect_error<TypeError>([&] { jit(h)(x); }, {"liar: result 0 of its def_impl"});
}

// Runs on GPUs, also simulated ones, by the text that NVRTC compiles, and elsewhere by the impl.
TEST(ExtendCudaSourceTest, RunsWhereThereAreGpus) {
  extend::Primitive p("axpy_text");
  p.def_params({{"a", 2.0}, {"twice", false}})
      .def_abstract_eval([](ShapedArray x, ShapedArray) { return x; })
      .def_impl([](Array x, Array y, const Params& q) {
        const auto a = static_cast<float>(get_param<double>(q, "a"));
        return x * (get_param<bool>(q, "twice") ? 2.f * a : a) + y;
      })
      .def_cuda_source(R"(
extern "C" __global__ void axpy(Kernel k) {
  const long long e = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= k.out_size[0]) return;
  const float a = static_cast<float>(PARAM_a) * (PARAM_twice ? 2.0f : 1.0f);
  static_cast<float*>(k.out[0])[e] =
      static_cast<const float*>(k.in[0])[e] * a + static_cast<const float*>(k.in[1])[e];
}
)",
                       "axpy", 128)
      .def_sharding_rule("a,a->a");
  const Array x = arange(1000.f), y = ones({1000});
  const std::vector<float> want = (x * 3.f + 1.f).to_vector<float>();
  const auto f = [&](Array u, Array v) { return p.bind(Params{{"a", 3}}, u, v); };
  EXPECT_EQ(f(x, y).to_vector<float>(), want);
  const auto compiled = jit(f);
  for (int call = 0; call < 3; ++call) EXPECT_EQ(compiled(x, y).to_vector<float>(), want);
  EXPECT_EQ(p.bind(Params{{"twice", true}}, x, y).to_vector<float>(),
            (x * 4.f + 1.f).to_vector<float>());
  const Mesh mesh = make_mesh({8}, {"i"});
  EXPECT_EQ(shard_map(f, mesh, {P("i"), P("i")}, P("i"))(x, y).to_vector<float>(), want);

  expect_error<ValueError>([&] { extend::Primitive("t").def_cuda_source("x", "axpy"); },
                           {"t: def_cuda_source: the source has no 'axpy'"});
  expect_error<ValueError>([&] { extend::Primitive("t").def_cuda_source("axpy", "axpy", 0); },
                           {"1 to 1024"});
}

TEST(ExtendErrorsTest, WhatAnImplGivesIsHeldAgainstItsTypesInEveryMode) {
  extend::Primitive p("promises_more");
  p.def_abstract_eval([](ShapedArray x) { return x; })
      .def_impl([](Array x) { return sum(x); })
      .def_jvp([p](Arrays x, Arrays t) {
        return std::pair{p.bind(x[0]), t[0]};
      })
      .def_batching([p](Arrays x, std::vector<int> d) {
        return std::pair{p.bind(x[0]), d[0]};
      });
  const Array x = arange(8.f);
  const Mesh mesh = make_mesh({8}, {"i"});
  const auto f = [&](Array v) { return p.bind(v); };
  const auto refused = [&](auto run) {
    expect_error<TypeError>(run, {"promises_more: result 0 of its def_impl has type f32[]",
                                  "its def_abstract_eval promised f32["});
  };
  refused([&] { f(x); });
  refused([&] { jit(f)(x); });
  refused([&] { shard_map(f, mesh, P("i"), P("i"))(x); });
  refused([&] { jit(shard_map(f, mesh, P("i"), P("i")))(x); });
  refused([&] { f(device_put(x, NamedSharding(mesh, P("i")))); });
  refused([&] { vmap(f)(x); });
  refused([&] { jvp(f, std::tuple{x}, std::tuple{x}); });
  refused([&] { extend::primitive("promises_more").bind({x}); });
  refused([&] { eval_jaxpr(make_jaxpr(f)(x), {x}); });
}

TEST(ExtendErrorsTest, MissingAndMalformedRulesNameThePrimitiveAndTheFunction) {
  const Array x = arange(4.f);
  extend::Primitive p("bare");
  p.def_abstract_eval([](ShapedArray a) { return a; }).def_impl([](Array a) { return a; });
  expect_error<TypeError>([&] { grad([&](Array v) { return sum(p.bind(v)); })(x); },
                          {"bare", ".def_jvp"});
  expect_error<TypeError>([&] { vmap([&](Array v) { return p.bind(v); })(x); },
                          {"bare", ".def_batching"});
  extend::Primitive untyped("untyped");
  untyped.def_impl([](Array a) { return a; });
  expect_error<TypeError>([&] { jit([&](Array v) { return untyped.bind(v); })(x); },
                          {"untyped", ".def_abstract_eval"});
  extend::Primitive shape("wrong_arity");
  shape.def_abstract_eval([](ShapedArray a, ShapedArray) { return a; });
  expect_error<TypeError>(
      [&] { shape.bind(x); },
      {"wrong_arity: the function that was given to its def_abstract_eval", "1 operand,"});
  const auto with = [](const char* name) {
    extend::Primitive q(name);
    q.def_abstract_eval([](ShapedArray a) { return a; }).def_impl([](Array a) { return a; });
    return q;
  };
  extend::Primitive jvps = with("two_tangents");
  jvps.def_jvp([](Arrays y, Arrays t) { return std::pair{y, Arrays{t[0], t[0]}}; });
  expect_error<TypeError>(
      [&] { jvp([&](Array v) { return jvps.bind(v); }, std::tuple{x}, std::tuple{x}); },
      {"two_tangents: its def_jvp gave 2 tangents, and 1 are wanted", "extend_params_test.cpp:"});
  extend::Primitive bars = with("two_cotangents");
  bars.def_transpose([](Arrays b, Arrays) { return Arrays{b[0], b[0]}; });
  expect_error<TypeError>(
      [&] { linear_transpose([&](Array v) { return bars.bind(v); }, x)(x); },
      {"two_cotangents: its def_transpose gave 2 cotangents", "extend_params_test.cpp:"});
  extend::Primitive batches = with("two_batches");
  batches.def_batching([](Arrays y, std::vector<int> d) {
    return std::pair{Arrays{y[0], y[0]}, std::vector<int>{d[0], d[0]}};
  });
  expect_error<TypeError>([&] { vmap([&](Array v) { return batches.bind(v); })(x); },
                          {"two_batches: its def_batching gave 2 results and dims", "test.cpp:"});
  extend::Primitive far = with("far_batch");
  far.def_batching([](Arrays y, std::vector<int>) { return std::pair{y[0], 7}; });
  expect_error<Error>([&] { vmap([&](Array v) { return far.bind(v); })(x); },
                      {"vmap of far_batch", "dim 7", "extend_params_test.cpp:"});
  extend::Primitive split("wrong_split");
  split.def_abstract_eval([](ShapedArray a) { return a; })
      .def_impl([](Array a) { return a; })
      .def_sharding_rule("ab->ab");
  expect_error<ValueError>([&] { split.bind(x); },
                           {"wrong_split: the sharding rule \"ab->ab\" of its def_sharding_rule",
                            "gives 2 dims to a value of type f32[4]"});
}

}  // namespace
}  // namespace shmap
