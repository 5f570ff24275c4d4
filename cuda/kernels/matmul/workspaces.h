// Workspaces: memory that a library's calls use beside their operands, one for each stream and for
// each captured graph. It does not count in SHMAP_MEMORY_LIMIT.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "core/base/intrusive.h"

namespace shmap::cuda {

class Workspaces {
 public:
  explicit Workspaces(std::string what);  // the library, for texts
  ~Workspaces();

  // For a call of `bytes` on that stream of that GPU, which is the current one; null for 0 bytes. A
  // captured call has memory of its graph, because the stream in which it is captured does not
  // order its runs. Valid until the next call for the stream, and not by several threads at once.
  void* at_least(std::size_t bytes, int gpu, cudaStream_t stream);
  // Frees the workspace of a stream that is about to be destroyed; its work must be done.
  void drop(cudaStream_t stream) noexcept;

 private:
  struct Memory;
  // The last capture of a stream; its graph owns the memory.
  struct CapturedMemory {
    unsigned long long capture = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  using Key = std::pair<int, cudaStream_t>;

  std::string what_;
  std::map<Key, Ref<Memory>> of_streams_;
  std::map<Key, CapturedMemory> captured_;
};

}  // namespace shmap::cuda
