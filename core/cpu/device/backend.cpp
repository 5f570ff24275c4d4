#include "core/cpu/device/backend.h"

#include <string>
#include <utility>

#include "core/base/env.h"
#include "core/cpu/kernels/matmul/gemm.h"
#include "core/device/fork_guard.h"
#include "core/device/registry.h"
#include "shmap/error.h"

namespace shmap::cpu {

CpuBackend::CpuBackend(const DeviceSpec& spec, int first_id, int process_index,
                       const ExecutorOptions& executor, std::int64_t memory_limit)
    : executor_(executor) {
  const int per_space = spec.count / spec.spaces;
  const std::int64_t cache_limit = default_cache_limit(spec.spaces);
  for (int s = 0; s < spec.spaces; ++s) {
    const int first = first_id + s * per_space;
    std::string name = "CpuDevice(id=" + std::to_string(first);
    if (per_space > 1) name += ".." + std::to_string(first + per_space - 1);
    spaces_.emplace_back(s, name + ")", memory_limit, cache_limit);
    space_list_.push_back(&spaces_.back());
  }
  devices_.reserve(static_cast<std::size_t>(spec.count));
  for (int d = 0; d < spec.count; ++d) {
    auto stream = [&](StreamRole role) { return &streams_.emplace_back(executor_, d, role); };
    Stream* compute = stream(StreamRole::compute);
    Stream* comm = stream(StreamRole::comm);
    devices_.push_back({detail::DeviceAccess::make(first_id + d, process_index, DeviceKind::cpu), d,
                        space_list_[static_cast<std::size_t>(d / per_space)], compute, comm});
  }
}

CpuBackend::~CpuBackend() {
  if (!forked()) executor_.drain();  // the streams must still exist
}

Event CpuBackend::enqueue_group(std::span<Stream* const> streams, const Task& task,
                                std::span<const Event> waits) {
  return CpuStream::enqueue_group(executor_, streams, task, waits);
}

void CpuBackend::begin_capture() {
  detail::check_begins_capture();
  detail::thread_state.capture = new Capture(&executor_);
}

Ref<Graph> CpuBackend::end_capture() {
  detail::ThreadState& thread = detail::thread_state;
  if (thread.capture == nullptr || static_cast<Capture*>(thread.capture)->executor != &executor_) {
    throw Error("end_capture: this thread does not capture this backend");
  }
  const std::unique_ptr<Capture> capture(
      static_cast<Capture*>(std::exchange(thread.capture, nullptr)));
  return make_ref<CpuGraph>(executor_, *capture);
}

int CpuBackend::captured() const noexcept {
  const auto* capture = static_cast<const Capture*>(detail::thread_state.capture);
  return capture != nullptr && capture->executor == &executor_
             ? static_cast<int>(capture->log.entries().size())
             : 0;
}

void CpuBackend::abort_capture() noexcept {
  detail::ThreadState& thread = detail::thread_state;
  if (thread.capture == nullptr || static_cast<Capture*>(thread.capture)->executor != &executor_) {
    return;
  }
  delete static_cast<Capture*>(std::exchange(thread.capture, nullptr));
}

void CpuBackend::synchronize() {
  if (capturing()) throw Error("synchronize while this thread captures a graph");
  if (in_task()) {
    throw Error("synchronize inside the task '" + std::string(detail::thread_state.task) + "'");
  }
  if (forked()) throw_forked();
  std::vector<Event> last;
  {
    std::lock_guard lock(submit_mutex_);
    for (CpuStream& stream : streams_) {
      if (Event e = stream.last_event(); !e.done()) last.push_back(std::move(e));
    }
  }
  for (const Event& e : last) {
    if (!e.done()) e.record()->block();
  }
  executor_.rethrow_unreported();
}

void CpuBackend::stop() noexcept {
  // A worker that stop() left behind may still be inside one of these libraries.
  if (executor_.stop()) close_gemm_libraries();
}

std::unique_ptr<Backend> make_backend(const DeviceSpec& spec, int first_id, int process_index) {
  return std::make_unique<CpuBackend>(spec, first_id, process_index,
                                      ExecutorOptions::from_environment(),
                                      env::bytes(env::Var::memory_limit));
}

}  // namespace shmap::cpu

namespace shmap {

BackendFactory cpu_backend() {
  return {DeviceKind::cpu, cpu::make_backend, [] { return "cpu:8"; }};
}

}  // namespace shmap
