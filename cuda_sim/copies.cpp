// Copies and fills.
#include <cstring>

#include "runtime.h"

namespace shmap_sim {
namespace {

struct Copy {
  void* dst;
  std::size_t dst_pitch;
  const void* src;
  std::size_t src_pitch;
  std::size_t width;
  std::size_t height;
};

void run(const Copy& c) {
  if (c.height == 1 || (c.width == c.dst_pitch && c.width == c.src_pitch)) {
    std::memmove(c.dst, c.src, c.width * c.height);
    return;
  }
  for (std::size_t row = 0; row < c.height; ++row) {
    std::memmove(static_cast<char*>(c.dst) + row * c.dst_pitch,
                 static_cast<const char*>(c.src) + row * c.src_pitch, c.width);
  }
}

// Success if the kind matches the addresses, and each side is in one allocation.
cudaError_t check(const Runtime& r, const Copy& c, cudaMemcpyKind kind) {
  if (c.dst == nullptr || c.src == nullptr) return cudaErrorInvalidValue;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  if (c.width > c.dst_pitch || c.width > c.src_pitch) return cudaErrorInvalidPitchValue;
  const int to = device_at(r, c.dst);
  const int from = device_at(r, c.src);
  const bool to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
  const bool from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
  if (kind != cudaMemcpyDefault) {
    // Pinned memory may stand for device memory, not the other way round.
    if (to_host && to >= 0) return cudaErrorInvalidValue;
    if (from_host && from >= 0) return cudaErrorInvalidValue;
    if (!to_host && to < 0 && !is_pinned(r, c.dst)) return cudaErrorInvalidValue;
    if (!from_host && from < 0 && !is_pinned(r, c.src)) return cudaErrorInvalidValue;
  }
  const std::size_t to_bytes = (c.height - 1) * c.dst_pitch + c.width;
  const std::size_t from_bytes = (c.height - 1) * c.src_pitch + c.width;
  if (to >= 0 && !within_allocation(r, to, c.dst, to_bytes)) return cudaErrorInvalidValue;
  if (from >= 0 && !within_allocation(r, from, c.src, from_bytes)) return cudaErrorInvalidValue;
  return cudaSuccess;
}

void log_copy(Runtime& r, const Copy& c) {
  if (r.logging) r.calls.back() += " " + std::to_string(c.width * c.height);
}

// Stages host memory that is not pinned, as drivers do: reads the source before the call returns,
// and has written the destination when it returns. Under capture the addresses are kept.
cudaError_t enqueue_copy(Runtime& r, Lock& lock, Copy c, cudaMemcpyKind kind, cudaStream_t handle,
                         bool blocking) {
  Stream* stream = stream_of(r, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  log_copy(r, c);
  if (c.width == 0 || c.height == 0) return cudaSuccess;
  if (const cudaError_t error = check(r, c, kind); error != cudaSuccess) return error;
  const bool capturing = stream->capture != nullptr;
  const bool from_pageable = device_at(r, c.src) < 0 && !is_pinned(r, c.src);
  const bool to_pageable = device_at(r, c.dst) < 0 && !is_pinned(r, c.dst);
  const int device = stream->device;
  Work work;
  work.kind = Work::Kind::memcpy;
  work.device = device;
  work.name = "memcpy";
  if (from_pageable && !capturing && !blocking) {
    auto staged = std::make_shared<std::string>();
    for (std::size_t row = 0; row < c.height; ++row) {
      staged->append(static_cast<const char*>(c.src) + row * c.src_pitch, c.width);
    }
    c.src_pitch = c.width;
    work.run = [c, staged]() mutable {
      c.src = staged->data();
      run(c);
      return cudaSuccess;
    };
  } else {
    work.run = [c] {
      run(c);
      return cudaSuccess;
    };
  }
  if (const cudaError_t error = submit(r, *stream, std::move(work)); error != cudaSuccess) {
    return error;
  }
  if ((blocking || to_pageable) && !capturing) {
    wait_for(r, lock, {stream->queue.back()});
    return r.devices[device]->lost;
  }
  drain_if_full(r, lock);
  return cudaSuccess;
}

cudaError_t enqueue_fill(Runtime& r, Lock& lock, void* dst, std::size_t pitch, int value,
                         std::size_t width, std::size_t height, cudaStream_t handle,
                         bool blocking) {
  Stream* stream = stream_of(r, handle);
  // A copy may use a stream of a GPU other than the current one; CUDA's guide allows this for
  // copies only.
  if (stream == nullptr || stream->device != this_thread.device)
    return cudaErrorInvalidResourceHandle;
  if (r.logging) r.calls.back() += " " + std::to_string(width * height);
  if (width == 0 || height == 0) return cudaSuccess;
  if (dst == nullptr || (height > 1 && width > pitch)) return cudaErrorInvalidValue;
  const int owner = device_at(r, dst);
  if (owner < 0 && !is_pinned(r, dst)) return cudaErrorInvalidValue;
  if (owner >= 0 && !within_allocation(r, owner, dst, (height - 1) * pitch + width)) {
    return cudaErrorInvalidValue;
  }
  const int device = stream->device;
  Work work;
  work.kind = Work::Kind::memset;
  work.device = device;
  work.name = "memset";
  work.fill = {dst, pitch, static_cast<unsigned>(value & 0xff), 1, width, height};
  work.run = [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memset(static_cast<char*>(dst) + row * pitch, value, width);
    }
    return cudaSuccess;
  };
  if (const cudaError_t error = submit(r, *stream, std::move(work)); error != cudaSuccess) {
    return error;
  }
  if (blocking) {
    wait_for(r, lock, {stream->queue.back()});
    return r.devices[device]->lost;
  }
  drain_if_full(r, lock);
  return cudaSuccess;
}

Copy flat(void* dst, const void* src, std::size_t count) {
  return {dst, count, src, count, count, 1};
}

}  // namespace
}  // namespace shmap_sim

