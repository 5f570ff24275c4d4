// A process on a node with many GPUs: what it does to those that it does not use, and how many it
// can use.
#include <gtest/gtest.h>
#include <shmap/shmap.h>

#include <cstdlib>
#include <span>
#include <thread>
#include <vector>

#include "cuda/backend/backend.h"
#include "cuda/driver/gpus.h"
#include "cuda_sim.h"

namespace shmap {
namespace {

TEST(ManyGpus, ReachEightOthersEach) {
  setenv("SHMAP_SIM_GPUS", "10", 1);
  shmap_sim::reset();
  const cuda::CudaBackend backend(DeviceSpec::parse("cuda"), 0, 0, -1);
  EXPECT_EQ(backend.devices().size(), 10u);
  EXPECT_TRUE(cuda::reaches(0, 8));
  EXPECT_FALSE(cuda::reaches(0, 9));
}

// Contexts take hundreds of MB of a GPU's memory: where each process of a node has a GPU of its
// own, they must not all have one on GPU 0 too.
TEST(ManyGpus, HaveNoContextUnlessTheyAreUsed) {
  setenv("SHMAP_SIM_GPUS", "2", 1);
  setenv("SHMAP_SIM_LT_WORKSPACE", "1", 1);
  setenv("SHMAP_DEVICES", "cuda:1", 1);
  shmap_sim::reset();
  auto f = jit([](Array a) { return matmul(a, a) + cumsum(tanh(a), 0); });
  const std::vector<float> values(64 * 64, 0.5f);
  const auto made = [&] { return array(std::span(values), {64, 64}); };
  const Array x = made();
  const std::vector<float> want = f(x).to_vector<float>();
  // On threads that never chose a GPU: transfers, captures, eager operations.
  for (int turn = 0; turn < 3; ++turn) {
    std::thread([&] {
      EXPECT_EQ(f(x).to_vector<float>(), want);
      EXPECT_EQ((x + made()).to_vector<float>()[7], 1.f);
    }).join();
  }
  // A thread that only waits.
  const Array pending = f(x);
  std::thread([&] { pending.block_until_ready(); }).join();
  // Memory is short: unused blocks go back to the driver.
  shmap_sim::inject("cudaMalloc", cudaErrorMemoryAllocation);
  std::thread([] { full({1 << 24}, 1.f).block_until_ready(); }).join();
  EXPECT_TRUE(shmap_sim::has_context(1));
  EXPECT_FALSE(shmap_sim::has_context(0));
}

}  // namespace
}  // namespace shmap
