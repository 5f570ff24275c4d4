// shmap-test: devices
// jit: the same values as eager, at the first call, when captured and when replayed.
#include "shmap/jit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "shmap/shmap.h"

namespace shmap {
namespace {

using testing::HasSubstr;

template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

Mesh mesh8() { return make_mesh({8}, "i"); }
Mesh mesh42() { return make_mesh({4, 2}, axes("i", "j")); }
Array numbers(Shape shape) { return reshape(arange(shape.num_elements()), shape); }
constexpr int kCalls = 5;  // traced and run, captured, replayed

TEST(Jit, EqualsEagerOnOneDevice) {
  const auto f = [](Array x, Array w) {
    const Array h = tanh(matmul(x, w)) * 2.f + 1;
    return std::pair{sum(h, 0), h};
  };
  const Array x = numbers({4, 8}) * 0.01f, w = numbers({8, 3}) * 0.1f;
  const auto [s, h] = f(x, w);
  const auto jf = jit(f);
  for (int i = 0; i < kCalls; ++i) {
    const auto [js, jh] = jf(x, w);
    EXPECT_EQ(js.to_vector<float>(), s.to_vector<float>());
    EXPECT_EQ(jh.to_vector<float>(), h.to_vector<float>());
    EXPECT_EQ(jh.type(), h.type());
  }
}

TEST(Jit, TracesOnceForEachListOfTypes) {
  int traces = 0;
  const auto f = jit([&](Array x) {
    ++traces;
    return x + 1;
  });
  for (int i = 0; i < 3; ++i) f(numbers({4}));
  EXPECT_EQ(traces, 1);
  f(numbers({5}));
  EXPECT_EQ(traces, 2);
  f(astype(numbers({4}), i32));
  EXPECT_EQ(traces, 3);
  const Array split = device_put(numbers({8}), NamedSharding(mesh8(), P("i")));
  f(numbers({8}));
  EXPECT_EQ(traces, 4);
  const Array sharded = f(split);
  EXPECT_EQ(traces, 5);
  EXPECT_EQ(sharded.sharding(), split.sharding());
  f(numbers({4}));
  f(split);
  EXPECT_EQ(traces, 5);
}

TEST(Jit, ACaptureLessCallableTracesOnceATypeWhereverItIsMade) {
  static int traces = 0;
  for (int i = 0; i < 3; ++i) {
    jit([](Array x) {
      ++traces;
      return x * 2;
    })(numbers({3}));
  }
  EXPECT_EQ(traces, 1);
}

struct Settings {
  Array x;
  int power = 1;
  std::string name;
};

TEST(Jit, StaticMembersAndSizesArePartOfTheKey) {
  int traces = 0;
  const auto f = jit([&](Settings s) {
    ++traces;
    Array y = s.x;
    for (int i = 1; i < s.power; ++i) y = y * s.x;
    s.x = y;
    s.name += "!";
    return s;
  });
  const Array x = array<float>({2, 3}, {2});
  const Settings two = f(Settings{x, 2, "a"});
  EXPECT_EQ(two.x.to_vector<float>(), (std::vector<float>{4, 9}));
  EXPECT_EQ(two.name, "a!");
  EXPECT_EQ(f(Settings{x, 3, "a"}).x.to_vector<float>(), (std::vector<float>{8, 27}));
  EXPECT_EQ(f(Settings{x, 2, "b"}).name, "b!");
  EXPECT_EQ(traces, 3);
  EXPECT_EQ(f(Settings{x, 2, "a"}).name, "a!");
  EXPECT_EQ(traces, 3);
}

struct Schedule {
  Array x;
  std::vector<int> powers;
  std::optional<float> scale;
  std::map<std::string, std::pair<bool, std::string>> options;
};

TEST(Jit, ContainersOfHostValuesInStructsAreStatic) {
  int traces = 0;
  const auto f = jit([&](Schedule s) {
    ++traces;
    for (const int power : s.powers) s.x = s.x * static_cast<float>(power);
    if (s.scale) s.x = s.x * *s.scale;
    s.options["seen"] = {true, s.options.at("name").second};
    return s;
  });
  const Array x = array<float>({1, 2}, {2});
  const Schedule given{x, {2, 3}, 0.5f, {{"name", {false, "a"}}}};
  for (int k = 0; k < kCalls; ++k) {
    const Schedule out = f(given);
    EXPECT_EQ(out.x.to_vector<float>(), (std::vector<float>{3, 6}));
    EXPECT_EQ(out.powers, given.powers);
    EXPECT_EQ(out.options.at("seen").second, "a");
  }
  EXPECT_EQ(traces, 1);
  EXPECT_EQ(f(Schedule{x, {2}, 3.f, {{"name", {false, "a"}}}}).x.to_vector<float>(),
            (std::vector<float>{6, 12}));
  EXPECT_EQ(f(Schedule{x, {2, 3}, {}, {{"name", {false, "a"}}}}).x.to_vector<float>(),
            (std::vector<float>{6, 12}));
  EXPECT_EQ(f(Schedule{x, {2, 3}, 0.5f, {{"name", {false, "b"}}}}).options.at("seen").second, "b");
  EXPECT_EQ(traces, 4);
}

TEST(Jit, ShardMapInsideAmongOtherOps) {
  const Mesh mesh = mesh42();
  const auto product = shard_map([](Array a, Array b) { return psum(matmul(a, b), "j"); }, mesh,
                                 {P("i", "j"), P("j", none)}, P("i", none));
  const auto f = [&](Array a, Array b) { return sum(product(a * 2, b) + 1, 1); };
  const Array a = device_put(numbers({8, 16}), NamedSharding(mesh, P("i", "j")));
  const Array b = device_put(numbers({16, 32}), NamedSharding(mesh, P("j")));
  const Array want = f(a, b);
  reset_counters();
  f(a, b);
  const Counters eager = counters();
  const auto jf = jit(f);
  for (int i = 0; i < kCalls; ++i) {
    reset_counters();
    const Array got = jf(a, b);
    const Counters here = counters();
    EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
    EXPECT_EQ(got.sharding(), want.sharding());
    EXPECT_EQ(here.collectives, eager.collectives);
    EXPECT_EQ(here.collective_bytes, eager.collective_bytes);
    if (i >= 3) {
      EXPECT_EQ(here.allocations, 0);
    }
  }
}

// Arguments of a plan are whole arrays, and collectives work on blocks.
TEST(Jit, CollectivesReadArgumentsThemselves) {
  const Array x = device_put(numbers({64, 8}), NamedSharding(mesh8(), P("i")));
  const auto check = [&](auto body, P out) {
    const auto f = shard_map(body, mesh8(), P("i"), out);
    const auto jf = jit(f);
    const std::vector<float> want = f(x).template to_vector<float>();
    for (int i = 0; i < kCalls; ++i) EXPECT_EQ(jf(x).template to_vector<float>(), want);
  };
  check([](Array b) { return psum(b, "i"); }, P());
  check([](Array b) { return all_gather(b, "i", {.axis = 1, .tiled = true}); }, P("i"));
  check([](Array b) { return all_gather(b, "i"); }, P("i"));
  check([](Array b) { return psum_scatter(b, "i", {.tiled = true}); }, P("i"));
  check([](Array b) { return all_to_all(b, "i", 1, 0, {.tiled = true}); }, P("i"));
  check([](Array b) { return ppermute(b, "i", {{0, 1}, {1, 0}}); }, P("i"));
}

TEST(Jit, ReplaysAllocateNothingWhileArraysComeRoundAgain) {
  const auto step = jit(shard_map(
      [](Array x) {
        return x + ppermute(x, "i", {{0, 1}, {1, 0}});
      },
      mesh8(), P("i"), P("i")));
  Array x = device_put(numbers({16}), NamedSharding(mesh8(), P("i")));
  for (int i = 0; i < 6; ++i) x = step(x);
  reset_counters();
  for (int i = 0; i < 20; ++i) x = step(x);
  EXPECT_EQ(counters().allocations, 0);
  EXPECT_EQ(counters().syncs, 0);
}

TEST(Jit, ResultsSurviveLaterCalls) {
  const auto f = jit([](Array x) { return x * 3; });
  std::vector<Array> kept;
  for (int i = 0; i < 30; ++i) kept.push_back(f(full({1000}, float(i))));
  for (int i = 0; i < 30; ++i)
    EXPECT_EQ(kept[std::size_t(i)].to_vector<float>(), std::vector<float>(1000, 3.f * float(i)));
}

TEST(Jit, DonatedArgumentsAreUsedAgain) {
  const auto f = jit([](Array x) { return x + 1; });
  Array x = zeros({1 << 12});
  for (int i = 0; i < 10; ++i) x = f(std::move(x));
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1 << 12, 10.f));
  const Array held = x;  // somebody else has it: it stays
  const Array y = f(std::move(x));
  EXPECT_EQ(held.to_vector<float>()[0], 10.f);
  EXPECT_EQ(y.to_vector<float>()[0], 11.f);
  EXPECT_THROW(x + 1, ValueError);
}

