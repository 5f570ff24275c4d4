// shmap-test: devices
// shard_map as an equation: its text, what it refuses while it is traced, and that evaluating it
// and jit give what calling the function gives.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;

Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }
Array iota_f32(Shape shape) { return reshape(arange(shape.num_elements()), shape); }

template <class F, class... A>
std::string text(F f, const A&... args) {
  return to_string(make_jaxpr(f)(args...));
}

std::vector<std::byte> bytes(const Array& x) {
  std::vector<std::byte> out(static_cast<std::size_t>(x.nbytes()));
  if (x.dtype() == f32) std::memcpy(out.data(), x.to_vector<float>().data(), out.size());
  if (x.dtype() == i32) std::memcpy(out.data(), x.to_vector<std::int32_t>().data(), out.size());
  return out;
}

// Every leaf of the result: values to the last bit, types and shardings.
void expect_equal(const std::vector<Array>& got, const std::vector<Array>& want,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(to_string(got[i].type()), to_string(want[i].type())) << what;
    EXPECT_EQ(got[i].sharding(), want[i].sharding()) << what;
    EXPECT_EQ(bytes(got[i]), bytes(want[i])) << what << "\n" << got[i] << "\n" << want[i];
  }
}

template <class F, class... A>
void expect_staged_is_eager(F f, const A&... args) {
  const ClosedJaxpr j = make_jaxpr(f)(args...);
  const Array want = f(args...);
  expect_equal(eval_jaxpr(j, {args...}), {want}, to_string(j));
  const auto g = jit(f);
  for (int call = 0; call < 4; ++call)  // run, captured, replayed
    expect_equal({g(args...)}, {want},
                 "jit, call " + std::to_string(call) + ", of " + to_string(j));
}

TEST(StagedText, MatmulBasic) {
  const auto f = shard_map([](Array a, Array b) { return psum(matmul(a, b), "j"); }, mesh42(),
                           {P("i", "j"), P("j", none)}, P("i", none));
  EXPECT_EQ(
      text(f, ShapedArray({8, 16}, f32), ShapedArray({16, 32}, f32)),
      "{ lambda a:f32[8,16], b:f32[16,32] .\n"
      "  let c:f32[8,32] = shard_map[check_vma=True\n"
      "                              in_specs=(P('i', 'j'), P('j'))\n"
      "                              jaxpr={ lambda a:f32[2,8]{i,j}, b:f32[8,32]{j} .\n"
      "                                      let c:f32[8,32]{i,j} = pbroadcast[axes=('i',)] b\n"
      "                                          d:f32[2,32]{i,j} = "
      "dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] a c\n"
      "                                          e:f32[2,32]{i} = psum[axes=('j',)] d\n"
      "                                      in ( e ) }\n"
      "                              mesh=Mesh('i': 4, 'j': 2)\n"
      "                              out_specs=(P('i'),)] a b\n"
      "  in ( c ) }");
}

