// shmap-test: devices
// jit turns products beside collectives into overlapped ones: which are found, and which are left.
// The form is forced to a ring, since the model would leave programs of this size unchanged.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "shmap/shmap.h"
#include "tests/support/device_grids.h"

namespace shmap {
namespace {

// Set before anything reads the variable.
const bool kForced = setenv("SHMAP_OVERLAP", "ring", 1) == 0;

Mesh ring_mesh() { return mesh_in_all_processes({4}, {"i"}); }
Array numbers(const Shape& shape, int seed, DType dtype = f32) {
  const Array k = iota(i32, shape.num_elements());
  return astype(reshape((k * 7 + k * k + seed) % 5, shape), dtype);
}

int times(const std::string& text, const std::string& what) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
  return n;
}

using Body = std::function<Array(Array, Array)>;
struct Specs3 {
  P a, b, out;
};

// The plan of the second call, and the values of all calls.
std::string planned(const Body& body, Specs3 specs, Array a, Array b, bool check = true) {
  const auto f = shard_map(body, ring_mesh(), {specs.a, specs.b}, specs.out, {.check_vma = check});
  const std::vector<float> want = astype(f(a, b), f32).to_vector<float>();
  const auto g = jit(f);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(astype(g(a, b), f32).to_vector<float>(), want) << "call " << call;
  return g.plan_text();
}

void expect_ring(const std::string& text) {
  EXPECT_EQ(times(text, "ppermute"), 3) << text;
  EXPECT_EQ(times(text, "all_gather"), 0) << text;
  EXPECT_EQ(times(text, "psum_scatter"), 0) << text;
}

TEST(FindOverlap, TheFormIsForced) { EXPECT_TRUE(kForced); }

TEST(FindOverlap, ProductsOfWhatIsGathered) {
  for (const bool check : {true, false}) {
    expect_ring(planned(
        [](Array x, Array w) { return matmul(all_gather(x, "i", {.tiled = true}), w); },
        {P("i"), P(none, "i"), P(none, "i")}, numbers({8, 3}, 1), numbers({3, 8}, 2), check));
    expect_ring(planned(
        [](Array x, Array w) {
          return einsum("bte,hed->bthd", all_gather(x, "i", {.axis = 2, .tiled = true}), w);
        },
        {P(none, none, "i"), P("i"), P(none, none, "i")}, numbers({2, 3, 8}, 1),
        numbers({4, 8, 2}, 2), check));
    expect_ring(planned(
        [](Array x, Array w) {
          return einsum("ij,jk->ik", x, all_gather_invariant(w, "i", {.axis = 1, .tiled = true}));
        },
        {P("i"), P(none, "i"), P("i")}, numbers({8, 3}, 1), numbers({3, 8}, 2), check));
  }
}

TEST(FindOverlap, ProductsThatAreSummedAndScattered) {
  for (const bool check : {true, false}) {
    expect_ring(planned(
        [](Array x, Array w) {
          return psum_scatter(matmul(x, w), "i", {.scatter_dimension = 1, .tiled = true});
        },
        {P(none, "i"), P("i"), P(none, "i")}, numbers({3, 8}, 1), numbers({8, 8}, 2), check));
    expect_ring(planned(
        [](Array x, Array w) {
          return psum_scatter(einsum("bthd,hde->ebt", x, w), "i",
                              {.scatter_dimension = 2, .tiled = true});
        },
        {P(none, none, "i"), P("i"), P(none, none, "i")}, numbers({2, 4, 4, 2}, 1),
        numbers({4, 2, 3}, 2), check));
  }
}

// The result is invariant, and the overlapped product's varies as far as its type goes.
TEST(FindOverlap, InvariantResults) {
  expect_ring(planned(
      [](Array x, Array w) { return matmul(all_gather_invariant(x, "i", {.tiled = true}), w); },
      {P("i"), P(), P()}, numbers({8, 3}, 1), numbers({3, 8}, 2)));
}

TEST(FindOverlap, WhatIsReadElsewhereStays) {
  const std::string twice = planned(
      [](Array x, Array w) {
        const Array all = all_gather(x, "i", {.tiled = true});
        return matmul(all, w) + sum(all);
      },
      {P("i"), P(none, "i"), P(none, "i")}, numbers({8, 3}, 1), numbers({3, 8}, 2));
  EXPECT_EQ(times(twice, "ppermute"), 0) << twice;
  EXPECT_EQ(times(twice, "= all_gather["), 1) << twice;
  const std::string untiled =
      planned([](Array x, Array w) { return einsum("rij,jk->ik", all_gather(x, "i"), w); },
              {P("i"), P(none, "i"), P(none, "i")}, numbers({8, 3}, 1), numbers({3, 8}, 2));
  EXPECT_EQ(times(untiled, "ppermute"), 0) << untiled;
  const std::string product = planned(
      [](Array x, Array w) {
        const Array y = matmul(x, w);
        return psum_scatter(y, "i", {.tiled = true}) + slice(y, {0, 0}, {1, y.shape()[1]});
      },
      {P(none, "i"), P("i"), P("i")}, numbers({4, 8}, 1), numbers({8, 3}, 2));
  EXPECT_EQ(times(product, "ppermute"), 0) << product;
}

// Automatic products take the form that is forced, and so do their derivatives.
TEST(FindOverlap, AutomaticProductsAreForced) {
  const auto f =
      shard_map([](Array x, Array w) { return all_gather_einsum("ij,jk->ik", x, w, "i"); },
                ring_mesh(), {P("i"), P(none, "i")}, P(none, "i"));
  const auto loss = [&](Array x, Array w) { return sum(f(x, w)); };
  const std::string text = to_string(make_jaxpr(grad<0, 1>(loss))(zeros({8, 3}), zeros({3, 8})));
  EXPECT_EQ(times(text, "form=ring"), 3) << text;
  EXPECT_EQ(times(text, " ppermute["), 9) << text;
}

// A program of global arrays, whose collectives the partitioner writes.
TEST(FindOverlap, ProgramsOfGlobalArrays) {
  const Mesh mesh = ring_mesh();
  const Array a = device_put(numbers({8, 12}, 1), NamedSharding(mesh, P(none, "i"))),
              b = device_put(numbers({12, 8}, 2), NamedSharding(mesh, P(none, "i")));
  const auto f = [](Array x, Array y) { return matmul(x, y); };
  const std::vector<float> want = f(a, b).to_vector<float>();
  const auto g = jit(f);
  for (int call = 0; call < 3; ++call) EXPECT_EQ(g(a, b).to_vector<float>(), want);
  const std::string text = g.plan_text();
  EXPECT_EQ(times(text, "all_gather"), 0) << text;
}

}  // namespace
}  // namespace shmap
