// The library's side of `scripts/bench_vs_peers`. Uses only the public interface; bench/README.md
// describes the rows and their peers. Runs on `cpu:8` unless SHMAP_DEVICES says otherwise. Row
// jit_X is row X under jit.
#include <shmap/shmap.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/collective_matmul.h"
#include "bench/support/data.h"
#include "bench/support/rows.h"

namespace {

using namespace shmap;
using bench::Row;
using bench::Work;

constexpr int kDevices = 8;
constexpr std::size_t kM = 4096, kK = 2048, kN = 1024;  // the collective matmul

Mesh ring_mesh() { return make_mesh({kDevices}, {"i"}); }

Array on_mesh(const std::vector<float>& values, const Shape& shape, const P& spec) {
  return device_put(array<float>(values, shape), NamedSharding(ring_mesh(), spec));
}

std::vector<std::pair<int, int>> ring(int step) {
  std::vector<std::pair<int, int>> pairs;
  for (int k = 0; k < kDevices; ++k) pairs.push_back({k, (k + step + kDevices) % kDevices});
  return pairs;
}

// Device d's block of data made by random_floats(kDevices * n, seed).
std::span<const float> block(const std::vector<float>& values, std::size_t d) {
  std::size_t n = values.size() / kDevices;
  return std::span<const float>(values).subspan(d * n, n);
}

std::vector<double> sum_of_blocks(const std::vector<float>& values) {
  std::vector<double> sum(values.size() / kDevices, 0.0);
  for (std::size_t d = 0; d < kDevices; ++d)
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += block(values, d)[k];
  return sum;
}

// ---------------------------------------------------------------------------------- one eager op

Work eager_op() {
  struct Operands {
    std::vector<float> a = bench::random_floats(1024, 1), b = bench::random_floats(1024, 2);
    Array x = array<float>(a, {1024}), y = array<float>(b, {1024}), z;
  };
  auto t = std::make_shared<Operands>();
  auto time_batch = [t](std::int64_t n) {
    auto start = std::chrono::steady_clock::now();
    for (std::int64_t k = 0; k < n; ++k) t->z = t->x + t->y;
    t->z.block_until_ready();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  auto check = [t]() -> std::string {
    std::vector<float> want(1024);
    for (std::size_t k = 0; k < want.size(); ++k) want[k] = t->a[k] + t->b[k];
    return bench::difference(t->z.to_vector<float>(), std::span<const float>(want));
  };
  return {{}, check, time_batch};
}

// ------------------------------------------------------------- one call of a shard_map in each
// call

enum class Form { eager, jitted };

// The result of a call is dropped before the next one.
template <class F, class... A>
Work waited_calls(F f, std::function<std::string(const Array&)> check, A... args) {
  auto result = std::make_shared<Array>();
  auto call = [f, result, args...] {
    *result = Array();
    *result = f(args...);
    result->block_until_ready();
  };
  return {call, [result, check] { return check(*result); }, {}};
}

// `f` is a shard_map of one argument.
template <class F>
Work calls_of(Form form, F f, Array x, std::function<std::string(const Array&)> check) {
  return form == Form::jitted ? waited_calls(jit(f), check, x) : waited_calls(f, check, x);
}

Array elementwise_body(Array x) {
  Array y = sin(x);
  y = y * x;
  y = sin(y);
  y = y + x;
  y = sin(y);
  y = y * x;
  y = sin(y);
  y = y + x;
  y = sin(y);
  y = y - x;
  return psum(y, "i");
}

std::vector<double> sum_of_bodies(const std::vector<float>& values) {
  std::vector<double> want(1024, 0.0);
  for (std::size_t d = 0; d < kDevices; ++d) {
    for (std::size_t k = 0; k < want.size(); ++k) {
      double v = block(values, d)[k];
      double w = std::sin(std::sin(std::sin(v) * v) + v);
      want[k] += std::sin(std::sin(w * v) + v) - v;
    }
  }
  return want;
}

Work body_row(Form form) {
  std::vector<float> values = bench::random_floats(kDevices * 1024, 3);
  std::vector<double> want = sum_of_bodies(values);
  return calls_of(form, shard_map(elementwise_body, ring_mesh(), P("i"), P()),
                  on_mesh(values, {values.size()}, P("i")), [want](const Array& y) {
                    return bench::difference(y.to_vector<float>(), want, 1e-4);
                  });
}

// Each call is the first call of a jit: it traces, lowers, fuses, plans and runs.
Work first_call_of_body() {
  std::vector<float> values = bench::random_floats(kDevices * 1024, 3);
  std::vector<double> want = sum_of_bodies(values);
  auto f = shard_map(elementwise_body, ring_mesh(), P("i"), P());
  return waited_calls(
      [f](const Array& x) { return jit(f)(x); },
      [want](const Array& y) { return bench::difference(y.to_vector<float>(), want, 1e-4); },
      on_mesh(values, {values.size()}, P("i")));
}

enum class Kind { psum, all_gather, psum_scatter, all_to_all, ppermute };
constexpr const char* kNames[] = {"psum", "all_gather", "psum_scatter", "all_to_all", "ppermute"};

Work psum_row(Form form, std::size_t n) {
  std::vector<float> values = bench::random_floats(kDevices * n, 4);
  std::vector<double> want = sum_of_blocks(values);
  return calls_of(form, shard_map([](Array x) { return psum(x, "i"); }, ring_mesh(), P("i"), P()),
                  on_mesh(values, {values.size()}, P("i")), [want](const Array& y) {
                    return bench::difference(y.to_vector<float>(), want, 1e-5);
                  });
}

Work all_gather_row(Form form, std::size_t n) {
  std::vector<float> values = bench::random_floats(kDevices * n, 5);
  auto gather = [](Array x) { return all_gather(x, "i", {.axis = 0, .tiled = true}); };
  return calls_of(
      form, shard_map(gather, ring_mesh(), P("i"), P("i")),
      on_mesh(values, {values.size()}, P("i")), [values](const Array& y) -> std::string {
        for (const Shard& shard : y.addressable_shards()) {
          std::string fault =
              bench::difference(shard.data.to_vector<float>(), std::span<const float>(values));
          if (!fault.empty()) return fault;
        }
        return {};
      });
}

Work psum_scatter_row(Form form, std::size_t n) {
  std::vector<float> values = bench::random_floats(kDevices * n, 6);
  std::vector<double> want = sum_of_blocks(values);
  auto scatter = [](Array x) {
    return psum_scatter(x, "i", {.scatter_dimension = 0, .tiled = true});
  };
  return calls_of(form, shard_map(scatter, ring_mesh(), P("i"), P("i")),
                  on_mesh(values, {values.size()}, P("i")), [want](const Array& y) {
                    return bench::difference(y.to_vector<float>(), want, 1e-5);
                  });
}

Work all_to_all_row(Form form, std::size_t n) {
  std::vector<float> values = bench::random_floats(kDevices * n, 7);
  std::vector<float> want(values.size());
  std::size_t part = n / kDevices;
  for (std::size_t from = 0; from < kDevices; ++from)
    for (std::size_t to = 0; to < kDevices; ++to)
      std::copy_n(&values[from * n + to * part], part, &want[to * n + from * part]);
  auto exchange = [](Array x) { return all_to_all(x, "i", 0, 0, {.tiled = true}); };
  return calls_of(form, shard_map(exchange, ring_mesh(), P("i"), P("i")),
                  on_mesh(values, {values.size()}, P("i")), [want](const Array& y) {
                    return bench::difference(y.to_vector<float>(), std::span<const float>(want));
                  });
}

Work ppermute_row(Form form, std::size_t n) {
  std::vector<float> values = bench::random_floats(kDevices * n, 8);
  std::vector<float> want(values.size());
  std::rotate_copy(values.begin(), values.end() - std::ptrdiff_t(n), values.end(), want.begin());
  auto permute = [pairs = ring(+1)](Array x) { return ppermute(x, "i", pairs); };
  return calls_of(form, shard_map(permute, ring_mesh(), P("i"), P("i")),
                  on_mesh(values, {values.size()}, P("i")), [want](const Array& y) {
                    return bench::difference(y.to_vector<float>(), std::span<const float>(want));
                  });
}

Work collective_row(Form form, Kind kind, std::size_t n) {
  switch (kind) {
    case Kind::psum:
      return psum_row(form, n);
    case Kind::all_gather:
      return all_gather_row(form, n);
    case Kind::psum_scatter:
      return psum_scatter_row(form, n);
    case Kind::all_to_all:
      return all_to_all_row(form, n);
    case Kind::ppermute:
      break;
  }
  return ppermute_row(form, n);
}

// --------------------------------------------------------------------------------------- products

Work matmul_row(std::size_t n, DType dtype) {
  struct Operands {
    std::vector<float> a, b;
    Array x, y, z;
  };
  auto t = std::make_shared<Operands>();
  t->a = bench::random_floats(n * n, 1);
  t->b = bench::random_floats(n * n, 2);
  if (dtype == DType::bf16) {
    t->a = bench::rounded_to_bf16(std::move(t->a));
    t->b = bench::rounded_to_bf16(std::move(t->b));
  }
  t->x = astype(array<float>(t->a, {n, n}), dtype);
  t->y = astype(array<float>(t->b, {n, n}), dtype);
  auto call = [t] {
    t->z = Array();
    t->z = matmul(t->x, t->y);
    t->z.block_until_ready();
  };
  auto check = [t, n, dtype]() -> std::string {
    if (t->z.dtype() != dtype) return "the product has another dtype";
    std::vector<float> c = astype(t->z, DType::f32).to_vector<float>();
    return bench::product_difference(t->a, t->b, c, n, n, n, dtype == DType::f32 ? 1e-2 : 1.0);
  };
  return {call, check, {}};
}

// Matmul reduce-scatter: the sum for a device travels round the ring, and each device adds to it.
Array matmul_scatter(Array lhs, Array rhs) {
  int n = axis_size("i");
  Array index = axis_index("i");
  std::int64_t rows = lhs.shape()[0] / n;
  Array total;
  for (int step = 0; step < n; ++step) {
    Array at = ((index - step - 1) % n) * rows;
    Array product = matmul(dynamic_slice(lhs, {at, 0}, {rows, lhs.shape()[1]}), rhs);
    total = step == 0 ? product : ppermute(std::move(total), "i", ring(+1)) + std::move(product);
  }
  return total;
}

template <class F>
Work collective_matmul(Form form, F body, P lhs_spec, P rhs_spec, P out_spec) {
  struct Operands {
    std::vector<float> a = bench::random_floats(kM * kK, 1), b = bench::random_floats(kK * kN, 2);
  };
  auto t = std::make_shared<Operands>();
  Array x = on_mesh(t->a, {kM, kK}, lhs_spec), y = on_mesh(t->b, {kK, kN}, rhs_spec);
  auto f = shard_map(body, ring_mesh(), {lhs_spec, rhs_spec}, out_spec, {.check_vma = false});
  auto check = [t](const Array& z) {
    return bench::product_difference(t->a, t->b, z.to_vector<float>(), kM, kK, kN, 1e-2);
  };
  return form == Form::jitted ? waited_calls(jit(f), check, x, y) : waited_calls(f, check, x, y);
}

// ------------------------------------------------------------------------------------------- rows

// Adds the rows of one form; jitted rows are called jit_….
void add_shard_map_rows(std::vector<Row>& rows, Form form) {
  const std::string prefix = form == Form::jitted ? "jit_" : "";
  for (Kind kind :
       {Kind::psum, Kind::all_gather, Kind::psum_scatter, Kind::all_to_all, Kind::ppermute}) {
    const std::pair<const char*, std::size_t> sizes[] = {
        {"1kb", std::size_t{1} << 10},
        {"1mb", std::size_t{1} << 20},
        kind == Kind::all_gather ? std::pair{"4mb", std::size_t{4} << 20}
                                 : std::pair{"16mb", std::size_t{16} << 20}};
    for (auto [size, bytes] : sizes) {
      double whole = kind == Kind::all_gather ? double(kDevices * bytes) : double(bytes);
      double factor = kind == Kind::psum       ? 2.0 * (kDevices - 1) / kDevices
                      : kind == Kind::ppermute ? 1.0
                                               : double(kDevices - 1) / kDevices;
      rows.push_back({prefix + kNames[int(kind)] + "_" + size,
                      {.bytes = whole, .bus_factor = factor},
                      [form, kind, bytes = bytes] {
                        return collective_row(form, kind, bytes / sizeof(float));
                      }});
    }
  }
  double flops = 2.0 * double(kM) * double(kK) * double(kN);
  rows.push_back({prefix + "cm_seed", {.flops = kDevices * flops}, [form] {
                    return collective_matmul(form, bench::gather_matmul, P("i", none), P(), P());
                  }});
  rows.push_back({prefix + "cm_gather", {.flops = flops}, [form] {
                    return collective_matmul(form, bench::gather_matmul, P("i", none), P(none, "i"),
                                             P(none, "i"));
                  }});
  rows.push_back({prefix + "cm_scatter", {.flops = flops}, [form] {
                    return collective_matmul(form, matmul_scatter, P(none, "i"), P("i", none),
                                             P("i", none));
                  }});
  // The library's own products, in each form.
  const std::pair<const char*, Overlap> forms[] = {{"automatic", Overlap::automatic},
                                                   {"none", Overlap::none},
                                                   {"ring", Overlap::ring},
                                                   {"two_rings", Overlap::two_rings}};
  for (const auto& [name, overlap] : forms) {
    rows.push_back({prefix + "cm_gather_" + name, {.flops = flops}, [form, overlap = overlap] {
                      const auto body = [overlap](Array lhs, Array rhs) {
                        return all_gather_einsum("mk,kn->mn", lhs, rhs, "i", {.form = overlap});
                      };
                      return collective_matmul(form, body, P("i", none), P(none, "i"),
                                               P(none, "i"));
                    }});
    rows.push_back({prefix + "cm_scatter_" + name, {.flops = flops}, [form, overlap = overlap] {
                      const auto body = [overlap](Array lhs, Array rhs) {
                        return einsum_psum_scatter("mk,kn->mn", lhs, rhs, "i", {.form = overlap});
                      };
                      return collective_matmul(form, body, P(none, "i"), P("i", none),
                                               P("i", none));
                    }});
  }
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  rows.push_back({"eager_op", {}, eager_op});
  rows.push_back({"eager_body", {}, [] { return body_row(Form::eager); }});
  rows.push_back({"jit_body", {}, [] { return body_row(Form::jitted); }});
  rows.push_back({"first_call", {}, first_call_of_body});
  add_shard_map_rows(rows, Form::eager);
  add_shard_map_rows(rows, Form::jitted);
  for (std::size_t n : {std::size_t{1024}, std::size_t{2048}}) {
    double flops = 2.0 * double(n) * double(n) * double(n);
    std::string size = std::to_string(n);
    rows.push_back({"sgemm_" + size, {.flops = flops}, [n] { return matmul_row(n, DType::f32); }});
    rows.push_back(
        {"bf16_matmul_" + size, {.flops = flops}, [n] { return matmul_row(n, DType::bf16); }});
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  init(argc, argv, {.devices = devices == nullptr ? "cpu:8" : devices});
  return bench::bench_main(argc, argv, "shmap", all_rows(),
                           {{"devices", devices == nullptr ? "cpu:8" : devices}});
}
