#include "tests/support/random_integer_body.h"

#include <algorithm>
#include <utility>

#include "shmap/shmap.h"

namespace shmap::test {

// The operands of one try: a value, and mesh axes.
struct RandomIntegerBody::Tried {
  std::size_t a;
  Known x;
  std::vector<int> axes;
  std::string of;  // " %3"
};

namespace {

using Combine = std::int32_t (*)(std::int32_t, std::int32_t);

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

}  // namespace

Extents RandomIntegerBody::random_shape_for(const SpecDims& spec) {
  Extents shape;
  for (const auto& axes : spec)
    shape.push_back(ranks(axes) * static_cast<std::int64_t>(1 + pick(3)));
  return shape;
}

bool RandomIntegerBody::push(std::string text, Known result,
                             std::function<Array(const std::vector<Array>&)> ours,
                             std::function<Blocks(const std::vector<Blocks>&)> reference) {
  known.push_back(std::move(result));
  program.push_back({std::move(text), std::move(ours), std::move(reference)});
  return true;
}

// Works on each device's block alone.
bool RandomIntegerBody::push_local(const Tried& t, const std::string& text, Known result,
                                   std::function<Array(const Array&)> ours,
                                   std::function<HostArray(const HostArray&)> reference) {
  return push(
      text + t.of, std::move(result),
      [a = t.a, ours](const std::vector<Array>& v) { return ours(v[a]); },
      [a = t.a, reference](const std::vector<Blocks>& v) {
        Blocks out;
        for (const HostArray& b : v[a]) out.push_back(reference(b));
        return out;
      });
}

// A collective: each device's result from the blocks of its group, in rank order.
bool RandomIntegerBody::push_group(
    const Tried& t, const std::string& text, Known result, std::function<Array(const Array&)> ours,
    std::function<HostArray(const std::vector<HostArray>&, std::int64_t rank)> reference) {
  return push(
      text + t.of, std::move(result),
      [a = t.a, ours](const std::vector<Array>& v) { return ours(v[a]); },
      [a = t.a, m = host_mesh(), axes = t.axes, reference](const std::vector<Blocks>& v) {
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

void RandomIntegerBody::step() {
  constexpr std::size_t kLocal = 8, kCollective = 7;  // kinds
  for (int attempt = 0; attempt < 50; ++attempt) {
    Tried t;
    t.a = pick(known.size());
    t.x = known[t.a];
    t.axes = random_axes();
    t.of = " %" + std::to_string(t.a);
    const std::size_t kind = pick(kLocal + kCollective);
    if (kind < kLocal ? try_local(t, kind) : try_collective(t, kind - kLocal)) return;
  }
}

bool RandomIntegerBody::try_local(const Tried& t, std::size_t kind) {
  const Known& x = t.x;
  const std::size_t a = t.a, rank = x.shape.size();
  switch (kind) {
    case 0: {
      return push_local(
          t, "-x", x, [](const Array& v) { return -v; },
          [](const HostArray& v) {
            return filled(v.shape, [&](std::int64_t i) {
              return sub(0, v.values[static_cast<std::size_t>(i)]);
            });
          });
    }
    case 1: {
      return push_local(
          t, "x * 3 + 1", x, [](const Array& v) { return v * 3 + 1; },
          [](const HostArray& v) {
            return filled(v.shape, [&](std::int64_t i) {
              return add(mul(v.values[static_cast<std::size_t>(i)], 3), 1);
            });
          });
    }
    case 2: {
      const std::size_t b = pick(known.size());
      const Known& y = known[b];
      if (!(y.shape == x.shape || y.shape.empty() || x.shape.empty())) return false;
      const std::size_t op = pick(4);
      static const Combine host[] = {add, sub, mul,
                                     [](std::int32_t p, std::int32_t q) { return std::max(p, q); }};
      return push(
          "binary " + std::to_string(op) + t.of + " %" + std::to_string(b),
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
    }
    case 3: {
      if (rank == 0) return false;
      const std::size_t d = pick(rank);
      Known r = x;
      r.shape[d] = 1;
      return push_local(
          t, "sum keepdims", r, [d](const Array& v) { return sum(v, static_cast<int>(d), true); },
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
    }
    case 4: {
      if (rank < 2) return false;
      Known r{{x.shape.rbegin(), x.shape.rend()}, x.varying};
      return push_local(
          t, "transpose", r, [](const Array& v) { return transpose(v); },
          [](const HostArray& v) {
            return gathered(v, {v.shape.rbegin(), v.shape.rend()}, [&](const Extents& i) {
              return flat_index({i.rbegin(), i.rend()}, v.shape);
            });
          });
    }
    case 5: {
      Known r{{product(x.shape)}, x.varying};
      return push_local(
          t, "reshape", r, [](const Array& v) { return reshape(v, {-1}); },
          [](const HostArray& v) {
            return HostArray{{v.size()}, v.values};
          });
    }
    case 6: {
      if (rank != 2 || x.shape[0] > 16 || x.shape[1] > 16) return false;
      Known r{{x.shape[0], x.shape[0]}, x.varying};
      return push_local(
          t, "x @ x.T", r, [](const Array& v) { return matmul(v, transpose(v)); },
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
    }
    default: {
      if (rank == 0 || product(x.shape) > 256) return false;
      const std::size_t d = pick(rank);
      Known r = x;
      r.shape[d] *= 2;
      return push_local(
          t, "concatenate", r,
          [d](const Array& v) {
            return concatenate({v, v * 2}, static_cast<int>(d));
          },
          [d](const HostArray& v) {
            return concatenated<std::int32_t>(
                {v, filled(v.shape,
                           [&](std::int64_t i) {
                             return mul(v.values[static_cast<std::size_t>(i)], 2);
                           })},
                d);
          });
    }
  }
}

bool RandomIntegerBody::try_collective(const Tried& t, std::size_t kind) {
  const Known& x = t.x;
  const std::size_t rank = x.shape.size();
  const std::int64_t n = ranks(t.axes);
  const Axes named = names(t.axes);
  const unsigned over = mask(t.axes);
  const Known one{x.shape, x.varying & ~over}, each{x.shape, x.varying | over};
  switch (kind) {
    case 0: {
      return push(
          "axis_index", {{}, mask(t.axes)},
          [named](const std::vector<Array>&) { return axis_index(named); },
          [m = host_mesh(), axes = t.axes](const std::vector<Blocks>&) {
            Blocks out;
            for (std::int64_t d = 0; d < m.devices(); ++d)
              out.push_back({{}, {static_cast<std::int32_t>(m.rank(d, axes))}});
            return out;
          });
    }
    case 1: {
      return push_group(
          t, "psum", one, [named](const Array& v) { return psum(v, named); },
          [](const std::vector<HostArray>& g, std::int64_t) {
            HostArray total = g[0];
            for (std::size_t k = 1; k < g.size(); ++k) total = combined(total, g[k], add);
            return total;
          });
    }
    case 2: {
      return push_group(
          t, "pmax", one, [named](const Array& v) { return pmax(v, named); },
          [](const std::vector<HostArray>& g, std::int64_t) {
            HostArray total = g[0];
            for (std::size_t k = 1; k < g.size(); ++k)
              total = combined(total, g[k],
                               [](std::int32_t p, std::int32_t q) { return std::max(p, q); });
            return total;
          });
    }
    case 3: {
      if (rank == 0 || product(x.shape) * n > 4096) return false;
      const std::size_t d = pick(rank);
      const bool tiled = coin();
      Known r = each;
      if (tiled)
        r.shape[d] *= n;
      else
        r.shape.insert(r.shape.begin() + static_cast<std::ptrdiff_t>(d), n);
      return push_group(
          t, "all_gather", r,
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
    }
    case 4: {
      if (rank == 0) return false;
      const std::size_t d = pick(rank);
      if (x.shape[d] % n != 0) return false;
      Known r = each;
      r.shape[d] /= n;
      return push_group(
          t, "psum_scatter", r,
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
    }
    case 5: {
      if (rank == 0) return false;
      const std::size_t s = pick(rank), c = pick(rank);
      if (x.shape[s] % n != 0) return false;
      Known r = each;
      r.shape[s] /= n;
      r.shape[c] *= n;
      return push_group(
          t, "all_to_all", r,
          [named, s, c](const Array& v) {
            return all_to_all(v, named, static_cast<int>(s), static_cast<int>(c), {.tiled = true});
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
    }
    default: {
      const std::vector<int> to = shuffled(static_cast<int>(n));
      std::vector<std::pair<int, int>> perm;
      for (int k = 0; k < static_cast<int>(n); ++k)
        if (pick(4) != 0) perm.push_back({k, to[static_cast<std::size_t>(k)]});
      return push_group(
          t, "ppermute", each, [named, perm](const Array& v) { return ppermute(v, named, perm); },
          [perm](const std::vector<HostArray>& g, std::int64_t rank_of) {
            for (const auto& [from, dst] : perm)
              if (dst == rank_of) return g[static_cast<std::size_t>(from)];
            return filled(g[0].shape, [](std::int64_t) { return 0; });
          });
    }
  }
}

}  // namespace shmap::test
