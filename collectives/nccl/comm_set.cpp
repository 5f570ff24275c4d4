#include "collectives/nccl/comm_set.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "collectives/nccl/group_task.h"
#include "collectives/nccl/nccl_api.h"
#include "core/device/runtime.h"
#include "cuda/device/gpus.h"
#include "cuda/device/health.h"
#include "shmap/error.h"

namespace shmap::nccl {

// All of them, in the order in which they were made.
struct Sets {
  std::mutex mutex;
  std::map<std::pair<const detail::MeshImpl*, CliqueList>, Ref<CommSet>> by_cliques;
  std::map<const CliqueTable*, CommSet*> by_table;  // tables live for ever
  std::vector<CommSet*> in_order;
  bool closed = false;

  static Sets& get() {
    static auto& sets = *new Sets;  // what is static may communicate to the end
    return sets;
  }

  Ref<CommSet>& find(const detail::MeshImpl& mesh, const CliqueList& cliques,
                     const std::vector<int>& gpus) {
    if (closed) throw CollectiveError("the communicators are closed: the process is leaving");
    Ref<CommSet>& entry = by_cliques[{&mesh, cliques}];
    if (entry) return entry;
    // Whatever NCCL allocates belongs to no capture of this thread.
    const cuda::UncapturedCalls uncaptured;
    Ref<CommSet> made(new CommSet);
    made->comms_.assign(gpus.size(), nullptr);
    CliqueList whole(1, std::vector<std::uint32_t>(gpus.size()));
    std::iota(whole[0].begin(), whole[0].end(), 0u);
    if (cliques != whole) {
      split(*find(mesh, whole, gpus), cliques, *made);
    } else if (std::set<int>(gpus.begin(), gpus.end()).size() == gpus.size()) {
      nccl::check(api().init_all(made->comms_.data(), static_cast<int>(gpus.size()), gpus.data()),
                  "ncclCommInitAll");
    } else {
      init_shared(gpus, *made);
    }
    in_order.push_back(made.get());
    detail::call_before_stop(close);
    return by_cliques[{&mesh, cliques}] = std::move(made);
  }

  // Of the whole mesh's, in one group: every rank takes part.
  static void split(const CommSet& parent, const CliqueList& cliques, CommSet& made) {
    Group group;
    for (std::size_t c = 0; c < cliques.size(); ++c) {
      for (std::size_t r = 0; r < cliques[c].size(); ++r) {
        const std::uint32_t p = cliques[c][r];
        nccl::check(api().split(parent.comms_[p], static_cast<int>(c), static_cast<int>(r),
                                &made.comms_[p], nullptr),
                    "ncclCommSplit", parent.comms_[p]);
      }
    }
    group.end();
  }

  // Several ranks on a GPU, which ncclCommInitAll refuses.
  static void init_shared(const std::vector<int>& gpus, CommSet& made) {
    ncclUniqueId id;
    nccl::check(api().unique_id(&id), "ncclGetUniqueId");
    Group group;
    for (std::size_t r = 0; r < gpus.size(); ++r) {
      const cuda::GpuScope gpu(gpus[r]);
      nccl::check(
          api().init_rank(&made.comms_[r], static_cast<int>(gpus.size()), id, static_cast<int>(r)),
          "ncclCommInitRank");
    }
    group.end();
  }

  void check(CommSet& set) {
    if (set.broken_.empty()) {
      for (ncclComm_t comm : set.comms_) {
        ncclResult_t state = ncclSuccess;
        if (comm == nullptr || api().async_error(comm, &state) != ncclSuccess) continue;
        if (state == ncclSuccess || state == ncclInProgress) continue;
        const char* more = api().last_error(comm);
        set.broken_ = std::string(api().error_string(state)) + (more != nullptr ? " (" : "") +
                      (more != nullptr ? more : "") + (more != nullptr ? ")" : "");
        break;
      }
      if (set.broken_.empty()) return;
      // What is under way would never end. Once it is cut off its results are there, and are none:
      // nobody may read them.
      cuda::Health::lost(cudaErrorUnknown, ("NCCL: " + set.broken_).c_str());
      for (ncclComm_t& comm : set.comms_)
        if (comm != nullptr) api().abort(std::exchange(comm, nullptr));
    }
    throw CollectiveError(
        "NCCL reported an error of a collective that was under way: " + set.broken_ +
        ". Its results are lost, and these devices can communicate no more in "
        "this process: start it again.");
  }

  // The last made first: what was split goes before what it was split from.
  static void close() noexcept {
    Sets& sets = get();
    std::lock_guard lock(sets.mutex);
    if (std::exchange(sets.closed, true)) return;
    std::for_each(sets.in_order.rbegin(), sets.in_order.rend(), [](CommSet* set) {
      if (set->use_count() != 1) return;  // a graph's, or of a task whose args are still there
      for (ncclComm_t& comm : set->comms_)
        if (comm != nullptr) api().destroy(std::exchange(comm, nullptr));
    });
  }
};

Ref<CommSet> CommSet::find(const detail::MeshImpl& mesh, const CliqueTable& table) {
  Sets& sets = Sets::get();
  std::lock_guard lock(sets.mutex);
  const auto it = sets.by_table.find(&table);
  if (it != sets.by_table.end() && !sets.closed) return Ref<CommSet>(it->second);
  Ref<CommSet> set = sets.find(mesh, table.cliques, gpus_of(mesh));
  sets.by_table[&table] = set.get();
  return set;
}

void CommSet::check() {
  Sets& sets = Sets::get();
  std::lock_guard lock(sets.mutex);
  sets.check(*this);
}

void check_all() {
  Sets& sets = Sets::get();
  std::lock_guard lock(sets.mutex);
  for (CommSet* set : sets.in_order) sets.check(*set);
}

}  // namespace shmap::nccl
