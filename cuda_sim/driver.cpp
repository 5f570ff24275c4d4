// The module API: images are shared objects, or their paths; kernels are the functions that they
// export. See README.md.
#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#include "cuda.h"
#include "cuda_sim.h"
#include "runtime.h"

struct CUmod_st {
  void* library;
};
struct CUfunc_st {
  shmap_sim::KernelEntry entry;
  std::string name;
};

namespace shmap_sim {
namespace {

struct Modules {
  std::unordered_map<CUmodule, std::vector<std::unique_ptr<CUfunc_st>>> loaded;
};
// The caller holds the runtime's mutex.
Modules& modules() {
  static Modules* const all = new Modules;
  return *all;
}

// Unlike the runtime API, the driver API creates no context for a thread. This is for the functions
// that need none.
template <class Body>
CUresult ask_driver(const char* function, unsigned flags, Body&& body) {
  // Driver error codes are the runtime's numbers, except those that the two APIs name differently.
  const cudaError_t before = this_thread.last_error;
  const cudaError_t error = api(function, flags | kNoContext, body);
  this_thread.last_error = before;  // the driver API does not set the runtime's last error
  return static_cast<CUresult>(error == cudaErrorInvalidConfiguration ? cudaErrorInvalidValue
                                                                      : error);
}
template <class Body>
CUresult driver_api(const char* function, unsigned flags, Body&& body) {
  return ask_driver(function, flags, [&](Runtime& r, Lock& lock) {
    return this_thread.has_context ? body(r, lock) : cudaErrorDeviceUninitialized;
  });
}

// Writes a shared object in memory to a file, and returns its path; "" where that fails. The
// section headers are at the end of the object.
std::string written(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  const auto* from = static_cast<const char*>(image);
  std::size_t left = header.e_shoff + std::size_t{header.e_shentsize} * header.e_shnum;
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/shmap_sim_image_XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return {};
  while (left > 0) {
    const ssize_t n = ::write(file, from, left);
    if (n <= 0) break;
    from += n;
    left -= static_cast<std::size_t>(n);
  }
  ::close(file);
  if (left == 0) return path;
  ::unlink(path.c_str());
  return {};
}

void* open_image(const void* image) {
  const bool in_memory = std::memcmp(image, ELFMAG, SELFMAG) == 0;
  const std::string path = in_memory ? written(image) : static_cast<const char*>(image);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) complain(std::string("an image can't be loaded: ") + dlerror());
  if (in_memory) ::unlink(path.c_str());
  return library;
}

CUresult load(const char* function, CUmodule* module, const void* image) {
  return driver_api(function, kUnsafe, [&](Runtime&, Lock& lock) {
    if (module == nullptr || image == nullptr) return cudaErrorInvalidValue;
    const auto* path = static_cast<const char*>(image);
    if (std::memcmp(path, ELFMAG, SELFMAG) != 0 && std::strchr(path, '/') == nullptr)
      return cudaErrorInvalidKernelImage;
    lock.unlock();  // the image's initialisers may call the API
    void* library = open_image(image);
    lock.lock();
    if (library == nullptr) return cudaErrorInvalidKernelImage;
    *module = new CUmod_st{library};
    modules().loaded[*module];
    return cudaSuccess;
  });
}

bool is_function(CUfunction f) {
  for (const auto& [module, functions] : modules().loaded) {
    for (const auto& function : functions) {
      if (function.get() == f) return true;
    }
  }
  return false;
}

}  // namespace
}  // namespace shmap_sim

using namespace shmap_sim;

extern "C" {

static CUresult sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned* flags, int* active) {
  return ask_driver("cuDevicePrimaryCtxGetState", 0, [&](Runtime& r, Lock&) {
    if (flags == nullptr || active == nullptr) return cudaErrorInvalidValue;
    if (dev < 0 || dev >= static_cast<int>(r.devices.size())) return cudaErrorInvalidDevice;
    *flags = 0;
    *active = r.devices[dev]->has_context ? 1 : 0;
    return cudaSuccess;
  });
}

static CUresult sim_cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                          CUdeviceptr ptr) {
  return ask_driver("cuPointerGetAttribute", 0, [&](Runtime& r, Lock&) {
    const int device = device_at(r, reinterpret_cast<const void*>(ptr));
    if (data == nullptr || attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL || device < 0)
      return cudaErrorInvalidValue;
    *static_cast<int*>(data) = device;
    return cudaSuccess;
  });
}

static CUresult sim_cuModuleLoadData(CUmodule* module, const void* image) {
  return load("cuModuleLoadData", module, image);
}

static CUresult sim_cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*,
                                       void**) {
  return load("cuModuleLoadDataEx", module, image);
}

static CUresult sim_cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return driver_api("cuModuleGetFunction", 0, [&](Runtime&, Lock&) {
    if (hfunc == nullptr || name == nullptr) return cudaErrorInvalidValue;
    const auto module = modules().loaded.find(hmod);
    if (module == modules().loaded.end()) return cudaErrorInvalidResourceHandle;
    void* symbol = dlsym(hmod->library, (std::string("shmap_sim_kernel_") + name).c_str());
    if (symbol == nullptr) return cudaErrorSymbolNotFound;
    const KernelEntry entry = reinterpret_cast<KernelEntry (*)()>(symbol)();
    module->second.push_back(std::make_unique<CUfunc_st>(CUfunc_st{entry, name}));
    *hfunc = module->second.back().get();
    return cudaSuccess;
  });
}