TEST(Jit, OneArrayMayBeSeveralArgumentsAndResults) {
  const auto f = jit([](Array a, Array b) { return std::tuple{a + b, a, a, b * 2}; });
  const Array x = numbers({5});
  for (int i = 0; i < kCalls; ++i) {
    const auto [s, a, again, d] = f(x, x);
    EXPECT_EQ(s.to_vector<float>(), (std::vector<float>{0, 2, 4, 6, 8}));
    EXPECT_EQ(a.to_vector<float>(), x.to_vector<float>());
    EXPECT_EQ(again.to_vector<float>(), x.to_vector<float>());
    EXPECT_EQ(d.to_vector<float>(), s.to_vector<float>());
  }
}

TEST(Jit, ConstantsAndLiteralsMayBeResults) {
  const Array w = numbers({3});
  const auto f = jit([=](Array x) { return std::tuple{w, Array(2.f), x, zeros({2})}; });
  for (int i = 0; i < kCalls; ++i) {
    const auto [c, two, x, z] = f(7.f);
    EXPECT_EQ(c.to_vector<float>(), w.to_vector<float>());
    EXPECT_EQ(two.item<float>(), 2.f);
    EXPECT_EQ(x.item<float>(), 7.f);
    EXPECT_EQ(z.to_vector<float>(), std::vector<float>(2, 0.f));
  }
}

