// Launches of kernels and of host functions.
#include <cstring>

#include "block.h"
#include "cuda_sim.h"
#include "runtime.h"

namespace shmap_sim {
namespace {

constexpr std::size_t kSharedUnasked = 49152;  // for a kernel that did not request more
constexpr std::size_t kMostParameterBytes = 4096;

cudaError_t check_shape(const cudaLaunchConfig_t& config) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool fits = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 2147483647u &&
                    grid.y <= 65535 && grid.z <= 65535 && threads > 0 && threads <= 1024 &&
                    block.x <= 1024 && block.y <= 1024 && block.z <= 64;
  if (!fits) return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes > static_cast<std::size_t>(most_shared_bytes()))
    return cudaErrorInvalidValue;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0) {
      return cudaErrorNotSupported;
    }
    if (attribute.id == cudaLaunchAttributeClusterDimension) return cudaErrorNotSupported;
  }
  return cudaSuccess;
}

bool is_dependent(const cudaLaunchConfig_t& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      return attribute.val.programmaticStreamSerializationAllowed != 0;
  }
  return false;
}

// The parameters of a launch, copied as a driver copies them.
struct Parameters {
  std::vector<unsigned char> bytes;
  std::vector<std::size_t> offsets;
  bool host_address = false;  // a parameter is the address of memory that the GPU cannot access
};

constexpr std::size_t kAlign = 16;

Parameters copy_parameters(const Runtime& r, const KernelType& type, void** args,
                           const std::string& name) {
  Parameters p;
  std::size_t size = kAlign;  // includes the alignment of the first
  for (int i = 0; i < type.count; ++i) size += (type.sizes[i] + kAlign - 1) / kAlign * kAlign;
  p.bytes.resize(size);
  const auto start = reinterpret_cast<std::uintptr_t>(p.bytes.data());
  std::size_t offset = (kAlign - start % kAlign) % kAlign;
  const auto stack = reinterpret_cast<std::uintptr_t>(&p);
  for (int i = 0; i < type.count; ++i) {
    std::memcpy(p.bytes.data() + offset, args[i], type.sizes[i]);
    p.offsets.push_back(offset);
    for (unsigned at = 0; at + sizeof(void*) <= type.sizes[i]; at += sizeof(void*)) {
      const void* word;
      std::memcpy(&word, p.bytes.data() + offset + at, sizeof(word));
      const auto value = reinterpret_cast<std::uintptr_t>(word);
      const bool on_stack = value + (64 << 10) > stack && value < stack + (8 << 20);
      if (!on_stack && (!type.pointers[i] || word == nullptr)) continue;
      if (device_at(r, word) >= 0 || is_pinned(r, word)) continue;
      complain("parameter " + std::to_string(i) + " of kernel '" + name +
               "' has an address of host memory");
      p.host_address = true;
    }
    offset += (type.sizes[i] + kAlign - 1) / kAlign * kAlign;
  }
  return p;
}

}  // namespace

cudaError_t make_kernel(Runtime& r, const cudaLaunchConfig_t& config, int device,
                        const void* function, const KernelType* type, void** args, const char* name,
                        Work& work) {
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  if (type == nullptr) {
    const auto known = r.kernels.find(function);
    if (known == r.kernels.end()) return cudaErrorInvalidDeviceFunction;
    type = known->second;
  } else {
    r.kernels.emplace(function, type);
  }
  if (const cudaError_t error = check_shape(config); error != cudaSuccess) return error;
  std::size_t parameter_bytes = 0;
  for (int i = 0; i < type->count; ++i) parameter_bytes += type->sizes[i];
  if (parameter_bytes > kMostParameterBytes) return cudaErrorInvalidValue;
  work.kind = Work::Kind::kernel;
  work.device = device;
  work.name = name != nullptr ? name : name_of_function(function);
  work.function = function;
  const bool dependent = is_dependent(config);
  if (r.logging) r.calls.back() += " " + work.name + (dependent ? " dependent" : "");
  auto parameters = std::make_shared<const Parameters>(copy_parameters(r, *type, args, work.name));
  const dim3 grid = config.gridDim;
  const dim3 block = config.blockDim;
  work.run = [name = work.name, function, type, parameters, grid, block, order = r.draw(),
              shared = config.dynamicSmemBytes, dependent] {
    if (parameters->host_address) return cudaErrorIllegalAddress;
    std::vector<void*> addresses;
    for (const std::size_t offset : parameters->offsets) {
      addresses.push_back(const_cast<unsigned char*>(parameters->bytes.data()) + offset);
    }
    return run_kernel(name, function, *type, {grid, block, order, shared, dependent},
                      addresses.data());
  };
  return cudaSuccess;
}

