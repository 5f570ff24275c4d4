// Control flow in random programs, without transforms inside.
#include <numeric>
#include <utility>

#include "shmap/shmap.h"
#include "tests/support/random_smooth_body.h"

namespace shmap::test {

namespace {

using J = const Jet&;

Reals plus(const Reals& a, const Reals& b) {
  return combined(a, b, [](J p, J q) { return p + q; });
}

}  // namespace

bool RandomSmoothBody::try_control_flow(const Tried& t, std::size_t kind) {
  const Known& x = t.x;
  const std::size_t a = t.a;
  const Axes named = t.named;
  const bool in_body = !t.axes.empty() && where.meet;
  switch (kind) {
    case 0: {  // a loop with a sum over devices in it, or without
      const bool sums = coin() && in_body;
      return push(
          std::string("fori_loop") + (sums ? " of psum" : "") + t.of, x,
          [a, named, sums](const Values& v) {
            return fori_loop(
                0, 3,
                [&](Array, Array c) { return tanh(sums ? c + .1 * psum(c, named) : c * c + c); },
                v[a]);
          },
          [a, sums, mesh = host_mesh(), axes = t.axes](const RealValues& v) {
            RealBlocks c = v[a];
            for (int k = 0; k < 3; ++k) {
              const RealBlocks before = c;
              for (std::size_t d = 0; d < c.size(); ++d) {
                if (!sums) {
                  c[d] = map_reals(c[d], [](J p) { return tanh(p * p + p); });
                  continue;
                }
                Reals total = map_reals(c[d], [](J) { return Jet(); });
                for (const std::int64_t e : mesh.group(static_cast<std::int64_t>(d), axes))
                  total = plus(total, before[static_cast<std::size_t>(e)]);
                c[d] = combined(before[d], total, [](J p, J q) { return tanh(p + .1 * q); });
              }
            }
            return c;
          });
    }
    case 1: {  // a scan over rows that closes over another value
      const std::size_t b = pick(known.size());
      const Known& y = known[b];
      if (x.shape.empty() || !y.shape.empty()) return false;
      return push(
          "scan" + t.of + " %" + std::to_string(b), {x.shape, x.varying | y.varying},
          [a, b](const Values& v) {
            const Array scale = v[b];
            return scan(
                       [scale](Array c, Array row) {
                         const Array next = sin(c * scale) + row;
                         return std::pair{next, next * c};
                       },
                       zeros_like(v[a][0]), v[a])
                .second;
          },
          [a, b](const RealValues& v) {
            return each_device(
                [&](std::size_t d) {
                  const Reals& rows = v[a][d];
                  Reals c = map_reals(row_of(rows, 0, 0), [](J) { return Jet(); });
                  std::vector<Reals> ys;
                  for (std::int64_t k = 0; k < rows.shape[0]; ++k) {
                    const Reals next =
                        plus(combined(c, v[b][d], [](J p, J q) { return sin(p * q); }),
                             row_of(rows, 0, k));
                    ys.push_back(combined(next, c, [](J p, J q) { return p * q; }));
                    c = next;
                  }
                  return stacked(ys, 0);
                },
                v[a].size());
          });
    }
    case 2:
      if (!in_body) return false;
      return push_group(
          t, "jit", {x.shape, x.varying & ~t.over}, {},
          [named](const Array& v) {
            return jit([named](Array u) { return psum(u * sin(u), named); })(v);
          },
          [](const RealBlocks& blocks, std::int64_t) {
            Reals total = map_reals(blocks[0], [](J p) { return p * sin(p); });
            for (std::size_t k = 1; k < blocks.size(); ++k)
              total = plus(total, map_reals(blocks[k], [](J p) { return p * sin(p); }));
            return total;
          });
    default: {
      // Branches close over other values; the predicate may differ between devices.
      const std::size_t b = pick(known.size());
      const Known& y = known[b];
      if (y.shape != x.shape) return false;
      const bool alike = coin() && in_body;
      std::vector<int> every(sizes().size());
      std::iota(every.begin(), every.end(), 0);
      const Axes all_named = names(every);
      return push(
          std::string(alike ? "cond" : "varying cond") + t.of + " %" + std::to_string(b),
          {x.shape, x.varying | y.varying},
          [a, b, alike, all_named](const Values& v) {
            const Array p = v[a], q = v[b], decides = alike ? psum(v[a], all_named) : v[a];
            return cond(
                sum(decides) > 0., [p, q](Array r) { return r * sin(q) + p; },
                [q](Array r) { return q * q - r; }, p);
          },
          [a, b, alike](const RealValues& v) {
            double total = 0;
            for (const Reals& block : v[a]) total += sum_of(block).value();
            return each_device(
                [&](std::size_t d) {
                  const double decides = alike ? total : sum_of(v[a][d]).value();
                  return combined(v[a][d], v[b][d], [&](J p, J q) {
                    return decides > 0 ? p * sin(q) + p : q * q - p;
                  });
                },
                v[a].size());
          });
    }
  }
}

}  // namespace shmap::test
