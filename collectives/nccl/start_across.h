// Initialises NCCL's communicators for cliques that span processes.
#pragma once
#include <nccl.h>

#include <vector>

#include "collectives/clique_table.h"
#include "core/ir/primitive.h"

namespace shmap::nccl {

// The communicators by local position, one per device. The processes exchange the communicators'
// ids, and the GPU of each rank, by MPI; then each process initialises those of its own ranks. This
// is a collective of all processes of the cliques: it waits for them, for up to
// SHMAP_COLLECTIVE_TIMEOUT_SEC, and may be called for different tables in different orders.
// table.cross is not null. `primitive` at `source`: the collective that needs them.
// CollectiveErrors: a process that does not come or is gone, by name; two ranks on one GPU, which
// NCCL before 2.30 does not support; NCCL's own errors.
std::vector<ncclComm_t> start_across(const detail::MeshImpl& mesh, const CliqueTable& table,
                                     const std::vector<int>& gpus, const Primitive& primitive,
                                     SourceLine source);

// True if two ranks may use one GPU; otherwise *why_not has the reason.
bool gpus_may_be_shared(std::string* why_not);

}  // namespace shmap::nccl
