// Programs inside programs, many levels deep: the work of the passes grows with the depth, not with
// a power of it; and a program that is too deep for the stack is an error that says so.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <string>

#include "core/ir/nesting.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using Nest = std::function<Array(Array, int)>;

Array whiles(Array x, int depth) {
  if (depth == 0) return x * 2.f;
  return while_loop([](Array a) { return sum(a) < 0.f; },
                    [=](Array a) { return whiles(a, depth - 1) - 1.f; }, x);
}
Array conds(Array x, int depth) {
  if (depth == 0) return sin(x);
  return cond(
      sum(x) > 0.f, [=](Array a) { return conds(a, depth - 1); }, [](Array a) { return -a; }, x);
}
Array switches(Array x, int depth) {
  if (depth == 0) return x * 2.f;
  return switch_(astype(sum(x), i32),
                 {[=](Array a) { return switches(a, depth - 1); }, [](Array a) { return a; }}, x);
}
Array scans(Array x, int depth) {
  if (depth == 0) return sin(x);
  return scan(
             [=](Array c, Array y) {
               return std::pair{scans(c, depth - 1), y};
             },
             x, ones({10}))
      .first;
}
Array loops_of_traced_bounds(Array x, int depth) {
  if (depth == 0) return x * 2.f;
  return fori_loop(
      Array(0), astype(sum(x) * 0.f, i32),
      [=](Array, Array a) { return loops_of_traced_bounds(a, depth - 1) + 1.f; }, x);
}
Array calls(Array x, int depth) {
  if (depth == 0) return sin(x);
  return jit([=](Array a) { return calls(a, depth - 1) + 1.f; })(x);
}
Array checkpoints(Array x, int depth) {
  if (depth == 0) return sin(x);
  return checkpoint([=](Array a) { return checkpoints(a, depth - 1) * 2.f; })(x);
}

// Equations that all passes together go over for f.
std::int64_t work_of(const std::function<void()>& f) {
  const std::int64_t before = equations_visited();
  f();
  return equations_visited() - before;
}

// Twice the depth is twice the work, or a little more. If one pass visited inner programs twice per
// level, it would be a thousand times as much.
void expect_linear(const char* what, const Nest& nest,
                   const std::function<void(std::function<Array(Array)>)>& run,
                   int depth_of_half = 10) {
  const auto work = [&](int depth) {
    return work_of([&] { run([=](Array x) { return nest(x, depth); }); });
  };
  work(3);  // what is made once
  const std::int64_t shallow = work(depth_of_half), deep = work(2 * depth_of_half);
  EXPECT_GT(shallow, 0) << what;
  EXPECT_LE(deep, 3 * shallow) << what << ": " << shallow << " equations visited at depth "
                               << depth_of_half;
}

const Array& operand() {
  static const Array x = ones({2});
  return x;
}

TEST(NestedPrograms, CompileInLinearWork) {
  const auto planned = [](auto f) { jit(f)(operand()).block_until_ready(); };
  expect_linear("while", whiles, planned);
  expect_linear("cond", conds, planned);
  expect_linear("switch_", switches, planned);
  expect_linear("scan", scans, [](auto f) { make_jaxpr(f)(operand()); });
  expect_linear("fori_loop", loops_of_traced_bounds, planned);
  expect_linear("jit", calls, planned);
  expect_linear("checkpoint", checkpoints, planned);
}

TEST(NestedPrograms, OfSplitArraysCompileInLinearWork) {
  const Array x = device_put(ones({8}), NamedSharding(make_mesh({8}, {"i"}), P("i")));
  const auto planned = [&](auto f) { jit(f)(x).block_until_ready(); };
  expect_linear("while", whiles, planned);
  expect_linear("cond", conds, planned);
  expect_linear("fori_loop", loops_of_traced_bounds, planned);
}

TEST(NestedPrograms, AreDifferentiatedAndMappedInLinearWork) {
  const auto gradient = [](auto f) {
    make_jaxpr(grad([=](Array x) { return sum(f(x)); }))(operand());
  };
  expect_linear("grad of cond", conds, gradient);
  expect_linear("grad of switch_", switches, gradient);
  expect_linear("grad of scan", scans, gradient, 3);  // residuals get a dim a level
  expect_linear("grad of jit", calls, gradient);
  const auto forward = [](auto f) {
    make_jaxpr([=](Array x) { return jvp(f, std::tuple{x}, std::tuple{x}).second; })(operand());
  };
  expect_linear("jvp of while", whiles, forward);
  expect_linear("jvp of cond", conds, forward);
  const auto mapped = [](auto f) { make_jaxpr(vmap(f, 1, 1))(ones({2, 3})); };
  expect_linear("vmap of scan", scans, mapped, 6);
  expect_linear("vmap of jit", calls, mapped);
}

