// shmap-test: devices
// Gradients of random bodies over random meshes and specs: against central differences and jvp,
// with and without checked variance, eagerly and under jit, and against the same program without a
// mesh where there is one. A failure prints its case number: run with SHMAP_TEST_CASE=<n> to repeat
// that one alone.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>

namespace shmap {
namespace {

constexpr unsigned kCases = 400, kNetworks = 60;
constexpr const char* kNames[] = {"i", "j"};

using Values = std::vector<Array>;
using Extents = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

// What the generator knows of a value: enough to choose legal instructions.
struct Known {
  Extents shape;
  unsigned varying;  // mask of axes
};

// One instruction of a body: makes one value from earlier ones. `plain` does without a mesh what
// `mapped` does on one device.
struct Instruction {
  std::string text;
  std::function<Array(const Values&)> mapped, plain;
};

std::int64_t product(const Extents& e) {
  return std::accumulate(e.begin(), e.end(), std::int64_t{1}, std::multiplies<>());
}

class Generator {
 public:
  explicit Generator(unsigned seed) : engine_(seed) {
    static const std::vector<Extents> meshes = {{1},    {1, 2}, {2, 2}, {2, 4},
                                                {4, 2}, {8},    {2, 1}, {4}};
    sizes = meshes[pick(meshes.size())];
  }

  std::size_t pick(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(engine_);
  }
  bool coin() { return pick(2) == 0; }
  double number() { return std::uniform_real_distribution<double>(-1, 1)(engine_); }
  Array random_array(const Extents& shape) {
    Numbers values;
    for (std::int64_t k = 0; k < product(shape); ++k) values.push_back(number());
    return array<double>(values, Shape(shape));
  }

  Mesh mesh() const {
    return make_mesh(Shape(sizes), std::vector<std::string>(kNames, kNames + sizes.size()));
  }

  // Any assignment of some of the axes to dims, in any order.
  std::vector<std::vector<int>> random_spec(std::size_t rank, unsigned required) {
    std::vector<std::vector<int>> spec(rank);
    std::vector<int> axes(sizes.size());
    std::iota(axes.begin(), axes.end(), 0);
    std::shuffle(axes.begin(), axes.end(), engine_);
    for (int a : axes)
      if (rank > 0 && ((required >> a & 1u) || coin())) spec[pick(rank)].push_back(a);
    return spec;
  }
  std::vector<int> random_axes() {
    std::vector<int> axes;
    for (int a = 0; a < static_cast<int>(sizes.size()); ++a)
      if (coin()) axes.push_back(a);
    if (axes.empty()) axes.push_back(static_cast<int>(pick(sizes.size())));
    std::shuffle(axes.begin(), axes.end(), engine_);
    return axes;
  }
  static unsigned mask(const std::vector<int>& axes) {
    unsigned m = 0;
    for (int a : axes) m |= 1u << a;
    return m;
  }
  static Axes names(const std::vector<int>& axes) {
    std::vector<std::string> n;
    for (int a : axes) n.emplace_back(kNames[a]);
    return Axes(n);
  }
  static P to_spec(const std::vector<std::vector<int>>& dims) {
    std::vector<PartitionSpec::Entry> entries;
    for (const auto& axes : dims) entries.emplace_back(names(axes));
    return P(entries);
  }
  std::int64_t ranks(const std::vector<int>& axes) const {
    std::int64_t n = 1;
    for (int a : axes) n *= sizes[static_cast<std::size_t>(a)];
    return n;
  }

  Extents sizes;
  std::vector<Known> known;
  std::vector<Instruction> program;

  void step() {
    for (int attempt = 0; attempt < 50; ++attempt)
      if (try_step()) return;
  }

 private:
  void push(std::string text, Known result, std::function<Array(const Values&)> mapped,
            std::function<Array(const Values&)> plain) {
    known.push_back(std::move(result));
    program.push_back({std::move(text), std::move(mapped), std::move(plain)});
  }
  // Works on each block alone.
  void push_local(std::string text, Known result, std::size_t a,
                  std::function<Array(const Array&)> f) {
    const auto op = [a, f](const Values& v) { return f(v[a]); };
    push(std::move(text), std::move(result), op, op);
  }
  void push_group(std::string text, Known result, std::size_t a,
                  std::function<Array(const Array&)> mapped,
                  std::function<Array(const Array&)> plain) {
    push(
        std::move(text), std::move(result), [a, mapped](const Values& v) { return mapped(v[a]); },
        [a, plain](const Values& v) { return plain(v[a]); });
  }

