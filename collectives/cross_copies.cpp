#include "collectives/across_processes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/exchange_task.h"
#include "collectives/give_blocks.h"
#include "collectives/local_work.h"
#include "core/base/contains.h"

namespace shmap {

namespace {

// A list of copies of boxes that run as one task.
struct Boxes {
  std::vector<StridedCopy> list;
  std::vector<Block> reads;
  void add(StridedCopy box, const At& from, std::int64_t src, Block& to, std::int64_t dst) {
    box.src = address(from.block, from.offset + src);
    box.dst = address_of(to, dst);
    list.push_back(box);
    reads.push_back(from.block);
  }
};

class AllGather : public LocalWork {
 public:
  AllGather(const GroupBlocks& g, const Interleaved& layout) : LocalWork(g), layout_(layout) {}

  void run(CrossCall& call) {
    std::vector<Block> results(table_.targets.size());
    for (std::uint32_t s = 0; s < results.size(); ++s) results[s] = fresh(s, g_.out_bytes);
    if (g_.out_bytes != 0) {
      Round round;
      std::vector<std::vector<At>> blocks;
      for (const Class& c : cross_.classes)
        blocks.push_back(exchange_class(c, results[c.targets.front()], round));
      count_sent(round);
      call.enqueue(std::move(round));
      for (std::size_t i = 0; i < blocks.size(); ++i) put_together(i, blocks[i], results);
    }
    give_results(table_, results, g_.out);
  }

 private:
  // Returns the memory in which each rank's block is or will be. A block that is contiguous in the
  // result is received directly into the first target's result. This process's own blocks are
  // copied there during the exchange, unless the copies are large enough to be divided among
  // workers.
  std::vector<At> exchange_class(const Class& c, const Block& result, Round& round) const {
    const bool direct = layout_.outer == 1;
    std::vector<At> blocks(table_.ranks);
    std::size_t coming = 0;
    for (const Peer& peer : c.peers) coming += peer.takes.size();
    Block staging;
    if (coming != 0 && !direct)
      staging = fresh(c.targets.front(), g_.in_bytes * static_cast<std::int64_t>(coming));
    for (const std::uint32_t r : c.held) blocks[r] = {block_of(c, r), 0};
    std::int64_t offset = 0;
    for (const Peer& peer : c.peers) {
      for (const std::uint32_t r : peer.gives)
        round.send(peer.process, block_of(c, r), 0, g_.in_bytes);
      for (const std::uint32_t r : peer.takes) {
        blocks[r] = direct ? At{result, r * layout_.piece} : At{staging, offset};
        round.receive(peer.process, blocks[r].block, blocks[r].offset, g_.in_bytes);
        offset += g_.in_bytes;
      }
    }
    const auto own = g_.in_bytes * static_cast<std::int64_t>(c.held.size());
    if (!direct || coming == 0 || parts_of_work(own) > 1) return blocks;
    for (const std::uint32_t r : c.held) {
      const std::int64_t to = r * layout_.piece;
      round.copy(result, to, blocks[r].block, 0, g_.in_bytes);
      blocks[r] = {result, to};
    }
    return blocks;
  }

  // Copies what is not there yet into the first target's result, and that result to the others.
  void put_together(std::size_t index, const std::vector<At>& blocks,
                    std::vector<Block>& results) const {
    const Class& c = cross_.classes[index];
    const std::uint32_t first = c.targets.front();
    const StridedCopy box = pieces_box(layout_, 1, table_.ranks);
    Boxes boxes;
    for (std::uint32_t r = 0; r < table_.ranks; ++r) {
      if (blocks[r].block.buffer.get() != results[first].buffer.get())
        boxes.add(box, blocks[r], 0, results[first], r * layout_.piece);
    }
    if (!boxes.list.empty()) {
      enqueue(first, g_.out_bytes, boxes.reads, {results[first]},
              [ops = &ops_, list = std::move(boxes.list)](int part, int parts, void* native) {
                for (const StridedCopy& b : list) ops->copy_box(b, part, parts, native);
              });
    }
    fan_out(c, results);
  }

  const Interleaved layout_;
};

class AllToAll : public LocalWork {
 public:
  AllToAll(const GroupBlocks& g, const Exchange& exchange)
      : LocalWork(g), exchange_(exchange), bytes_(bytes_of(exchange.box)) {
    const StridedCopy& box = exchange.box;
    StridedCopy dense = box;
    row_major_strides(box.rank, box.extent, box.itemsize, dense.src_stride);
    for (int d = 0; d < box.rank; ++d) {
      if (box.extent[d] == 1) continue;
      reads_runs_ = reads_runs_ && box.src_stride[d] == dense.src_stride[d];
      writes_runs_ = writes_runs_ && box.dst_stride[d] == dense.src_stride[d];
    }
  }

