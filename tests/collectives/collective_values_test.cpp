// shmap-test: devices
// Every collective against loops over devices: over one and several axes in every order, tiled and
// untiled, in groups, at ranks 0 to 3, with dims of 0 and axes of 1. Integers: bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "tests/collectives/blocks.h"
#include "tests/support/under_jit.h"

namespace shmap::test {
namespace {

const std::vector<TestMesh> kMeshes = {
    {{8}, {"i"}}, {{4, 2}, {"i", "j"}}, {{2, 4}, {"i", "j"}}, {{2, 2, 2}, {"x", "y", "z"}},
    {{1}, {"i"}}, {{1, 4}, {"i", "j"}}, {{3}, {"i"}},         {{2, 3}, {"i", "j"}},
};

// Every ordered choice of axes.
std::vector<std::vector<int>> axis_lists(int n) {
  std::vector<std::vector<int>> out, level = {{}};
  while (!level.empty()) {
    std::vector<std::vector<int>> next;
    for (const std::vector<int>& list : level)
      for (int a = 0; a < n; ++a)
        if (std::find(list.begin(), list.end(), a) == list.end()) {
          next.push_back(list);
          next.back().push_back(a);
        }
    out.insert(out.end(), next.begin(), next.end());
    level = std::move(next);
  }
  return out;
}

Blocks random_blocks(const HostMesh& mesh, const Extents& shape, std::mt19937& random) {
  Blocks out;
  for (std::int64_t d = 0; d < mesh.devices(); ++d)
    out.push_back(filled(shape, [&](std::int64_t) { return static_cast<std::int32_t>(random()); }));
  return out;
}

struct Case {
  TestMesh mesh;
  std::vector<int> axes;
  Groups groups = {};
  Axes names() const { return mesh.axes(axes); }
  // The devices of d's clique, by rank.
  std::vector<std::int64_t> clique(std::int64_t d) const {
    const std::vector<std::int64_t> all = mesh.host().group(d, axes);
    if (groups.empty()) return all;
    const auto rank = static_cast<int>(mesh.host().rank(d, axes));
    for (const std::vector<int>& group : groups) {
      if (std::find(group.begin(), group.end(), rank) == group.end()) continue;
      std::vector<std::int64_t> out;
      for (int r : group) out.push_back(all[static_cast<std::size_t>(r)]);
      return out;
    }
    return {};
  }
  std::int64_t ranks() const { return static_cast<std::int64_t>(clique(0).size()); }
  std::int64_t rank(std::int64_t d) const {
    const auto c = clique(d);
    return std::find(c.begin(), c.end(), d) - c.begin();
  }
  std::string text() const {
    return to_string(mesh.mesh()) + " over " + to_string(names()) +
           (groups.empty() ? "" : " in groups");
  }
};

using Body = std::function<Array(const Array&)>;
using Reference = std::function<HostArray(const Blocks&, std::int64_t device)>;

// The blocks of the result of `mapped`, which returns them stacked in order of devices.
Blocks blocks_of(const Array& stacked) {
  Blocks out;
  const Shape shape = stacked.shape();
  const Extents extents(shape.begin() + 1, shape.end());
  const std::vector<std::int32_t> values = stacked.to_vector<std::int32_t>();
  const std::size_t devices = static_cast<std::size_t>(shape[0]), n = values.size() / devices;
  for (std::size_t d = 0; d < devices; ++d) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(d * n);
    out.push_back({extents, {begin, begin + static_cast<std::ptrdiff_t>(n)}});
  }
  return out;
}

// A block under the spec that splits over all axes, whatever it varies over.
Array row(const Case& c, Array x) {
  std::vector<std::string> missing;
  const std::vector<std::string> varying = x.vma();
  for (const std::string& name : c.mesh.names)
    if (std::find(varying.begin(), varying.end(), name) == varying.end()) missing.push_back(name);
  return expand_dims(missing.empty() ? x : pbroadcast(x, Axes(missing)), 0);
}

// The body's blocks on every device; eagerly, captured and replayed they are the same.
Blocks run(const Case& c, const Blocks& in, const Body& body) {
  const auto mapped = shard_map([&](Array x) { return row(c, body(x)); }, c.mesh.mesh(),
                                c.mesh.split(), c.mesh.split());
  const Array x = global_array(in);
  Blocks got = blocks_of(mapped(x));
  const auto jitted = jit(mapped);
  for (int call = 0; call < 3; ++call) {
    const Blocks again = blocks_of(jitted(x));
    for (std::size_t d = 0; d < got.size(); ++d)
      EXPECT_EQ(again[d].values, got[d].values) << c.text() << ", call " << call << " of jit";
  }
  return got;
}

void expect_same(const Case& c, const Blocks& in, const Blocks& got, const Reference& reference,
                 const std::string& what) {
  ASSERT_EQ(static_cast<std::int64_t>(got.size()), c.mesh.host().devices());
  for (std::size_t d = 0; d < got.size(); ++d) {
    const HostArray want = reference(in, static_cast<std::int64_t>(d));
    ASSERT_EQ(got[d].shape, want.shape) << what << ", " << c.text() << ", device " << d;
    ASSERT_EQ(got[d].values, want.values) << what << ", " << c.text() << ", device " << d;
  }
}
void check(const Case& c, const Blocks& in, const Body& body, const Reference& reference,
           const std::string& what) {
  if (has_device_of(c.mesh.mesh())) expect_same(c, in, run(c, in, body), reference, what);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const TestMesh& mesh : kMeshes)
    for (const std::vector<int>& axes : axis_lists(static_cast<int>(mesh.sizes.size())))
      out.push_back({mesh, axes});
  out.push_back({kMeshes[0], {0}, {{0, 1, 2, 3}, {4, 5, 6, 7}}});
  out.push_back({kMeshes[0], {0}, {{6, 1}, {0, 7}, {5, 2}, {3, 4}}});
  out.push_back({kMeshes[0], {0}, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}});
  out.push_back({kMeshes[1], {0}, {{0, 3}, {2, 1}}});
  out.push_back({kMeshes[1], {1, 0}, {{0, 3, 5, 6}, {2, 1, 7, 4}}});
  out.push_back({kMeshes[3], {2, 0}, {{0, 2}, {3, 1}}});
  // The thread sanitizer checks threads, which do the same in all cases: every fourth case is
  // enough. Several processes have process_collectives_test; here they run three cases, one of
  // them in groups.
