#include "collectives/nccl/comm_set.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "collectives/cross_table.h"
#include "collectives/nccl/group_task.h"
#include "collectives/nccl/nccl_api.h"
#include "collectives/nccl/start_across.h"
#include "core/device/at_exit.h"
#include "core/processes/exchanges.h"
#include "core/processes/fault_listener.h"
#include "core/processes/processes.h"
#include "cuda/device/wait_check.h"
#include "cuda/driver/gpus.h"
#include "cuda/driver/health.h"
#include "shmap/error.h"

namespace shmap::nccl {

// All sets, in the order in which they were made. Code that waits for devices checks them all.
struct Sets final : cuda::Watched, detail::BeforeStop, FaultListener {
  std::mutex mutex;
  std::condition_variable made;
  // The key: a mesh, and a hash of the cliques that includes those of other processes.
  using Across = std::pair<const detail::MeshImpl*, std::uint64_t>;
  std::set<Across> making;  // sets that a thread makes, which waits for other processes
  std::map<std::pair<const detail::MeshImpl*, CliqueList>, Ref<CommSet>> by_cliques;
  std::map<const CliqueTable*, CommSet*> by_table;  // tables live for ever
  std::map<Across, Ref<CommSet>> across;
  std::vector<CommSet*> in_order;
  bool closed = false;
  bool listens = false;  // to faults of the job

  static Sets& get() {
    // Never destroyed, since static objects may communicate at exit.
    static auto& sets = []() -> Sets& {
      auto& all = *new Sets;
      cuda::watch(all);
      detail::call_before_stop(all);
      return all;
    }();
    return sets;
  }

  Ref<CommSet>& find(const detail::MeshImpl& mesh, const CliqueList& cliques,
                     const std::vector<int>& gpus) {
    if (closed) throw CollectiveError("the communicators are closed: the process is leaving");
    Ref<CommSet>& entry = by_cliques[{&mesh, cliques}];
    if (entry) return entry;
    // NCCL's allocations must not be part of this thread's capture.
    const cuda::UncapturedCalls uncaptured;
    Ref<CommSet> made(new CommSet);
    made->comms_.assign(gpus.size(), nullptr);
    CliqueList whole(1, std::vector<std::uint32_t>(gpus.size()));
    std::iota(whole[0].begin(), whole[0].end(), 0u);
    try {
      if (cliques != whole) {
        split(*find(mesh, whole, gpus), cliques, *made);
      } else if (std::set<int>(gpus.begin(), gpus.end()).size() == gpus.size()) {
        nccl::check(api().init_all(made->comms_.data(), static_cast<int>(gpus.size()), gpus.data()),
                    "ncclCommInitAll");
      } else {
        init_shared(gpus, *made);
      }
    } catch (...) {
      // NCCL may have made some although the group failed; the next call makes all again.
      for (ncclComm_t& comm : made->comms_)
        if (comm != nullptr) api().abort(std::exchange(comm, nullptr));
      throw;
    }
    in_order.push_back(made.get());
    return by_cliques[{&mesh, cliques}] = std::move(made);
  }

  // Makes the set without the lock, because two threads may make their sets in different orders in
  // different processes.
  Ref<CommSet> make_across(std::unique_lock<std::mutex>& lock, const detail::MeshImpl& mesh,
                           const CliqueTable& table, const Primitive& primitive,
                           SourceLine source) {
    const Across key(&mesh, table.cross->key);
    made.wait(lock, [&] { return making.count(key) == 0; });
    if (const auto it = across.find(key); it != across.end()) return it->second;
    making.insert(key);
    if (!std::exchange(listens, true)) Processes::joined()->exchanges().tell_of_fault(*this);
    lock.unlock();
    struct End {
      Sets& sets;
      std::unique_lock<std::mutex>& lock;
      const Across& key;
      ~End() {
        if (!lock.owns_lock()) lock.lock();
        sets.making.erase(key);
        sets.made.notify_all();
      }
    } end{*this, lock, key};
    const cuda::UncapturedCalls uncaptured;
    Ref<CommSet> set(new CommSet);
    set->across_ = true;
    set->comms_ = start_across(mesh, table, gpus_of(mesh), primitive, source);
    lock.lock();
    if (const std::string why = Processes::joined()->exchanges().fault(); !why.empty())
      set->broken_ = why;  // the fault came before these communicators could be aborted with the
                           // others
    in_order.push_back(set.get());
    return across[key] = set;
  }

