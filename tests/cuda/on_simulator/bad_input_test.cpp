// Mistakes of users of GPUs, and missing features of machines. Each ends in an error that says
// what, where, and what to do about it, and whatever can still work does. Each case runs in a child
// process with its own GPUs.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/device/backend.h"
#include "cuda_sim.h"
#include "shmap/shmap.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

using test::ChildResult;
using test::in_child;
using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

// The text of the E that `f` throws; another error, or none, ends the child.
template <class E>
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  throw Error("nothing was thrown");
}

// `print` prints what is wanted in a child with that environment.
void expect_printed(const Environment& environment, const std::function<void()>& print,
                    std::initializer_list<const char*> wanted) {
  const ChildResult r = in_child(environment, print);
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  for (const char* fragment : wanted) EXPECT_THAT(r.output, HasSubstr(fragment));
}

// Users' code throws an E in a child with that environment.
template <class E>
void expect_error(const Environment& environment, const std::function<void()>& f,
                  std::initializer_list<const char*> wanted) {
  expect_printed(
      environment, [&] { std::printf("%s", error_of<E>(f).c_str()); }, wanted);
}

void expect_in(const std::string& text, std::initializer_list<const char*> wanted) {
  for (const char* fragment : wanted) {
    if (text.find(fragment) == text.npos) throw Error(std::string(fragment) + " is not in " + text);
  }
}

void expect_equal(const Array& x, float value) {
  for (float v : x.to_vector<float>()) {
    if (v != value) throw Error(std::to_string(v) + " in the place of " + std::to_string(value));
  }
}

void use_devices() { devices(); }

// ------------------------------------------------------------------------------- which devices

TEST(NoSuchGpu, SaysWhichThereAre) {
  expect_error<DeviceError>(
      {{"SHMAP_SIM_GPUS", "2"}, {"SHMAP_DEVICES", "cuda:1,5"}}, use_devices,
      {"there is no GPU 5", "GPU 1, 5 were asked for", "GPU 0 to 1", "SHMAP_DEVICES"});
  expect_error<DeviceError>({{"SHMAP_SIM_GPUS", "1"}, {"SHMAP_DEVICES", "cuda:1x8"}}, use_devices,
                            {"there is no GPU 1", "GPU 0 alone", "cuda:0x"});
  expect_error<DeviceError>({{"SHMAP_SIM_GPUS", "0"}, {"SHMAP_DEVICES", "cuda"}}, use_devices,
                            {"no GPU is present", "CUDA_VISIBLE_DEVICES", "SHMAP_DEVICES=cpu:8"});
  expect_error<DeviceError>({{"SHMAP_SIM_GPUS", ""}, {"SHMAP_DEVICES", "cuda"}}, use_devices,
                            {"no NVIDIA driver answers", "SHMAP_DEVICES=cpu:8"});
}

TEST(MoreDevicesThanMemory, SaysWhatTheyTake) {
  expect_error<DeviceError>({{"SHMAP_SIM_MEMORY", "1073741824"}, {"SHMAP_DEVICES", "cuda:0x64/64"}},
                            use_devices,
                            {"GPU 0 has 1024 MiB of free memory", "64 devices in 64 memory spaces",
                             "64 MiB for their streams", "16 MiB a space", "ask for fewer"});
  expect_error<DeviceError>({{"SHMAP_DEVICES", "cuda:0x65536"}}, use_devices,
                            {"65536 devices in 1 memory space,", "ask for fewer"});
}

TEST(DriverTooOld, IsAnErrorWhereGpusWereAskedFor) {
  const Environment old = {{"SHMAP_SIM_DRIVER", "11080"}, {"SHMAP_DEVICES", "cuda"}};
  expect_error<DeviceError>(
      old, use_devices,
      {"every GPU", "the NVIDIA driver is too old", "CUDA 11.8",
       "this library was built with CUDA 12.4", "CUDA 12.0 or newer", "SHMAP_DEVICES=cpu:8"});
  // A driver of the same major version is not too old.
  expect_printed({{"SHMAP_SIM_DRIVER", "12000"}, {"SHMAP_DEVICES", "cuda"}},
                 [] { expect_equal(ones({4}) + 1.f, 2); }, {});
}

TEST(DriverTooOld, IsAWarningWhereTheyWereNot) {
  expect_printed(
      {{"SHMAP_SIM_DRIVER", "11080"}, {"SHMAP_DEVICES", ""}},
      [] {
        expect_equal(ones({4}) + 1.f, 2);
        std::printf("on %s", devices()[7].str().c_str());
      },
      {"the NVIDIA driver is too old", "CUDA 11.8", "going on with the CPU", "on CpuDevice(id=7)"});
}

