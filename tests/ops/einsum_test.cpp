// shmap-test: devices
// einsum: golden values, random subscripts beside a loop over indices, sharded operands outside a
// body, and errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "tests/support/error_text.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using test::expect_error;

Array einsum_of(const std::string& text, const std::vector<Array>& operands) {
  return detail::einsum(text, operands);
}

void expect_golden_einsums(const testing::Placer& place) {
  int ran = 0;
  for (const testing::GoldenCase& c : testing::load_golden("ops_linalg")) {
    if (c.params.text("op") != "einsum") continue;
    SCOPED_TRACE(c.name);
    std::vector<Array> operands;
    for (const testing::GoldenArray& x : c.inputs) operands.push_back(place(testing::to_array(x)));
    // The values are small whole numbers: every order of summation gives the same bits, but for the
    // sign of a zero (a sum starts from +0), which one unit in the last place forgives.
    EXPECT_EQ(testing::golden_diff(c.outputs[0], einsum_of(c.params.text("spec"), operands), 1),
              "");
    ++ran;
  }
  EXPECT_GT(ran, 35);
}

TEST(EinsumGolden, PlainArrays) {
  expect_golden_einsums([](const Array& x) { return x; });
}
TEST(EinsumGolden, SplitOverAMesh) { expect_golden_einsums(testing::split_over_mesh); }

// --------------------------------------------------------------------- beside a loop over indices

struct Operand32 {
  std::string letters;
  std::vector<std::int32_t> values;
};

struct Problem {
  std::int64_t extent[128] = {};
  std::vector<Operand32> operands;
  std::string output;

  Shape shape_of(const std::string& letters) const {
    Shape s;
    for (char c : letters) s.push_back(extent[static_cast<std::size_t>(c)]);
    return s;
  }
  std::string text() const {
    std::string t;
    for (const Operand32& x : operands) t += (t.empty() ? "" : ",") + x.letters;
    return t + "->" + output;
  }
  std::vector<Array> arrays() const {
    std::vector<Array> out;
    for (const Operand32& x : operands)
      out.push_back(array<std::int32_t>(x.values, shape_of(x.letters)));
    return out;
  }
  // Sums of products modulo 2^32: exact in every order.
  std::vector<std::int32_t> by_loops() const {
    std::string all = output;
    for (const Operand32& x : operands)
      for (char c : x.letters)
        if (all.find(c) == std::string::npos) all += c;
    std::vector<std::uint32_t> out(static_cast<std::size_t>(shape_of(output).num_elements()), 0);
    std::int64_t at[128] = {};
    const auto flat = [&](const std::string& letters) {
      std::int64_t f = 0;
      for (char c : letters)
        f = f * extent[static_cast<std::size_t>(c)] + at[static_cast<std::size_t>(c)];
      return static_cast<std::size_t>(f);
    };
    const std::int64_t total = shape_of(all).num_elements();
    for (std::int64_t i = 0; i < total; ++i) {
      std::int64_t rest = i;
      for (std::size_t d = all.size(); d-- > 0;) {
        const auto c = static_cast<std::size_t>(all[d]);
        at[c] = rest % extent[c];
        rest /= extent[c];
      }
      std::uint32_t term = 1;
      for (const Operand32& x : operands)
        term *= static_cast<std::uint32_t>(x.values[flat(x.letters)]);
      out[flat(output)] += term;
    }
    return {out.begin(), out.end()};
  }
};

Problem random_problem(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::string pool = "abcdeXY";
  Problem p;
  for (char c : pool) p.extent[static_cast<std::size_t>(c)] = 1 + std::int64_t(below(4));
  std::string used;
  const std::size_t n = 1 + below(3);
  for (std::size_t i = 0; i < n; ++i) {
    Operand32 x;
    // A letter may come twice in one operand: a diagonal.
    for (std::size_t d = below(4) + (i == 0); d > 0; --d) x.letters += pool[below(pool.size())];
    for (std::int64_t k = p.shape_of(x.letters).num_elements(); k > 0; --k)
      x.values.push_back(static_cast<std::int32_t>(random()));
    for (char c : x.letters)
      if (used.find(c) == std::string::npos) used += c;
    p.operands.push_back(std::move(x));
  }
  std::shuffle(used.begin(), used.end(), random);
  p.output = used.substr(0, below(used.size() + 1));
  return p;
}

TEST(Einsum, RandomSubscriptsEqualALoopOverIndices) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    const Problem p = random_problem(seed);
    SCOPED_TRACE(p.text() + ", seed " + std::to_string(seed));
    const Array got = einsum_of(p.text(), p.arrays());
    ASSERT_EQ(got.shape(), p.shape_of(p.output));
    ASSERT_EQ(got.to_vector<std::int32_t>(), p.by_loops());
  }
}

