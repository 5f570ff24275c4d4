// The software CUDA runtime itself: execution, ordering freedom, streams, memory, faults.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "cuda_sim.h"

namespace {

#define CHECK_CUDA(call) ASSERT_EQ((call), cudaSuccess)

class CudaSim : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SHMAP_SIM_GPUS", "2", 1);
    shmap_sim::reset();
  }
};

template <class... E, class... A>
cudaError_t run(dim3 grid, dim3 block, cudaStream_t stream, void (*kernel)(E...), A... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  return stream;
}

template <class T>
T* new_array(int n) {
  void* address = nullptr;
  EXPECT_EQ(cudaMalloc(&address, n * sizeof(T)), cudaSuccess);
  return static_cast<T*>(address);
}

template <class T>
std::vector<T> read(const T* array, int n) {
  std::vector<T> result(n);
  EXPECT_EQ(cudaMemcpy(result.data(), array, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  return result;
}

__global__ void scale(float* x, int n, float by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] = static_cast<float>(i) * by;
}

__global__ void block_sum(const int* x, int* sums) {
  __shared__ unsigned part[256];  // sums of memory that was never written wrap
  const int t = static_cast<int>(threadIdx.x);
  part[t] = static_cast<unsigned>(x[blockIdx.x * blockDim.x + threadIdx.x]);
  for (int step = 128; step > 0; step /= 2) {
    __syncthreads();
    if (t < step) part[t] += part[t + step];
  }
  if (t == 0) sums[blockIdx.x] = static_cast<int>(part[0]);
}

__global__ void warp_sums(const double* x, double* sums) {
  double value = x[threadIdx.x];
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  sums[threadIdx.x] = value;
}

// Also receives addresses that it cannot reach: the simulator must notice them, not a sanitizer.
__attribute__((no_sanitize("null"))) __global__ void add_one(int* x) { *x += 1; }
__global__ void set_to(int* x, int value) { *x = value; }

// Writes beyond allocated memory, unseen by a sanitizer.
__attribute__((no_sanitize("address"))) void write_unseen(char* p) { *p = 0; }
__global__ void copy_one(int* to, const int* from) { *to = *from; }
__global__ void divergent(int* x) {
  if (threadIdx.x < 32) __syncthreads();
  *x = 1;
}
__global__ void missing_lane(int* x) {
  if (threadIdx.x != 3) *x = __shfl_down_sync(0xffffffffu, 1, 1);
}

// Reverses a block's part of x in dynamic shared memory, which it uses from index `from` on.
__global__ void waits_first(int* x) {
  cudaGridDependencySynchronize();
  if (threadIdx.x == 0) *x = 1;
}
__global__ void half_wait(int* x) {
  if (threadIdx.x < 32) cudaGridDependencySynchronize();
  if (threadIdx.x == 0) *x = 2;
}
__global__ void reverse(int* x, int from) {
  int* const part = static_cast<int*>(shmap_sim::dynamic_shared()) + from;
  const unsigned t = threadIdx.x, n = blockDim.x;
  part[n - 1 - t] = x[blockIdx.x * n + t];
  __syncthreads();
  x[blockIdx.x * n + t] = part[t];
}

TEST_F(CudaSim, RunsPlainKernels) {
  float* x = new_array<float>(1000);
  CHECK_CUDA(run(4, 256, nullptr, scale, x, 1000, 0.5));
  const std::vector<float> got = read(x, 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(got[i], static_cast<float>(i) * 0.5f);
}

TEST_F(CudaSim, MeetsBarriers) {
  std::vector<int> host(1024);
  for (int i = 0; i < 1024; ++i) host[i] = i;
  int* x = new_array<int>(1024);
  int* sums = new_array<int>(4);
  CHECK_CUDA(cudaMemcpy(x, host.data(), 4096, cudaMemcpyHostToDevice));
  for (int seed = 1; seed < 5; ++seed) {
    shmap_sim::set_seed(seed);
    CHECK_CUDA(run(4, 256, nullptr, block_sum, x, sums));
    const std::vector<int> got = read(sums, 4);
    for (int b = 0; b < 4; ++b) EXPECT_EQ(got[b], 256 * 256 * b + 255 * 128);
  }
}

TEST_F(CudaSim, ShufflesAmongLanes) {
  std::vector<double> host(64);
  for (int i = 0; i < 64; ++i) host[i] = i;
  double* x = new_array<double>(64);
  double* sums = new_array<double>(64);
  CHECK_CUDA(cudaMemcpy(x, host.data(), 512, cudaMemcpyHostToDevice));
  CHECK_CUDA(run(1, 64, nullptr, warp_sums, x, sums));
  const std::vector<double> got = read(sums, 64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(got[i], i < 32 ? 496 : 1520);
}

TEST_F(CudaSim, NothingRunsBeforeSomebodyWaits) {
  cudaStream_t stream = new_stream();
  int* x = new_array<int>(1);
  shmap_sim::record_calls(true);
  CHECK_CUDA(run(1, 1, stream, set_to, x, 3));
  EXPECT_TRUE(shmap_sim::executed().empty());
  CHECK_CUDA(cudaStreamSynchronize(stream));
  ASSERT_EQ(shmap_sim::executed().size(), 1u);
  EXPECT_NE(shmap_sim::executed()[0].find("set_to"), std::string::npos);
  EXPECT_EQ(read(x, 1)[0], 3);
}

// One stream writes and another reads. True if the read came second.
bool reads_what_was_written(int seed, bool wait) {
  shmap_sim::set_seed(seed);
  cudaStream_t writer = new_stream();
  cudaStream_t reader = new_stream();
  int* x = new_array<int>(2);
  cudaEvent_t event;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(run(1, 1, writer, set_to, x, 7), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, writer), cudaSuccess);
  if (wait) {
    EXPECT_EQ(cudaStreamWaitEvent(reader, event, 0), cudaSuccess);
  }
  EXPECT_EQ(run(1, 1, reader, copy_one, x + 1, static_cast<const int*>(x)), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(reader), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(writer), cudaSuccess);
  return read(x, 2)[1] == 7;
}

TEST_F(CudaSim, AMissingWaitIsCaught) {
  int right = 0;
  for (int seed = 1; seed <= 20; ++seed) right += reads_what_was_written(seed, false) ? 1 : 0;
  EXPECT_LT(right, 20);
  EXPECT_GT(right, 0);
  for (int seed = 1; seed <= 20; ++seed) EXPECT_TRUE(reads_what_was_written(seed, true));
}

TEST_F(CudaSim, DivergentBarriersAndMissingLanesLoseTheDevice) {
  for (void (*kernel)(int*) : {divergent, missing_lane}) {
    shmap_sim::reset();
    cudaStream_t stream = new_stream();
    int* x = new_array<int>(1);
    CHECK_CUDA(run(1, 64, stream, kernel, x));
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaFree(x), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);  // it can't be cleared
    CHECK_CUDA(cudaSetDevice(1));
    EXPECT_NE(new_array<int>(1), nullptr);  // the other one lives
  }
}

TEST_F(CudaSim, ADependentLaunchWantsEveryThreadToWaitForThePredecessor) {
  cudaLaunchAttribute dependent = {};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  const auto launch = [&](void (*kernel)(int*), cudaStream_t stream, int* x) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(2);
    config.blockDim = dim3(64);
    config.stream = stream;
    config.attrs = &dependent;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, x);
  };
  cudaStream_t stream = new_stream();
  int* x = new_array<int>(1);
  CHECK_CUDA(launch(waits_first, stream, x));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  dependent.val.programmaticStreamSerializationAllowed = 0;
  CHECK_CUDA(launch(half_wait, stream, x));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  dependent.val.programmaticStreamSerializationAllowed = 1;
  CHECK_CUDA(launch(half_wait, stream, x));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
}

