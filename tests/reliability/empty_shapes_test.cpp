// shmap-test: devices
// Arrays of no elements and axes of size one through every op and every collective; shapes that
// are out of all bounds.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "shmap/collectives.h"
#include "shmap/debug.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/device_grids.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

using Arrays = std::vector<Array>;
struct Op {
  const char* name;
  std::function<Arrays(const Array&)> run;
};

// Ops that are defined for every f32 array of rank 3, whatever its extents.
const std::vector<Op>& ops() {
  static const std::vector<Op> list = {
      {"unary",
       [](const Array& x) {
         return Arrays{abs(x),         sign(x),
                       floor(x),       ceil(x),
                       round(x),       exp(x),
                       expm1(x),       log1p(x),
                       sin(x),         cos(x),
                       tan(x),         tanh(x),
                       sinh(x),        cosh(x),
                       sqrt(x),        cbrt(x),
                       atan(x),        logistic(x),
                       erf(x),         square(x),
                       isnan(x),       -x,
                       relu(x),        gelu(x),
                       silu(x),        isfinite(x),
                       rsqrt(x + 1),   reciprocal(x + 1),
                       log(x + 1),     asin(x / 1000),
                       acos(x / 1000), +x};
       }},
      {"binary",
       [](const Array& x) {
         return Arrays{x + x,
                       x - 1,
                       2 * x,
                       x / (x + 1),
                       x % (x + 1),
                       maximum(x, 3),
                       minimum(x, x),
                       x<2, x == x, x != x, x >= 1, x <= 1, x> 1,
                       atan2(x, x + 1),
                       pow(x, 2),
                       floor_divide(x, 2),
                       remainder(x, 3),
                       clip(x, 1, 2),
                       where(x > 1, x, 0),
                       logical_and(x, x),
                       logical_or(x, 0),
                       logical_xor(x, x),
                       logical_not(x)};
       }},
      {"integer",
       [](const Array& f) {
         const Array x = astype(f, i32);
         return Arrays{x & 3,
                       x | 1,
                       x ^ x,
                       ~x,
                       x << 1,
                       x >> 1,
                       x % 3,
                       floor_divide(x, 2),
                       astype(x, u8),
                       astype(x, bf16),
                       astype(x, bool_),
                       bitcast(x, f32)};
       }},
      {"broadcast",
       [](const Array& x) {
         Shape wide{2};
         for (std::int64_t e : x.shape()) wide.push_back(e);
         return Arrays{
             broadcast_to(x, wide), x + zeros({1, 1, 1}),  broadcast_in_dim(x, wide, {1, 2, 3}),
             zeros_like(x),         ones_like(x),          full_like(x, 3),
             expand_dims(x, 1),     expand_dims(x, {0, 4})};
       }},
      {"shape",
       [](const Array& x) {
         const Shape s = x.shape();
         return Arrays{transpose(x),
                       transpose(x, {1, 2, 0}),
                       swapaxes(x, 0, 2),
                       reshape(x, {s[0] * s[1], s[2]}),
                       reshape(x, {s[0] * s[1] * s[2]}),
                       flip(x),
                       flip(x, 1),
                       roll(x, 1),
                       roll(x, {1, 2}, {0, 2}),
                       concatenate({x, x}, 1),
                       concatenate({x}, 0),
                       stack({x, x}, 3),
                       tile(x, {2, 1, 2}),
                       tile(x, {0, 1, 1}),
                       repeat(x, 2, 1),
                       repeat(x, 0, 0),
                       pad(x, {{1, 0}, {0, 2}, {1, 1}}, 7),
                       squeeze(x[range(0, 1)])};
       }},
      {"slices",
       [](const Array& x) {
         const Shape s = x.shape();
         return Arrays{slice(x, {0, 0, 0}, {s[0], s[1], s[2]}),
                       slice(x, {s[0], 0, 0}, {s[0], s[1], s[2]}),
                       slice(x, {0, 0, 0}, {s[0], s[1], s[2]}, {2, 3, 1}),
                       x[range(0, 0)],
                       x[{range(), range(0, s[1], 2)}],
                       x[none],
                       dynamic_slice(x, {Array(1), Array(0), Array(5)}, {s[0], s[1], 0}),
                       dynamic_slice(x, {Array(1), Array(0), Array(5)}, s),
                       dynamic_update_slice(x, x, {Array(0), Array(1), Array(0)}),
                       dynamic_update_slice(x, zeros({0, 0, 0}), {Array(0), Array(0), Array(0)}),
                       take(x, zeros({0}, i32), 1)};
       }},
      {"split",
       [](const Array& x) {
         Arrays out = split(x, Dims{0, 0}, 1);
         for (const Array& a : unstack(x, 1)) out.push_back(a);
         return out;
       }},
      {"reductions",
       [](const Array& x) {
         Arrays out;
         for (const Dims& d : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{0, 2}, Dims{0, 1, 2},
                               Dims(std::vector<int>())}) {
           for (const Array& a : {sum(x, d), prod(x, d, true), any(x, d), all(x, d)})
             out.push_back(a);
         }
         for (const Array& a : {sum(x), prod(x), any(x), all(x)}) out.push_back(a);
         return out;
       }},
      {"scans",
       [](const Array& x) {
         Arrays out;
         for (int d = 0; d < 3; ++d)
           for (const Array& a :
                {cumsum(x, d), cumprod(x, d), cummax(x, d), sort(x, d), argsort(x, d)})
             out.push_back(a);
         out.push_back(top_k(x, 0).first);
         return out;
       }},
      {"products",
       [](const Array& x) {
         return Arrays{matmul(x, swapaxes(x, 1, 2)),
                       matmul(swapaxes(x, 1, 2), x),
                       einsum("abc,abc->a", x, x),
                       einsum("abc,dbc->ad", x, x),
                       einsum("abc->cb", x),
                       outer(x, x),
                       dot(reshape(x, {x.size()}), reshape(x, {x.size()})),
                       dot_general(x, x, {.contracting = {{2}, {2}}, .batch = {{0}, {0}}})};
       }},
      {"layers", [](const Array& x) {
         const Array row = ones({x.shape()[2]});
         return Arrays{one_hot(astype(x, i32), 3), one_hot(astype(x, i32), 0), rms_norm(x, row)};
       }}};
  return list;
}

