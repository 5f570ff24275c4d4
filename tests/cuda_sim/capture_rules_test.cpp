// The software CUDA runtime: stream capture, graphs, and what capture forbids.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "cuda_sim.h"

namespace {

#define CHECK_CUDA(call) ASSERT_EQ((call), cudaSuccess)

__global__ void add(int* x, int value) { *x += value; }
__global__ void set_to(int* x, int value) { *x = value; }
__global__ void sum_of(int* to, const int* a, const int* b) { *to = *a + *b; }

template <class... E, class... A>
cudaError_t run(cudaStream_t stream, void (*kernel)(E...), A... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 1;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

class CaptureRules : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SHMAP_SIM_GPUS", "2", 1);
    shmap_sim::reset();
    ASSERT_EQ(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event2, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&x, 4 * sizeof(int)), cudaSuccess);
    ASSERT_EQ(cudaMemset(x, 0, 4 * sizeof(int)), cudaSuccess);
  }
  int read(int i) {
    int value = -1;
    EXPECT_EQ(cudaMemcpy(&value, x + i, sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }
  cudaStreamCaptureStatus status(cudaStream_t stream) {
    cudaStreamCaptureStatus result = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(stream, &result), cudaSuccess);
    return result;
  }
  // Ends the capture of a, which some call has broken.
  void expect_invalidated() {
    EXPECT_EQ(status(a), cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(run(a, add, x, 1), cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status(a), cudaStreamCaptureStatusNone);
  }
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  cudaEvent_t event = nullptr;
  cudaEvent_t event2 = nullptr;
  int* x = nullptr;
};

TEST_F(CaptureRules, ForksAndJoins) {
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  CHECK_CUDA(run(a, add, x, 1));
  CHECK_CUDA(cudaEventRecord(event, a));
  CHECK_CUDA(cudaStreamWaitEvent(b, event, 0));
  EXPECT_EQ(status(b), cudaStreamCaptureStatusActive);
  CHECK_CUDA(cudaMemcpyAsync(x + 1, x, sizeof(int), cudaMemcpyDeviceToDevice, b));
  CHECK_CUDA(run(b, add, x + 1, 10));
  CHECK_CUDA(cudaMemcpyAsync(x + 2, x, sizeof(int), cudaMemcpyDeviceToDevice, a));
  CHECK_CUDA(cudaEventRecord(event2, b));
  CHECK_CUDA(cudaStreamWaitEvent(a, event2, 0));
  CHECK_CUDA(run(a, sum_of, x + 3, static_cast<const int*>(x + 1), static_cast<const int*>(x + 2)));
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamEndCapture(a, &graph));
  EXPECT_EQ(status(b), cudaStreamCaptureStatusNone);

  size_t n = 0;
  CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &n));
  ASSERT_EQ(n, 5u);
  std::vector<cudaGraphNode_t> nodes(n);
  CHECK_CUDA(cudaGraphGetNodes(graph, nodes.data(), &n));
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  CHECK_CUDA(cudaGraphNodeGetType(nodes[0], &type));
  EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  CHECK_CUDA(cudaGraphNodeGetType(nodes[1], &type));
  EXPECT_EQ(type, cudaGraphNodeTypeMemcpy);
  CHECK_CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, &n));
  EXPECT_EQ(n, 5u);
  CHECK_CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &n));
  EXPECT_EQ(n, 5u);
  CHECK_CUDA(cudaGraphGetRootNodes(graph, nullptr, &n));
  EXPECT_EQ(n, 1u);
  EXPECT_EQ(read(0), 0);  // nothing ran

  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CHECK_CUDA(cudaGraphDestroy(graph));
  for (int i = 1; i <= 10; ++i) {
    shmap_sim::set_seed(i);
    CHECK_CUDA(cudaGraphLaunch(exec, a));
    CHECK_CUDA(cudaStreamSynchronize(a));
    EXPECT_EQ(read(3), 2 * i + 10);
  }
  // Launches in two streams don't overlap: each adds one.
  CHECK_CUDA(cudaGraphLaunch(exec, a));
  CHECK_CUDA(cudaGraphLaunch(exec, b));
  CHECK_CUDA(cudaGraphExecDestroy(exec));  // those under way go on
  CHECK_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(read(3), 2 * 12 + 10);
}

TEST_F(CaptureRules, ReachesAnotherDevice) {
  cudaStream_t other = nullptr;
  cudaEvent_t back = nullptr;
  int* y = nullptr;
  CHECK_CUDA(cudaSetDevice(1));
  CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
  CHECK_CUDA(cudaMalloc(&y, sizeof(int)));
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(cudaEventRecord(event, a));
  CHECK_CUDA(cudaStreamWaitEvent(other, event, 0));
  CHECK_CUDA(cudaSetDevice(1));
  CHECK_CUDA(run(other, set_to, y, 5));
  EXPECT_EQ(cudaEventRecord(event2, other), cudaErrorInvalidResourceHandle);  // of device 0
  CHECK_CUDA(cudaEventRecord(back, other));
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaStreamWaitEvent(a, back, 0));
  CHECK_CUDA(cudaMemcpyPeerAsync(x, 0, y, 1, sizeof(int), a));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamEndCapture(a, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CHECK_CUDA(cudaGraphLaunch(exec, a));
  CHECK_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(read(0), 5);
}

