#include "tests/support/failing_ops.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "shmap/extend.h"
#include "shmap/shmap.h"

namespace shmap::test {
namespace {

using Numbers = std::vector<std::int32_t>;
using Arrays = std::vector<Array>;
using Outcomes = std::vector<Outcome>;

// Arithmetic of the devices' i32, which wraps.
std::int32_t wrapped(std::int64_t x) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::uint64_t>(x)));
}

bool is_poison(std::int32_t key) { return (key & 7) == 7; }
std::string poison(std::int32_t key) { return "poison " + std::to_string(key) + "."; }

// checked(x, key) is x; its kernel throws where the key is poison.
const extend::Primitive& checked_primitive() {
  static const extend::Primitive primitive = [] {
    extend::Primitive p("checked");
    p.def_abstract_eval([](ShapedArray x, ShapedArray) { return x; })
        .def_sharding_rule("a,b->a")
        .def_cpu_kernel([](const extend::KernelArgs& k) {
          const std::int32_t key = *k.input<std::int32_t>(1);
          if (is_poison(key)) throw std::runtime_error(poison(key));
          std::memcpy(k.out[0], k.in[0], static_cast<std::size_t>(k.in_types[0].nbytes()));
        });
    return p;
  }();
  return primitive;
}
Array checked(const Array& x, const Array& key) { return checked_primitive().bind(x, key); }

// The outcome of checked(x, key) for keys that follow each other; result(x) where none is poison.
Outcome after_checks(const Outcome& x, const Outcome& key, Numbers numbers, int checks) {
  Outcome out = outcome_of(std::move(numbers), {&x, &key});
  if (!key.computed) return out;
  for (int k = 0; k < checks; ++k) {
    const std::int32_t value = wrapped(std::int64_t{key.numbers[0]} + k);
    if (!is_poison(value)) continue;
    out.errors.insert(poison(value));
    out.computed = false;
    out.in_part = false;
    break;
  }
  return out;
}

template <class F>
Numbers each(const Outcome& x, F f) {
  Numbers out(x.numbers.size());
  for (std::size_t e = 0; e < out.size(); ++e) out[e] = wrapped(f(std::int64_t{x.numbers[e]}));
  return out;
}
template <class F>
Numbers each(const Outcome& x, const Outcome& y, F f) {
  Numbers out(x.numbers.size());
  for (std::size_t e = 0; e < out.size(); ++e)
    out[e] = wrapped(
        f(std::int64_t{x.numbers[e]}, std::int64_t{y.numbers[y.numbers.size() == 1 ? 0 : e]}));
  return out;
}
std::int32_t sum_of(const Numbers& x) {
  return wrapped(std::accumulate(x.begin(), x.end(), std::int64_t{0}));
}

