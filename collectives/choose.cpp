#include "collectives/choose.h"

#include <string_view>
#include <vector>

#include "collectives/across_processes.h"
#include "collectives/cross_table.h"
#include "collectives/in_process.h"
#include "collectives/ways.h"
#include "core/base/env.h"
#include "core/runtime/collective_numbers.h"

namespace shmap {

namespace {

std::vector<CommunicatorOption>& options() {
  // Never destroyed, like the communicators.
  static auto* list = new std::vector<CommunicatorOption>();
  return *list;
}

// The option that SHMAP_COMMUNICATOR names, or null where it names none. in_process is an option
// without `find`.
const CommunicatorOption* demanded() {
  const std::string name = env::text(env::Var::communicator);
  if (name == "auto") return nullptr;
  static constexpr CommunicatorOption kInProcess = {"in_process", nullptr, nullptr};
  if (name == kInProcess.name) return &kInProcess;
  std::string known = "auto, in_process";
  for (const CommunicatorOption& option : options()) {
    if (name == option.name) return &option;
    known += std::string(", ") + option.name;
  }
  throw ValueError("SHMAP_COMMUNICATOR=\"" + name + "\": this build has " + known +
                   "; unset it, or build the library with NCCL");
}

// For devices whose memory the host cannot access: only a library can communicate between
// processes.
Communicator& library_across_processes(const GroupBlocks& blocks, CollectiveKind kind) {
  std::string why_not = "this build has none";
  for (const CommunicatorOption& option : options())
    if (Communicator* found = option.find(blocks, kind, /*demanded=*/true, &why_not)) return *found;
  throw CollectiveError(
      std::string(blocks.primitive.name) +
      ": its ranks are in several processes, and no library can carry it: " + why_not);
}

}  // namespace

void register_communicator(const CommunicatorOption& option) {
  for (const CommunicatorOption& known : options())
    if (std::string_view(known.name) == option.name) return;  // already registered
  options().push_back(option);
}

Communicator& communicator(const GroupBlocks& blocks, CollectiveKind kind) {
  // Never destroyed: static variables may still compute while the process exits.
  static auto& in_process = *new InProcessCommunicator();
  static auto& across_processes = *new AcrossProcesses();
  static auto& each_way = *new EachWay();
  static const CommunicatorOption* const only = demanded();
  if (blocks.cliques.cross != nullptr) {
    if (blocks.cliques.cross->way == 0 && divergent_axes(blocks.mesh) != 0) return each_way;
    if (blocks.mesh.backend().host_addressable()) return across_processes;
    return library_across_processes(blocks, kind);
  }
  if (blocks.cliques.ranks == 1) return in_process;  // a permutation of one rank moves nothing
  if (only != nullptr && only->find != nullptr) {
    std::string why_not;
    if (Communicator* found = only->find(blocks, kind, /*demanded=*/true, &why_not)) return *found;
    throw CollectiveError(std::string(blocks.primitive.name) + ": SHMAP_COMMUNICATOR=" +
                          only->name + ", which cannot carry it: " + why_not);
  }
  if (only == nullptr) {
    for (const CommunicatorOption& option : options())
      if (Communicator* found = option.find(blocks, kind, false, nullptr)) return *found;
  }
  for (const CommunicatorOption& option : options()) {
    if (option.in_process_cannot == nullptr) continue;
    const std::string why_not = option.in_process_cannot(blocks, kind);
    if (!why_not.empty()) {
      throw CollectiveError(std::string(blocks.primitive.name) +
                            ": no communicator carries it: " + why_not);
    }
  }
  return in_process;
}

}  // namespace shmap
