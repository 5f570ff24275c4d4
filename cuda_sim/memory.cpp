// Device memory: host memory with bookkeeping, poison and guard zones. And pinned host memory.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#define SHMAP_SIM_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHMAP_SIM_POISON 1
#endif
#endif
#ifdef SHMAP_SIM_POISON
#include <sanitizer/asan_interface.h>
#endif

namespace shmap_sim {
namespace {

// With AddressSanitizer, freed memory and guard zones are poisoned.
void put_out_of_bounds([[maybe_unused]] char* address, [[maybe_unused]] std::size_t bytes) {
#ifdef SHMAP_SIM_POISON
  ASAN_POISON_MEMORY_REGION(address, bytes);
#endif
}
void put_in_bounds([[maybe_unused]] char* address, [[maybe_unused]] std::size_t bytes) {
#ifdef SHMAP_SIM_POISON
  ASAN_UNPOISON_MEMORY_REGION(address, bytes);
#endif
}

constexpr std::size_t kAlign = 512;
constexpr std::size_t kGuard = 64;
constexpr std::size_t kMostPoison = std::size_t{64} << 20;  // bytes of one allocation that are
                                                            // poisoned
constexpr int kPoison = 0xA5;
constexpr int kGuardByte = 0x5C;

char* take(Arena& arena, std::size_t bytes) {
  const std::size_t taken = (bytes + kGuard + kAlign - 1) / kAlign * kAlign;
  if (bytes > arena.capacity || arena.used + bytes > arena.capacity) return nullptr;
  for (auto piece = arena.free.begin(); piece != arena.free.end(); ++piece) {
    if (piece->second < taken) continue;
    const auto [offset, size] = *piece;
    arena.free.erase(piece);
    if (size > taken) arena.free.emplace(offset + taken, size - taken);
    arena.pieces[offset] = {bytes, taken};
    arena.used += bytes;
    char* address = arena.base + offset;
    put_in_bounds(address, taken);
    std::memset(address, kPoison, bytes < kMostPoison ? bytes : kMostPoison);
    std::memset(address + bytes, kGuardByte, kGuard);
    put_out_of_bounds(address + bytes, taken - bytes);
    return address;
  }
  return nullptr;
}

bool give_back(Runtime& r, Arena& arena, const void* p) {
  const auto found = arena.pieces.find(static_cast<const char*>(p) - arena.base);
  if (found == arena.pieces.end()) return false;
  auto [offset, piece] = *found;
  char* address = arena.base + offset;
  put_in_bounds(address, piece.taken);
  for (std::size_t i = 0; i < kGuard; ++i) {
    if (static_cast<unsigned char>(address[piece.asked + i]) == kGuardByte) continue;
    r.overrun = true;
    complain("an allocation of " + std::to_string(piece.asked) +
             " bytes was written to at its byte " + std::to_string(piece.asked + i));
    break;
  }
  if (piece.taken >= std::size_t{1} << 20) {
    madvise(address, piece.taken, MADV_DONTNEED);
  } else {
    std::memset(address, kPoison, piece.taken);  // makes use after free visible
  }
  put_out_of_bounds(address, piece.taken);
  arena.used -= piece.asked;
  std::size_t size = piece.taken;
  arena.pieces.erase(found);
  auto next = arena.free.lower_bound(offset);
  if (next != arena.free.end() && next->first == offset + size) {
    size += next->second;
    next = arena.free.erase(next);
  }
  if (next != arena.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return true;
    }
  }
  arena.free.emplace(offset, size);
  return true;
}

// The allocation that holds p, or null.
const Arena::Piece* piece_at(const Arena& arena, const void* p, std::size_t& offset) {
  if (!arena.holds(p)) return nullptr;
  offset = static_cast<const char*>(p) - arena.base;
  auto next = arena.pieces.upper_bound(offset);
  if (next == arena.pieces.begin()) return nullptr;
  const auto& [start, piece] = *std::prev(next);
  offset -= start;
  return offset < piece.taken - kGuard || offset == 0 ? &piece : nullptr;
}

bool in_range(const std::map<const char*, std::size_t>& ranges, const void* p) {
  const char* address = static_cast<const char*>(p);
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return false;
  const auto& [start, bytes] = *std::prev(next);
  return address < start + bytes;
}

cudaError_t allocate(Runtime& r, void** address, std::size_t bytes) {
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (r.logging) r.calls.back() += " " + std::to_string(bytes);
  if (r.protect) expose_memory(r, this_thread.device);
  *address = take(r.devices[this_thread.device]->arena, bytes);
  if (r.protect) hide_memory(r);
  return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t free_now(Runtime& r, void* p) {
  const int device = device_at(r, p);
  if (device < 0) return cudaErrorInvalidValue;
  if (r.protect) expose_memory(r, device);
  const bool known = give_back(r, r.devices[device]->arena, p);
  if (r.protect) hide_memory(r);
  return known ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t allocate_pinned(Runtime& r, void** address, std::size_t bytes) {
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (r.logging) r.calls.back() += " " + std::to_string(bytes);
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*address == nullptr) return cudaErrorMemoryAllocation;
  r.pinned.emplace(static_cast<char*>(*address), bytes);
  return cudaSuccess;
}

}  // namespace

void open_arenas(Runtime& r, std::size_t bytes) {
  for (auto& device : r.devices) {
    Arena& arena = device->arena;
    arena.capacity = bytes;
    // Allocations are rounded up, so the address range is larger than the GPU's memory.
    arena.size = bytes + bytes / 2 + (std::size_t{64} << 20);
    void* base = mmap(nullptr, arena.size, r.protect ? PROT_NONE : PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      complain("no address space for the memory of a GPU");
      std::abort();
    }
    arena.base = static_cast<char*>(base);
    arena.free.emplace(0, arena.size);
  }
}

void close_arenas(Runtime& r) {
  for (auto& device : r.devices) {
    put_in_bounds(device->arena.base, device->arena.size);  // the addresses may be used again
    munmap(device->arena.base, device->arena.size);
  }
}

int device_at(const Runtime& r, const void* p) {
  for (std::size_t i = 0; i < r.devices.size(); ++i) {
    if (r.devices[i]->arena.holds(p)) return static_cast<int>(i);
  }
  return -1;
}

bool within_allocation(const Runtime& r, int device, const void* p, std::size_t bytes) {
  std::size_t offset = 0;
  const Arena::Piece* piece = piece_at(r.devices[device]->arena, p, offset);
  return piece != nullptr && offset <= piece->asked && bytes <= piece->asked - offset;
}

bool is_pinned(const Runtime& r, const void* p) {
  return in_range(r.pinned, p) || in_range(r.registered, p);
}

void expose_memory(Runtime& r, int device) {
  ++r.exposed;
  for (std::size_t i = 0; i < r.devices.size(); ++i) {
    const bool own = device < 0 || static_cast<int>(i) == device;
    if (!own && !r.devices[device]->peers[i]) continue;
    const Arena& arena = r.devices[i]->arena;
    mprotect(arena.base, arena.size, PROT_READ | PROT_WRITE);
  }
}

void hide_memory(Runtime& r) {
  if (--r.exposed > 0) return;
  for (const auto& device : r.devices) mprotect(device->arena.base, device->arena.size, PROT_NONE);
}

}  // namespace shmap_sim

