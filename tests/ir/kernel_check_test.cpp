// A primitive without a kernel in some backend is an error when the library starts, unless its
// record says why it needs none, and so is an operation on raw memory that a backend lacks. The
// start fails in the first test here, so that this program has one test.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/device/registry.h"
#include "core/ir/primitive.h"
#include "core/ir/trace.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/kernel.h"
#include "shmap/shmap.h"
#include "tests/support/error_text.h"

namespace shmap {
namespace {

constexpr Primitive identity(const char* name) {
  Primitive p;
  p.name = name;
  p.abstract_eval = [](Types in, const Params&, std::span<ShapedArray> out) { out[0] = in[0]; };
  return p;
}

constinit Primitive of_no_backend_p = identity("of_no_backend");
constinit Primitive of_cpus_p = identity("of_cpus");
constinit Primitive excused_p = [] {
  Primitive p = identity("excused");
  p.no_kernel = "this test runs it nowhere";
  return p;
}();

void copy(const KernelCall& call) {
  std::memcpy(call.out[0], call.in[0], static_cast<std::size_t>(call.out_types[0].nbytes()));
}

bool lacks_entries = true;
void take_entries(std::span<const DeviceKind>) {
  if (!lacks_entries) return;
  device_ops(DeviceKind::cpu).zero = nullptr;
  device_ops(DeviceKind::cpu).read_on_host = nullptr;
}

TEST(KernelCheck, TheStartNamesAllPrimitivesWithoutAKernel) {
  check_at_start(take_entries);
  register_primitive(of_no_backend_p);
  register_primitive(of_cpus_p);
  register_primitive(excused_p);
  of_cpus_p.kernel(DeviceKind::cpu) = {copy};

  // The error names every backend of the build, and comes at each use: nothing runs until the
  // kernels are there.
  for (int use = 0; use < 2; ++use) {
    for (const BackendFactory& backend : built_in_backends()) {
      const std::string line = std::string("the backend '") + row_of(backend.kind).spelled +
                               "': " + (backend.kind == DeviceKind::cpu ? "" : "of_cpus, ") +
                               "of_no_backend\n";
      test::expect_error<Error>(
          [] {
            array<float>({1, 2}, {2}) + 1.f;
          },
          {line.c_str(), "(no_kernel)"});
    }
  }

  for (Kernel& kernel : of_no_backend_p.kernels) kernel = {copy};
  of_cpus_p.no_kernel = "this test runs it on CPUs";

  // So are operations on raw memory that a backend's table lacks: this check runs before the
  // library's, since it is given first.
  for (int use = 0; use < 2; ++use) {
    test::expect_error<Error>(
        [] {
          array<float>({1, 2}, {2}) + 1.f;
        },
        {"the backend 'cpu': zero, read_on_host\n", "device_ops"});
  }
  lacks_entries = false;
  EXPECT_EQ((array<float>({1, 2}, {2}) + 1.f).to_vector<float>(), (std::vector<float>{2, 3}));

  // A primitive that is excused and nevertheless runs is an error there.
  Array x = array<float>({1, 2}, {2});
  test::expect_error<DeviceError>([&] { bind(excused_p, x, no_params, {}); },
                                  {"excused has no kernel for the backend", "runs it nowhere"});
}

}  // namespace
}  // namespace shmap
