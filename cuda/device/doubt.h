// Doubt: work that has ended on a GPU may still turn out to be invalid, because other processes
// have not yet answered that they do the same. Until they have, the tasks after it count as
// pending, so that no value is read that no process has confirmed.
#pragma once
#include <cstdint>
#include <vector>

#include "cuda/device/queue.h"

namespace shmap::cuda {

struct DoubtedTask {
  Ref<Queue> queue;
  std::uint64_t number;  // of the task in the queue
};

// Returns the number, from 1 on, of a new doubt about these tasks. Any thread may call this
// function and the following ones.
std::uint64_t begin_doubt(std::vector<DoubtedTask> tasks);
// Adds a task to a doubt. Does nothing if the doubt has ended.
void add_to_doubt(std::uint64_t doubt, DoubtedTask task);
// Ends the doubt: the tasks are valid. A doubt that is never ended lasts as long as the process.
void end_doubt(std::uint64_t doubt) noexcept;

// True if a task has ended, or may have, about which there is doubt. Called often, possibly under a
// spin lock; does not wait for a GPU.
bool in_doubt() noexcept;

}  // namespace shmap::cuda
