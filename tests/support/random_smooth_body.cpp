#include "tests/support/random_smooth_body.h"

#include <algorithm>
#include <utility>

#include "shmap/shmap.h"

namespace shmap::test {

namespace {

// The number of cases of each kind of instruction; a likelier instruction has several cases.
constexpr std::size_t kLocal = 12, kControlFlow = 5, kCollective = 13, kTransform = 16;

thread_local int derivative_levels = 0;

}  // namespace

DerivativeLevel::DerivativeLevel() : number_(derivative_levels++) {}
DerivativeLevel::~DerivativeLevel() { --derivative_levels; }

Array SmoothProgram::mapped(Values values) const {
  for (const SmoothInstruction& i : steps) values.push_back(i.mapped(values));
  return values.back();
}

RealBlocks SmoothProgram::plain(RealValues values) const {
  for (const SmoothInstruction& i : steps) values.push_back(i.plain(values));
  return values.back();
}

std::string SmoothProgram::text() const {
  std::string out;
  for (const SmoothInstruction& i : steps) {
    out += "\n  ";
    for (char c : i.text) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  }
  return out;
}

// ---- plain code

Known with_extent(Known x, std::size_t dim, std::int64_t extent) {
  x.shape[dim] = extent;
  return x;
}

Known without_dim(Known x, std::size_t dim) {
  x.shape.erase(x.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  return x;
}

Reals to_reals(const Array& x) {
  const std::vector<double> values = x.to_vector<double>();
  Reals out;
  for (std::int64_t e : x.shape()) out.shape.push_back(e);
  out.values.assign(values.begin(), values.end());
  return out;
}

Reals map_reals(const Reals& x, const std::function<Jet(const Jet&)>& f) {
  Reals out = x;
  for (Jet& v : out.values) v = f(v);
  return out;
}

Jet sum_of(const Reals& x) {
  Jet total;
  for (const Jet& v : x.values) total = total + v;
  return total;
}

Jet mean_of(const Reals& x) { return sum_of(x) / Jet(static_cast<double>(x.size())); }

Reals reshaped(Reals x, Extents shape) {
  x.shape = std::move(shape);
  return x;
}

Reals transposed(const Reals& x) {
  return gathered(x, {x.shape.rbegin(), x.shape.rend()}, [&](const Extents& index) {
    return flat_index({index.rbegin(), index.rend()}, x.shape);
  });
}

Reals row_of(const Reals& x, std::size_t dim, std::int64_t k) {
  Extents start(x.shape.size()), extents = x.shape, rest = x.shape;
  start[dim] = k;
  extents[dim] = 1;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(dim));
  return reshaped(sliced(x, start, extents), rest);
}

Reals stacked(const std::vector<Reals>& rows, std::size_t dim) {
  std::vector<Reals> wide = rows;
  for (Reals& r : wide) r.shape.insert(r.shape.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  return concatenated(wide, dim);
}

RealBlocks each_device(const std::function<Reals(std::size_t device)>& f, std::size_t devices) {
  RealBlocks out;
  for (std::size_t d = 0; d < devices; ++d) out.push_back(f(d));
  return out;
}

// ---- choosing

RandomSmoothBody::Shapes RandomSmoothBody::random_shapes(const SpecDims& spec) {
  Shapes shapes;
  for (const auto& axes : spec) {
    shapes.block.push_back(coin() ? static_cast<std::int64_t>(1 + pick(3)) : coin() ? 4 : 8);
    shapes.whole.push_back(shapes.block.back() * ranks(axes));
  }
  return shapes;
}

Array RandomSmoothBody::random_array(const Extents& shape) {
  std::vector<double> values;
  for (std::int64_t k = 0; k < product(shape); ++k) values.push_back(number());
  return array<double>(values, Shape(shape));
}

bool RandomSmoothBody::push(std::string text, Known result, OfAll mapped, RealOfAll plain) {
  known.push_back(std::move(result));
  program.push_back({std::move(text), std::move(mapped), std::move(plain)});
  return true;
}

// Works on each block alone.
bool RandomSmoothBody::push_local(const Tried& t, const std::string& text, Known result, OfOne f,
                                  RealOfOne plain) {
  return push(
      text + t.of, std::move(result), [a = t.a, f](const Values& v) { return f(v[a]); },
      [a = t.a, plain](const RealValues& v) {
        return each_device([&](std::size_t d) { return plain(v[a][d]); }, v[a].size());
      });
}

bool RandomSmoothBody::push_group(const Tried& t, const std::string& text, Known result,
                                  const Groups& groups, OfOne mapped, RealOfGroup plain) {
  const auto over_groups = [a = t.a, axes = t.axes, mesh = host_mesh(), groups,
                            plain](const RealValues& v) {
    return each_device(
        [&](std::size_t d) {
          const auto device = static_cast<std::int64_t>(d);
          const std::vector<std::int64_t> ranks = mesh.group(device, axes);
          const std::int64_t mine = mesh.rank(device, axes);
          std::vector<int> members;
          for (std::size_t r = 0; r < ranks.size(); ++r) members.push_back(static_cast<int>(r));
          for (const std::vector<int>& g : groups)
            if (std::find(g.begin(), g.end(), static_cast<int>(mine)) != g.end()) members = g;
          RealBlocks blocks;
          std::int64_t at = 0;
          for (std::size_t k = 0; k < members.size(); ++k) {
            if (members[k] == mine) at = static_cast<std::int64_t>(k);
            blocks.push_back(
                v[a][static_cast<std::size_t>(ranks[static_cast<std::size_t>(members[k])])]);
          }
          return plain(blocks, at);
        },
        v[a].size());
  };
  return push(
      text + t.of, std::move(result), [a = t.a, mapped](const Values& v) { return mapped(v[a]); },
      over_groups);
}

Groups RandomSmoothBody::random_groups(std::int64_t n) {
  if (n % 2 != 0 || pick(4) != 0) return {};
  const std::vector<int> ranks = shuffled(static_cast<int>(n));
  const auto half = ranks.begin() + static_cast<std::ptrdiff_t>(n / 2);
  return {{ranks.begin(), half}, {half, ranks.end()}};
}

void RandomSmoothBody::step() {
  const std::size_t transforms = where.transforms > 0 ? kTransform : 0;
  for (int attempt = 0; attempt < 50; ++attempt) {
    Tried t;
    t.a = pick(known.size());
    t.x = known[t.a];
    t.axes = random_axes();
    t.over = mask(t.axes);
    t.named = names(t.axes);
    t.all = ranks(t.axes);
    t.of = " %" + std::to_string(t.a);
    std::size_t kind = pick(kLocal + kControlFlow + kCollective + transforms);
    if (kind < kLocal) {
      if (try_local(t, kind)) return;
      continue;
    }
    kind -= kLocal;
    if (kind < kControlFlow) {
      if (try_control_flow(t, kind)) return;
      continue;
    }
    kind -= kControlFlow;
    if (kind < kCollective) {
      if (!t.axes.empty() && where.meet && try_collective(t, kind)) return;
      continue;
    }
    if (try_transform(t, kind - kCollective)) return;
  }
}

SmoothProgram RandomSmoothBody::inner(std::vector<Known> arguments, Where inside) {
  inside.transforms = where.transforms - 1;
  const Where here = std::exchange(where, inside);
  std::vector<Known> values = std::exchange(known, std::move(arguments));
  std::vector<SmoothInstruction> instructions = std::exchange(program, {});
  const std::size_t length = 1 + pick(3);
  for (std::size_t k = 0; k < length; ++k) step();
  SmoothProgram made{std::move(program), known.back()};
  where = here;
  known = std::move(values);
  program = std::move(instructions);
  return made;
}

bool RandomSmoothBody::try_local(const Tried& t, std::size_t kind) {
  const Known& x = t.x;
  const std::size_t a = t.a, rank = x.shape.size();
  using J = const Jet&;
  const auto of_each = [](std::function<Jet(J)> f) {
    return [f](const Reals& v) { return map_reals(v, f); };
  };
  switch (kind) {
    case 0:
      return push_local(
          t, "sin", x, [](const Array& v) { return sin(v); }, of_each([](J v) { return sin(v); }));
    case 1:
      return push_local(
          t, "tanh", x, [](const Array& v) { return tanh(v); },
          of_each([](J v) { return tanh(v); }));
    case 2:
      return push_local(
          t, "exp", x, [](const Array& v) { return exp(tanh(v)); },
          of_each([](J v) { return exp(tanh(v)); }));
    case 3:
      return push_local(
          t, "square", x, [](const Array& v) { return v * v - 2. * v; },
          of_each([](J v) { return v * v - 2. * v; }));
    case 4: {
      if (rank == 0) return false;
      const std::size_t d = pick(rank);
      const bool keep = coin();
      return push_local(
          t, "mean", keep ? with_extent(x, d, 1) : without_dim(x, d),
          [d, keep](const Array& v) { return mean(v, static_cast<int>(d), keep); },
          [d, keep](const Reals& v) {
            const std::int64_t n = v.shape[d];
            Reals total = row_of(v, d, 0);
            for (std::int64_t k = 1; k < n; ++k)
              total = combined(total, row_of(v, d, k), [](J p, J q) { return p + q; });
            total = map_reals(total, [n](J p) { return p / static_cast<double>(n); });
            return keep ? stacked({total}, d) : total;
          });
    }
    case 5:
      if (rank < 2) return false;
      return push_local(
          t, "transpose", {{x.shape.rbegin(), x.shape.rend()}, x.varying},
          [](const Array& v) { return transpose(v); }, transposed);
    case 6:
      return push_local(
          t, "reshape", {{product(x.shape)}, x.varying},
          [](const Array& v) { return reshape(v, {-1}); },
          [](const Reals& v) { return reshaped(v, {v.size()}); });
    case 7: {
      if (rank != 2 || x.shape[0] > 16 || x.shape[1] > 16) return false;
      const std::int64_t rows = x.shape[0], columns = x.shape[1];
      return push_local(
          t, "x @ sin(x.T)", {{rows, rows}, x.varying},
          [](const Array& v) { return tanh(matmul(v, sin(transpose(v)))); },
          [rows, columns](const Reals& v) {
            return filled<Jet>({rows, rows}, [&](std::int64_t i) {
              Jet total;
              for (std::int64_t k = 0; k < columns; ++k) {
                const auto at = [&](std::int64_t r) {
                  return v.values[static_cast<std::size_t>(r * columns + k)];
                };
                total = total + at(i / rows) * sin(at(i % rows));
              }
              return tanh(total);
            });
          });
    }
    case 8: {
      if (rank == 0 || product(x.shape) > 128) return false;
      const std::size_t d = pick(rank);
      return push_local(
          t, "concatenate", with_extent(x, d, 2 * x.shape[d]),
          [d](const Array& v) {
            return concatenate({v, cos(v)}, static_cast<int>(d));
          },
          [d](const Reals& v) {
            return concatenated<Jet>({v, map_reals(v, [](J p) { return cos(p); })}, d);
          });
    }
    default: {
      const std::size_t b = pick(known.size());
      const Known& y = known[b];
      if (!(y.shape == x.shape || y.shape.empty() || x.shape.empty())) return false;
      const std::size_t op = pick(4);
      const auto of = [op](const auto& p, const auto& q) {
        return op == 0 ? p + q : op == 1 ? p - q : op == 2 ? p * q : p / (q * q + 1.);
      };
      return push(
          "binary " + std::to_string(op) + t.of + " %" + std::to_string(b),
          {x.shape.empty() ? y.shape : x.shape, x.varying | y.varying},
          [a, b, of](const Values& v) { return of(v[a], v[b]); },
          [a, b, of](const RealValues& v) {
            return each_device(
                [&](std::size_t d) {
                  return combined(v[a][d], v[b][d], [&](J p, J q) { return of(p, q); });
                },
                v[a].size());
          });
    }
  }
}

}  // namespace shmap::test
