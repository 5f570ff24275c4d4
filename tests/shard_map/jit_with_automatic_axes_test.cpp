// shmap-test: devices
// jit in an eager body with automatic axes: the program is lowered over these and planned once, and
// gives what its operations give one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/device/backend.h"
#include "tests/support/automatic_axes.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using test::expect_error;
using test::expect_near;
using test::mesh222;
using test::over;
using test::placed;
using test::wave;
using testing::Contains;
using testing::HasSubstr;

constexpr int kCalls = 4;  // traced and run, captured, replayed

// Calls f in a body over x, operation by operation and under jit: values, types, shardings and
// communication are the same, and one trace serves all calls with arguments that lie alike.
template <class F>
void expect_same_in_a_body(const char* what, F f) {
  const Mesh mesh = mesh222();
  const Array a = wave({8, 8});
  int traces = 0, lie = 0;
  const auto jitted = jit([&](Array p) {
    ++traces;
    return f(p);
  });
  std::string type, wanted_type;
  const auto mapped = [&](auto call, std::string& seen) {
    return shard_map(
        [&, call](Array p) {
          const Array y = call(p);
          seen = to_string(y.type());
          return y;
        },
        mesh, P("x"), P("x"), over("x"));
  };
  for (const P& spec : {P(), P(axes("x", "y"), "z"), P(none, axes("z", "y"))}) {
    const std::string how = std::string(what) + " of " + to_string(spec);
    const Array x = placed(a, mesh, spec);
    reset_counters();
    const Array want = mapped(f, wanted_type)(x);
    const Counters eager = counters();
    ++lie;
    for (int call = 0; call < kCalls; ++call) {
      reset_counters();
      const Array got = mapped(std::cref(jitted), type)(x);
      const Counters here = counters();
      expect_near(got, want, how);
      EXPECT_EQ(got.sharding(), want.sharding()) << how;
      EXPECT_EQ(type, wanted_type) << how;
      EXPECT_LE(here.collectives, eager.collectives) << how;
      EXPECT_LE(here.collective_bytes, eager.collective_bytes) << how;
      EXPECT_EQ(traces, lie) << how;
    }
  }
  EXPECT_THAT(jitted.plan_text(), HasSubstr("plan on Mesh('x': 2, 'y': 2, 'z': 2)")) << what;
}

TEST(JitWithAutomaticAxes, OperationsAndCollectives) {
  expect_same_in_a_body("elementwise", [](Array p) { return sin(p) * 2.f + p * p; });
  expect_same_in_a_body("reductions", [](Array p) { return p * sum(p) + psum(sum(p, 0), "x"); });
  expect_same_in_a_body("products", [](Array p) { return matmul(p, transpose(p)) + mean(p, 1); });
  expect_same_in_a_body("gathers", [](Array p) {
    return p * sum(all_gather(p, "x", {.axis = 1, .tiled = true}), 1, true);
  });
  expect_same_in_a_body("keys", [](Array p) {
    return p * random::normal(random::fold_in(random::key(3), axis_index("x")), p.shape());
  });
}

TEST(JitWithAutomaticAxes, ControlFlow) {
  expect_same_in_a_body("a loop", [](Array p) {
    return fori_loop(
        0, 3, [](Array, Array c) { return c * 0.5f + sum(c, 1, true) * 0.1f; }, p);
  });
  expect_same_in_a_body("a scan", [](Array p) {
    const auto [c, ys] = scan(
        [](Array c, Array row) {
          const Array next = tanh(c + row);
          return std::pair{next, next * psum(c, "x")};
        },
        p[0], p);
    return ys + c;
  });
  expect_same_in_a_body("trips that the host counts", [](Array p) {
    return while_loop([](Array c) { return psum(sum(abs(c)), "x") < 90.f; },
                      [](Array c) { return c * 1.5f + mean(c, 0); }, p);
  });
  expect_same_in_a_body("trips of each device", [](Array p) {
    return while_loop([](Array c) { return sum(abs(c)) < 60.f; },
                      [](Array c) { return c * 1.5f + mean(c, 0); }, p + 1.f);
  });
  expect_same_in_a_body("a branch", [](Array p) {
    return cond(
        psum(sum(p), "x") > 0.f, [](Array q) { return q * sum(q, 0); },
        [](Array q) { return q - psum(q, "x"); }, p);
  });
  expect_same_in_a_body("a branch of each device", [](Array p) {
    const auto f = [](Array q) { return q * sum(q); };
    const auto g = [](Array q) { return matmul(q, transpose(q))[0][0] + q; };
    return switch_(axis_index("x"), std::tuple{f, g}, p);
  });
}