TEST(StagedText, TheSeedsExamples) {
  const ShapedArray x({12, 12}, f32);
  const auto identity = [](Array b) { return b; };
  EXPECT_EQ(text(shard_map(identity, mesh42(), P("i", none), P("i", "j")), x),
            "{ lambda a:f32[12,12] .\n"
            "  let b:f32[12,24] = shard_map[check_vma=True\n"
            "                               in_specs=(P('i'),)\n"
            "                               jaxpr={ lambda a:f32[3,12]{i} .\n"
            "                                       let \n"
            "                                       in ( a ) }\n"
            "                               mesh=Mesh('i': 4, 'j': 2)\n"
            "                               out_specs=(P('i', 'j'),)] a\n"
            "  in ( b ) }");
  EXPECT_EQ(
      text(shard_map(identity, mesh42(), P("i", "j"), P("i", "j")), ShapedArray({12, 24}, f32)),
      "{ lambda a:f32[12,24] .\n"
      "  let b:f32[12,24] = shard_map[check_vma=True\n"
      "                               in_specs=(P('i', 'j'),)\n"
      "                               jaxpr={ lambda a:f32[3,12]{i,j} .\n"
      "                                       let \n"
      "                                       in ( a ) }\n"
      "                               mesh=Mesh('i': 4, 'j': 2)\n"
      "                               out_specs=(P('i', 'j'),)] a\n"
      "  in ( b ) }");
  EXPECT_EQ(
      text(shard_map([](Array b) { return psum(b, "j"); }, mesh42(), P("i", "j"), P("i", none)), x),
      "{ lambda a:f32[12,12] .\n"
      "  let b:f32[12,6] = shard_map[check_vma=True\n"
      "                              in_specs=(P('i', 'j'),)\n"
      "                              jaxpr={ lambda a:f32[3,6]{i,j} .\n"
      "                                      let b:f32[3,6]{i} = psum[axes=('j',)] a\n"
      "                                      in ( b ) }\n"
      "                              mesh=Mesh('i': 4, 'j': 2)\n"
      "                              out_specs=(P('i'),)] a\n"
      "  in ( b ) }");
  EXPECT_EQ(
      text(shard_map([](Array b) { return psum(b, "i"); }, mesh42(), P("i", "j"), P(none, "j")), x),
      "{ lambda a:f32[12,12] .\n"
      "  let b:f32[3,12] = shard_map[check_vma=True\n"
      "                              in_specs=(P('i', 'j'),)\n"
      "                              jaxpr={ lambda a:f32[3,6]{i,j} .\n"
      "                                      let b:f32[3,6]{j} = psum[axes=('i',)] a\n"
      "                                      in ( b ) }\n"
      "                              mesh=Mesh('i': 4, 'j': 2)\n"
      "                              out_specs=(P(none, 'j'),)] a\n"
      "  in ( b ) }");
  EXPECT_EQ(text(shard_map([](Array b) { return psum(b, axes("i", "j")); }, mesh42(), P("i", "j"),
                           P(none, none)),
                 x),
            "{ lambda a:f32[12,12] .\n"
            "  let b:f32[3,6] = shard_map[check_vma=True\n"
            "                             in_specs=(P('i', 'j'),)\n"
            "                             jaxpr={ lambda a:f32[3,6]{i,j} .\n"
            "                                     let b:f32[3,6] = psum[axes=('i', 'j')] a\n"
            "                                     in ( b ) }\n"
            "                             mesh=Mesh('i': 4, 'j': 2)\n"
            "                             out_specs=(P(),)] a\n"
            "  in ( b ) }");
}

TEST(StagedText, WhatABodyClosesOverIsAnArgument) {
  const Array w = array<float>({1, 2}, {2});
  const auto f = shard_map([w](Array x) { return x * w + w; }, mesh42(), P("i"), P("i"));
  const ClosedJaxpr j = make_jaxpr(f)(ShapedArray({8}, f32));
  EXPECT_EQ(to_string(j),
            "{ lambda a:f32[2], b:f32[8] .\n"
            "  let c:f32[8] = shard_map[check_vma=True\n"
            "                           in_specs=(P(), P('i'))\n"
            "                           jaxpr={ lambda a:f32[2], b:f32[2]{i} .\n"
            "                                   let c:f32[2]{i} = pbroadcast[axes=('i',)] a\n"
            "                                       d:f32[2]{i} = mul b c\n"
            "                                       e:f32[2]{i} = add d c\n"
            "                                   in ( e ) }\n"
            "                           mesh=Mesh('i': 4, 'j': 2)\n"
            "                           out_specs=(P('i'),)] a b\n"
            "  in ( c ) }");
  ASSERT_EQ(j.consts().size(), 1u);
  EXPECT_EQ(j.consts()[0].node(), w.node());
  const Array x = arange(8.f);
  expect_equal(eval_jaxpr(j, {x}), {f(x)}, "closed over");

  // A value of the program around it.
  const auto outer = [](Array x) {
    const Array y = sin(x);
    return shard_map([y](Array block) { return block + sum(y); }, mesh42(), P("i"), P("i"))(x);
  };
  EXPECT_EQ(text(outer, ShapedArray({8}, f32)),
            "{ lambda a:f32[8] .\n"
            "  let b:f32[8] = sin a\n"
            "      c:f32[8] = shard_map[check_vma=True\n"
            "                           in_specs=(P(), P('i'))\n"
            "                           jaxpr={ lambda a:f32[8], b:f32[2]{i} .\n"
            "                                   let c:f32[] = reduce_sum[axes=(0,)] a\n"
            "                                       d:f32[]{i} = pbroadcast[axes=('i',)] c\n"
            "                                       e:f32[2]{i} = add b d\n"
            "                                   in ( e ) }\n"
            "                           mesh=Mesh('i': 4, 'j': 2)\n"
            "                           out_specs=(P('i'),)] b a\n"
            "  in ( c ) }");
  expect_staged_is_eager(outer, x);

  // Host scalars are literals.
  EXPECT_EQ(text(shard_map([](Array x) { return x * 2.f; }, mesh42(), P("i"), P("i")),
                 ShapedArray({8}, f32)),
            "{ lambda a:f32[8] .\n"
            "  let b:f32[8] = shard_map[check_vma=True\n"
            "                           in_specs=(P('i'),)\n"
            "                           jaxpr={ lambda a:f32[2]{i} .\n"
            "                                   let b:f32[2]{i} = mul a 2.0\n"
            "                                   in ( b ) }\n"
            "                           mesh=Mesh('i': 4, 'j': 2)\n"
            "                           out_specs=(P('i'),)] a\n"
            "  in ( b ) }");
}