// For each cond, all levels below it are simulated once alone, to choose a branch. Twice the depth
// is four times the work.
TEST(NestedPrograms, AreSimulatedInSquareWork) {
  const Topology topology{
      .levels = {{8, {3, 1e5}}}, .flops_per_us = 1e6, .memory_bytes_per_us = 1e6};
  const auto work = [&](int depth) {
    const auto f = [=](Array x) { return conds(x, depth); };
    const ClosedJaxpr program = make_jaxpr(f)(operand());
    return work_of([&] { simulate(program, topology); });
  };
  work(3);  // what is made once
  const std::int64_t shallow = work(10), deep = work(20);
  EXPECT_GT(shallow, 0);
  EXPECT_LE(deep, 5 * shallow) << shallow;
}

// Each carry reads the one before, so that what depends on the first is known after as many trips.
Array chain_of_carries(Array x, int count) {
  std::vector<Array> carry(static_cast<std::size_t>(count), x);
  carry = scan(
              [](std::vector<Array> c, Array y) {
                for (std::size_t k = c.size(); k-- > 1;) c[k] = c[k] * c[k - 1];
                return std::pair{c, y};
              },
              carry, ones({3}))
              .first;
  return sum(carry.back());
}

TEST(NestedPrograms, ManyCarriesAreTransposedInSquareWork) {
  const auto work = [&](int count) {
    return work_of(
        [&] { make_jaxpr(grad([=](Array x) { return chain_of_carries(x, count); }))(operand()); });
  };
  work(3);  // what is made once
  const std::int64_t few = work(20), many = work(40);
  EXPECT_GT(few, 0);
  EXPECT_LE(many, 5 * few) << few;
}

TEST(NestedPrograms, HaveTheValuesOfTheFunctions) {
  const Array x = ones({2});
  for (const Nest& nest : {Nest(whiles), Nest(conds), Nest(switches), Nest(calls)}) {
    const Array want = nest(x, 12);
    const auto f = jit([=](Array a) { return nest(a, 12); });
    for (int call = 0; call < 3; ++call)
      EXPECT_EQ(f(x).to_vector<float>(), want.to_vector<float>());
  }
}

// Runs f on a thread whose stack has a fixed size on every machine.
void on_small_stack(std::function<void()> f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{2} << 20);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* p) -> void* {
                  (*static_cast<std::function<void()>*>(p))();
                  return nullptr;
                },
                &f),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(NestedPrograms, ThatAreTooDeepSaySo) {
  constexpr int kTooDeep = 20'000;
  const auto refused = [&](const char* what, const std::function<void()>& f) {
    try {
      f();
      ADD_FAILURE() << what << ": nothing was thrown";
    } catch (const ValueError& e) {
      const std::string text = e.what();
      for (const char* part : {"nested ", " deep", "stack of ", "KiB"})
        EXPECT_NE(text.find(part), std::string::npos) << what << ": " << text;
    }
  };
  on_small_stack([&] {
    for (const auto& [what, nest] : {std::pair{"while", Nest(whiles)},
                                     {"cond", conds},
                                     {"scan", scans},
                                     {"jit", calls},
                                     {"checkpoint", checkpoints}}) {
      const auto f = [nest = nest](Array x) { return sum(nest(x, kTooDeep)); };
      refused(what, [&] { jit(f)(operand()); });
      refused(what, [&] { make_jaxpr(grad(f))(operand()); });
      refused(what, [&] { jit(vmap(f, 1))(ones({2, 3})); });
    }
    // The thread goes on afterwards.
    EXPECT_EQ(jit([](Array x) { return conds(x, 3); })(operand()).shape(), Shape({2}));
  });
}

// Programs of any depth that could be traced are compiled and run, or refused by a pass without
// enough stack. This also holds if tracing has just enough stack.
TEST(NestedPrograms, AreRefusedByEveryPassThatHasNoRoom) {
  on_small_stack([] {
    for (int depth = 250; depth <= 2'000; depth *= 2) {
      try {
        EXPECT_EQ(jit([=](Array x) { return conds(x, depth); })(operand()).shape(), Shape({2}));
      } catch (const ValueError& e) {
        EXPECT_NE(std::string(e.what()).find(" deep"), std::string::npos) << e.what();
      }
    }
  });
}

}  // namespace
}  // namespace shmap