  // No groups, or two of half the ranks in a random order.
  Groups random_groups(std::int64_t n) {
    if (n % 2 != 0 || pick(4) != 0) return {};
    std::vector<int> ranks(static_cast<std::size_t>(n));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), engine_);
    const auto half = ranks.begin() + static_cast<std::ptrdiff_t>(n / 2);
    return {{ranks.begin(), half}, {half, ranks.end()}};
  }

  bool try_step() {
    const std::size_t a = pick(known.size());
    const Known x = known[a];
    const std::size_t rank = x.shape.size();
    const std::vector<int> axes = random_axes();
    const unsigned over = mask(axes);
    const Axes named = names(axes);
    const std::int64_t all = ranks(axes);
    const std::string of = " %" + std::to_string(a);
    const auto same = [](const Array& v) { return v; };
    switch (pick(30)) {
      case 0:
        return push_local("sin" + of, x, a, [](const Array& v) { return sin(v); }), true;
      case 1:
        return push_local("tanh" + of, x, a, [](const Array& v) { return tanh(v); }), true;
      case 2:
        return push_local("exp" + of, x, a, [](const Array& v) { return exp(tanh(v)); }), true;
      case 3:
        return push_local("square" + of, x, a, [](const Array& v) { return v * v - 2. * v; }), true;
      case 4:
      case 5:
      case 6: {
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
        push("binary " + std::to_string(op) + of + " %" + std::to_string(b),
             {x.shape.empty() ? y.shape : x.shape, x.varying | y.varying}, f, f);
        return true;
      }
      case 7: {
        if (rank == 0) return false;
        const int d = static_cast<int>(pick(rank));
        const bool keep = coin();
        Known r = x;
        if (keep) {
          r.shape[static_cast<std::size_t>(d)] = 1;
        } else {
          r.shape.erase(r.shape.begin() + d);
        }
        push_local("mean" + of, r, a, [d, keep](const Array& v) { return mean(v, d, keep); });
        return true;
      }
      case 8:
        if (rank < 2) return false;
        push_local("transpose" + of, {{x.shape.rbegin(), x.shape.rend()}, x.varying}, a,
                   [](const Array& v) { return transpose(v); });
        return true;
      case 9:
        push_local("reshape" + of, {{product(x.shape)}, x.varying}, a,
                   [](const Array& v) { return reshape(v, {-1}); });
        return true;
      case 10:
        if (rank != 2 || x.shape[0] > 16 || x.shape[1] > 16) return false;
        push_local("x @ sin(x.T)" + of, {{x.shape[0], x.shape[0]}, x.varying}, a,
                   [](const Array& v) { return tanh(matmul(v, sin(transpose(v)))); });
        return true;
      case 11: {
        if (rank == 0 || product(x.shape) > 128) return false;
        const std::size_t d = pick(rank);
        Known r = x;
        r.shape[d] *= 2;
        push_local("concatenate" + of, r, a, [d](const Array& v) {
          return concatenate({v, cos(v)}, static_cast<int>(d));
        });
        return true;
      }
      case 12:
        push(
            "times rank" + of, {x.shape, x.varying | over},
            [a, named](const Values& v) { return v[a] * (astype(axis_index(named), f64) + .5); },
            [a](const Values& v) { return v[a] * .5; });
        return true;
      case 13:
      case 14: {
        const Groups g = random_groups(all);
        const bool average = coin();
        push_group(
            std::string(average ? "pmean" : "psum") + (g.empty() ? "" : " in groups") + of,
            {x.shape, g.empty() ? x.varying & ~over : x.varying | over}, a,
            [named, g, average](const Array& v) {
              return average ? pmean(v, named, {.axis_index_groups = g})
                             : psum(tanh(v), named, {.axis_index_groups = g});
            },
            [average](const Array& v) { return average ? v : tanh(v); });
        return true;
      }
      case 15: {
        const bool most = coin();
        push_group(
            "extremum" + of, {x.shape, x.varying & ~over}, a,
            [named, most](const Array& v) { return most ? pmax(v, named) : pmin(v, named); }, same);
        return true;
      }
      case 16:
      case 17: {
        if (rank == 0) return false;
        const Groups g = random_groups(all);
        const std::int64_t n = g.empty() ? all : all / 2;
        if (product(x.shape) * n > 1024) return false;
        const bool tiled = coin(), invariant = coin();
        const int d = static_cast<int>(pick(rank));
        Known r{x.shape, invariant && g.empty() ? x.varying & ~over : x.varying | over};
        if (tiled) {
          r.shape[static_cast<std::size_t>(d)] *= n;
        } else {
          r.shape.insert(r.shape.begin() + d, n);
        }
        const AllGatherOptions options{.axis = d, .tiled = tiled, .axis_index_groups = g};
        push_group(
            std::string("all_gather") + (invariant ? "_invariant" : "") + of, r, a,
            [named, options, invariant](const Array& v) {
              return invariant ? all_gather_invariant(v, named, options)
                               : all_gather(v, named, options);
            },
            [d, tiled](const Array& v) { return tiled ? v : expand_dims(v, d); });
        return true;
      }
      case 18: {
        if (rank == 0) return false;
        const std::size_t d = pick(rank);
        const bool tiled = coin();
        if (tiled ? x.shape[d] % all != 0 : x.shape[d] != all) return false;
        Known r{x.shape, x.varying | over};
        if (tiled) {
          r.shape[d] /= all;
        } else {
          r.shape.erase(r.shape.begin() + static_cast<std::ptrdiff_t>(d));
        }
        const int dim = static_cast<int>(d);
        const bool whole = !(x.varying & over) && coin();
        push_group(
            std::string(whole ? "pscatter" : "psum_scatter") + of, r, a,
            [named, dim, tiled, whole](const Array& v) {
              return whole ? pscatter(v, named, {.scatter_dimension = dim, .tiled = tiled})
                           : psum_scatter(v, named, {.scatter_dimension = dim, .tiled = tiled});
            },
            [dim, tiled](const Array& v) { return tiled ? v : squeeze(v, dim); });
        return true;
      }
      case 19: {
        if (rank == 0) return false;
        const std::size_t s = pick(rank), c = pick(rank);
        const bool tiled = coin();
        if (tiled ? x.shape[s] % all != 0 : x.shape[s] != all) return false;
        Known r{x.shape, x.varying | over};
        if (tiled) {
          r.shape[s] /= all;
          r.shape[c] *= all;
        } else {
          r.shape.erase(r.shape.begin() + static_cast<std::ptrdiff_t>(s));
          r.shape.insert(r.shape.begin() + static_cast<std::ptrdiff_t>(c), all);
        }
        const int from = static_cast<int>(s), to = static_cast<int>(c);
        push_group(
            std::string("all_to_all") + (tiled ? " tiled" : "") + of, r, a,
            [named, from, to, tiled](const Array& v) {
              return all_to_all(v, named, from, to, {.tiled = tiled});
            },
            [from, to, tiled](const Array& v) {
              return tiled ? v : expand_dims(squeeze(v, from), to);
            });
        return true;
      }
      case 20: {
        const int source = static_cast<int>(pick(static_cast<std::size_t>(all)));
        push_group(
            "broadcast_from" + of, {x.shape, x.varying & ~over}, a,
            [named, source](const Array& v) { return broadcast_from(v, named, source); }, same);
        return true;
      }
      case 21:
        if (x.varying & over) return false;
        push_group(
            "pbroadcast" + of, {x.shape, x.varying | over}, a,
            [named](const Array& v) { return pbroadcast(v, named); }, same);
        return true;
      case 22: {
        // A loop with a sum over devices in it, or without.
        const bool sums = coin();
        push_group(
            std::string("fori_loop") + (sums ? " of psum" : "") + of, x, a,
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
        return true;
      }
      case 23: {
        // A scan over rows that closes over another value.
        const std::size_t b = pick(known.size());
        const Known& y = known[b];
        if (rank == 0 || !y.shape.empty()) return false;
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
        push("scan" + of + " %" + std::to_string(b), {x.shape, x.varying | y.varying}, f, f);
        return true;
      }
      case 24:
      case 25: {
        // Branches close over other values; what decides may differ between devices.
        const std::size_t b = pick(known.size());
        const Known& y = known[b];
        if (y.shape != x.shape) return false;
        const bool alike = coin();
        std::vector<int> every(sizes.size());
        std::iota(every.begin(), every.end(), 0);
        const Axes all_axes = names(every);
        const auto branches = [a, b](const Array& decides, const Values& v) {
          const Array p = v[a], q = v[b];
          return cond(
              sum(decides) > 0., [p, q](Array r) { return r * sin(q) + p; },
              [q](Array r) { return q * q - r; }, p);
        };
        push(
            std::string(alike ? "cond" : "varying cond") + of + " %" + std::to_string(b),
            {x.shape, x.varying | y.varying},
            [a, alike, all_axes, branches](const Values& v) {
              return branches(alike ? psum(v[a], all_axes) : v[a], v);
            },
            [a, branches](const Values& v) { return branches(v[a], v); });
        return true;
      }
      case 26:
        push_group(
            "jit" + of, {x.shape, x.varying & ~over}, a,
            [named](const Array& v) {
              return jit([named](Array u) { return psum(u * sin(u), named); })(v);
            },
            [](const Array& v) { return v * sin(v); });
        return true;
      default: {
        std::vector<int> to(static_cast<std::size_t>(all));
        std::iota(to.begin(), to.end(), 0);
        std::shuffle(to.begin(), to.end(), engine_);
        std::vector<std::pair<int, int>> perm;
        for (int k = 0; k < static_cast<int>(all); ++k)
          if (all == 1 || pick(4) != 0) perm.push_back({k, to[static_cast<std::size_t>(k)]});
        push_group(
            "ppermute" + of, {x.shape, x.varying | over}, a,
            [named, perm](const Array& v) { return ppermute(v, named, perm); }, same);
        return true;
      }
    }
  }

  std::mt19937 engine_;
};

Numbers numbers(const Array& x) { return x.to_vector<double>(); }

double greatest(const Values& xs) {
  double most = 0;
  for (const Array& x : xs)
    for (double v : numbers(x)) most = std::max(most, std::abs(v));
  return most;
}

double inner(const Values& xs, const Values& ys) {
  double total = 0;
  for (std::size_t k = 0; k < xs.size(); ++k) {
    const Numbers x = numbers(xs[k]), y = numbers(ys[k]);
    for (std::size_t e = 0; e < x.size(); ++e) total += x[e] * y[e];
  }
  return total;
}

void expect_near(const char* what, const Values& got, const Values& want, double relative) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double tolerance = relative * (1 + greatest(want));
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].shape(), want[k].shape()) << what << ": argument " << k;
    const Numbers a = numbers(got[k]), b = numbers(want[k]);
    for (std::size_t e = 0; e < a.size(); ++e)
      ASSERT_NEAR(a[e], b[e], tolerance) << what << ": argument " << k << ", element " << e;
  }
}