TEST(StagedText, AValueIsCastOnce) {
  const auto f =
      shard_map([](Array x, Array y) { return (x * y + x) * x; }, mesh42(), {P(), P("i")}, P("i"));
  EXPECT_EQ(text(f, ShapedArray({2}, f32), ShapedArray({8}, f32)),
            "{ lambda a:f32[2], b:f32[8] .\n"
            "  let c:f32[8] = shard_map[check_vma=True\n"
            "                           in_specs=(P(), P('i'))\n"
            "                           jaxpr={ lambda a:f32[2], b:f32[2]{i} .\n"
            "                                   let c:f32[2]{i} = pbroadcast[axes=('i',)] a\n"
            "                                       d:f32[2]{i} = mul c b\n"
            "                                       e:f32[2]{i} = add d c\n"
            "                                       f:f32[2]{i} = mul e c\n"
            "                                   in ( f ) }\n"
            "                           mesh=Mesh('i': 4, 'j': 2)\n"
            "                           out_specs=(P('i'),)] a b\n"
            "  in ( c ) }");
  // Over more axes by and by: one cast of each value for each set of axes.
  const auto g = shard_map(
      [](Array x, Array y, Array z) {
        const Array by_i = x * y, by_j = x * z;
        return by_i + by_j + by_j;
      },
      mesh42(), {P(), P("i"), P("j")}, P(axes("i", "j")));
  EXPECT_EQ(text(g, ShapedArray({2}, f32), ShapedArray({8}, f32), ShapedArray({4}, f32)),
            "{ lambda a:f32[2], b:f32[8], c:f32[4] .\n"
            "  let d:f32[16] = shard_map[check_vma=True\n"
            "                            in_specs=(P(), P('i'), P('j'))\n"
            "                            jaxpr={ lambda a:f32[2], b:f32[2]{i}, c:f32[2]{j} .\n"
            "                                    let d:f32[2]{i} = pbroadcast[axes=('i',)] a\n"
            "                                        e:f32[2]{i} = mul d b\n"
            "                                        f:f32[2]{j} = pbroadcast[axes=('j',)] a\n"
            "                                        g:f32[2]{j} = mul f c\n"
            "                                        h:f32[2]{i,j} = pbroadcast[axes=('j',)] e\n"
            "                                        i:f32[2]{i,j} = pbroadcast[axes=('i',)] g\n"
            "                                        j:f32[2]{i,j} = add h i\n"
            "                                        k:f32[2]{i,j} = add j i\n"
            "                                    in ( k ) }\n"
            "                            mesh=Mesh('i': 4, 'j': 2)\n"
            "                            out_specs=(P(('i', 'j')),)] a b c\n"
            "  in ( d ) }");
}

TEST(Staged, WithoutCastsTheUserWritesThem) {
  const auto f = shard_map([](Array x, Array y) { return x * y; }, mesh42(), {P(), P("i")}, P("i"),
                           {.auto_pbroadcast = false});
  expect_error<TypeError>([&] { make_jaxpr(f)(ShapedArray({2}, f32), ShapedArray({8}, f32)); },
                          {"mul", "f32[2]", "f32[2]{i}", "requires varying axes to match",
                           "pbroadcast", "staged_test.cpp:"});
  const auto g = shard_map([](Array x, Array y) { return pbroadcast(x, "i") * y; }, mesh42(),
                           {P(), P("i")}, P("i"), {.auto_pbroadcast = false});
  expect_staged_is_eager(g, arange(2.f), arange(8.f));
}

TEST(Staged, UncheckedBodiesNeedNoCasts) {
  const auto f = shard_map([](Array x, Array y) { return x * y; }, mesh42(), {P(), P("i")}, P(),
                           {.check_vma = false});
  EXPECT_EQ(text(f, ShapedArray({2}, f32), ShapedArray({8}, f32)),
            "{ lambda a:f32[2], b:f32[8] .\n"
            "  let c:f32[2] = shard_map[check_vma=False\n"
            "                           in_specs=(P(), P('i'))\n"
            "                           jaxpr={ lambda a:f32[2], b:f32[2]{i} .\n"
            "                                   let c:f32[2]{i} = mul a b\n"
            "                                   in ( c ) }\n"
            "                           mesh=Mesh('i': 4, 'j': 2)\n"
            "                           out_specs=(P(),)] a b\n"
            "  in ( c ) }");
  expect_staged_is_eager(f, arange(2.f), arange(8.f));
}

