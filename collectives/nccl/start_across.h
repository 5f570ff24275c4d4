// The start of NCCL's communicators for cliques that leave the process.
#pragma once
#include <nccl.h>

#include <vector>

#include "collectives/clique_table.h"
#include "core/ir/primitive.h"

namespace shmap::nccl {

// The communicators by local position, one of each clique: their ids, and which GPU each rank has,
// go from process to process by MPI; then each process starts its own ranks' alone. A collective of
// all processes of the cliques, which waits for them, within SHMAP_COLLECTIVE_TIMEOUT_SEC; it may
// be in any order with that of other tables. table.cross is not null. `primitive` and `source`: the
// collective that wants them. Throws CollectiveError: a process that does not come or is gone, by
// name; two ranks on one GPU, which NCCL has not before 2.30; what NCCL says.
std::vector<ncclComm_t> start_across(const detail::MeshImpl& mesh, const CliqueTable& table,
                                     const std::vector<int>& gpus, const Primitive& primitive,
                                     SourceLine source);

// Whether two ranks may have one GPU; else *why_not says so.
bool gpus_may_be_shared(std::string* why_not);

}  // namespace shmap::nccl
