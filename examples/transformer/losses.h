// The losses of a training: kept beside its checkpoints, so that a run that goes on has all of
// them.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace transformer {

struct Losses {
  int first = 0;                    // the number of steps before, whose losses are not known
  std::vector<float> batches = {};  // of each step's batch, from step `first` on
  std::vector<std::pair<int, float>> held_out = {};  // (steps taken, loss), in that order

  int steps() const { return first + static_cast<int>(batches.size()); }
};

// Writes FOLDER/losses.npz, as a whole or not at all: to be called before the checkpoint of the
// same step is saved, so that no checkpoint is without its losses. Makes the folder.
void save_losses(const std::string& folder, const Losses& losses);

// Returns the losses of the steps before a checkpoint of `steps` steps. Where the folder has no
// losses (older versions wrote none), or those of fewer steps, the result has none, and its `first`
// is `steps`. ValueError where the file is damaged.
Losses load_losses(const std::string& folder, int steps);

}  // namespace transformer
