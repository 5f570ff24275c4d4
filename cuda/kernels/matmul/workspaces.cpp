#include "cuda/kernels/matmul/workspaces.h"

#include <algorithm>
#include <bit>

#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "cuda/driver/graph_resource.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

constexpr std::size_t kLeast = 4 << 20;  // of a stream

}  // namespace

struct Workspaces::Memory final : GraphResource {
  Memory(const std::string& what, int of_gpu, std::size_t size) : gpu(of_gpu), bytes(size) {
    const UncapturedCalls uncaptured;
    check(cudaMalloc(&data, size), ("cudaMalloc of the workspace of " + what).c_str());
  }
  ~Memory() override { free_memory(gpu, data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  const int gpu;
  void* data = nullptr;
  std::size_t bytes;
};

Workspaces::Workspaces(std::string what) : what_(std::move(what)) {}
Workspaces::~Workspaces() = default;

void* Workspaces::at_least(std::size_t bytes, int gpu, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, &capture), "cudaStreamGetCaptureInfo");
  if (status == cudaStreamCaptureStatusNone) {
    Ref<Memory>& own = of_streams_[{gpu, stream}];
    if (!own || own->bytes < bytes) {
      own.reset();  // waits for the calls that use it
      own = make_ref<Memory>(what_, gpu, std::bit_ceil(std::max(bytes, kLeast)));
    }
    return own->data;
  }
  CapturedMemory& captured = captured_[{gpu, stream}];
  if (captured.capture != capture || captured.bytes < bytes) {
    const auto made = make_ref<Memory>(what_, gpu, bytes);
    if (!keep_with_graph(made))
      throw Error(what_ + ": in a capture that was not begun by this library");
    captured = {capture, made->data, made->bytes};
  }
  return captured.data;
}

void Workspaces::drop(cudaStream_t stream) noexcept {
  std::erase_if(of_streams_, [&](const auto& entry) { return entry.first.second == stream; });
}

}  // namespace shmap::cuda
