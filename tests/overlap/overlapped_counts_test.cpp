// The operations of overlapped products: n - 1 ppermutes, n products and no gather, forward and
// backward; in two rings twice as many of half the size. Also the choice of the form.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap::test {
namespace {

constexpr int kRanks = 8;
const char* const kHere = "overlapped_counts_test.cpp";

Mesh ring_mesh() { return make_mesh({kRanks}, {"i"}); }

struct Counts {
  std::map<std::string, int> collectives;
  int products = 0;
  std::string text;
};

template <class F, class... A>
Counts counts_of(const F& f, const A&... args) {
  Counts out;
  const ClosedJaxpr jaxpr = make_jaxpr(f)(args...);
  for (const CollectiveCost& c : cost_analysis(jaxpr).collectives) ++out.collectives[c.primitive];
  out.text = to_string(jaxpr);
  for (std::size_t at = 0; (at = out.text.find(" dot_general[", at)) != std::string::npos; ++at)
    ++out.products;
  return out;
}

using Body = std::function<Array(Array, Array)>;

// Forward, and the gradients with respect to either operand and to both, each without the others.
void expect_counts(const Body& body, P a_spec, P b_spec, P out_spec, Shape a, Shape b, int rings,
                   int products) {
  const auto mapped = shard_map(body, ring_mesh(), {a_spec, b_spec}, out_spec);
  const Array x = zeros(a), y = zeros(b);
  const auto loss = [&](Array p, Array q) { return sum(mapped(p, q)); };
  const auto check = [&](const Counts& got, int times) {
    EXPECT_EQ(got.collectives,
              (std::map<std::string, int>{{"ppermute", times * rings * (kRanks - 1)}}))
        << got.text;
    EXPECT_EQ(got.products, times * products) << got.text;
  };
  check(counts_of(mapped, x, y), 1);
  check(counts_of([&](Array p, Array q) { return vjp(mapped, p, q).first; }, x, y), 1);
  const auto [value, pullback] = vjp(mapped, x, y);
  check(counts_of([&, pullback = pullback](Array ct) { return pullback(ct); }, ones(value.shape())),
        2);
  check(counts_of(grad<0>(loss), x, y), 2);
  check(counts_of(grad<1>(loss), x, y), 2);
  check(counts_of(grad<0, 1>(loss), x, y), 3);
}

TEST(OverlapCounts, Gathers) {
  const auto body = [](Overlap form, int axis) {
    return [=](Array x, Array w) {
      return all_gather_einsum("mk,kn->mn", x, w, "i", {.axis = axis, .form = form});
    };
  };
  expect_counts(body(Overlap::ring, 0), P("i"), P(none, "i"), P(none, "i"), {16, 4}, {4, 16}, 1,
                kRanks);
  expect_counts(body(Overlap::ring, 1), P(none, "i"), P(none, "i"), P(none, "i"), {4, 16}, {16, 16},
                1, kRanks);
  // Two halves: a device's own block is one product, each other block two.
  const auto both =
      shard_map(body(Overlap::two_rings, 0), ring_mesh(), {P("i"), P(none, "i")}, P(none, "i"));
  const Counts two = counts_of(both, zeros({24, 4}), zeros({4, 16}));
  EXPECT_EQ(two.collectives, (std::map<std::string, int>{{"ppermute", 2 * (kRanks - 1)}}));
  EXPECT_EQ(two.products, 2 * kRanks - 1);
  EXPECT_NE(two.text.find("f32[2,4]{i} = ppermute"), std::string::npos) << two.text;
  EXPECT_NE(two.text.find("f32[1,4]{i} = ppermute"), std::string::npos) << two.text;
}

TEST(OverlapCounts, Scatters) {
  for (const Overlap form : {Overlap::ring, Overlap::two_rings}) {
    const int rings = form == Overlap::ring ? 1 : 2;
    const auto f = shard_map(
        [=](Array x, Array w) {
          return einsum_psum_scatter("mk,kn->mn", x, w, "i", {.form = form});
        },
        ring_mesh(), {P(none, "i"), P("i")}, P("i"));
    const Counts got = counts_of(f, zeros({16, 16}), zeros({16, 4}));
    EXPECT_EQ(got.collectives, (std::map<std::string, int>{{"ppermute", rings * (kRanks - 1)}}));
    EXPECT_EQ(got.products, rings * kRanks);
  }
  expect_counts(
      [](Array x, Array w) {
        return einsum_psum_scatter("mk,kn->mn", x, w, "i", {.form = Overlap::ring});
      },
      P(none, "i"), P("i"), P("i"), {16, 16}, {16, 4}, 1, kRanks);
}

TEST(OverlapCounts, Exchanges) {
  for (const Overlap form : {Overlap::ring, Overlap::two_rings}) {
    expect_counts(
        [=](Array x, Array w) {
          return all_to_all_einsum("mk,kn->mn", x, w, "i",
                                   {.split_axis = 0, .concat_axis = 1, .form = form});
        },
        P(none, "i"), P(none, "i"), P("i", none), {16, 8}, {8, 16}, 1, kRanks);
  }
}

TEST(OverlapCounts, TheProgramSaysWhichForm) {
  const auto f = shard_map(
      [](Array x, Array w) {
        return all_gather_einsum("mk,kn->mn", x, w, "i", {.form = Overlap::ring});
      },
      ring_mesh(), {P("i"), P()}, P("i"));
  const std::string text = counts_of(f, zeros({16, 4}), zeros({4, 2})).text;
  EXPECT_NE(text.find("all_gather_einsum["), std::string::npos) << text;
  EXPECT_NE(text.find("form=ring"), std::string::npos) << text;
  EXPECT_NE(text.find("spec=mk,kn->mn"), std::string::npos) << text;
}

TEST(OverlapCounts, TheChoiceCanBeReadAndForced) {
  OverlapChoice free{}, forced{}, alone{}, scattered{}, exchanged{};
  const auto f = shard_map(
      [&](Array x, Array w) {
        free = overlap_choice("mk,kn->mn", x, w, "i", AllGatherEinsumOptions{});
        forced = overlap_choice("mk,kn->mn", x, w, "i",
                                AllGatherEinsumOptions{.form = Overlap::two_rings});
        alone = overlap_choice("mk,kn->n", x, w, "i",
                               AllGatherEinsumOptions{.form = Overlap::two_rings});
        scattered = overlap_choice("mk,kn->mn", all_gather(x, "i", {.tiled = true}), w, "i",
                                   EinsumPsumScatterOptions{.form = Overlap::ring});
        exchanged =
            overlap_choice("mk,kn->mn", x, w, "i", AllToAllEinsumOptions{.form = Overlap::none});
        return x;
      },
      ring_mesh(), {P("i"), P()}, P("i"));
  f(zeros({64, 4}), zeros({4, 2}));
  EXPECT_NE(free.form, Overlap::automatic);
  EXPECT_GT(free.none_us, 0);
  EXPECT_GT(free.ring_us, 0);
  EXPECT_EQ(forced.form, Overlap::two_rings);
  EXPECT_EQ(alone.form, Overlap::none);
  EXPECT_EQ(scattered.form, Overlap::ring);
  EXPECT_EQ(exchanged.form, Overlap::none);
}

// Where a rank's piece begins, rank × extent, is computed in i64 where i32 cannot hold it.
TEST(OverlapCounts, LargePiecesBeginWhereTheyShould) {
  const auto rows = [](const Body& body, std::int64_t m) {
    const auto f = shard_map(body, ring_mesh(), {P("i"), P()}, P("i"));
    const auto abstract = [](Shape shape) { return abstract_array(ShapedArray(shape, f32)); };
    return to_string(make_jaxpr(f)(abstract({m, 16}), abstract({16, 8})));
  };
  for (const Overlap form : {Overlap::ring, Overlap::two_rings}) {
    const Body gather = [form](Array x, Array w) {
      return all_gather_einsum("mk,kn->mn", x, w, "i", {.form = form});
    };
    const Body scatter = [form](Array x, Array w) {
      return einsum_psum_scatter("mk,kn->mn", x, w, "i", {.form = form});
    };
    for (const Body& body : {gather, scatter}) {
      const std::string large = rows(body, INT64_C(1) << 37), small = rows(body, 1 << 20);
      EXPECT_NE(large.find(":i64"), std::string::npos) << large;
      EXPECT_EQ(small.find(":i64"), std::string::npos) << small;
    }
  }
}

std::function<void()> in_body(std::function<Array(Array, Array)> body) {
  return [body = std::move(body)] {
    const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
    const auto mapped = shard_map(body, mesh, {P("i"), P()}, P("i"));
    const auto text_of = [](const auto& f) -> std::string {
      try {
        f(zeros({8, 6}), zeros({6, 3}));
      } catch (const std::exception& e) {
        return e.what();
      }
      return "nothing was thrown";
    };
    EXPECT_EQ(text_of(jit(mapped)), text_of(mapped));
    mapped(zeros({8, 6}), zeros({6, 3}));
  };
}

TEST(OverlapErrors, SubscriptsDimsAxesAndSizes) {
  using A = Array;
  expect_error<CollectiveError>(
      in_body([](A x, A w) { return all_gather_einsum("ij,jk->ik", x, w, "q"); }),
      {"all_gather_einsum", "unbound axis name 'q'", kHere});
  expect_error<CollectiveError>([] { einsum_psum_scatter("i,i->i", zeros({2}), zeros({2}), "i"); },
                                {"einsum_psum_scatter", "unbound axis name 'i'", kHere});
  expect_error<ValueError>(
      in_body([](A x, A w) { return all_gather_einsum("ij,jk->iz", x, w, "i"); }),
      {"all_gather_einsum(\"ij,jk->iz\")", "'z' is in the output and in no operand", kHere});
  expect_error<ValueError>(
      in_body([](A x, A w) { return einsum_psum_scatter("ij->i", x, w, "i"); }),
      {"einsum_psum_scatter", "they name 1 operand, and 2 were given", kHere});
  expect_error<ValueError>(
      in_body([](A x, A w) { return all_gather_einsum("ij,jk->ik", x, w, "i", {.axis = 1}); }),
      {"all_gather_einsum", "'j' has size 24 in operand 0 and size 6 in operand 1", "f32[2,6]{i}",
       "operand 0 counts as it is gathered over the 4 ranks over mesh axis 'i'", kHere});
  expect_error<ValueError>(
      in_body([](A x, A w) { return all_gather_einsum("ij,jk->ik", x, w, "i", {.axis = 2}); }),
      {"all_gather_einsum", "2", "rank 2", kHere});
  expect_error<ValueError>(
      in_body([](A x, A w) { return all_gather_einsum("ij,jk->ik", x, w, "i", {.operand = 2}); }),
      {"all_gather_einsum", "operand 2 is out of range", kHere});
  expect_error<ValueError>(
      in_body([](A x, A w) { return einsum_psum_scatter("ij,jk->ik", x, w, "i"); }),
      {"einsum_psum_scatter", "scatter_dimension 0", "f32[2,3]", "a multiple of 4 is wanted",
       kHere});
  expect_error<ValueError>(in_body([](A x, A w) {
                             return einsum_psum_scatter("ij,jk->ik", x, w, "i",
                                                        {.scatter_dimension = 3});
                           }),
                           {"einsum_psum_scatter", "3", "rank 2", kHere});
  expect_error<ValueError>(
      in_body([](A x, A w) {
        return all_to_all_einsum("ij,jk->ik", x, w, "i", {.split_axis = 1, .concat_axis = 0});
      }),
      {"all_to_all_einsum", "split_axis 1 of operand 0", "6 elements", "a multiple of 4 is wanted",
       kHere});
  expect_error<ValueError>(in_body([](A x, A w) {
                             return all_gather_einsum("ij,jk->ik", x, w, {"i", "i"});
                           }),
                           {"all_gather_einsum", "axis 'i' is named twice", kHere});
  expect_error<ValueError>(
      in_body([](A x, A) { return all_gather_einsum("ij,jk->ik", x, Array(), "i"); }),
      {"all_gather_einsum", kHere});
}

TEST(OverlapErrors, VarianceWithoutCasts) {
  const Mesh mesh = make_mesh({4}, {"i"});
  const auto call = [&](const std::function<Array(Array, Array)>& body) {
    return [=] {
      shard_map(body, mesh, {P("i"), P()}, P("i"), {.auto_pbroadcast = false})(zeros({16, 4}),
                                                                               zeros({4, 4}));
    };
  };
  expect_error<TypeError>(call([](Array, Array w) {
                            return all_gather_einsum("ij,jk->ik", w, w, "i",
                                                     {.form = Overlap::ring});
                          }),
                          {"all_gather_einsum", "does not vary over 'i'", "pbroadcast", kHere});
  expect_error<TypeError>(call([](Array x, Array w) {
                            return all_gather_einsum("ij,jk->ik", x, w, "i",
                                                     {.form = Overlap::ring});
                          }),
                          {"all_gather_einsum", "pbroadcast", kHere});
  expect_error<TypeError>(call([](Array, Array w) {
                            return einsum_psum_scatter("ij,jk->ik", w, w, "i",
                                                       {.form = Overlap::ring});
                          }),
                          {"einsum_psum_scatter", "does not vary over 'i'", kHere});
}

}  // namespace
}  // namespace shmap::test
