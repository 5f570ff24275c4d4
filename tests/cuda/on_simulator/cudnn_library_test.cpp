// The graphs of attention with the installed cuDNN, without a GPU: cuDNN 9.8 and newer compile for
// a GPU that is only described. Skipped if cuDNN is missing. Results of the kernels can be seen on
// a GPU only.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuda/libraries/cudnn_attention.h"
#include "cuda/libraries/late_library.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

using cudnn::Data;

// A GPU as cuDNN describes it.
std::string described(int version, int processors, int shared_memory) {
  const auto number = [](int value) { return std::to_string(value); };
  return R"({"deviceVer":)" + number(version) + R"(,"multiProcessorCount":)" + number(processors) +
         R"(,"maxSharedMemoryPerBlockOptin":)" + number(shared_memory) +
         R"(,"driverVer":13000,"cudaDeviceId":0,"warpSize":32,)"
         R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
         R"("regsPerBlock":65536,"maxSharedMemoryPerBlock":49152,)"
         R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"totalGlobalMem":85520809984,"smClockRateKHz":1980000,)"
         R"("memClockRateKHz":2619000,"l2CacheSize":52428800,"deviceName":"described"})";
}

class CudnnLibrary : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // The process has a stand-in: the installed file is named.
    setenv("SHMAP_CUDNN_PATH", "libcudnn.so.9", 0);
    void* const library = dlopen(std::getenv("SHMAP_CUDNN_PATH"), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      reason_ = dlerror();
      return;
    }
    // cuDNN compiles plans if it finds a driver; no call reaches a GPU.
    if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr && dlopen(SHMAP_NO_DRIVER, RTLD_NOW) == nullptr)
      reason_ = dlerror();
    else if (cudnn_api().version < 90800)
      reason_ = "cuDNN " + version_text(cudnn_api().version) + " compiles for no absent GPU";
  }
  void SetUp() override {
    if (!reason_.empty()) GTEST_SKIP() << reason_;
  }

  // The number of kernels that cuDNN proposes; the call takes milliseconds.
  static std::size_t proposed(CudnnGraph graph, const std::string& gpu) {
    const CudnnDescriptor device = cudnn_device(gpu);
    return graph.plans({nullptr, device.get()}, 4).size();
  }
  // Compiles the first proposed kernel, which takes most of a second, and returns its workspace.
  static std::int64_t compiled(CudnnGraph graph, const std::string& gpu) {
    const CudnnDescriptor device = cudnn_device(gpu);
    const CudnnTarget target{nullptr, device.get()};
    std::vector<CudnnPlan> plans = graph.plans(target, 1);
    std::string why = "no kernel";
    EXPECT_TRUE(!plans.empty() && plans[0].compile(target, &why)) << why;
    return plans.empty() ? -1 : plans[0].workspace();
  }

  static inline std::string reason_;
};

const std::string kH100 = described(900, 132, 232448);

CudnnAttention problem(Data type, std::int64_t heads, std::int64_t k_heads, std::int64_t rows,
                       std::int64_t depth) {
  CudnnAttention a;
  a.type = type;
  a.batch = 2;
  a.heads = heads;
  a.k_heads = k_heads;
  a.q_rows = a.k_rows = rows;
  a.depth = a.v_depth = depth;
  a.scale = 0.125f;
  // [batch, row, head, feature] in memory
  const HeadStrides q{rows * heads * depth, depth, heads * depth};
  const HeadStrides k{rows * k_heads * depth, depth, k_heads * depth};
  a.q = a.out = a.cotangent = a.q_bar = q;
  a.k = a.v = a.k_bar = a.v_bar = k;
  return a;
}

TEST_F(CudnnLibrary, IsNotTheStandIn) { EXPECT_NE(cudnn_api().version, 91901u); }

