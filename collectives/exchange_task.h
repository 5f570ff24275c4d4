// An exchange between processes as a task of a stream: it starts when what it reads is there, and
// ends when the other processes' parts have come; no thread waits for them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "core/processes/exchange.h"

namespace shmap {

// What a collective of several processes does, in all of them.
class CrossCall {
 public:
  // `extra`: what has to agree beside the types, as a permutation.
  CrossCall(const GroupBlocks& blocks, CollectiveKind kind, std::uint64_t dtype_and_op,
            const char* dtype, std::span<const int> extra = {});

  // One round's parcels: in the order in which both sides name them.
  struct Round {
    std::vector<Parcel> sends, receives;
    std::vector<Buffer*> reads, writes;
    std::vector<BufferRef> held;  // these, until the task is enqueued
    void send(int peer, const Block& block, std::int64_t offset, std::int64_t bytes);
    void receive(int peer, const Block& block, std::int64_t offset, std::int64_t bytes);
  };
  // Enqueues it; nothing where nothing is sent or received. The caller holds the submit mutex.
  void enqueue(Round round);

  // Where a library moves the data: an exchange of nothing, by which the processes of this one's
  // cliques tell each other that they have come, and to which collective.
  ProcessExchange roll_call() const;
  bool captured() const { return captured_; }

 private:
  const GroupBlocks& blocks_;
  bool captured_;
  std::uint64_t space_ = 0;
  std::uint64_t number_ = 0;  // of the mesh's; in a capture from its first
  std::uint32_t rounds_ = 0;
  std::uint64_t check_;
  ExchangeLabel label_;
};

}  // namespace shmap
