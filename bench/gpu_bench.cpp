// Our side of the rows on one GPU except products (gpu_matmul_bench.cpp). Uses only the public
// interface; bench/README.md describes the rows and their peers. Runs on `cuda:0x8` unless
// SHMAP_DEVICES says otherwise; SHMAP_BENCH_SCALE=16 makes the sizes small, to check that it runs.
#include <shmap/shmap.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/data.h"
#include "bench/support/gpu_main.h"
#include "bench/support/gpu_sizes.h"
#include "bench/support/queued.h"
#include "bench/support/rows.h"
#include "bench/support/threefry.h"
#include "bench/support/transformer_loss.h"

namespace shmap::bench::transformer {

inline void wait(const Gradient& g) { wait_for(g); }

}  // namespace shmap::bench::transformer

namespace {

using namespace shmap;
using bench::Row;
using bench::scaled;
using bench::Work;
using Values = std::vector<float>;
using Doubles = std::vector<double>;

// ------------------------------------------------------------------------------- one eager op

enum class Timed { queued, host };

template <class F, class Check>
Work timed(Timed how, F f, Check check) {
  return how == Timed::queued ? bench::queued(f, check) : bench::host_time(f, check);
}

Work eager_op(Timed how) {
  const Values a = bench::random_floats(1024, 1), b = bench::random_floats(1024, 2);
  Values want(a.size());
  for (std::size_t k = 0; k < want.size(); ++k) want[k] = a[k] + b[k];
  return timed(
      how, [x = array<float>(a, {1024}), y = array<float>(b, {1024})] { return x + y; },
      [want](const Array& z) {
        return bench::difference(z.to_vector<float>(), std::span<const float>(want));
      });
}

// ------------------------------------------------------ replays of many operations that are small

constexpr std::size_t kSide = 64;  // of the replays: small products, which nothing fuses

Array chained(Array x, Array w, int n) {
  for (int k = 0; k < n; ++k) x = matmul(x, w);
  return x;
}

// A rotation as the product of two reflections, so that values neither grow nor vanish in a long
// chain.
struct Rotation {
  std::size_t side;
  Values w;

