// Small blocks of all devices, which one call of an elementwise kernel computes (Kernel::each).
#include <gtest/gtest.h>

#include <cstdio>
#include <mutex>
#include <random>
#include <vector>

#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/runtime/kernel.h"
#include "shmap/counters.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

using test::ChildResult;
using test::in_child;

// Must be the first test, since a child of a process that has used devices has none.
TEST(EachDevice, MoreDevicesThanACallTakes) {
  const ChildResult r = in_child({{"SHMAP_EXECUTOR", "async"}, {"SHMAP_DEVICES", "cpu:37"}}, [] {
    const Mesh mesh = make_mesh({37}, {"i"});
    const auto f =
        shard_map([](Array x) { return where(x > 10, x * 2 + 1, -x); }, mesh, P("i"), P("i"));
    const std::vector<int> y = f(arange(74, i32)).to_vector<int>();
    for (int k = 0; k < 74; ++k)
      if (y[std::size_t(k)] != (k > 10 ? 2 * k + 1 : -k)) std::printf("wrong at %d\n", k);
    std::printf("compared");
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  EXPECT_EQ(r.output, "compared");
}

constexpr int kDevices = 3;

std::vector<std::byte> random_block(const ShapedArray& type, std::mt19937& random) {
  std::vector<std::byte> block(static_cast<std::size_t>(type.nbytes()));
  const unsigned mask = type.dtype() == DType::bool_ ? 1 : 255;
  for (std::byte& b : block) b = static_cast<std::byte>(random() & mask);
  return block;
}

// Compares the bits of Kernel::each and Kernel::run for operands of these types, if there is such
// an operation.
void compare(const Primitive& p, const std::vector<ShapedArray>& in, const Params& params,
             int& compared) {
  ShapedArray made;
  try {
    p.abstract_eval(in, params, {&made, 1});
  } catch (const Error&) {
    return;
  }
  const Kernel& kernel = p.kernel(DeviceKind::cpu);
  ASSERT_NE(kernel.each, nullptr) << p.name;
  std::mt19937 random(7);
  std::vector<std::vector<std::byte>> blocks, results;
  for (int d = 0; d < 2 * kDevices; ++d) results.push_back(random_block(made, random));
  DeviceAddresses devices[kDevices];
  const void* last[DeviceAddresses::kIn];
  for (int d = 0; d < kDevices; ++d) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      blocks.push_back(random_block(in[i], random));
      last[i] = devices[d].in[i] = blocks.back().data();
    }
    devices[d].out = results[std::size_t(d)].data();
    void* const out[] = {results[std::size_t(kDevices + d)].data()};
    kernel.run({{last, in.size()}, out, in, {&made, 1}, params});
  }
  const KernelCall call{{}, {}, in, {&made, 1}, params};
  kernel.each(call, {devices, kDevices});
  for (std::size_t d = 0; d < kDevices; ++d)
    EXPECT_EQ(results[d], results[kDevices + d])
        << p.name << ", device " << d << ", " << to_string(made);
  ++compared;
}

// Compares with all operands as arrays, and with each operand but the first as a scalar.
int compare_all(const Primitive& p, std::vector<DType> dtypes, const Params& params = no_params) {
  int compared = 0;
  for (const std::int64_t n : {0, 1, 37}) {
    std::vector<ShapedArray> in;
    for (const DType t : dtypes) in.emplace_back(Shape{n}, t);
    compare(p, in, params, compared);
    for (std::size_t i = 0; dtypes.size() > 1 && i < in.size(); ++i) {
      const ShapedArray array = in[i];
      in[i] = ShapedArray(Shape{}, dtypes[i]);
      compare(p, in, params, compared);
      in[i] = array;
    }
  }
  std::vector<ShapedArray> scalars;
  for (const DType t : dtypes) scalars.emplace_back(Shape{}, t);
  compare(p, scalars, params, compared);
  return compared;
}

TEST(EachDevice, GivesTheBitsOfACallForEachDevice) {
  ensure_started();
  std::vector<DType> dtypes;
  for (int t = 0; t < kDTypeCount; ++t)
    if (static_cast<DType>(t) != DType::prng_key) dtypes.push_back(static_cast<DType>(t));
  int compared = 0;
  for (const DType t : dtypes) {
#define SHMAP_UNARY(name, ...) compared += compare_all(name##_p, {t});
#define SHMAP_BINARY(name, ...) compared += compare_all(name##_p, {t, t});
    SHMAP_UNARY_OPS(SHMAP_UNARY)
    SHMAP_PREDICATE_OPS(SHMAP_UNARY)
    SHMAP_BINARY_OPS(SHMAP_BINARY)
    SHMAP_COMPARE_OPS(SHMAP_BINARY)
#undef SHMAP_UNARY
#undef SHMAP_BINARY
    EXPECT_GT(compare_all(select_n_p, {DType::bool_, t, t}), 8) << short_name(t);
    EXPECT_GT(compare_all(clamp_p, {t, t, t}), 3) << short_name(t);
    for (const DType to : dtypes)
      EXPECT_GT(compare_all(convert_element_type_p, {t}, ConvertParams(to)), 3) << short_name(t);
  }
  EXPECT_GT(compared, 2000);
}

std::vector<const void*> places(const Array& x) {
  std::vector<const void*> out;
  for (const Block& b : stored_of(x)->blocks()) out.push_back(b.data());
  return out;
}

// A buffer keeps the event of a queued task until the task's end has been noticed. The operand of
// such a device is computed alone, and is overwritten nevertheless.
TEST(EachDevice, BuffersOfTasksThatHaveEnded) {
  const Mesh mesh = make_mesh({8}, {"i"});
  for (const int with_event : {0, 3, 8}) {
    SCOPED_TRACE(with_event);
    Array x = device_put(arange(16, i32), NamedSharding(mesh, P("i"))) + 0;
    const auto place = places(x);
    StoredNode& node = *stored_of(x);
    for (std::size_t d = 0; d < 8; ++d) {
      if (with_event != 8 && d != std::size_t(with_event)) continue;
      Stream& stream = *node.mesh->local(std::uint32_t(d)).compute;
      Task task;
      task.run = [](void*, const TaskContext&) {};
      task.cost_ns = std::int64_t{1} << 40;
      std::lock_guard lock(node.mesh->backend().submit_mutex());
      node.blocks()[d].buffer->def() = stream.enqueue(task, {});
    }
    node.mesh->backend().synchronize();
    reset_counters();
    x = std::move(x) + 1;
    EXPECT_EQ(counters().kernel_launches, 8);
    EXPECT_EQ(counters().allocations, 0);
    EXPECT_EQ(places(x), place);
    std::vector<int> want(16);
    for (int k = 0; k < 16; ++k) want[std::size_t(k)] = (k + 1) * (k + 1);
    EXPECT_EQ((x * x).to_vector<int>(), want);
  }
}

}  // namespace
}  // namespace shmap
