// Errors of collectives: the text says what was given, what was wanted, where, and the remedy.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap::test {
namespace {

const char* const kHere = "collective_errors_test.cpp";

// Runs body on blocks f32[2,6]{i,j} of a 4 × 2 mesh, eagerly and under jit: both must throw the
// same.
std::function<void()> in_body(std::function<Array(Array)> body) {
  return [body = std::move(body)] {
    const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
    const auto mapped = shard_map(
        [&](Array x) {
          body(x);
          return x;
        },
        mesh, P(axes("i", "j")), P(axes("i", "j")));
    const auto text_of = [](const auto& f) -> std::string {
      try {
        f(zeros({16, 6}));
      } catch (const std::exception& e) {
        return e.what();
      }
      return "nothing was thrown";
    };
    EXPECT_EQ(text_of(jit(mapped)), text_of(mapped));
    mapped(zeros({16, 6}));
  };
}

using A = Array;
const std::vector<std::pair<const char*, std::function<Array(Array, Axes)>>>& all_of_them() {
  static const std::vector<std::pair<const char*, std::function<Array(Array, Axes)>>> list = {
      {"psum", [](A x, Axes n) { return psum(x, n); }},
      {"pmean", [](A x, Axes n) { return pmean(x, n); }},
      {"pmax", [](A x, Axes n) { return pmax(x, n); }},
      {"pmin", [](A x, Axes n) { return pmin(x, n); }},
      {"ppermute",
       [](A x, Axes n) {
         return ppermute(x, n, {{0, 1}});
       }},
      {"pshuffle",
       [](A x, Axes n) {
         return pshuffle(x, n, {0, 1});
       }},
      {"pswapaxes", [](A x, Axes n) { return pswapaxes(x, n, 0); }},
      {"all_gather", [](A x, Axes n) { return all_gather(x, n); }},
      {"all_gather_invariant", [](A x, Axes n) { return all_gather_invariant(x, n); }},
      {"psum_scatter", [](A x, Axes n) { return psum_scatter(x, n); }},
      {"pscatter", [](A x, Axes n) { return pscatter(x, n); }},
      {"all_to_all", [](A x, Axes n) { return all_to_all(x, n, 0, 0); }},
      {"ragged_all_to_all",
       [](A x, Axes n) {
         const A k = zeros({8}, i32);
         return ragged_all_to_all(x, x, k, k, k, k, n);
       }},
      {"pbroadcast", [](A x, Axes n) { return pbroadcast(x, n); }},
      {"pvary", [](A x, Axes n) { return pvary(x, n); }},
      {"broadcast_from", [](A x, Axes n) { return broadcast_from(x, n, 0); }},
      {"axis_index", [](A, Axes n) { return axis_index(n); }},
      {"axis_size", [](A, Axes n) { return Array(axis_size(n)); }},
      {"psum", [](A, Axes n) { return Array(psum(1, n)); }},
  };
  return list;
}

TEST(CollectiveErrors, AnUnknownAxisIsUnboundInAllOfThem) {
  for (const auto& [name, call] : all_of_them()) {
    SCOPED_TRACE(name);
    expect_error<CollectiveError>(
        in_body([&call = call](Array x) { return call(x, "q"); }),
        {name, "unbound axis name 'q'", "'i': 4, 'j': 2", "shard_map", kHere});
    expect_error<CollectiveError>(in_body([&call = call](Array x) {
                                    return call(x, {"i", "q"});
                                  }),
                                  {name, "unbound axis name 'q'"});
    expect_error<CollectiveError>(
        [&call = call] {
          call(zeros({2, 2}), "i");
        },
        {name, "unbound axis name 'i'", "no mesh axes are in scope", "body of a shard_map", kHere});
  }
}

TEST(CollectiveErrors, AnAxisNamedTwice) {
  for (const auto& [name, call] : all_of_them()) {
    expect_error<ValueError>(in_body([&call = call](Array x) {
                               return call(x, {"i", "j", "i"});
                             }),
                             {name, "'i' is named twice", "('i', 'j', 'i')", kHere});
  }
}

TEST(CollectiveErrors, DimsThatCannotBeCut) {
  expect_error<ValueError>(
      in_body([](A x) {
        return psum_scatter(x, {"j", "i"}, {.scatter_dimension = 1, .tiled = true});
      }),
      {"psum_scatter: dim 1", "f32[2,6]{i,j}", "6 elements", "cut evenly",
       "8 ranks over mesh axes ('j', 'i') of sizes 2, 4", "a multiple of 8", kHere});
  expect_error<ValueError>(
      in_body([](A x) { return psum_scatter(x, "i", {.scatter_dimension = 1}); }),
      {"psum_scatter: dim 1", "6 elements", "one element is wanted for each",
       "4 ranks over mesh axis 'i'", "{.tiled = true} takes a multiple of 4", kHere});
  expect_error<ValueError>(
      in_body([](A x) { return psum_scatter(x, "j", {.scatter_dimension = 1}); }),
      {"psum_scatter: dim 1", "6 elements", "2 ranks over mesh axis 'j'",
       "Probably {.tiled = true} is meant", "2 parts of 3", kHere});
  expect_error<ValueError>(
      in_body([](A x) { return pscatter(psum(x, "i"), "i", {.tiled = true}); }),
      {"pscatter: dim 0", "2 elements", "cut evenly", "4 ranks over mesh axis 'i'", kHere});
  expect_error<ValueError>(in_body([](A x) { return all_to_all(x, "i", 1, 0, {.tiled = true}); }),
                           {"all_to_all: split_axis 1", "f32[2,6]{i,j}", "6 elements", "cut evenly",
                            "4 ranks over mesh axis 'i'", kHere});
  expect_error<ValueError>(
      in_body([](A x) { return all_to_all(x, "i", 0, 1); }),
      {"all_to_all: split_axis 0", "2 elements", "one element is wanted", "4 ranks", kHere});
  for (const int axis : {1, -1}) {
    expect_error<ValueError>(
        in_body([axis](A x) { return pswapaxes(x, "i", axis); }),
        {"pswapaxes: axis 1", "f32[2,6]{i,j}", "6 elements", "4 ranks over mesh axis 'i'",
         "all_to_all and {.tiled = true}", kHere});
  }
  expect_error<ValueError>(
      in_body([](A x) {
        return pswapaxes(x, "i", 0, {.axis_index_groups = {{0}, {1}, {2}, {3}}});
      }),
      {"pswapaxes: axis 0", "2 elements", "of each group", kHere});
  expect_error<ValueError>(in_body([](A x) { return pswapaxes(x, "i", 2); }),
                           {"pswapaxes: dim 2", "out of range", kHere});
  expect_error<ValueError>(
      in_body([](A x) {
        return psum_scatter(x, "i", {.tiled = true, .axis_index_groups = {{0, 1, 2, 3}}});
      }),
      {"dim 0", "2 elements", "of each group"});
}

TEST(CollectiveErrors, DimsOutOfRange) {
  expect_error<ValueError>(in_body([](A x) { return all_gather(x, "i", {.axis = 3}); }),
                           {"all_gather: dim 3", "out of range", kHere});
  expect_error<ValueError>(
      in_body([](A x) { return all_gather(x, "i", {.axis = 2, .tiled = true}); }),
      {"all_gather: dim 2", "rank 2", kHere});
  expect_error<ValueError>(
      in_body([](A x) { return psum_scatter(x, "i", {.scatter_dimension = -3}); }),
      {"psum_scatter: dim -3", kHere});
  expect_error<ValueError>(in_body([](A x) { return all_to_all(x, "i", 2, 0); }),
                           {"all_to_all: dim 2", "out of range", kHere});
  expect_error<ValueError>(in_body([](A x) { return all_to_all(x, "i", 0, 2); }),
                           {"all_to_all: dim 2", "out of range", kHere});
}

TEST(CollectiveErrors, Permutations) {
  expect_error<ValueError>(
      in_body([](A x) {
        return ppermute(x, "i", {{0, 1}, {4, 2}});
      }),
      {"ppermute", "(4, 2)", "out of range", "4 ranks over mesh axis 'i'", kHere});
  expect_error<ValueError>(in_body([](A x) {
                             return ppermute(x, "i", {{0, -1}});
                           }),
                           {"(0, -1)", "out of range"});
  expect_error<ValueError>(in_body([](A x) {
                             return ppermute(x, "i", {{0, 1}, {0, 2}});
                           }),
                           {"(0, 1)", "(0, 2)", "same source, rank 0", kHere});
  expect_error<ValueError>(in_body([](A x) {
                             return ppermute(x, "i", {{0, 1}, {3, 1}});
                           }),
                           {"(0, 1)", "(3, 1)", "same destination, rank 1", kHere});
  expect_error<ValueError>(in_body([](A x) {
                             return pshuffle(x, "i", {0, 1, 2, 2});
                           }),
                           {"pshuffle", "{0, 1, 2, 2}", "not a permutation", "4 ranks", kHere});
  expect_error<ValueError>(in_body([](A x) {
                             return pshuffle(x, "i", {0, 1, 2});
                           }),
                           {"{0, 1, 2}", "not a permutation"});
  expect_error<ValueError>(in_body([](A x) { return broadcast_from(x, "i", 4); }),
                           {"broadcast_from", "source rank 4", "4 ranks", kHere});
  expect_error<ValueError>(in_body([](A x) {
                             return broadcast_from(x, {"i", "j"}, -1);
                           }),
                           {"source rank -1", "8 ranks over mesh axes ('i', 'j') of sizes 4, 2"});
}

TEST(CollectiveErrors, Groups) {
  const auto with = [](Groups groups) {
    return in_body([groups](A x) { return psum(x, "i", {.axis_index_groups = groups}); });
  };
  expect_error<ValueError>(
      with({{0, 1}, {2}}),
      {"psum", "axis_index_groups", "2 ranks and another 1", "4 ranks over mesh axis 'i'", kHere});
  expect_error<ValueError>(with({{0, 1}}), {"ranks 2, 3 are in no group"});
  expect_error<ValueError>(with({{0, 1}, {1, 2}}), {"rank 1 is listed twice"});
  expect_error<ValueError>(with({{0, 1}, {2, 4}}), {"rank 4 is out of range"});
  expect_error<ValueError>(with({{0, 1}, {2, -1}}), {"rank -1 is out of range"});
  expect_error<ValueError>(in_body([](A x) {
                             return all_gather(x, "i", {.axis_index_groups = {{0}, {1}}});
                           }),
                           {"all_gather", "ranks 2, 3 are in no group"});
  expect_error<ValueError>(in_body([](A) {
                             return Array(psum(1, "i", {.axis_index_groups = {{0}, {1}}}));
                           }),
                           {"psum", "ranks 2, 3 are in no group"});
}

// Their parameters name ranks that this mesh does not have, and would be read or written outside of
// its tables.
TEST(CollectiveErrors, EquationsThatWereTracedForAnotherMesh) {
  const auto traced = [](const std::function<Array(Array)>& f) {
    std::optional<ClosedJaxpr> equations;
    shard_map(
        [&](A x) {
          equations = make_jaxpr(f)(x);
          return x;
        },
        make_mesh({8, 1}, {"i", "j"}), P(axes("i", "j")), P(axes("i", "j")))(zeros({16, 6}));
    return in_body([equations](A x) { return eval_jaxpr(*equations, {x})[0]; });
  };
  const auto expect = [&](const std::function<Array(Array)>& f, const char* what, const char* has) {
    SCOPED_TRACE(what);
    expect_error<ValueError>(traced(f),
                             {what, has, "4 ranks over mesh axis 'i'", "another", kHere});
  };
  const Groups pairs = {{0, 7}, {1, 2}, {3, 4}, {5, 6}};
  const char* const eight = "is over 8 ranks";
  expect([&](A x) { return psum(x, "i", {.axis_index_groups = pairs}); }, "psum",
         "has groups of 8 ranks together");
  expect([&](A x) { return pmax(x, "i", {.axis_index_groups = pairs}); }, "pmax",
         "has groups of 8 ranks together");
  expect([](A x) { return all_gather(x, "i"); }, "all_gather", eight);
  expect([&](A x) { return all_gather(x, "i", {.axis_index_groups = pairs}); }, "all_gather",
         "has groups of 8 ranks together");
  expect([](A x) { return all_gather_invariant(x, "i"); }, "all_gather_invariant", eight);
  const auto eight_rows = [](A x) { return concatenate({x, x, x, x}, 0); };
  expect([&](A x) { return psum_scatter(eight_rows(x), "i", {.tiled = true}); }, "psum_scatter",
         eight);
  expect([&](A x) { return pscatter(psum(eight_rows(x), "i"), "i", {.tiled = true}); }, "pscatter",
         eight);
  expect([&](A x) { return all_to_all(eight_rows(x), "i", 0, 1, {.tiled = true}); }, "all_to_all",
         eight);
  expect([](A x) { return ppermute(x, "i", {{0, 5}}); }, "ppermute", "names rank 5");
  expect([](A x) { return ppermute(x, "i", {{6, 1}}); }, "ppermute", "names rank 6");
  expect([](A x) { return broadcast_from(x, "i", 4); }, "broadcast_from", "names rank 4");
}

TEST(CollectiveErrors, OperandsOfARaggedExchange) {
  const auto with = [](std::function<Array(Array, Array)> call) {
    return in_body([call](A x) { return call(x, zeros({8}, i32)); });
  };
  expect_error<TypeError>(
      with([](A x, A k) { return ragged_all_to_all(x, astype(x, f64), k, k, k, k, "i"); }),
      {"ragged_all_to_all: operand has type f32[2,6]{i,j} and output f64[2,6]{i,j}", "dtype",
       "astype", kHere});
  for (const Shape& shape : {Shape({3, 5}), Shape({3}), Shape({3, 6, 1})}) {
    expect_error<ValueError>(
        with([&](A x, A k) { return ragged_all_to_all(x, zeros(shape), k, k, k, k, "i"); }),
        {"ragged_all_to_all: operand has type f32[2,6]{i,j} and output f32[3", "dim 0",
         "agree in all other dims", kHere});
  }
  expect_error<ValueError>(
      with([](A x, A k) { return ragged_all_to_all(x, x[0][0], k, k, k, k, "i"); }),
      {"ragged_all_to_all", "output f32[]{i,j}", "need a dim 0", kHere});
  expect_error<TypeError>(
      with([](A x, A k) { return ragged_all_to_all(x, x, k, k, astype(k, f32), k, "i"); }),
      {"ragged_all_to_all: output_offsets has type f32[8]", "are integers", "astype(x, i32)",
       kHere});
  expect_error<TypeError>(
      with([](A x, A k) { return ragged_all_to_all(x, x, k, k == 0, k, k, "i"); }),
      {"send_sizes has type bool[8]", "are integers"});
  expect_error<ValueError>(
      with([](A x, A k) {
        return ragged_all_to_all(x, x, k, k, k, reshape(k, {4, 2}), "i");
      }),
      {"ragged_all_to_all: recv_sizes has type i32[4,2]", "one dim", "reshape(x, {-1})", kHere});
  expect_error<ValueError>(with([](A x, A k) { return ragged_all_to_all(x, x, k, 0, k, k, "i"); }),
                           {"send_sizes has type i32[]", "one dim"});
  expect_error<ValueError>(
      with([](A x, A k) { return ragged_all_to_all(x, x, k, k[range(0, 4)], k, k, "i"); }),
      {"ragged_all_to_all: send_sizes has type i32[4] and input_offsets i32[8]", "as many elements",
       kHere});
  for (const std::int64_t count : {6, 0}) {
    expect_error<ValueError>(
        with([&](A x, A) {
          const A k = zeros({count}, i32);
          return ragged_all_to_all(x, x, k, k, k, k, "i");
        }),
        {"ragged_all_to_all: input_offsets has type i32[", "cannot be shared evenly",
         "4 ranks over mesh axis 'i'", "a multiple of 4", "a slice of size 0", kHere});
  }
  expect_error<ValueError>(with([](A x, A k) {
                             return ragged_all_to_all(
                                 x, x, k, k, k, k, {"i", "j"},
                                 {.axis_index_groups = {{0, 1, 2}, {3, 4, 5}}});
                           }),
                           {"ragged_all_to_all", "ranks 6, 7 are in no group", kHere});
  expect_error<ValueError>(
      with([](A x, A) {
        const A k = zeros({3}, i32);
        return ragged_all_to_all(x, x, k, k, k, k, "i", {.axis_index_groups = {{0, 1}, {2, 3}}});
      }),
      {"its 3 slices", "2 ranks over mesh axis 'i' of each group", "a multiple of 2"});
  expect_error<TypeError>(
      with([](A x, A k) {
        using List = std::vector<Array>;
        return ragged_all_to_all(List{x, x}, List{x}, k, k, k, k, "i")[0];
      }),
      {"ragged_all_to_all", "operand and output have different structures", kHere});
}

TEST(CollectiveErrors, EmptyArrays) {
  for (const auto& [name, call] : all_of_them()) {
    if (std::string(name).starts_with("axis") || &call == &all_of_them().back().second) continue;
    SCOPED_TRACE(name);
    expect_error<ValueError>(in_body([&call = call](Array) { return call(Array(), "j"); }),
                             {name, "empty Array", kHere});
  }
}

// After these errors, arrays and the mesh are as before.
TEST(CollectiveErrors, LeaveEverythingUsable) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto body = [](Array x) {
    EXPECT_THROW(psum(x, "q"), CollectiveError);
    EXPECT_THROW(ppermute(x, "i", {{0, 9}}), ValueError);
    EXPECT_THROW(pbroadcast(x, "i"), TypeError);
    return psum(x, "i");
  };
  const auto f = shard_map(body, mesh, P("i"), P());
  EXPECT_EQ(f(arange(4)).item<float>(), 6.f);
  EXPECT_EQ(f(arange(4)).item<float>(), 6.f);
}

}  // namespace
}  // namespace shmap::test
