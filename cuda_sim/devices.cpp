// Devices: their number, their properties, and peer access.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "runtime.h"

namespace shmap_sim {
namespace {

// The properties that programs query, as of a data centre GPU of compute capability 9.0.
constexpr int kMultiprocessors = 132;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kSharedPerMultiprocessor = 233472;
constexpr int kSharedPerBlock = 49152;
constexpr int kMostPeers = 8;  // of a GPU, in systems without an NVSwitch

bool exists(const Runtime& r, int device) {
  return device >= 0 && device < static_cast<int>(r.devices.size());
}

int attribute(cudaDeviceAttr attr, int device, bool& known) {
  known = true;
  switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return kSharedPerBlock;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrClockRate:
      return 1980000;
    case cudaDevAttrMultiProcessorCount:
      return kMultiprocessors;
    case cudaDevAttrComputeMode:
      return 0;
    case cudaDevAttrConcurrentKernels:
      return 1;
    case cudaDevAttrPciBusId:
      return device + 1;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
      return 0;
    case cudaDevAttrMemoryClockRate:
      return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth:
      return 5120;
    case cudaDevAttrL2CacheSize:
      return 50 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return kThreadsPerMultiprocessor;
    case cudaDevAttrAsyncEngineCount:
      return 3;
    case cudaDevAttrUnifiedAddressing:
      return 1;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrStreamPrioritiesSupported:
      return 1;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return kSharedPerMultiprocessor;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrManagedMemory:
      return 0;
    case cudaDevAttrCooperativeLaunch:
      return 0;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return most_shared_bytes();
    case cudaDevAttrHostRegisterSupported:
      return 1;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return 32;
    case cudaDevAttrMemoryPoolsSupported:
      return 1;
  }
  known = false;
  return 0;
}

}  // namespace
}  // namespace shmap_sim

using namespace shmap_sim;

cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", kEvenIfLost, [&](Runtime& r, Lock&) {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = static_cast<int>(r.devices.size());
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", kEvenIfLost, [&](Runtime& r, Lock&) {
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    this_thread.device = device;
    this_thread.has_context = r.devices[device]->has_context = true;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", kEvenIfLost, [&](Runtime&, Lock&) {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = this_thread.device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* prop, int device) {
  return api("cudaGetDeviceProperties", kEvenIfLost, [&](Runtime& r, Lock&) {
    if (prop == nullptr) return cudaErrorInvalidValue;
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    *prop = {};
    std::snprintf(prop->name, sizeof(prop->name), "Simulated GPU");
    prop->uuid.bytes[0] = static_cast<char>(device + 1);
    prop->totalGlobalMem = r.devices[device]->arena.capacity;
    prop->sharedMemPerBlock = kSharedPerBlock;
    prop->regsPerBlock = 65536;
    prop->warpSize = 32;
    prop->memPitch = 2147483647;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->totalConstMem = 65536;
    prop->major = 9;
    prop->minor = 0;
    prop->multiProcessorCount = kMultiprocessors;
    prop->canMapHostMemory = 1;
    prop->concurrentKernels = 1;
    prop->pciBusID = device + 1;
    prop->asyncEngineCount = 3;
    prop->unifiedAddressing = 1;
    prop->memoryBusWidth = 5120;
    prop->l2CacheSize = 50 << 20;
    prop->maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
    prop->streamPrioritiesSupported = 1;
    prop->sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
    prop->regsPerMultiprocessor = 65536;
    prop->sharedMemPerBlockOptin = most_shared_bytes();
    prop->maxBlocksPerMultiProcessor = 32;
    prop->reservedSharedMemPerBlock = 1024;
    prop->memoryPoolsSupported = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device) {
  return api("cudaDeviceGetAttribute", kEvenIfLost, [&](Runtime& r, Lock&) {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    bool known = false;
    *value = attribute(attr, device, known);
    return known ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  return api("cudaDeviceGetPCIBusId", kEvenIfLost, [&](Runtime& r, Lock&) {
    if (pciBusId == nullptr || len < 13) return cudaErrorInvalidValue;
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    std::snprintf(pciBusId, static_cast<std::size_t>(len), "0000:%02X:00.0", device + 1);
    return cudaSuccess;
  });
}

// Returns version 0 where there is no driver, as CUDA does.
cudaError_t cudaDriverGetVersion(int* driverVersion) {
  return api("cudaDriverGetVersion", kNoDriver, [&](Runtime& r, Lock&) {
    if (driverVersion == nullptr) return cudaErrorInvalidValue;
    *driverVersion = r.driver;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  return api("cudaRuntimeGetVersion", kNoDriver, [&](Runtime&, Lock&) {
    if (runtimeVersion == nullptr) return cudaErrorInvalidValue;
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", kUnsafe, [&](Runtime& r, Lock& lock) {
    const int device = this_thread.device;
    if (const cudaError_t error = check_wide(r, device); error != cudaSuccess) return error;
    wait_for(r, lock, pending(r, device));
    return r.devices[device]->lost;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return api("cudaDeviceCanAccessPeer", kEvenIfLost, [&](Runtime& r, Lock&) {
    if (canAccessPeer == nullptr) return cudaErrorInvalidValue;
    if (!exists(r, device) || !exists(r, peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = r.peer && device != peerDevice ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  return api("cudaDeviceEnablePeerAccess", 0, [&](Runtime& r, Lock&) {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!exists(r, peerDevice) || peerDevice == this_thread.device) return cudaErrorInvalidDevice;
    if (!r.peer) return cudaErrorPeerAccessUnsupported;
    Device& own = *r.devices[this_thread.device];
    if (own.peers[peerDevice]) return cudaErrorPeerAccessAlreadyEnabled;
    if (std::count(own.peers.begin(), own.peers.end(), true) >= kMostPeers)
      return cudaErrorTooManyPeers;
    own.peers[peerDevice] = true;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  return api("cudaDeviceDisablePeerAccess", 0, [&](Runtime& r, Lock&) {
    if (!exists(r, peerDevice)) return cudaErrorInvalidDevice;
    Device& own = *r.devices[this_thread.device];
    if (!own.peers[peerDevice]) return cudaErrorPeerAccessNotEnabled;
    own.peers[peerDevice] = false;
    return cudaSuccess;
  });
}

// Memory pools: only the default pool of each device, whose settings have no effect.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device) {
  return api("cudaDeviceGetDefaultMemPool", 0, [&](Runtime& r, Lock&) {
    if (memPool == nullptr) return cudaErrorInvalidValue;
    if (!exists(r, device)) return cudaErrorInvalidDevice;
    *memPool = reinterpret_cast<cudaMemPool_t>(r.devices[device].get());
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void* value) {
  return api("cudaMemPoolSetAttribute", 0, [&](Runtime&, Lock&) {
    const bool settable =
        attr >= cudaMemPoolReuseFollowEventDependencies && attr <= cudaMemPoolAttrReleaseThreshold;
    return memPool != nullptr && value != nullptr && settable ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t) {
  return api("cudaMemPoolTrimTo", 0, [&](Runtime&, Lock&) {
    return memPool != nullptr ? cudaSuccess : cudaErrorInvalidValue;
  });
}