#ifdef __SANITIZE_THREAD__
  const std::size_t every = 4;
#else
  const std::size_t every = process_count() > 1 ? 16 : 1;
#endif
  if (every > 1) {
    std::size_t n = 0;
    for (std::size_t i = 3; i < out.size(); i += every) out[n++] = out[i];
    out.resize(n);
  }
  return out;
}

HostArray fold(const Case& c, const Blocks& in, std::int64_t d,
               std::int32_t (*op)(std::int32_t, std::int32_t)) {
  HostArray all;
  for (std::int64_t q : c.clique(d)) {
    const HostArray& block = in[static_cast<std::size_t>(q)];
    all = all.values.empty() && all.shape.empty() ? block : combined(all, block, op);
  }
  return all;
}
std::int32_t wrap_add(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
std::int32_t larger(std::int32_t a, std::int32_t b) { return std::max(a, b); }
std::int32_t smaller(std::int32_t a, std::int32_t b) { return std::min(a, b); }

HostArray reshaped(HostArray x, const Extents& shape) {
  x.shape = shape;
  return x;
}
Extents inserted(Extents shape, std::size_t at, std::int64_t extent) {
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), extent);
  return shape;
}
Extents without(Extents shape, std::size_t at) {
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at));
  return shape;
}
// Piece r of n along a dim; untiled it loses that dim.
HostArray piece(const HostArray& x, std::size_t dim, std::int64_t r, std::int64_t n, bool tiled) {
  Extents start(x.shape.size()), extents = x.shape;
  extents[dim] = x.shape[dim] / n;
  start[dim] = r * extents[dim];
  const HostArray out = sliced(x, start, extents);
  return tiled ? out : reshaped(out, without(extents, dim));
}
// Parts in order along a dim; untiled that is a new dim.
HostArray joined(std::vector<HostArray> parts, std::size_t dim, bool tiled) {
  if (!tiled)
    for (HostArray& p : parts) p = reshaped(p, inserted(p.shape, dim, 1));
  return concatenated(parts, dim);
}

