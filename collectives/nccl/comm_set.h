// CommSet: the NCCL communicators of one partition of a mesh into cliques, one per device.
#pragma once
#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/clique_table.h"
#include "core/base/intrusive.h"
#include "core/ir/primitive.h"

namespace shmap::nccl {

// [clique][rank] -> position in the mesh; each position is in exactly one clique.
using CliqueList = std::vector<std::vector<std::uint32_t>>;

// Kept for the process, by (mesh, cliques), because NCCL takes up to seconds to make one. Tasks
// that use a set hold a Ref in their args, and so does a graph that has captured them. When the
// process exits, before the devices stop, sets that no graph holds are destroyed. The others are
// left to the end of the process: NCCL does not destroy a communicator before the graphs that use
// it, and destroying communicators that span processes would wait for processes that may never
// come. Where the job fails, communicators are aborted in every process.
class CommSet : public RefCounted {
 public:
  // Made at the first call for these cliques; `primitive` at `source` needs the set.
  // Blocks while it makes the communicators, and where they span processes until the other
  // processes come. Throws CollectiveError. The caller does not hold the submit mutex.
  static Ref<CommSet> find(const detail::MeshImpl& mesh, const CliqueTable& table,
                           const Primitive& primitive, SourceLine source);
  // The set that find() has made for the table, or null. Never blocks.
  static Ref<CommSet> made_for(const CliqueTable& table);
  virtual ~CommSet() = default;

  ncclComm_t comm(std::uint32_t position) const { return comms_[position]; }
  // True if the communicators span processes. They are then nonblocking: a call may return before
  // it is done (settle).
  bool across() const { return across_; }

  // Throws CollectiveError where NCCL has reported an error of a collective, now or earlier. The
  // communicators are then aborted and their GPUs count as lost, because the contents of their
  // memory cannot be relied on. Any thread.
  void check();

 private:
  friend struct Sets;
  CommSet() = default;
  std::vector<ncclComm_t> comms_;  // by position; null once destroyed or aborted
  bool across_ = false;
  std::string broken_;  // why the set is broken, or ""; guarded by the mutex of the sets
};

}  // namespace shmap::nccl