  // Aborts the communicators, because NCCL's pending work would never end.
  void job_failed(const std::string& text) noexcept override {
    try {
      cuda::Health::lost(std::make_exception_ptr(CollectiveError(
          text + "\n  What these GPUs had to do was cut off: start the job again.")));
      std::vector<ncclComm_t> comms;
      std::lock_guard lock(mutex);
      for (const auto& [key, set] : across) {
        set->broken_ = text;
        take_comms(*set, comms);
      }
      nccl::abort(std::move(comms), text);
    } catch (...) {
      return;  // no memory: the process's end frees them
    }
  }

  // Splits the communicators of the whole mesh, in one group: every rank takes part.
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

  // Makes communicators for several ranks per GPU, which ncclCommInitAll refuses.
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

  // Moves the set's communicators to `comms`.
  static void take_comms(CommSet& set, std::vector<ncclComm_t>& comms) {
    for (ncclComm_t& comm : set.comms_)
      if (comm != nullptr) comms.push_back(std::exchange(comm, nullptr));
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
      if (set.across_) report(set.broken_);
      // NCCL's pending work would never end. After the abort its results count as written but are
      // invalid: no code may read them.
      cuda::Health::lost(cudaErrorUnknown, ("NCCL: " + set.broken_).c_str());
      std::vector<ncclComm_t> comms;
      take_comms(set, comms);
      nccl::abort(std::move(comms), set.broken_);
    }
    if (set.across_) throw CollectiveError(set.broken_);
    throw CollectiveError(
        "NCCL reported an error of a collective that was under way: " + set.broken_ +
        ". Its results are lost, and these devices can communicate no more in "
        "this process: start it again.");
  }

  void check_watched() override {
    std::lock_guard lock(mutex);
    for (CommSet* set : in_order) check(*set);
  }

  // The usual cause of an NCCL error is a process that is gone, and the watch over the processes
  // can name it. All processes are told.
  static void report(std::string& text) {
    Exchanges& exchanges = Processes::joined()->exchanges();
    std::string fault = exchanges.fault();
    for (int turns = 0; fault.empty() && turns < 1000; ++turns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      fault = exchanges.fault();
    }
    if (fault.empty()) {
      exchanges.report(Processes::joined()->peers().text(Processes::joined()->rank()) +
                       " has an error of NCCL: " + text);
      fault = exchanges.fault();
    }
    text = fault + "\n  NCCL says here: " + text;
  }

  // The order is reversed: communicators that were split from others are destroyed before the
  // others.
  void before_stop() noexcept override {
    std::lock_guard lock(mutex);
    if (std::exchange(closed, true)) return;
    std::for_each(in_order.rbegin(), in_order.rend(), [](CommSet* set) {
      if (set->across_) return;
      if (set->use_count() != 1) return;  // a graph, or a task whose args still exist, uses it
      for (ncclComm_t& comm : set->comms_)
        if (comm != nullptr) api().destroy(std::exchange(comm, nullptr));
    });
  }
};

Ref<CommSet> CommSet::find(const detail::MeshImpl& mesh, const CliqueTable& table,
                           const Primitive& primitive, SourceLine source) {
  Sets& sets = Sets::get();
  std::unique_lock lock(sets.mutex);
  const auto it = sets.by_table.find(&table);
  if (it != sets.by_table.end() && !sets.closed) return Ref<CommSet>(it->second);
  Ref<CommSet> set;
  if (table.cross != nullptr) {
    set = sets.make_across(lock, mesh, table, primitive, source);
  } else {
    CliqueList own;  // in a mesh of several processes, only cliques with local ranks
    for (const std::vector<std::uint32_t>& clique : table.cliques)
      if (clique[0] != Cliques::kElsewhere) own.push_back(clique);
    set = sets.find(mesh, own, gpus_of(mesh));
  }
  sets.by_table[&table] = set.get();
  return set;
}

Ref<CommSet> CommSet::made_for(const CliqueTable& table) {
  Sets& sets = Sets::get();
  std::lock_guard lock(sets.mutex);
  const auto it = sets.by_table.find(&table);
  return it != sets.by_table.end() && !sets.closed ? Ref<CommSet>(it->second) : Ref<CommSet>();
}

void CommSet::check() {
  Sets& sets = Sets::get();
  std::lock_guard lock(sets.mutex);
  sets.check(*this);
}

}  // namespace shmap::nccl