TEST_F(CudaSim, IllegalAccessesLoseTheDevice) {
  cudaStream_t stream = new_stream();
  CHECK_CUDA(run(1, 1, stream, add_one, static_cast<int*>(nullptr)));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  shmap_sim::reset();  // the next kernel runs as if nothing had happened
  stream = new_stream();
  int* y = new_array<int>(1024);
  int* sums = new_array<int>(4);
  CHECK_CUDA(cudaMemset(y, 0, 4096));
  CHECK_CUDA(run(4, 256, stream, block_sum, y, sums));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(read(sums, 1)[0], 0);
}

// With SHMAP_SIM_PROTECT the host and other GPUs cannot access device memory.
TEST_F(CudaSim, ProtectsDeviceMemory) {
  setenv("SHMAP_SIM_PROTECT", "1", 1);
  shmap_sim::reset();
  unsetenv("SHMAP_SIM_PROTECT");
  int* x = new_array<int>(1);
  EXPECT_DEATH(*x = 1, "");
  CHECK_CUDA(cudaMemset(x, 0, 4));
  CHECK_CUDA(run(1, 1, nullptr, add_one, x));
  EXPECT_EQ(read(x, 1)[0], 1);
  CHECK_CUDA(cudaSetDevice(1));
  CHECK_CUDA(cudaDeviceEnablePeerAccess(0, 0));
  CHECK_CUDA(run(1, 1, nullptr, add_one, x));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaDeviceDisablePeerAccess(0));
  CHECK_CUDA(run(1, 1, nullptr, add_one, x));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  CHECK_CUDA(cudaSetDevice(0));
  EXPECT_EQ(read(x, 1)[0], 2);
  shmap_sim::reset();
}

