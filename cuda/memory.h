// CudaMemorySpace: memory of one GPU.
#pragma once
#include <string>

#include "core/device/memory_space.h"

namespace shmap::cuda {

class CudaMemorySpace final : public MemorySpace {
 public:
  // limit: -1 for none but the GPU's own.
  CudaMemorySpace(int id, std::string name, int gpu, std::int64_t limit);
  ~CudaMemorySpace() override;
  int gpu() const noexcept { return gpu_; }

 protected:
  void* map(std::int64_t bytes) noexcept override;
  void unmap(void* data, std::int64_t bytes) noexcept override;

 private:
  const int gpu_;
};

}  // namespace shmap::cuda