TEST(Staged, ResultsAreRefusedWhileTracing) {
  const auto f = shard_map([](Array x) { return 2.f * x; }, mesh42(), P("i", "j"), P(none, "j"));
  expect_error<ValueError>(
      [&] {
        make_jaxpr(f)(ShapedArray({4, 4}, f32));
      },
      {"the result", "P(none, 'j')", "{'i'}", "statically inferred", "f32[1,2]{i,j}",
       "check_vma = false"});
  const auto flat = shard_map([](Array x) { return sum(x); }, mesh42(), P("i", "j"), P("i", "j"));
  expect_error<ValueError>(
      [&] {
        make_jaxpr(flat)(ShapedArray({4, 4}, f32));
      },
      {"length 2", "rank 0"});
  expect_error<ValueError>(
      [&] {
        make_jaxpr(flat)(ShapedArray({4, 5}, f32));
      },
      {"args[0]", "dim 1", "(4, 5)", "'j'"});
  expect_error<TypeError>(
      [&] {
        make_jaxpr(shard_map([](Array x) { return sum(x) > 0 ? x : -x; }, mesh42(), P("i"),
                             P("i")))(ShapedArray({8}, f32));
      },
      {"has no value yet"});
}

TEST(Staged, EveryCollectiveGivesWhatItGivesEagerly) {
  const Mesh mesh = make_mesh({8}, "i");
  const Array x = device_put(iota_f32({64, 8}), NamedSharding(mesh, P("i")));
  const auto check = [&](auto body, const PartitionSpec& out = P("i")) {
    expect_staged_is_eager(shard_map(body, mesh, P("i"), out), x);
  };
  check([](Array b) { return psum(b, "i"); }, P());
  check([](Array b) { return pmean(b, "i"); }, P());
  check([](Array b) { return pmax(b, "i"); }, P());
  check([](Array b) { return pmin(b, "i"); }, P());
  check([](Array b) { return psum(b, "i", {.axis_index_groups = {{0, 1, 2, 3}, {4, 5, 6, 7}}}); });
  check([](Array b) { return all_gather(b, "i"); });
  check([](Array b) { return all_gather(b, "i", {.axis = 1, .tiled = true}); });
  check([](Array b) { return all_gather_invariant(b, "i", {.tiled = true}); }, P());
  check([](Array b) { return psum_scatter(b, "i"); });
  check([](Array b) { return psum_scatter(b, "i", {.scatter_dimension = 1, .tiled = true}); });
  check([](Array b) { return all_to_all(b, "i", 1, 0, {.tiled = true}); });
  check([](Array b) { return all_to_all(b, "i", 0, 1); });
  check([](Array b) { return ppermute(b, "i", {{0, 1}, {1, 2}, {7, 0}}); });
  check([](Array b) { return pshuffle(b, "i", {7, 6, 5, 4, 3, 2, 1, 0}); });
  check([](Array b) { return pswapaxes(b, "i", 0); });
  check([](Array b) { return broadcast_from(b, "i", 5); }, P());
  check([](Array b) { return pscatter(psum(b, "i"), "i", {.tiled = true}); });
  check([](Array b) { return pbroadcast(psum(b, "i"), "i") + b; });
  check([](Array b) { return b + astype(axis_index("i"), f32); });
}

TEST(Staged, TreesAndOtherOpsAround) {
  struct Layer {
    Array w, b;
  };
  const auto layer = shard_map(
      [](Layer l, Array x) {
        return std::pair{psum(matmul(x, l.w), "j") + l.b, std::vector{psum(sum(l.w), "j")}};
      },
      mesh42(), {{P("j", none), P()}, P("i", "j")}, {P("i", none), {P()}});
  const Layer l{iota_f32({16, 4}), arange(4.f)};
  const Array x = iota_f32({8, 16});
  const ClosedJaxpr traced = make_jaxpr(layer)(l, x);
  const auto [y, total] = layer(l, x);
  expect_equal(eval_jaxpr(traced, {l.w, l.b, x}), {y, total[0]}, to_string(traced));
  const auto f = [](Array x, Array w) {
    const auto g = shard_map([](Array x, Array w) { return psum(matmul(x, w), "j"); }, mesh42(),
                             {P("i", "j"), P("j", none)}, P("i", none));
    return sum(tanh(g(sin(x), w * 0.5f)), 1);
  };
  const ClosedJaxpr j = make_jaxpr(f)(ShapedArray({8, 16}, f32), ShapedArray({16, 32}, f32));
  EXPECT_EQ(to_string(typecheck(j)), "(f32[8,16], f32[16,32]) -> (f32[8])");
  expect_staged_is_eager(f, iota_f32({8, 16}), iota_f32({16, 32}));
}

