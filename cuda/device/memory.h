// CudaMemorySpace: memory of one GPU.
#pragma once
#include <string>

#include "core/base/intrusive.h"
#include "core/device/memory_space.h"
#include "cuda/driver/health.h"

namespace shmap::cuda {

class CudaMemorySpace final : public MemorySpace {
 public:
  // limit: bytes, or -1 for no limit but the GPU's memory. bytes: the expected size of the space.
  CudaMemorySpace(int id, std::string name, int gpu, std::int64_t limit, std::int64_t bytes,
                  Ref<Health> health);
  ~CudaMemorySpace() override;
  int gpu() const noexcept { return gpu_; }

 protected:
  void* map(std::int64_t bytes) override;
  void unmap(void* data, std::int64_t bytes) noexcept override;

 private:
  const int gpu_;
  const Ref<Health> health_;
};

}  // namespace shmap::cuda