  explicit Rotation(std::size_t side = kSide) : side(side), w(side * side) {
    Doubles product(side * side);
    for (std::size_t k = 0; k < side; ++k) product[k * side + k] = 1;
    for (const std::uint64_t seed : {7, 8}) {
      const Values v = bench::random_floats(side, seed);
      double power = 0;
      for (const float value : v) power += double(value) * value;
      for (std::size_t r = 0; r < side; ++r) {
        double along = 0;
        for (std::size_t k = 0; k < side; ++k) along += product[r * side + k] * v[k];
        for (std::size_t k = 0; k < side; ++k) product[r * side + k] -= 2 * along / power * v[k];
      }
    }
    std::copy(product.begin(), product.end(), w.begin());
  }
  // Computes x times its n-th power; x has rows of `side` elements.
  Doubles after(const Values& x, int n) const {
    Doubles now(x.begin(), x.end()), next(x.size());
    for (int step = 0; step < n; ++step) {
      std::fill(next.begin(), next.end(), 0.0);
      for (std::size_t r = 0; r < x.size() / side; ++r)
        for (std::size_t k = 0; k < side; ++k)
          for (std::size_t c = 0; c < side; ++c)
            next[r * side + c] += now[r * side + k] * w[k * side + c];
      now.swap(next);
    }
    return now;
  }
};

auto close_to(Doubles want, double tolerance) {
  return [want = std::move(want), tolerance](const Array& got) {
    return bench::difference(got.to_vector<float>(), want, tolerance);
  };
}

// Replays a chain of `n` operations on one device.
Work replayed_line(Timed how, int n) {
  const Rotation rotation;
  const Values values = bench::random_floats(kSide * kSide, 9);
  auto f = jit([n](Array x, Array w) { return chained(x, w, n); });
  return timed(
      how,
      [f, x = array<float>(values, {kSide, kSide}), w = array<float>(rotation.w, {kSide, kSide})] {
        return f(x, w);
      },
      close_to(rotation.after(values, n), 1e-3));
}

// Replays a chain on each of the virtual devices.
Work replayed_branches(Timed how) {
  const Rotation rotation;
  const Values values = bench::random_floats(bench::kBranches * kSide * kSide, 9);
  const Mesh mesh = make_mesh({bench::kBranches}, {"i"});
  auto f = jit(shard_map([](Array x, Array w) { return chained(x, w, bench::kChained); }, mesh,
                         {P("i"), P()}, P("i")));
  const Array x = array<float>(values, {bench::kBranches * kSide, kSide});
  const Array w = array<float>(rotation.w, {kSide, kSide});
  return timed(
      how,
      [f, x = device_put(x, NamedSharding(mesh, P("i"))),
       w = device_put(w, NamedSharding(mesh, P()))] { return f(x, w); },
      close_to(rotation.after(values, bench::kChained), 1e-3));
}

// Small products one after another, under jit, on one device: the time of a product.
Work small_products(const bench::SmallProduct& size) {
  struct Type {
    DType dtype;
    double tolerance;  // of values of about 0.6, after 50 products whose results are rounded
  };
  const std::string name = size.dtype;
  const Type type = name == "f32"    ? Type{f32, 1e-3}
                    : name == "bf16" ? Type{bf16, 0.2}
                    : name == "f16"  ? Type{f16, 0.03}
                                     : Type{f64, 1e-5};
  Rotation rotation{std::size_t(size.side)};
  rotation.w = bench::rounded_to_bf16(rotation.w);
  const Values values =
      bench::rounded_to_bf16(bench::random_floats(std::size_t(size.rows * size.side), 9));
  const auto upload = [&](const Values& from, std::int64_t rows) {
    return astype(array<float>(from, {rows, size.side}), type.dtype);
  };
  const auto check = close_to(rotation.after(values, bench::kSmallChained), type.tolerance);
  Work work = bench::queued(
      [f = jit([](Array x, Array w) { return chained(x, w, bench::kSmallChained); }),
       x = upload(values, size.rows), w = upload(rotation.w, size.side)] { return f(x, w); },
      [check](const Array& y) { return check(astype(y, f32)); });
  work.parts = bench::kSmallChained;
  return work;
}

// ----------------------------------------------------------------------- bound by memory, jitted

constexpr std::size_t kColumns = bench::kColumns;

// Times f(x) for a matrix x with `full_rows` rows (scaled). Compares four rows with `reference`,
// which computes the result of a row of x in doubles.
template <class F, class Reference>
Work matrix_function(std::int64_t full_rows, F f, Reference reference) {
  const auto rows = std::size_t(scaled(full_rows));
  const Values values = bench::random_floats(rows * kColumns, 3);
  std::vector<std::pair<std::int64_t, Doubles>> want;
  for (std::size_t part = 0; part < 4; ++part) {
    const std::size_t row = part * (rows - 1) / 3;
    Doubles of_row(kColumns);
    reference(std::span(values).subspan(row * kColumns, kColumns), of_row);
    want.push_back({std::int64_t(row), of_row});
  }
  return bench::queued([f, x = array<float>(values, {rows, kColumns})] { return f(x); },
                       [want](const Array& y) {
                         for (const auto& [row, of_row] : want) {
                           const Array got = y[row];
                           const std::string fault =
                               bench::difference(got.to_vector<float>(), of_row, 2e-5);
                           if (!fault.empty()) return "row " + std::to_string(row) + ": " + fault;
                         }
                         return std::string();
                       });
}

Work fused_chain(std::int64_t rows) {
  return matrix_function(
      rows, jit([](Array x) { return sqrt(maximum(square(x * 1.5f + 0.25f) - x, 0.125f)); }),
      [](std::span<const float> x, Doubles& want) {
        for (std::size_t k = 0; k < x.size(); ++k) {
          const double v = x[k], s = v * 1.5 + 0.25;
          want[k] = std::sqrt(std::max(s * s - v, 0.125));
        }
      });
}

Work softmax_row(std::int64_t rows) {
  return matrix_function(rows, jit([](Array x) { return softmax(x); }),
                         [](std::span<const float> x, Doubles& want) {
                           double sum = 0;
                           for (std::size_t k = 0; k < x.size(); ++k)
                             sum += want[k] = std::exp(double(x[k]));
                           for (double& value : want) value /= sum;
                         });
}

Work rms_norm_row(std::int64_t rows) {
  const Values scale = bench::random_floats(kColumns, 4);
  auto f = jit([](Array x, Array scale) { return rms_norm(x, scale); });
  return matrix_function(
      rows, [f, s = array<float>(scale, {kColumns})](Array x) { return f(x, s); },
      [scale](std::span<const float> x, Doubles& want) {
        double power = 0;
        for (const float v : x) power += double(v) * v;
        const double factor = 1 / std::sqrt(power / double(x.size()) + 1e-6);
        for (std::size_t k = 0; k < x.size(); ++k) want[k] = x[k] * factor * scale[k];
      });
}

Work psum_row() {
  const auto n = std::size_t(scaled(bench::kSummandFloats));
  const Values values = bench::random_floats(bench::kSummands * n, 5);
  const std::size_t part = std::min<std::size_t>(n, 4096), middle = (n - part) / 2;
  Doubles want(part, 0.0);
  for (std::size_t d = 0; d < std::size_t(bench::kSummands); ++d)
    for (std::size_t k = 0; k < part; ++k) want[k] += values[d * n + middle + k];
  const Mesh mesh = make_mesh({bench::kSummands}, {"i"});
  auto f = jit(shard_map([](Array x) { return psum(x, "i"); }, mesh, P("i"), P()));
  return bench::queued(
      [f, x = device_put(array<float>(values, {values.size()}), NamedSharding(mesh, P("i")))] {
        return f(x);
      },
      [=](const Array& y) {
        return bench::difference(y[{range(middle, middle + part)}].to_vector<float>(), want, 1e-5);
      });
}

// Squared distances of all pairs of points, written as differences, which nothing should store.
// Compares four rows.
Work distances() {
  const auto points = std::size_t(scaled(bench::kPoints)), width = std::size_t(bench::kCoordinates);
  const Values a = bench::random_floats(points * width, 1),
               b = bench::random_floats(points * width, 2);
  std::vector<std::pair<std::int64_t, Doubles>> want;
  for (std::size_t part = 0; part < 4; ++part) {
    const std::size_t row = part * (points - 1) / 3;
    Doubles of_row(points, 0.0);
    for (std::size_t c = 0; c < points; ++c)
      for (std::size_t k = 0; k < width; ++k) {
        const double apart = double(a[row * width + k]) - b[c * width + k];
        of_row[c] += apart * apart;
      }
    want.push_back({std::int64_t(row), of_row});
  }
  auto f =
      jit([](Array a, Array b) { return sum(square(expand_dims(a, 1) - expand_dims(b, 0)), -1); });
  return bench::queued([f, a = array<float>(a, {points, width}),
                        b = array<float>(b, {points, width})] { return f(a, b); },
                       [want](const Array& y) {
                         for (const auto& [row, of_row] : want) {
                           const Array got = y[row];
                           const std::string fault =
                               bench::difference(got.to_vector<float>(), of_row, 1e-3);
                           if (!fault.empty()) return "row " + std::to_string(row) + ": " + fault;
                         }
                         return std::string();
                       });
}

// ------------------------------------------------------------------------------- random numbers

// Times `draw(key, n)` under jit; the key is an argument. `fault(bits, result)` describes what is
// wrong with an item, or returns "".
template <class T, class Draw, class Fault>
Work random_row(Draw draw, Fault fault) {
  const std::int64_t n = scaled(bench::kRandoms);
  auto f = jit([n, draw](Array words) { return draw(extend::random_wrap(words), n); });
  const auto words = array<std::uint32_t>({bench::kRandomKey[0], bench::kRandomKey[1]}, {2});
  return bench::queued([f, words] { return f(words); },
                       [n, fault](const Array& drawn) -> std::string {
                         const std::int64_t part = std::min<std::int64_t>(n, 4096);
                         for (const std::int64_t from : {std::int64_t{0}, n - part}) {
                           const auto got = drawn[range(from, from + part)].to_vector<T>();
                           for (std::int64_t k = 0; k < part; ++k) {
                             const std::string wrong = fault(
                                 bench::threefry_bits(bench::kRandomKey[0], bench::kRandomKey[1],
                                                      static_cast<std::uint32_t>(from + k)),
                                 got[static_cast<std::size_t>(k)]);
                             if (!wrong.empty())
                               return "item " + std::to_string(from + k) + ": " + wrong;
                           }
                         }
                         return {};
                       });
}

Work random_bits_row() {
  return random_row<std::uint32_t>(
      [](Array key, std::int64_t n) { return random::bits(key, {n}); },
      [](std::uint32_t bits, std::uint32_t got) {
        return bits == got ? "" : std::to_string(got) + " and not " + std::to_string(bits);
      });
}
// Checks normals by their inverse: erf(normal / sqrt(2)) is the uniform from which it was computed.
Work random_normal_row() {
  return random_row<float>([](Array key, std::int64_t n) { return random::normal(key, {n}); },
                           [](std::uint32_t bits, float got) {
                             const double want = bench::symmetric_uniform(bits),
                                          back = std::erf(got / std::sqrt(2.0));
                             return std::abs(back - want) <= 1e-6
                                        ? ""
                                        : std::to_string(got) + ", of erf " + std::to_string(back) +
                                              " and not " + std::to_string(want);
                           });
}

// As many bits as random_bits_row has, kOfKey of each of many keys. Compares those of four keys.
Work random_bits_of_keys() {
  const auto keys = std::size_t(scaled(bench::kKeys));
  std::vector<std::uint32_t> words;
  for (const float value : bench::random_floats(2 * keys, 11))
    words.push_back(std::bit_cast<std::uint32_t>(value));
  auto f = jit([](Array words) {
    return vmap([](Array key) { return random::bits(key, {bench::kOfKey}); })(
        extend::random_wrap(words));
  });
  return bench::queued(
      [f, x = array<std::uint32_t>(words, {keys, 2})] { return f(x); },
      [words, keys](const Array& drawn) -> std::string {
        for (std::size_t part = 0; part < 4; ++part) {
          const std::size_t key = part * (keys - 1) / 3;
          const Array of_key = drawn[std::int64_t(key)];
          const auto got = of_key.to_vector<std::uint32_t>();
          for (std::uint32_t k = 0; k < got.size(); ++k)
            if (got[k] != bench::threefry_bits(words[2 * key], words[2 * key + 1], k))
              return "number " + std::to_string(k) + " of key " + std::to_string(key) + " is " +
                     std::to_string(got[k]);
        }
        return {};
      });
}

// ----------------------------------------------------------------------------------- attention

// A row's work with this value of SHMAP_ATTENTION_KERNEL, which is read at each call that is not a
// replay: a program's first call, and the one that captures it.
Work by_kernel(const char* kernel, const std::function<Work()>& make) {
  Work work = make();
  work.time_batch = [kernel, time_batch = work.time_batch](std::int64_t n) {
    setenv("SHMAP_ATTENTION_KERNEL", kernel, 1);
    return time_batch(n);
  };
  return work;
}

// Attention of halves, written as a user would. Compares four rows of the first head.
Work attention(const bench::AttentionSize& size, DType dtype) {
  const auto rows = std::size_t(size.rows), depth = std::size_t(size.depth);
  const Shape shape{std::size_t(size.batch), std::size_t(size.heads), rows, depth};
  const std::size_t items = std::size_t(size.batch * size.heads) * rows * depth;
  const auto draw = [&](std::uint64_t seed) {
    return bench::rounded_to_bf16(bench::random_floats(items, seed));
  };
  const Values q = draw(5), k = draw(6), v = draw(7);  // f16 has these values but for 2⁻²⁵
  const double scale = 1 / std::sqrt(double(depth));
  std::vector<std::pair<std::int64_t, Doubles>> want;
  for (std::size_t part = 0; part < 4; ++part) {
    const std::size_t row = part * (rows - 1) / 3;
    Doubles result(depth);
    double sum = 0;
    for (std::size_t c = 0; c < rows; ++c) {
      double score = 0;
      for (std::size_t d = 0; d < depth; ++d)
        score += double(q[row * depth + d]) * k[c * depth + d];
      const double weight = std::exp(score * scale);
      sum += weight;
      for (std::size_t d = 0; d < depth; ++d) result[d] += weight * v[c * depth + d];
    }
    for (double& value : result) value /= sum;
    want.push_back({std::int64_t(row), result});
  }
  const auto upload = [&](const Values& values) {
    return astype(array<float>(values, shape), dtype);
  };
  auto f = jit([scale = float(scale)](Array q, Array k, Array v) {
    const Array scores = einsum("bhqd,bhkd->bhqk", q, k) * scale;
    return einsum("bhqk,bhkd->bhqd", softmax(scores), v);
  });
  // Attention weights average over many random values, so that results are small.
  const double tolerance = 0.05 / std::sqrt(double(rows));
  return bench::queued([f, q = upload(q), k = upload(k), v = upload(v)] { return f(q, k, v); },
                       [want, tolerance](const Array& y) {
                         for (const auto& [row, of_row] : want) {
                           const Array got = astype(y[{0, 0, row}], f32);
                           const std::string fault =
                               bench::difference(got.to_vector<float>(), of_row, tolerance);
                           if (!fault.empty()) return "row " + std::to_string(row) + ": " + fault;
                         }
                         return std::string();
                       });
}

// Computes the cotangents of q, k and v, including the forward pass; arrays are [batch, rows,
// heads, features]. Checks the first head: four rows of q's cotangent are compared; v's
// cotangents must add up to the result's, since weights add up to one; and the sum of k times its
// cotangent must equal that of q.
Work attention_grad(bool causal) {
  const bench::AttentionSize size = bench::attention_size();
  const auto rows = std::size_t(size.rows), heads = std::size_t(size.heads),
             depth = std::size_t(size.depth), step = heads * depth;
  const Shape shape{std::size_t(size.batch), rows, heads, depth};
  const auto draw = [&](std::uint64_t seed) {
    return bench::rounded_to_bf16(
        bench::random_floats(std::size_t(size.batch) * rows * step, seed));
  };
  const Values q = draw(5), k = draw(6), v = draw(7), ct = draw(8);
  const double scale = 1 / std::sqrt(double(depth));
  const auto dot = [&](const Values& a, std::size_t r, const Values& b, std::size_t c) {
    double sum = 0;
    for (std::size_t d = 0; d < depth; ++d) sum += double(a[r * step + d]) * b[c * step + d];
    return sum;
  };
  std::vector<std::pair<std::size_t, Doubles>> want;
  for (std::size_t part = 0; part < 4; ++part) {
    const std::size_t row = part * (rows - 1) / 3, columns = causal ? row + 1 : rows;
    Doubles weights(columns), slopes(columns), result(depth);
    double sum = 0, mean = 0;
    for (std::size_t c = 0; c < columns; ++c)
      sum += weights[c] = std::exp(dot(q, row, k, c) * scale);
    for (std::size_t c = 0; c < columns; ++c) {
      slopes[c] = dot(ct, row, v, c);
      mean += (weights[c] /= sum) * slopes[c];
    }
    for (std::size_t c = 0; c < columns; ++c)
      for (std::size_t d = 0; d < depth; ++d)
        result[d] += weights[c] * (slopes[c] - mean) * scale * k[c * step + d];
    want.push_back({row, result});
  }
  Doubles added(depth);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t d = 0; d < depth; ++d) added[d] += ct[r * step + d];
  auto f = jit([causal](Array q, Array k, Array v, Array ct) {
    const auto attend = [causal](std::vector<Array> x) {
      return shmap::attention(x[0], x[1], x[2], {.is_causal = causal});
    };
    return std::get<0>(vjp(attend, std::vector<Array>{q, k, v}).second(ct));
  });
  const auto upload = [&](const Values& values) {
    return astype(array<float>(values, shape), bf16);
  };
  const auto check = [=](const std::vector<Array>& bars) {
    std::vector<Values> got;  // results of the first head
    for (const Array& bar : bars)
      got.push_back(astype(bar[{0, range(0, std::int64_t(rows)), 0}], f32).to_vector<float>());
    for (const auto& [row, of_row] : want) {
      const std::span<const float> of_q(got[0].data() + row * depth, depth);
      double most = 0;
      for (double x : of_row) most = std::max(most, std::abs(x));
      const std::string fault = bench::difference(of_q, of_row, 0.03 * most + 1e-4);
      if (!fault.empty()) return "row " + std::to_string(row) + " of q's: " + fault;
    }
    Doubles of_v(depth);
    double with_q = 0, with_k = 0, size_of_k = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t d = 0; d < depth; ++d) {
        const std::size_t at = r * depth + d;
        of_v[d] += got[2][at];
        with_q += double(q[r * step + d]) * got[0][at];
        with_k += double(k[r * step + d]) * got[1][at];
        size_of_k += std::abs(double(k[r * step + d]) * got[1][at]);
      }
    }
    for (std::size_t d = 0; d < depth; ++d)
      if (!(std::abs(of_v[d] - added[d]) <= 0.02 * std::sqrt(double(rows)) + 0.05))
        return "v's add up to " + std::to_string(of_v[d]) + " and not " + std::to_string(added[d]);
    if (!(std::abs(with_q - with_k) <= 0.02 * size_of_k + 1e-3))
      return "q's with q are " + std::to_string(with_q) + ", k's with k " + std::to_string(with_k);
    return std::string();
  };
  return bench::queued(
      [f, q = upload(q), k = upload(k), v = upload(v), ct = upload(ct)] { return f(q, k, v, ct); },
      check);
}