const std::vector<Extents> kShapes = {{3}, {1}, {2, 3}, {1, 70}, {2, 1, 3}, {0}, {2, 0}, {5, 0, 2}};

TEST(Collectives, Reductions) {
  std::mt19937 random(1);
  for (const Case& c : cases()) {
    const PsumOptions options{.axis_index_groups = c.groups};
    for (const Extents& shape : kShapes) {
      const Blocks in = random_blocks(c.mesh.host(), shape, random);
      check(
          c, in, [&](const Array& x) { return psum(x, c.names(), options); },
          [&](const Blocks& b, std::int64_t d) { return fold(c, b, d, wrap_add); }, "psum");
      check(
          c, in, [&](const Array& x) { return pmax(x, c.names(), options); },
          [&](const Blocks& b, std::int64_t d) { return fold(c, b, d, larger); }, "pmax");
      check(
          c, in, [&](const Array& x) { return pmin(x, c.names(), options); },
          [&](const Blocks& b, std::int64_t d) { return fold(c, b, d, smaller); }, "pmin");
    }
  }
}

TEST(Collectives, Gathers) {
  std::mt19937 random(2);
  for (const Case& c : cases()) {
    for (const Extents& shape : kShapes) {
      const Blocks in = random_blocks(c.mesh.host(), shape, random);
      for (const bool tiled : {false, true}) {
        for (std::size_t dim = 0; dim < shape.size() + !tiled; ++dim) {
          const AllGatherOptions options{
              .axis = static_cast<int>(dim), .tiled = tiled, .axis_index_groups = c.groups};
          const Reference reference = [&](const Blocks& b, std::int64_t d) {
            std::vector<HostArray> parts;
            for (std::int64_t q : c.clique(d)) parts.push_back(b[static_cast<std::size_t>(q)]);
            return joined(parts, dim, tiled);
          };
          check(
              c, in, [&](const Array& x) { return all_gather(x, c.names(), options); }, reference,
              "all_gather");
          check(
              c, in, [&](const Array& x) { return all_gather_invariant(x, c.names(), options); },
              reference, "all_gather_invariant");
        }
      }
    }
  }
}

TEST(Collectives, Scatters) {
  std::mt19937 random(3);
  for (const Case& c : cases()) {
    const std::int64_t n = c.ranks();
    for (const bool tiled : {false, true}) {
      for (std::size_t rank = 1; rank <= 3; ++rank) {
        for (std::size_t dim = 0; dim < rank; ++dim) {
          for (const std::int64_t other : {2, 0, 300}) {
            if (other == 300 && rank != 2) continue;
            Extents shape(rank, other);
            shape[dim] = tiled ? 3 * n : n;
            const int axis = static_cast<int>(dim);
            const Blocks in = random_blocks(c.mesh.host(), shape, random);
            check(
                c, in,
                [&](const Array& x) {
                  return psum_scatter(
                      x, c.names(),
                      {.scatter_dimension = axis, .tiled = tiled, .axis_index_groups = c.groups});
                },
                [&](const Blocks& b, std::int64_t d) {
                  return piece(fold(c, b, d, wrap_add), dim, c.rank(d), n, tiled);
                },
                "psum_scatter");
            if (!c.groups.empty()) continue;
            // The operand must be invariant over the axes, which the sum is.
            check(
                c, in,
                [&](const Array& x) {
                  return pscatter(psum(x, c.names()), c.names(),
                                  {.scatter_dimension = axis, .tiled = tiled});
                },
                [&](const Blocks& b, std::int64_t d) {
                  return piece(fold(c, b, d, wrap_add), dim, c.rank(d), n, tiled);
                },
                "pscatter");
          }
        }
      }
    }
  }
}

