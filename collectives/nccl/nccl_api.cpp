#include "collectives/nccl/nccl_api.h"

#include "cuda/libraries/late_library.h"
#include "shmap/error.h"

namespace shmap::nccl {

namespace {

constexpr int kOldest = 22200;

Api open() {
  static constexpr const char* kNames[] = {"libnccl.so.2", "libnccl.so"};
  static constexpr cuda::LateLibraryInfo kInfo = {"NCCL", kNames, env::Var::nccl_path,
                                                  "ncclGetVersion", "libnccl2"};
  const cuda::LateLibrary library(kInfo);
  decltype(&ncclGetVersion) get_version;
  library.load("ncclGetVersion", get_version);
  Api a{};
  if (get_version(&a.version) != ncclSuccess || a.version < kOldest)
    library.throw_version(version_text(a.version), version_text(kOldest));
  library.load("ncclGetErrorString", a.error_string);
  library.load("ncclGetLastError", a.last_error);
  library.load("ncclGetUniqueId", a.unique_id);
  library.load("ncclCommInitRank", a.init_rank);
  library.load("ncclCommInitAll", a.init_all);
  library.load("ncclCommSplit", a.split);
  library.load("ncclCommDestroy", a.destroy);
  library.load("ncclCommAbort", a.abort);
  library.load("ncclCommGetAsyncError", a.async_error);
  library.load("ncclBroadcast", a.broadcast);
  library.load("ncclAllReduce", a.all_reduce);
  library.load("ncclReduceScatter", a.reduce_scatter);
  library.load("ncclAllGather", a.all_gather);
  library.load("ncclSend", a.send);
  library.load("ncclRecv", a.recv);
  library.load("ncclGroupStart", a.group_start);
  library.load("ncclGroupEnd", a.group_end);
  return a;
}

struct Opened {
  bool there = false;
  Api api{};
  std::string why;
  Opened() {
    try {
      api = open();
      there = true;
    } catch (const Error& e) {
      why = e.what();
    }
  }
};

const Opened& opened() {
  static const auto& once = *new Opened;  // what is static may communicate to the end
  return once;
}

}  // namespace

const Api* find(std::string* why) {
  const Opened& o = opened();
  if (o.there) return &o.api;
  if (why != nullptr) *why = o.why;
  return nullptr;
}

const Api& api() { return opened().api; }

std::string version_text(int version) {
  // Up to 2.8 the code was of the form 2804.
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

void check(ncclResult_t result, const char* what, ncclComm_t comm) {
  if (result == ncclSuccess) return;
  const char* more = api().last_error(comm);
  throw CollectiveError(std::string(what) + ": " + api().error_string(result) +
                        (more != nullptr && *more != '\0' ? std::string(" (") + more + ")" : ""));
}

}  // namespace shmap::nccl
