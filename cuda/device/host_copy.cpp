#include "cuda/device/host_copy.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "cuda/device/pinned.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

// The size of a piece of a large copy: a link of 50 GB/s moves it in 40 us, which hides the start
// of the next piece.
constexpr std::int64_t kPiece = std::int64_t{2} << 20;
constexpr int kPinnedPieces = 2;

// A stream with page-locked memory for the pieces under way.
class Transfer {
 public:
  explicit Transfer(int gpu) : gpu_(gpu) {
    const GpuScope scope(gpu);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (cudaEvent_t& event : events_) {
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
  }
  ~Transfer() {
    for (cudaEvent_t event : events_) {
      if (event != nullptr) note(cudaEventDestroy(event));
    }
    if (stream_ != nullptr) note(cudaStreamDestroy(stream_));
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  int gpu() const noexcept { return gpu_; }

  // `room`: memory for kPinnedPieces pieces, or for the whole copy if that is less.
  void to_device(std::byte* dst, const std::byte* src, std::int64_t bytes, std::byte* room) {
    int slot = 0;
    bool used[kPinnedPieces] = {};
    for (std::int64_t at = 0; at < bytes; at += kPiece, slot = (slot + 1) % kPinnedPieces) {
      const std::int64_t n = std::min(kPiece, bytes - at);
      std::byte* piece = room + slot * kPiece;
      if (used[slot]) check(cudaEventSynchronize(events_[slot]), "copying to a GPU");
      std::memcpy(piece, src + at, static_cast<std::size_t>(n));
      start(dst + at, piece, n, slot);
      used[slot] = true;
    }
    check(cudaStreamSynchronize(stream_), "copying to a GPU");
  }

  void to_host(std::byte* dst, const std::byte* src, std::int64_t bytes, std::byte* room) {
    const auto piece = [&](int slot) { return room + slot * kPiece; };
    const std::int64_t pieces = (bytes + kPiece - 1) / kPiece;
    const auto size = [&](std::int64_t i) { return std::min(kPiece, bytes - i * kPiece); };
    for (std::int64_t i = 0; i < pieces + kPinnedPieces - 1; ++i) {
      if (i < pieces) {
        const int slot = static_cast<int>(i % kPinnedPieces);
        start(piece(slot), src + i * kPiece, size(i), slot);
      }
      const std::int64_t arrived = i - (kPinnedPieces - 1);
      if (arrived < 0) continue;
      const int slot = static_cast<int>(arrived % kPinnedPieces);
      check(cudaEventSynchronize(events_[slot]), "copying from a GPU");
      std::memcpy(dst + arrived * kPiece, piece(slot), static_cast<std::size_t>(size(arrived)));
    }
  }

  // Called after an error, before the page-locked memory is released, so that no piece of the copy
  // is under way any more.
  void settle() noexcept { note(cudaStreamSynchronize(stream_)); }

 private:
  void start(void* dst, const void* src, std::int64_t n, int slot) {
    check(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(n), cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync");
    check(cudaEventRecord(events_[slot], stream_), "cudaEventRecord");
  }
  const int gpu_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[kPinnedPieces] = {};
};

// Unused transfers, by GPU.
struct Transfers {
  std::mutex mutex;
  std::map<int, std::vector<std::unique_ptr<Transfer>>> free;

  std::unique_ptr<Transfer> take(int gpu) {
    {
      std::lock_guard lock(mutex);
      auto& list = free[gpu];
      if (!list.empty()) {
        auto transfer = std::move(list.back());
        list.pop_back();
        return transfer;
      }
    }
    return std::make_unique<Transfer>(gpu);
  }
  void give(std::unique_ptr<Transfer> transfer) {
    std::lock_guard lock(mutex);
    free[transfer->gpu()].push_back(std::move(transfer));
  }
};
Transfers& transfers() {
  static auto* const all = new Transfers;  // never destroyed: static arrays are read at exit
  return *all;
}

template <class Copy>
void transfer(const void* device_memory, std::int64_t bytes, Copy copy) {
  if (bytes == 0) return;
  if (capturing()) throw Error("copying between host and GPU while this thread captures a graph");
  if (forked()) throw_forked();
  std::unique_ptr<Transfer> with = transfers().take(gpu_of(device_memory));
  const GpuScope gpu(with->gpu());
  const PinnedBlock room(std::min(bytes, kPinnedPieces * kPiece));
  try {
    copy(*with, room.data());
  } catch (...) {
    with->settle();
    throw;
  }
  transfers().give(std::move(with));
}

}  // namespace

void host_to_device(void* dst, const void* src, std::int64_t bytes) {
  transfer(dst, bytes, [&](Transfer& t, std::byte* room) {
    t.to_device(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), bytes, room);
  });
}

void device_to_host(void* dst, const void* src, std::int64_t bytes) {
  transfer(src, bytes, [&](Transfer& t, std::byte* room) {
    t.to_host(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), bytes, room);
  });
}

}  // namespace shmap::cuda
