// Products on one GPU in bf16: of single arrays, and over a ring of its virtual devices. Runs on
// `cuda:0x8` unless SHMAP_DEVICES says otherwise; bench/README.md describes the rows.
#include <shmap/shmap.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/support/collective_matmul.h"
#include "bench/support/gpu_main.h"
#include "bench/support/gpu_sizes.h"
#include "bench/support/product_sample.h"
#include "bench/support/queued.h"
#include "bench/support/rows.h"

namespace {

using namespace shmap;
using bench::ProductSample;
using bench::ProductSize;
using bench::RingProduct;
using bench::Row;
using bench::Work;

// Random factors on the host, and a sample of their product.
struct Factors {
  ProductSize size;
  std::vector<bfloat16> a, b;
  ProductSample sample;

  explicit Factors(const ProductSize& full)
      : size(full.small()),
        a(bench::random_bf16(std::size_t(size.m * size.k), 1)),
        b(bench::random_bf16(std::size_t(size.k * size.n), 2)),
        sample(a, b, size.m, size.k, size.n) {}
  Array lhs() const { return array<bfloat16>(a, {size.m, size.k}); }
  Array rhs() const { return array<bfloat16>(b, {size.k, size.n}); }
};

std::string check_product(const ProductSample& sample, const Array& c) {
  return sample.difference([&](std::int64_t row) { return c[row].to_vector<bfloat16>(); });
}

Work product(const ProductSize& size) {
  const Factors factors(size);
  return bench::queued([a = factors.lhs(), b = factors.rhs()] { return matmul(a, b); },
                       [sample = factors.sample](const Array& c) {
                         if (c.dtype() != bf16) return std::string("the product has another dtype");
                         return check_product(sample, c);
                       });
}

// A product under jit, replayed, with the rows of A and the columns of B split over the first
// devices.
template <class Body>
Work ring_product(const RingProduct& ring, Body body) {
  const Factors factors(ring.whole());
  const std::vector<Device> all = devices();
  if (std::int64_t(all.size()) < ring.devices)
    throw ValueError("this row takes " + std::to_string(ring.devices) + " devices, and there are " +
                     std::to_string(all.size()));
  const Mesh mesh = make_mesh({ring.devices}, {"i"}, {all.begin(), all.begin() + ring.devices});
  const P rows("i", none), columns(none, "i");
  auto f = jit(shard_map(body, mesh, {rows, columns}, columns, {.check_vma = false}));
  return bench::queued(
      [f, a = device_put(factors.lhs(), NamedSharding(mesh, rows)),
       b = device_put(factors.rhs(), NamedSharding(mesh, columns))] { return f(a, b); },
      [sample = factors.sample](const Array& c) { return check_product(sample, c); });
}

// The mesh, data and specs of the ring over a slow link.
struct StagedData {
  Factors factors{bench::StagedRing::whole()};
  Mesh mesh = make_mesh({bench::StagedRing::kDevices}, "i");
  P rows{"i", none}, columns{none, "i"};
  Array lhs(const P& spec) const { return device_put(factors.lhs(), NamedSharding(mesh, spec)); }
  Array rhs() const { return device_put(factors.rhs(), NamedSharding(mesh, columns)); }
};

// The product of StagedData's factors, with lhs split by rows or replicated.
template <class Body>
Work staged_product(Body body, bool lhs_is_split) {
  const StagedData data;
  const P spec = lhs_is_split ? data.rows : P();
  auto f =
      jit(shard_map(body, data.mesh, {spec, data.columns}, data.columns, {.check_vma = false}));
  return bench::queued(
      [f, a = data.lhs(spec), b = data.rhs()] { return f(a, b); },
      [sample = data.factors.sample](const Array& c) { return check_product(sample, c); });
}

// Only the ring's copies, without products.
Work staged_copies() {
  const StagedData data;
  auto f = jit(shard_map(bench::ring_gather, data.mesh, data.rows, P(), {.check_vma = false}));
  const Array a = data.lhs(data.rows);
  return bench::queued([f, a] { return f(a); },
                       [a](const Array& all) {
                         for (const std::int64_t row : {std::int64_t{0}, a.shape()[0] / 2 + 1})
                           if (all[row].to_vector<bfloat16>() != a[row].to_vector<bfloat16>())
                             return std::string("a row that was gathered is another");
                         return std::string();
                       });
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const std::vector<ProductSize>& sizes : {bench::square_products(), bench::odd_products()})
    for (const ProductSize& size : sizes)
      rows.push_back(
          {size.name(), {.flops = size.small().flops()}, [size] { return product(size); }});
  for (const RingProduct& ring : bench::ring_products()) {
    const bench::Units units{.flops = ring.whole().small().flops()};
    rows.push_back(
        {ring.name(), units, [ring] { return ring_product(ring, bench::gather_matmul); }});
    rows.push_back({ring.name() + ":serial", units,
                    [ring] { return ring_product(ring, bench::gathered_then_multiplied); }});
  }
  const bench::Units units{.flops = bench::StagedRing::whole().small().flops()};
  rows.push_back(
      {"overlap_staged", units, [] { return staged_product(bench::gather_matmul, true); }});
  rows.push_back({"staged:serial", units,
                  [] { return staged_product(bench::ring_gathered_then_multiplied, true); }});
  rows.push_back({"staged:products", units, [] {
                    return staged_product([](Array a, Array b) { return matmul(a, b); }, false);
                  }});
  rows.push_back({"staged:copies", {}, [] { return staged_copies(); }});
  return rows;
}

}  // namespace

int main(int argc, char** argv) { return bench::gpu_main(argc, argv, "gpu_matmul", all_rows); }
