// shmap-test: devices
// A sum that travels round a ring, to which each stop adds a product: where the product is added
// directly in the sum's memory, the values are the same.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <utility>
#include <vector>

#include "core/ir/node.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

constexpr int kDevices = 8;

std::vector<std::pair<int, int>> ring() {
  std::vector<std::pair<int, int>> to_next;
  for (int i = 0; i < kDevices; ++i) to_next.emplace_back(i, (i + 1) % kDevices);
  return to_next;
}

enum class Keep { nothing, product, sum };

// The handles of the products and sums are dropped, except those that are kept; these are added to
// the result in the end, to check their values.
template <Keep keep>
Array ring_sum(Array lhs, Array rhs) {
  const Array index = axis_index("i");
  const std::int64_t rows = lhs.shape()[0] / kDevices;
  std::vector<Array> kept;
  Array total;
  for (int step = 0; step < kDevices; ++step) {
    const Array at = ((index - step - 1) % kDevices) * rows;
    Array product = matmul(dynamic_slice(lhs, {at, 0}, {rows, lhs.shape()[1]}), rhs);
    if (keep == Keep::product) kept.push_back(product);
    if (step > 0) {
      Array sum = ppermute(std::move(total), "i", ring());
      if (keep == Keep::sum) kept.push_back(sum);
      product = std::move(sum) + std::move(product);
    }
    total = std::move(product);
  }
  for (const Array& x : kept) total = total + x;
  return total;
}

// The same with all handles held to the end.
Array held_ring_sum(Array lhs, Array rhs, Keep keep) {
  const Array index = axis_index("i");
  const std::int64_t rows = lhs.shape()[0] / kDevices;
  std::vector<Array> held, products, sums;
  Array total;
  for (int step = 0; step < kDevices; ++step) {
    const Array at = ((index - step - 1) % kDevices) * rows;
    products.push_back(matmul(dynamic_slice(lhs, {at, 0}, {rows, lhs.shape()[1]}), rhs));
    if (step == 0) {
      total = products[0];
    } else {
      sums.push_back(ppermute(total, "i", ring()));
      held.push_back(total);
      total = sums.back() + products.back();
    }
  }
  for (const Array& x : keep == Keep::product ? products : sums)
    if (keep != Keep::nothing) total = total + x;
  return total;
}

struct Operands {
  Mesh mesh = make_mesh({kDevices}, {"i"});
  Array lhs, rhs;
  // Large enough for products to be queued; `k` a device.
  Operands(DType dtype, std::int64_t k) {
    const std::int64_t m = kDevices * 48, n = 96;
    const auto values = [&](std::int64_t rows, std::int64_t cols) {
      const Array x = astype(reshape(arange(rows * cols), {rows, cols}), f32);
      return astype(dtype == f32 ? sin(x) : x % 1000, dtype);
    };
    lhs = device_put(values(m, kDevices * k), NamedSharding(mesh, P(none, "i")));
    rhs = device_put(values(kDevices * k, n), NamedSharding(mesh, P("i", none)));
  }
};

template <Keep keep, class T>
void expect_same_bits(DType dtype, std::int64_t k) {
  const Operands x(dtype, k);
  const auto mapped = [&](auto body) {
    return shard_map(body, x.mesh, {P(none, "i"), P("i", none)}, P("i", none));
  };
  const std::vector<T> want =
      mapped([](Array l, Array r) { return held_ring_sum(l, r, keep); })(x.lhs, x.rhs)
          .template to_vector<T>();
  const auto body = mapped(ring_sum<keep>);
  const auto jitted = jit(body);
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(body(x.lhs, x.rhs).template to_vector<T>(), want) << "k " << k;
    EXPECT_EQ(jitted(x.lhs, x.rhs).template to_vector<T>(), want) << "jit, k " << k;
  }
}

TEST(RingSum, HasTheSameBitsWhoeverHoldsWhat) {
  for (const std::int64_t k : {32, 256, 300}) {
    expect_same_bits<Keep::nothing, float>(f32, k);
    expect_same_bits<Keep::product, float>(f32, k);
    expect_same_bits<Keep::sum, float>(f32, k);
  }
  expect_same_bits<Keep::nothing, std::int32_t>(i32, 64);
}

// The sum is read by the product that is added to it.
TEST(RingSum, IsNotWrittenWhileItsOwnProductReadsIt) {
  const Mesh mesh = make_mesh({kDevices}, {"i"});
  const Array x = device_put(sin(reshape(arange(kDevices * 96 * 96), {kDevices * 96, 96})),
                             NamedSharding(mesh, P("i")));
  const auto step = [](Array y) { return y * 0.5f; };
  const auto given_up = [&](Array y) {
    y = step(y);
    Array product = matmul(y, y);
    return std::move(y) + std::move(product);
  };
  const auto held = [&](Array y) {
    y = step(y);
    const Array product = matmul(y, y);
    return y + product;
  };
  const auto mapped = [&](auto body) { return shard_map(body, mesh, P("i"), P("i")); };
  const std::vector<float> want = mapped(held)(x).to_vector<float>();
  const auto jitted = jit(mapped(given_up));
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(mapped(given_up)(x).to_vector<float>(), want);
    EXPECT_EQ(jitted(x).to_vector<float>(), want);
  }
}

TEST(RingSum, APermutationOfWhatIsGivenUpLeavesOneOwner) {
  const Mesh mesh = make_mesh({kDevices}, {"i"});
  const Array x = device_put(arange(kDevices * 4), NamedSharding(mesh, P("i")));
  const auto owners = [](const Array& y) {
    std::vector<int> out;
    for (const Block& b : stored_of(y)->blocks()) out.push_back(b.buffer->use_count());
    return out;
  };
  shard_map(
      [&](Array y) {
        y = y + 1.f;
        Array z = ppermute(std::move(y), "i", ring());
        EXPECT_EQ(owners(z), std::vector<int>(kDevices, 1));
        EXPECT_THROW(y + 1.f, ValueError);
        std::vector<Array> tree = {std::move(z)};
        tree = pshuffle(std::move(tree), "i", {1, 0, 3, 2, 5, 4, 7, 6});
        EXPECT_EQ(owners(tree[0]), std::vector<int>(kDevices, 1));
        return tree[0];
      },
      mesh, P("i"), P("i"))(x);
}

}  // namespace
}  // namespace shmap