Values moved(const Values& at, const Values& v, double step) {
  Values out;
  for (std::size_t k = 0; k < at.size(); ++k) out.push_back(at[k] + v[k] * step);
  return out;
}

// What all of them must agree on: two scalar functions of a list, and a direction.
template <class F, class G>
void check_gradient(const F& typed, const G& legacy, const Values& at, const Values& v,
                    bool legacy_jit, bool second_order) {
  const auto [value, gradient] = value_and_grad(typed)(at);
  const double y = value.template item<double>();
  const auto [old_value, old_gradient] = value_and_grad(legacy)(at);
  EXPECT_NEAR(old_value.template item<double>(), y, 1e-12 * (1 + std::abs(y)));
  expect_near("legacy", old_gradient, gradient, 1e-10);
  const auto [jit_value, jit_gradient] = jit(value_and_grad(typed))(at);
  EXPECT_NEAR(jit_value.template item<double>(), y, 1e-12 * (1 + std::abs(y)));
  expect_near("under jit", jit_gradient, gradient, 1e-10);
  if (legacy_jit) expect_near("legacy under jit", jit(grad(legacy))(at), gradient, 1e-10);

  const double slope = inner(gradient, v);
  const double along = jvp(typed, std::tuple{at}, std::tuple{v}).second.template item<double>();
  double scale = 1;
  for (std::size_t k = 0; k < v.size(); ++k) scale += greatest({gradient[k]}) * v[k].size();
  EXPECT_NEAR(along, slope, 1e-10 * scale) << "jvp against <gradient, v>";
  constexpr double h = 1e-5;
  const double difference = (typed(moved(at, v, h)).template item<double>() -
                             typed(moved(at, v, -h)).template item<double>()) /
                            (2 * h);
  EXPECT_NEAR(difference, slope, 2e-6 * scale) << "central difference against <gradient, v>";
  if (!second_order) return;
  // The derivative of the gradient along v, forwards over backwards.
  for (const bool checked : {true, false}) {
    const auto gradient_of = [&](const Values& x) {
      return checked ? grad(typed)(x) : grad(legacy)(x);
    };
    const Values bend = jvp(gradient_of, std::tuple{at}, std::tuple{v}).second;
    const Values high = gradient_of(moved(at, v, h)), low = gradient_of(moved(at, v, -h));
    Values want;
    for (std::size_t k = 0; k < at.size(); ++k) want.push_back((high[k] - low[k]) / (2 * h));
    expect_near(checked ? "second order" : "second order, legacy", bend, want,
                1e-5 * (1 + greatest(gradient)));
  }
}

