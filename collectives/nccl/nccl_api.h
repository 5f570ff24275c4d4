// The functions of NCCL that this library calls; used only by the .cpp files of this folder.
#pragma once
#include <nccl.h>

#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace shmap::nccl {

// X(name in Api, function): the functions, a row each. Api and the loading of the library are made
// from the rows.
#define SHMAP_NCCL_FUNCTIONS(X)               \
  X(error_string, ncclGetErrorString)         \
  X(last_error, ncclGetLastError)             \
  X(unique_id, ncclGetUniqueId)               \
  X(init_rank, ncclCommInitRank)              \
  X(init_rank_config, ncclCommInitRankConfig) \
  X(init_all, ncclCommInitAll)                \
  X(split, ncclCommSplit)                     \
  X(destroy, ncclCommDestroy)                 \
  X(abort, ncclCommAbort)                     \
  X(async_error, ncclCommGetAsyncError)       \
  X(broadcast, ncclBroadcast)                 \
  X(all_reduce, ncclAllReduce)                \
  X(reduce_scatter, ncclReduceScatter)        \
  X(all_gather, ncclAllGather)                \
  X(send, ncclSend)                           \
  X(recv, ncclRecv)                           \
  X(group_start, ncclGroupStart)              \
  X(group_end, ncclGroupEnd)

struct Api {
  int version;  // as NCCL_VERSION
#define SHMAP_FUNCTION(name, function) decltype(&function) name;
  SHMAP_NCCL_FUNCTIONS(SHMAP_FUNCTION)
#undef SHMAP_FUNCTION
};

// NCCL, opened at the first call; null where it is missing or unsuitable, with a reason in *why.
// Any thread; later calls return the same.
const Api* find(std::string* why);
// find() where NCCL is known to be available.
const Api& api();

std::string version_text(int version);

// Throws CollectiveError where `result` is an error. `what`: the NCCL function; `comm`: null, or
// the communicator that has details. (A communicator that does not block may be in progress: see
// settle.)
void check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr);

// Waits until NCCL has finished its background work for these communicators; communicators that
// span processes are initialised in the background. CollectiveError where that fails, where the job
// has failed, or after SHMAP_COLLECTIVE_TIMEOUT_SEC, without the time in which this process was
// stopped.
void settle(std::span<const ncclComm_t> comms, const char* what);

// Aborts all work of these communicators, which are gone afterwards. Waits until no Group is open;
// after the first call, opening a Group throws the error `why`. NCCL may need long for an abort, as
// while graphs refer to the communicator, so another thread makes the aborts.
void abort(std::vector<ncclComm_t> comms, const std::string& why) noexcept;

// The NCCL calls in its scope form one group. end() throws the group's error; a scope that an
// exception leaves closes the group. CollectiveError where communicators were aborted.
class Group {
 public:
  Group();
  ~Group() {
    if (open_) api().group_end();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // `comms`: the communicators that were called, where they do not block.
  void end(std::span<const ncclComm_t> comms = {});

 private:
  std::unique_lock<std::mutex> calls_;
  bool open_ = true;
};

}  // namespace shmap::nccl
