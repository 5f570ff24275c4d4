// The collectives that random bodies are made of.
#include <algorithm>
#include <utility>

#include "shmap/shmap.h"
#include "tests/support/random_smooth_body.h"

namespace shmap::test {

namespace {

using J = const Jet&;

Reals total_of(const RealBlocks& blocks) {
  Reals total = blocks[0];
  for (std::size_t k = 1; k < blocks.size(); ++k)
    total = combined(total, blocks[k], [](J p, J q) { return p + q; });
  return total;
}

// Piece `rank` of a dim that is cut into one piece for each rank. Not tiled: the dim's extent is
// the number of ranks, and a piece does not have the dim.
Reals piece_of(const Reals& x, std::size_t dim, std::int64_t rank, std::int64_t ranks, bool tiled) {
  if (!tiled) return row_of(x, dim, rank);
  Extents start(x.shape.size()), extents = x.shape;
  extents[dim] /= ranks;
  start[dim] = rank * extents[dim];
  return sliced(x, start, extents);
}

Reals joined(const std::vector<Reals>& pieces, std::size_t dim, bool tiled) {
  return tiled ? concatenated(pieces, dim) : stacked(pieces, dim);
}

}  // namespace

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
          [a, mesh = host_mesh(), axes = t.axes](const RealValues& v) {
            return each_device(
                [&](std::size_t d) {
                  const Jet factor =
                      static_cast<double>(mesh.rank(static_cast<std::int64_t>(d), axes)) + .5;
                  return map_reals(v[a][d], [&](J p) { return p * factor; });
                },
                v[a].size());
          });
    case 1:
    case 2: {
      const Groups g = random_groups(all);
      const bool average = coin();
      return push_group(
          t, std::string(average ? "pmean" : "psum") + (g.empty() ? "" : " in groups"),
          g.empty() ? one : each, g,
          [named, g, average](const Array& v) {
            return average ? pmean(v, named, {.axis_index_groups = g})
                           : psum(tanh(v), named, {.axis_index_groups = g});
          },
          [average](RealBlocks blocks, std::int64_t) {
            const auto n = static_cast<double>(blocks.size());
            if (average) return map_reals(total_of(blocks), [n](J p) { return p / n; });
            for (Reals& b : blocks) b = map_reals(b, [](J p) { return tanh(p); });
            return total_of(blocks);
          });
    }
    case 3: {
      const bool most = coin();
      return push_group(
          t, "extremum", one, {},
          [named, most](const Array& v) { return most ? pmax(v, named) : pmin(v, named); },
          [most](const RealBlocks& blocks, std::int64_t) {
            // Equal values share the derivative.
            Reals best = blocks[0];
            for (std::size_t i = 0; i < best.values.size(); ++i) {
              double value = best.values[i].value();
              for (const Reals& b : blocks)
                value = most ? std::max(value, b.values[i].value())
                             : std::min(value, b.values[i].value());
              Jet total;
              double count = 0;
              for (const Reals& b : blocks) {
                if (b.values[i].value() != value) continue;
                total = total + b.values[i];
                ++count;
              }
              best.values[i] = total / count;
            }
            return best;
          });
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
      const AllGatherOptions options{
          .axis = static_cast<int>(d), .tiled = tiled, .axis_index_groups = g};
      return push_group(
          t, std::string("all_gather") + (invariant ? "_invariant" : ""), r, g,
          [named, options, invariant](const Array& v) {
            return invariant ? all_gather_invariant(v, named, options)
                             : all_gather(v, named, options);
          },
          [d, tiled](const RealBlocks& blocks, std::int64_t) { return joined(blocks, d, tiled); });
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
          tiled ? with_extent(each, d, x.shape[d] / all) : without_dim(each, d), {},
          [named, dim, tiled, whole](const Array& v) {
            return whole ? pscatter(v, named, {.scatter_dimension = dim, .tiled = tiled})
                         : psum_scatter(v, named, {.scatter_dimension = dim, .tiled = tiled});
          },
          [d, tiled, whole](const RealBlocks& blocks, std::int64_t mine) {
            return piece_of(whole ? blocks[static_cast<std::size_t>(mine)] : total_of(blocks), d,
                            mine, static_cast<std::int64_t>(blocks.size()), tiled);
          });
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
          t, std::string("all_to_all") + (tiled ? " tiled" : ""), r, {},
          [named, from, to, tiled](const Array& v) {
            return all_to_all(v, named, from, to, {.tiled = tiled});
          },
          [s, c, tiled](const RealBlocks& blocks, std::int64_t mine) {
            std::vector<Reals> pieces;
            for (const Reals& b : blocks)
              pieces.push_back(
                  piece_of(b, s, mine, static_cast<std::int64_t>(blocks.size()), tiled));
            return joined(pieces, c, tiled);
          });
    }
    case 8: {
      const auto source = pick(static_cast<std::size_t>(all));
      return push_group(
          t, "broadcast_from", one, {},
          [named, source](const Array& v) {
            return broadcast_from(v, named, static_cast<int>(source));
          },
          [source](const RealBlocks& blocks, std::int64_t) { return blocks[source]; });
    }
    case 9:
      if (x.varying & over) return false;
      return push_group(
          t, "pbroadcast", each, {}, [named](const Array& v) { return pbroadcast(v, named); },
          [](const RealBlocks& blocks, std::int64_t mine) {
            return blocks[static_cast<std::size_t>(mine)];
          });
    default: {
      const std::vector<int> to = shuffled(static_cast<int>(all));
      std::vector<std::pair<int, int>> perm;
      for (int k = 0; k < static_cast<int>(all); ++k)
        if (all == 1 || pick(4) != 0) perm.push_back({k, to[static_cast<std::size_t>(k)]});
      return push_group(
          t, "ppermute", each, {},
          [named, perm](const Array& v) { return ppermute(v, named, perm); },
          [perm](const RealBlocks& blocks, std::int64_t mine) {
            for (const auto& [from, into] : perm)
              if (into == mine) return blocks[static_cast<std::size_t>(from)];
            return map_reals(blocks[0], [](J) { return Jet(); });
          });
    }
  }
}

}  // namespace shmap::test