// One random body with its mesh, specs and arguments: some go through the specs, others are
// captured by the body.
void run_case(unsigned number) {
  Generator g(number * 7919u + 29u);
  const Mesh mesh = g.mesh();
  Values arguments, directions;
  std::vector<P> in_specs;
  const std::size_t inputs = 1 + g.pick(2), captured = g.pick(2);
  for (std::size_t k = 0; k < inputs + captured; ++k) {
    const std::size_t rank = g.pick(4);
    const auto spec = k < inputs ? g.random_spec(rank, 0) : std::vector<std::vector<int>>(rank);
    Extents block, whole;
    unsigned varying = 0;
    for (const auto& axes : spec) {
      // Often of an extent that the axes divide, so that scatters have something to cut.
      block.push_back(g.coin() ? static_cast<std::int64_t>(1 + g.pick(3)) : g.coin() ? 4 : 8);
      whole.push_back(block.back() * g.ranks(axes));
      varying |= Generator::mask(axes);
    }
    g.known.push_back({block, varying});
    arguments.push_back(g.random_array(whole));
    directions.push_back(g.random_array(whole));
    if (k < inputs) in_specs.push_back(Generator::to_spec(spec));
  }
  const std::size_t length = 2 + g.pick(7);
  for (std::size_t k = 0; k < length; ++k) g.step();

  // The last value, and any other one; a scalar gets a dim, since it may have to be split.
  const std::vector<std::size_t> results = {g.known.size() - 1, g.pick(g.known.size())};
  std::vector<P> out_specs;
  std::vector<double> weights;
  for (const std::size_t r : results) {
    const std::size_t rank = std::max<std::size_t>(g.known[r].shape.size(), 1);
    out_specs.push_back(Generator::to_spec(g.random_spec(rank, g.known[r].varying)));
    weights.push_back(g.number());
  }
  std::string text = "case " + std::to_string(number) + " on " + to_string(mesh) + ":";
  for (const P& p : in_specs) text += " " + to_string(p);
  text += ", " + std::to_string(captured) + " captured";
  for (const Instruction& i : g.program) text += "\n  " + i.text;
  for (const P& p : out_specs) text += "\n  -> " + to_string(p);
  SCOPED_TRACE(text);

  const auto run_body = [&](Values values, bool plain) {
    for (const Instruction& i : g.program)
      values.push_back(plain ? i.plain(values) : i.mapped(values));
    Values out;
    for (const std::size_t r : results)
      out.push_back(values[r].ndim() == 0 ? reshape(values[r], {1}) : values[r]);
    return out;
  };
  const auto weighed = [&](const Values& out) {
    Array total = 0.;
    for (std::size_t k = 0; k < out.size(); ++k) {
      const Array wave = reshape(cos(arange(out[k].size(), f64)), out[k].shape());
      total = total + weights[k] * sum(out[k] * wave);
    }
    return total;
  };
  const auto loss = [&](ShardMapOptions options) {
    return [&, options](const Values& args) {
      const Values given(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(inputs));
      const Values rest(args.begin() + static_cast<std::ptrdiff_t>(inputs), args.end());
      const auto body = [&run_body, rest](Values blocks) {
        blocks.insert(blocks.end(), rest.begin(), rest.end());
        return run_body(std::move(blocks), false);
      };
      return weighed(shard_map(body, mesh, {Specs(in_specs)}, Specs(out_specs), options)(given));
    };
  };
  try {
    check_gradient(loss({}), loss({.check_vma = false}), arguments, directions, number % 4 == 0,
                   number % 5 == 0);
    if (mesh.size() > 1) return;
    const auto plain = [&](const Values& args) { return weighed(run_body(args, true)); };
    expect_near("without a mesh", grad(loss({}))(arguments), grad(plain)(arguments), 1e-10);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw: " << e.what();
  }
}