// Operations that need an element to choose from.
const std::vector<Op>& choosing_ops() {
  static const std::vector<Op> list = {
      {"max", [](const Array& x) { return Arrays{max(x, 1)}; }},
      {"min", [](const Array& x) { return Arrays{min(x, 1)}; }},
      {"argmax", [](const Array& x) { return Arrays{argmax(x, 1)}; }},
      {"argmin", [](const Array& x) { return Arrays{argmin(x, 1)}; }},
      {"take", [](const Array& x) { return Arrays{take(x, array<std::int32_t>({0}, {1}), 1)}; }},
      {"index", [](const Array& x) {
         return Arrays{x[{range(), 0}]};
       }}};
  return list;
}

void expect_same(const Arrays& got, const Arrays& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    SCOPED_TRACE("result " + std::to_string(k));
    ASSERT_EQ(got[k].type(), wanted[k].type());
    const Array whole = process_count() > 1 ? process_allgather(got[k]) : got[k];
    EXPECT_EQ(to_string(whole), to_string(wanted[k]));
  }
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> list = {{0, 8, 4}, {8, 0, 4}, {4, 8, 0}, {0, 0, 0},
                                          {1, 1, 1}, {8, 1, 1}, {1, 8, 4}, {4, 1, 8}};
  return list;
}

// The extents a mesh axis may have: one, and more.
const std::vector<Mesh>& meshes() {
  static const std::vector<Mesh> list = {
      mesh_in_all_processes({1}, {"i"}), mesh_in_all_processes({1, 4}, {"i", "j"}),
      mesh_in_all_processes({4, 1}, {"i", "j"}), mesh_in_all_processes({4, 2}, {"i", "j"}),
      mesh_in_all_processes({1, 1, 8}, {"i", "k", "j"})};
  return list;
}

bool divides(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape) {
  for (std::size_t d = 0; d < spec.size(); ++d) {
    std::int64_t n = 1;
    for (const std::string& name : spec[d].axes) {
      bool known = false;
      for (const std::string& has : mesh.axis_names()) known |= has == name;
      if (!known) return false;
      n *= mesh.axis_size(name);
    }
    if (shape[d] % n != 0) return false;
  }
  return true;
}