// Of each number of x: f(x) is computed by the devices and the host alike.
template <class F>
FailingOp of_each(const char* name, F f) {
  return {name,
          1,
          0,
          false,
          false,
          [f](Arrays x) { return f(std::move(x[0])); },
          [f](const Outcomes& x) { return outcome_of(each(x[0], f), {&x[0]}); }};
}
template <class F>
FailingOp of_two(const char* name, std::size_t arrays, F f) {
  return {name,
          arrays,
          2 - arrays,
          false,
          false,
          [f](Arrays x) { return f(std::move(x[0]), std::move(x[1])); },
          [f](const Outcomes& x) {
            return outcome_of(each(x[0], x[1], f), {&x[0], &x[1]});
          }};
}
// from(e, n, x): which element of x[0] is element e of the result; every block of x[0] is read.
template <class Ours, class From>
FailingOp moves(const char* name, Ours ours, From from) {
  return {name, 1, 0, false, false, ours, [from](const Outcomes& x) {
            const std::size_t n = x[0].numbers.size();
            Numbers out(n);
            for (std::size_t e = 0; e < n; ++e) out[e] = x[0].numbers[from(e, n)];
            return outcome_of(std::move(out), {&x[0]});
          }};
}
// A body on the blocks, over both axes of the mesh; the result's block of the device at (i, j) is
// block(blocks, i, j).
using Blocks = std::vector<Numbers>;
template <class Body, class Block>
FailingOp mapped(const char* name, Body body, Block block, bool reads_all = true) {
  return {name,
          1,
          0,
          false,
          false,
          [body](Arrays x) {
            return shard_map(body, failing_mesh(), {P(axes("i", "j"))},
                             P(axes("i", "j")))(std::move(x[0]));
          },
          [=](const Outcomes& x) {
            const std::size_t b = x[0].numbers.size() / 8;
            Blocks blocks;
            for (std::size_t d = 0; d < 8; ++d)
              blocks.emplace_back(x[0].numbers.begin() + static_cast<std::ptrdiff_t>(d * b),
                                  x[0].numbers.begin() + static_cast<std::ptrdiff_t>(d * b + b));
            Numbers out;
            for (std::size_t d = 0; d < 8; ++d) {
              const Numbers part = block(blocks, d / 2, d % 2);
              out.insert(out.end(), part.begin(), part.end());
            }
            return reads_all ? outcome_of(std::move(out), {&x[0]})
                             : outcome_of(std::move(out), {}, {&x[0]});
          }};
}
Numbers plus(Numbers x, const Numbers& y) {
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = wrapped(std::int64_t{x[e]} + y[e]);
  return x;
}
Array scalar(const Array& key) { return reshape(key, Shape({})); }

