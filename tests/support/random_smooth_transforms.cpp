// Transforms of smaller random programs.
#include <cmath>
#include <numeric>
#include <utility>

#include "shmap/shmap.h"
#include "tests/support/random_smooth_body.h"

namespace shmap::test {

namespace {

using J = const Jet&;

// The rule gives twice the derivative of a sine, or none, which no other code gives: so a test
// shows whether the user's rule was used.
double claimed_sine(int order, double x) {
  const double quarter = 1.57079632679489661923;
  return (order == 0 ? 1 : 2) * std::sin(x + order * quarter);
}
double stepped_sine(int order, double x) { return order == 0 ? std::sin(x) : 0; }

// The rules give the function itself as its value: a derivative of a derivative asks them again.
Array sine_by_jvp(const Array& x, bool zero) {
  return custom_jvp(
      [](Array u) { return sin(u); },
      [zero](std::tuple<Array> primals, std::tuple<Array> tangents) {
        const auto& [u] = primals;
        const auto& [u_dot] = tangents;
        return std::pair{sine_by_jvp(u, zero), zero ? zeros_like(u) : 2. * cos(u) * u_dot};
      })(x);
}
Array sine_by_vjp(const Array& x, bool zero) {
  return custom_vjp([](Array u) { return sin(u); },
                    [zero](Array u) {
                      return std::pair{sine_by_vjp(u, zero), u};
                    },
                    [zero](Array u, Array y_bar) {
                      return std::tuple{zero ? zeros_like(u) : 2. * cos(u) * y_bar};
                    })(x);
}

// next = tanh(c + mean(made)): of c's shape, whatever the program made.
Array absorbed(const Array& c, const Array& made) { return tanh(c + mean(made)); }
Reals absorbed(const Reals& c, const Reals& made) {
  const Jet m = mean_of(made);
  return map_reals(c, [&](J p) { return tanh(p + m); });
}
RealBlocks absorbed(const RealBlocks& c, const RealBlocks& made) {
  return each_device([&](std::size_t d) { return absorbed(c[d], made[d]); }, c.size());
}

}  // namespace

// Derivatives of a program with respect to a value: its gradient, or along a direction.
bool RandomSmoothBody::try_derivative(const Tried& t, bool reverse) {
  if (where.derivatives == 0 || (reverse && !where.checked)) return false;
  // A gradient may sum over devices, so that all of them must run it.
  if (reverse && !where.meet && !sizes().empty()) return false;
  const Known& x = t.x;
  const std::size_t a = t.a, b = pick(known.size());
  Where inside = where;
  --inside.derivatives;
  (reverse ? inside.reverse : inside.forward) = true;
  if (reverse && product(x.shape) > 6) return false;
  const std::string of = t.of + " %" + std::to_string(b);
  const SmoothProgram p = inner({x, known[b]}, inside);
  if (!reverse) {
    return push(
        "jvp" + of + p.text(), p.result,
        [a, b, p](const Values& v) {
          const Array other = v[b];
          return jvp(
                     [&](Array u) {
                       return p.mapped({u, other});
                     },
                     std::tuple{v[a]}, std::tuple{cos(v[a])})
              .second;
        },
        [a, b, p](const RealValues& v) {
          const DerivativeLevel level;
          RealBlocks u = v[a];
          for (Reals& block : u)
            block = map_reals(block, [&](J e) { return Jet::along(e, level.number(), cos(e)); });
          RealBlocks y = p.plain({u, v[b]});
          for (Reals& block : y)
            block = map_reals(block, [&](J e) { return e.derivative(level.number()); });
          return y;
        });
  }
  // Blocks that are equal by their types are one value: moved together, and counted once.
  const auto first_of = [mesh = host_mesh()](std::size_t d, unsigned varying) {
    Extents at = mesh.coordinates(static_cast<std::int64_t>(d));
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if (!(varying >> axis & 1u)) at[axis] = 0;
    return static_cast<std::size_t>(flat_index(at, mesh.sizes));
  };
  return push(
      "grad" + of + p.text(), x,
      [a, b, p](const Values& v) {
        const Array other = v[b];
        return grad([&](Array u) { return sum(p.mapped({u, other})); })(v[a]);
      },
      [a, b, p, first_of, of_x = x.varying, of_y = p.result.varying](const RealValues& v) {
        const DerivativeLevel level;
        RealBlocks out = v[a];
        for (std::size_t copy = 0; copy < out.size(); ++copy) {
          if (first_of(copy, of_x) != copy) continue;
          for (std::size_t e = 0; e < out[copy].values.size(); ++e) {
            RealBlocks u = v[a];
            for (std::size_t d = 0; d < u.size(); ++d)
              if (first_of(d, of_x) == copy)
                u[d].values[e] = Jet::along(u[d].values[e], level.number(), 1.);
            const RealBlocks y = p.plain({u, v[b]});
            Jet slope;
            for (std::size_t d = 0; d < y.size(); ++d)
              if (first_of(d, of_y) == d) slope = slope + sum_of(y[d]).derivative(level.number());
            for (std::size_t d = 0; d < u.size(); ++d)
              if (first_of(d, of_x) == copy) out[d].values[e] = slope;
          }
        }
        return out;
      });
}

// A scan over rows, or a fori_loop whose body reads its index; each trip runs a program.
bool RandomSmoothBody::try_loop(const Tried& t, bool rows) {
  const Known& x = t.x;
  const std::size_t a = t.a, b = pick(known.size());
  if (rows && (x.shape.empty() || x.shape[0] > 4)) return false;
  // The carry varies as much as it ever will, so that the program inside is of one type.
  const Known start = known[b];
  const Known carry{start.shape, all_axes()};
  if (rows && product(carry.shape) * x.shape[0] > 64) return false;
  std::vector<int> every(sizes().size());
  std::iota(every.begin(), every.end(), 0);
  const auto begin = [b, every](const Values& v) {
    return every.empty() ? v[b] : v[b] + 0. * astype(axis_index(names(every)), f64);
  };
  const std::string of = t.of + " %" + std::to_string(b);
  if (!rows) {
    const SmoothProgram p = inner({carry, {{}, 0}, x}, where);
    return push(
        "fori_loop with its index" + of + p.text(), carry,
        [a, p, begin](const Values& v) {
          const Array other = v[a];
          return fori_loop(
              1, 4,
              [&](Array i, Array c) {
                return absorbed(c, p.mapped({c, astype(i, f64) * .25, other}));
              },
              begin(v));
        },
        [a, b, p](const RealValues& v) {
          RealBlocks c = v[b];
          for (int i = 1; i < 4; ++i) {
            const RealBlocks index(c.size(), Reals{{}, {Jet(i * .25)}});
            c = absorbed(c, p.plain({c, index, v[a]}));
          }
          return c;
        });
  }
  const bool reverse = coin(), last = coin();
  const SmoothProgram p = inner({carry, without_dim(x, 0)}, where);
  Known result = carry;
  if (!last) result.shape.insert(result.shape.begin(), x.shape[0]);
  return push(
      "scan" + of + p.text(), result,
      [a, p, begin, reverse, last](const Values& v) {
        const auto [c, ys] = scan(
            [&](Array carried, Array row) {
              const Array next = absorbed(carried, p.mapped({carried, row}));
              return std::pair{next, next * carried};
            },
            begin(v), v[a], {.reverse = reverse});
        return last ? c : ys;
      },
      [a, b, p, reverse, last](const RealValues& v) {
        RealBlocks c = v[b];
        const std::int64_t n = v[a][0].shape[0];
        std::vector<std::vector<Reals>> ys(c.size(),
                                           std::vector<Reals>(static_cast<std::size_t>(n)));
        for (std::int64_t k = 0; k < n; ++k) {
          const std::int64_t at = reverse ? n - 1 - k : k;
          const RealBlocks row =
              each_device([&](std::size_t d) { return row_of(v[a][d], 0, at); }, c.size());
          const RealBlocks next = absorbed(c, p.plain({c, row}));
          for (std::size_t d = 0; d < c.size(); ++d)
            ys[d][static_cast<std::size_t>(at)] =
                combined(next[d], c[d], [](J y, J z) { return y * z; });
          c = next;
        }
        if (last) return c;
        return each_device([&](std::size_t d) { return stacked(ys[d], 0); }, c.size());
      });
}

// A mapped function of two values, over a mesh of its own.
bool RandomSmoothBody::try_shard_map(const Tried& t) {
  if (!sizes().empty()) return false;
  static const std::vector<Extents> meshes =
      in_all_processes({{2}, {4}, {8}, {2, 2}, {2, 4}, {4, 2}, {1, 2}});
  const std::size_t a = t.a, b = pick(known.size());
  const Known x = t.x, y = known[b];
  // All bodies of a program share one mesh, since arrays of several meshes do not meet.
  if (of_bodies_.empty()) of_bodies_ = meshes[pick(meshes.size())];
  set_sizes(of_bodies_);
  const HostMesh host = host_mesh();
  const Mesh devices = mesh();
  // Axes go on dims whose extents they divide.
  std::vector<SpecDims> in_dims;
  std::vector<Known> blocks;
  for (const Known& k : {x, y}) {
    SpecDims spec(k.shape.size());
    Known block{k.shape, 0};
    for (int axis : shuffled(static_cast<int>(host.sizes.size()))) {
      if (k.shape.empty() || pick(4) == 0) continue;
      const std::size_t d = pick(k.shape.size());
      const std::int64_t parts = host.sizes[static_cast<std::size_t>(axis)];
      if (block.shape[d] % parts != 0) continue;
      block.shape[d] /= parts;
      block.varying |= 1u << axis;
      spec[d].push_back(axis);
    }
    in_dims.push_back(spec);
    blocks.push_back(block);
  }
  Where inside = where;
  inside.checked = pick(4) != 0;
  inside.meet = true;
  const SmoothProgram p = inner(blocks, inside);
  std::vector<int> every(host.sizes.size());
  std::iota(every.begin(), every.end(), 0);
  // The result of an unchecked body is equal on all devices, whatever its type says.
  const Axes gathered_over = names(every);
  const bool flat = p.result.shape.empty() || !inside.checked;
  Known result{flat ? Extents{product(p.result.shape)} : p.result.shape, p.result.varying};
  const SpecDims out_dims =
      inside.checked ? random_spec(result.shape.size(), result.varying) : SpecDims(1);
  const bool fits = product(result.shape) * (inside.checked ? 1 : host.devices()) <= 64;
  const PartitionSpec in_x = to_spec(in_dims[0]), in_y = to_spec(in_dims[1]),
                      out = to_spec(out_dims);
  set_sizes({});
  if (!fits) return false;
  Extents whole = result.shape;
  for (std::size_t d = 0; d < whole.size(); ++d) whole[d] *= host.parts(out_dims, d);
  const bool checked = inside.checked;
  if (!checked) whole[0] *= host.devices();
  return push(
      std::string(checked ? "shard_map " : "unchecked shard_map ") + to_string(devices) + " " +
          to_string(in_x) + " " + to_string(in_y) + " -> " + to_string(out) + t.of + " %" +
          std::to_string(b) + p.text(),
      {whole, 0},
      [=](const Values& v) {
        const auto body = [&](Array u, Array w) {
          Array r = p.mapped({u, w});
          if (flat) r = reshape(r, {-1});
          return checked ? r : all_gather(r, gathered_over, {.tiled = true});
        };
        return shard_map(body, devices, {in_x, in_y}, out, {.check_vma = checked})(v[a], v[b]);
      },
      [=](const RealValues& v) {
        RealBlocks r = p.plain(
            {split_by_spec(v[a][0], host, in_dims[0]), split_by_spec(v[b][0], host, in_dims[1])});
        if (flat)
          for (Reals& block : r) block = reshaped(block, {block.size()});
        return RealBlocks{checked ? join_by_spec(r, host, out_dims) : concatenated(r, 0)};
      });
}

bool RandomSmoothBody::try_transform(const Tried& t, std::size_t kind) {
  const Known& x = t.x;
  const std::size_t a = t.a, b = pick(known.size());
  const std::string of = t.of + " %" + std::to_string(b);
  switch (kind) {
    case 0:
    case 1: {
      const bool again = kind == 1;  // closes over the other value
      const SmoothProgram p = inner({x, known[b]}, where);
      return push((again ? "checkpoint" : "jit") + of + p.text(), p.result,
                  [a, b, p, again](const Values& v) {
                    const Array other = v[b];
                    if (again)
                      return checkpoint([&](Array u) { return p.mapped({u, other}); })(v[a]);
                    return jit([&](Array u, Array w) { return p.mapped({u, w}); })(v[a], other);
                  },
                  [a, b, p](const RealValues& v) {
                    return p.plain({v[a], v[b]});
                  });
    }
    case 2:
    case 3: {
      if (x.shape.empty()) return false;
      const std::size_t d = pick(x.shape.size());
      const std::int64_t n = x.shape[d];
      if (n > 4) return false;
      const SmoothProgram p = inner({without_dim(x, d), known[b]}, where);
      if (product(p.result.shape) * n > 64) return false;
      Known result = p.result;
      result.shape.insert(result.shape.begin(), n);
      return push(
          "vmap" + of + p.text(), result,
          [a, b, p, d](const Values& v) {
            const Array other = v[b];
            return vmap([&](Array u) { return p.mapped({u, other}); }, static_cast<int>(d))(v[a]);
          },
          [a, b, p, d, n](const RealValues& v) {
            std::vector<std::vector<Reals>> rows(v[a].size());
            for (std::int64_t k = 0; k < n; ++k) {
              const RealBlocks u =
                  each_device([&](std::size_t e) { return row_of(v[a][e], d, k); }, v[a].size());
              RealBlocks y = p.plain({u, v[b]});
              for (std::size_t e = 0; e < y.size(); ++e) rows[e].push_back(std::move(y[e]));
            }
            return each_device([&](std::size_t e) { return stacked(rows[e], 0); }, rows.size());
          });
    }
    case 4:
    case 5:
      return try_derivative(t, kind == 4);
    case 6: {
      const bool zero = pick(3) == 0;
      return push_local(
          t, zero ? "custom_jvp of no tangent" : "custom_jvp", x,
          [zero](const Array& v) { return sine_by_jvp(v, zero); },
          [zero](const Reals& v) {
            return map_reals(v, [&](J e) { return e.apply(zero ? stepped_sine : claimed_sine); });
          });
    }
    case 7: {
      if (where.forward) return false;
      const bool zero = pick(3) == 0;
      return push_local(
          t, zero ? "custom_vjp of no cotangent" : "custom_vjp", x,
          [zero](const Array& v) { return sine_by_vjp(v, zero); },
          [zero](const Reals& v) {
            return map_reals(v, [&](J e) { return e.apply(zero ? stepped_sine : claimed_sine); });
          });
    }
    case 8:
    case 9: {
      // If the predicate varies, devices do not meet in a branch.
      const bool alike = !sizes().empty() && where.meet && coin();
      Where inside = where;
      inside.meet = alike;
      std::vector<int> every(sizes().size());
      std::iota(every.begin(), every.end(), 0);
      const Axes all_named = names(every);
      const SmoothProgram p = inner({x, known[b]}, inside), q = inner({x, known[b]}, inside);
      return push((alike ? "cond" : "cond on a block") + of + p.text() + "\nelse" + q.text(),
                  {x.shape, x.varying | p.result.varying | q.result.varying},
                  [a, b, p, q, alike, all_named](const Values& v) {
                    const Array other = v[b], decides = alike ? psum(v[a], all_named) : v[a];
                    return cond(
                        sum(decides) > 0.,
                        [&](Array u) {
                          return absorbed(u, p.mapped({u, other}));
                        },
                        [&](Array u) {
                          return absorbed(u, q.mapped({u, other}));
                        },
                        v[a]);
                  },
                  [a, b, p, q, alike](const RealValues& v) {
                    double total = 0;
                    for (const Reals& block : v[a]) total += sum_of(block).value();
                    const RealBlocks on_true = absorbed(v[a], p.plain({v[a], v[b]}));
                    const RealBlocks on_false = absorbed(v[a], q.plain({v[a], v[b]}));
                    return each_device(
                        [&](std::size_t d) {
                          const double decides = alike ? total : sum_of(v[a][d]).value();
                          return decides > 0 ? on_true[d] : on_false[d];
                        },
                        v[a].size());
                  });
    }
    case 10:
    case 11:
      return try_loop(t, kind == 10);
    case 12:
      if (where.reverse) return false;
      return push_local(
          t, "while_loop", x,
          [](const Array& v) {
            return tanh(while_loop([](Array c) { return sum(abs(c)) < 3.; },
                                   [](Array c) { return c * 1.5 + .1 * sin(c); }, v + 1.1));
          },
          [](const Reals& v) {
            Reals c = map_reals(v, [](J p) { return p + 1.1; });
            const auto size = [&] {
              double total = 0;
              for (J p : c.values) total += std::abs(p.value());
              return total;
            };
            while (size() < 3) c = map_reals(c, [](J p) { return p * 1.5 + .1 * sin(p); });
            return map_reals(c, [](J p) { return tanh(p); });
          });
    default:
      return try_shard_map(t);
  }
}

}  // namespace shmap::test
