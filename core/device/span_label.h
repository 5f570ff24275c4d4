// SpanLabel: the data that a timeline shows for a task besides its name: the operation behind the
// task, and the senders of the data that the task received.
//
// A label comes with a copy of the task's name, and Task::name points to that copy. The label
// therefore goes wherever the name goes, into graphs and their replays, and label_of() finds it by
// the address of the name. Tasks have labels while a timeline is recorded, and where they are
// captured into a graph whose owner keeps the labels (KeptLabels). The names of all other tasks are
// static text, and cost nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device/timeline.h"

namespace shmap {

struct SpanDetails {
  std::string scope;     // the named scopes, "layer/attention"
  std::string source;    // "dir/file.cpp:12"
  std::string operands;  // the types of one device's blocks, "f32[2,3], f32[3]"
  std::string results;   // likewise
  std::string parameters;
  std::vector<std::string> members;  // of a fused operation: the operations in it, in order
  double flops = -1, bytes = -1;     // estimates of one device's work; -1: not known
};

// The operation to which tasks belong. Immutable, shared by the labels of its tasks.
class SpanSubject {
 public:
  virtual ~SpanSubject() = default;
  // Called by the thread that writes a trace, perhaps long after the operation: may allocate, and
  // must not use arrays of the operation.
  virtual SpanDetails details() const = 0;
};

struct SpanLabel {
  std::shared_ptr<const SpanSubject> subject;  // may be null
  // collective: for a task of a collective, one number for all tasks of one call; 0 for other
  // tasks. moves: the sender and the receiver of each move of this task, as local devices.
  std::uint64_t collective = 0;
  std::vector<std::pair<int, int>> moves;
  // For an exchange between processes: the processes that this one sends to and receives
  // from.
  std::vector<int> sends_to, receives_from;
};

namespace detail {
extern constinit thread_local class KeptLabelsImpl* kept_labels;
}

// True if a task that is enqueued now on this thread gets a label.
inline bool wants_labels() noexcept {
  return timeline_sink() != nullptr || detail::kept_labels != nullptr;
}
// The name for a task with that label; `name` itself where there is no memory for one.
const char* labelled_name(const char* name, SpanLabel label) noexcept;
// The label of a task with that name: empty where it has none.
SpanLabel label_of(const char* name);

// A recording has one from before its sink is set until the names of its events have been read for
// the last time.
class LabelsInUse {
 public:
  LabelsInUse() noexcept;
  ~LabelsInUse();
  LabelsInUse(const LabelsInUse&) = delete;
  LabelsInUse& operator=(const LabelsInUse&) = delete;
};

// Owns the labels of the tasks that a thread captures while a Scope of the object is alive on that
// thread. The object has to outlive the tasks. If it is destroyed while a LabelsInUse exists, its
// labels live on as labels of that recording.
class KeptLabels {
 public:
  KeptLabels();
  ~KeptLabels();
  KeptLabels(const KeptLabels&) = delete;
  KeptLabels& operator=(const KeptLabels&) = delete;
  bool empty() const;

  class Scope {
   public:
    explicit Scope(KeptLabels& labels) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    detail::KeptLabelsImpl* before_;
  };

 private:
  std::unique_ptr<detail::KeptLabelsImpl> impl_;
};

// Forgets the labels of the recording before the last one, but not those of graphs; called when a
// recording begins. The labels of the last recording stay, because a task that was enqueued while
// it ended may still run.
void forget_labels() noexcept;
// How many labels there are.
std::int64_t labels_alive() noexcept;

}  // namespace shmap