TEST(Collectives, AllToAll) {
  std::mt19937 random(4);
  for (const Case& c : cases()) {
    const std::int64_t n = c.ranks();
    for (const bool tiled : {false, true}) {
      for (std::size_t rank = 1; rank <= 3; ++rank) {
        for (std::size_t split = 0; split < rank; ++split) {
          for (std::size_t concat = 0; concat < rank; ++concat) {
            Extents shape = {2, 3, 2};
            shape.resize(rank);
            shape[split] = tiled ? 2 * n : n;
            const Blocks in = random_blocks(c.mesh.host(), shape, random);
            check(
                c, in,
                [&](const Array& x) {
                  return all_to_all(x, c.names(), static_cast<int>(split), static_cast<int>(concat),
                                    {.tiled = tiled, .axis_index_groups = c.groups});
                },
                [&](const Blocks& b, std::int64_t d) {
                  std::vector<HostArray> parts;
                  for (std::int64_t q : c.clique(d)) {
                    parts.push_back(
                        piece(b[static_cast<std::size_t>(q)], split, c.rank(d), n, tiled));
                  }
                  return joined(parts, concat, tiled);
                },
                "all_to_all split " + std::to_string(split) + " concat " + std::to_string(concat) +
                    (tiled ? " tiled" : ""));
          }
        }
      }
    }
  }
}

TEST(Collectives, PSwapAxesIsAnUntiledAllToAll) {
  std::mt19937 random(5);
  for (const Case& c : cases()) {
    const Blocks in = random_blocks(c.mesh.host(), {2, c.ranks(), 3}, random);
    check(
        c, in,
        [&](const Array& x) { return pswapaxes(x, c.names(), 1, {.axis_index_groups = c.groups}); },
        [&](const Blocks& b, std::int64_t d) {
          std::vector<HostArray> parts;
          for (std::int64_t q : c.clique(d))
            parts.push_back(piece(b[static_cast<std::size_t>(q)], 1, c.rank(d), c.ranks(), false));
          return joined(parts, 1, false);
        },
        "pswapaxes");
  }
}

TEST(Collectives, Permutations) {
  std::mt19937 random(6);
  for (const Case& c : cases()) {
    if (!c.groups.empty()) continue;
    const auto n = static_cast<int>(c.ranks());
    const Blocks in = random_blocks(c.mesh.host(), {3, 2}, random);
    const auto reference = [&](const std::vector<std::pair<int, int>>& perm) -> Reference {
      return [&c, perm](const Blocks& b, std::int64_t d) {
        for (const auto& [from, to] : perm)
          if (to == c.rank(d))
            return b[static_cast<std::size_t>(c.clique(d)[static_cast<std::size_t>(from)])];
        return filled(b[0].shape, [](std::int64_t) { return 0; });
      };
    };
    std::vector<std::pair<int, int>> ring, some;
    std::vector<int> shuffled;
    for (int r = 0; r < n; ++r) ring.emplace_back(r, (r + 1) % n);
    for (int r = 0; r < n; ++r) shuffled.push_back(r);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    for (int r = 0; r < n; r += 2) some.emplace_back(r, shuffled[static_cast<std::size_t>(r)]);
    for (const auto& perm : {ring, some, std::vector<std::pair<int, int>>()}) {
      check(
          c, in, [&](const Array& x) { return ppermute(x, c.names(), perm); }, reference(perm),
          "ppermute");
    }
    check(
        c, in, [&](const Array& x) { return pshuffle(x, c.names(), shuffled); },
        [&](const Blocks& b, std::int64_t d) {
          const int from = shuffled[static_cast<std::size_t>(c.rank(d))];
          return b[static_cast<std::size_t>(c.clique(d)[static_cast<std::size_t>(from)])];
        },
        "pshuffle");
    for (int source : {0, n - 1}) {
      check(
          c, in, [&](const Array& x) { return broadcast_from(x, c.names(), source); },
          [&](const Blocks& b, std::int64_t d) {
            return b[static_cast<std::size_t>(c.clique(d)[static_cast<std::size_t>(source)])];
          },
          "broadcast_from");
    }
  }
}

