// Doubt: work that has ended on a GPU and may still turn out to be invalid, since other processes
// have not yet said that they do the same. Until then the tasks after it count as pending, so that
// no value is read which nobody vouches for.
#pragma once
#include <cstdint>
#include <vector>

#include "cuda/device/queue.h"

namespace shmap::cuda {

struct DoubtedTask {
  Ref<Queue> queue;
  std::uint64_t number;  // of the task in the queue
};

// Returns the number, from 1 on, of a new doubt about these tasks. Any thread, as all functions
// here.
std::uint64_t begin_doubt(std::vector<DoubtedTask> tasks);
// One more task; nothing happens where the doubt has ended.
void add_to_doubt(std::uint64_t doubt, DoubtedTask task);
// The tasks are valid. A doubt that is not ended lasts as long as the process.
void end_doubt(std::uint64_t doubt) noexcept;

// Whether a task has ended about which there is doubt. Called often, possibly under a spin lock;
// does not wait for a GPU.
bool in_doubt() noexcept;

}  // namespace shmap::cuda