TEST(EmptyShapes, ThroughEveryOpAndSharding) {
  const std::vector<PartitionSpec> specs = {P(),
                                            P("i"),
                                            P(none, "i"),
                                            P(none, none, "i"),
                                            P("i", "j"),
                                            P(none, "j", "i"),
                                            P(axes("j", "i"))};
  for (const Shape& shape : shapes()) {
    const Array x = astype(reshape(arange(shape.num_elements(), i32), shape), f32);
    for (const Op& op : ops()) {
      const Arrays wanted = op.run(x);
      for (const Mesh& mesh : meshes()) {
        if (process_count() > 1 && mesh.size() < 8) continue;  // all would take a minute
        for (const PartitionSpec& spec : specs) {
          if (!divides(mesh, spec, shape)) continue;
          SCOPED_TRACE(std::string(op.name) + " of " + to_string(shape) + " on " + to_string(mesh) +
                       " by " + to_string(spec));
          expect_same(op.run(device_put(x, {mesh, spec})), wanted);
        }
      }
    }
  }
}

TEST(EmptyShapes, KnownResults) {
  const Array x = zeros({3, 0});
  EXPECT_EQ(sum(x, 1).to_vector<float>(), std::vector<float>(3, 0));
  EXPECT_EQ(prod(x, 1).to_vector<float>(), std::vector<float>(3, 1));
  EXPECT_EQ(all(x, 1).to_vector<bool>(), std::vector<bool>(3, true));
  EXPECT_EQ(any(x, 1).to_vector<bool>(), std::vector<bool>(3, false));
  EXPECT_EQ(matmul(x, zeros({0, 2})).to_vector<float>(), std::vector<float>(6, 0));
  EXPECT_EQ(einsum("ab,ac->bc", zeros({0, 2}), ones({0, 3})).to_vector<float>(),
            std::vector<float>(6, 0));
  EXPECT_EQ(pad(x, {{0, 0}, {1, 0}}, 7).to_vector<float>(), std::vector<float>(3, 7));
  EXPECT_EQ(concatenate({x, ones({3, 1})}, 1).to_vector<float>(), std::vector<float>(3, 1));
  EXPECT_EQ(sum(x, 0).shape(), Shape({0}));
  EXPECT_EQ(arange(-1).shape(), Shape({0}));
}

TEST(EmptyShapes, NothingToChooseFromIsAnError) {
  for (const Shape& shape : shapes()) {
    const Array x = zeros(shape);
    for (const Op& op : choosing_ops()) {
      SCOPED_TRACE(std::string(op.name) + " of " + to_string(shape));
      if (shape[1] > 0) {
        EXPECT_NO_THROW(op.run(x));
      } else {
        EXPECT_THROW(op.run(x), ValueError);
      }
    }
  }
}

// Collectives over an axis of one device do nothing; of blocks without elements they give blocks
// without elements, of the right shape.
struct Collective {
  const char* name;
  std::function<Array(const Array&, const Axes&)> run;
  // arguments: a block's extents and the number of ranks
  std::function<Shape(const Shape&, std::int64_t)> shape;
};