TEST(Einsum, RandomSubscriptsOfSplitOperands) {
  for (std::uint32_t seed = 1000; seed < 1060; ++seed) {
    const Problem p = random_problem(seed);
    SCOPED_TRACE(p.text() + ", seed " + std::to_string(seed));
    std::vector<Array> operands;
    for (const Array& x : p.arrays()) operands.push_back(testing::split_over_mesh(x));
    const Array got = einsum_of(p.text(), operands);
    ASSERT_EQ(got.shape(), p.shape_of(p.output));
    ASSERT_EQ(got.to_vector<std::int32_t>(), p.by_loops());
  }
}

// ------------------------------------------------------------------------------- what it accepts

std::vector<float> values(const Array& x) { return x.to_vector<float>(); }
Array counted(Shape shape) { return reshape(arange(shape.num_elements()), shape); }

TEST(Einsum, SpacesAreNothing) {
  const Array a = counted({2, 3}), b = counted({3, 4});
  EXPECT_EQ(values(einsum(" i j , j k -> i k ", a, b)), values(matmul(a, b)));
}

TEST(Einsum, ImpliedOutputsAreAlphabetical) {
  const Array a = counted({2, 3}), b = counted({3, 4});
  EXPECT_EQ(einsum("zj,ja", a, b).shape(), (Shape{4, 2}));
  EXPECT_EQ(values(einsum("zj,ja", a, b)), values(transpose(matmul(a, b))));
  EXPECT_EQ(values(einsum("ba", a)), values(transpose(a)));
  EXPECT_EQ(einsum("ii", counted({3, 3})).item<float>(), 12.f);
  EXPECT_EQ(einsum("Za", a).shape(), (Shape{2, 3}));  // capitals come first
}

TEST(Einsum, EllipsesBroadcast) {
  const Array a = counted({2, 1, 3, 4}), b = counted({5, 4, 2});
  EXPECT_EQ(values(einsum("...ij,...jk->...ik", a, b)), values(matmul(a, b)));
  EXPECT_EQ(values(einsum("...ij,...jk", a, b)), values(matmul(a, b)));
  EXPECT_EQ(einsum("...ij,...jk->...ki", a, b).shape(), (Shape{2, 5, 2, 3}));
  EXPECT_EQ(einsum("i...->...i", a).shape(), (Shape{1, 3, 4, 2}));
  EXPECT_EQ(values(einsum("i...,i...->i...", a, a)), values(a * a));
  EXPECT_EQ(values(einsum("i...->", a)), values(sum(a)));
  EXPECT_EQ(einsum("...,...->...", counted({2, 3}), full({}, 2.f)).shape(), (Shape{2, 3}));
  EXPECT_EQ(einsum("...", 3.f).item<float>(), 3.f);
}

TEST(Einsum, DimsOfSizeOneBroadcast) {
  const Array a = counted({2, 3}), b = counted({1, 3});
  EXPECT_EQ(values(einsum("ij,ij->ij", a, b)), values(a * b));
  EXPECT_EQ(values(einsum("ij,kj->ik", a, b)), values(matmul(a, transpose(b))));
  EXPECT_EQ(values(einsum("ij,ij->i", a, b)), values(sum(a * b, 1)));
}

