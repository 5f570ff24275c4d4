// shmap-test: devices
// Random meshes, specs and bodies against a reference that loops over mesh coordinates in plain
// host code; and under jit against the eager run. A failure prints its case number: run with
// SHMAP_TEST_CASE=<n> to repeat that one alone.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "tests/support/loop_reference.h"
#include "tests/support/under_jit.h"

namespace shmap {
namespace {

using namespace test;

constexpr int kCases = 500;
constexpr const char* kNames[] = {"i", "j"};

std::int32_t wrap(std::uint32_t v) { return static_cast<std::int32_t>(v); }
std::int32_t add(std::int32_t a, std::int32_t b) {
  return wrap(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
std::int32_t mul(std::int32_t a, std::int32_t b) {
  return wrap(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
}
std::int32_t sub(std::int32_t a, std::int32_t b) {
  return wrap(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
}

// One instruction of a body. Each makes one value from earlier ones, in the library's terms and in
// host terms.
struct Instruction {
  std::string text;
  std::function<Array(const std::vector<Array>&)> ours;
  std::function<Blocks(const std::vector<Blocks>&)> reference;
};

// What the generator knows of a value: enough to choose legal instructions, and the variance by the
// typing rules.
struct Known {
  Extents shape;
  unsigned varying;  // mask of axes
};

class Generator {
 public:
  explicit Generator(unsigned seed) : engine_(seed) {
    static const std::vector<Extents> meshes = {{1},    {1, 1}, {1, 2}, {2, 2},
                                                {2, 4}, {4, 2}, {8},    {2, 1}};
    mesh.sizes = meshes[pick(meshes.size())];
  }

  std::size_t pick(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(engine_);
  }
  bool coin() { return pick(2) == 0; }

  HostMesh mesh;

  // Any assignment of some of the axes to dims, in any order.
  SpecDims random_spec(std::size_t rank, unsigned required) {
    SpecDims spec(rank);
    std::vector<int> axes(mesh.sizes.size());
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), engine_);
    for (int a : axes)
      if (rank > 0 && ((required >> a & 1u) || coin())) spec[pick(rank)].push_back(a);
    return spec;
  }

  Extents random_shape_for(const SpecDims& spec) {
    Extents shape;
    for (const auto& axes : spec) {
      std::int64_t parts = 1;
      for (int a : axes) parts *= mesh.sizes[static_cast<std::size_t>(a)];
      shape.push_back(parts * static_cast<std::int64_t>(1 + pick(3)));
    }
    return shape;
  }

  std::vector<int> random_axes() {
    std::vector<int> axes;
    for (int a = 0; a < static_cast<int>(mesh.sizes.size()); ++a)
      if (coin()) axes.push_back(a);
    if (axes.empty()) axes.push_back(static_cast<int>(pick(mesh.sizes.size())));
    std::shuffle(axes.begin(), axes.end(), engine_);
    return axes;
  }
  Axes names(const std::vector<int>& axes) const {
    std::vector<std::string> n;
    for (int a : axes) n.emplace_back(kNames[a]);
    return Axes(n);
  }
  static unsigned mask(const std::vector<int>& axes) {
    unsigned m = 0;
    for (int a : axes) m |= 1u << a;
    return m;
  }
  std::int64_t ranks(const std::vector<int>& axes) const {
    std::int64_t n = 1;
    for (int a : axes) n *= mesh.sizes[static_cast<std::size_t>(a)];
    return n;
  }

  std::vector<Known> known;
  std::vector<Instruction> program;

  void step() {
    for (int attempt = 0; attempt < 50; ++attempt)
      if (try_step()) return;
  }

 private:
  using Combine = std::int32_t (*)(std::int32_t, std::int32_t);

  void push(std::string text, Known result, std::function<Array(const std::vector<Array>&)> ours,
            std::function<Blocks(const std::vector<Blocks>&)> reference) {
    known.push_back(std::move(result));
    program.push_back({std::move(text), std::move(ours), std::move(reference)});
  }

  // An instruction that works on each device's block alone.
  void push_local(std::string text, Known result, std::size_t a,
                  std::function<Array(const Array&)> ours,
                  std::function<HostArray(const HostArray&)> reference) {
    push(
        std::move(text), std::move(result),
        [a, ours](const std::vector<Array>& v) { return ours(v[a]); },
        [a, reference](const std::vector<Blocks>& v) {
          Blocks out;
          for (const HostArray& b : v[a]) out.push_back(reference(b));
          return out;
        });
  }

  // A collective: each device's result from the blocks of its group, in rank order.
  void push_group(
      std::string text, Known result, std::size_t a, std::vector<int> axes,
      std::function<Array(const Array&)> ours,
      std::function<HostArray(const std::vector<HostArray>&, std::int64_t rank)> reference) {
    const HostMesh m = mesh;
    push(
        std::move(text), std::move(result),
        [a, ours](const std::vector<Array>& v) { return ours(v[a]); },
        [a, m, axes, reference](const std::vector<Blocks>& v) {
          Blocks out;
          for (std::int64_t d = 0; d < m.devices(); ++d) {
            std::vector<HostArray> group;
            for (std::int64_t member : m.group(d, axes))
              group.push_back(v[a][static_cast<std::size_t>(member)]);
            out.push_back(reference(group, m.rank(d, axes)));
          }
          return out;
        });
  }

  bool try_step() {
    const std::size_t a = pick(known.size());
    const Known x = known[a];
    const std::size_t rank = x.shape.size();
    const std::vector<int> axes = random_axes();
    const std::int64_t n = ranks(axes);
    const Axes named = names(axes);
    const std::string of = " %" + std::to_string(a);
    switch (pick(15)) {
      case 0: {
        push_local(
            "-x" + of, x, a, [](const Array& v) { return -v; },
            [](const HostArray& v) {
              return filled(v.shape, [&](std::int64_t i) {
                return sub(0, v.values[static_cast<std::size_t>(i)]);
              });
            });
        return true;
      }
      case 1: {
        push_local(
            "x * 3 + 1" + of, x, a, [](const Array& v) { return v * 3 + 1; },
            [](const HostArray& v) {
              return filled(v.shape, [&](std::int64_t i) {
                return add(mul(v.values[static_cast<std::size_t>(i)], 3), 1);
              });
            });
        return true;
      }
      case 2: {
        const std::size_t b = pick(known.size());
        const Known& y = known[b];
        if (!(y.shape == x.shape || y.shape.empty() || x.shape.empty())) return false;
        const std::size_t op = pick(4);
        static const Combine host[] = {
            add, sub, mul, [](std::int32_t p, std::int32_t q) { return std::max(p, q); }};
        push(
            "binary " + std::to_string(op) + of + " %" + std::to_string(b),
            {x.shape.empty() ? y.shape : x.shape, x.varying | y.varying},
            [a, b, op](const std::vector<Array>& v) {
              return op == 0   ? v[a] + v[b]
                     : op == 1 ? v[a] - v[b]
                     : op == 2 ? v[a] * v[b]
                               : maximum(v[a], v[b]);
            },
            [a, b, op](const std::vector<Blocks>& v) {
              Blocks out;
              for (std::size_t d = 0; d < v[a].size(); ++d)
                out.push_back(combined(v[a][d], v[b][d], host[op]));
              return out;
            });
        return true;
      }
      case 3: {
        if (rank == 0) return false;
        const std::size_t d = pick(rank);
        Known r = x;
        r.shape[d] = 1;
        push_local(
            "sum keepdims" + of, r, a,
            [d](const Array& v) { return sum(v, static_cast<int>(d), true); },
            [d](const HostArray& v) {
              HostArray total = sliced(v, Extents(v.shape.size(), 0), [&] {
                Extents e = v.shape;
                e[d] = 1;
                return e;
              }());
              for (std::int64_t k = 1; k < v.shape[d]; ++k) {
                Extents start(v.shape.size(), 0);
                start[d] = k;
                total = combined(total, sliced(v, start, total.shape), add);
              }
              return total;
            });
        return true;
      }
      case 4: {
        if (rank < 2) return false;
        Known r{{x.shape.rbegin(), x.shape.rend()}, x.varying};
        push_local(
            "transpose" + of, r, a, [](const Array& v) { return transpose(v); },
            [](const HostArray& v) {
              return gathered(v, {v.shape.rbegin(), v.shape.rend()}, [&](const Extents& i) {
                return flat_index({i.rbegin(), i.rend()}, v.shape);
              });
            });
        return true;
      }
      case 5: {
        Known r{{product(x.shape)}, x.varying};
        push_local(
            "reshape" + of, r, a, [](const Array& v) { return reshape(v, {-1}); },
            [](const HostArray& v) {
              return HostArray{{v.size()}, v.values};
            });
        return true;
      }
      case 6: {
        if (rank != 2 || x.shape[0] > 16 || x.shape[1] > 16) return false;
        Known r{{x.shape[0], x.shape[0]}, x.varying};
        push_local(
            "x @ x.T" + of, r, a, [](const Array& v) { return matmul(v, transpose(v)); },
            [](const HostArray& v) {
              const std::int64_t rows = v.shape[0], inner = v.shape[1];
              return filled({rows, rows}, [&](std::int64_t i) {
                std::int32_t s = 0;
                for (std::int64_t k = 0; k < inner; ++k)
                  s = add(s, mul(v.values[static_cast<std::size_t>(i / rows * inner + k)],
                                 v.values[static_cast<std::size_t>(i % rows * inner + k)]));
                return s;
              });
            });
        return true;
      }
      case 7: {
        if (rank == 0 || product(x.shape) > 256) return false;
        const std::size_t d = pick(rank);
        Known r = x;
        r.shape[d] *= 2;
        push_local(
            "concatenate" + of, r, a,
            [d](const Array& v) {
              return concatenate({v, v * 2}, static_cast<int>(d));
            },
            [d](const HostArray& v) {
              return concatenated({v, filled(v.shape,
                                             [&](std::int64_t i) {
                                               return mul(v.values[static_cast<std::size_t>(i)], 2);
                                             })},
                                  d);
            });
        return true;
      }
      case 8: {
        push(
            "axis_index", {{}, mask(axes)},
            [named](const std::vector<Array>&) { return axis_index(named); },
            [m = mesh, axes](const std::vector<Blocks>&) {
              Blocks out;
              for (std::int64_t d = 0; d < m.devices(); ++d)
                out.push_back({{}, {static_cast<std::int32_t>(m.rank(d, axes))}});
              return out;
            });
        return true;
      }
      case 9: {
        push_group(
            "psum" + of, {x.shape, x.varying & ~mask(axes)}, a, axes,
            [named](const Array& v) { return psum(v, named); },
            [](const std::vector<HostArray>& g, std::int64_t) {
              HostArray total = g[0];
              for (std::size_t k = 1; k < g.size(); ++k) total = combined(total, g[k], add);
              return total;
            });
        return true;
      }
      case 10: {
        push_group(
            "pmax" + of, {x.shape, x.varying & ~mask(axes)}, a, axes,
            [named](const Array& v) { return pmax(v, named); },
            [](const std::vector<HostArray>& g, std::int64_t) {
              HostArray total = g[0];
              for (std::size_t k = 1; k < g.size(); ++k)
                total = combined(total, g[k],
                                 [](std::int32_t p, std::int32_t q) { return std::max(p, q); });
              return total;
            });
        return true;
      }
      case 11: {
        if (rank == 0 || product(x.shape) * n > 4096) return false;
        const std::size_t d = pick(rank);
        const bool tiled = coin();
        Known r{x.shape, x.varying | mask(axes)};
        if (tiled)
          r.shape[d] *= n;
        else
          r.shape.insert(r.shape.begin() + static_cast<std::ptrdiff_t>(d), n);
        push_group(
            "all_gather" + of, r, a, axes,
            [named, d, tiled](const Array& v) {
              return all_gather(v, named, {.axis = static_cast<int>(d), .tiled = tiled});
            },
            [d, tiled](const std::vector<HostArray>& g, std::int64_t) {
              if (tiled) return concatenated(g, d);
              std::vector<HostArray> stacked = g;
              for (HostArray& s : stacked)
                s.shape.insert(s.shape.begin() + static_cast<std::ptrdiff_t>(d), 1);
              return concatenated(stacked, d);
            });
        return true;
      }
      case 12: {
        if (rank == 0) return false;
        const std::size_t d = pick(rank);
        if (x.shape[d] % n != 0) return false;
        Known r{x.shape, x.varying | mask(axes)};
        r.shape[d] /= n;
        push_group(
            "psum_scatter" + of, r, a, axes,
            [named, d](const Array& v) {
              return psum_scatter(v, named,
                                  {.scatter_dimension = static_cast<int>(d), .tiled = true});
            },
            [d, n](const std::vector<HostArray>& g, std::int64_t rank_of) {
              HostArray total = g[0];
              for (std::size_t k = 1; k < g.size(); ++k) total = combined(total, g[k], add);
              Extents start(total.shape.size(), 0), extents = total.shape;
              extents[d] /= n;
              start[d] = rank_of * extents[d];
              return sliced(total, start, extents);
            });
        return true;
      }
      case 13: {
        if (rank == 0) return false;
        const std::size_t s = pick(rank), c = pick(rank);
        if (x.shape[s] % n != 0) return false;
        Known r{x.shape, x.varying | mask(axes)};
        r.shape[s] /= n;
        r.shape[c] *= n;
        push_group(
            "all_to_all" + of, r, a, axes,
            [named, s, c](const Array& v) {
              return all_to_all(v, named, static_cast<int>(s), static_cast<int>(c),
                                {.tiled = true});
            },
            [s, c, n](const std::vector<HostArray>& g, std::int64_t rank_of) {
              std::vector<HostArray> pieces;
              for (const HostArray& from : g) {
                Extents start(from.shape.size(), 0), extents = from.shape;
                extents[s] /= n;
                start[s] = rank_of * extents[s];
                pieces.push_back(sliced(from, start, extents));
              }
              return concatenated(pieces, c);
            });
        return true;
      }
      default: {
        std::vector<int> to(static_cast<std::size_t>(n));
        std::iota(to.begin(), to.end(), 0);
        std::shuffle(to.begin(), to.end(), engine_);
        std::vector<std::pair<int, int>> perm;
        for (int k = 0; k < static_cast<int>(n); ++k)
          if (pick(4) != 0) perm.push_back({k, to[static_cast<std::size_t>(k)]});
        push_group(
            "ppermute" + of, {x.shape, x.varying | mask(axes)}, a, axes,
            [named, perm](const Array& v) { return ppermute(v, named, perm); },
            [perm](const std::vector<HostArray>& g, std::int64_t rank_of) {
              for (const auto& [from, dst] : perm)
                if (dst == rank_of) return g[static_cast<std::size_t>(from)];
              return filled(g[0].shape, [](std::int64_t) { return 0; });
            });
        return true;
      }
    }
  }

  std::mt19937 engine_;
};

PartitionSpec to_spec(const Generator& g, const SpecDims& dims) {
  std::vector<PartitionSpec::Entry> entries;
  for (const auto& axes : dims) entries.emplace_back(g.names(axes));
  return PartitionSpec(entries);
}

Shape to_shape(const Extents& e) { return Shape(e); }

// One random body with its mesh, specs and arguments.
void run_case(unsigned number, bool under_jit) {
  Generator g(number * 7919u + 17u);
  const HostMesh& host_mesh = g.mesh;
  std::vector<std::string> mesh_names(kNames, kNames + host_mesh.sizes.size());
  const Mesh mesh = make_mesh(to_shape(host_mesh.sizes), mesh_names);

  std::vector<HostArray> arguments;
  std::vector<SpecDims> in_dims;
  std::vector<P> in_specs;
  std::vector<Blocks> values;
  const std::size_t inputs = 1 + g.pick(3);
  for (std::size_t k = 0; k < inputs; ++k) {
    const SpecDims spec = g.random_spec(g.pick(4), 0);
    const HostArray x = filled(g.random_shape_for(spec), [&](std::int64_t) {
      return static_cast<std::int32_t>(g.pick(19)) - 9;
    });
    unsigned varying = 0;
    for (const auto& axes : spec) varying |= Generator::mask(axes);
    values.push_back(split_by_spec(x, host_mesh, spec));
    g.known.push_back({values.back().front().shape, varying});
    arguments.push_back(x);
    in_dims.push_back(spec);
    in_specs.push_back(to_spec(g, spec));
  }
  const std::size_t length = 1 + g.pick(8);
  for (std::size_t k = 0; k < length; ++k) g.step();

  for (const Instruction& instruction : g.program) values.push_back(instruction.reference(values));
  const Known& last = g.known.back();
  // A scalar cannot mention axes: one that varies is not returned, but made equal first.
  const bool scalar = last.shape.empty();
  const SpecDims out_dims = g.random_spec(last.shape.size(), last.varying);
  if (scalar && last.varying != 0 && !under_jit) return;

  std::string text = "case " + std::to_string(number) + " on " + to_string(mesh) + ":";
  for (const Instruction& i : g.program) text += "\n  " + i.text;
  SCOPED_TRACE(text);

  std::vector<std::string> types;
  const auto body = [&](std::vector<Array> blocks) {
    for (const Instruction& i : g.program) blocks.push_back(i.ours(blocks));
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      unsigned varying = 0;
      for (const std::string& name : blocks[k].vma()) varying |= name == "i" ? 1u : 2u;
      EXPECT_EQ(varying, g.known[k].varying) << "the variance of %" << k;
      EXPECT_EQ(blocks[k].shape(), to_shape(g.known[k].shape)) << "the shape of %" << k;
    }
    return blocks.back();
  };
  std::vector<Array> inputs_ours;
  for (const HostArray& x : arguments)
    inputs_ours.push_back(array<std::int32_t>(x.values, to_shape(x.shape)));
  if (under_jit) {
    // All values are results, so that nothing is left out (but what is computed twice): those
    // without a dim get one to split.
    const auto all_values = [&](std::vector<Array> blocks) {
      for (const Instruction& i : g.program) blocks.push_back(i.ours(blocks));
      for (Array& b : blocks)
        if (b.ndim() == 0) b = reshape(b, {1});
      return blocks;
    };
    std::vector<P> out_specs;
    for (const Known& k : g.known)
      out_specs.push_back(
          to_spec(g, g.random_spec(std::max<std::size_t>(k.shape.size(), 1), k.varying)));
    expect_same_under_jit(shard_map(all_values, mesh, {Specs(in_specs)}, Specs(out_specs)),
                          Communication::no_more, inputs_ours);
    return;
  }
  const Array got = shard_map(body, mesh, {Specs(in_specs)}, to_spec(g, out_dims))(inputs_ours);
  const HostArray want = join_by_spec(values.back(), host_mesh, out_dims);
  EXPECT_EQ(got.shape(), to_shape(want.shape));
  EXPECT_EQ(got.to_vector<std::int32_t>(), want.values);
}

void run_cases(bool under_jit) {
  if (const char* one = std::getenv("SHMAP_TEST_CASE"))
    return run_case(static_cast<unsigned>(std::atoi(one)), under_jit);
  for (unsigned number = 0; number < kCases && !testing::Test::HasFailure(); ++number)
    run_case(number, under_jit);
}

TEST(Property, RandomBodiesEqualTheLoopOverMeshCoordinates) { run_cases(false); }
TEST(Property, RandomBodiesAreTheSameUnderJit) { run_cases(true); }

}  // namespace
}  // namespace shmap
