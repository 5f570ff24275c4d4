// shmap-test: devices
// Eager programs under capture, in planned memory, as a plan runs them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/node.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/reshard.h"
#include "shmap/shmap.h"
#include "tests/runtime/planning.h"

namespace shmap {
namespace {

using test::outputs_of;
using test::slabs_of;

// A copy of x in which `of` replaces the buffers: one new buffer for each old one, however many
// entries share it.
template <class F>
Array with_buffers(const Array& x, F of) {
  const StoredNode& node = *stored_of(x);
  Array out = relabel(node, node.type, node.sharding, node.trace, node.committed);
  std::map<const Buffer*, BufferRef> made;
  for (Block& b : stored_of(out)->blocks()) {
    BufferRef& other = made[b.buffer.get()];
    if (!other) other = of(b.buffer);
    b.buffer = other;
  }
  return out;
}
Array proxied(const Array& x) { return with_buffers(x, proxy_of); }
// The result of a capture, in the memory that its launches write.
Array real(const Array& x) {
  return with_buffers(x, [](const BufferRef& b) {
    EXPECT_TRUE(behind(*b));
    return behind(*b);
  });
}

// Captures f(x), and launches it on other values of x: each launch gives what f gives eagerly.
template <class F>
void expect_captured(const Mesh& mesh, const P& spec, const Shape& shape, F f) {
  const auto input = [&](float scale) {
    return device_put(reshape(sin(arange(shape[0] * shape[1]) * scale), shape),
                      NamedSharding(mesh, spec));
  };
  const Array x = input(1);
  const std::int64_t block_bytes = x.nbytes() / stored_of(x)->count;
  std::vector<char> on_host(static_cast<std::size_t>(block_bytes));
  Backend& backend = stored_of(x)->mesh->backend();
  backend.synchronize();
  MemoryLayout layout;
  {
    MemoryRehearsal rehearsal;
    CaptureScope capture(backend);
    const Array alive = f(proxied(x));
    layout = plan_layout(rehearsal.finish());
  }
  const auto slabs = slabs_of(layout), outputs = outputs_of(layout);
  Array result;
  Ref<Graph> graph;
  {
    PlacedMemory memory(layout, slabs, outputs);
    CaptureScope capture(backend);
    const Array y = f(proxied(x));
    memory.finish();
    graph = capture.end();
    result = real(y);
  }
  for (const float scale : {1.f, .5f, .25f}) {
    const Array values = input(scale);
    backend.synchronize();
    for (std::size_t p = 0; p < stored_of(x)->blocks().size(); ++p) {
      const Block &to = stored_of(x)->blocks()[p], &from = stored_of(values)->blocks()[p];
      device_ops(backend).device_to_host(on_host.data(), from.data(), block_bytes);
      device_ops(backend).host_to_device(to.data(), on_host.data(), block_bytes);
    }
    for (int again = 0; again < 3; ++again) {
      Event done;
      {
        std::lock_guard lock(backend.submit_mutex());
        done = graph->launch();
      }
      done.wait();
      const Array eager = f(values);
      ASSERT_EQ(result.to_vector<float>(), eager.to_vector<float>()) << backend.repro();
    }
  }
  backend.synchronize();
}

const std::vector<std::pair<int, int>> kRing = {{0, 1}, {1, 2}, {2, 3}, {3, 4},
                                                {4, 5}, {5, 6}, {6, 7}, {7, 0}};

template <class F>
void expect_mapped_captured(F body) {
  const Mesh mesh = make_mesh({8}, "i");
  expect_captured(mesh, P("i"), {64, 24},
                  [&](Array x) { return shard_map(body, mesh, P("i"), P("i"))(std::move(x)); });
}

TEST(CapturedProgram, Elementwise) {
  expect_mapped_captured([](Array x) { return exp(x * 2 + 1) - tanh(x) * x; });
}
TEST(CapturedProgram, Ring) {
  expect_mapped_captured([](Array x) {
    Array sum = x;
    for (int i = 0; i < 7; ++i) {
      x = ppermute(x, "i", kRing);
      sum = sum * .5f + x;
    }
    return sum;
  });
}
TEST(CapturedProgram, Reductions) {
  expect_mapped_captured([](Array x) {
    const Array mean = psum(x, "i") / 8;
    const Array all = all_gather(x - mean, "i", {.tiled = true});
    return psum_scatter(all * all, "i", {.tiled = true}) + pmax(x, "i");
  });
}
TEST(CapturedProgram, MatrixProducts) {
  expect_mapped_captured([](Array x) {
    const Array w = all_gather(x, "i", {.tiled = true});
    return matmul(matmul(x, transpose(w)), w);
  });
}
TEST(CapturedProgram, AxisIndex) {
  expect_mapped_captured([](Array x) {
    return (x + 1) * (astype(axis_index("i"), f32) + x) + ones({8, 24});
  });
}
// The graph also writes values that the host knows, since others use their memory between launches.
TEST(CapturedProgram, ConstantsOfTheHost) {
  expect_mapped_captured([](Array x) {
    const Array devices = psum(1.f, "i");
    Array y = x;
    for (int i = 0; i < 3; ++i) {
      y = y / devices + array<float>({1, 2, 3}, {3})[i];
      y = tanh(all_gather(y, "i", {.tiled = true}) * psum(2.f, "i"))[range(0, 8)];
    }
    return y + x;
  });
}
TEST(CapturedProgram, OutsideOfABody) {
  const Mesh mesh = make_mesh({8}, "i");
  expect_captured(mesh, P("i"), {64, 24}, [](Array x) {
    const Array y = x - mean(x, {0}, true);
    return y * y + transpose(reshape(arange(24 * 64) / 100, {24, 64}));
  });
}
TEST(CapturedProgram, AnotherSharding) {
  const Mesh mesh = make_mesh({8}, "i");
  expect_captured(mesh, P("i"), {64, 24}, [&](Array x) {
    const Array columns = device_put(x + 1, NamedSharding(mesh, P(none, "i")));
    return columns * 2;
  });
}
TEST(CapturedProgram, AnInputIsAResult) {
  expect_mapped_captured([](Array x) { return x; });
}

}  // namespace
}  // namespace shmap
