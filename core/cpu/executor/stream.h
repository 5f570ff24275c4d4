// CpuStream: an ordered queue, represented by its last task alone.
#pragma once
#include <optional>
#include <span>

#include "core/cpu/executor/executor.h"
#include "core/device/stream.h"

namespace shmap::cpu {

class CpuStream final : public Stream {
 public:
  CpuStream(Executor& executor, int device_index, StreamRole role) noexcept
      : Stream(device_index, role), executor_(executor) {}

  Event enqueue(const Task& task, std::span<const Event> waits,
                std::span<const Event> after) override;
  Event record() override;
  bool idle() noexcept override;
  bool runs_at_once(std::int64_t cost_ns, const detail::ThreadState& thread) noexcept override;
  bool overtakes(std::int64_t cost_ns, const detail::ThreadState& thread) noexcept override;
  Event run_at_once(const Task& task, detail::ThreadState& thread) override;

  // The event of the last task, which may fail; a completed event if no task is pending.
  Event last_event() noexcept { return quiet() ? Event() : Event(last_); }

  static Event enqueue_group(Executor& executor, std::span<Stream* const> streams, const Task& task,
                             std::span<const Event> waits);

 private:
  friend class CpuGraph;
  bool quiet() noexcept;  // no task is pending
  std::optional<Event> attempt_now(const Task& task, detail::ThreadState& thread);
  static Event enqueue_slow(Executor& executor, std::span<CpuStream* const> streams,
                            const Task& task, std::span<const Event> waits,
                            std::span<const Event> after);
  Executor& executor_;
  Ref<Node> last_;
};

}  // namespace shmap::cpu