// ------------------------------------------------------------------------- a transformer layer

namespace layer = bench::transformer;

// The mesh of 4 × 2 virtual devices, or one device, as the peers have.
Mesh layer_mesh(bool on_one) {
  return on_one ? make_mesh({1, 1}, {"i", "j"}, {devices().front()})
                : make_mesh({4, 2}, {"i", "j"});
}

Work transformer(bool on_one) {
  const layer::Data data(layer_mesh(on_one));
  return bench::queued(
      [f = jit(data.mapped()), x = data.input(), w = data.weights()] { return f(x, w); },
      [want = layer::reference(data, layer::kChecked)](const Array& y) {
        return layer::compare(y, want);
      });
}

Work transformer_grad(bool on_one) {
  auto loss = std::make_shared<layer::LayerLoss>(layer::Data(layer_mesh(on_one)));
  return bench::queued(
      [f = jit(grad<0, 1>(loss->loss())), x = loss->data.input(), w = loss->data.weights()] {
        auto [of_w, of_x] = f(w, x);
        return layer::Gradient{of_w, of_x};
      },
      [loss](const layer::Gradient& g) { return loss->check(g.of_w, g.of_x); });
}

std::vector<Row> all_rows() {
  using bench::kBranches, bench::kChained;
  std::vector<Row> rows = {
      {"eager_op", {}, [] { return eager_op(Timed::queued); }},
      {"eager_op:host", {}, [] { return eager_op(Timed::host); }},
      {"replay_line", {}, [] { return replayed_line(Timed::queued, kChained); }},
      {"replay_line:host", {}, [] { return replayed_line(Timed::host, kChained); }},
      {"replay_branches", {}, [] { return replayed_branches(Timed::queued); }},
      {"replay_branches:host", {}, [] { return replayed_branches(Timed::host); }},
      {"replay_serial", {}, [] { return replayed_line(Timed::queued, kBranches * kChained); }},
  };
  for (const std::int64_t n : bench::matrix_rows()) {
    const bench::Units units{.bytes = 8.0 * double(scaled(n)) * kColumns};
    const std::string size = "_" + std::to_string(n);
    rows.push_back({"fused_chain" + size, units, [n] { return fused_chain(n); }});
    rows.push_back({"softmax" + size, units, [n] { return softmax_row(n); }});
    rows.push_back({"rms_norm" + size, units, [n] { return rms_norm_row(n); }});
  }
  rows.push_back({"psum_64mb",
                  {.bytes = 4.0 * double(scaled(bench::kSummandFloats)), .bus_factor = 2.0 * 7 / 8},
                  psum_row});
  const bench::Units drawn{.bytes = 4.0 * double(scaled(bench::kRandoms))};
  rows.push_back({"random_bits_16m", drawn, random_bits_row});
  rows.push_back({"random_normal_16m", drawn, random_normal_row});
  rows.push_back({"random_bits_of_keys",
                  {.bytes = 4.0 * double(scaled(bench::kKeys) * bench::kOfKey)},
                  random_bits_of_keys});
  const auto points = double(scaled(bench::kPoints));
  rows.push_back(
      {"distances_2000", {.flops = 3 * points * points * bench::kCoordinates}, distances});
  for (const bench::SmallProduct& size : bench::small_products())
    rows.push_back({size.name(),
                    {.flops = 2.0 * double(size.rows * size.side * size.side)},
                    [size] { return small_products(size); }});
  // Attention has two products forward and five backward, and half as many flops if half is masked.
  // Kernels: the library's choice, its own, its own by wgmma, which is forward alone, cuDNN's, and
  // cuDNN's with additions in any order, which torch and JAX allow.
  const double forward = bench::attention_size().flops(), products = 3.5 * forward;
  constexpr std::pair<const char*, const char*> kKernels[] = {{"", "auto"},
                                                              {":own", "own"},
                                                              {":own_wgmma", "own_wgmma"},
                                                              {":cudnn", "cudnn"},
                                                              {":unordered", "cudnn_unordered"}};
  for (const auto& [name, kernel] : kKernels) {
    const auto add = [&, name = name, kernel = kernel](const char* row, double flops, auto make) {
      rows.push_back({std::string(row) + name, {.flops = flops}, [kernel, make] {
                        return by_kernel(kernel, make);
                      }});
    };
    if (std::string(kernel) != "cudnn_unordered")
      add("attention", forward, [] { return attention(bench::attention_size(), bf16); });
    if (std::string(kernel) == "own_wgmma") continue;
    add("attention_grad", products, [] { return attention_grad(false); });
    add("attention_causal_grad", products / 2, [] { return attention_grad(true); });
  }
  for (const bench::AttentionRow& row : bench::attention_rows())
    for (const auto& [name, kernel] : kKernels)
      if (std::string(kernel) != "cudnn_unordered")
        rows.push_back({row.name() + name, {.flops = row.size().flops()}, [row, kernel = kernel] {
                          return by_kernel(kernel, [row] {
                            return attention(row.size(), row.is_f16 ? f16 : bf16);
                          });
                        }});
  for (const bool on_one : {false, true}) {
    const std::string end = on_one ? "_on_one" : "";
    rows.push_back({"transformer" + end, {.flops = layer::kForwardFlops}, [on_one] {
                      return transformer(on_one);
                    }});
    rows.push_back({"transformer_grad" + end, {.flops = 3 * layer::kForwardFlops}, [on_one] {
                      return transformer_grad(on_one);
                    }});
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) { return bench::gpu_main(argc, argv, "gpu", all_rows); }
