// shmap-test: devices
// Programs of global arrays communicate under jit as they do eagerly: the same collectives with as
// many bytes, in every call.
#include <gtest/gtest.h>

#include "shmap/shmap.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

Mesh mesh8() { return make_mesh({8}, "i"); }
Mesh mesh42() { return make_mesh({4, 2}, {"i", "j"}); }
Array numbers(Shape shape) { return reshape(arange(shape.num_elements()), shape); }
Array split(const Mesh& mesh, Shape shape, const P& spec) {
  return device_put(numbers(shape), NamedSharding(mesh, spec));
}

// The communication of f(args...), eagerly and in five calls of jit, which must be the same.
// Of several processes each counts the bytes that it sends, which depends on the exchange.
struct Cost {
  std::int64_t collectives, bytes;
  friend bool operator==(const Cost& a, const Cost& b) {
    return a.collectives == b.collectives && (process_count() > 1 || a.bytes == b.bytes);
  }
  friend std::ostream& operator<<(std::ostream& out, const Cost& c) {
    return out << c.collectives << " collectives of " << c.bytes << " bytes";
  }
};
template <class F, class... A>
Cost expect_same_cost(F f, const A&... args) {
  expect_same_under_jit(f, Communication::same, args...);
  reset_counters();
  f(args...);
  const Counters c = counters();
  return {c.collectives, c.collective_bytes};
}

// The plain form of JEP 14273: one all-gather of the result's rows, visible in the program too.
TEST(GlobalCommunication, ARowShardedProductIsGatheredOnce) {
  const NamedSharding whole(mesh8(), P());
  const auto f = [=](Array a, Array b) { return with_sharding_constraint(matmul(a, b), whole); };
  const Array a = split(mesh8(), {16, 4}, P("i")), b = split(mesh8(), {4, 6}, P());
  EXPECT_EQ(expect_same_cost(f, a, b), (Cost{1, 16 * 6 * 4}));
  const auto jitted = jit(f);
  jitted(a, b);
  const std::string plan = jitted.plan_text();
  const std::size_t first = plan.find(" = all_gather_invariant[");
  EXPECT_NE(first, std::string::npos) << plan;
  EXPECT_EQ(plan.find(" = all_gather_invariant[", first + 1), std::string::npos) << plan;
}

TEST(GlobalCommunication, APartialProductIsSummedOnce) {
  const auto f = [](Array a, Array b) { return matmul(a, b); };
  EXPECT_EQ(expect_same_cost(f, split(mesh8(), {4, 16}, P(none, "i")),
                             split(mesh8(), {16, 6}, P("i", none))),
            (Cost{1, 8 * 4 * 6 * 4}));
}

TEST(GlobalCommunication, ReductionsOfSplitDims) {
  const Array x = split(mesh42(), {8, 4, 6}, P("i", "j"));
  EXPECT_EQ(expect_same_cost([](Array y) { return sum(y, 0); }, x), (Cost{1, 8 * 2 * 6 * 4}));
  EXPECT_EQ(expect_same_cost([](Array y) { return max(y); }, x), (Cost{1, 8 * 4}));
  EXPECT_EQ(expect_same_cost([](Array y) { return sum(y, 2); }, x), (Cost{0, 0}));
  EXPECT_EQ(expect_same_cost([](Array y) { return mean(y, {0, 1}); }, x), (Cost{1, 8 * 6 * 4}));
  expect_same_cost([](Array y) { return softmax(y, 0); }, x);
  expect_same_cost([](Array y) { return var(y, 1); }, x);
}

