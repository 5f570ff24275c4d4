#include "cuda/device/staged_link.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/env.h"
#include "cuda/device/pinned.h"
#include "cuda/device/running_task.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "cuda/driver/graph_resource.h"
#include "cuda/kernels/move/copy.h"
#include "shmap/error.h"

namespace shmap::cuda {
namespace {

// A piece is an eighth of the copy, within bounds: one piece is copied to the host while the
// previous one is copied from it. Smaller pieces would take little longer than their start, larger
// ones would only use more memory.
constexpr std::int64_t kPieces = 8;
constexpr std::int64_t kLeastPiece = std::int64_t{512} << 10, kMostPiece = std::int64_t{4} << 20;

std::int64_t piece_of(std::int64_t bytes) {
  constexpr std::int64_t kGrain = 4096;
  const std::int64_t piece = (bytes / kPieces + kGrain - 1) / kGrain * kGrain;
  return std::clamp(piece, kLeastPiece, kMostPiece);
}

// The buffers of one stream, and the second stream that fills them.
class Stage final : public GraphResource {
 public:
  Stage(std::int64_t piece, int from_gpu, int to_gpu)
      : piece_(piece), buffers_{PinnedBlock(piece), PinnedBlock(piece)} {
    const UncapturedCalls uncaptured;
    try {
      const auto event = [&](int gpu, cudaEvent_t& e) {
        const GpuScope scope(gpu);
        check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      };
      event(to_gpu, begun_);
      for (int i : {0, 1}) {
        event(from_gpu, filled_[i]);
        event(to_gpu, emptied_[i]);
      }
      const GpuScope scope(from_gpu);
      check(cudaStreamCreateWithFlags(&filling_, cudaStreamNonBlocking),
            "cudaStreamCreateWithFlags");
    } catch (...) {
      release();
      throw;
    }
  }
  ~Stage() override { release(); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  std::int64_t piece() const noexcept { return piece_; }

  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes, cudaStream_t stream) {
    const std::int64_t piece = std::min(piece_, piece_of(bytes));
    record(begun_, stream);
    wait(filling_, begun_);  // the source is ready by then, and the buffers are free
    int i = 0;
    for (std::int64_t at = 0; at < bytes; at += piece, i ^= 1) {
      const auto n = static_cast<std::size_t>(std::min(piece, bytes - at));
      if (at >= 2 * piece) wait(filling_, emptied_[i]);
      check(cudaMemcpyAsync(buffers_[i].data(), src + at, n, cudaMemcpyDeviceToHost, filling_),
            "cudaMemcpyAsync to the host");
      record(filled_[i], filling_);
      wait(stream, filled_[i]);
      check(cudaMemcpyAsync(dst + at, buffers_[i].data(), n, cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync from the host");
      record(emptied_[i], stream);
    }
  }

 private:
  static void record(cudaEvent_t event, cudaStream_t stream) {
    check(cudaEventRecord(event, stream), "cudaEventRecord");
  }
  static void wait(cudaStream_t stream, cudaEvent_t event) {
    check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
  }
  void release() noexcept {
    const UncapturedCalls uncaptured;
    if (filling_ != nullptr) note(cudaStreamDestroy(filling_));
    for (cudaEvent_t e : {begun_, filled_[0], filled_[1], emptied_[0], emptied_[1]})
      if (e != nullptr) note(cudaEventDestroy(e));
  }

  const std::int64_t piece_;
  PinnedBlock buffers_[2];
  cudaStream_t filling_ = nullptr;
  cudaEvent_t begun_ = nullptr, filled_[2] = {}, emptied_[2] = {};
};

// The stages of eager streams, and of each stream's last capture. Never destroyed, because static
// objects may copy until the process ends.
class Stages {
 public:
  static Stages& get() {
    static auto* stages = new Stages;
    return *stages;
  }

  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes, cudaStream_t stream) {
    int to_gpu = 0;
    check(cudaGetDevice(&to_gpu), "cudaGetDevice");
    // A graph of a single GPU has no stream of another GPU: the destination's GPU then reads the
    // source itself.
    const int from_gpu = captures_graph_of_one_gpu() ? to_gpu : gpu_of(src);
    stage(bytes, from_gpu, to_gpu, stream)->copy(dst, src, bytes, stream);
  }

  void drop(cudaStream_t stream) noexcept {
    std::lock_guard lock(mutex_);
    std::erase_if(eager_, [&](const auto& entry) { return entry.first.first == stream; });
    std::erase_if(captured_, [&](const auto& entry) { return entry.first.first == stream; });
  }

 private:
  struct CapturedStage {
    unsigned long long capture = 0;
    Stage* stage = nullptr;  // owned by its graph
  };

  Ref<Stage> stage(std::int64_t bytes, int from_gpu, int to_gpu, cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long capture = 0;
    check(cudaStreamGetCaptureInfo(stream, &status, &capture), "cudaStreamGetCaptureInfo");
    std::lock_guard lock(mutex_);
    if (status == cudaStreamCaptureStatusNone) {
      Ref<Stage>& own = eager_[{stream, from_gpu}];
      if (!own) own = make_ref<Stage>(kMostPiece, from_gpu, to_gpu);
      return own;
    }
    CapturedStage& captured = captured_[{stream, from_gpu}];
    if (captured.capture != capture || captured.stage->piece() < piece_of(bytes)) {
      const auto made = make_ref<Stage>(piece_of(bytes), from_gpu, to_gpu);
      if (!keep_with_graph(made))
        throw Error("a copy in a capture that was not begun by this library");
      captured = {capture, made.get()};
    }
    return Ref<Stage>(captured.stage);
  }

  std::mutex mutex_;
  std::map<std::pair<cudaStream_t, int>, Ref<Stage>> eager_;
  std::map<std::pair<cudaStream_t, int>, CapturedStage> captured_;
};

}  // namespace

bool link_is_staged() {
  static const bool staged = env::text(env::Var::link) == "staged";
  return staged;
}

void copy_between_spaces(void* dst, const void* src, std::int64_t bytes, void* native) {
  if (bytes <= 0) return;
  if (!link_is_staged()) return copy_bytes(dst, src, bytes, native);
  Stages::get().copy(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), bytes,
                     static_cast<cudaStream_t>(native));
}

void drop_link(cudaStream_t stream) noexcept {
  static const bool staged = link_is_staged();
  if (staged) Stages::get().drop(stream);
}

}  // namespace shmap::cuda
