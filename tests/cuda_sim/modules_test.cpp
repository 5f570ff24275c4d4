// The software CUDA runtime: kernels of images, loaded by the module API.
#include <cuda.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "cuda_sim.h"

namespace {

template <class F>
F driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  EXPECT_EQ(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found), cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSuccess);
  return reinterpret_cast<F>(function);
}
#define DRIVER(name) driver<decltype(&name)>(#name)

// Compiles a program as a compiler at run time would. Returns the path of the image, or "" without
// a compiler.
std::string build_image(const std::string& program) {
  // The one folder of the tests whose full path is known: __FILE__ may be relative.
  const std::string include = SHMAP_GOLDEN_DIR "/../../cuda_sim/include";
  const std::string stem = testing::TempDir() + "shmap_sim_image" + std::to_string(getpid());
  std::ofstream(stem + ".cpp") << program;
  const std::string command = "c++ -std=c++20 -O1 -shared -fPIC -I '" + include + "' -o '" + stem +
                              ".so' '" + stem + ".cpp'";
  const bool built = std::system("c++ --version >/dev/null 2>&1") == 0;
  if (built) {
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  std::remove((stem + ".cpp").c_str());
  return built ? stem + ".so" : "";
}

TEST(Modules, KernelsOfAnImageRun) {
  setenv("SHMAP_SIM_GPUS", "1", 1);
  shmap_sim::reset();
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // binds this thread's context, which drivers want
  const std::string image = build_image(R"(
#include <cuda_runtime.h>
extern "C" __global__ void sum_up(float* to, const float* x, float start, short n) {
  __shared__ float part[64];
  part[threadIdx.x] = static_cast<int>(threadIdx.x) < n ? x[threadIdx.x] : 0.0f;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = start;
    for (float value : part) sum += value;
    to[blockIdx.x] = sum;
  }
}
SHMAP_SIM_KERNEL(sum_up)
)");
  if (image.empty())
    GTEST_SKIP() << "there is no c++ on the PATH, which the simulator compiles modules with";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(DRIVER(cuModuleLoadData)(&module, image.c_str()), CUDA_SUCCESS);
  std::remove(image.c_str());
  EXPECT_EQ(DRIVER(cuModuleGetFunction)(&function, module, "no_such"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(DRIVER(cuModuleGetFunction)(&function, module, "sum_up"), CUDA_SUCCESS);

  const std::vector<float> host(64, 2.0f);
  float* x = nullptr;
  float* to = nullptr;
  ASSERT_EQ(cudaMalloc(&x, 256), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&to, 8), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(x, host.data(), 256, cudaMemcpyHostToDevice), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const auto launch = DRIVER(cuLaunchKernel);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  {
    float start = 1;
    short n = 10;
    void* args[] = {&to, &x, &start, &n};
    ASSERT_EQ(launch(function, 2, 1, 1, 64, 1, 1, 0, stream, args, nullptr), CUDA_SUCCESS);
    start = 100;  // the parameters were copied
    n = 0;
    EXPECT_EQ(launch(function, 0, 1, 1, 64, 1, 1, 0, stream, args, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    CUlaunchConfig config = {};
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 64;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    EXPECT_EQ(DRIVER(cuLaunchKernelEx)(&config, function, args, nullptr),
              CUDA_ERROR_INVALID_VALUE);  // a grid of no blocks
  }
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0ULL), cudaSuccess);
  shmap_sim::record_calls(true);
  ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  float got[2] = {};
  ASSERT_EQ(cudaMemcpyAsync(got, to, 8, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(got[0], 21);
  EXPECT_EQ(got[1], 21);
  EXPECT_EQ(shmap_sim::executed().at(0), "sum_up");
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(DRIVER(cuModuleUnload)(module), CUDA_SUCCESS);
  EXPECT_EQ(launch(function, 1, 1, 1, 64, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  const char* text = nullptr;
  EXPECT_EQ(DRIVER(cuGetErrorString)(CUDA_ERROR_INVALID_HANDLE, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "invalid resource handle");
}

TEST(Modules, WhatIsNoImageIsRefused) {
  setenv("SHMAP_SIM_GPUS", "1", 1);
  shmap_sim::reset();
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // binds this thread's context, which drivers want
  CUmodule module = nullptr;
  EXPECT_EQ(DRIVER(cuModuleLoadData)(&module, "not a path"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(DRIVER(cuModuleLoadData)(&module, "/no/such/image.so"), CUDA_ERROR_INVALID_IMAGE);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  EXPECT_EQ(cudaGetDriverEntryPoint("cuNothing", &function, cudaEnableDefault, &found),
            cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
}

}  // namespace
