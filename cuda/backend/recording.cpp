#include "cuda/backend/recording.h"

#include <algorithm>

#include "cuda/backend/backend.h"
#include "cuda/backend/stream.h"
#include "cuda/device/small_fills.h"
#include "cuda/driver/error.h"

namespace shmap::cuda {

Recording::~Recording() {
  if (ended_ || lanes_.empty()) return;
  try {
    // Streams that did not join the first one again would stay in capture mode.
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      come_after(0, *mark(static_cast<std::int32_t>(i)));
    }
  } catch (...) {  // an error has already ended the capture
  }
  cudaGraph_t graph = nullptr;
  note(end(&graph));
  if (graph != nullptr) note(cudaGraphDestroy(graph));
}

std::int32_t Recording::lane_of(CudaStream& stream) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].stream == &stream) return static_cast<std::int32_t>(i);
  }
  const Queue& queue = stream.queue();
  lanes_.reserve(lanes_.size() + 1);
  cudaStream_t shadow = backend_->shadows().take(queue.gpu(), queue.priority());
  const auto index = static_cast<std::int32_t>(lanes_.size());
  try {
    if (index == 0) {
      check(cudaStreamBeginCapture(shadow, cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCapture");
    }
  } catch (...) {
    backend_->shadows().give(queue.gpu(), queue.priority(), shadow);
    throw;
  }
  lanes_.push_back({&stream, shadow});
  if (index == 0) {
    start_ = mark(0);
  } else {
    come_after(index, *start_);
  }
  return index;
}

Ref<Mark> Recording::mark(std::int32_t lane) {
  const Lane& from = lane_at(lane);
  auto mark = make_ref<Mark>(Ref<EventPool>(&from.stream->queue().events()), 0u);
  check(cudaEventRecord(mark->event(), from.shadow), "cudaEventRecord in a capture");
  return mark;
}

void Recording::come_after(std::int32_t lane, const Mark& mark) {
  check(cudaStreamWaitEvent(lane_at(lane).shadow, mark.event(), 0),
        "cudaStreamWaitEvent in a capture");
}

void Recording::end_task() {
  if (std::exchange(apart_, false)) return members_.clear();
  for (std::size_t m = 1; m < members_.size(); ++m) {
    come_after(members_.front(), *mark(members_[m]));
  }
  members_.clear();
}

cudaStream_t Recording::member(CudaStream& stream) {
  const std::int32_t at = lane_of(stream);
  if (std::ranges::find(members_, at) == members_.end()) {
    come_after(at, *mark(members_.front()));
    members_.push_back(at);
  }
  return native(at);
}

cudaGraph_t Recording::finish() {
  if (ended_ || lanes_.empty()) return nullptr;
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    come_after(0, *mark(static_cast<std::int32_t>(i)));
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t code = end(&graph);
  if (code != cudaSuccess) {
    if (graph != nullptr) note(cudaGraphDestroy(graph));
    throw_cuda_error(code, "cudaStreamEndCapture");
  }
  try {
    replace_small_fills(graph);
  } catch (...) {
    note(cudaGraphDestroy(graph));
    throw;
  }
  return graph;
}

cudaError_t Recording::end(cudaGraph_t* graph) noexcept {
  ended_ = true;
  const cudaError_t code = cudaStreamEndCapture(lanes_.front().shadow, graph);
  if (code != cudaSuccess) cudaGetLastError();
  for (const Lane& l : lanes_) {
    const Queue& queue = l.stream->queue();
    backend_->shadows().give(queue.gpu(), queue.priority(), l.shadow);
  }
  start_.reset();
  return code;
}

}  // namespace shmap::cuda