TEST(Staged, ABodyThatThrowsLeavesEverythingUsable) {
  struct Odd {};
  Array escaped;
  const auto f = shard_map(
      [&](Array b) -> Array {
        escaped = psum(b, "i");
        throw Odd{};
      },
      mesh42(), P("i"), P("i"));
  for (int round = 0; round < 100; ++round) EXPECT_THROW(make_jaxpr(f)(ShapedArray({8}, f32)), Odd);
  expect_error<TypeError>([&] { escaped + 1; }, {"add", "made inside a function under shard_map",
                                                 "the result of psum at"});
  const Array x = arange(8.f);
  EXPECT_EQ((x + 1).to_vector<float>()[7], 8);
  // The same callable, once it no longer throws, is traced afresh.
  bool fail = true;
  const auto g = make_jaxpr(shard_map(
      [&fail](Array b) {
        if (fail) throw std::runtime_error("not yet");
        return 2.f * b;
      },
      mesh42(), P("i"), P("i")));
  EXPECT_THROW(g(x), std::runtime_error);
  fail = false;
  EXPECT_EQ(eval_jaxpr(g(x), {x})[0].to_vector<float>()[7], 14);
}

TEST(StagedAbstract, AMeshOf16384DevicesIsTracedCheckedPrintedAndCosted) {
  const auto start = std::chrono::steady_clock::now();
  const AbstractMesh mesh({256, 64}, {"p", "q"});
  const auto f = shard_map(
      [](Array a, Array b) {
        const Array whole = all_gather(a, "q", {.axis = 1, .tiled = true});
        return psum(matmul(whole, b), axes("p", "q"));
      },
      mesh, {P("p", "q"), P(none, "q")}, P());
  const ClosedJaxpr j =
      make_jaxpr(f)(ShapedArray({16384, 8192}, bf16), ShapedArray({8192, 4096}, bf16));
  EXPECT_EQ(to_string(typecheck(j)), "(bf16[16384,8192], bf16[8192,4096]) -> (bf16[64,64])");
  EXPECT_EQ(
      to_string(j),
      "{ lambda a:bf16[16384,8192], b:bf16[8192,4096] .\n"
      "  let c:bf16[64,64] = shard_map[check_vma=True\n"
      "                                in_specs=(P('p', 'q'), P(none, 'q'))\n"
      "                                jaxpr={ lambda a:bf16[64,128]{p,q}, b:bf16[8192,64]{q} .\n"
      "                                        let c:bf16[64,8192]{p,q} = "
      "all_gather[all_gather_dimension=1 axis_name=('q',) axis_size=64 tiled=True] a\n"
      "                                            d:bf16[8192,64]{p,q} = pbroadcast[axes=('p',)] "
      "b\n"
      "                                            e:bf16[64,64]{p,q} = "
      "dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] c d\n"
      "                                            f:bf16[64,64] = psum[axes=('p', 'q')] e\n"
      "                                        in ( f ) }\n"
      "                                mesh=Mesh('p': 256, 'q': 64)\n"
      "                                out_specs=(P(),)] a b\n"
      "  in ( c ) }");
  const CostAnalysis cost = cost_analysis(j);
  EXPECT_EQ(cost.flops, 2. * 64 * 64 * 8192);
  ASSERT_EQ(cost.collectives.size(), 2u);
  EXPECT_EQ(cost.collectives[0].primitive, "all_gather");
  EXPECT_EQ(cost.collectives[0].bytes, 64 * 128 * 2);
  EXPECT_EQ(cost.collectives[1].axes, (std::vector<std::string>{"p", "q"}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  const auto small = make_jaxpr(shard_map([](Array x) { return x; }, mesh, P("p"), P("p")));
  expect_error<DeviceError>([&] { eval_jaxpr(small(arange(512)), {arange(512)}); },
                            {"abstract", "'p': 256"});
}

}  // namespace
}  // namespace shmap
