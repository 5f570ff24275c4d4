// The collective matmul over links of limited bandwidth between the memory spaces of CPU devices
// (support/slow_link.h): how much of the shorter of communication and computation is hidden. Runs
// on `cpu:8/8` unless SHMAP_DEVICES says otherwise; bench/README.md describes the rows.
#include <shmap/shmap.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/support/collective_matmul.h"
#include "bench/support/data.h"
#include "bench/support/rows.h"
#include "bench/support/slow_link.h"

namespace {

using namespace shmap;
using bench::Row;
using bench::Work;

constexpr std::size_t kDevices = 8;
constexpr std::size_t kM = 4096, kK = 2048, kN = 8192;
constexpr double kBlockBytes = kM / kDevices * kK * sizeof(float);
// Communication alone takes this fraction of the time of products alone: all of it can be hidden,
// and hardly more could be.
constexpr double kShare = 0.8;

struct Factors {
  std::vector<float> a = bench::random_floats(kM * kK, 1), b = bench::random_floats(kK * kN, 2);
  Mesh mesh = make_mesh({kDevices}, {"i"});
  Array lhs(const P& spec) const {
    return device_put(array<float>(a, {kM, kK}), NamedSharding(mesh, spec));
  }
  Array rhs() const {
    return device_put(array<float>(b, {kK, kN}), NamedSharding(mesh, P(none, "i")));
  }
};

enum class Form { eager, jitted };

// Calls of a body of a block of lhs and a block of rhs, which returns columns of their product.
template <class Body>
Work product(Form form, Body body, const P& lhs_spec) {
  auto t = std::make_shared<Factors>();
  auto result = std::make_shared<Array>();
  const auto mapped =
      shard_map(body, t->mesh, {lhs_spec, P(none, "i")}, P(none, "i"), {.check_vma = false});
  const std::function<Array(const Array&, const Array&)> f =
      form == Form::jitted ? std::function<Array(const Array&, const Array&)>(jit(mapped))
                           : std::function<Array(const Array&, const Array&)>(mapped);
  const auto call = [f, result, a = t->lhs(lhs_spec), b = t->rhs()] {
    *result = Array();
    *result = f(a, b);
    result->block_until_ready();
  };
  const auto check = [t, result] {
    return bench::product_difference(t->a, t->b, result->to_vector<float>(), kM, kK, kN, 1e-2);
  };
  return {call, check, {}};
}

// The copies of the ring, and nothing else.
Work copies() {
  auto t = std::make_shared<Factors>();
  auto result = std::make_shared<Array>();
  // The last block that arrives has passed through all links.
  const auto f = jit(shard_map(
      [](Array block) {
        const int n = axis_size("i");
        std::vector<std::pair<int, int>> left;
        for (int k = 0; k < n; ++k) left.push_back({k, (k + n - 1) % n});
        for (int step = 0; step + 1 < n; ++step) block = ppermute(block, "i", left);
        return block;
      },
      t->mesh, P("i", none), P("i", none)));
  const auto call = [f, result, a = t->lhs(P("i", none))] {
    *result = Array();
    *result = f(a);
    result->block_until_ready();
  };
  const auto check = [t, result] {
    std::vector<float> want(t->a.begin() + std::ptrdiff_t(kM / kDevices * kK * (kDevices - 1)),
                            t->a.end());
    want.insert(want.end(), t->a.begin(), t->a.end() - std::ptrdiff_t(kM / kDevices * kK));
    return bench::difference(result->to_vector<float>(), std::span<const float>(want));
  };
  return {call, check, {}};
}

Work products() {
  return product(
      Form::jitted, [](Array a, Array b) { return matmul(a, b); }, P());
}

// The rate at which kDevices - 1 blocks take kShare of the time of products alone.
double rate_of_links() {
  const Work work = products();
  std::vector<double> us;
  for (int k = 0; k < 5; ++k) {
    const auto start = std::chrono::steady_clock::now();
    work.call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    us.push_back(took.count());
  }
  std::nth_element(us.begin(), us.begin() + 2, us.end());
  return (kDevices - 1) * kBlockBytes / (kShare * us[2]);
}

// Made when the first row is.
std::optional<bench::SlowLinks> links;

std::vector<Row> all_rows() {
  const bench::Units units{.flops = 2.0 * double(kM) * double(kK) * double(kN)};
  const P rows("i", none);
  const auto einsum = [](Overlap form) {
    return [form](Array a, Array b) {
      return all_gather_einsum("mk,kn->mn", a, b, "i", {.form = form});
    };
  };
  std::vector<Row> all;
  const auto add = [&](const std::string& name, std::function<Work()> make) {
    all.push_back({name, units, [make = std::move(make)] {
                     if (!links) links.emplace(rate_of_links());
                     return make();
                   }});
  };
  add("overlap_link", [=] { return product(Form::jitted, bench::gather_matmul, rows); });
  add("overlap_link_eager", [=] { return product(Form::eager, bench::gather_matmul, rows); });
  add("overlap_link_einsum", [=] { return product(Form::jitted, einsum(Overlap::ring), rows); });
  add("link:serial",
      [=] { return product(Form::jitted, bench::ring_gathered_then_multiplied, rows); });
  add("link:products", products);
  add("link:copies", copies);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const char* devices = std::getenv("SHMAP_DEVICES");
  init(argc, argv, {.devices = devices == nullptr ? "cpu:8/8" : devices});
  const int status = bench::bench_main(argc, argv, "shmap_link", all_rows(),
                                       {{"devices", devices == nullptr ? "cpu:8/8" : devices}});
  links.reset();
  return status;
}
