// The conformance suite of the device layer on CUDA.
#include "cuda/backend/backend.h"
#include "cuda/device/host_copy.h"
#include "cuda/kernels/elementwise/elementwise.h"
#include "cuda/kernels/move/copy.h"
#include "tests/device/conformance/failures.h"
#include "tests/device/conformance/graphs.h"
#include "tests/device/conformance/load.h"
#include "tests/device/conformance/memory.h"
#include "tests/device/conformance/streams.h"

namespace shmap::testing {
namespace {

struct OneGpu {
  static constexpr const char* kRunsTasksWhenCaptured =
      "a task of a graph has run when it was captured: what it throws ends the capture";

  static std::unique_ptr<Backend> make(const std::string& devices, std::int64_t memory_limit) {
    return std::make_unique<cuda::CudaBackend>(DeviceSpec::parse("cuda:0x" + devices), 0, 0,
                                               memory_limit);
  }
  static void mix(void* native, std::int32_t* x, std::int32_t v) {
    times_31(native, x);
    cuda::binary_kernel(BinaryOp::add, DType::i32)({x}, {&v, cuda::Operand::literal}, x, 1, native);
  }
  static void add(void* native, std::int32_t* x, const std::int32_t* y) {
    // y may be x.
    times_31_plus(native, x, y);
  }
  static void copy(void* native, std::int32_t* x, const std::int32_t* y) {
    if (x != y) cuda::copy_bytes(x, y, sizeof *x, native);
  }
  static void upload(std::int32_t* x, std::int32_t v) { cuda::host_to_device(x, &v, sizeof v); }
  static std::int32_t download(const std::int32_t* x) {
    std::int32_t v = 0;
    cuda::device_to_host(&v, x, sizeof v);
    return v;
  }

 private:
  static void times_31(void* native, std::int32_t* x) {
    const std::int32_t k = 31;
    cuda::binary_kernel(BinaryOp::mul, DType::i32)({x}, {&k, cuda::Operand::literal}, x, 1, native);
  }
  static void times_31_plus(void* native, std::int32_t* x, const std::int32_t* y) {
    if (x == y) {  // 31 x + x
      const std::int32_t k = 32;
      return cuda::binary_kernel(BinaryOp::mul, DType::i32)({x}, {&k, cuda::Operand::literal}, x, 1,
                                                            native);
    }
    times_31(native, x);
    cuda::binary_kernel(BinaryOp::add, DType::i32)({x}, {y}, x, 1, native);
  }
};

using Cuda = ::testing::Types<OneGpu>;
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, StreamConformance, Cuda);
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, FailureConformance, Cuda);
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, GraphConformance, Cuda);
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, MemoryConformance, Cuda);
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, LoadConformance, Cuda);

}  // namespace
}  // namespace shmap::testing