void add_operations_of_arrays(std::vector<FailingOp>& ops) {
  ops.push_back(of_two("add", 2, [](auto a, auto b) { return std::move(a) + std::move(b); }));
  ops.push_back(of_two("subtract_twice", 2, [](auto a, auto b) { return a - b * 2; }));
  ops.push_back(of_two("multiply", 2, [](auto a, auto b) { return std::move(a) * std::move(b); }));
  ops.push_back(of_two("add_key", 1, [](auto a, auto k) { return std::move(a) + std::move(k); }));
  ops.push_back(of_each("triple", [](auto a) { return std::move(a) * 3 + 1; }));
  ops.push_back(of_each("negative", [](auto a) { return -std::move(a); }));
  ops.push_back(
      {"larger", 2, 0, false, false, [](Arrays x) { return where(x[0] > x[1], x[0], x[1] + 1); },
       [](const Outcomes& x) {
         const auto larger = [](std::int64_t a, std::int64_t b) { return a > b ? a : b + 1; };
         return outcome_of(each(x[0], x[1], larger), {&x[0], &x[1]});
       }});
  ops.push_back(moves(
      "flip", [](Arrays x) { return flip(std::move(x[0])); },
      [](std::size_t e, std::size_t n) { return n - 1 - e; }));
  ops.push_back(moves(
      "roll", [](Arrays x) { return roll(x[0], {x[0].size() / 4}); },
      [](std::size_t e, std::size_t n) { return (e + n - n / 4) % n; }));
  ops.push_back(moves(
      "transpose",
      [](Arrays x) {
        const std::int64_t n = x[0].size();
        return reshape(transpose(reshape(std::move(x[0]), {8, n / 8})), {n});
      },
      [](std::size_t e, std::size_t n) { return e % 8 * (n / 8) + e / 8; }));
  ops.push_back({"halves", 2, 0, false, false,
                 [](Arrays x) {
                   const std::int64_t n = x[0].size();
                   return concatenate({slice(x[0], {0}, {n / 2}), slice(x[1], {n / 2}, {n})});
                 },
                 [](const Outcomes& x) {
                   Numbers out = x[1].numbers;
                   std::copy_n(x[0].numbers.begin(), out.size() / 2, out.begin());
                   return outcome_of(std::move(out), {}, {&x[0], &x[1]});
                 }});
  ops.push_back({"take", 2, 0, false, false,
                 [](Arrays x) { return take(x[0], bitwise_and(x[1], 63)); },
                 [](const Outcomes& x) {
                   Numbers out;
                   for (const std::int32_t at : x[1].numbers)
                     out.push_back(x[0].numbers[static_cast<std::size_t>(at & 63)]);
                   return outcome_of(std::move(out), {&x[1]}, {&x[0]});
                 }});
  ops.push_back({"update", 2, 1, false, false,
                 [](Arrays x) {
                   const std::int64_t n = x[0].size();
                   const Array at = scalar(bitwise_and(x[2], 31));
                   const Array part = slice(x[1], {0}, {n / 4});
                   return dynamic_update_slice(std::move(x[0]), part, {at});
                 },
                 [](const Outcomes& x) {
                   Numbers out = x[0].numbers;
                   std::copy_n(x[1].numbers.begin(), out.size() / 4,
                               out.begin() + (x[2].numbers[0] & 31));
                   return outcome_of(std::move(out), {&x[2]}, {&x[0], &x[1]});
                 }});
  ops.push_back(
      {"dynamic_slice", 1, 1, false, false,
       [](Arrays x) {
         const std::int64_t n = x[0].size();
         const Array part = dynamic_slice(x[0], {scalar(bitwise_and(x[1], 31))}, {n / 2});
         return concatenate({part, part});
       },
       [](const Outcomes& x) {
         Numbers out(x[0].numbers.size());
         for (std::size_t e = 0; e < out.size(); ++e)
           out[e] =
               x[0].numbers[static_cast<std::size_t>(x[1].numbers[0] & 31) + e % (out.size() / 2)];
         return outcome_of(std::move(out), {&x[1]}, {&x[0]});
       }});
  ops.push_back({"add_sum", 1, 0, false, false, [](Arrays x) { return x[0] + sum(x[0]); },
                 [](const Outcomes& x) {
                   const std::int64_t all = sum_of(x[0].numbers);
                   return outcome_of(each(x[0], [&](std::int64_t a) { return a + all; }), {&x[0]});
                 }});
  ops.push_back({"cumsum", 1, 0, false, false, [](Arrays x) { return cumsum(x[0], 0); },
                 [](const Outcomes& x) {
                   std::int64_t all = 0;
                   return outcome_of(each(x[0], [&](std::int64_t a) { return all += a; }), {&x[0]});
                 }});
  ops.push_back({"sort", 1, 0, false, false, [](Arrays x) { return sort(x[0]); },
                 [](const Outcomes& x) {
                   Numbers out = x[0].numbers;
                   std::ranges::sort(out);
                   return outcome_of(std::move(out), {&x[0]});
                 }});
  // Sums of at most 49 * 8 * n / 8, which f32 holds exactly.
  ops.push_back({"product", 2, 0, false, false,
                 [](Arrays x) {
                   const std::int64_t n = x[0].size();
                   const Array a = astype(reshape(bitwise_and(x[0], 7), {8, n / 8}), f32);
                   const Array b = astype(reshape(bitwise_and(x[1], 7), {n / 8, 8}), f32);
                   const Array rows = astype(sum(matmul(a, b), 1, true), i32);
                   return reshape(reshape(x[0], {8, n / 8}) + rows, {n});
                 },
                 [](const Outcomes& x) {
                   const std::size_t n = x[0].numbers.size();
                   Numbers out(n), sums(n / 8);
                   for (std::size_t e = 0; e < n; ++e) sums[e / 8] += x[1].numbers[e] & 7;
                   for (std::size_t row = 0; row < 8; ++row) {
                     std::int64_t all = 0;
                     for (std::size_t k = 0; k < n / 8; ++k)
                       all += std::int64_t{x[0].numbers[row * (n / 8) + k] & 7} * sums[k];
                     for (std::size_t k = 0; k < n / 8; ++k)
                       out[row * (n / 8) + k] = wrapped(x[0].numbers[row * (n / 8) + k] + all);
                   }
                   return outcome_of(std::move(out), {&x[0], &x[1]});
                 }});
  // A product that an addition of values that are given up takes up.
  ops.push_back({"product_and_sum", 3, 0, false, false,
                 [](Arrays x) {
                   const std::int64_t n = x[0].size();
                   const auto few = [](const Array& a) { return astype(bitwise_and(a, 7), f32); };
                   const Array weights = few(reshape(slice(x[1], {0}, {64}), {8, 8}));
                   Array rest = few(reshape(x[2], {n / 8, 8}));
                   Array product = matmul(few(reshape(x[0], {n / 8, 8})), weights);
                   return reshape(astype(std::move(rest) + std::move(product), i32), {n});
                 },
                 [](const Outcomes& x) {
                   const auto few = [](const Outcome& a, std::size_t e) {
                     return a.numbers[e] & 7;
                   };
                   Numbers out(x[0].numbers.size());
                   for (std::size_t e = 0; e < out.size(); ++e) {
                     out[e] = few(x[2], e);
                     for (std::size_t k = 0; k < 8; ++k)
                       out[e] += few(x[0], e / 8 * 8 + k) * few(x[1], k * 8 + e % 8);
                   }
                   return outcome_of(std::move(out), {&x[0], &x[2]}, {&x[1]});
                 }});
}

