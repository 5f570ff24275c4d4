// shmap-test: devices
// debug::print in traced programs: an equation that keeps its position and prints the same text as
// eagerly, however the program is run.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <string>

#include "core/array/mesh_impl.h"
#include "core/compiler/passes/simplify.h"
#include "core/device/backend.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

// The text that `run` prints, after all of its queued work is done.
template <class F>
std::string printed(F run) {
  testing::internal::CaptureStdout();
  run();
  detail::MeshImpl::default_device()->backend().synchronize();
  return testing::internal::GetCapturedStdout();
}

Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }

TEST(StagedPrint, IsAnEquationOfItsOperands) {
  const ClosedJaxpr j = make_jaxpr([](Array x) {
    debug::print("{}: x = {}, {{n}} = {}", "first {}", x, 3);
    debug::print("done");
    return sin(x);
  })(ShapedArray({2}, f32));
  EXPECT_EQ(to_string(j),
            "{ lambda a:f32[2] .\n"
            "  let debug_print[fmt=\"first {{}}: x = {}, {{n}} = 3\"] a\n"
            "      debug_print[fmt=\"done\"]\n"
            "      b:f32[2] = sin a\n"
            "  in ( b ) }");
  EXPECT_EQ(to_string(*simplify(*j.impl().jaxpr)), to_string(j));
  EXPECT_EQ(printed([&] {
              eval_jaxpr(j, {array<float>({1, 2}, {2})});
            }),
            "first {}: x = [1. 2.], {n} = 3\ndone\n");
}

TEST(StagedPrint, NothingIsPrintedWhileTracing) {
  EXPECT_EQ(printed([] {
              make_jaxpr([](Array x) {
                debug::print("x = {}", x);
                return x;
              })(1.f);
            }),
            "");
}

TEST(StagedPrint, TheFormatIsCheckedWhileTracing) {
  test::expect_error<ValueError>(
      [] {
        make_jaxpr([](Array x) {
          debug::print("{} {}", x);
          return x;
        })(1.f);
      },
      {"debug::print", "2 {}", "gives 1 argument:", "staged_print_test.cpp:"});
}

// The value is printed once; its tangent is not.
TEST(StagedPrint, UnderDifferentiation) {
  const auto f = [](Array x) {
    debug::print("x = {}", x);
    return sum(x * x);
  };
  const Array x = array<float>({1, 2}, {2});
  const std::string once = "x = [1. 2.]\n";
  EXPECT_EQ(printed([&] { jvp(f, std::tuple{x}, std::tuple{x}); }), once);
  EXPECT_EQ(printed([&] { grad(f)(x); }), once);
  EXPECT_EQ(printed([&] { jit(grad(f))(x).block_until_ready(); }), once);
  EXPECT_EQ(printed([&] { grad(jit(f))(x).block_until_ready(); }), once);
}

TEST(StagedPrint, OfABodyUnderDifferentiation) {
  const auto total = [](bool staged) {
    const auto body = [](Array b) {
      debug::print("b = {}", b);
      return psum(sum(b * b), "i");
    };
    return [=](Array x) {
      const auto mapped = shard_map(body, make_mesh({2}, {"i"}), P("i"), P());
      return staged ? jit(mapped)(x) : mapped(x);
    };
  };
  const Array x = array<float>({1, 2}, {2});
  const std::string both = "(i,) = (0,) b = [1.]\n(i,) = (1,) b = [2.]\n";
  EXPECT_EQ(printed([&] { grad(total(false))(x); }), both);
  EXPECT_EQ(printed([&] { grad(total(true))(x).block_until_ready(); }), both);
}

Array body(Array x) {
  debug::print("x = {}", x);
  const Array total = psum(x, axes("i", "j"));
  debug::print("total = {}", total);
  debug::print("twice {} and {}", 2.f * total, x - x);
  return x + total;
}

TEST(StagedPrint, PrintsInABodyWhatItPrintsEagerly) {
  const auto f = shard_map(body, mesh42(), P(axes("i", "j")), P(axes("i", "j")));
  const Array x = device_put(arange(8.f), NamedSharding(mesh42(), P(axes("i", "j"))));
  const std::string eager = printed([&] { f(x); });
  EXPECT_NE(eager.find("(i, j,) = (3, 1,) x = [7.]\ntotal = [28.]\n"), std::string::npos) << eager;
  const ClosedJaxpr j = make_jaxpr(f)(x);
  EXPECT_EQ(printed([&] { eval_jaxpr(j, {x}); }), eager);
  const auto g = jit(f);
  for (int call = 0; call < 5; ++call)  // traced, captured, replayed
    EXPECT_EQ(printed([&] { g(x); }), eager) << "call " << call;
  printed([&] { EXPECT_EQ(g(x).to_vector<float>(), f(x).to_vector<float>()); });
}