cudaError_t enqueue_kernel(Runtime& r, Lock& lock, const cudaLaunchConfig_t& config,
                           const void* function, const KernelType* type, void** args,
                           const char* name) {
  Stream* stream = stream_of(r, config.stream);
  if (stream == nullptr || stream->device != this_thread.device) {
    return cudaErrorInvalidResourceHandle;
  }
  Work work;
  if (const cudaError_t error =
          make_kernel(r, config, stream->device, function, type, args, name, work);
      error != cudaSuccess) {
    return error;
  }
  const cudaError_t error = submit(r, *stream, std::move(work));
  drain_if_full(r, lock);
  return error;
}

void learn_kernel(const void* function, const KernelType* type) {
  api("learn_kernel", kEvenIfLost, [&](Runtime& r, Lock&) {
    r.kernels.emplace(function, type);
    return cudaSuccess;
  });
}

cudaError_t launch(const cudaLaunchConfig_t* config, const void* function, const KernelType* type,
                   void** args) {
  return api("cudaLaunchKernelExC", 0, [&](Runtime& r, Lock& lock) {
    if (config == nullptr) return cudaErrorInvalidValue;
    const auto asked = r.most_shared.find({this_thread.device, function});
    const std::size_t most = asked == r.most_shared.end() ? kSharedUnasked : asked->second;
    if (config->dynamicSmemBytes > most) return cudaErrorInvalidValue;
    return enqueue_kernel(r, lock, *config, function, type, args, nullptr);
  });
}

}  // namespace shmap_sim

using namespace shmap_sim;

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
  return launch(config, func, nullptr, args);
}

cudaError_t cudaLaunchKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args,
                             size_t sharedMem, cudaStream_t stream) {
  const cudaLaunchConfig_t config{gridDim, blockDim, sharedMem, stream, nullptr, 0};
  return launch(&config, func, nullptr, args);
}

cudaError_t cudaFuncSetAttribute(const void* func, enum cudaFuncAttribute attr, int value) {
  return api("cudaFuncSetAttribute", 0, [&](Runtime& r, Lock&) {
    if (func == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
      if (value < 0 || value > most_shared_bytes()) return cudaErrorInvalidValue;
      r.most_shared[{this_thread.device, func}] = static_cast<std::size_t>(value);
      return cudaSuccess;
    }
    return attr == cudaFuncAttributePreferredSharedMemoryCarveout && value >= -1 && value <= 100
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}

// Attributes that a host compiler does not know (registers, shared memory) are small constants.
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attr, const void* func) {
  return api("cudaFuncGetAttributes", 0, [&](Runtime&, Lock&) {
    if (func == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attr == nullptr) return cudaErrorInvalidValue;
    *attr = {};
    attr->maxThreadsPerBlock = 1024;
    attr->numRegs = 32;
    attr->ptxVersion = attr->binaryVersion = 90;
    attr->maxDynamicSharedSizeBytes = 49152;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, const void* func,
                                                          int blockSize, size_t dynamicSMemSize) {
  return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 0, [&](Runtime&, Lock&) {
    if (func == nullptr) return cudaErrorInvalidDeviceFunction;
    if (numBlocks == nullptr || blockSize <= 0 || blockSize > 1024) return cudaErrorInvalidValue;
    int blocks = 2048 / ((blockSize + 31) / 32 * 32);
    if (dynamicSMemSize > 0) {
      blocks = std::min(blocks, static_cast<int>(233472 / (dynamicSMemSize + 1024)));
    }
    *numBlocks = std::min(blocks, 32);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return api("cudaLaunchHostFunc", 0, [&](Runtime& r, Lock& lock) {
    Stream* s = stream_of(r, stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (fn == nullptr) return cudaErrorInvalidValue;
    Work work;
    work.kind = Work::Kind::host;
    work.device = s->device;
    work.name = "host function";
    work.run = [fn, userData] {
      fn(userData);
      return cudaSuccess;
    };
    const cudaError_t error = submit(r, *s, std::move(work));
    drain_if_full(r, lock);
    return error;
  });
}