TEST(JitWithAutomaticAxes, TransformsAndMappedFunctions) {
  const Mesh mesh = mesh222();
  expect_same_in_a_body(
      "vmap", [](Array p) { return vmap([](Array row) { return row * psum(sum(row), "x"); })(p); });
  expect_same_in_a_body("grad", [](Array p) {
    return grad([](Array q) { return sum(sin(q) * q); })(p) * psum(p, "x");
  });
  expect_same_in_a_body("jit", [](Array p) { return jit([](Array q) { return q * sum(q); })(p); });
  expect_same_in_a_body("a constraint", [mesh](Array p) {
    return with_sharding_constraint(sin(p), NamedSharding(mesh, P("z", "y"))) * 2.f;
  });
  expect_same_in_a_body("a mapped function", [mesh](Array p) {
    const auto inner = [](Array q) { return q * psum(sum(q), axes("x", "y")); };
    return shard_map(inner, mesh, P(none, "y"), P(none, "y"), over("y"))(p);
  });
}

TEST(JitWithAutomaticAxes, UnderDerivativesAndVmap) {
  const Mesh mesh = mesh222();
  const Array a = placed(wave({8, 8}), mesh, P(axes("x", "y"), "z"));
  const auto plain = [](Array p) { return sin(p) * psum(sum(p * p, 0), "x"); };
  const auto jitted = jit(plain);
  const auto of = [&](auto f) {
    return [&, f](Array x) { return shard_map(f, mesh, P("x"), P("x"), over("x"))(x); };
  };
  const auto loss = [](auto f) { return [=](Array x) { return sum(f(x) * f(x)); }; };
  const Array want = grad(loss(of(plain)))(a);
  const auto in_the_body = [](auto f) {
    return [=](Array p) { return grad([=](Array q) { return psum(sum(f(q)), "x"); })(p); };
  };
  const Array wanted = of(in_the_body(plain))(a);
  const Array batch = stack({a, a * 2.f}, 0), wanted_batch = vmap(of(plain))(batch);
  for (int call = 0; call < kCalls; ++call) {
    expect_near(grad(loss(of(std::cref(jitted))))(a), want, "grad of the body");
    expect_near(of(in_the_body(std::cref(jitted)))(a), wanted, "grad in the body");
    expect_near(vmap(of(std::cref(jitted)))(batch), wanted_batch, "vmap of the body");
  }
}

// Values of the body are read at each call; arrays from outside are parts of the plan.
TEST(JitWithAutomaticAxes, ClosedOverValues) {
  const Mesh mesh = mesh222();
  const Array a = placed(wave({8, 8}), mesh, P("x", "y")), w = placed(wave({8}), mesh, P("z"));
  int traces = 0;
  const auto kept = jit([&](Array p) {
    ++traces;
    return p * w;
  });
  for (int call = 0; call < kCalls; ++call) {
    const float factor = static_cast<float>(call + 1);
    const auto body = [&](Array p) {
      const Array q = p * factor;
      return kept(p) + jit([q](Array r) { return r * q; })(p);
    };
    expect_near(shard_map(body, mesh, P("x"), P("x"), over("x"))(a), a * w + a * a * factor);
  }
  EXPECT_EQ(traces, 1);
  const auto nested = [&](Array p) {
    const auto inner = [p](Array q) {
      return jit([p](Array r) { return r * sum(p) + psum(r, "y"); })(q);
    };
    return shard_map(inner, mesh, P(none, "y"), P(none, "y"), over("y"))(p);
  };
  const auto without = [&](Array p) {
    const auto inner = [p](Array q) { return q * sum(p) + psum(q, "y"); };
    return shard_map(inner, mesh, P(none, "y"), P(none, "y"), over("y"))(p);
  };
  expect_near(shard_map(nested, mesh, P("x"), P("x"), over("x"))(a),
              shard_map(without, mesh, P("x"), P("x"), over("x"))(a));
  const auto all = [&](Array p) {
    const auto inner = [p](Array q) { return jit([p](Array r) { return r * sum(p); })(q); };
    return shard_map(inner, mesh, P(none, axes("y", "z")), P(none, axes("y", "z")))(p);
  };
  expect_near(shard_map(all, mesh, P("x"), P("x"), over("x"))(a),
              shard_map([](Array p) { return p * sum(p); }, mesh, P("x"), P("x"), over("x"))(a));
}