  void run(CrossCall& call) {
    std::vector<Block> results(table_.rank_blocks.size());
    for (std::size_t i = 0; i < results.size(); ++i)
      results[i] = fresh(table_.rank_blocks[i].target, g_.out_bytes);
    if (g_.out_bytes != 0) {
      Round round;
      std::vector<Block> staged;
      std::vector<bool> copied;
      for (const Class& c : cross_.classes) {
        send_class(c, round);
        staged.push_back(receive_class(c, results, round));
        copied.push_back(copy_own(c, results, round));
      }
      count_sent(round);
      call.enqueue(std::move(round));
      for (std::size_t i = 0; i < staged.size(); ++i)
        hand_out(cross_.classes[i], staged[i], copied[i], results);
    }
    give_rank_blocks(table_, results, g_.out);
  }

 private:
  // Sends the pieces, ordered by peer, sending rank and receiving rank: directly from the operand,
  // or packed.
  void send_class(const Class& c, Round& round) const {
    std::size_t going = 0;
    for (const Peer& peer : c.peers) going += peer.gives.size() * peer.held.size();
    if (going == 0) return;
    Block out;
    if (!reads_runs_) out = fresh(c.targets.front(), bytes_ * static_cast<std::int64_t>(going));
    StridedCopy box = exchange_.box;
    row_major_strides(box.rank, box.extent, box.itemsize, box.dst_stride);
    Boxes boxes;
    std::int64_t sent = 0;
    for (const Peer& peer : c.peers) {
      for (const std::uint32_t q : peer.gives) {
        for (const std::uint32_t r : peer.held) {
          if (reads_runs_) {
            round.send(peer.process, block_of(c, q), r * exchange_.src_step, bytes_);
            continue;
          }
          boxes.add(box, {block_of(c, q), 0}, r * exchange_.src_step, out, sent);
          round.send(peer.process, out, sent, bytes_);
          sent += bytes_;
        }
      }
    }
    if (!boxes.list.empty()) copy(c.targets.front(), std::move(boxes), {out}, sent);
  }

  // Receives the pieces in the same order: directly into the first block of their rank, or into a
  // block that is returned.
  Block receive_class(const Class& c, const std::vector<Block>& results, Round& round) const {
    std::size_t coming = 0;
    for (const Peer& peer : c.peers) coming += peer.takes.size() * c.held.size();
    Block in;
    if (coming != 0 && !writes_runs_)
      in = fresh(c.targets.front(), bytes_ * static_cast<std::int64_t>(coming));
    std::int64_t received = 0;
    for (const Peer& peer : c.peers) {
      for (const std::uint32_t q : peer.takes) {
        for (const std::uint32_t r : c.held) {
          if (writes_runs_) {
            round.receive(peer.process, results[first_block(c, r)], q * exchange_.dst_step, bytes_);
          } else {
            round.receive(peer.process, in, received, bytes_);
            received += bytes_;
          }
        }
      }
    }
    return in;
  }

  // Copies this process's pieces for itself during the exchange; false if they need packing, or are
  // large enough to be divided among workers.
  bool copy_own(const Class& c, const std::vector<Block>& results, Round& round) const {
    const bool comes = std::ranges::any_of(c.peers, [](const Peer& p) { return !p.takes.empty(); });
    std::int64_t pieces = 0;
    for (const std::uint32_t s : c.targets)
      pieces += table_.targets[s].block_count * static_cast<std::int64_t>(c.held.size());
    if (!comes || !reads_runs_ || !writes_runs_ || parts_of_work(pieces * bytes_) > 1) return false;
    for (const std::uint32_t s : c.targets) {
      const CliqueTable::Target& target = table_.targets[s];
      for (std::uint32_t k = target.first_block; k < target.first_block + target.block_count; ++k)
        for (const std::uint32_t q : c.held)
          round.copy(results[k], q * exchange_.dst_step, block_of(c, q),
                     table_.rank_blocks[k].rank * exchange_.src_step, bytes_);
    }
    return true;
  }

  std::uint32_t first_block(const Class& c, std::uint32_t rank) const {
    for (const std::uint32_t s : c.targets) {
      const CliqueTable::Target& target = table_.targets[s];
      for (std::uint32_t k = target.first_block; k < target.first_block + target.block_count; ++k)
        if (table_.rank_blocks[k].rank == rank) return k;
    }
    return kElsewhere;
  }

