#include "nccl_remote_group.h"

#include <cstring>
#include <utility>

namespace shmap_sim {

namespace {

std::size_t bytes_of(const Call& call) { return call.count * size_of(call.type); }

RemoteRank::Message message(const Call& call) {
  const bool pair = call.kind == Call::send || call.kind == Call::recv;
  return {pair ? Call::send : call.kind, call.type, call.op, pair ? 0 : call.peer, call.count};
}

}  // namespace

RemoteGroup::RemoteGroup(RemoteRank& remote, int ranks, std::vector<Call> calls)
    : remote_(remote), ranks_(ranks), calls_(std::move(calls)) {
  for (const Call& call : calls_) {
    if (call.kind == Call::send) continue;
    if (call.kind == Call::recv) {
      ++awaited_[call.peer];
      continue;
    }
    for (int q = 0; q < ranks_; ++q)
      if (q != call.rank) ++awaited_[q];
  }
}

void RemoteGroup::send() {
  own_.clear();
  for (const Call& call : calls_) {
    const std::size_t bytes = bytes_of(call);
    const auto* from = static_cast<const char*>(call.from);
    if (call.kind == Call::send) remote_.send(call.peer, message(call), from, bytes);
    if (call.kind == Call::send || call.kind == Call::recv) continue;
    const bool whole = call.kind == Call::reduce_scatter;
    const bool has = call.kind != Call::broadcast || call.peer == call.rank;
    const std::size_t all = has ? bytes * static_cast<std::size_t>(whole ? ranks_ : 1) : 0;
    own_.emplace_back(from, from + all);
    for (int q = 0; q < ranks_; ++q) {
      if (q == call.rank) continue;
      const std::size_t at = whole ? static_cast<std::size_t>(q) * bytes : 0;
      remote_.send(q, message(call), has ? from + at : nullptr, has ? bytes : 0);
    }
  }
}

bool RemoteGroup::take() {
  std::size_t collective = 0;
  for (const Call& call : calls_) {
    if (remote_.aborted()) return true;
    const std::size_t bytes = bytes_of(call);
    auto* to = static_cast<char*>(call.to);
    std::vector<char> data;
    if (call.kind == Call::send) continue;
    if (call.kind == Call::recv) {
      if (!take_one(call.peer, call, data, bytes)) return false;
      std::memcpy(to, data.data(), bytes);
      continue;
    }
    const std::vector<char>& mine = own_[collective++];
    std::vector<char> sum;
    for (int q = 0; q < ranks_; ++q) {
      const bool has = call.kind != Call::broadcast || call.peer == q;
      if (q != call.rank) {
        if (!take_one(q, call, data, has ? bytes : 0)) return false;
      } else if (call.kind == Call::reduce_scatter) {
        const auto at = mine.begin() + static_cast<std::ptrdiff_t>(bytes) * q;
        data.assign(at, at + static_cast<std::ptrdiff_t>(bytes));
      } else {
        data = mine;
      }
      if (call.kind == Call::all_gather) {
        std::memcpy(to + static_cast<std::size_t>(q) * bytes, data.data(), bytes);
      } else if (call.kind == Call::broadcast) {
        if (has) std::memcpy(to, data.data(), bytes);
      } else if (q == 0) {
        sum = data;
      } else {
        reduce(sum.data(), data.data(), call.count, call.type, call.op);
      }
    }
    if (!sum.empty()) std::memcpy(to, sum.data(), bytes);
  }
  return true;
}

bool RemoteGroup::take_one(int from, const Call& call, std::vector<char>& data, std::size_t bytes) {
  if (remote_.take(from, message(call), data, bytes)) return true;
  remote_.fail(ncclInvalidUsage);
  return false;
}

}  // namespace shmap_sim
