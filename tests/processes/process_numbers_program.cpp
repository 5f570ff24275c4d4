// process_numbers_program: random numbers, overlapped products, programs of whole arrays (jit over
// the mesh), collectives under transforms and in loops and branches, arrays that go from mesh to
// mesh, and data-parallel training on eight devices, in as many processes as there are: prints
// lines "value NAME SHAPE HASH" with a hash of each array's bits (process_numbers_test).
#include <algorithm>
#include <bit>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "shmap/shmap.h"

using namespace shmap;

namespace {

void print(const std::string& name, const Array& x) {
  const Array bits = x.dtype() == f32 ? process_allgather(x) : process_allgather(astype(x, f32));
  std::uint64_t hash = 0;
  for (const float v : bits.to_vector<float>())
    hash = hash * 1000003 + std::bit_cast<std::uint32_t>(v);
  if (process_index() == 0)
    std::printf("value %s %s %llx\n", name.c_str(), to_string(x.shape()).c_str(),
                static_cast<unsigned long long>(hash));
}

void random_numbers(const Mesh& mesh) {
  const auto split = [&](auto draw) {
    return jit([=](Array key) {
      return shard_map([=](Array k) { return draw(random::fold_in(k, axis_index("i"))); }, mesh,
                       P(), P("i"))(key);
    });
  };
  const Array key = random::key(42);
  print("uniform", split([](Array k) { return random::uniform(k, {40}); })(key));
  print("normal", split([](Array k) { return random::normal(k, {40}); })(key));
  print("randint", split([](Array k) { return random::randint(k, {40}, 0, 1000); })(key));
  // An array that is split by its sharding has the slices of the dense array.
  const Array dense = random::normal(key, {64, 8});
  const Array sharded = device_put(dense, NamedSharding(mesh, P("i")));
  print("dense", sharded);
  const auto dropout = jit([&](Array k, Array x) {
    return where(random::bernoulli(k, 0.7f, x.shape()), x / 0.7f, 0.f);
  });
  print("dropout", dropout(key, sharded));
}

void products(const Mesh& mesh) {
  const Array key = random::key(7);
  const Array x = random::normal(key, {32, 48}), w = random::normal(random::key(8), {48, 16});
  for (const Overlap form : {Overlap::none, Overlap::ring, Overlap::two_rings}) {
    const std::string name = std::to_string(static_cast<int>(form));
    const auto gathered = [&](Array a, Array b) {
      return shard_map(
          [&](Array ab, Array bb) {
            return all_gather_einsum("ij,jk->ik", ab, bb, "i", {.form = form});
          },
          mesh, {P("i"), P(none, "i")}, P(none, "i"))(a, b);
    };
    print("all_gather_einsum " + name, gathered(x, w));
    print("its gradient " + name, grad([&](Array a) { return sum(square(gathered(a, w))); })(x));
    print("einsum_psum_scatter " + name, shard_map(
                                             [&](Array ab, Array bb) {
                                               return einsum_psum_scatter("ij,jk->ik", ab, bb, "i",
                                                                          {.form = form});
                                             },
                                             mesh, {P(none, "i"), P("i")}, P("i"))(x, w));
  }
}

// jit over the mesh: the partitioner writes the collectives, and moves arguments that lie
// otherwise.
void whole_programs(const Mesh& mesh) {
  const Array x = random::normal(random::key(9), {32, 48});
  const Array w = random::normal(random::key(10), {48, 16}) / 7.f;
  const auto layer = [](Array a, Array b) { return tanh(matmul(a, b)); };
  print("rows split", jit(layer, mesh, {P("i"), P()}, P("i"))(x, w));
  print("contracted dim split", jit(layer, mesh, {P(none, "i"), P("i")}, P())(x, w));
  print("sum scattered", jit(layer, mesh, {P(none, "i"), P("i")}, P("i"))(x, w));
  print("argument moved", jit(layer, mesh, {P(), P(none, "i")}, P(none, "i"))(
                              device_put(x, NamedSharding(mesh, P("i"))), w));
  const auto slope = jit(
      [&](Array a, Array b) { return grad([&](Array c) { return sum(square(layer(a, c))); })(b); },
      mesh, {P("i"), P()}, P());
  print("gradient over split rows", slope(x, w));
  print("column sums, specs chosen",
        jit([](Array a) { return sum(a, 0); }, mesh)(device_put(x, NamedSharding(mesh, P("i")))));
}

// Prints what f returns, called eagerly and three times under jit.
template <class F, class... A>
void print_both(const std::string& name, F f, const A&... args) {
  print(name, f(args...));
  const auto fast = jit(f);
  for (int call = 0; call < 2; ++call) fast(args...).block_until_ready();
  print(name + " under jit", fast(args...));
}

// Over rows and columns of devices, both of which lead from process to process.
void transforms(const Mesh& grid) {
  const Array x = random::normal(random::key(11), {16, 13});
  const auto on_grid = [&](auto body) {
    return shard_map(body, grid, {P(axes("r", "c"))}, P(axes("r", "c")));
  };
  const auto mixed = on_grid([](Array b) {
    const Array turned =
        ppermute(b * psum(b, "r"), axes("r", "c"), ring_permutation(axes("r", "c"), 3));
    const Array all = all_gather(sin(turned), "c", {.tiled = true});
    return psum_scatter(all * all, "c", {.tiled = true}) / 3.f + pmean(b, axes("r", "c"));
  });
  const auto loss = [&](Array a) { return sum(square(mixed(a))); };
  print_both("collectives", mixed, x);
  print_both(
      "their gradient", [&](Array a) { return grad(loss)(a); }, x);
  print_both(
      "their second derivative",
      [&](Array a) {
        return jvp([&](Array c) { return grad(loss)(c); }, std::tuple{a}, std::tuple{sin(a)})
            .second;
      },
      x);
  const Array batch = stack({x, x * 2.f, sin(x)}, 1);
  print_both("collectives of a batch", vmap(mixed, 1, 1), batch);
  print_both("gradients of a batch", vmap([&](Array a) { return grad(loss)(a); }, 1, 0), batch);

  const auto looped = on_grid([](Array b) {
    const Array first = fori_loop(
        0, 5, [](Array i, Array c) { return tanh(c + psum(c, "c") / 4.f + astype(i, f32)); }, b);
    const Array second = while_loop(
        [](Array c) { return pmax(max(abs(c)), axes("r", "c")) < 40.f; },
        [](Array c) { return c * 1.7f + ppermute(c, "r", ring_permutation("r", 1)); }, first);
    return cond(
        psum(sum(second), axes("r", "c")) > 0.f, [](Array c) { return c - pmin(c, "r"); },
        [](Array c) { return c + pmean(c, "c"); }, second);
  });
  print_both("loops and branches", looped, x);
  const auto scanned = on_grid([](Array b) {
    auto [carry, rows] = scan(
        [](Array c, Array row) {
          const Array next = sin(c * 0.5f + row + psum(row, "r") / 3.f);
          return std::pair{next, ppermute(next, "c", ring_permutation("c", -1))};
        },
        sum(b, 0) * 0.1f, b);
    return rows * 0.3f + carry;
  });
  print_both("a scan", scanned, x);
  print_both(
      "its gradient",
      [&](Array a) { return grad([&](Array c) { return sum(square(scanned(c))); })(a); }, x);
  for (const DType dtype : {f16, bf16, f64}) {
    print_both("sums of " + std::string(to_string(dtype)), on_grid([](Array b) {
                 return psum(b, axes("r", "c")) + psum(b, "r") + b * pmean(b, "c");
               }),
               astype(x, dtype));
  }
}

// From mesh to mesh of the same devices, in other shapes and orders.
void several_meshes(const Mesh& line, const Mesh& grid) {
  std::vector<Device> turned = devices();
  std::reverse(turned.begin(), turned.end());
  const Mesh backwards = make_mesh({4, 2}, axes("u", "v"), turned);
  const Array x =
      device_put(random::normal(random::key(12), {24, 16}), NamedSharding(line, P("i")));
  const Array y = device_put(x, NamedSharding(grid, P("c", "r")));
  const Array z = device_put(y, NamedSharding(backwards, P("v", "u")));
  print("on a grid", y);
  print("on a grid that runs backwards", z);
  const auto scaled = [](const Mesh& mesh, const Axes& over, const PartitionSpec& spec) {
    return jit(
        shard_map([=](Array b) { return b / sqrt(psum(sum(b * b), over)); }, mesh, {spec}, spec));
  };
  const auto on_line = scaled(line, "i", P("i"));
  const auto on_grid = scaled(grid, axes("r", "c"), P("c", "r"));
  const auto on_turned = scaled(backwards, axes("u", "v"), P("v", "u"));
  // Calls on three meshes are under way at once.
  Array a = x, b = y, c = z;
  for (int i = 0; i < 5; ++i) {
    a = on_line(a * 1.5f);
    b = on_grid(b * 1.5f);
    c = on_turned(c * 1.5f);
  }
  print("scaled on a line", a);
  print("scaled on a grid", b);
  print("scaled on a grid that runs backwards", c);
  print("moved back", device_put(c, NamedSharding(line, P(none, "i"))));
}

struct Net {
  Array w1, b1, w2, b2;
};

// Data-parallel training: parameters replicated, the batch split, sums of gradients over all
// devices.
void training(const Mesh& mesh) {
  constexpr int kSteps = 12;
  const Array x = device_put(random::normal(random::key(1), {64, 20}), NamedSharding(mesh, P("i")));
  const Array y = device_put(random::normal(random::key(2), {64, 3}), NamedSharding(mesh, P("i")));
  Net net{random::normal(random::key(3), {20, 33}) / 4.f, zeros({33}),
          random::normal(random::key(4), {33, 3}) / 5.f, zeros({3})};
  const auto loss = shard_map(
      [](Net n, Array xb, Array yb) {
        const Array hidden = tanh(matmul(xb, n.w1) + n.b1);
        const Array error = matmul(hidden, n.w2) + n.b2 - yb;
        return pmean(mean(square(error)), "i");
      },
      mesh, {P(), P("i"), P("i")}, P());
  const auto step = jit([&](Net n, Array xb, Array yb) {
    const auto [value, slope] = value_and_grad(loss)(n, xb, yb);
    const auto down = [](const Array& p, const Array& g) { return p - g * 0.05f; };
    return std::pair(value, Net{down(n.w1, slope.w1), down(n.b1, slope.b1), down(n.w2, slope.w2),
                                down(n.b2, slope.b2)});
  });
  for (int i = 0; i < kSteps; ++i) {
    auto [value, next] = step(net, x, y);
    net = std::move(next);
    print("loss " + std::to_string(i), value);
  }
  print("trained w1", net.w1);
  print("trained b1", net.b1);
  print("trained w2", net.w2);
  print("trained b2", net.b2);
}

}  // namespace

int main() {
  try {
    const Mesh mesh = make_mesh({8}, "i");
    random_numbers(mesh);
    products(mesh);
    whole_programs(mesh);
    const Mesh grid = make_mesh({4, 2}, axes("r", "c"));
    transforms(grid);
    const Mesh tall = make_mesh({2, 4}, axes("r", "c"));
    several_meshes(mesh, tall);
    training(mesh);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "uncaught: %s\n", e.what());
    return 1;
  }
  return 0;
}
