// GroupTask: what the devices of this process do in a clique's part of a collective. The calls of
// all of them are one group of NCCL, made at once by one thread; but each device's are in its own
// communication stream, wait for what that device reads, and end when they have ended there.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "collectives/collective_site.h"
#include "collectives/communicator.h"
#include "collectives/nccl/comm_set.h"

namespace shmap::nccl {

// A device that takes part.
struct Rank {
  int number = 0;  // in the clique
  std::uint32_t position = 0;
  int gpu = 0;
  ncclComm_t comm = nullptr;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  // Pieces on their way out and in, where they don't lie as NCCL moves them.
  std::byte* packed = nullptr;
  std::byte* gathered = nullptr;
  cudaStream_t stream = nullptr;  // while the task runs
};

class GroupTask {
 public:
  GroupTask(const GroupBlocks& blocks, const std::vector<std::uint32_t>& clique,
            Ref<CommSet> comms);

  // A rank takes part; its addresses are the caller's to set. The reference stays.
  Rank& add(std::uint32_t rank);
  // The rank that was added last reads it.
  void reads(const Block& block) { uses_.back().reads.push_back(block.buffer.get()); }
  // A fresh block of the rank's device, which the task writes.
  Block write(const Rank& rank, std::int64_t bytes);
  // Gives every rank that takes part so much for its `packed`, or its `gathered`.
  void pack_into_scratch(std::int64_t bytes) { make_scratch(&Rank::packed, bytes); }
  void gather_into_scratch(std::int64_t bytes) { make_scratch(&Rank::gathered, bytes); }

  // Enqueues work(ranks), which puts its work into the ranks' streams. The caller holds the submit
  // mutex. Nothing where no rank takes part.
  template <class Work>
  void enqueue(std::int64_t bytes, Work work) {
    enqueue_body(bytes, std::make_unique<Of<Work>>(std::move(work)));
  }

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
  // Everything that a run needs; kept by a graph that captures it.
  struct Args {
    CollectiveSite site;
    Ref<CommSet> comms;
    std::vector<Rank> ranks;
    std::vector<Stream*> streams;
    std::unique_ptr<Body> body;
  };
  void make_scratch(std::byte* Rank::*what, std::int64_t bytes);
  void enqueue_body(std::int64_t bytes, std::unique_ptr<Body> body);
  static void run(void* args, const TaskContext& context);

  struct Uses {
    std::vector<Buffer*> reads, writes;
  };
  const GroupBlocks& g_;
  const std::vector<std::uint32_t>& clique_;
  std::unique_ptr<Args> args_;
  std::vector<Uses> uses_;  // by rank that takes part
  std::vector<BufferRef> scratch_;
};

// The GPU of each position of a mesh of CUDA devices.
std::vector<int> gpus_of(const detail::MeshImpl& mesh);

}  // namespace shmap::nccl
