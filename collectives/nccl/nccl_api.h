// The functions of NCCL that this library calls. For the .cpp files of this folder.
#pragma once
#include <nccl.h>

#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace shmap::nccl {

struct Api {
  int version;  // as NCCL_VERSION
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRank) init_rank;
  decltype(&ncclCommInitRankConfig) init_rank_config;
  decltype(&ncclCommInitAll) init_all;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
};

// NCCL, opened at the first call; null where it is absent or unfit, and *why says so then. Any
// thread; the answer stays.
const Api* find(std::string* why);
// The same of a library that is there.
const Api& api();

std::string version_text(int version);

// Throws CollectiveError where `result` is no success: `what` is the function, and `comm`, which
// may be null, knows more. (A communicator that does not block may be in progress: see settle.)
void check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr);

// Waits until NCCL has done what it does for these communicators in the background, as it does
// first for those that leave the process. CollectiveError where it fails, where the job has failed,
// or after SHMAP_COLLECTIVE_TIMEOUT_SEC.
void settle(std::span<const ncclComm_t> comms, const char* what);

// Cuts off all that these communicators do; they are gone then. NCCL may take its time over it, as
// while graphs refer to them, so that it has a thread of its own. No group is open meanwhile, and
// from the first call on none is opened: `why` is its error.
void abort(std::vector<ncclComm_t> comms, const std::string& why) noexcept;

// The calls in its scope are one group. What went wrong with it is thrown by end(); a scope that is
// left by an exception closes the group. CollectiveError where communicators were aborted.
class Group {
 public:
  Group();
  ~Group() {
    if (open_) api().group_end();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // `comms`: that were called, where they do not block.
  void end(std::span<const ncclComm_t> comms = {});

 private:
  std::unique_lock<std::mutex> calls_;
  bool open_ = true;
};

}  // namespace shmap::nccl