// Waits for all work, because a kernel of the image may be queued. (The caller must not launch
// graphs with such kernels.)
static CUresult sim_cuModuleUnload(CUmodule hmod) {
  return driver_api("cuModuleUnload", kUnsafe, [&](Runtime& r, Lock& lock) {
    if (modules().loaded.count(hmod) == 0) return cudaErrorInvalidResourceHandle;
    for (int d = 0; d < static_cast<int>(r.devices.size()); ++d) wait_for(r, lock, pending(r, d));
    for (const auto& function : modules().loaded[hmod]) r.kernels.erase(function->entry.function);
    modules().loaded.erase(hmod);
    dlclose(hmod->library);
    delete hmod;
    return cudaSuccess;
  });
}

static CUresult sim_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                   void** params, void** extra) {
  return driver_api("cuLaunchKernel", 0, [&](Runtime& r, Lock& lock) {
    if (!is_function(f)) return cudaErrorInvalidResourceHandle;
    if (extra != nullptr) return cudaErrorInvalidValue;
    const cudaLaunchConfig_t config{dim3(gx, gy, gz), dim3(bx, by, bz), shared, stream, nullptr, 0};
    return enqueue_kernel(r, lock, config, f->entry.function, f->entry.type, params,
                          f->name.c_str());
  });
}

static CUresult sim_cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                                     void** extra) {
  return driver_api("cuLaunchKernelEx", 0, [&](Runtime& r, Lock& lock) {
    if (!is_function(f)) return cudaErrorInvalidResourceHandle;
    if (config == nullptr || extra != nullptr) return cudaErrorInvalidValue;
    const CUlaunchConfig& c = *config;
    std::vector<cudaLaunchAttribute> attributes(c.numAttrs);
    for (unsigned i = 0; i < c.numAttrs; ++i) {
      if (c.attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        return cudaErrorNotSupported;
      attributes[i].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[i].val.programmaticStreamSerializationAllowed =
          c.attrs[i].value.programmaticStreamSerializationAllowed;
    }
    const cudaLaunchConfig_t same{dim3(c.gridDimX, c.gridDimY, c.gridDimZ),
                                  dim3(c.blockDimX, c.blockDimY, c.blockDimZ),
                                  c.sharedMemBytes,
                                  c.hStream,
                                  attributes.data(),
                                  c.numAttrs};
    return enqueue_kernel(r, lock, same, f->entry.function, f->entry.type, params, f->name.c_str());
  });
}

static CUresult sim_cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return driver_api("cuFuncGetAttribute", 0, [&](Runtime&, Lock&) {
    if (!is_function(hfunc)) return cudaErrorInvalidResourceHandle;
    if (pi == nullptr) return cudaErrorInvalidValue;
    *pi = attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK           ? 1024
          : attrib == CU_FUNC_ATTRIBUTE_NUM_REGS                      ? 32
          : attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? 49152
                                                                      : 0;
    return cudaSuccess;
  });
}

static CUresult sim_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return driver_api("cuFuncSetAttribute", 0, [&](Runtime&, Lock&) {
    if (!is_function(hfunc)) return cudaErrorInvalidResourceHandle;
    return attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
                   value <= most_shared_bytes()
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}

static CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction func,
                                                                int block_size, size_t shared) {
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, static_cast<const void*>(func), block_size, shared);
  return static_cast<CUresult>(error);
}

static CUresult sim_cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

static CUresult sim_cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = cudaGetErrorName(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

}  // extern "C"

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long long,
                                    enum cudaDriverEntryPointQueryResult* driverStatus) {
  return api("cudaGetDriverEntryPoint", kEvenIfLost, [&](Runtime&, Lock&) {
    if (symbol == nullptr || funcPtr == nullptr) return cudaErrorInvalidValue;
    struct Entry {
      const char* name;
      void* function;
    };
#define SHMAP_SIM_ENTRY(name) \
  { #name, reinterpret_cast < void*>(&sim_##name) }
    static const Entry entries[] = {
        SHMAP_SIM_ENTRY(cuDevicePrimaryCtxGetState),
        SHMAP_SIM_ENTRY(cuPointerGetAttribute),
        SHMAP_SIM_ENTRY(cuModuleLoadData),
        SHMAP_SIM_ENTRY(cuModuleLoadDataEx),
        SHMAP_SIM_ENTRY(cuModuleGetFunction),
        SHMAP_SIM_ENTRY(cuModuleUnload),
        SHMAP_SIM_ENTRY(cuLaunchKernel),
        SHMAP_SIM_ENTRY(cuLaunchKernelEx),
        SHMAP_SIM_ENTRY(cuFuncGetAttribute),
        SHMAP_SIM_ENTRY(cuFuncSetAttribute),
        SHMAP_SIM_ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor),
        SHMAP_SIM_ENTRY(cuGetErrorString),
        SHMAP_SIM_ENTRY(cuGetErrorName),
    };
#undef SHMAP_SIM_ENTRY
    *funcPtr = nullptr;
    for (const Entry& entry : entries) {
      if (std::strcmp(entry.name, symbol) == 0) *funcPtr = entry.function;
    }
    const bool found = *funcPtr != nullptr;
    if (driverStatus != nullptr) {
      *driverStatus = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return found || driverStatus != nullptr ? cudaSuccess : cudaErrorSymbolNotFound;
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr, unsigned int,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult* driverStatus) {
  return cudaGetDriverEntryPoint(symbol, funcPtr, flags, driverStatus);
}