// ---- networks that are the same with and without a mesh

// A layer's weights, by which its work is shared out over the axis j.
enum class Sharing { replicated, gathered, tensor_parallel };

struct Layer {
  Sharing sharing;
  bool captured;  // by the body, instead of given to it
};

// A network over a batch split over the axis i, with layers of random kinds.
void run_network(unsigned number) {
  Generator g(number * 104729u + 5u);
  static const std::vector<Extents> meshes = {{2, 2}, {2, 4}, {4, 2}, {8, 1}, {1, 4}};
  g.sizes = meshes[g.pick(meshes.size())];
  const Mesh mesh = g.mesh();
  const std::int64_t width = 4, hidden = 8, batch = 8;
  std::vector<Layer> layers;
  Values arguments = {g.random_array({batch, width})}, directions;
  std::string text = "network " + std::to_string(number) + " on " + to_string(mesh);
  std::vector<P> specs = {P("i")};
  const std::size_t depth = 1 + g.pick(3);
  for (std::size_t k = 0; k < depth; ++k) {
    const auto sharing = static_cast<Sharing>(g.pick(3));
    layers.push_back({sharing, sharing == Sharing::replicated && g.coin()});
    text += sharing == Sharing::replicated ? layers.back().captured ? ", captured" : ", replicated"
            : sharing == Sharing::gathered ? ", gathered"
                                           : ", tensor parallel";
    arguments.push_back(g.random_array({width, hidden}));
    arguments.push_back(g.random_array({hidden, width}));
    const bool tensor = sharing == Sharing::tensor_parallel;
    specs.push_back(sharing == Sharing::replicated ? P() : tensor ? P(none, "j") : P("j"));
    specs.push_back(sharing == Sharing::replicated ? P() : P("j"));
  }
  SCOPED_TRACE(text);
  for (const Array& x : arguments) {
    const Shape shape = x.shape();
    directions.push_back(g.random_array(Extents(shape.begin(), shape.end())));
  }

  const auto network = [&layers](const Values& args, bool mapped) {
    Array x = args[0];
    for (std::size_t k = 0; k < layers.size(); ++k) {
      Array up = args[2 * k + 1], down = args[2 * k + 2];
      const Sharing sharing = mapped ? layers[k].sharing : Sharing::replicated;
      if (sharing == Sharing::gathered) {
        up = all_gather(up, "j", {.tiled = true});
        down = all_gather(down, "j", {.tiled = true});
      }
      Array y = matmul(tanh(matmul(x, up)), down);
      if (sharing == Sharing::tensor_parallel) y = psum(y, "j");
      // All devices along j have the gathered weights, and the same values: their mean.
      if (sharing == Sharing::gathered) y = pmean(y, "j");
      x = x + sin(y);
    }
    return mean(sum(square(x), 1));
  };
  const auto loss = [&](ShardMapOptions options) {
    return [&, options](const Values& args) {
      Values given;
      std::vector<P> in;
      std::vector<std::size_t> place(args.size(), args.size());
      for (std::size_t k = 0; k < args.size(); ++k) {
        if (k > 0 && layers[(k - 1) / 2].captured) continue;
        place[k] = given.size();
        given.push_back(args[k]);
        in.push_back(specs[k]);
      }
      const auto body = [&](Values blocks) {
        Values all;
        for (std::size_t k = 0; k < args.size(); ++k)
          all.push_back(place[k] < args.size() ? blocks[place[k]] : args[k]);
        return pmean(network(all, true), "i");
      };
      return shard_map(body, mesh, {Specs(in)}, P(), options)(given);
    };
  };
  try {
    check_gradient(loss({}), loss({.check_vma = false}), arguments, directions, true,
                   number % 4 == 0);
    const auto plain = [&](const Values& args) { return network(args, false); };
    expect_near("without a mesh", grad(loss({}))(arguments), grad(plain)(arguments), 1e-12);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw: " << e.what();
  }
}

void run_cases(unsigned count, void (*run)(unsigned)) {
  if (const char* one = std::getenv("SHMAP_TEST_CASE"))
    return run(static_cast<unsigned>(std::atoi(one)));
  for (unsigned number = 0; number < count && !::testing::Test::HasFailure(); ++number) run(number);
}

TEST(GradientProperty, RandomBodies) { run_cases(kCases, run_case); }
TEST(GradientProperty, NetworksWithAndWithoutAMesh) { run_cases(kNetworks, run_network); }

}  // namespace
}  // namespace shmap
