// When NCCL carries a collective.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "collectives/choose.h"
#include "collectives/nccl/group_task.h"
#include "collectives/nccl/nccl_api.h"
#include "collectives/nccl/nccl_communicator.h"
#include "cuda/error.h"
#include "cuda/wait_check.h"

namespace shmap {

namespace nccl {
namespace {

constexpr int kSharesGpus = 23000;  // from here on two ranks may have one GPU

// What is to be known of the cliques of a table.
struct Cliques {
  bool distinct = true;  // no two ranks of one on one GPU
  bool peers = true;     // each GPU can reach the memory of the others of its clique
};

bool reaches(int from, int to) {
  int possible = 0;
  cuda::check(cudaDeviceCanAccessPeer(&possible, from, to), "cudaDeviceCanAccessPeer");
  return possible != 0;
}

Cliques look_at(const GroupBlocks& g) {
  Cliques found;
  const std::vector<int> gpus = gpus_of(g.mesh);
  for (const std::vector<std::uint32_t>& clique : g.cliques.cliques) {
    std::set<int> own;
    for (std::uint32_t p : clique) found.distinct &= own.insert(gpus[p]).second;
    for (int a : own)
      for (int b : own) found.peers &= a == b || reaches(a, b);
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

bool gpus_may_be_shared(const Api& api, std::string* why_not) {
  const char* set = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (api.version >= kSharesGpus && set != nullptr && std::string_view(set) == "1") return true;
  *why_not = "several of its devices are on one GPU, which takes NCCL " +
             version_text(kSharesGpus) + " or newer (this is " + version_text(api.version) +
             ") and NCCL_MULTI_RANK_GPU_ENABLE=1. Leave the choice to it, or set "
             "SHMAP_COMMUNICATOR=in_process.";
  return false;
}

Communicator* find_communicator(const GroupBlocks& g, CollectiveKind kind, bool demanded,
                                std::string* why_not) {
  static auto& communicator = *new NcclCommunicator;
  if (g.mesh.backend().kind() != DeviceKind::cuda) {
    if (demanded) *why_not = "its devices are no GPUs";
    return nullptr;
  }
  const Cliques& cliques = cliques_of(g);
  // Virtual devices of one GPU have nothing to send: their tables say where a block is.
  if (!demanded && !cliques.distinct) return nullptr;
  // A block that moves as it is, between GPUs that reach each other, is moved by copy engines: the
  // processors go on computing.
  const bool moves = kind == CollectiveKind::permute || kind == CollectiveKind::broadcast;
  if (!demanded && moves && cliques.peers) return nullptr;
  const Api* api = find(why_not);
  if (api == nullptr) return nullptr;
  if (!cliques.distinct && !gpus_may_be_shared(*api, why_not)) return nullptr;
  return &communicator;
}

}  // namespace
}  // namespace nccl

void register_nccl_communicator() {
  register_communicator({"nccl", nccl::find_communicator});
  cuda::set_wait_check(nccl::check_all);
}

}  // namespace shmap