TEST(GlobalCommunication, FromAnySplitToAnyOther) {
  const std::vector<P> specs = {P(),
                                P("i"),
                                P("j"),
                                P(none, "i"),
                                P(none, "j"),
                                P("i", "j"),
                                P("j", "i"),
                                P(axes("i", "j")),
                                P(axes("j", "i")),
                                P(none, axes("i", "j")),
                                P(none, none, "j")};
  for (const P& from : specs) {
    for (const P& to : specs) {
      SCOPED_TRACE(to_string(from) + " to " + to_string(to));
      const NamedSharding target(mesh42(), to);
      const auto f = [=](Array x) { return with_sharding_constraint(x, target) + 1; };
      const Array x = split(mesh42(), {8, 8, 2}, from);
      const Cost cost = expect_same_cost(f, x);
      EXPECT_EQ(f(x).sharding(), target);
      EXPECT_EQ(f(x).to_vector<float>(), (numbers({8, 8, 2}) + 1).to_vector<float>());
      if (from == to || from == P()) {
        EXPECT_EQ(cost, (Cost{0, 0}));
      }
    }
  }
}

// An axis that leaves one dim for another takes one exchange: no device gets the whole.
TEST(GlobalCommunication, AnAxisMovesByAnExchange) {
  const auto to = [](const P& spec) {
    const NamedSharding target(mesh42(), spec);
    return [=](Array x) { return with_sharding_constraint(x, target) * 2.f; };
  };
  const std::int64_t bytes = 8 * 8 * 2 * 4;
  EXPECT_EQ(expect_same_cost(to(P(none, "i")), split(mesh42(), {8, 8, 2}, P("i"))),
            (Cost{1, 2 * bytes}));
  EXPECT_EQ(expect_same_cost(to(P("i", "j")), split(mesh42(), {8, 8, 2}, P(axes("i", "j")))),
            (Cost{1, bytes}));
  EXPECT_EQ(
      expect_same_cost(to(P(none, axes("i", "j"))), split(mesh42(), {8, 8, 2}, P(axes("i", "j")))),
      (Cost{1, bytes}));
  EXPECT_EQ(expect_same_cost(to(P("i")), split(mesh42(), {8, 8, 2}, P("i", "j"))),
            (Cost{1, bytes}));
  const auto jitted = jit(to(P(none, "i")));
  jitted(split(mesh42(), {8, 8, 2}, P("i")));
  EXPECT_NE(jitted.plan_text().find(" = all_to_all["), std::string::npos) << jitted.plan_text();
}

TEST(GlobalCommunication, OperandsThatAreSplitUnlike) {
  const auto add = [](Array a, Array b) { return a + b; };
  for (const P& other : {P(), P("i"), P("j"), P(none, "i"), P("j", "i"), P(axes("j", "i"))})
    expect_same_cost(add, split(mesh42(), {8, 8}, P("i", "j")), split(mesh42(), {8, 8}, other));
}

TEST(GlobalCommunication, ArgumentsOfAMappedFunctionAreBroughtToItsSpecs) {
  const auto f =
      shard_map([](Array x) { return psum(x * 2.f, "j"); }, mesh42(), P("i", "j"), P("i"));
  for (const P& from : {P(), P("i"), P("i", "j"), P("j", "i"), P(none, "i"), P(axes("i", "j"))}) {
    SCOPED_TRACE(to_string(from));
    const Cost cost = expect_same_cost(f, split(mesh42(), {8, 8}, from));
    if (from == P() || from == P("i") || from == P("i", "j")) {
      EXPECT_EQ(cost, (Cost{1, 2 * 4 * 8 * 4 * 2 / 2}));
    }
  }
}

TEST(GlobalCommunication, OfLoopsAndBranches) {
  const Array x = split(mesh42(), {8, 8}, P("i", "j"));
  expect_same_cost(
      [](Array y) {
        return fori_loop(
            0, 3, [](Array, Array v) { return v + sum(v, 0) * 0.125f; }, y);
      },
      x);
  expect_same_cost(
      [](Array y) {
        return scan([](Array c, Array v) { return std::pair{c + sum(v), c}; }, Array(0.f), y);
      },
      x);
  expect_same_cost(
      [](Array y) {
        return cond(
            sum(y) > 0.f, [](Array v) { return v * 2.f; }, [](Array v) { return v + sum(v); }, y);
      },
      x);
}

}  // namespace
}  // namespace shmap::test
