// The local work of a collective across processes, before and after its exchanges: its blocks, and
// the enqueueing of work on them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/collective_site.h"
#include "collectives/cross_table.h"
#include "collectives/exchange_task.h"
#include "collectives/piece_work.h"
#include "core/base/counters.h"
#include "core/processes/process_exchange.h"
#include "core/runtime/launch.h"
#include "core/runtime/step_label.h"

namespace shmap {

inline const std::byte* address(const Block& block, std::int64_t offset = 0) {
  return static_cast<const std::byte*>(block.data()) + offset;
}
inline std::byte* address_of(Block& block, std::int64_t offset = 0) {
  return static_cast<std::byte*>(block.data()) + offset;
}

// The local work of one call. Holds the submit mutex while it is alive.
class LocalWork {
 public:
  explicit LocalWork(const GroupBlocks& g)
      : g_(g),
        table_(g.cliques),
        cross_(*g.cliques.cross),
        ops_(device_ops(g.mesh.backend())),
        lock_(g.mesh.backend().submit_mutex()) {}

 protected:
  using Class = CrossTable::Class;
  using Peer = CrossTable::Peer;
  using Round = CrossCall::Round;
  static constexpr std::uint32_t kElsewhere = Cliques::kElsewhere;

  Block fresh(std::uint32_t target, std::int64_t bytes) const {
    Block block;
    block.buffer = table_.targets[target].space->allocate(bytes, MemorySpace::For::tasks);
    return block;
  }

  // Enqueues work for one target, which reads and writes these blocks.
  template <class Work>
  void enqueue(std::uint32_t target, std::int64_t bytes, const std::vector<Block>& reads,
               const std::vector<Block>& writes, Work work) const {
    const std::uint32_t position = table_.targets[target].position;
    LaunchSpec at;
    at.stream = g_.mesh.local(position).comm;
    at.name = task_name(g_.primitive.name);
    at.bytes = bytes;
    at.cost_ns = cost_ns_of(bytes);
    at.parts = parts_of_work(bytes);
    const std::vector<Buffer*> read = buffers_of(reads), written = buffers_of(writes);
    const CollectiveSite where{{&g_.primitive, &g_.mesh, position, g_.number, g_.source}, &table_};
    launch(at, read, written, [where, work = std::move(work)](int part, int parts, void* native) {
      try {
        work(part, parts, native);
      } catch (...) {
        rethrow_from(where);
      }
    });
  }

  // The number of parts into which work on `bytes` bytes is divided.
  int parts_of_work(std::int64_t bytes) const { return parts_of(bytes, g_.mesh.backend()); }

  // Copies a block of the result's size to a block of that target.
  void copy(std::uint32_t target, const Block& from, Block& to) const {
    enqueue(target, g_.out_bytes, {from}, {to},
            [ops = &ops_, src = address(from), dst = address_of(to), bytes = g_.out_bytes](
                int part, int parts, void* native) {
              const auto [begin, end] = share(bytes, kGrainBytes, part, parts);
              if (begin < end) ops->copy(dst + begin, src + begin, end - begin, native);
            });
  }
  // Copies the block of a class's first target to its other targets.
  void fan_out(const Class& c, std::vector<Block>& results) const {
    for (std::size_t i = 1; i < c.targets.size(); ++i)
      copy(c.targets[i], results[c.targets.front()], results[c.targets[i]]);
  }

  void count_sent(const Round& round) const {
    std::int64_t bytes = 0;
    for (const Parcel& p : round.sends) bytes += p.bytes;
    count(Counter::collective_bytes, bytes);
  }

  const Block& block_of(const Class& c, std::uint32_t rank) const { return g_.in[c.local[rank]]; }

  const GroupBlocks& g_;
  const CliqueTable& table_;
  const CrossTable& cross_;
  const DeviceOps& ops_;

 private:
  static std::vector<Buffer*> buffers_of(const std::vector<Block>& blocks) {
    std::vector<Buffer*> list;
    for (const Block& b : blocks) {
      if (std::find(list.begin(), list.end(), b.buffer.get()) == list.end())
        list.push_back(b.buffer.get());
    }
    return list;
  }
  std::lock_guard<SubmitMutex> lock_;
};

// An offset in a block.
struct At {
  Block block;
  std::int64_t offset = 0;
};

}  // namespace shmap
