// Replaces NCCL: the calls of a group are matched when the group ends, and the calls of each
// communicator become one piece of work in the streams of its ranks, which the simulator runs on
// the host. Reductions are in rank order, with a rounding after each step. A group that would block
// forever in NCCL is a mistake, and fails. If a communicator has ranks in other processes, each
// rank's calls are work in its own stream: it sends its data, and continues when the data of the
// others has come (nccl_remote.h).
#include <cuda_sim.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "nccl_call.h"
#include "nccl_log.h"
#include "nccl_remote.h"
#include "nccl_remote_group.h"

namespace {

using shmap_sim::Call;
using shmap_sim::reduce;
using shmap_sim::size_of;

struct Clique {
  int ranks = 0;
  std::vector<int> devices;
  int captured = 0;                               // pieces of work that graphs keep
  std::shared_ptr<shmap_sim::RemoteRank> remote;  // the only rank of this process, if it spans
                                                  // processes
  bool blocking = true;
  bool settling = false;  // while the first group of a non-blocking communicator is in progress
  bool settled = false;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool failed = false;
};

namespace {

struct State {
  std::recursive_mutex mutex;
  std::vector<std::string> log, mistakes;
  std::set<ncclComm*> live;
  int version = NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  int next_id = 0;
};
State& state() {
  static auto& s = *new State;
  return s;
}
using Lock = std::lock_guard<std::recursive_mutex>;

// The open group of this thread.
struct Open {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<ncclComm*, Call>> calls;
  struct SplitCall {
    ncclComm* parent;
    int color, key;
    ncclComm_t* made;
  };
  std::vector<SplitCall> splits;
  struct InitCall {
    std::string id;
    int ranks, rank, device;
    bool blocking;
    ncclComm_t* made;
  };
  std::vector<InitCall> inits;
};
thread_local Open open_group;

ncclResult_t mistake(const std::string& text) {
  state().mistakes.push_back(text);
  return ncclInvalidUsage;
}

std::string place(const ncclComm* comm) {
  return std::to_string(comm->rank) + "/" + std::to_string(comm->clique->ranks);
}

const char* name_of(ncclDataType_t type) {
  static constexpr const char* kNames[] = {"i8",  "u8",  "i32", "u32", "i64",
                                           "u64", "f16", "f32", "f64", "bf16"};
  return kNames[type];
}
const char* name_of(ncclRedOp_t op) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min"};
  return kNames[op];
}

// The ranks' calls of one collective, by rank.
void run_collective(const std::vector<Call>& ranks) {
  const Call& first = ranks.front();
  const std::size_t bytes = first.count * size_of(first.type);
  std::vector<std::vector<char>> sources;  // copies, because results may overwrite operands
  for (const Call& call : ranks) {
    const bool whole = call.kind == Call::reduce_scatter;
    const auto* from = static_cast<const char*>(call.from);
    sources.emplace_back(from, from + bytes * (whole ? ranks.size() : 1));
  }
  const auto reduced = [&](std::size_t at) {
    std::vector<char> sum(sources[0].begin() + static_cast<std::ptrdiff_t>(at),
                          sources[0].begin() + static_cast<std::ptrdiff_t>(at + bytes));
    for (std::size_t q = 1; q < ranks.size(); ++q)
      reduce(sum.data(), sources[q].data() + at, first.count, first.type, first.op);
    return sum;
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    auto* to = static_cast<char*>(ranks[r].to);
    switch (first.kind) {
      case Call::all_reduce:
        std::memcpy(to, reduced(0).data(), bytes);
        break;
      case Call::reduce_scatter:
        std::memcpy(to, reduced(r * bytes).data(), bytes);
        break;
      case Call::all_gather:
        for (std::size_t q = 0; q < ranks.size(); ++q)
          std::memcpy(to + q * bytes, sources[q].data(), bytes);
        break;
      default:  // broadcast
        std::memcpy(to, sources[static_cast<std::size_t>(first.peer)].data(), bytes);
    }
  }
}

struct Transfer {
  const void* from;
  void* to;
  std::size_t bytes;
};

// The state of a communicator that a graph keeps.
struct Held {
  std::shared_ptr<Clique> clique;
  explicit Held(std::shared_ptr<Clique> c) : clique(std::move(c)) {
    Lock lock(state().mutex);
    ++clique->captured;
  }
  ~Held() {
    Lock lock(state().mutex);
    --clique->captured;
  }
};

bool captures(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status == cudaStreamCaptureStatusActive;
}

// Enqueues the calls of a group on one communicator.
ncclResult_t launch(const std::shared_ptr<Clique>& clique, const std::vector<Call>& calls) {
  std::map<int, std::vector<Call>> collectives;  // by rank
  std::map<std::pair<int, int>, std::vector<Call>> sends, recvs;
  std::map<int, cudaStream_t> streams;
  for (const Call& call : calls) {
    const auto [it, fresh] = streams.emplace(call.rank, call.stream);
    if (!fresh && it->second != call.stream)
      return mistake("a rank's calls of one group in several streams");
    if (call.kind == Call::send)
      sends[{call.rank, call.peer}].push_back(call);
    else if (call.kind == Call::recv)
      recvs[{call.peer, call.rank}].push_back(call);
    else
      collectives[call.rank].push_back(call);
  }
  std::vector<std::vector<Call>> rounds;
  if (!collectives.empty()) {
    if (static_cast<int>(collectives.size()) != clique->ranks)
      return mistake("a group has a collective of some ranks of a communicator, not of all");
    for (const auto& [rank, own] : collectives) {
      if (own.size() != collectives.begin()->second.size())
        return mistake("ranks of a communicator have different numbers of collectives");
      rounds.resize(own.size());
      for (std::size_t i = 0; i < own.size(); ++i) rounds[i].push_back(own[i]);
    }
  }
  for (const std::vector<Call>& round : rounds) {
    for (const Call& call : round) {
      const Call& first = round.front();
      if (call.kind != first.kind || call.count != first.count || call.type != first.type ||
          call.op != first.op || call.peer != first.peer)
        return mistake("ranks of a communicator disagree about a collective");
    }
  }
  std::vector<Transfer> transfers;
  if (sends.size() != recvs.size()) return mistake("a send without its receive, or the reverse");
  for (const auto& [pair, out] : sends) {
    const auto in = recvs.find(pair);
    if (in == recvs.end() || in->second.size() != out.size())
      return mistake("a send without its receive, or the reverse");
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Call &s = out[i], &r = in->second[i];
      if (s.count != r.count || s.type != r.type)
        return mistake("a send and its receive disagree about what is sent");
      transfers.push_back({s.from, r.to, s.count * size_of(s.type)});
    }
  }
  std::vector<cudaStream_t> in;
  for (const auto& [rank, stream] : streams) in.push_back(stream);
  const bool held = captures(in.front());
  for (cudaStream_t stream : in)
    if (captures(stream) != held) return mistake("a group of which a part is captured");
  const auto keep = held ? std::make_shared<Held>(clique) : nullptr;
  const cudaError_t error = shmap_sim::enqueue_group(in, "nccl", [rounds, transfers, keep] {
    for (const std::vector<Call>& round : rounds) run_collective(round);
    std::vector<std::vector<char>> contents;
    for (const Transfer& t : transfers) {
      const auto* from = static_cast<const char*>(t.from);
      contents.emplace_back(from, from + t.bytes);
    }
    for (std::size_t i = 0; i < transfers.size(); ++i)
      std::memcpy(transfers[i].to, contents[i].data(), transfers[i].bytes);
  });
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// Enqueues one rank's calls of a group: it sends its data, and waits for the data that it needs.
ncclResult_t launch_remote(const std::shared_ptr<Clique>& clique, const std::vector<Call>& calls) {
  cudaStream_t stream = calls.front().stream;
  for (const Call& call : calls)
    if (call.stream != stream) return mistake("a rank's calls of one group in several streams");
  const auto keep = captures(stream) ? std::make_shared<Held>(clique) : nullptr;
  const auto group =
      std::make_shared<shmap_sim::RemoteGroup>(*clique->remote, clique->ranks, calls);
  cudaError_t error = shmap_sim::enqueue(stream, "nccl", [group, clique, keep] { group->send(); });
  if (error == cudaSuccess && !group->awaited().empty()) {
    error = shmap_sim::enqueue_when(
        stream, "nccl", [group, clique] { return clique->remote->has(group->awaited()); },
        [group, clique, keep] {
          if (group->take()) return;
          Lock lock(state().mutex);
          mistake("ranks of a communicator disagree about a call");
        });
  }
  if (error != cudaSuccess) return ncclUnhandledCudaError;
  if (clique->blocking || std::exchange(clique->settled, true)) return ncclSuccess;
  clique->settling = true;
  return ncclInProgress;
}

ncclComm* make(std::shared_ptr<Clique> clique, int rank) {
  auto* comm = new ncclComm{std::move(clique), rank};
  state().live.insert(comm);
  return comm;
}

ncclResult_t run_splits(const std::vector<Open::SplitCall>& splits) {
  if (splits.empty()) return ncclSuccess;
  const Clique* parent = splits.front().parent->clique.get();
  if (static_cast<int>(splits.size()) != parent->ranks)
    return mistake("a split of some ranks of a communicator, not of all");
  std::map<int, std::vector<Open::SplitCall>> colors;
  for (const auto& s : splits) {
    if (s.parent->clique.get() != parent) return mistake("a group splits several communicators");
    colors[s.color].push_back(s);
  }
  for (auto& [color, own] : colors) {
    // As in NCCL, what is made of a group that fails is its caller's to abort.
    if (shmap_sim::injected("ncclCommSplit") != cudaSuccess) return ncclSystemError;
    std::stable_sort(own.begin(), own.end(),
                     [](const auto& a, const auto& b) { return a.key < b.key; });
    auto clique = std::make_shared<Clique>();
    clique->ranks = static_cast<int>(own.size());
    for (std::size_t r = 0; r < own.size(); ++r) {
      clique->devices.push_back(parent->devices[static_cast<std::size_t>(own[r].parent->rank)]);
      *own[r].made = make(clique, static_cast<int>(r));
    }
  }
  return ncclSuccess;
}

// The other ranks are in other processes. A blocking communicator waits for them.
ncclResult_t init_remote(const Open::InitCall& init) {
  auto clique = std::make_shared<Clique>();
  clique->ranks = init.ranks;
  clique->devices.assign(static_cast<std::size_t>(init.ranks), -1);
  clique->devices[static_cast<std::size_t>(init.rank)] = init.device;
  clique->blocking = init.blocking;
  clique->remote =
      std::make_shared<shmap_sim::RemoteRank>(init.id, init.ranks, init.rank, init.device);
  *init.made = make(clique, init.rank);
  if (!init.blocking) return ncclInProgress;
  for (;;) {
    const ncclResult_t formed = clique->remote->form(state().version >= 23000);
    if (formed != ncclInProgress) return formed;
    usleep(1000);
  }
}

ncclResult_t run_inits(const std::vector<Open::InitCall>& inits) {
  std::map<std::string, std::vector<Open::InitCall>> by_id;
  for (const auto& init : inits) by_id[init.id].push_back(init);
  ncclResult_t result = ncclSuccess;
  for (auto& [id, own] : by_id) {
    if (static_cast<int>(own.size()) != own.front().ranks) {
      for (const auto& init : own) {
        const ncclResult_t r = init_remote(init);
        if (r != ncclSuccess && r != ncclInProgress) return r;
        if (r == ncclInProgress) result = r;
      }
      continue;
    }
    std::sort(own.begin(), own.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    auto clique = std::make_shared<Clique>();
    clique->ranks = own.front().ranks;
    for (const auto& init : own) {
      if (std::count(clique->devices.begin(), clique->devices.end(), init.device) != 0 &&
          state().version < 23000)
        return mistake("two ranks on one GPU");
      clique->devices.push_back(init.device);
      *init.made = make(clique, init.rank);
    }
  }
  return result;
}

ncclResult_t end_group() {
  Open group = std::exchange(open_group, Open());
  if (group.error != ncclSuccess) return group.error;
  if (const ncclResult_t r = run_splits(group.splits)) return r;
  if (const ncclResult_t r = run_inits(group.inits)) return r;
  ncclResult_t result = ncclSuccess;
  std::vector<std::pair<std::shared_ptr<Clique>, std::vector<Call>>> by_clique;
  for (const auto& [comm, call] : group.calls) {
    const auto& clique = comm->clique;
    const auto same = [&clique](const auto& entry) { return entry.first == clique; };
    auto it = std::find_if(by_clique.begin(), by_clique.end(), same);
    if (it == by_clique.end()) it = by_clique.insert(it, {clique, {}});
    it->second.push_back(call);
  }
  for (const auto& [clique, calls] : by_clique) {
    const ncclResult_t r = clique->remote ? launch_remote(clique, calls) : launch(clique, calls);
    if (r != ncclSuccess && r != ncclInProgress) return r;
    if (r == ncclInProgress) result = r;
  }
  return result;
}

ncclResult_t add(const char* name, ncclComm* comm, Call call, const std::string& text) {
  Lock lock(state().mutex);
  ncclResult_t result = ncclSuccess;
  state().log.push_back(std::string(name) + " " + (comm != nullptr ? place(comm) : "?") +
                        " count " + std::to_string(call.count) + " " + name_of(call.type) + " " +
                        text + (captures(call.stream) ? " captured" : ""));
  if (shmap_sim::injected((std::string("nccl") + name).c_str()) != cudaSuccess) {
    result = ncclInternalError;
  } else if (state().live.count(comm) == 0) {
    result = mistake(std::string(name) + " of no communicator");
  } else if (comm->clique->devices[static_cast<std::size_t>(comm->rank)] !=
             shmap_sim::device_of(call.stream)) {
    result = mistake(std::string(name) + " in a stream of another GPU than the communicator's");
  } else if (comm->clique->settling ||
             (comm->clique->remote && comm->clique->remote->form(true) == ncclInProgress)) {
    result = mistake(std::string(name) + " of a communicator that is in progress");
  }
  if (result != ncclSuccess) {
    if (open_group.depth > 0) open_group.error = result;
    return result;
  }
  call.rank = comm->rank;
  open_group.calls.emplace_back(comm, call);
  return open_group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t close(const char* name, ncclComm* comm) {
  Lock lock(state().mutex);
  if (state().live.count(comm) == 0) return mistake(std::string(name) + " of no communicator");
  state().log.push_back(std::string(name) + " " + place(comm));
  if (comm->clique->remote) {
    // (A graph may refer to the communicator: pending waits end, but the clique's memory is kept.)
    if (std::string_view(name) == "Abort") comm->clique->remote->abort();
  } else if (comm->clique->captured > 0)
    return mistake(std::string(name) + " of a communicator that a graph refers to");
  state().live.erase(comm);
  delete comm;
  return ncclSuccess;
}

}  // namespace

namespace shmap_sim {

std::vector<std::string> nccl_log() {
  Lock lock(state().mutex);
  return state().log;
}
void clear_nccl_log() {
  Lock lock(state().mutex);
  state().log.clear();
}
std::vector<std::string> nccl_mistakes() {
  Lock lock(state().mutex);
  return state().mistakes;
}
int nccl_communicators() {
  Lock lock(state().mutex);
  return static_cast<int>(state().live.size());
}
void set_nccl_version(int code) { state().version = code; }
void fail_nccl_communicators() {
  Lock lock(state().mutex);
  for (ncclComm* comm : state().live) comm->failed = true;
}

}  // namespace shmap_sim

ncclResult_t ncclGetVersion(int* version) {
  *version = state().version;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "the NCCL of the simulator: no error";
    case ncclInvalidUsage:
      return "the NCCL of the simulator: invalid usage";
    case ncclRemoteError:
      return "the NCCL of the simulator: a process of the communicator is gone";
    case ncclInternalError:
      return "the NCCL of the simulator: internal error";
    default:
      return "the NCCL of the simulator: an error";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  Lock lock(state().mutex);
  static thread_local std::string last;
  last = state().mistakes.empty() ? "" : state().mistakes.back();
  return last.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Lock lock(state().mutex);
  std::memset(id, 0, sizeof(*id));
  const std::string text = shmap_sim::RemoteRank::new_id(state().next_id++);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  Lock lock(state().mutex);
  Open::InitCall call{id.internal, ranks, rank, 0, config == nullptr || config->blocking != 0,
                      comm};
  if (cudaGetDevice(&call.device) != cudaSuccess) return ncclUnhandledCudaError;
  state().log.push_back("InitRank " + std::to_string(rank) + "/" + std::to_string(ranks) +
                        " on GPU " + std::to_string(call.device));
  open_group.inits.push_back(call);
  return open_group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n, const int* devices) {
  Lock lock(state().mutex);
  auto clique = std::make_shared<Clique>();
  clique->ranks = n;
  std::string text = "InitAll ";
  for (int r = 0; r < n; ++r) {
    clique->devices.push_back(devices[r]);
    text += (r == 0 ? "" : ",") + std::to_string(devices[r]);
  }
  state().log.push_back(text);
  if (std::set<int>(devices, devices + n).size() != static_cast<std::size_t>(n))
    return mistake("two ranks on one GPU");
  if (shmap_sim::injected("ncclCommInitAll") != cudaSuccess) return ncclSystemError;
  for (int r = 0; r < n; ++r) comms[r] = make(clique, r);
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  Lock lock(state().mutex);
  if (state().live.count(comm) == 0) return mistake("Split of no communicator");
  state().log.push_back("Split " + place(comm) + " color " + std::to_string(color) + " key " +
                        std::to_string(key));
  open_group.splits.push_back({comm, color, key, made});
  return open_group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return close("Destroy", comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return close("Abort", comm); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Lock lock(state().mutex);
  if (state().live.count(comm) == 0) return ncclInvalidArgument;
  *error = comm->failed ? ncclInternalError : ncclSuccess;
  if (shmap_sim::RemoteRank* remote = comm->clique->remote.get()) {
    if (std::exchange(comm->clique->settling, false)) *error = ncclInProgress;
    if (const ncclResult_t formed = remote->form(state().version >= 23000)) *error = formed;
    if (remote->error() != ncclSuccess) *error = remote->error();
  }
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add("Broadcast", comm, {Call::broadcast, from, to, count, type, ncclSum, root, 0, stream},
             "root " + std::to_string(root));
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add("AllReduce", comm, {Call::all_reduce, from, to, count, type, op, 0, 0, stream},
             name_of(op));
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add("ReduceScatter", comm, {Call::reduce_scatter, from, to, count, type, op, 0, 0, stream},
             name_of(op));
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add("AllGather", comm, {Call::all_gather, from, to, count, type, ncclSum, 0, 0, stream},
             "gathered");
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add("Send", comm, {Call::send, from, nullptr, count, type, ncclSum, peer, 0, stream},
             "to " + std::to_string(peer));
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("Recv", comm, {Call::recv, nullptr, to, count, type, ncclSum, peer, 0, stream},
             "from " + std::to_string(peer));
}

ncclResult_t ncclGroupStart() {
  Lock lock(state().mutex);
  if (open_group.depth++ == 0) state().log.push_back("GroupStart");
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  Lock lock(state().mutex);
  if (open_group.depth == 0) return mistake("GroupEnd without GroupStart");
  if (--open_group.depth > 0) return ncclSuccess;
  state().log.push_back("GroupEnd");
  return end_group();
}