using namespace shmap_sim;

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind) {
  return api("cudaMemcpy", kUnsafe, [&](Runtime& r, Lock& lock) {
    return enqueue_copy(r, lock, flat(dst, src, count), kind, nullptr, true);
  });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return api("cudaMemcpyAsync", 0, [&](Runtime& r, Lock& lock) {
    return enqueue_copy(r, lock, flat(dst, src, count), kind, stream, false);
  });
}

cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind) {
  return api("cudaMemcpy2D", kUnsafe, [&](Runtime& r, Lock& lock) {
    return enqueue_copy(r, lock, {dst, dpitch, src, spitch, width, height}, kind, nullptr, true);
  });
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return api("cudaMemcpy2DAsync", 0, [&](Runtime& r, Lock& lock) {
    return enqueue_copy(r, lock, {dst, dpitch, src, spitch, width, height}, kind, stream, false);
  });
}

cudaError_t cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, size_t count) {
  return api("cudaMemcpyPeer", kUnsafe, [&](Runtime& r, Lock& lock) {
    if (device_at(r, dst) != dstDevice || device_at(r, src) != srcDevice) {
      return cudaErrorInvalidValue;
    }
    return enqueue_copy(r, lock, flat(dst, src, count), cudaMemcpyDeviceToDevice, nullptr, true);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice,
                                size_t count, cudaStream_t stream) {
  return api("cudaMemcpyPeerAsync", 0, [&](Runtime& r, Lock& lock) {
    if (count > 0 && (device_at(r, dst) != dstDevice || device_at(r, src) != srcDevice)) {
      return cudaErrorInvalidValue;
    }
    return enqueue_copy(r, lock, flat(dst, src, count), cudaMemcpyDeviceToDevice, stream, false);
  });
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  return api("cudaMemset", 0, [&](Runtime& r, Lock& lock) {
    return enqueue_fill(r, lock, devPtr, count, value, count, 1, nullptr, true);
  });
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return api("cudaMemsetAsync", 0, [&](Runtime& r, Lock& lock) {
    return enqueue_fill(r, lock, devPtr, count, value, count, 1, stream, false);
  });
}

cudaError_t cudaMemset2DAsync(void* devPtr, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return api("cudaMemset2DAsync", 0, [&](Runtime& r, Lock& lock) {
    return enqueue_fill(r, lock, devPtr, pitch, value, width, height, stream, false);
  });
}