const std::vector<Collective>& collectives() {
  static const auto same = [](const Shape& s, std::int64_t) { return s; };
  static const auto led = [](const Shape& s, std::int64_t n) {
    Shape out{n};
    for (std::int64_t e : s) out.push_back(e);
    return out;
  };
  static const std::vector<Collective> list = {
      {"psum", [](const Array& x, const Axes& a) { return psum(x, a); }, same},
      {"pmean", [](const Array& x, const Axes& a) { return pmean(x, a); }, same},
      {"pmax", [](const Array& x, const Axes& a) { return pmax(x, a); }, same},
      {"pmin", [](const Array& x, const Axes& a) { return pmin(x, a); }, same},
      {"ppermute",
       [](const Array& x, const Axes& a) {
         std::vector<std::pair<int, int>> perm;
         const int n = axis_size(a);
         for (int k = 0; k < n; ++k) perm.emplace_back(k, (k + 1) % n);
         return ppermute(x, a, perm);
       },
       same},
      {"ppermute to nobody", [](const Array& x, const Axes& a) { return ppermute(x, a, {}); },
       same},
      {"pshuffle",
       [](const Array& x, const Axes& a) {
         std::vector<int> perm;
         for (int k = axis_size(a); k-- > 0;) perm.push_back(k);
         return pshuffle(x, a, perm);
       },
       same},
      {"all_gather", [](const Array& x, const Axes& a) { return all_gather(x, a); }, led},
      {"all_gather tiled",
       [](const Array& x, const Axes& a) { return all_gather(x, a, {.axis = 2, .tiled = true}); },
       [](Shape s, std::int64_t n) {
         s[2] *= n;
         return s;
       }},
      {"all_gather_invariant",
       [](const Array& x, const Axes& a) { return all_gather_invariant(x, a); }, led},
      {"psum_scatter",
       [](const Array& x, const Axes& a) { return psum_scatter(all_gather(x, a), a); }, same},
      {"psum_scatter tiled",
       [](const Array& x, const Axes& a) {
         return psum_scatter(all_gather(x, a, {.axis = 1, .tiled = true}), a,
                             {.scatter_dimension = 1, .tiled = true});
       },
       same},
      {"pscatter",
       [](const Array& x, const Axes& a) {
         return pscatter(all_gather_invariant(x, a, {.tiled = true}), a, {.tiled = true});
       },
       same},
      {"all_to_all",
       [](const Array& x, const Axes& a) { return all_to_all(all_gather(x, a), a, 0, 0); }, led},
      {"all_to_all tiled",
       [](const Array& x, const Axes& a) {
         return all_to_all(all_gather(x, a, {.tiled = true}), a, 0, 1, {.tiled = true});
       },
       [](Shape s, std::int64_t n) {
         s[1] *= n;
         return s;
       }},
      {"ragged_all_to_all",
       [](const Array& x, const Axes& a) {
         const Array at = zeros({axis_size(a)}, i32), size = at + 1;
         return ragged_all_to_all(x, x, at, size, at, size, a);
       },
       same},
      {"ragged_all_to_all of more rows",
       [](const Array& x, const Axes& a) {
         const Array at = zeros({axis_size(a)}, i32), size = at + 1;
         return ragged_all_to_all(concatenate({x, x, x}), x, at, size, at, size, a);
       },
       same},
      {"broadcast_from", [](const Array& x, const Axes& a) { return broadcast_from(x, a, 0); },
       same},
      {"pbroadcast", [](const Array& x, const Axes& a) { return pbroadcast(psum(x, a), a); },
       same}};
  return list;
}

TEST(EmptyShapes, ThroughEveryCollective) {
  const std::vector<Shape> blocks = {{0, 3, 2}, {3, 0, 2}, {1, 2, 0}, {0, 0, 0}, {1, 1, 1}};
  for (const Mesh& mesh : meshes()) {
    if (!has_device_of(mesh)) continue;
    for (const Shape& block : blocks) {
      for (const Collective& c : collectives()) {
        for (const DType dtype : {f32, i32, bf16, bool_}) {
          if (dtype == bool_ && std::string(c.name).find("psum") != std::string::npos) continue;
          if (dtype == bool_ && std::string(c.name) == "pmean") continue;
          if (dtype == bool_ && std::string(c.name) == "pbroadcast") continue;
          SCOPED_TRACE(std::string(c.name) + " of " + to_string(dtype) + to_string(block) +
                       " over 'i' on " + to_string(mesh));
          Shape global = block;
          global[0] *= mesh.axis_size("i");
          const Array x = astype(reshape(arange(global.num_elements(), i32) + 1, global), dtype);
          Shape seen;
          try {
            const Array y = shard_map(
                [&](Array b) {
                  const Array r = c.run(b, "i");
                  seen = r.shape();
                  return reshape(astype(r, f32), {r.size()});
                },
                mesh, {P("i")}, P("i"))(x);
            EXPECT_EQ(seen, c.shape(block, mesh.axis_size("i")));
            const std::vector<float> values = y.to_vector<float>();
            EXPECT_EQ(static_cast<std::int64_t>(values.size()),
                      seen.num_elements() * mesh.axis_size("i"));
            // Alone on its axis each is the identity, but for what nobody sends.
            if (mesh.axis_size("i") == 1 && block.num_elements() == 1) {
              EXPECT_EQ(values, std::vector<float>{
                                    std::string(c.name) == "ppermute to nobody" ? 0.f : 1.f});
            }
          } catch (const std::exception& e) {
            ADD_FAILURE() << e.what();
          }
        }
      }
    }
  }
}

