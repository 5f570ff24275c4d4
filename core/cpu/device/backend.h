// CpuBackend: virtual devices on the cores of this machine.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "core/cpu/device/memory.h"
#include "core/cpu/executor/executor.h"
#include "core/cpu/executor/graph.h"
#include "core/cpu/executor/stream.h"
#include "core/device/backend.h"
#include "core/device/fork_guard.h"
#include "core/device/spec.h"

namespace shmap::cpu {

class CpuBackend final : public Backend {
 public:
  // memory_limit: bytes of each memory space; -1: no limit.
  CpuBackend(const DeviceSpec& spec, int first_id, int process_index,
             const ExecutorOptions& executor, std::int64_t memory_limit);
  // Waits until all tasks have ended. The backend's buffers and graphs must be destroyed before.
  ~CpuBackend() override;

  DeviceKind kind() const noexcept override { return DeviceKind::cpu; }
  std::span<const LocalDevice> devices() const noexcept override { return devices_; }
  std::span<MemorySpace* const> spaces() const noexcept override { return space_list_; }
  Event enqueue_group(std::span<Stream* const> streams, const Task& task,
                      std::span<const Event> waits) override;
  bool all_run_at_once(std::int64_t cost_ns,
                       const detail::ThreadState& thread) const noexcept override {
    // While no task is in flight, no stream has a pending one.
    return thread.capture == nullptr && thread.task == nullptr &&
           cost_ns <= executor_.inline_below_ns() && executor_.in_flight() == 0 && !forked();
  }
  void begin_capture() override;
  Ref<Graph> end_capture() override;
  int captured() const noexcept override;
  void abort_capture() noexcept override;
  void synchronize() override;
  int workers() const noexcept override { return executor_.workers(); }
  std::string repro() const override { return executor_.repro(); }
  void stop() noexcept override;

  Executor& executor() noexcept { return executor_; }

 private:
  Executor executor_;
  std::deque<CpuMemorySpace> spaces_;
  std::vector<MemorySpace*> space_list_;
  std::deque<CpuStream> streams_;
  std::vector<LocalDevice> devices_;
};

// Contract of BackendFactory::make; reads SHMAP_EXECUTOR, SHMAP_WORKERS and SHMAP_MEMORY_LIMIT.
std::unique_ptr<Backend> make_backend(const DeviceSpec& spec, int first_id, int process_index);

}  // namespace shmap::cpu
