// Users' kernels that are given as text (extend::Primitive::def_cuda_source).
#include "core/runtime/device_ops.h"
#include "cuda/fused/module_cache.h"

namespace shmap {

namespace {

void launch(const std::string& source, const char* kernel, std::int64_t blocks, int threads,
            const void* args, void* stream) {
  cuda::launch_loaded(cuda::loaded_kernel(source, kernel), blocks, threads, args, false, stream);
}

}  // namespace

void register_cuda_users_source() { device_ops(DeviceKind::cuda).launch_source = launch; }

}  // namespace shmap
