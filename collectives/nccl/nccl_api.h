// The functions of NCCL that this library calls. For the .cpp files of this folder.
#pragma once
#include <nccl.h>

#include <string>

namespace shmap::nccl {

struct Api {
  int version;  // as NCCL_VERSION
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRank) init_rank;
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
// may be null, knows more.
void check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr);

// The calls in its scope are one group. What went wrong with it is thrown by end(); a scope that is
// left by an exception closes the group.
class Group {
 public:
  Group() { check(api().group_start(), "ncclGroupStart"); }
  ~Group() {
    if (open_) api().group_end();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end() {
    open_ = false;
    check(api().group_end(), "ncclGroupEnd");
  }

 private:
  bool open_ = true;
};

}  // namespace shmap::nccl