// One function in bodies over other axes, over all axes and outside has a program for each.
TEST(JitWithAutomaticAxes, ProgramsAreToldApart) {
  const Mesh mesh = mesh222();
  const Array a = placed(wave({8, 8}), mesh, P("x", "y"));
  int traces = 0;
  const auto f = jit([&](Array p) {
    ++traces;
    return p * sum(p);
  });
  const auto mapped = [&](P spec, ShardMapOptions options) {
    return shard_map(std::cref(f), mesh, spec, spec, options)(a);
  };
  const auto each = [&](int rows, int columns) {
    std::vector<Array> out;
    for (const Array& row : split(wave({8, 8}), rows, 0)) {
      std::vector<Array> pieces;
      for (const Array& piece : split(row, columns, 1)) pieces.push_back(piece * sum(piece));
      out.push_back(concatenate(pieces, 1));
    }
    return concatenate(out, 0);
  };
  for (int call = 0; call < kCalls; ++call) {
    expect_near(mapped(P("x"), over("x")), each(2, 1));
    expect_near(mapped(P(none, "y"), over("y")), each(1, 2));
    expect_near(mapped(P("x", "y"), over(axes("x", "y"))), each(2, 2));
    expect_near(mapped(P("x", "y"), {}), each(2, 2));
    expect_near(f(a), each(1, 1));
  }
  EXPECT_EQ(traces, 5);
}

TEST(JitWithAutomaticAxes, PrintsAreTheSame) {
  const Mesh mesh = mesh222();
  const Array a = placed(reshape(arange(16.f), {4, 4}), mesh, P("x", "y"));
  const auto f = [](Array p) {
    debug::print("row {} of {}", sum(p, 0), psum(sum(p), "x"));
    return cond(
        axis_index("x") > 0,
        [](Array q) {
          debug::print("only {}", sum(q));
          return q * 2.f;
        },
        [](Array q) { return q; }, p);
  };
  const auto printed = [&](auto call) {
    testing::internal::CaptureStdout();
    shard_map(call, mesh, P("x"), P("x"), over("x"))(a).block_until_ready();
    detail::MeshImpl::default_device()->backend().synchronize();  // no result waits for prints
    // Two prints of a plan have no order between them.
    std::istringstream text(testing::internal::GetCapturedStdout());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const std::vector<std::string> want = printed(f);
  EXPECT_EQ(want.size(), 12u);
  EXPECT_THAT(want, Contains("(x, y, z,) = (1, 1, 1,) only 92.0"));
  const auto jitted = jit(f);
  for (int call = 0; call < kCalls; ++call) EXPECT_EQ(printed(std::cref(jitted)), want);
}

TEST(JitWithAutomaticAxes, Errors) {
  const Mesh mesh = mesh222();
  const Array a = wave({8, 8});
  const auto call = [&](auto f) {
    return [=] { shard_map(jit(f), mesh, P("x"), P("x"), over("x"))(a); };
  };
  expect_error<CollectiveError>(call([](Array p) { return psum(p, "y"); }),
                                {"psum: unbound axis name 'y'"});
  expect_error<ValueError>(
      call([=](Array p) { return with_sharding_constraint(p, NamedSharding(mesh, P("x"))); }),
      {"name only axes that the shard_map leaves automatic"});
  const Array* escaped = nullptr;
  Array kept;
  shard_map(
      [&](Array p) {
        kept = p;
        escaped = &kept;
        return p;
      },
      mesh, P("x"), P("x"), over("x"))(a);
  expect_error<Error>(call([&](Array p) { return p * *escaped; }),
                      {"jit_with_automatic_axes_test"});
}

}  // namespace
}  // namespace shmap