void add_placements(std::vector<FailingOp>& ops) {
  const auto same = [](const Outcomes& x) { return outcome_of(x[0].numbers, {&x[0]}); };
  const std::pair<const char*, P> specs[] = {{"put_ij", P(axes("i", "j"))},
                                             {"put_ji", P(axes("j", "i"))},
                                             {"put_i", P("i")},
                                             {"put_j", P("j")},
                                             {"put_everywhere", P()}};
  for (const auto& [name, spec] : specs)
    ops.push_back({name, 1, 0, false, false,
                   [spec = spec](Arrays x) {
                     return device_put(std::move(x[0]), NamedSharding(failing_mesh(), spec));
                   },
                   same});
  ops.push_back({"put_there_and_back", 1, 0, false, false,
                 [](Arrays x) {
                   const Array there = device_put(x[0], devices()[5]);
                   return device_put(there, NamedSharding(failing_mesh(), P(axes("i", "j"))));
                 },
                 same, /*several_meshes=*/true});
}

void add_mapped(std::vector<FailingOp>& ops) {
  ops.push_back(mapped(
      "psum", [](Array x) { return x + psum(x, axes("i", "j")); },
      [](const Blocks& x, std::size_t i, std::size_t j) {
        Numbers out = x[2 * i + j];
        for (const Numbers& other : x) out = plus(std::move(out), other);
        return out;
      }));
  ops.push_back(mapped(
      "psum_j", [](Array x) { return x * 2 + psum(x, "j"); },
      [](const Blocks& x, std::size_t i, std::size_t j) {
        const Numbers& own = x[2 * i + j];
        return plus(plus(plus(x[2 * i], x[2 * i + 1]), own), own);
      }));
  ops.push_back(mapped(
      "ppermute",
      [](Array x) {
        return ppermute(x, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}}) + 1;
      },
      [](const Blocks& x, std::size_t i, std::size_t j) {
        Numbers out = x[2 * ((i + 3) % 4) + j];
        for (std::int32_t& a : out) a = wrapped(std::int64_t{a} + 1);
        return out;
      }));
  ops.push_back(mapped(
      "scatter_and_gather",
      [](Array x) {
        const Array part = psum_scatter(x, "j", {.tiled = true});
        return all_gather(part, "j", {.tiled = true}) * 1;
      },
      [](const Blocks& x, std::size_t i, std::size_t) { return plus(x[2 * i], x[2 * i + 1]); }));
  ops.push_back(mapped(
      "all_gather", [](Array x) { return x + sum(all_gather(x, "i"), 0); },
      [](const Blocks& x, std::size_t i, std::size_t j) {
        Numbers out = x[2 * i + j];
        for (std::size_t k = 0; k < 4; ++k) out = plus(std::move(out), x[2 * k + j]);
        return out;
      }));
  ops.push_back(mapped(
      "all_to_all", [](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); },
      [](const Blocks& x, std::size_t i, std::size_t j) {
        const std::size_t piece = x[0].size() / 4;
        Numbers out;
        for (std::size_t from = 0; from < 4; ++from)
          for (std::size_t e = 0; e < piece; ++e) out.push_back(x[2 * from + j][i * piece + e]);
        return out;
      }));
  ops.push_back(mapped(
      "broadcast_from", [](Array x) { return broadcast_from(x, "i", 2) + x * 0; },
      [](const Blocks& x, std::size_t, std::size_t j) { return x[4 + j]; },
      /*reads_all=*/false));
}

