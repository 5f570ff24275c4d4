#include "cuda/fused/module_cache.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "cuda/driver/driver_function.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "cuda/driver/graph_resource.h"
#include "cuda/fused/kernel_image.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

struct DriverApi {
  decltype(&cuModuleLoadData) load_data;
  decltype(&cuModuleGetFunction) get_function;
  decltype(&cuLaunchKernelEx) launch_kernel;
  CUresult (*func_load)(CUfunction);  // null before 12.4
};

template <class Fn>
void find(const char* name, Fn*& function) {
  function = driver_function<Fn>(name);
  if (function != nullptr) return;
  throw DeviceError(std::string("the CUDA driver has no function ") + name +
                    ": it is older than CUDA 12.4, which fused kernels need; update it");
}

const DriverApi& driver() {
  static const DriverApi api = [] {
    DriverApi made{};
    find("cuModuleLoadData", made.load_data);
    find("cuModuleGetFunction", made.get_function);
    find("cuLaunchKernelEx", made.launch_kernel);
    made.func_load = driver_function<CUresult(CUfunction)>("cuFuncLoad");
    return made;
  }();
  return api;
}

// Driver error codes have the numbers of the runtime's.
void check_driver(CUresult code, const char* call) {
  cuda::check(static_cast<cudaError_t>(code), call);
}

std::string architecture_of(int gpu) {
  int major = 0, minor = 0;
  cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu),
              "cudaDeviceGetAttribute");
  cuda::check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu),
              "cudaDeviceGetAttribute");
  return architecture(major, minor);
}

// One source: its images, and its functions on the GPUs where they are loaded.
struct Entry {
  std::mutex mutex;
  std::map<std::string, KernelImage> images;               // by architecture
  std::map<std::pair<int, std::string>, void*> functions;  // by GPU and name
};

// Never destroyed: kernels may run until the process ends.
struct Table {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries;
};
Table& table() {
  static auto* const made = new Table;
  return *made;
}

Entry& entry_of(const std::string& source) {
  std::lock_guard lock(table().mutex);
  std::unique_ptr<Entry>& entry = table().entries[source];
  if (!entry) entry = std::make_unique<Entry>();
  return *entry;
}

}  // namespace

LoadedKernel loaded_kernel(const std::string& source, const char* name) {
  int gpu = 0;
  cuda::check(cudaGetDevice(&gpu), "cudaGetDevice");
  Entry& entry = entry_of(source);
  std::lock_guard lock(entry.mutex);
  void*& slot = entry.functions[{gpu, name}];
  if (slot != nullptr) return {slot};
  const std::string arch = architecture_of(gpu);
  KernelImage& image = entry.images[arch];
  if (image.empty()) image = compile_kernel(source, arch);
  const UncapturedCalls allowed;
  CUmodule module = nullptr;
  check_driver(driver().load_data(&module, image.data()), "cuModuleLoadData of a fused kernel");
  CUfunction function = nullptr;
  check_driver(driver().get_function(&function, module, name),
               "cuModuleGetFunction of a fused kernel");
  if (driver().func_load != nullptr)
    check_driver(driver().func_load(function), "cuFuncLoad of a fused kernel");
  slot = function;
  return {slot};
}

void launch_loaded(LoadedKernel kernel, std::int64_t blocks, int threads, const void* args,
                   bool waits, void* native_stream) {
  void* parameters[] = {const_cast<void*>(args)};
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(threads);
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = static_cast<CUstream>(native_stream);
  CUlaunchAttribute dependent = {};
  if (waits && launches_dependently()) {
    dependent.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    dependent.value.programmaticStreamSerializationAllowed = 1;
    config.attrs = &dependent;
    config.numAttrs = 1;
  }
  check_driver(driver().launch_kernel(&config, static_cast<CUfunction>(kernel.function), parameters,
                                      nullptr),
               "cuLaunchKernelEx of a fused kernel");
}

}  // namespace shmap::cuda