using namespace shmap_sim;

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  return api("cudaMalloc", kUnsafe, [&](Runtime& r, Lock&) { return allocate(r, devPtr, size); });
}

// Waits for the device, as drivers do.
cudaError_t cudaFree(void* devPtr) {
  return api("cudaFree", kUnsafe, [&](Runtime& r, Lock& lock) {
    if (devPtr == nullptr) return cudaSuccess;
    const int device = device_at(r, devPtr);
    if (device < 0) return cudaErrorInvalidValue;
    wait_for(r, lock, pending(r, device));
    return free_now(r, devPtr);
  });
}

// The address is returned at once; the memory is freed when the stream reaches the free.
cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
  return api("cudaMallocAsync", 0, [&](Runtime& r, Lock& lock) {
    const Stream* stream = stream_of(r, hStream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    cudaError_t error = allocate(r, devPtr, size);
    if (error == cudaErrorMemoryAllocation) {
      wait_for(r, lock, pending(r, this_thread.device));  // for pending frees
      error = allocate(r, devPtr, size);
    }
    return error;
  });
}

cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  return api("cudaFreeAsync", 0, [&](Runtime& r, Lock& lock) {
    Stream* stream = stream_of(r, hStream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    if (devPtr == nullptr) return cudaSuccess;
    if (device_at(r, devPtr) < 0) return cudaErrorInvalidValue;
    Work work;
    work.kind = Work::Kind::custom;
    work.device = stream->device;
    work.name = "cudaFreeAsync";
    work.run = [devPtr, &r] {
      Lock inner(r.mutex);
      return free_now(r, devPtr);
    };
    const cudaError_t error = submit(r, *stream, std::move(work));
    drain_if_full(r, lock);
    return error;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api("cudaMemGetInfo", 0, [&](Runtime& r, Lock&) {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    const Arena& arena = r.devices[this_thread.device]->arena;
    *total = arena.capacity;
    *free = arena.capacity - arena.used;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  return api("cudaMallocHost", kUnsafe,
             [&](Runtime& r, Lock&) { return allocate_pinned(r, ptr, size); });
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int) {
  return api("cudaHostAlloc", kUnsafe,
             [&](Runtime& r, Lock&) { return allocate_pinned(r, pHost, size); });
}

cudaError_t cudaFreeHost(void* ptr) {
  return api("cudaFreeHost", kUnsafe, [&](Runtime& r, Lock& lock) {
    if (ptr == nullptr) return cudaSuccess;
    if (r.pinned.count(static_cast<char*>(ptr)) == 0) return cudaErrorInvalidValue;
    for (int d = 0; d < static_cast<int>(r.devices.size()); ++d) wait_for(r, lock, pending(r, d));
    if (r.pinned.erase(static_cast<char*>(ptr)) == 0) return cudaErrorInvalidValue;
    std::free(ptr);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int) {
  return api("cudaHostRegister", 0, [&](Runtime& r, Lock&) {
    if (ptr == nullptr || size == 0) return cudaErrorInvalidValue;
    const bool fresh = r.registered.emplace(static_cast<char*>(ptr), size).second;
    return fresh ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* ptr) {
  return api("cudaHostUnregister", 0, [&](Runtime& r, Lock&) {
    return r.registered.erase(static_cast<char*>(ptr)) == 1 ? cudaSuccess
                                                            : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* ptr) {
  return api("cudaPointerGetAttributes", 0, [&](Runtime& r, Lock&) {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    *attributes = {};
    void* p = const_cast<void*>(ptr);
    const int device = device_at(r, ptr);
    if (device >= 0) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = device;
      attributes->devicePointer = p;
    } else if (is_pinned(r, ptr)) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = this_thread.device;
      attributes->devicePointer = attributes->hostPointer = p;
    } else {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -2;
      attributes->hostPointer = p;
    }
    return cudaSuccess;
  });
}