TEST(DriverTooOld, ForOneCallSaysSo) {
  const auto f = [] {
    const Array x = ones({4});
    shmap_sim::inject("cudaLaunchKernelExC", cudaErrorCallRequiresNewerDriver);
    (x + 1.f).block_until_ready();
  };
  expect_error<DeviceError>({}, f,
                            {"add", "cudaErrorCallRequiresNewerDriver",
                             "Install a newer NVIDIA driver", "CudaDevice(id=0)"});
}

TEST(MixedMeshes, AreRefused) {
  for (const char* both : {"cpu:4,cuda:0", "cuda:0,cpu:4", "cpu:4+cuda", "cuda,cpu:2"}) {
    SCOPED_TRACE(both);
    expect_error<ValueError>({{"SHMAP_DEVICES", both}}, use_devices,
                             {both, "devices of several kinds do not mix",
                              "a process has devices of one kind", "cpu:N"});
  }
  // Devices of both kinds can be had only from another process.
  const auto mesh = [] {
    std::vector<Device> both = devices();
    both[1] = detail::DeviceAccess::make(1, 1, DeviceKind::cpu);
    make_mesh({8}, "i", both);
  };
  expect_error<ValueError>(
      {}, mesh, {"CudaDevice(id=0) and CpuDevice(id=1) cannot be in one mesh", "devices()"});
  const auto foreign = [] {
    make_mesh({1}, "i", {detail::DeviceAccess::make(3, 0, DeviceKind::cpu)});
  };
  expect_error<DeviceError>({}, foreign, {"CpuDevice(id=3) is not driven by this process"});
  const auto second = [] {
    devices();
    int argc = 0;
    char** argv = nullptr;
    init(argc, argv, {"cpu:8"});
  };
  expect_error<DeviceError>(
      {}, second, {"\"cpu:8\" asked for", "already with \"cuda:0x8\"", "before the first use"});
}

// ------------------------------------------------------------------------------- out of memory

const Environment kSmall = {{"SHMAP_SIM_MEMORY", "33554432"}};
constexpr std::int64_t kElements = 1 << 20;  // of f32: 4 MiB

const std::initializer_list<const char*> kNamesAll = {"out of memory on CudaDevice(id=0",
                                                      "4.0 MiB (4194304 bytes) asked for", "in use",
                                                      "largest live arrays", "Let go of arrays"};

TEST(OutOfMemory, InEagerOps) {
  expect_printed(
      kSmall,
      [] {
        expect_in(error_of<OutOfMemory>([] {
                    zeros({1 << 20, 1 << 20});
                  }),
                  {"4.0 TiB", "out of memory on "});
        std::vector<Array> kept{ones({kElements})};
        const std::string text = error_of<OutOfMemory>([&] {
          for (int k = 0; k < 8; ++k) kept.push_back(kept.back() + 1.f);
        });
        std::printf("%s", text.c_str());
        const float last = static_cast<float>(kept.size());
        expect_equal(kept.back(), last);
        kept.erase(kept.begin(), kept.end() - 1);
        expect_equal(kept[0] + 1.f, last + 1);
      },
      kNamesAll);
}

// A program of three steps, whose results are held until there is no memory for one more: in the
// first calls, which trace and capture it, or in a replay.
void run_out(int calls_before) {
  const auto f = jit([](Array x) { return (x * 0.f + 1.f) * 0.f + x; });
  Array x = ones({kElements});
  for (int call = 0; call < calls_before; ++call) expect_equal(f(x), 1);
  std::vector<Array> kept{x};
  const std::string text = error_of<OutOfMemory>([&] {
    for (int k = 0; k < 8; ++k) {
      kept.push_back(f(x));
      kept.back().block_until_ready();
    }
  });
  std::printf("%s", text.c_str());
  for (const Array& a : kept) expect_equal(a, 1);
  kept.clear();
  for (int call = 0; call < 4; ++call) expect_equal(f(x), 1);
}

TEST(OutOfMemory, InTracingAndCapture) {
  expect_printed(kSmall, [] { run_out(0); },
                 {"out of memory on CudaDevice(id=0", "in use", "Let go of"});
}

TEST(OutOfMemory, InReplay) {
  expect_printed(kSmall, [] { run_out(6); },
                 {"out of memory on CudaDevice(id=0", "in use", "Let go of"});
}

