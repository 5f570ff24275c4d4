// GroupTask: the work of this process's devices in a clique's collective. One thread makes the NCCL
// calls of all these devices, as one group; each device's call is in its own communication stream,
// waits for what that device reads, and ends there. A task is first prepared, which allocates all
// memory of devices and may throw OutOfMemory, and then enqueued.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "collectives/collective_site.h"
#include "collectives/communicator.h"
#include "collectives/nccl/comm_set.h"

namespace shmap::nccl {

// A local device that takes part.
struct Rank {
  int number = 0;  // its rank in the clique
  std::uint32_t position = 0;
  int gpu = 0;
  ncclComm_t comm = nullptr;  // set when the task is enqueued
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  // Scratch for pieces that are sent and received, if their layout in the block is not the one that
  // NCCL moves.
  std::byte* packed = nullptr;
  std::byte* gathered = nullptr;
  cudaStream_t stream = nullptr;  // set while the task runs
};

class GroupTask {
 public:
  GroupTask(const GroupBlocks& blocks, const std::vector<std::uint32_t>& clique);

  // Adds a rank that takes part; the caller sets its addresses. The reference stays valid.
  Rank& add(std::uint32_t rank);
  // Notes that the rank added last reads `block`.
  void reads(const Block& block) { uses_.back().reads.push_back(block.buffer.get()); }
  // A new block of the rank's device, which the task writes.
  Block write(const Rank& rank, std::int64_t bytes);
  // Allocates `bytes` bytes for `packed`, or `gathered`, of every rank that takes part.
  void pack_into_scratch(std::int64_t bytes) { make_scratch(&Rank::packed, bytes); }
  void gather_into_scratch(std::int64_t bytes) { make_scratch(&Rank::gathered, bytes); }
  // Notes for a timeline that data goes from one rank of the clique to another, by their positions,
  // one of which may be elsewhere. If this is never called, data goes from each rank to each other
  // one.
  void note_move(std::uint32_t from, std::uint32_t to);

  // What the task does: work(ranks) puts its calls into the ranks' streams. `bytes`: what it moves.
  template <class Work>
  void set_work(std::int64_t bytes, Work work) {
    bytes_ = bytes;
    args_->body = std::make_unique<Of<Work>>(std::move(work));
  }

  // Enqueues the task, once. Does nothing where no rank takes part, or there is no work.
  // The caller holds the submit mutex.
  void enqueue(Ref<CommSet> comms);

 private:
  struct Body {
    virtual ~Body() = default;
    virtual void run(std::vector<Rank>& ranks) = 0;
  };
  template <class Work>
  struct Of final : Body {
    explicit Of(Work w) : work(std::move(w)) {}
    void run(std::vector<Rank>& ranks) override { work(ranks); }
    Work work;
  };
  // All data that a run needs; a graph that captures the task keeps it.
  struct Args {
    CollectiveSite site;
    Ref<CommSet> comms;
    std::vector<Rank> ranks;
    std::vector<Stream*> streams;
    std::unique_ptr<Body> body;
  };
  void make_scratch(std::byte* Rank::*what, std::int64_t bytes);
  const char* name() const;
  static void run(void* args, const TaskContext& context);

  struct Uses {
    std::vector<Buffer*> reads, writes;
  };
  const GroupBlocks& g_;
  const std::vector<std::uint32_t>& clique_;
  std::unique_ptr<Args> args_;
  std::int64_t bytes_ = 0;
  std::vector<Uses> uses_;  // by rank, in the order of add()
  std::vector<BufferRef> scratch_;
  bool knows_moves_ = false;
  std::vector<std::pair<int, int>> moves_;  // by local devices
};

// The GPU of each position of a mesh of CUDA devices.
std::vector<int> gpus_of(const detail::MeshImpl& mesh);

}  // namespace shmap::nccl
