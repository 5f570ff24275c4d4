// shmap-test: devices
// Overlapped products against their plain forms: values, derivatives of both modes, vmap, under jit
// and with variance unchecked; einsums of every kind, several mesh axes, odd parts, bf16. Small
// integers, so that sums in any order are the same.
#include "shmap/overlap.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "shmap/shmap.h"
#include "tests/support/device_grids.h"

namespace shmap::test {
namespace {

using Product = std::function<Array(Array, Array, Overlap)>;

struct Case {
  std::string name;
  Shape a, b;  // blocks
  Product overlapped;
  std::function<Array(Array, Array)> plain;
};

Array plain_gather(const char* spec, Array a, Array b, const Axes& axes, int operand, int axis) {
  Array& x = operand == 0 ? a : b;
  x = all_gather(x, axes, {.axis = axis, .tiled = true});
  return einsum(spec, a, b);
}

Case gather(const char* spec, Shape a, Shape b, Axes axes, int operand, int axis) {
  return {std::string("gather ") + spec + " over " + to_string(axes) + " operand " +
              std::to_string(operand) + " axis " + std::to_string(axis),
          a, b,
          [=](Array x, Array y, Overlap form) {
            return all_gather_einsum(spec, x, y, axes,
                                     {.operand = operand, .axis = axis, .form = form});
          },
          [=](Array x, Array y) { return plain_gather(spec, x, y, axes, operand, axis); }};
}

Case scatter(const char* spec, Shape a, Shape b, Axes axes, int dim) {
  return {
      std::string("scatter ") + spec + " over " + to_string(axes) + " dim " + std::to_string(dim),
      a, b,
      [=](Array x, Array y, Overlap form) {
        return einsum_psum_scatter(spec, x, y, axes, {.scatter_dimension = dim, .form = form});
      },
      [=](Array x, Array y) {
        return psum_scatter(einsum(spec, x, y), axes, {.scatter_dimension = dim, .tiled = true});
      }};
}

Case exchange(const char* spec, Shape a, Shape b, Axes axes, int operand, int split, int concat) {
  return {std::string("exchange ") + spec + " over " + to_string(axes) + " operand " +
              std::to_string(operand) + " from " + std::to_string(split) + " to " +
              std::to_string(concat),
          a, b,
          [=](Array x, Array y, Overlap form) {
            return all_to_all_einsum(
                spec, x, y, axes,
                {.operand = operand, .split_axis = split, .concat_axis = concat, .form = form});
          },
          [=](Array x, Array y) {
            Array& moved = operand == 0 ? x : y;
            moved = all_to_all(moved, axes, split, concat, {.tiled = true});
            return einsum(spec, x, y);
          }};
}

// Numbers from 0 to 4 of the dtype, each of which differs from its neighbours.
Array numbers(const Shape& shape, int seed, DType dtype) {
  const std::int64_t n = shape.num_elements();
  const Array k = iota(i32, n);
  return astype(reshape((k * 7 + k * k + seed) % 5, shape), dtype);
}

// The result, its derivatives and those on many, each flat: everything that has to be the same.
std::vector<Array> all_of(const std::function<Array(Array, Array)>& f, Array a, Array b) {
  std::vector<Array> out;
  auto [y, pullback] = vjp(f, a, b);
  out.push_back(y);
  const Array ct = numbers(y.shape(), 1, y.dtype());
  auto [a_bar, b_bar] = pullback(y.vma().empty() ? ct : pbroadcast(ct, Axes(y.vma())));
  out.push_back(a_bar);
  out.push_back(b_bar);
  auto [z, z_dot] = jvp(f, std::tuple{a, b}, std::tuple{a, b});
  out.push_back(z_dot);
  const Array many_a = stack({a, a + 1}), many_b = stack({b, b - 1}, b.ndim());
  out.push_back(vmap(f, {0, b.ndim()})(many_a, many_b));
  out.push_back(vmap([&](Array x) { return f(x, b); })(many_a));
  out.push_back(vmap([&](Array x) { return f(a, x); }, b.ndim())(many_b));
  for (Array& x : out) x = reshape(astype(x, f32), {1, -1});
  return out;
}

std::vector<std::vector<float>> run(const Mesh& mesh, const Case& c,
                                    const std::function<Array(Array, Array)>& f, DType dtype,
                                    bool check, bool jitted) {
  const Axes all(mesh.axis_names());
  const auto body = [&](Array x, Array y) {
    std::vector<Array> out = all_of(f, x[0], y[0]);
    for (Array& z : out) {
      std::vector<std::string> missing;
      const std::vector<std::string> has = z.vma();
      for (const std::string& name : all)
        if (std::find(has.begin(), has.end(), name) == has.end()) missing.push_back(name);
      if (check && !missing.empty()) z = pbroadcast(z, Axes(missing));
    }
    return out;
  };
  const auto mapped = shard_map(body, mesh, P(all), P(all), {.check_vma = check});
  const auto many = [&](Shape block, int seed) {
    std::vector<std::int64_t> shape{mesh.size()};
    shape.insert(shape.end(), block.begin(), block.end());
    return numbers(Shape(shape), seed, dtype);
  };
  const Array x = many(c.a, 2), y = many(c.b, 3);
  std::vector<std::vector<float>> out;
  if (jitted) {
    const auto g = jit(mapped);
    for (int call = 0; call < 3; ++call) {
      out.clear();
      for (const Array& z : g(x, y)) out.push_back(z.to_vector<float>());
    }
  } else {
    for (const Array& z : mapped(x, y)) out.push_back(z.to_vector<float>());
  }
  return out;
}

// Returns "" if all are the same, or else the first difference.
std::string difference(const std::vector<std::vector<float>>& got,
                       const std::vector<std::vector<float>>& want) {
  static const char* const kWhat[] = {"value",          "gradient of a", "gradient of b", "jvp",
                                      "vmap over both", "vmap over a",   "vmap over b"};
  for (std::size_t r = 0; r < want.size(); ++r) {
    if (got[r].size() != want[r].size()) return std::string(kWhat[r]) + " has another size";
    for (std::size_t k = 0; k < want[r].size(); ++k) {
      if (got[r][k] == want[r][k]) continue;
      return std::string(kWhat[r]) + " at " + std::to_string(k) + ": " + std::to_string(got[r][k]) +
             " instead of " + std::to_string(want[r][k]);
    }
  }
  return "";
}

void expect_plain(const Mesh& mesh, const Case& c, DType dtype = f32, bool check = true) {
  SCOPED_TRACE(c.name);
  try {
    const auto want = run(mesh, c, c.plain, dtype, check, false);
    for (const Overlap form :
         {Overlap::ring, Overlap::two_rings, Overlap::automatic, Overlap::none}) {
      const auto f = [&](Array x, Array y) { return c.overlapped(x, y, form); };
      for (const bool jitted : {false, true}) {
        EXPECT_EQ(difference(run(mesh, c, f, dtype, check, jitted), want), "")
            << "form " << static_cast<int>(form) << (jitted ? " under jit" : "");
      }
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw: " << e.what();
  }
}

Mesh four() { return mesh_in_all_processes({4}, "i"); }

TEST(Overlap, GathersOfRowsColumnsBatchesAndWhatIsContracted) {
  for (const Case& c : {
           gather("bte,ef->btf", {2, 3, 4}, {4, 5}, "i", 0, 1),
           gather("bte,ef->btf", {2, 3, 2}, {8, 5}, "i", 0, 2),
           gather("bte,ef->btf", {2, 3, 4}, {4, 2}, "i", 1, 1),
           gather("bte,ef->btf", {2, 3, 8}, {2, 5}, "i", 1, 0),
           gather("bij,bjk->bik", {1, 3, 2}, {4, 2, 3}, "i", 0, 0),
           gather("bij,bjk->kib", {4, 3, 2}, {1, 2, 3}, "i", 1, 0),
       })
    expect_plain(four(), c);
}

TEST(Overlap, ScattersOfRowsColumnsAndBatches) {
  for (const Case& c : {
           scatter("bte,ef->btf", {2, 12, 3}, {3, 5}, "i", 1),
           scatter("bte,ef->btf", {2, 3, 3}, {3, 8}, "i", 2),
           scatter("bte,ef->btf", {4, 3, 3}, {3, 2}, "i", 0),
           scatter("bij,bjk->kbi", {4, 3, 2}, {4, 2, 4}, "i", 1),
           scatter("bij,bjk->kbi", {2, 3, 2}, {2, 2, 4}, "i", 0),
       })
    expect_plain(four(), c);
}

TEST(Overlap, ExchangesAlongFreeContractedAndEqualDims) {
  for (const Case& c : {
           exchange("bte,ef->btf", {2, 4, 3}, {3, 5}, "i", 0, 1, 0),
           exchange("bte,ef->btf", {4, 3, 2}, {8, 5}, "i", 0, 0, 2),
           exchange("bte,ef->btf", {2, 8, 3}, {3, 5}, "i", 0, 1, 1),
           exchange("bte,ef->btf", {2, 3, 8}, {2, 4}, "i", 1, 1, 0),
           exchange("bij,bjk->bik", {4, 3, 2}, {1, 2, 3}, "i", 0, 0, 1),
       })
    expect_plain(four(), c);
}

TEST(Overlap, EinsumsOfEveryKind) {
  for (const Case& c : {
           gather("...e,ef->...f", {2, 3, 4}, {4, 5}, "i", 0, 1),
           gather("...e,...ef->...f", {2, 3, 4}, {3, 4, 5}, "i", 0, 0),
           gather("ij,jk", {2, 3}, {3, 4}, "i", 0, 0),
           gather("bii,bk->bik", {2, 3, 3}, {8, 2}, "i", 0, 0),  // a diagonal
           gather("bij,bk->bk", {2, 3, 2}, {8, 2}, "i", 0, 0),   // summed alone
           gather("bi,bk->bik", {2, 3}, {1, 4}, "i", 0, 0),      // repeated
           gather("ij,kl->ijkl", {2, 3}, {2, 2}, "i", 1, 0),     // nothing contracted
           gather("ii,ik->ik", {2, 8}, {8, 3}, "i", 0, 0),       // plain: its own diagonal
           gather("ij,jk->k", {2, 3}, {3, 4}, "i", 0, 0),        // plain: summed alone
           gather("ij,ij->", {2, 3}, {8, 3}, "i", 0, 0),
           scatter("...ij,jk->...ik", {2, 4, 3}, {3, 2}, "i", 1),
           scatter("ii,ij->ij", {4, 4}, {4, 2}, "i", 0),
           scatter("bij,bjk->bik", {4, 3, 2}, {1, 2, 3}, "i", 0),  // repeated
           scatter("ij,kl->ijkl", {4, 3}, {2, 4}, "i", 3),
           exchange("...e,ef->...f", {4, 3, 2}, {8, 2}, "i", 0, 0, 2),
           exchange("ij,jk->k", {4, 3}, {12, 4}, "i", 0, 0, 1),  // plain: split and summed
       })
    expect_plain(four(), c);
}

TEST(Overlap, SeveralMeshAxesMakeOneRing) {
  const Mesh mesh = make_mesh({2, 4}, {"y", "z"});
  for (const Case& c : {
           gather("ij,jk->ik", {3, 2}, {2, 3}, axes("y", "z"), 0, 0),
           gather("ij,jk->ik", {3, 2}, {2, 3}, axes("z", "y"), 0, 0),
           gather("ij,jk->ik", {3, 1}, {8, 3}, axes("z", "y"), 0, 1),
           gather("ij,jk->ik", {3, 2}, {2, 3}, "y", 0, 0),
           scatter("ij,jk->ik", {8, 2}, {2, 3}, axes("y", "z"), 0),
           scatter("ij,jk->ik", {3, 2}, {2, 16}, axes("z", "y"), 1),
           exchange("ij,jk->ik", {8, 2}, {16, 3}, axes("z", "y"), 0, 0, 1),
           exchange("ij,jk->ik", {3, 8}, {2, 3}, "z", 0, 1, 0),
       })
    expect_plain(mesh, c);
}

TEST(Overlap, UncheckedVariance) {
  const Mesh mesh = make_mesh({2, 4}, {"y", "z"});
  for (const Case& c : {
           gather("ij,jk->ik", {3, 2}, {2, 3}, axes("y", "z"), 0, 0),
           gather("ij,jk->ik", {3, 2}, {8, 3}, "z", 0, 1),
           scatter("ij,jk->ik", {8, 2}, {2, 3}, "z", 0),
           exchange("ij,jk->ik", {8, 2}, {8, 3}, "z", 0, 0, 1),
       })
    expect_plain(mesh, c, f32, false);
}

TEST(Overlap, OneRankAndNoElements) {
  const Mesh one = make_mesh({1}, {"i"});
  expect_plain(one, gather("ij,jk->ik", {3, 2}, {2, 3}, "i", 0, 0));
  expect_plain(one, scatter("ij,jk->ik", {3, 2}, {2, 3}, "i", 0));
  expect_plain(one, exchange("ij,jk->ik", {3, 2}, {2, 3}, "i", 0, 0, 1));
  const Mesh two = make_mesh({2}, {"i"});
  expect_plain(two, gather("ij,jk->ik", {3, 2}, {2, 3}, "i", 0, 0));
  expect_plain(two, gather("ij,jk->ik", {0, 2}, {2, 3}, "i", 0, 0));
  expect_plain(two, scatter("ij,jk->ik", {4, 0}, {0, 3}, "i", 0));
}

TEST(Overlap, HalfTypesOfWhichSumsAreExact) {
  for (const DType dtype : {bf16, f16}) {
    expect_plain(four(), gather("bte,ef->btf", {1, 3, 2}, {8, 2}, "i", 0, 2), dtype);
    expect_plain(four(), gather("ij,jk->ik", {3, 2}, {2, 2}, "i", 0, 0), dtype);
    expect_plain(four(), scatter("ij,jk->ik", {4, 1}, {1, 2}, "i", 0), dtype);
    expect_plain(four(), exchange("ij,jk->ik", {4, 1}, {4, 3}, "i", 0, 0, 1), dtype);
  }
}

// 256 + 1 + 1 …: in bf16 each addition is lost, in f32 none.
TEST(Overlap, SumsOfHalfTypesAreAddedInF32) {
  const Mesh mesh = make_mesh({8}, {"i"});
  for (const Overlap form : {Overlap::ring, Overlap::two_rings}) {
    const auto gathered = shard_map(
        [&](Array x, Array w) {
          return all_gather_einsum("ij,jk->ik", x, w, "i", {.axis = 1, .form = form});
        },
        mesh, {P(none, "i"), P()}, P("i"));
    const Array first = astype(array<float>({256, 1, 1, 1, 1, 1, 1, 1}, {8}), bf16);
    const Array y = gathered(reshape(first, {1, 8}), ones({8, 1}, bf16));
    for (const float v : astype(y, f32).to_vector<float>()) EXPECT_EQ(v, 264.f);  // 263, rounded
    const auto scattered = shard_map(
        [&](Array x, Array w) {
          return einsum_psum_scatter("ij,jk->ik", x, w, "i", {.form = form});
        },
        mesh, {P(none, "i"), P("i", none)}, P("i"));
    const Array z = scattered(broadcast_to(reshape(first, {1, 8}), {8, 8}), ones({8, 1}, bf16));
    for (const float v : astype(z, f32).to_vector<float>()) EXPECT_EQ(v, 264.f);
  }
}

TEST(Overlap, IntegersAndMixedTypes) {
  const Array x = numbers({16, 3}, 1, i32), w = numbers({12, 3}, 2, i32);
  const auto g = [&](Overlap form) {
    return shard_map(
        [=](Array a, Array b) {
          return all_gather_einsum("ij,jk->ik", a, astype(b, f32), "i", {.form = form});
        },
        four(), P("i"), P("i"))(x, w);
  };
  EXPECT_EQ(to_string(g(Overlap::ring).dtype()), "f32");
  EXPECT_EQ(g(Overlap::ring).to_vector<float>(), g(Overlap::none).to_vector<float>());
  EXPECT_EQ(g(Overlap::two_rings).to_vector<float>(), g(Overlap::none).to_vector<float>());
  const auto ints = [&](Overlap form) {
    return shard_map(
        [=](Array a, Array b) {
          return einsum_psum_scatter("ij,jk->ik", a, b, "i", {.form = form});
        },
        four(), P("i"), P("i"))(x, w);
  };
  EXPECT_EQ(ints(Overlap::ring).to_vector<std::int32_t>(),
            ints(Overlap::none).to_vector<std::int32_t>());
}

// If the library adds no casts, its error says which are missing, as for the plain form.
TEST(Overlap, ReplicatedOperandsAreCastAndSummedOver) {
  const Mesh mesh = make_mesh({2, 4}, {"y", "z"});
  const auto loss = [&](Overlap form) {
    return [=](Array x, Array w) {
      const auto body = [=](Array a, Array b) {
        const Array h = all_gather_einsum("bte,ef->btf", a, b, "z", {.axis = 1, .form = form});
        const Array y =
            einsum_psum_scatter("btf,ef->bte", h, b, "z", {.scatter_dimension = 1, .form = form});
        return psum(sum(y * y), {"y", "z"});
      };
      return shard_map(body, mesh, {P("y", "z"), P()}, P())(x, w);
    };
  };
  const Array x = numbers({2, 4, 3}, 1, f32), w = numbers({3, 4}, 2, f32);
  const auto want = grad<0, 1>(loss(Overlap::none))(x, w);
  for (const Overlap form : {Overlap::ring, Overlap::two_rings}) {
    for (const bool jitted : {false, true}) {
      const auto g = grad<0, 1>(loss(form));
      const auto got = jitted ? jit(g)(x, w) : g(x, w);
      EXPECT_EQ(std::get<0>(got).to_vector<float>(), std::get<0>(want).to_vector<float>());
      EXPECT_EQ(std::get<1>(got).to_vector<float>(), std::get<1>(want).to_vector<float>());
    }
  }
}

}  // namespace
}  // namespace shmap::test