  // Copies the pieces into the blocks of all ranks. copied: this process's own pieces are in them
  // already.
  void hand_out(const Class& c, const Block& staged, bool copied,
                std::vector<Block>& results) const {
    // The offset in `staged` of the received pieces of each rank.
    std::vector<std::int64_t> came(table_.ranks, -1);
    std::int64_t offset = 0;
    for (const Peer& peer : c.peers) {
      for (const std::uint32_t q : peer.takes) {
        came[q] = offset;
        offset += bytes_ * static_cast<std::int64_t>(c.held.size());
      }
    }
    StridedCopy unpacked = exchange_.box;
    row_major_strides(unpacked.rank, unpacked.extent, unpacked.itemsize, unpacked.src_stride);
    for (const std::uint32_t s : c.targets) {
      const CliqueTable::Target& target = table_.targets[s];
      Boxes boxes;
      std::vector<Block> writes;
      for (std::uint32_t k = target.first_block; k < target.first_block + target.block_count; ++k) {
        const std::uint32_t r = table_.rank_blocks[k].rank;
        const std::uint32_t first = first_block(c, r);
        const auto at = std::find(c.held.begin(), c.held.end(), r) - c.held.begin();
        for (std::uint32_t q = 0; q < table_.ranks; ++q) {
          if (came[q] < 0) {
            if (copied) continue;
            boxes.add(exchange_.box, {block_of(c, q), 0}, r * exchange_.src_step, results[k],
                      q * exchange_.dst_step);
          } else if (!writes_runs_) {
            boxes.add(unpacked, {staged, 0}, came[q] + at * bytes_, results[k],
                      q * exchange_.dst_step);
          } else if (k != first) {
            boxes.add(exchange_.box, {results[first], 0}, q * exchange_.dst_step, results[k],
                      q * exchange_.dst_step);
            row_major_strides(exchange_.box.rank, exchange_.box.extent, exchange_.box.itemsize,
                              boxes.list.back().src_stride);
          }
        }
        writes.push_back(results[k]);
      }
      if (!boxes.list.empty()) copy(s, std::move(boxes), writes, g_.out_bytes * target.block_count);
    }
  }

  void copy(std::uint32_t target, Boxes boxes, const std::vector<Block>& writes,
            std::int64_t bytes) const {
    enqueue(target, bytes, boxes.reads, writes,
            [ops = &ops_, list = std::move(boxes.list)](int part, int parts, void* native) {
              const auto [begin, end] =
                  share(static_cast<std::int64_t>(list.size()), 1, part, parts);
              for (std::int64_t i = begin; i < end; ++i)
                ops->copy_box(list[static_cast<std::size_t>(i)], 0, 1, native);
            });
  }

  const Exchange exchange_;
  const std::int64_t bytes_;
  // True if a piece is one run of the operand, and of the result, so that it needs no packing.
  bool reads_runs_ = true, writes_runs_ = true;
};

// Permutations and broadcasts: whole blocks go from rank to rank.
class Moves : public LocalWork {
 public:
  using LocalWork::LocalWork;

  void permute(CrossCall& call, std::span<const int> source) {
    std::vector<Block> results(table_.rank_blocks.size());
    Round round;
    // The received blocks, by class and rank, each in the memory of a device that needs it.
    std::vector<std::vector<Block>> come(cross_.classes.size(), std::vector<Block>(table_.ranks));
    for (std::size_t i = 0; i < cross_.classes.size(); ++i) {
      const Class& c = cross_.classes[i];
      for (const Peer& peer : c.peers) {
        for (const std::uint32_t r : peer.held) {
          const int q = source[r];
          if (q >= 0 && contains(peer.gives, q) && g_.out_bytes != 0)
            round.send(peer.process, block_of(c, static_cast<std::uint32_t>(q)), 0, g_.out_bytes);
        }
        for (const std::uint32_t r : c.held) {
          const int q = source[r];
          if (q < 0 || !contains(peer.takes, q)) continue;
          Block& block = come[i][static_cast<std::size_t>(q)];
          block = fresh(target_of(c, r), g_.out_bytes);
          if (g_.out_bytes != 0) round.receive(peer.process, block, 0, g_.out_bytes);
        }
      }
    }
    // Calls visit(target, the block that becomes its result k, or null for zeros, k).
    const auto for_results = [&](const auto& visit) {
      for (std::size_t i = 0; i < cross_.classes.size(); ++i) {
        const Class& c = cross_.classes[i];
        for (const std::uint32_t s : c.targets) {
          const CliqueTable::Target& target = table_.targets[s];
          for (std::uint32_t k = target.first_block; k < target.first_block + target.block_count;
               ++k) {
            const int q = source[table_.rank_blocks[k].rank];
            const auto rank = static_cast<std::uint32_t>(q);
            visit(s,
                  q < 0                         ? nullptr
                  : c.local[rank] != kElsewhere ? &local_block(c, s, rank)
                                                : &come[i][rank],
                  k);
          }
        }
      }
    };
    for_results([&](std::uint32_t s, const Block* from, std::uint32_t k) {
      results[k] = from == nullptr ? zeros(s) : place_for(s, *from);
    });
    count_sent(round);
    call.enqueue(std::move(round));
    for_results([&](std::uint32_t s, const Block* from, std::uint32_t k) {
      if (from != nullptr) bring(s, *from, results[k]);
    });
    give_rank_blocks(table_, results, g_.out);
  }