TEST(Einsum, EmptyDimsSumToZero) {
  EXPECT_EQ(values(einsum("ij,jk->ik", zeros({2, 0}), zeros({0, 3}))), std::vector<float>(6, 0.f));
  EXPECT_EQ(einsum("ij,jk->ik", zeros({0, 2}), zeros({2, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(einsum("i->", zeros({0})).item<float>(), 0.f);
}

TEST(Einsum, PromotesAndKeepsHalfTypes) {
  const Array h = ones({2, 2}, DType::bf16), i = ones({2, 2}, DType::i32), f = ones({2, 2});
  EXPECT_EQ(einsum("ij,jk->ik", h, h).dtype(), DType::bf16);
  EXPECT_EQ(einsum("ij,jk->ik", h, f).dtype(), DType::f32);
  EXPECT_EQ(einsum("ij,jk->ik", i, h).dtype(), DType::bf16);
  EXPECT_EQ(einsum("ij,jk,kl->il", i, i, f).dtype(), DType::f32);
  EXPECT_EQ(einsum("ij,->ij", f, 2.f).dtype(), DType::f32);
  EXPECT_EQ(values(einsum("ij,->ij", f, 2)), std::vector<float>(4, 2.f));
}

TEST(Einsum, TheTransformersProducts) {
  const Array x = counted({2, 3, 4}), w = counted({5, 4, 6});
  const Array q = einsum("bte,hed->bthd", x, w);
  ASSERT_EQ(q.shape(), (Shape{2, 3, 5, 6}));
  for (int h = 0; h < 5; ++h) EXPECT_EQ(values(q[{range(), range(), h}]), values(matmul(x, w[h])));
  const Array k = counted({2, 7, 5, 6});
  EXPECT_EQ(einsum("bqhd,bkhd->bhqk", q, k).shape(), (Shape{2, 5, 3, 7}));
}

// ------------------------------------------------------------------------------ sharded operands

TEST(ShardedEinsum, EverySpecGivesTheUnshardedResult) {
  const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  const auto placed = [&](const Array& x, const PartitionSpec& spec) {
    return device_put(x, NamedSharding(mesh, spec));
  };
  const auto small = [](Shape shape, int step) {
    std::vector<float> v;
    for (std::int64_t k = 0; k < shape.num_elements(); ++k)
      v.push_back(static_cast<float>(k * step % 11 - 5));
    return array<float>(v, shape);
  };
  const Array x = small({4, 8, 8}, 7), w = small({8, 8, 4}, 5);  // b t e, h e d
  const auto want = values(einsum("bte,hed->bthd", x, w));
  const PartitionSpec of_x[] = {P(),
                                P("i"),
                                P("j", "i"),
                                P(none, none, axes("i", "j")),
                                P(none, axes("j", "i")),
                                P(none, "j", "i")};
  const PartitionSpec of_w[] = {
      P(), P("i"), P("j", "i"), P(none, "i", "j"), P(axes("i", "j")), P(none, axes("i", "j"))};
  for (const PartitionSpec& sx : of_x) {
    for (const PartitionSpec& sw : of_w) {
      SCOPED_TRACE(to_string(sx) + ", " + to_string(sw));
      const Array got = einsum("bte,hed->bthd", placed(x, sx), placed(w, sw));
      ASSERT_EQ(got.shape(), (Shape{4, 8, 8, 4}));
      ASSERT_EQ(values(got), want);
    }
  }
  const Array y = einsum("bte,hed->bthd", placed(x, P("i", none, "j")), placed(w, P(none, "j")));
  EXPECT_EQ(y.sharding(), NamedSharding(mesh, P("i", none, none, none)));
}

// ---------------------------------------------------------------------------------------- errors

TEST(EinsumErrors, SayWhatIsWrongAndWhere) {
  const Array a = ones({3, 4}), b = ones({5, 6});
  expect_error<ValueError>(
      [&] { einsum("ij,jk->ik", a, b); },
      {"einsum(\"ij,jk->ik\")", "'j' has size 4 in operand 0 and size 5 in operand 1",
       "einsum_test.cpp:"});
  expect_error<ValueError>([&] { einsum("ij->ij", a, b); },
                           {"they name 1 operand, and 2 were given"});
  expect_error<ValueError>([&] { einsum("ijk->ij", a); },
                           {"operand 0", "f32[3,4]", "2 dims", "\"ijk\" names 3"});
  expect_error<ValueError>([&] { einsum("ijk...->ij", a); }, {"operand 0", "2 dims", "names 3"});
  expect_error<ValueError>([&] { einsum("ij->iji", a); }, {"'i'", "twice in the output"});
  expect_error<ValueError>([&] { einsum("ij->ik", a); }, {"'k'", "in no operand"});
  expect_error<ValueError>([&] { einsum("i1->i", a); }, {"character '1'", "operand 0"});
  expect_error<ValueError>([&] { einsum("i..j->ij", a); }, {"character '.'", "operand 0"});
  expect_error<ValueError>([&] { einsum("......->", a); }, {"character '.'"});
  expect_error<ValueError>([&] { einsum("ij->i->j", a); }, {"character '-'", "the output"});
  expect_error<ValueError>([&] { einsum("ij->i,j", a); }, {"character ','", "the output"});
  expect_error<ValueError>([&] { einsum("ii->i", a); },
                           {"'i' has size 3 in operand 0 and size 4 in operand 0"});
  expect_error<ValueError>(
      [] {
        einsum("ii->i", ones({1, 3}));
      },
      {"'i' names dims of sizes 1 and 3 of one operand"});
  expect_error<ValueError>(
      [&] {
        einsum("...ij,...jk->...ik", ones({2, 3, 4}), ones({5, 4, 3}));
      },
      {"dim -1 of the ellipsis has size 2 in operand 0 and size 5 in operand 1"});
  expect_error<ValueError>([&] { einsum("ij->", Array()); }, {"einsum", "empty Array"});
  expect_error<ValueError>([] { detail::einsum("->", {}); }, {"no operands"});
}

}  // namespace
}  // namespace shmap
