#include "tests/support/random_smooth_body.h"

#include <numeric>
#include <utility>

#include "shmap/shmap.h"

namespace shmap::test {

// What one try is about: a value, and mesh axes.
struct RandomSmoothBody::Tried {
  std::size_t a;
  Known x;
  std::vector<int> axes;
  unsigned over;  // the mask of the axes
  Axes named;
  std::int64_t all;  // ranks along them
  std::string of;    // " %3"
};

namespace {

constexpr std::size_t kLocal = 12, kControlFlow = 5, kCollective = 13;  // kinds, as often as likely

Array itself(const Array& v) { return v; }

Known with_extent(Known x, std::size_t dim, std::int64_t extent) {
  x.shape[dim] = extent;
  return x;
}

Known without_dim(Known x, std::size_t dim) {
  x.shape.erase(x.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  return x;
}

}  // namespace

Array RandomSmoothBody::random_array(const Extents& shape) {
  std::vector<double> values;
  for (std::int64_t k = 0; k < product(shape); ++k) values.push_back(number());
  return array<double>(values, Shape(shape));
}

bool RandomSmoothBody::push(std::string text, Known result, OfAll mapped, OfAll plain) {
  known.push_back(std::move(result));
  program.push_back({std::move(text), std::move(mapped), std::move(plain)});
  return true;
}

// Works on each block alone.
bool RandomSmoothBody::push_local(const Tried& t, const std::string& text, Known result, OfOne f) {
  const auto op = [a = t.a, f](const Values& v) { return f(v[a]); };
  return push(text + t.of, std::move(result), op, op);
}

bool RandomSmoothBody::push_group(const Tried& t, const std::string& text, Known result,
                                  OfOne mapped, OfOne plain) {
  return push(
      text + t.of, std::move(result), [a = t.a, mapped](const Values& v) { return mapped(v[a]); },
      [a = t.a, plain](const Values& v) { return plain(v[a]); });
}

Groups RandomSmoothBody::random_groups(std::int64_t n) {
  if (n % 2 != 0 || pick(4) != 0) return {};
  const std::vector<int> ranks = shuffled(static_cast<int>(n));
  const auto half = ranks.begin() + static_cast<std::ptrdiff_t>(n / 2);
  return {{ranks.begin(), half}, {half, ranks.end()}};
}

void RandomSmoothBody::step() {
  for (int attempt = 0; attempt < 50; ++attempt) {
    Tried t;
    t.a = pick(known.size());
    t.x = known[t.a];
    t.axes = random_axes();
    t.over = mask(t.axes);
    t.named = names(t.axes);
    t.all = ranks(t.axes);
    t.of = " %" + std::to_string(t.a);
    const std::size_t kind = pick(kLocal + kControlFlow + kCollective);
    const bool done = kind < kLocal ? try_local(t, kind)
                      : kind < kLocal + kControlFlow
                          ? try_control_flow(t, kind - kLocal)
                          : try_collective(t, kind - kLocal - kControlFlow);
    if (done) return;
  }
}

bool RandomSmoothBody::try_local(const Tried& t, std::size_t kind) {
  const Known& x = t.x;
  const std::size_t a = t.a, rank = x.shape.size();
  switch (kind) {
    case 0:
      return push_local(t, "sin", x, [](const Array& v) { return sin(v); });
    case 1:
      return push_local(t, "tanh", x, [](const Array& v) { return tanh(v); });
    case 2:
      return push_local(t, "exp", x, [](const Array& v) { return exp(tanh(v)); });
    case 3:
      return push_local(t, "square", x, [](const Array& v) { return v * v - 2. * v; });
    case 4: {
      if (rank == 0) return false;
      const std::size_t d = pick(rank);
      const bool keep = coin();
      return push_local(t, "mean", keep ? with_extent(x, d, 1) : without_dim(x, d),
                        [d, keep](const Array& v) { return mean(v, static_cast<int>(d), keep); });
    }
    case 5:
      if (rank < 2) return false;
      return push_local(t, "transpose", {{x.shape.rbegin(), x.shape.rend()}, x.varying},
                        [](const Array& v) { return transpose(v); });
    case 6:
      return push_local(t, "reshape", {{product(x.shape)}, x.varying},
                        [](const Array& v) { return reshape(v, {-1}); });
    case 7:
      if (rank != 2 || x.shape[0] > 16 || x.shape[1] > 16) return false;
      return push_local(t, "x @ sin(x.T)", {{x.shape[0], x.shape[0]}, x.varying},
                        [](const Array& v) { return tanh(matmul(v, sin(transpose(v)))); });
    case 8: {
      if (rank == 0 || product(x.shape) > 128) return false;
      const std::size_t d = pick(rank);
      return push_local(t, "concatenate", with_extent(x, d, 2 * x.shape[d]), [d](const Array& v) {
        return concatenate({v, cos(v)}, static_cast<int>(d));
      });
    }
    default: {
      const std::size_t b = pick(known.size());
      const Known& y = known[b];
      if (!(y.shape == x.shape || y.shape.empty() || x.shape.empty())) return false;
      const std::size_t op = pick(4);
      const auto f = [a, b, op](const Values& v) {
        return op == 0   ? v[a] + v[b]
               : op == 1 ? v[a] - v[b]
               : op == 2 ? v[a] * v[b]
                         : v[a] / (v[b] * v[b] + 1.);
      };
      return push("binary " + std::to_string(op) + t.of + " %" + std::to_string(b),
                  {x.shape.empty() ? y.shape : x.shape, x.varying | y.varying}, f, f);
    }
  }
}

bool RandomSmoothBody::try_collective(const Tried& t, std::size_t kind) {
  const Known& x = t.x;
  const std::size_t a = t.a, rank = x.shape.size();
  const unsigned over = t.over;
  const Axes named = t.named;
  const std::int64_t all = t.all;
  const Known one{x.shape, x.varying & ~over}, each{x.shape, x.varying | over};
  switch (kind) {
    case 0:
      return push(
          "times rank" + t.of, each,
          [a, named](const Values& v) { return v[a] * (astype(axis_index(named), f64) + .5); },
          [a](const Values& v) { return v[a] * .5; });
    case 1:
    case 2: {
      const Groups g = random_groups(all);
      const bool average = coin();
      return push_group(
          t, std::string(average ? "pmean" : "psum") + (g.empty() ? "" : " in groups"),
          g.empty() ? one : each,
          [named, g, average](const Array& v) {
            return average ? pmean(v, named, {.axis_index_groups = g})
                           : psum(tanh(v), named, {.axis_index_groups = g});
          },
          [average](const Array& v) { return average ? v : tanh(v); });
    }
    case 3: {
      const bool most = coin();
      return push_group(
          t, "extremum", one,
          [named, most](const Array& v) { return most ? pmax(v, named) : pmin(v, named); }, itself);
    }
    case 4:
    case 5: {
      if (rank == 0) return false;
      const Groups g = random_groups(all);
      const std::int64_t n = g.empty() ? all : all / 2;
      if (product(x.shape) * n > 1024) return false;
      const bool tiled = coin(), invariant = coin();
      const std::size_t d = pick(rank);
      Known r = invariant && g.empty() ? one : each;
      if (tiled) {
        r.shape[d] *= n;
      } else {
        r.shape.insert(r.shape.begin() + static_cast<std::ptrdiff_t>(d), n);
      }
      const int dim = static_cast<int>(d);
      const AllGatherOptions options{.axis = dim, .tiled = tiled, .axis_index_groups = g};
      return push_group(
          t, std::string("all_gather") + (invariant ? "_invariant" : ""), r,
          [named, options, invariant](const Array& v) {
            return invariant ? all_gather_invariant(v, named, options)
                             : all_gather(v, named, options);
          },
          [dim, tiled](const Array& v) { return tiled ? v : expand_dims(v, dim); });
    }
    case 6: {
      if (rank == 0) return false;
      const std::size_t d = pick(rank);
      const bool tiled = coin();
      if (tiled ? x.shape[d] % all != 0 : x.shape[d] != all) return false;
      const int dim = static_cast<int>(d);
      const bool whole = !(x.varying & over) && coin();
      return push_group(
          t, whole ? "pscatter" : "psum_scatter",
          tiled ? with_extent(each, d, x.shape[d] / all) : without_dim(each, d),
          [named, dim, tiled, whole](const Array& v) {
            return whole ? pscatter(v, named, {.scatter_dimension = dim, .tiled = tiled})
                         : psum_scatter(v, named, {.scatter_dimension = dim, .tiled = tiled});
          },
          [dim, tiled](const Array& v) { return tiled ? v : squeeze(v, dim); });
    }
    case 7: {
      if (rank == 0) return false;
      const std::size_t s = pick(rank), c = pick(rank);
      const bool tiled = coin();
      if (tiled ? x.shape[s] % all != 0 : x.shape[s] != all) return false;
      Known r = tiled ? with_extent(each, s, x.shape[s] / all) : without_dim(each, s);
      if (tiled) {
        r.shape[c] *= all;
      } else {
        r.shape.insert(r.shape.begin() + static_cast<std::ptrdiff_t>(c), all);
      }
      const int from = static_cast<int>(s), to = static_cast<int>(c);
      return push_group(
          t, std::string("all_to_all") + (tiled ? " tiled" : ""), r,
          [named, from, to, tiled](const Array& v) {
            return all_to_all(v, named, from, to, {.tiled = tiled});
          },
          [from, to, tiled](const Array& v) {
            return tiled ? v : expand_dims(squeeze(v, from), to);
          });
    }
    case 8: {
      const int source = static_cast<int>(pick(static_cast<std::size_t>(all)));
      return push_group(
          t, "broadcast_from", one,
          [named, source](const Array& v) { return broadcast_from(v, named, source); }, itself);
    }
    case 9:
      if (x.varying & over) return false;
      return push_group(
          t, "pbroadcast", each, [named](const Array& v) { return pbroadcast(v, named); }, itself);
    default: {
      const std::vector<int> to = shuffled(static_cast<int>(all));
      std::vector<std::pair<int, int>> perm;
      for (int k = 0; k < static_cast<int>(all); ++k)
        if (all == 1 || pick(4) != 0) perm.push_back({k, to[static_cast<std::size_t>(k)]});
      return push_group(
          t, "ppermute", each, [named, perm](const Array& v) { return ppermute(v, named, perm); },
          itself);
    }
  }
}

bool RandomSmoothBody::try_control_flow(const Tried& t, std::size_t kind) {
  const Known& x = t.x;
  const std::size_t a = t.a;
  const Axes named = t.named;
  switch (kind) {
    case 0: {  // a loop with a sum over devices in it, or without
      const bool sums = coin();
      return push_group(
          t, std::string("fori_loop") + (sums ? " of psum" : ""), x,
          [named, sums](const Array& v) {
            return fori_loop(
                0, 3,
                [&](Array, Array c) { return tanh(sums ? c + .1 * psum(c, named) : c * c + c); },
                v);
          },
          [sums](const Array& v) {
            Array c = v;
            for (int k = 0; k < 3; ++k) c = tanh(sums ? c + .1 * c : c * c + c);
            return c;
          });
    }
    case 1: {  // a scan over rows that closes over another value
      const std::size_t b = pick(known.size());
      const Known& y = known[b];
      if (x.shape.empty() || !y.shape.empty()) return false;
      const auto f = [a, b](const Values& v) {
        const Array scale = v[b];
        return scan(
                   [scale](Array c, Array row) {
                     const Array next = sin(c * scale) + row;
                     return std::pair{next, next * c};
                   },
                   zeros_like(v[a][0]), v[a])
            .second;
      };
      return push("scan" + t.of + " %" + std::to_string(b), {x.shape, x.varying | y.varying}, f, f);
    }
    case 2:
      return push_group(
          t, "jit", {x.shape, x.varying & ~t.over},
          [named](const Array& v) {
            return jit([named](Array u) { return psum(u * sin(u), named); })(v);
          },
          [](const Array& v) { return v * sin(v); });
    default: {
      // Branches close over other values; what decides may differ between devices.
      const std::size_t b = pick(known.size());
      const Known& y = known[b];
      if (y.shape != x.shape) return false;
      const bool alike = coin();
      std::vector<int> every(sizes().size());
      std::iota(every.begin(), every.end(), 0);
      const Axes all_axes = names(every);
      const auto branches = [a, b](const Array& decides, const Values& v) {
        const Array p = v[a], q = v[b];
        return cond(
            sum(decides) > 0., [p, q](Array r) { return r * sin(q) + p; },
            [q](Array r) { return q * q - r; }, p);
      };
      return push(
          std::string(alike ? "cond" : "varying cond") + t.of + " %" + std::to_string(b),
          {x.shape, x.varying | y.varying},
          [a, alike, all_axes, branches](const Values& v) {
            return branches(alike ? psum(v[a], all_axes) : v[a], v);
          },
          [a, branches](const Values& v) { return branches(v[a], v); });
    }
  }
}

}  // namespace shmap::test