TEST(ShapeBounds, ProductsBeyondTheLimitAreErrors) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const Array x = zeros({0, 4});
  const std::vector<std::pair<const char*, std::function<Array()>>> calls = {
      {"zeros",
       [&] {
         return zeros({huge, huge});
       }},
      {"ones",
       [&] {
         return ones({huge, 1 << 22}, f64);
       }},  // 2^62 elements of 8 bytes
      {"broadcast_to",
       [&] {
         return broadcast_to(Array(1.f), {huge, huge});
       }},
      {"reshape",
       [&] {
         return reshape(x, {huge, huge, 0});
       }},
      {"tile", [&] { return tile(ones({4}), {std::int64_t{1} << 62}); }},
      {"pad",
       [&] {
         return pad(ones({4}), {{std::int64_t{1} << 62, std::int64_t{1} << 62}});
       }},
      {"sum of nothing",
       [&] {
         return sum(zeros({0, huge, huge}), 0);
       }},
      {"negative zeros", [&] { return zeros({-1}); }},
      {"negative ones",
       [&] {
         return ones({2, -3});
       }},
      {"negative full", [&] { return full({-2}, 1); }},
      {"negative broadcast",
       [&] {
         return broadcast_to(x, {-1, 4});
       }},
      {"negative reshape",
       [&] {
         return reshape(x, {-2, 4});
       }},
      {"negative iota", [&] { return iota(i32, -5); }},
      {"negative eye", [&] { return eye(-1); }},
      {"negative slice",
       [&] {
         return slice(x, {-1, 0}, {0, 4});
       }},
      {"inverted slice",
       [&] {
         return slice(x, {0, 3}, {0, 2});
       }},
      {"zero stride",
       [&] {
         return slice(x, {0, 0}, {0, 4}, {1, 0});
       }},
      {"long slice",
       [&] {
         return slice(x, {0, 0}, {0, 5});
       }},
      {"negative sizes",
       [&] {
         return dynamic_slice(x, {Array(0), Array(0)}, {0, -1});
       }},
      {"large sizes",
       [&] {
         return dynamic_slice(x, {Array(0), Array(0)}, {0, 5});
       }},
      {"negative repeat", [&] { return repeat(x, -1, 0); }},
      {"negative tile",
       [&] {
         return tile(x, {1, -1});
       }},
      {"negative top_k", [&] { return top_k(x, -1).first; }},
      {"large top_k", [&] { return top_k(x, 5).first; }},
      {"negative one_hot", [&] { return one_hot(astype(x, i32), -1); }},
      {"far dim", [&] { return sum(x, 2); }},
      {"far negative dim", [&] { return sum(x, -3); }},
      {"rank of 17", [&] { return zeros(Shape(std::vector<int>(17, 1))); }},
      {"rank of 17 by expand_dims",
       [&] { return expand_dims(zeros(Shape(std::vector<int>(16, 1))), 0); }},
      {"rank of 17 by stack", [&] { return stack({zeros(Shape(std::vector<int>(16, 1)))}); }},
      {"rank of 17 by index", [&] { return zeros(Shape(std::vector<int>(16, 1)))[none]; }},
      {"rank of 18 by one_hot and outer",
       [&] { return one_hot(zeros(Shape(std::vector<int>(16, 1)), i32), 2); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    try {
      const Array y = call();
      ADD_FAILURE() << "gave " << to_string(y.type());
    } catch (const ValueError&) {
    } catch (const std::exception& e) {
      ADD_FAILURE() << "an error of another kind: " << e.what();
    }
  }
}

TEST(ShapeBounds, SixteenDimsWork) {
  const Mesh mesh = make_mesh({2, 4}, {"i", "j"});
  Shape shape(std::vector<int>(16, 1));
  shape[3] = 2, shape[9] = 4, shape[15] = 3;
  std::vector<PartitionSpec::Entry> entries(16, none);
  entries[3] = "i", entries[9] = "j";
  const Array x = reshape(arange(24, i32), shape);
  const Array y = device_put(x, {mesh, PartitionSpec(entries)});
  expect_same({y + y, transpose(y), sum(y, 9), sum(y, {3, 15}), flip(y), cumsum(y, 9)},
              {x + x, transpose(x), sum(x, 9), sum(x, {3, 15}), flip(x), cumsum(x, 9)});
  EXPECT_EQ(shard_map([](Array b) { return psum(b, axes("i", "j")); }, mesh,
                      {PartitionSpec(entries)}, P())(y)
                .to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{84, 92, 100}));
}

}  // namespace
}  // namespace shmap