  void broadcast(CrossCall& call, std::uint32_t rank) {
    std::vector<Block> results(table_.targets.size()), from(table_.targets.size());
    Round round;
    for (const Class& c : cross_.classes) {
      Block block;
      if (c.local[rank] != kElsewhere) block = block_of(c, rank);
      for (const Peer& peer : c.peers) {
        if (contains(peer.gives, rank) && g_.out_bytes != 0)
          round.send(peer.process, block, 0, g_.out_bytes);
        if (!contains(peer.takes, rank)) continue;
        block = fresh(c.targets.front(), g_.out_bytes);
        if (g_.out_bytes != 0) round.receive(peer.process, block, 0, g_.out_bytes);
      }
      for (const std::uint32_t s : c.targets) {
        from[s] = c.local[rank] != kElsewhere ? local_block(c, s, rank) : block;
        results[s] = place_for(s, from[s]);
      }
    }
    count_sent(round);
    call.enqueue(std::move(round));
    for (std::uint32_t s = 0; s < results.size(); ++s) bring(s, from[s], results[s]);
    give_results(table_, results, g_.out);
  }

 private:
  std::uint32_t target_of(const Class& c, std::uint32_t rank) const {
    return table_.target_of[c.local[rank]];
  }
  // A rank's block, in this memory space if the rank has one there.
  const Block& local_block(const Class& c, std::uint32_t target, std::uint32_t rank) const {
    const std::uint32_t member = table_.targets[target].members[rank];
    return g_.in[member != kElsewhere ? member : c.local[rank]];
  }

  // `from` itself, or memory for a copy of it if it is in another memory space: all memory is there
  // before the round is enqueued, after which nothing may fail.
  Block place_for(std::uint32_t target, const Block& from) const {
    if (&from.buffer->space() == table_.targets[target].space) return from;
    return fresh(target, g_.out_bytes);
  }
  void bring(std::uint32_t target, const Block& from, Block& to) const {
    if (from.buffer.get() != to.buffer.get() && g_.out_bytes != 0) copy(target, from, to);
  }

  Block zeros(std::uint32_t target) {
    MemorySpace* space = table_.targets[target].space;
    for (const auto& [known, block] : zeros_)
      if (known == space) return block;
    Block block = fresh(target, g_.out_bytes);
    if (g_.out_bytes != 0) {
      enqueue(target, g_.out_bytes, {}, {block},
              [ops = &ops_, dst = address_of(block), bytes = g_.out_bytes](int part, int parts,
                                                                           void* native) {
                const auto [begin, end] = share(bytes, kGrainBytes, part, parts);
                if (begin < end) ops->zero(dst + begin, end - begin, native);
              });
    }
    zeros_.emplace_back(space, block);
    return block;
  }

  std::vector<std::pair<MemorySpace*, Block>> zeros_;
};

}  // namespace

// `work` is constructed first, because it holds the submit mutex, under which a collective takes
// its number: so the collectives of two threads enter the streams in the order of their numbers. In
// another order two processes could each wait for the number that the other has not begun.
void AcrossProcesses::all_gather(const GroupBlocks& g, const Interleaved& parts) {
  AllGather work(g, parts);
  CrossCall call(g, CollectiveKind::all_gather, code_of(parts));
  call.perform([&] { work.run(call); });
}

void AcrossProcesses::all_to_all(const GroupBlocks& g, const Exchange& exchange) {
  AllToAll work(g, exchange);
  CrossCall call(g, CollectiveKind::all_to_all, code_of(exchange));
  call.perform([&] { work.run(call); });
}

void AcrossProcesses::permute(const GroupBlocks& g, std::span<const int> source) {
  Moves work(g);
  CrossCall call(g, CollectiveKind::permute, 0, source);
  call.perform([&] { work.permute(call, source); });
}

void AcrossProcesses::broadcast(const GroupBlocks& g, std::uint32_t rank) {
  Moves work(g);
  CrossCall call(g, CollectiveKind::broadcast, rank);
  call.perform([&] { work.broadcast(call, rank); });
}

}  // namespace shmap