// Scalars: each device's own is its rank over all axes.
TEST(Collectives, Scalars) {
  for (const Case& c : cases()) {
    const Axes all(c.mesh.names);
    std::vector<int> every;
    for (int a = 0; a < static_cast<int>(c.mesh.names.size()); ++a) every.push_back(a);
    Blocks in;
    for (std::int64_t d = 0; d < c.mesh.host().devices(); ++d)
      in.push_back({{}, {static_cast<std::int32_t>(7 * c.mesh.host().rank(d, every) - 3)}});
    const auto check_scalar = [&](const Body& body, const Reference& reference, const char* what) {
      if (!has_device_of(c.mesh.mesh())) return;
      const auto mapped =
          shard_map([&] { return row(c, astype(body(axis_index(all) * 7 - 3), i32)); },
                    c.mesh.mesh(), Specs{}, c.mesh.split());
      const Blocks got = blocks_of(mapped());
      const auto jitted = jit(mapped);
      for (int call = 0; call < 3; ++call)
        expect_same(c, in, blocks_of(jitted()), reference, std::string(what) + " under jit");
      expect_same(c, in, got, reference, what);
    };
    check_scalar(
        [&](const Array& x) { return psum(x, c.names(), {.axis_index_groups = c.groups}); },
        [&](const Blocks& b, std::int64_t d) { return fold(c, b, d, wrap_add); }, "psum");
    check_scalar(
        [&](const Array& x) { return all_gather(x, c.names(), {.axis_index_groups = c.groups}); },
        [&](const Blocks& b, std::int64_t d) {
          std::vector<HostArray> parts;
          for (std::int64_t q : c.clique(d)) parts.push_back(b[static_cast<std::size_t>(q)]);
          return joined(parts, 0, false);
        },
        "all_gather");
    if (!c.groups.empty()) continue;
    check_scalar([&](const Array&) { return axis_index(c.names()); },
                 [&](const Blocks&, std::int64_t d) {
                   return HostArray{{}, {static_cast<std::int32_t>(c.rank(d))}};
                 },
                 "axis_index");
    check_scalar([&](const Array& x) { return broadcast_from(x, c.names(), 0); },
                 [&](const Blocks& b, std::int64_t d) {
                   return b[static_cast<std::size_t>(c.clique(d)[0])];
                 },
                 "broadcast_from");
  }
}