TEST_F(CudaSim, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      EXPECT_EQ(cudaSetDevice(t % 2), cudaSuccess);
      cudaStream_t stream = new_stream();
      int* x = new_array<int>(1);
      int* y = new_array<int>(1024);
      int* sums = new_array<int>(4);
      EXPECT_EQ(cudaMemsetAsync(x, 0, 4, stream), cudaSuccess);
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(run(1, 1, stream, add_one, x), cudaSuccess);
        if (i % 7 == 0) {
          EXPECT_EQ(run(4, 256, stream, block_sum, y, sums), cudaSuccess);
        }
        if (i % 11 == 0) {
          EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        }
      }
      int got = 0;
      EXPECT_EQ(cudaMemcpyAsync(&got, x, 4, cudaMemcpyDeviceToHost, stream), cudaSuccess);
      EXPECT_EQ(got, 200);  // pageable: there on return
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaSim, ChecksLaunches) {
  int* x = new_array<int>(1);
  EXPECT_EQ(run(1, 1025, nullptr, add_one, x), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(0, 1, nullptr, add_one, x), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(dim3(1, 65536), 1, nullptr, add_one, x), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaLaunchKernel(static_cast<const void*>(nullptr), 1, 1, nullptr, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  cudaStream_t other = nullptr;
  CHECK_CUDA(cudaSetDevice(1));
  CHECK_CUDA(cudaStreamCreate(&other));
  CHECK_CUDA(cudaSetDevice(0));
  EXPECT_EQ(run(1, 1, other, add_one, x), cudaErrorInvalidResourceHandle);
}

TEST_F(CudaSim, DynamicSharedMemoryIsAskedForAndGuarded) {
  cudaStream_t stream = new_stream();
  std::vector<int> host(512);
  for (int i = 0; i < 512; ++i) host[i] = i;
  int* x = new_array<int>(512);
  CHECK_CUDA(cudaMemcpy(x, host.data(), 2048, cudaMemcpyHostToDevice));
  constexpr int kBytes = 64 << 10, kLast = kBytes / 4 - 256;
  const auto launch = [&](int bytes, int from) {
    cudaLaunchConfig_t config = {};
    config.gridDim = 2;
    config.blockDim = 256;
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, reverse, x, from);
  };
  const auto ask = [&](int bytes) {
    return cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  EXPECT_EQ(launch(kBytes, 0), cudaErrorInvalidValue);  // not asked for
  EXPECT_EQ(ask(1 << 20), cudaErrorInvalidValue);
  CHECK_CUDA(ask(kBytes));
  EXPECT_EQ(launch(kBytes + 4, 0), cudaErrorInvalidValue);
  CHECK_CUDA(launch(kBytes, kLast));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  const std::vector<int> got = read(x, 512);
  for (int i = 0; i < 512; ++i) ASSERT_EQ(got[i], i < 256 ? 255 - i : 767 - i);
  CHECK_CUDA(launch(kBytes, kLast + 1));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
}

TEST_F(CudaSim, HostAddressesAreNoKernelParameters) {
  int local = 0;
  cudaStream_t stream = new_stream();
  CHECK_CUDA(run(1, 1, stream, add_one, &local));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(local, 0);
}

TEST_F(CudaSim, AccountsForMemory) {
  setenv("SHMAP_SIM_MEMORY", "1048576", 1);
  shmap_sim::reset();
  unsetenv("SHMAP_SIM_MEMORY");
  void* all = nullptr;
  void* more = nullptr;
  CHECK_CUDA(cudaMalloc(&all, 1 << 20));
  EXPECT_EQ(*static_cast<unsigned char*>(all), 0xA5);
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  CHECK_CUDA(cudaSetDevice(1));
  CHECK_CUDA(cudaMalloc(&more, 1));
  size_t free = 0;
  size_t total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(total, 1u << 20);
  EXPECT_EQ(free, (1u << 20) - 1);
  EXPECT_EQ(cudaFree(static_cast<char*>(all) + 512), cudaErrorInvalidValue);
  CHECK_CUDA(cudaFree(all));
  write_unseen(static_cast<char*>(more) + 1);
  CHECK_CUDA(cudaFree(more));
  EXPECT_TRUE(shmap_sim::overrun_seen());
  EXPECT_EQ(shmap_sim::counts().allocations, 0u);
}

#if defined(__SANITIZE_ADDRESS__)
using CudaSimDeathTest = CudaSim;
TEST_F(CudaSimDeathTest, AddressSanitizerKnowsDeviceMemory) {
  int* x = new_array<int>(4);
  cudaStream_t stream = new_stream();
  EXPECT_DEATH(
      {
        run(1, 1, stream, set_to, x + 4, 1);
        cudaStreamSynchronize(stream);
      },
      "use-after-poison");
  EXPECT_DEATH(
      {
        cudaFree(x);
        run(1, 1, stream, set_to, x, 1);
        cudaStreamSynchronize(stream);
      },
      "use-after-poison");
}
#endif

TEST_F(CudaSim, ChecksCopies) {
  char host[16] = {};
  char* x = new_array<char>(16);
  EXPECT_EQ(cudaMemcpy(x, host, 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, x, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x, host, 16, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  CHECK_CUDA(cudaMemcpy(x, host, 16, cudaMemcpyDefault));
  CHECK_CUDA(cudaMemset(x, 5, 16));
  CHECK_CUDA(cudaMemcpy2D(host, 2, x, 4, 1, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(host[6], 5);
  EXPECT_EQ(host[7], 0);
}

TEST_F(CudaSim, NoDriverAndNoDevice) {
  unsetenv("SHMAP_SIM_GPUS");
  shmap_sim::reset();
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  CHECK_CUDA(cudaDriverGetVersion(&count));
  EXPECT_EQ(count, 0);
  setenv("SHMAP_SIM_GPUS", "0", 1);
  shmap_sim::reset();
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
}

TEST_F(CudaSim, FaultsStrikeOnce) {
  void* p = nullptr;
  shmap_sim::inject("cudaMalloc", cudaErrorMemoryAllocation, 2);
  CHECK_CUDA(cudaMalloc(&p, 8));
  EXPECT_EQ(cudaMalloc(&p, 8), cudaErrorMemoryAllocation);
  CHECK_CUDA(cudaMalloc(&p, 8));
  int* x = new_array<int>(1);
  cudaStream_t stream = new_stream();
  shmap_sim::inject_kernel_fault("set_to", cudaErrorIllegalAddress, 2);
  CHECK_CUDA(run(1, 1, stream, set_to, x, 1));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(run(1, 1, stream, set_to, x, 2));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMalloc(&p, 8), cudaErrorIllegalAddress);
}

TEST_F(CudaSim, TheDefaultStreamWaitsForBlockingStreams) {
  int* x = new_array<int>(2);
  cudaStream_t blocking = nullptr;
  CHECK_CUDA(cudaStreamCreate(&blocking));
  for (int i = 0; i < 20; ++i) {
    CHECK_CUDA(run(1, 1, blocking, set_to, x, i));
    CHECK_CUDA(run(1, 1, nullptr, copy_one, x + 1, static_cast<const int*>(x)));
    CHECK_CUDA(run(1, 1, blocking, set_to, x, -1));
    CHECK_CUDA(cudaStreamSynchronize(blocking));
    EXPECT_EQ(read(x, 2)[1], i);
  }
}

TEST_F(CudaSim, HostFunctionsMayNotCallTheApi) {
  cudaStream_t stream = new_stream();
  cudaError_t got = cudaSuccess;
  CHECK_CUDA(cudaLaunchHostFunc(
      stream,
      [](void* result) {
        void* p = nullptr;
        *static_cast<cudaError_t*>(result) = cudaMalloc(&p, 1);
      },
      &got));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(got, cudaErrorNotPermitted);
}

TEST_F(CudaSim, QueriesMakeProgress) {
  cudaStream_t stream = new_stream();
  int* x = new_array<int>(1);
  CHECK_CUDA(run(1, 1, stream, set_to, x, 0));
  for (int i = 0; i < 9; ++i) CHECK_CUDA(run(1, 1, stream, add_one, x));
  int polls = 0;
  while (cudaStreamQuery(stream) == cudaErrorNotReady) ASSERT_LT(++polls, 1000);
  EXPECT_GT(polls, 0);
  EXPECT_EQ(read(x, 1)[0], 9);
}

}  // namespace
