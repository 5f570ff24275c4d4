// shmap-test: devices
// Plans that are launched with inputs whose tasks failed, or are going to fail: the launch fails,
// and no other launch, and the memory of the launch is not given away before its tasks have ended.
#include <gtest/gtest.h>
#include <shmap/extend.h>
#include <shmap/shmap.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/fault.h"

namespace shmap {
namespace {

// Enough work for a task to be queued.
constexpr std::int64_t kFloats = std::int64_t{1} << 20;

Mesh all_devices() { return make_mesh({static_cast<int>(devices().size())}, "i"); }

Array numbers(const Mesh& mesh, float value, std::int64_t floats = kFloats) {
  return device_put(full({floats}, value), NamedSharding(mesh, P("i")));
}

// An array of x's sharding whose tasks fail: on CPU devices when they run, which may be after the
// call.
Array failing(const Mesh& mesh, const Array& x) {
  if (devices()[0].kind() != DeviceKind::cpu) {
    const fault::Scoped fault("kernel:throw");
    return x * 2.f;
  }
  extend::Primitive broken("broken");
  broken.def_abstract_eval([](ShapedArray a) { return a; })
      .def_cpu_kernel([](const extend::KernelArgs&) { throw std::runtime_error("broken"); });
  return shard_map([&](Array block) { return broken.bind(block); }, mesh, P("i"), P("i"))(x);
}

void expect_all(const Array& x, float want) {
  const std::vector<float> all = x.to_vector<float>();
  EXPECT_EQ(std::ranges::count(all, want), std::ssize(all)) << "the first is " << all[0];
}

// Calls whose addresses recur, which have a graph of their own, and calls at new addresses, whose
// inputs are copied to a fixed place.
TEST(FailingInputs, FailTheirCallAlone) {
  const Mesh mesh = all_devices();
  for (const bool fresh : {false, true}) {
    const auto f = jit([](Array x) { return x * 3.f + 1.f; });
    std::vector<Array> alive{numbers(mesh, 0)};
    const auto input = [&](float value) {
      if (fresh) alive.push_back(numbers(mesh, value));
      return fresh ? alive.back() : alive.front();
    };
    const auto result = [&](float value) { return fresh ? value * 3 + 1 : 1.f; };
    for (int call = 0; call < 20; ++call)
      expect_all(f(input(static_cast<float>(call))), result(static_cast<float>(call)));
    for (const bool awaited : {true, false}) {
      SCOPED_TRACE(std::string(fresh ? "fresh" : "recurring") + (awaited ? ", awaited" : ""));
      const Array bad = failing(mesh, input(1));
      const Array failed = f(bad);
      if (awaited) {
        EXPECT_ANY_THROW(failed.block_until_ready());
      }
      const Array next = f(input(2)), after = f(input(3));
      expect_all(next, result(2));
      expect_all(after, result(3));
      EXPECT_ANY_THROW(failed.block_until_ready());
      EXPECT_ANY_THROW(bad.block_until_ready());
    }
  }
}

// An operand that the caller gives up is overwritten after its readers, also after one that fails.
TEST(FailingInputs, ReadersOfADonatedOneDoNotConcernTheCall) {
  const Mesh mesh = all_devices();
  const auto step = jit([](Array x) { return x * 0.5f + 1.f; });
  for (int call = 0; call < 10; ++call) {
    Array x = numbers(mesh, 6) + 2.f;
    const Array reader = failing(mesh, x);
    const Array y = step(std::move(x));
    expect_all(y, 5);
    EXPECT_ANY_THROW(reader.block_until_ready());
  }
}

// Memory of an array that failed and was dropped serves the next operation, which has nothing to do
// with the failure.
TEST(FailingInputs, DroppedOnesLeaveNoTraceInTheirMemory) {
  const Mesh mesh = all_devices();
  for (int call = 1; call < 6; ++call) {
    // Of a size of its own, so that no other memory is free for y.
    const Array x = numbers(mesh, 4, call * kFloats / 4 + 8);
    failing(mesh, x);
    const Array y = x + 1.f, z = y * 2.f;
    expect_all(z, 10);
  }
}

}  // namespace
}  // namespace shmap
