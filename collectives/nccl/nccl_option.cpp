// Decides when NCCL carries a collective.
#include <map>
#include <mutex>
#include <set>

#include "collectives/choose.h"
#include "collectives/link_model.h"
#include "collectives/nccl/group_task.h"
#include "collectives/nccl/nccl_api.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/nccl/roll_call.h"
#include "collectives/nccl/start_across.h"
#include "cuda/driver/gpus.h"

namespace shmap {

namespace nccl {
namespace {

// The properties of a table's cliques on which the choice depends.
struct Cliques {
  bool distinct = true;  // no two ranks of a clique on one GPU
  bool peers = true;     // each GPU can reach the memory of the others of its clique
  bool whole = true;     // each clique with a local rank has only local ranks
};

Cliques look_at(const GroupBlocks& g) {
  Cliques found;
  const std::vector<int> gpus = gpus_of(g.mesh);
  for (const std::vector<std::uint32_t>& clique : g.cliques.cliques) {
    std::set<int> own;
    std::size_t here = 0;
    for (std::uint32_t p : clique) {
      if (p == shmap::Cliques::kElsewhere) continue;
      ++here;
      found.distinct &= own.insert(gpus[p]).second;
    }
    found.whole &= here == 0 || here == clique.size();
    for (int a : own)
      for (int b : own) found.peers &= a == b || cuda::reaches(a, b);
  }
  return found;
}

const Cliques& cliques_of(const GroupBlocks& g) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<const CliqueTable*, Cliques>;  // tables live for ever
  std::lock_guard lock(mutex);
  const auto it = known.find(&g.cliques);
  return it != known.end() ? it->second : known.emplace(&g.cliques, look_at(g)).first->second;
}

Communicator* find_communicator(const GroupBlocks& g, CollectiveKind kind, bool demanded,
                                std::string* why_not) {
  static auto& communicator = *new NcclCommunicator;
  if (g.mesh.backend().kind() != DeviceKind::cuda) {
    if (demanded) *why_not = "its devices are not GPUs";
    return nullptr;
  }
  if (g.cliques.cross != nullptr) {
    return find(why_not) != nullptr ? &communicator : nullptr;
  }
  const Cliques& cliques = cliques_of(g);
  // Ranks of a clique are here, although nothing is sent between processes (`cross` is null):
  // another clique, whose ranks have the same values, is here as a whole.
  if (!cliques.whole) {
    if (demanded)
      *why_not = "a clique has ranks in several processes, though each process has all values";
    return nullptr;
  }
  // Virtual devices of one GPU send nothing: their tables share blocks.
  if (!demanded && !cliques.distinct) return nullptr;
  if (!demanded && cliques.peers &&
      goes_in_process(kind, static_cast<int>(g.cliques.ranks), g.in_bytes, g.out_bytes))
    return nullptr;
  if (find(why_not) == nullptr) return nullptr;
  if (!cliques.distinct && !gpus_may_be_shared(why_not)) {
    *why_not = "several of its devices are on one GPU: " + *why_not +
               ". Unset SHMAP_COMMUNICATOR, or set SHMAP_COMMUNICATOR=in_process.";
    return nullptr;
  }
  return &communicator;
}

// The driver copies between GPUs that cannot access each other's memory, through the host. A kernel
// would access memory that it may not.
std::string in_process_cannot(const GroupBlocks& g, CollectiveKind kind) {
  if (!needs_access(kind)) return "";
  if (g.mesh.backend().kind() != DeviceKind::cuda || cliques_of(g).peers) return "";
  std::string why_not;
  const bool found = find(&why_not) != nullptr;
  return "its GPUs do not reach each other's memory, and only NCCL can move its data through the "
         "host; " +
         (found ? std::string("unset SHMAP_COMMUNICATOR") : why_not);
}

}  // namespace
}  // namespace nccl

void register_nccl_communicator() {
  register_communicator({"nccl", nccl::find_communicator, nccl::in_process_cannot});
}

}  // namespace shmap
