// Labels for the tasks of a step (core/device/span_label.h), which describe them in a timeline.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "core/base/thread_state.h"
#include "core/device/span_label.h"
#include "core/runtime/step.h"

namespace shmap {

// Whether the tasks that this thread enqueues now get labels: while a timeline is recorded, and in
// graphs, because their replays may be recorded later.
inline bool labels_tasks(const detail::ThreadState& thread = detail::thread_state) noexcept {
  return timeline_sink() != nullptr || (thread.capture != nullptr && wants_labels());
}

// While the object lives, the tasks that this thread enqueues belong to `step`. The destructor logs
// the memory in use (core/device/host_log.h).
class LabelledStep {
 public:
  LabelledStep(const Step& step, Types out_types);
  ~LabelledStep();
  LabelledStep(const LabelledStep&) = delete;
  LabelledStep& operator=(const LabelledStep&) = delete;

 private:
  const detail::MeshImpl& mesh_;
  std::shared_ptr<const SpanSubject> before_;
};

// The name of a task of the current step; `name` itself where tasks get no labels.
const char* labelled_task_name(const char* name);
inline const char* task_name(const char* name,
                             const detail::ThreadState& thread = detail::thread_state) {
  return labels_tasks(thread) ? labelled_task_name(name) : name;
}
// The same as task_name for a task of a collective, whose calls are numbered. `moves`: the pairs of
// local devices between which it moves data.
const char* collective_task_name(const char* name, std::uint64_t number,
                                 std::vector<std::pair<int, int>> moves);
// The same as task_name for an exchange between processes.
const char* exchange_task_name(const char* name, std::uint64_t number, std::vector<int> sends_to,
                               std::vector<int> receives_from);

// Logs the bytes in use in each memory space of the mesh's local devices.
void log_memory_of(const detail::MeshImpl& mesh) noexcept;

}  // namespace shmap