TEST_F(CudnnLibrary, HasTheForwardPass) {
  for (const Data type : {Data::bf16, Data::f16})
    for (const std::int64_t depth : {8, 64, 128, 256})
      for (const std::int64_t rows : {1, 100, 256})
        for (const std::int64_t k_heads : {8, 2})
          for (const bool causal : {false, true})
            for (const bool logs : {false, true}) {
              CudnnAttention a = problem(type, 8, k_heads, rows, depth);
              a.causal = causal;
              EXPECT_GT(proposed(cudnn_attention(a, logs), kH100), 0u)
                  << depth << " " << rows << " " << k_heads << causal << logs;
            }
}

TEST_F(CudnnLibrary, HasTheBackwardPass) {
  for (const Data type : {Data::bf16, Data::f16})
    for (const std::int64_t depth : {8, 64, 128, 256})
      for (const std::int64_t k_heads : {8, 2})
        for (const bool causal : {false, true})
          for (const bool ordered : {true, false}) {
            CudnnAttention a = problem(type, 8, k_heads, 256, depth);
            a.causal = causal;
            a.ordered = ordered;
            EXPECT_GT(proposed(cudnn_attention_grad(a), kH100), 0u)
                << depth << " " << k_heads << causal << ordered;
          }
}

TEST_F(CudnnLibrary, HasOffsetsAndBiases) {
  CudnnAttention a = problem(Data::bf16, 8, 2, 128, 64);
  a.causal = true;
  a.causal_offset = 5;
  EXPECT_GT(proposed(cudnn_attention(a, true), kH100), 0u);
  EXPECT_GT(proposed(cudnn_attention_grad(a), kH100), 0u);
  a = problem(Data::bf16, 8, 8, 128, 64);
  a.has_bias = true;
  for (const Extents4& dims : {Extents4{1, 8, 128, 128}, Extents4{2, 1, 1, 128}})
    for (const Data type : {Data::bf16, Data::f32}) {
      a.bias_type = type;
      a.bias_dims = dims;
      a.bias_strides = packed_strides(dims);
      EXPECT_GT(proposed(cudnn_attention(a, true), kH100), 0u);
      EXPECT_GT(proposed(cudnn_attention_grad(a), kH100), 0u);
    }
}

TEST_F(CudnnLibrary, HasOtherGpus) {
  for (const std::string& gpu : {described(800, 108, 166912), described(1000, 148, 232448)}) {
    const CudnnAttention a = problem(Data::bf16, 8, 2, 256, 64);
    EXPECT_GT(proposed(cudnn_attention(a, true), gpu), 0u);
    EXPECT_GT(proposed(cudnn_attention_grad(a), gpu), 0u);
  }
}

TEST_F(CudnnLibrary, HasNoKernelForOtherDepths) {
  EXPECT_EQ(proposed(cudnn_attention(problem(Data::bf16, 4, 4, 64, 100), true), kH100), 0u);
}

TEST_F(CudnnLibrary, CompilesBothPasses) {
  CudnnAttention a = problem(Data::bf16, 8, 2, 1024, 64);
  a.causal = true;
  EXPECT_GE(compiled(cudnn_attention(a, true), kH100), 0);
  // An ordered backward pass keeps the gradients of all scores.
  const std::int64_t ordered = compiled(cudnn_attention_grad(a), kH100);
  EXPECT_GE(ordered, 2 * 8 * 1024 * 1024 * 2);
  a.ordered = false;
  EXPECT_LT(compiled(cudnn_attention_grad(a), kH100), ordered);
}

TEST_F(CudnnLibrary, SaysWhatIsWrong) {
  CudnnGraph graph;
  const CudnnTensor a = graph.in_memory(1, Data::f32, {1, 1, 4, 8}, {32, 32, 8, 1});
  const CudnnTensor b = graph.in_memory(2, Data::f32, {1, 1, 4, 8}, {32, 32, 8, 1});
  try {
    graph.matmul(a, b, graph.between({1, 1, 4, 8}));
    FAIL() << "a product of rows of 8 with columns of 4";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("cudnnBackendFinalize of a product: CUDNN_STATUS_"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace shmap::cuda