TEST(Jit, Nests) {
  const auto inner = jit([](Array x) { return sin(x); });
  const auto f = [&](Array x) { return inner(x) + inner(x * 2); };
  EXPECT_EQ(to_string(make_jaxpr(f)(ShapedArray({2}, f32))).substr(0, 24),
            "{ lambda a:f32[2] .\n  le");
  const auto jf = jit(jit(f));
  const Array x = numbers({2});
  for (int i = 0; i < kCalls; ++i) EXPECT_EQ(jf(x).to_vector<float>(), f(x).to_vector<float>());
  const ClosedJaxpr j = make_jaxpr([&](Array y) { return inner(y); })(ShapedArray({2}, f32));
  EXPECT_EQ(to_string(j),
            "{ lambda a:f32[2] .\n"
            "  let b:f32[2] = jit[jaxpr={ lambda a:f32[2] .\n"
            "                             let b:f32[2] = sin a\n"
            "                             in ( b ) }] a\n"
            "  in ( b ) }");
  EXPECT_EQ(eval_jaxpr(j, {x})[0].to_vector<float>(), sin(x).to_vector<float>());
}

TEST(Jit, InABodyThatRunsEagerly) {
  const auto inner = jit([](Array x) { return psum(x * x, "i") + x; });
  const auto f = shard_map(
      [&](Array x) {
        const Array y = inner(x);
        EXPECT_EQ(y.type(), ShapedArray({2}, f32, "i"));
        return inner(y);
      },
      mesh8(), P("i"), P("i"));
  const auto plain = shard_map(
      [](Array x) {
        for (int i = 0; i < 2; ++i) x = psum(x * x, "i") + x;
        return x;
      },
      mesh8(), P("i"), P("i"));
  const Array x = numbers({16}) * 0.01f;
  for (int i = 0; i < kCalls; ++i) EXPECT_EQ(f(x).to_vector<float>(), plain(x).to_vector<float>());
}

TEST(Jit, GlobalOpsFollowTheShardingRules) {
  const Mesh mesh = mesh8();
  const Array a = device_put(numbers({16, 8}), NamedSharding(mesh, P("i")));
  const Array b = numbers({8, 4});
  const auto f = [&](Array x, Array y) {
    return with_sharding_constraint(matmul(x, y), NamedSharding(mesh, P()));
  };
  const ClosedJaxpr j = make_jaxpr(f)(a, b);
  EXPECT_THAT(to_string(j), HasSubstr("sharding_constraint[sharding=P()]"));
  const auto jf = jit(f);
  for (int i = 0; i < kCalls; ++i) {
    reset_counters();
    const Array c = jf(a, b);
    EXPECT_EQ(counters().collectives, 1);
    EXPECT_EQ(c.to_vector<float>(), matmul(numbers({16, 8}), b).to_vector<float>());
    EXPECT_EQ(c.sharding(), NamedSharding(mesh, P()));
  }
  EXPECT_THAT(jf.plan_text(), HasSubstr("= all_gather_invariant["));
  EXPECT_EQ(f(a, b).to_vector<float>(), jf(a, b).to_vector<float>());
}

TEST(Jit, ProgramsOverTwoMeshesRun) {
  const auto rows = shard_map([](Array x) { return psum(x, "i"); }, mesh8(), P("i"), P());
  const auto blocks =
      shard_map([](Array x) { return psum(x, "j"); }, mesh42(), P("i", "j"), P("i"));
  const auto f = [&](Array x) { return std::pair{sum(rows(x)), sum(blocks(x))}; };
  const Array x = numbers({8, 8});
  const auto jf = jit(f);
  for (int i = 0; i < kCalls; ++i) {
    const auto [r, b] = jf(x);
    EXPECT_EQ(r.item<float>(), f(x).first.item<float>());
    EXPECT_EQ(b.item<float>(), f(x).second.item<float>());
  }
}