TEST_F(CaptureRules, WaitingAndAskingBreakIt) {
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
  expect_invalidated();
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorStreamCaptureUnsupported);
  expect_invalidated();
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  expect_invalidated();
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(cudaEventRecord(event, a));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  expect_invalidated();
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaErrorCapturedEvent);
  CHECK_CUDA(cudaEventRecord(event, b));  // and is an ordinary event again
  CHECK_CUDA(cudaEventSynchronize(event));
}

TEST_F(CaptureRules, DependenciesMayNotCrossItsBorder) {
  CHECK_CUDA(cudaEventRecord(event, b));
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureIsolation);
  expect_invalidated();

  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(cudaStreamBeginCapture(b, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(cudaEventRecord(event, b));
  EXPECT_EQ(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureMerge);
  expect_invalidated();
  EXPECT_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureRules, MustBeJoinedAndEndedWhereItBegan) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed),
            cudaErrorStreamCaptureUnsupported);
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  CHECK_CUDA(cudaEventRecord(event, a));
  CHECK_CUDA(cudaStreamWaitEvent(b, event, 0));
  CHECK_CUDA(run(b, add, x, 1));
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(status(b), cudaStreamCaptureStatusNone);

  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(cudaEventRecord(event, a));
  CHECK_CUDA(cudaStreamWaitEvent(b, event, 0));
  EXPECT_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
  expect_invalidated();

  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  std::thread([&] {
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  CHECK_CUDA(cudaStreamEndCapture(a, &graph));
}

TEST_F(CaptureRules, ModesSayWhoMayAllocate) {
  void* p = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(cudaMalloc(&p, 1));
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamEndCapture(a, &graph));

  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  std::thread([&] { EXPECT_EQ(cudaMalloc(&p, 1), cudaSuccess); }).join();
  EXPECT_EQ(cudaMalloc(&p, 1), cudaErrorStreamCaptureUnsupported);
  expect_invalidated();

  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  std::thread([&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
    EXPECT_EQ(cudaMalloc(&p, 1), cudaSuccess);
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&p, 1), cudaErrorStreamCaptureUnsupported);
  }).join();
  expect_invalidated();
}

TEST_F(CaptureRules, TheDefaultStreamMustNotWaitForIt) {
  cudaStream_t blocking = nullptr;
  CHECK_CUDA(cudaStreamCreate(&blocking));
  CHECK_CUDA(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(run(nullptr, add, x, 1), cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(run(nullptr, add, x, 1));
  CHECK_CUDA(cudaStreamEndCapture(a, &graph));
}

TEST_F(CaptureRules, UpdatesReplaceParameters) {
  cudaGraph_t graphs[3] = {};
  for (int i = 0; i < 3; ++i) {
    CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    CHECK_CUDA(run(a, set_to, x + (i == 1 ? 1 : 0), 7 + i));
    if (i == 2) {
      CHECK_CUDA(run(a, set_to, x, 0));
    }
    CHECK_CUDA(cudaStreamEndCapture(a, &graphs[i]));
  }
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaGraphInstantiate(&exec, graphs[0], 0));
  CHECK_CUDA(cudaGraphLaunch(exec, a));
  cudaGraphExecUpdateResultInfo info = {};
  CHECK_CUDA(cudaGraphExecUpdate(exec, graphs[1], &info));
  EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
  CHECK_CUDA(cudaGraphLaunch(exec, a));
  CHECK_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(read(0), 7);
  EXPECT_EQ(read(1), 8);
  EXPECT_EQ(cudaGraphExecUpdate(exec, graphs[2], &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
}

TEST_F(CaptureRules, StandInsWorkIsCapturedToo) {
  int* address = x;
  auto work = [address] { *address += 1; };
  CHECK_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  CHECK_CUDA(cudaEventRecord(event, a));
  CHECK_CUDA(cudaStreamWaitEvent(b, event, 0));
  CHECK_CUDA(shmap_sim::enqueue_group({a, b}, "standIn", work));
  CHECK_CUDA(run(b, add, x, 1));
  CHECK_CUDA(cudaEventRecord(event2, b));
  CHECK_CUDA(cudaStreamWaitEvent(a, event2, 0));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaStreamEndCapture(a, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CHECK_CUDA(cudaGraphLaunch(exec, a));
  CHECK_CUDA(cudaStreamSynchronize(a));
  EXPECT_EQ(read(0), 2);
  // Outside of a capture: after what is before it in each, before what is after it in each.
  for (int seed = 1; seed < 10; ++seed) {
    shmap_sim::set_seed(seed);
    CHECK_CUDA(run(b, set_to, x, 5));
    CHECK_CUDA(shmap_sim::enqueue_group({a, b}, "standIn", work));
    CHECK_CUDA(run(b, add, x, 10));
    CHECK_CUDA(cudaStreamSynchronize(b));
    EXPECT_EQ(read(0), 16);
  }
}

}  // namespace