// A value that varies over some axes only is the same on some cliques; each device still gets its
// own.
TEST(Collectives, OperandsThatVaryOverSomeAxes) {
  const TestMesh mesh{{4, 2}, {"i", "j"}};
  const Array x = array<std::int32_t>({1, 20, 300, 4000}, {4});
  using Values = std::vector<std::int32_t>;
  // `want(i)` is the block of the devices with coordinate i.
  const auto expect_blocks = [](const Array& y, auto want) {
    for (std::uint32_t d : own_positions(y))
      EXPECT_EQ(block_values<std::int32_t>(y, d), want(d / 2)) << "device " << d;
  };
  const auto body = [&](Array b) {  // one element, by i
    expect_blocks(psum(b, "i"), [](std::uint32_t) { return Values{4321}; });
    expect_blocks(psum(b, "j"), [](std::uint32_t i) {
      return Values{Values{2, 40, 600, 8000}[i]};
    });
    expect_blocks(all_gather(b, axes("j", "i"), {.tiled = true}),
                  [](std::uint32_t) { return Values{1, 20, 300, 4000, 1, 20, 300, 4000}; });
    expect_blocks(ppermute(b, "i", {{0, 1}, {1, 0}, {3, 3}}), [](std::uint32_t i) {
      return Values{Values{20, 1, 0, 4000}[i]};
    });
    expect_blocks(psum_scatter(all_gather(b, "i", {.tiled = true}), "i", {.tiled = true}),
                  [](std::uint32_t i) {
                    return Values{4 * Values{1, 20, 300, 4000}[i]};
                  });
    return b;
  };
  shard_map(body, mesh.mesh(), P("i"), P("i"))(x);
  expect_same_under_jit(
      shard_map(
          [](Array b) {
            return std::tuple{
                psum(b, "i"), psum(b, "j"), all_gather(b, axes("j", "i"), {.tiled = true}),
                ppermute(b, "i", {{0, 1}, {1, 0}, {3, 3}}),
                psum_scatter(all_gather(b, "i", {.tiled = true}), "i", {.tiled = true})};
          },
          mesh.mesh(), P("i"), {P(), P("i"), P(axes("i", "j")), P("i"), P("i")}),
      Communication::same, x);
}

// Large blocks are moved in parts, and past the caches.
TEST(Collectives, LargeBlocks) {
  constexpr std::int64_t n = 1 << 19, chunk = n / 8;  // 2 MB a device
  const auto body = [&](Array x) {                    // elements are numbered over all devices
    const auto at = [](std::int64_t d, std::int64_t k) {
      return static_cast<std::int32_t>(d * n + k);
    };
    const auto mismatch = [&](const Array& y, std::uint32_t d, auto want) {
      const std::vector<std::int32_t> got = block_values<std::int32_t>(y, d);
      for (std::size_t k = 0; k < got.size(); ++k)
        if (got[k] != want(static_cast<std::int64_t>(k))) return static_cast<std::int64_t>(k);
      return std::int64_t{-1};
    };
    const Array exchanged = all_to_all(x, "i", 0, 0, {.tiled = true});
    // Rows of 64 KB, of which each device gets columns.
    const Array columns = all_to_all(reshape(x, {32, n / 32}), "i", 1, 0, {.tiled = true});
    const Array gathered = all_gather(x, "i", {.tiled = true});
    const Array sum = psum(x, "i"), scattered = psum_scatter(x, "i", {.tiled = true});
    const std::vector<std::uint32_t> own = own_positions(x);
    for (std::uint32_t d : own) {
      if (d != 0 && d != 5 && d != own.back()) continue;
      EXPECT_EQ(mismatch(exchanged, d,
                         [&](std::int64_t k) { return at(k / chunk, d * chunk + k % chunk); }),
                -1);
      constexpr std::int64_t width = n / 32 / 8;
      EXPECT_EQ(mismatch(columns, d,
                         [&](std::int64_t k) {
                           const std::int64_t row = k / width, column = k % width;
                           return at(row / 32, row % 32 * (n / 32) + d * width + column);
                         }),
                -1);
      EXPECT_EQ(mismatch(gathered, d, [&](std::int64_t k) { return at(0, k); }), -1);
      EXPECT_EQ(mismatch(sum, d,
                         [&](std::int64_t k) { return static_cast<std::int32_t>(28 * n + 8 * k); }),
                -1);
      EXPECT_EQ(mismatch(scattered, d,
                         [&](std::int64_t k) {
                           return static_cast<std::int32_t>(28 * n + 8 * (d * chunk + k));
                         }),
                -1);
    }
    return x;
  };
  shard_map(body, make_mesh({8}, "i"), P("i"), P("i"))(arange(8 * n, i32));
  expect_same_under_jit(shard_map(
                            [](Array x) {
                              return std::tuple{
                                  all_to_all(x, "i", 0, 0, {.tiled = true}),
                                  all_to_all(reshape(x, {32, n / 32}), "i", 1, 0, {.tiled = true}),
                                  psum(x, "i"), psum_scatter(x, "i", {.tiled = true})};
                            },
                            make_mesh({8}, "i"), P("i"), {P("i"), P("i"), P(), P("i")}),
                        Communication::same, arange(8 * n, i32));
}