TEST(StagedPrint, EachReplayPrintsItsOwnValues) {
  const auto g = jit([](Array x) {
    const Array y = x * 2.f;
    debug::print("y = {}", y);
    return y + 1.f;
  });
  for (int call = 0; call < 5; ++call) {
    const Array x = full({2}, static_cast<float>(call));
    const std::string n = std::to_string(2 * call) + ".";
    EXPECT_EQ(printed([&] { g(x); }), "y = [" + n + " " + n + "]\n");
  }
}

TEST(StagedPrint, AGlobalArrayPrintsWhole) {
  const Array x = device_put(arange(8.f), NamedSharding(mesh42(), P(axes("i", "j"))));
  const auto f = [](Array x) {
    debug::print("x = {}", x);
    debug::print("sum = {}, scalar = {}", sum(x), Array(2.5f));
    return 2.f * x;
  };
  const std::string want = printed([&] { f(x); });
  EXPECT_EQ(want, "x = [0. 1. 2. 3. 4. 5. 6. 7.]\nsum = 28.0, scalar = 2.5\n");
  const auto g = jit(f);
  for (int call = 0; call < 4; ++call) EXPECT_EQ(printed([&] { g(x); }), want) << "call " << call;
}

TEST(StagedPrint, ManyPrintsKeepTheirOrder) {
  const auto f = [](Array x) {
    Array y = x;
    for (int k = 0; k < 20; ++k) {
      y = y + 1.f;
      debug::print("{}: {}", k, k % 2 == 0 ? y : x);
    }
    return y;
  };
  const Array x = zeros({});
  std::string want;
  for (int k = 0; k < 20; ++k)
    want += std::to_string(k) + ": " + std::to_string(k % 2 == 0 ? k + 1 : 0) + ".0\n";
  const auto g = jit(f);
  for (int call = 0; call < 4; ++call) EXPECT_EQ(printed([&] { g(x); }), want) << "call " << call;
}

TEST(StagedPrint, FormatSpecs) {
  const auto f = [](Array x) {
    debug::print("{:.3f} {:>6} {:#x} {:+.1e} {:d}|{}|{{:.3f}}", sum(x) / 3, astype(sum(x), i32),
                 255, 2.5, sum(x) > 1, x);
    debug::print("{:.2f} {:.1f}", astype(sum(x), bf16), Array(1.25f));
    return x;
  };
  const std::string want =
      "9.333     28 0xff +2.5e+00 1|[0. 1. 2. 3. 4. 5. 6. 7.]|{:.3f}\n28.00 1.2\n";
  const Array x = arange(8);
  EXPECT_EQ(printed([&] { f(x); }), want);
  const auto g = jit(f);
  for (int call = 0; call < 3; ++call) EXPECT_EQ(printed([&] { g(x); }), want) << "call " << call;
  EXPECT_EQ(printed([&] {
              vmap([](Array e) {
                debug::print("{:.1f}", e);
                return e;
              })(arange(3));
            }),
            "0.0\n1.0\n2.0\n");
  const auto body = shard_map([](Array) { debug::print("{:03d}", axis_index("i")); },
                              make_mesh({2}, {"i"}, {devices()[0], devices()[1]}), P("i"), P());
  EXPECT_EQ(printed([&] { body(arange(2)); }), "(i,) = (0,) 000\n(i,) = (1,) 001\n");
}

TEST(StagedPrint, RefusesSpecsThatDoNotFit) {
  const auto text = [](auto f) -> std::string {
    try {
      f();
    } catch (const ValueError& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_NE(text([] { debug::print("{:.3f}", arange(3)); }).find("an array of type f32[3]"),
            std::string::npos);
  EXPECT_NE(text([] { debug::print("{:.3f}", "text"); }).find("a spec is for numbers"),
            std::string::npos);
  const std::string bad = text([] { debug::print("{:.3q}", 1.5); });
  EXPECT_NE(bad.find("{:.3q} for argument 0"), std::string::npos) << bad;
  EXPECT_NE(bad.find("staged_print_test.cpp:"), std::string::npos) << bad;
  EXPECT_NE(text([] {
              jit([](Array x) {
                debug::print("{:d}", x);
                return x;
              })(ones({}));
            }).find("{:d}"),
            std::string::npos);
}

}  // namespace
}  // namespace shmap