void add_keys(std::vector<FailingOp>& ops) {
  ops.push_back({"key_sum", 1, 0, true, false,
                 [](Arrays x) { return reshape(sum(bitwise_and(x[0], 15)), {1}); },
                 [](const Outcomes& x) {
                   std::int64_t all = 0;
                   for (const std::int32_t a : x[0].numbers) all += a & 15;
                   return outcome_of({wrapped(all)}, {&x[0]});
                 }});
  ops.push_back({"key_next", 0, 1, true, false, [](Arrays x) { return std::move(x[0]) + 1; },
                 [](const Outcomes& x) {
                   return outcome_of(each(x[0], [](std::int64_t k) { return k + 1; }), {&x[0]});
                 }});
  ops.push_back({"key_of_two", 0, 2, true, false, [](Arrays x) { return x[0] * 3 + x[1]; },
                 [](const Outcomes& x) {
                   const auto mix = [](std::int64_t a, std::int64_t b) { return 3 * a + b; };
                   return outcome_of(each(x[0], x[1], mix), {&x[0], &x[1]});
                 }});
}

void add_flow(std::vector<FailingOp>& ops) {
  ops.push_back({"while_loop", 1, 1, false, true,
                 [](Arrays x) {
                   return while_loop(
                       [](const Arrays& c) { return scalar(bitwise_and(c[1], 3) != 0); },
                       [](Arrays c) {
                         return Arrays{c[0] + c[1], c[1] + 1};
                       },
                       x)[0];
                 },
                 [](const Outcomes& x) {
                   Numbers out = x[0].numbers;
                   for (std::int64_t k = x[1].numbers[0]; (k & 3) != 0; ++k)
                     for (std::int32_t& a : out) a = wrapped(std::int64_t{a} + wrapped(k));
                   return outcome_of(std::move(out), {&x[0], &x[1]});
                 }});
  ops.push_back(
      {"cond", 2, 1, false, true,
       [](Arrays x) {
         return cond(
             scalar(bitwise_and(x[2], 1) == 0), [](Array a, Array b) { return a + b; },
             [](Array a, Array b) { return a - b; }, x[0], x[1]);
       },
       [](const Outcomes& x) {
         const std::int64_t sign = (x[2].numbers[0] & 1) == 0 ? 1 : -1;
         return outcome_of(
             each(x[0], x[1], [&](std::int64_t a, std::int64_t b) { return a + sign * b; }),
             {&x[0], &x[1], &x[2]});
       }});
  // Long enough for a loop of a plan to be one task.
  ops.push_back({"long_loop", 1, 1, false, false,
                 [](Arrays x) {
                   const Array k = x[1];
                   return fori_loop(
                       0, 20, [k](Array, Array a) { return a * 3 + k; }, x[0]);
                 },
                 [](const Outcomes& x) {
                   const std::int64_t k = x[1].numbers[0];
                   Numbers out = x[0].numbers;
                   for (std::int32_t& a : out)
                     for (int t = 0; t < 20; ++t) a = wrapped(std::int64_t{a} * 3 + k);
                   return outcome_of(std::move(out), {&x[0], &x[1]});
                 },
                 /*several_meshes=*/false, /*tasks=*/400});
}

