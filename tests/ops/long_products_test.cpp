// Products whose sums are divided have the same bits for every number of workers, on every
// executor, eagerly, in a captured program and in a mapped function.
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "shmap/jit.h"
#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

using test::ChildResult;
using test::in_child;

std::string bits(const Array& x) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const float v : astype(x, f32).to_vector<float>()) {
    std::uint32_t word = 0;
    std::memcpy(&word, &v, sizeof word);
    hash = (hash ^ word) * 1099511628211u;
  }
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

Array values(const Shape& shape, int seed) {
  return reshape(sin(arange(shape.num_elements(), f32) * 0.37f + float(seed)), shape);
}

// The bits of f, which must be the same each time.
template <class F>
void print_bits(const char* name, F f, const Array& x, const Array& y) {
  const std::string eager = bits(f(x, y));
  auto staged = jit(f);
  for (int call = 0; call < 4; ++call) {
    const std::string now = bits(staged(x, y));
    if (now != eager)
      std::printf("%s: call %d of jit %s, eager %s\n", name, call, now.c_str(), eager.c_str());
  }
  std::printf("%s %s\n", name, eager.c_str());
}

void print_products() {
  const auto product = [](Array x, Array y) { return matmul(x, y); };
  const Array x = values({32, 20000}, 0), y = values({20000, 32}, 1);
  print_bits("f32", product, x, y);
  print_bits("bf16", product, astype(x, bf16), astype(y, bf16));
  print_bits("f64", product, astype(x, f64), astype(y, f64));
  print_bits(
      "added", [](Array a, Array b) { return relu(matmul(a, b) + 1.f) * 2.f; }, x, y);
  print_bits(
      "transposed", [](Array a, Array b) { return einsum("ki,kj->ij", a, b); },
      values({9001, 40}, 2), values({9001, 17}, 3));
  print_bits("batched", product, values({5, 24, 4100}, 4), values({5, 4100, 30}, 5));
  const Mesh mesh = make_mesh({2}, {"i"});
  print_bits("mapped", shard_map(product, mesh, {P("i"), P()}, P("i")), x, y);
}

TEST(LongProducts, HaveTheSameBitsOnAllWorkers) {
  std::string first;
  for (const char* const executor : {"async", "inline", "seeded"}) {
    for (const char* const workers : {"1", "2", "5"}) {
      for (const char* const devices : {"cpu:2", "cpu:2/2"}) {
        const ChildResult r = in_child(
            {{"SHMAP_EXECUTOR", executor}, {"SHMAP_WORKERS", workers}, {"SHMAP_DEVICES", devices}},
            print_products);
        ASSERT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
        EXPECT_EQ(r.output.find("jit"), std::string::npos) << r.output;
        if (first.empty()) first = r.output;
        EXPECT_EQ(r.output, first) << executor << " " << workers << " " << devices;
      }
    }
  }
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 7) << first;
}

}  // namespace
}  // namespace shmap
