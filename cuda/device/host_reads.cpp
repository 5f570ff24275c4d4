#include "cuda/device/host_reads.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "core/device/backend.h"
#include "cuda/device/pinned.h"
#include "cuda/device/running_task.h"
#include "cuda/driver/error.h"
#include "cuda/driver/graph_resource.h"

namespace shmap {

namespace cuda {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t room_for(std::span<const HostRead> values) {
  std::int64_t bytes = 0;
  for (const HostRead& value : values) bytes += (value.bytes + kAlignment - 1) & -kAlignment;
  return bytes;
}

// The arguments of a host function: for one call or, in a graph, for the life of the graph.
class HostCall final : public GraphResource {
 public:
  HostCall(std::span<const HostRead> values, Ref<HostReader> reader, Ref<Health> health)
      : room_(room_for(values)), reader_(std::move(reader)), health_(std::move(health)) {}

  void copy(std::span<const HostRead> values, cudaStream_t stream) {
    std::byte* at = room_.data();
    for (const HostRead& value : values) {
      values_.push_back(at);
      if (value.bytes == 0) continue;
      check(cudaMemcpyAsync(at, value.from, static_cast<std::size_t>(value.bytes),
                            cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
      at += (value.bytes + kAlignment - 1) & -kAlignment;
    }
  }
  // Calls no CUDA function, because a host function must not.
  void show() const noexcept {
    try {
      reader_->read(values_);
    } catch (...) {
      health_->failures().add(std::current_exception());
    }
  }

 private:
  const PinnedBlock room_;
  const Ref<HostReader> reader_;
  const Ref<Health> health_;
  std::vector<const void*> values_;
};

}  // namespace

void read_on_host(std::span<const HostRead> values, const Ref<HostReader>& reader, void* native) {
  auto stream = static_cast<cudaStream_t>(native);
  auto call = make_ref<HostCall>(values, reader, health_of_task());
  const bool kept = keep_with_graph(call);
  call->copy(values, stream);
  if (kept) {
    return check(cudaLaunchHostFunc(
                     stream, [](void* c) { static_cast<HostCall*>(c)->show(); }, call.get()),
                 "cudaLaunchHostFunc");
  }
  check(cudaLaunchHostFunc(
            stream,
            [](void* c) {
              const auto own = Ref<HostCall>::adopt(static_cast<HostCall*>(c));
              own->show();
            },
            call.get()),
        "cudaLaunchHostFunc");
  call.detach();  // owned by the host function now
}

}  // namespace cuda

}  // namespace shmap