// The driver itself lacks memory for its own data.
TEST(OutOfMemory, OfTheDriver) {
  const char* const functions[] = {
      "cudaGraphInstantiate",        "cudaGraphLaunch", "cudaEventRecord",
      "cudaLaunchKernelExC",         "cudaMemcpyAsync", "cudaStreamBeginCapture",
      "cudaStreamCreateWithPriority"};
  for (const char* function : functions) {
    SCOPED_TRACE(function);
    const auto program = [&] {
      const Array x = device_put(ones({64}), NamedSharding(make_mesh({8}, "i"), P("i")));
      const auto f = jit([](Array a) { return sum(sort(a) + 1.f) + a; });
      int failed = 0;
      for (int call = 0; call < 8; ++call) {
        shmap_sim::inject(function, cudaErrorMemoryAllocation, 1);
        try {
          f(x).block_until_ready();
        } catch (const OutOfMemory& e) {
          ++failed;
          expect_in(e.what(), {"cudaErrorMemoryAllocation", "failed on GPU 0", "Let go of arrays"});
        }
        shmap_sim::clear_faults();
      }
      std::printf("%s", failed > 0 ? "failed and " : "never failed and ");
      for (int call = 0; call < 3; ++call) expect_equal(f(x), 129);
      std::printf("went on");
    };
    expect_printed({}, program, {"failed and went on"});
  }
}

// ----------------------------------------------------------------------------- users' kernels

extend::Primitive wild() {
  extend::Primitive p("wild");
  p.def_abstract_eval([](ShapedArray x) {
     return x;
   }).def_cuda_kernel([](const extend::KernelArgs& k) {
    shmap_sim::enqueue(static_cast<cudaStream_t>(k.stream), "users_kernel", [] {});
  });
  return p;
}

const std::initializer_list<const char*> kLost = {
    "the GPU was lost to this process", "cudaErrorIllegalAddress", "'wild'",
    "Every later use of these devices fails so", "compute-sanitizer"};

// Checks the state after `use` failed: work on the host goes on, and work on the GPU fails with the
// reason.
void expect_lost(const std::function<void()>& use) {
  expect_in(error_of<DeviceError>(use), kLost);
  expect_in(error_of<DeviceError>(use), {"the GPU was lost to this process"});
  expect_in(error_of<DeviceError>([] {
              (ones({3, 5}) + 1.f).block_until_ready();
            }),
            {"the GPU was lost to this process", "cudaErrorIllegalAddress"});
  // Larger than everything that is cached, so that memory is not what is missing.
  expect_in(error_of<DeviceError>([] { zeros({1 << 22}).block_until_ready(); }),
            {"the GPU was lost to this process"});
  expect_in(error_of<DeviceError>([] {
              array<float>({1, 2, 3}, {3}).block_until_ready();
            }),
            {"the GPU was lost to this process"});
  std::printf("%s", Shape{2, 3}.num_elements() == 6 && devices().size() == 8 ? "went on" : "");
}

TEST(IllegalAccess, InAUsersKernelRunEagerly) {
  const auto program = [] {
    const auto p = wild();
    const Array x = ones({8}) + 1.f;
    p.bind(x).block_until_ready();
    shmap_sim::inject_kernel_fault("users_kernel");
    const Array y = p.bind(x);
    expect_lost([&] { (y + 1.f).block_until_ready(); });
  };
  expect_printed({}, program, {"went on"});
}

TEST(IllegalAccess, InAUsersKernelInABody) {
  const auto program = [] {
    const Mesh mesh = make_mesh({8}, "i");
    const Array x = device_put(ones({8}), NamedSharding(mesh, P("i")));
    const auto f =
        shard_map([p = wild()](Array b) { return psum(p.bind(b), "i"); }, mesh, P("i"), P());
    f(x).block_until_ready();
    shmap_sim::inject_kernel_fault("users_kernel", cudaErrorIllegalAddress, 5);
    // The fault may be seen as soon as the body sends its sum.
    std::optional<Array> y;
    expect_lost([&] {
      if (!y) y = f(x);
      y->block_until_ready();
    });
  };
  expect_printed({}, program, {"went on"});
}

TEST(IllegalAccess, InAUsersKernelOfAGraph) {
  const auto program = [] {
    const Array x = ones({8}) + 1.f;
    const auto f = jit([p = wild()](Array a) { return p.bind(a + 1.f) * 2.f; });
    for (int call = 0; call < 5; ++call) f(x).block_until_ready();
    shmap_sim::inject_kernel_fault("users_kernel");
    const Array y = f(x);
    // A replay is one task: which of its kernels it was is not known.
    expect_in(error_of<DeviceError>([&] { y.block_until_ready(); }),
              {"the GPU was lost to this process", "cudaErrorIllegalAddress", "'graph'",
               "compute-sanitizer"});
    expect_in(error_of<DeviceError>([&] { f(x).block_until_ready(); }),
              {"the GPU was lost to this process"});
    std::printf("went on");
  };
  expect_printed({}, program, {"went on"});
}

}  // namespace
}  // namespace shmap
