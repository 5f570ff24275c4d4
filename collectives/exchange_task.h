// An exchange between processes as a task of a stream: the task starts when what it reads has been
// computed, and ends when the parcels of the other processes have arrived. No thread waits for
// the parcels.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "core/processes/exchange_label.h"
#include "core/processes/process_exchange.h"
#include "core/runtime/program_mark.h"

namespace shmap {

// The work of an exchange on its parcels, which are numbered as they were added to the round.
class RoundWork : public ParcelWork {
 public:
  // Parcel i of the round is receive number to[i] of the exchange.
  virtual void number(std::span<const std::uint32_t> to) = 0;
};

// One collective between processes, as each of these processes performs it.
class CrossCall {
 public:
  // The caller holds the submit mutex, until all is enqueued.
  // code: of the verb's arguments (code_of). `extra`: further numbers that must be equal in all
  // processes, such as the sources of a permutation.
  CrossCall(const GroupBlocks& blocks, CollectiveKind kind, std::uint64_t code,
            std::span<const int> extra = {});

  // The parcels of one exchange, in the order that sender and receiver share.
  struct Round {
    std::vector<Parcel> sends, receives;
    std::vector<OwnCopy> copies;
    std::vector<Buffer*> reads, writes;
    std::vector<BufferRef> held;  // keeps the buffers alive until the task is enqueued
    // Work on parcels that are received without a block. It may also read and write blocks of this
    // process. Only in a round with parcels.
    std::shared_ptr<RoundWork> work;
    // Adds a parcel: `bytes` bytes at `offset` of the block, to or from process `peer`. The task
    // runs after the tasks that write the block (send), or that read or write it (receive). Both
    // processes must add the parcels between them in the same order.
    void send(int peer, const Block& block, std::int64_t offset, std::int64_t bytes);
    void receive(int peer, const Block& block, std::int64_t offset, std::int64_t bytes);
    // For receives of the work: returns the parcel's number among the receives.
    std::size_t receive(int peer, std::int64_t bytes);
    // Copies between blocks of this process during the exchange. Only in a round with parcels.
    void copy(const Block& to, std::int64_t to_offset, const Block& from, std::int64_t from_offset,
              std::int64_t bytes);
    // The work also reads, or writes, this block of this process.
    void work_reads(const Block& block);
    void work_writes(const Block& block);
  };
  // Enqueues an exchange; does nothing where it has no parcels. Error where it has work, or copies,
  // and no parcels. The first call takes the collective's number. Called by the function that
  // perform() calls.
  void enqueue(Round round);
  // Calls run(), which allocates the collective's memory and enqueues its rounds, or calls the
  // roll, and may throw. If no round has been enqueued by then, the other processes do not know
  // of this call: its number is that of the next one. Otherwise these wait for the rest, and the
  // exception is a failure of the job.
  template <class Run>
  void perform(const Run& run) {
    try {
      run();
    } catch (const std::exception& e) {
      give_up(e.what());
      throw;
    }
  }

  // For collectives whose data a library moves: takes the collective's number, and returns an
  // exchange without parcels, by which the processes of this process's cliques tell each other
  // which collective they have reached. The caller notes by others_know() that it has begun.
  ProcessExchange roll_call();
  void others_know() { others_know_ = true; }
  bool captured() const { return captured_; }

 private:
  void take_number();
  void give_up(const char* why);
  // An exchange of the collective in that round, without parcels.
  ProcessExchange empty_exchange(std::uint32_t round) const;

  const GroupBlocks& blocks_;
  bool captured_;
  const std::uint64_t way_;
  const std::uint64_t space_;
  bool numbered_ = false;
  std::uint64_t number_ = 0;  // the collective's number on its mesh; in a capture, counted from 0
  std::uint32_t rounds_ = 0;
  bool others_know_ = false;  // a round with parcels is enqueued, or the roll is called
  std::uint64_t check_;
  const ProgramMark program_ = current_program();
  ExchangeLabel label_;
};

}  // namespace shmap
