// The small fills of a captured graph become kernels, which fill as the nodes before them did.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "cuda/device/small_fills.h"
#include "cuda/driver/error.h"
#include "cuda/kernels/move/fill_node.h"
#include "tests/cuda/kernels/device_memory.h"

namespace shmap::cuda {
namespace {

using namespace testing;
using Bytes = std::vector<std::uint8_t>;

class CudaSmallFills : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    check(cudaEventDestroy(event_), "cudaEventDestroy");
    check(cudaStreamDestroy(other_), "cudaStreamDestroy");
    check(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

  void fill(void* at, int value, std::size_t bytes) {
    check(cudaMemsetAsync(at, value, bytes, stream_), "cudaMemsetAsync");
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
  }

  // Captures `calls`, replaces the fills, expects that many memset nodes to be left, and runs the
  // graph twice.
  void run(int left, const std::function<void()>& calls) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    calls();
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    const std::size_t before = nodes(graph).size();
    replace_small_fills(graph);
    const std::vector<cudaGraphNodeType> after = nodes(graph);
    EXPECT_EQ(after.size(), before);
    EXPECT_EQ(std::ranges::count(after, cudaGraphNodeTypeMemset), left);
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    for (int i = 0; i < 2; ++i) check(cudaGraphLaunch(exec, stream_), "cudaGraphLaunch");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }

  static std::vector<cudaGraphNodeType> nodes(cudaGraph_t graph) {
    std::size_t n = 0;
    check(cudaGraphGetNodes(graph, nullptr, &n), "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> all(n);
    check(cudaGraphGetNodes(graph, all.data(), &n), "cudaGraphGetNodes");
    std::vector<cudaGraphNodeType> types(n);
    for (std::size_t i = 0; i < n; ++i)
      check(cudaGraphNodeGetType(all[i], &types[i]), "cudaGraphNodeGetType");
    return types;
  }

  cudaStream_t stream_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

// Each copy reads what the fill before it wrote, and the next fill must not overtake the copy.
TEST_F(CudaSmallFills, KeepTheirPlaceInALine) {
  const DeviceBytes x(Bytes(6, 1)), first(Bytes(6, 0)), second(Bytes(6, 0)), third(Bytes(6, 0));
  run(0, [&] {
    fill(x.data(), 7, 4);
    copy(first.data(), x.data(), 6);
    fill(x.data(), 8, 3);
    fill(static_cast<char*>(x.data()) + 1, 0x1ff, 1);  // after another fill
    copy(second.data(), x.data(), 6);
    fill(x.data(), 2, 6);
    copy(third.data(), x.data(), 6);
    fill(x.data(), 1, 6);  // the last node
  });
  EXPECT_EQ(first.read<std::uint8_t>(), Bytes({7, 7, 7, 7, 1, 1}));
  EXPECT_EQ(second.read<std::uint8_t>(), Bytes({8, 0xff, 8, 7, 1, 1}));
  EXPECT_EQ(third.read<std::uint8_t>(), Bytes(6, 2));
  EXPECT_EQ(x.read<std::uint8_t>(), Bytes(6, 1));
}

TEST_F(CudaSmallFills, KeepTheirPlaceBetweenBranches) {
  const DeviceBytes x(Bytes(4, 1)), y(Bytes(4, 1)), left(Bytes(4, 0)), right(Bytes(4, 0));
  run(0, [&] {
    fill(x.data(), 3, 4);
    check(cudaEventRecord(event_, stream_), "cudaEventRecord");
    check(cudaStreamWaitEvent(other_, event_, 0), "cudaStreamWaitEvent");
    copy(left.data(), x.data(), 4);
    check(cudaMemcpyAsync(y.data(), x.data(), 4, cudaMemcpyDeviceToDevice, other_),
          "cudaMemcpyAsync");
    check(cudaMemsetAsync(y.data(), 5, 2, other_), "cudaMemsetAsync");
    check(cudaEventRecord(event_, other_), "cudaEventRecord");
    check(cudaStreamWaitEvent(stream_, event_, 0), "cudaStreamWaitEvent");
    fill(x.data(), 9, 1);  // after both branches
    copy(right.data(), y.data(), 4);
  });
  EXPECT_EQ(left.read<std::uint8_t>(), Bytes(4, 3));
  EXPECT_EQ(right.read<std::uint8_t>(), Bytes({5, 5, 3, 3}));
  EXPECT_EQ(x.read<std::uint8_t>(), Bytes({9, 3, 3, 3}));
}

TEST_F(CudaSmallFills, LargeOnesAreLeft) {
  const std::size_t large = kMostFillBytes + 1;
  const DeviceBytes x(Bytes(large, 1)), y(Bytes(large, 1)), z(Bytes(64, 1));
  run(2, [&] {
    fill(x.data(), 2, large);
    fill(y.data(), 3, kMostFillBytes);
    // Two rows of 4 bytes.
    check(cudaMemset2DAsync(z.data(), 32, 4, 4, 2, stream_), "cudaMemset2DAsync");
  });
  EXPECT_EQ(x.read<std::uint8_t>(), Bytes(large, 2));
  Bytes partly(large, 3);
  partly.back() = 1;
  EXPECT_EQ(y.read<std::uint8_t>(), partly);
  Bytes rows(64, 1);
  for (std::size_t i = 0; i < 4; ++i) rows[i] = rows[32 + i] = 4;
  EXPECT_EQ(z.read<std::uint8_t>(), rows);
}

}  // namespace
}  // namespace shmap::cuda