TEST(Jit, WhatTheFunctionThrowsComesOutAndNothingIsKept) {
  bool fail = true;
  const auto f = jit([&](Array x) {
    if (fail) throw std::runtime_error("mine");
    return x + 1;
  });
  EXPECT_THAT(message_of<std::runtime_error>([&] { f(1.f); }), "mine");
  fail = false;
  EXPECT_EQ(f(1.f).item<float>(), 2.f);
}

TEST(Jit, AValueAskedForWhileTracingIsAnError) {
  const auto f = jit([](Array x) { return x > 0 ? x : -x; });
  EXPECT_THAT(
      message_of<TypeError>([&] { f(1.f); }),
      AllOf(HasSubstr("a host condition"), HasSubstr("being traced by jit"), HasSubstr("where")));
  const auto g = jit([](Array x) { return x * x.item<float>(); });
  EXPECT_THAT(message_of<TypeError>([&] { g(1.f); }), HasSubstr("item"));
  Array escaped;
  jit([&](Array x) {
    escaped = x * 2;
    return x;
  })(1.f);
  EXPECT_THAT(message_of<TypeError>([&] { escaped + 1; }),
              HasSubstr("made inside a function under jit"));
}

TEST(Jit, AnErrorOfADeviceComesOutOfTheWait) {
  const auto f = jit([](Array x) { return x + 1; });
  EXPECT_THROW(f(Array()), ValueError);
  EXPECT_THROW(f(ShapedArray({2}, f32)), TypeError);
}

TEST(Jit, ThreadsShareAFunction) {
  const auto f = jit(shard_map([](Array x) { return psum(x * 2, "i"); }, mesh8(), P("i"), P()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Array x = full({8}, float(t + 1));
      for (int i = 0; i < 50; ++i) EXPECT_EQ(f(x).to_vector<float>()[0], 16.f * float(t + 1));
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(Jit, MayBeGoneBeforeItsCallsHaveRun) {
  Array x = device_put(numbers({1 << 12}), NamedSharding(mesh8(), P("i")));
  {
    const auto f = jit(shard_map(
        [](Array y) {
          for (int i = 0; i < 4; ++i) y = matmul(reshape(y, {16, 32}), ones({32, 32})) / 32.f;
          return reshape(y, {512});
        },
        mesh8(), P("i"), P("i")));
    for (int i = 0; i < 8; ++i) x = f(x);
  }
  const Array other = zeros({1 << 14}) + 1;  // takes whatever memory is free
  EXPECT_EQ(x.shape(), Shape({1 << 12}));
  EXPECT_NEAR(sum(x).item<float>() / (1 << 12), 2047.5f, 1.f);
  EXPECT_EQ(other.to_vector<float>()[0], 1.f);
}

// A step and a loop of more operands than a plan's masks have bits: the first ones are read there
// for the last time, and the last ones later again.
TEST(Jit, StepsOfManyOperands) {
  const auto f = [](std::vector<Array> v, Array limit) {
    for (Array& x : v) x = cumsum(x, 0);
    const Array joined = concatenate(v, 0);
    const auto more = [&](Array c) { return sum(c) < limit; };
    const auto trip = [&](Array c) {
      for (std::size_t k = 20; k < v.size(); ++k) c = c + v[k];
      return c;
    };
    const Array looped = while_loop(more, trip, v[20]);
    return std::tuple{joined, looped, cumsum(v[36], 0), cumsum(v[58], 0)};
  };
  std::vector<Array> v;
  for (int k = 0; k < 60; ++k) v.push_back(arange(3.f) + static_cast<float>(k));
  const auto want = f(v, Array(1e5f));
  const auto jitted = jit(f);
  for (int i = 0; i < kCalls; ++i) {
    const auto got = jitted(v, Array(1e5f));
    EXPECT_EQ(std::get<0>(got).to_vector<float>(), std::get<0>(want).to_vector<float>());
    EXPECT_EQ(std::get<1>(got).to_vector<float>(), std::get<1>(want).to_vector<float>());
    EXPECT_EQ(std::get<2>(got).to_vector<float>(), std::get<2>(want).to_vector<float>());
    EXPECT_EQ(std::get<3>(got).to_vector<float>(), std::get<3>(want).to_vector<float>());
  }
}

TEST(Jit, QueuedCallsNeedBoundedMemory) {
  const auto f = jit(shard_map([](Array x) { return pmean(x, "i"); }, mesh8(), P("i"), P("i")));
  Array x = device_put(numbers({8}), NamedSharding(mesh8(), P("i")));
  for (int i = 0; i < 2000; ++i) x = f(x);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(8, 3.5f));
}

}  // namespace
}  // namespace shmap
