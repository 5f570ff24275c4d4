// CommSet: the NCCL communicators of one way to cut a mesh into cliques, one for each device.
#pragma once
#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/clique_table.h"
#include "core/base/intrusive.h"
#include "core/ir/primitive.h"

namespace shmap::nccl {

// Ranks of a clique by number -> position in the mesh; each position is in one clique.
using CliqueList = std::vector<std::vector<std::uint32_t>>;

// Kept for the process, by (mesh, cliques): making one takes NCCL up to seconds. What runs later
// holds a Ref: the args of a task, and so a graph that has captured it. As the process leaves,
// before the devices stop, those that no graph holds are destroyed; the others end with the
// process, since NCCL lets no communicator go before the graphs that use it. So do those that leave
// the process: to destroy them is to wait for the other processes, and whether these come is known
// only as the job ends. Where the job fails they are aborted, in every process.
class CommSet : public RefCounted {
 public:
  // Made at the first call for these cliques, which is by `primitive` at `source`. Blocks
  // meanwhile, where they leave the process until the other processes come. Throws CollectiveError.
  // The caller does not hold the submit mutex.
  static Ref<CommSet> find(const detail::MeshImpl& mesh, const CliqueTable& table,
                           const Primitive& primitive, SourceLine source);
  virtual ~CommSet() = default;

  ncclComm_t comm(std::uint32_t position) const { return comms_[position]; }
  // They leave the process, and do not block.
  bool across() const { return across_; }

  // Throws CollectiveError where NCCL reported an error of what ran, now or earlier. Then the
  // communicators are aborted, and the GPUs count as lost: what they hold cannot be relied on. Any
  // thread.
  void check();

 private:
  friend struct Sets;
  CommSet() = default;
  std::vector<ncclComm_t> comms_;  // by position; null once destroyed or aborted
  bool across_ = false;
  std::string broken_;  // why, where it is; guarded by the mutex of the sets
};

// Of all sets: check(). For those who wait for devices.
void check_all();

}  // namespace shmap::nccl