void add_own_failures(std::vector<FailingOp>& ops) {
  ops.push_back({"checked", 1, 1, false, false, [](Arrays x) { return checked(x[0], x[1]); },
                 [](const Outcomes& x) { return after_checks(x[0], x[1], x[0].numbers, 1); }});
  // What fails is not used by anyone, and its memory is free for the result.
  ops.push_back({"drops_a_failure", 1, 0, false, false,
                 [](Arrays x) {
                   return shard_map(
                       [](Array b) {
                         checked(b * 3, array<std::int32_t>({4095}, {1}));
                         return b * 3 + 1;
                       },
                       failing_mesh(), {P(axes("i", "j"))}, P(axes("i", "j")))(x[0]);
                 },
                 [](const Outcomes& x) {
                   return outcome_of(each(x[0], [](std::int64_t a) { return a * 3 + 1; }), {&x[0]});
                 }});
  // The rank whose key is poison differs from the others in no other way.
  ops.push_back(
      {"checked_on_a_rank", 1, 0, false, false,
       [](Arrays x) {
         return shard_map(
             [](Array b) { return checked(b, reshape(where(axis_index("i") == 2, 2047, 0), {1})); },
             failing_mesh(), {P(axes("i", "j"))}, P(axes("i", "j")))(x[0]);
       },
       [](const Outcomes& x) {
         Outcome out = outcome_of(x[0].numbers, {&x[0]});
         if (out.computed || out.in_part) out.in_part = true;
         out.computed = false;
         out.errors.insert(poison(2047));
         return out;
       }});
  ops.push_back({"checked_loop", 1, 1, false, false,
                 [](Arrays x) {
                   return fori_loop(
                       0, 3,
                       [](Array, Arrays c) {
                         return Arrays{checked(c[0], c[1]) + 1, c[1] + 1};
                       },
                       x)[0];
                 },
                 [](const Outcomes& x) {
                   return after_checks(x[0], x[1], each(x[0], [](std::int64_t a) { return a + 3; }),
                                       3);
                 }});
  ops.push_back({"checked_scan", 1, 1, false, false,
                 [](Arrays x) {
                   const Array xs = reshape(x[1], {1, 1}) + reshape(arange(2, i32), {2, 1});
                   const auto trip = [](Array carry, Array key) {
                     return std::pair(checked(carry, key) * 2, key);
                   };
                   return scan(trip, x[0], xs).first;
                 },
                 [](const Outcomes& x) {
                   return after_checks(x[0], x[1], each(x[0], [](std::int64_t a) { return a * 4; }),
                                       2);
                 }});
  ops.push_back(
      {"checked_cond", 1, 1, false, true,
       [](Arrays x) {
         return cond(
             scalar(bitwise_and(x[1], 3) == 3), [](Array a, Array k) { return checked(a, k); },
             [](Array a, Array k) { return a + k; }, x[0], x[1]);
       },
       [](const Outcomes& x) {
         const std::int64_t k = x[1].numbers[0];
         if ((k & 3) == 3) return after_checks(x[0], x[1], x[0].numbers, 1);
         return outcome_of(each(x[0], [&](std::int64_t a) { return a + k; }), {&x[0], &x[1]});
       }});
}

}  // namespace

Outcome outcome_of(std::vector<std::int32_t> numbers, const std::vector<const Outcome*>& whole,
                   const std::vector<const Outcome*>& parts) {
  Outcome out;
  out.numbers = std::move(numbers);
  bool all_fail = false;
  for (const Outcome* x : whole) {
    out.computed &= x->computed;
    all_fail |= !x->computed && !x->in_part;
    out.errors.insert(x->errors.begin(), x->errors.end());
  }
  for (const Outcome* x : parts) {
    out.computed &= x->computed || x->in_part;
    all_fail |= !x->computed && !x->in_part && parts.size() == 1;
    out.errors.insert(x->errors.begin(), x->errors.end());
  }
  out.in_part = !out.errors.empty() && !all_fail;
  return out;
}

const Mesh& failing_mesh() {
  static const Mesh mesh = make_mesh({4, 2}, {"i", "j"});
  return mesh;
}

std::vector<FailingOp> failing_ops(bool own_failures) {
  std::vector<FailingOp> ops;
  add_operations_of_arrays(ops);
  add_placements(ops);
  add_mapped(ops);
  add_keys(ops);
  add_flow(ops);
  if (own_failures) add_own_failures(ops);
  return ops;
}

}  // namespace shmap::test