TEST(Collectives, OverNoAxes) {
  const TestMesh mesh{{4}, {"i"}};
  const auto body = [](Array x) {
    const Axes none_at_all;
    EXPECT_EQ(psum(x, none_at_all).node(), x.node());
    EXPECT_EQ(pmax(x, none_at_all).node(), x.node());
    EXPECT_EQ(pbroadcast(x, none_at_all).node(), x.node());
    EXPECT_EQ(axis_size(none_at_all), 1);
    EXPECT_EQ(psum(3, none_at_all), 3);
    EXPECT_EQ(all_gather(x, none_at_all).shape(), Shape({1, 2}));
    const Array y = ppermute(x, none_at_all, {{0, 0}});
    for (std::uint32_t d : own_positions(y)) {
      const auto first = static_cast<std::int32_t>(2 * d);
      EXPECT_EQ(block_values<std::int32_t>(y, d), (std::vector<std::int32_t>{first, first + 1}));
    }
    return x;
  };
  shard_map(body, mesh.mesh(), P("i"), P("i"))(arange(8, i32));
}

TEST(Collectives, HostNumbersStayOnTheHost) {
  const TestMesh mesh{{4, 2}, {"i", "j"}};
  const auto body = [](Array x) {
    static_assert(std::same_as<decltype(psum(1, "i")), int>);
    static_assert(std::same_as<decltype(psum(0.5f, "i")), float>);
    static_assert(std::same_as<decltype(psum(1L, "i")), long>);
    static_assert(std::same_as<decltype(psum(true, "i")), int>);
    EXPECT_EQ(psum(1, "i"), 4);
    EXPECT_EQ(psum(3, {"i", "j"}), 24);
    EXPECT_EQ(psum(0.5f, "j"), 1.f);
    EXPECT_EQ(psum(true, "i"), 4);
    EXPECT_EQ(psum(1, "i", {.axis_index_groups = {{0, 1}, {2, 3}}}), 2);
    EXPECT_EQ(axis_size("i"), 4);
    EXPECT_EQ(axis_size(axes("j", "i")), 8);
    return x;
  };
  shard_map(body, mesh.mesh(), P("i"), P("i"))(arange(4));
}

TEST(Collectives, AReductionIsAScatterAndAGather) {
  const TestMesh mesh{{4, 2}, {"i", "j"}};
  std::vector<float> values;
  std::mt19937 random(7);
  for (int i = 0; i < 8 * 16 * 3; ++i)
    values.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
  const auto body = [](Array x) {
    for (const Axes& over : {axes("i"), axes("j"), axes("i", "j"), axes("j", "i")}) {
      const Array sum = psum(x, over);
      const Array again = all_gather(psum_scatter(x, over, {.tiled = true}), over, {.tiled = true});
      for (std::uint32_t d : own_positions(sum))
        EXPECT_EQ(block_values<float>(sum, d), block_values<float>(again, d)) << to_string(over);
    }
    return x;
  };
  const Array x = array<float>(values, {8 * 16, 3});
  shard_map(body, mesh.mesh(), mesh.split(), mesh.split())(x);
  const auto both = shard_map(
      [](Array x) {
        return std::pair{psum(x, {"j", "i"}),
                         all_gather_invariant(psum_scatter(x, axes("j", "i"), {.tiled = true}),
                                              axes("j", "i"), {.tiled = true})};
      },
      mesh.mesh(), mesh.split(), P());
  const auto [sum, again] = expect_same_under_jit(both, Communication::same, x);
  EXPECT_EQ(sum.to_vector<float>(), again.to_vector<float>());
}

}  // namespace
}  // namespace shmap::test
