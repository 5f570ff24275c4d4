#include "collectives/across_processes.h"
#include "core/base/float_format.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/exchange_task.h"
#include "collectives/give_blocks.h"
#include "collectives/local_work.h"
#include "core/base/inline_vector.h"
#include "core/processes/exchanges.h"
#include "core/processes/processes.h"
#include "core/processes/shared_heap.h"

namespace shmap {

namespace {

// A larger sum is divided into shares: each process adds one share, and sends it to the others. A
// smaller sum is added by every process. With two processes both ways send equally many bytes, and
// shares only save additions. All processes must make the same choice.
constexpr std::int64_t kShareBytes = 32 << 10;
constexpr std::int64_t kShareBytesOfTwo = 256 << 10;

// A sum of parcels, which are read in the senders' memory, and of this process's own blocks.
class InPlaceSum final : public RoundWork {
 public:
  struct Leaf {
    const std::byte* own;  // null: a parcel
    std::size_t parcel = 0;
  };
  struct Sum {
    std::vector<Leaf> leaves;
    std::byte* to;
    std::int64_t n;  // elements
  };
  InPlaceSum(const DeviceOps& ops, Reduction op, DType dtype) : ops_(ops), op_(op), dtype_(dtype) {}

  void add(Sum sum) {
    // The number of parts is such that a part reads about as many bytes as a part of a copy.
    const std::int64_t bytes = sum.n * itemsize(dtype_);
    const std::int64_t parts =
        std::max<std::int64_t>(1, bytes * std::int64_t(sum.leaves.size()) / kPartBytes);
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto [begin, end] = share(sum.n, kGrainBytes / itemsize(dtype_), int(part), int(parts));
      if (begin < end) parts_.push_back({sums_.size(), begin, end});
    }
    sums_.push_back(std::move(sum));
  }
  bool empty() const { return parts_.empty(); }

  void number(std::span<const std::uint32_t> to) override {
    for (Sum& sum : sums_)
      for (Leaf& leaf : sum.leaves)
        if (leaf.own == nullptr) leaf.parcel = to[leaf.parcel];
  }
  int parts() const noexcept override { return static_cast<int>(parts_.size()); }
  void run(int part, const std::byte* const* parcels) const override {
    const Part& p = parts_[static_cast<std::size_t>(part)];
    const Sum& sum = sums_[p.sum];
    InlineVector<const void*, 64> leaves(sum.leaves.size());
    for (std::size_t i = 0; i < sum.leaves.size(); ++i) {
      const Leaf& leaf = sum.leaves[i];
      leaves[i] = leaf.own != nullptr ? leaf.own : parcels[leaf.parcel];
    }
    ops_.combine(op_, dtype_, leaves.data(), static_cast<int>(sum.leaves.size()), sum.to, p.begin,
                 p.end, nullptr);
  }

 private:
  static constexpr std::int64_t kPartBytes = 512 << 10;
  struct Part {
    std::size_t sum;
    std::int64_t begin, end;
  };
  const DeviceOps& ops_;
  const Reduction op_;
  const DType dtype_;
  std::vector<Sum> sums_;
  std::vector<Part> parts_;
};

class SumCall : public LocalWork {
 public:
  SumCall(const GroupBlocks& g, Reduction op, DType dtype) : LocalWork(g), op_(op), dtype_(dtype) {}

 protected:
  using Leaf = InPlaceSum::Leaf;

  // True if this process adds the other processes' blocks directly from their shared memory or
  // their messages, instead of receiving them first. Larger blocks are not in shared memory, and
  // would have to be copied.
  bool reads_in_place(const Class& c) const {
    return g_.in_bytes <= SharedHeap::kMostBytes &&
           Processes::joined()->exchanges().read_in_place(c.processes);
  }

  // The same for a sum that is not made in shares and reads `bytes` bytes: a larger sum is better
  // divided among several workers.
  bool reads_in_place(const Class& c, std::int64_t bytes) const {
    return reads_in_place(c) && parts_of_work(bytes) == 1;
  }

  // Whether this process adds blocks of others. If not, it has a block of every rank.
  static bool receives_blocks(const Class& c) {
    return std::ranges::any_of(c.peers, [](const Peer& p) { return !p.takes.empty(); });
  }

  // Makes a subtree of this process, which the round's work reads, a leaf of a sum in that round.
  static Leaf own_leaf(const At& subtree, Round& round) {
    round.work_reads(subtree.block);
    return {address(subtree.block, subtree.offset)};
  }

  // The number of consecutive ranks whose values are added before they are sent; 1 for f16 and
  // bf16, because partial sums would be rounded.
  std::uint32_t run_of(const Class& c) const { return is_half(dtype_) ? 1 : c.run; }

  // Makes this process's subtrees of the reduction, each a device's value or the sum of a run of
  // values, by the index of their first rank in mesh order.
  void make_subtrees(const Class& c, std::vector<At>& subtrees) const {
    const std::uint32_t run = run_of(c);
    subtrees.assign(c.folded.size() / run, At{});
    for (std::size_t k = 0; k < subtrees.size(); ++k) {
      if (c.local[c.folded[k * run]] == kElsewhere) continue;
      if (run == 1) {
        subtrees[k] = {block_of(c, c.folded[k]), 0};
        continue;
      }
      std::vector<Block> leaves;
      for (std::uint32_t i = 0; i < run; ++i) leaves.push_back(block_of(c, c.folded[k * run + i]));
      subtrees[k].block = fresh(c.targets.front(), g_.in_bytes);
      combine(c.targets.front(), at_start(leaves), subtrees[k], 0, g_.in_bytes / itemsize(dtype_));
    }
  }

  // The indices of the subtrees that begin with these ranks.
  std::vector<std::size_t> subtrees_of(const Class& c,
                                       const std::vector<std::uint32_t>& ranks) const {
    const std::uint32_t run = run_of(c);
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < ranks.size(); i += run) indices.push_back(c.place[ranks[i]] / run);
    return indices;
  }

  // Computes elements [begin, end) of the tree over `from` and writes them to `to`; each of these
  // begins at its offset.
  void combine(std::uint32_t target, const std::vector<At>& from, const At& to, std::int64_t begin,
               std::int64_t end) const {
    if (begin == end) return;
    const std::int64_t n = end - begin, item = itemsize(dtype_);
    auto leaves = std::make_unique<const void*[]>(from.size());
    std::vector<Block> reads;
    for (std::size_t i = 0; i < from.size(); ++i) {
      leaves[i] = address(from[i].block, from[i].offset);
      reads.push_back(from[i].block);
    }
    auto* out = static_cast<std::byte*>(to.block.data()) + to.offset;
    enqueue(target, n * item * static_cast<std::int64_t>(from.size()), reads, {to.block},
            [ops = &ops_, op = op_, dtype = dtype_, leaves = std::move(leaves),
             ranks = static_cast<int>(from.size()), out, n, begin,
             grain = kGrainBytes / item](int part, int parts, void* native) {
              const auto [first, last] = share(n, grain, part, parts);
              if (first == last) return;
              ops->combine(op, dtype, leaves.get(), ranks, out, begin + first, begin + last,
                           native);
            });
  }

  static std::vector<At> at_start(const std::vector<Block>& blocks) {
    std::vector<At> all;
    for (const Block& b : blocks) all.push_back({b, 0});
    return all;
  }

  const Reduction op_;
  const DType dtype_;
};

class AllReduce : public SumCall {
 public:
  AllReduce(const GroupBlocks& g, Reduction op, DType dtype)
      : SumCall(g, op, dtype), item_(itemsize(dtype)), n_(g.out_bytes / item_) {}

  void run(CrossCall& call) {
    std::vector<Block> results(table_.targets.size());
    for (std::uint32_t s = 0; s < results.size(); ++s) results[s] = fresh(s, g_.out_bytes);
    if (n_ != 0) {
      Round first, second;
      std::vector<std::vector<At>> subtrees(cross_.classes.size());
      std::vector<bool> added(subtrees.size(), false);  // true if the first exchange makes the sum
      auto work = std::make_shared<InPlaceSum>(ops_, op_, dtype_);
      for (std::size_t i = 0; i < subtrees.size(); ++i) {
        const Class& c = cross_.classes[i];
        if (adds_in_place(c)) {
          add_leaves(c, results[c.targets.front()], *work, first);
          continue;
        }
        make_subtrees(c, subtrees[i]);
        added[i] = add_in_place(c, subtrees[i], results[c.targets.front()], *work, first);
        if (!added[i]) add_first(c, subtrees[i], first);
      }
      if (!work->empty()) first.work = std::move(work);
      count_sent(first);
      call.enqueue(std::move(first));
      for (std::size_t i = 0; i < subtrees.size(); ++i) {
        const Class& c = cross_.classes[i];
        if (added[i]) {
          fan_out(c, results);
          continue;
        }
        if (!in_shares(c)) {
          combine(c.targets.front(), subtrees[i], {results[c.targets.front()], 0}, 0, n_);
          fan_out(c, results);
          continue;
        }
        const auto [begin, end] = share_of(c, c.own);
        const Block& result = results[c.targets.front()];
        if (!adds_in_place(c)) combine(c.targets.front(), subtrees[i], {result, 0}, begin, end);
        for (const Peer& peer : c.peers) {
          const auto [from, to] = share_of(c, index_of(c, peer.process));
          if (begin < end) second.send(peer.process, result, begin * item_, (end - begin) * item_);
          if (from < to) second.receive(peer.process, result, from * item_, (to - from) * item_);
        }
      }
      count_sent(second);
      call.enqueue(std::move(second));
      for (const Class& c : cross_.classes)
        if (in_shares(c)) fan_out(c, results);
    }
    give_results(table_, results, g_.out);
  }

 private:
  bool in_shares(const Class& c) const {
    const std::size_t processes = c.processes.size();
    return c.even && processes > 1 &&
           g_.out_bytes > (processes > 2 ? kShareBytes : kShareBytesOfTwo);
  }
  // True if each process reads its share of each device's block in place, and adds all of them at
  // once: then the processes together read each block once, and write nothing but the result. If
  // blocks would have to be copied, it is better to add the blocks of a process first.
  bool adds_in_place(const Class& c) const { return in_shares(c) && reads_in_place(c); }
  std::pair<std::int64_t, std::int64_t> share_of(const Class& c, std::size_t index) const {
    return share(n_, kGrainBytes / item_, static_cast<int>(index),
                 static_cast<int>(c.processes.size()));
  }
  static std::size_t index_of(const Class& c, int process) {
    return static_cast<std::size_t>(std::find(c.processes.begin(), c.processes.end(), process) -
                                    c.processes.begin());
  }

  // Lends the blocks of this process's devices to the processes that add shares of them, and adds
  // this process's share of all blocks to `work`, which writes it into the result. If this
  // process receives no blocks, its share is a separate task, because a round without parcels is
  // not enqueued.
  void add_leaves(const Class& c, const Block& result, InPlaceSum& work, Round& round) const {
    const auto [begin, end] = share_of(c, c.own);
    const bool in_round = receives_blocks(c);
    std::vector<InPlaceSum::Leaf> by_rank(table_.ranks);
    for (const std::uint32_t r : c.held) {
      const Block& block = block_of(c, r);
      by_rank[r].own = address(block, begin * item_);
      if (in_round) round.work_reads(block);
    }
    for (const Peer& peer : c.peers) {
      const auto [from, to] = share_of(c, index_of(c, peer.process));
      for (const std::uint32_t r : peer.gives)
        if (from < to) round.send(peer.process, block_of(c, r), from * item_, (to - from) * item_);
      for (const std::uint32_t r : peer.takes)
        if (begin < end) by_rank[r].parcel = round.receive(peer.process, (end - begin) * item_);
    }
    if (begin == end) return;
    if (!in_round) {
      std::vector<At> blocks;
      for (const std::uint32_t r : c.folded) blocks.push_back({block_of(c, r), 0});
      combine(c.targets.front(), blocks, {result, 0}, begin, end);
      return;
    }
    InPlaceSum::Sum sum{{}, static_cast<std::byte*>(result.data()) + begin * item_, end - begin};
    for (const std::uint32_t r : c.folded) sum.leaves.push_back(by_rank[r]);
    work.add(std::move(sum));
    round.work_writes(result);
  }

  // For a sum that is not made in shares: sends this process's subtrees, and adds the sum of all
  // subtrees to `work`, which writes it into the result. False if the other processes' subtrees
  // have to be received first.
  bool add_in_place(const Class& c, const std::vector<At>& subtrees, const Block& result,
                    InPlaceSum& work, Round& round) const {
    const std::int64_t bytes = g_.in_bytes * static_cast<std::int64_t>(subtrees.size());
    if (!receives_blocks(c) || in_shares(c) || !reads_in_place(c, bytes)) return false;
    InPlaceSum::Sum sum{std::vector<Leaf>(subtrees.size()), static_cast<std::byte*>(result.data()),
                        n_};
    for (std::size_t k = 0; k < subtrees.size(); ++k)
      if (subtrees[k].block.buffer.get() != nullptr) sum.leaves[k] = own_leaf(subtrees[k], round);
    for (const Peer& peer : c.peers) {
      for (const std::size_t k : subtrees_of(c, peer.gives))
        round.send(peer.process, subtrees[k].block, subtrees[k].offset, g_.in_bytes);
      for (const std::size_t k : subtrees_of(c, peer.takes))
        sum.leaves[k].parcel = round.receive(peer.process, g_.in_bytes);
    }
    work.add(std::move(sum));
    round.work_writes(result);
    return true;
  }

  // Sends this process's subtrees to the processes that add them, and receives the subtrees that
  // this process adds, whole or its share of each. Sets the entries of `subtrees` to the received
  // ones.
  void add_first(const Class& c, std::vector<At>& subtrees, Round& round) const {
    const bool shares = in_shares(c);
    const auto [begin, end] =
        shares ? share_of(c, c.own) : std::pair<std::int64_t, std::int64_t>(0, n_);
    std::size_t coming = 0;
    for (const Peer& peer : c.peers) coming += subtrees_of(c, peer.takes).size();
    const std::int64_t bytes = (end - begin) * item_;
    Block staging;
    if (coming != 0 && bytes != 0)
      staging = fresh(c.targets.front(), bytes * static_cast<std::int64_t>(coming));
    std::int64_t offset = 0;
    for (const Peer& peer : c.peers) {
      const auto [from, to] = shares ? share_of(c, index_of(c, peer.process))
                                     : std::pair<std::int64_t, std::int64_t>(0, n_);
      for (const std::size_t k : subtrees_of(c, peer.gives))
        if (from < to)
          round.send(peer.process, subtrees[k].block, subtrees[k].offset + from * item_,
                     (to - from) * item_);
      for (const std::size_t k : subtrees_of(c, peer.takes)) {
        if (bytes == 0) continue;
        round.receive(peer.process, staging, offset, bytes);
        // This offset puts the share at its position in the whole subtree.
        subtrees[k] = {staging, offset - begin * item_};
        offset += bytes;
      }
    }
  }

  const std::int64_t item_, n_;
};

class ReduceScatterCall : public SumCall {
 public:
  ReduceScatterCall(const GroupBlocks& g, const Interleaved& layout, Reduction op, DType dtype)
      : SumCall(g, op, dtype), layout_(layout), piece_(g.out_bytes) {}

  void run(CrossCall& call) {
    std::vector<Block> results(table_.rank_blocks.size());
    for (std::size_t i = 0; i < results.size(); ++i)
      results[i] = fresh(table_.rank_blocks[i].target, g_.out_bytes);
    if (piece_ != 0) {
      Round round;
      // [class][local rank][subtree] -> its piece; empty if the exchange adds the pieces
      std::vector<std::vector<std::vector<At>>> pieces;
      auto work = std::make_shared<InPlaceSum>(ops_, op_, dtype_);
      for (const Class& c : cross_.classes)
        pieces.push_back(exchange_class(c, results, *work, round));
      if (!work->empty()) round.work = std::move(work);
      count_sent(round);
      call.enqueue(std::move(round));
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Class& c = cross_.classes[i];
        if (pieces[i].empty()) continue;
        for_rank_blocks(c, [&](std::uint32_t s, std::uint32_t k, std::size_t at) {
          combine(s, pieces[i][at], {results[k], 0}, 0, piece_ / itemsize(dtype_));
        });
      }
    }
    give_rank_blocks(table_, results, g_.out);
  }

 private:
  // Calls visit(target, rank block, index of its rank in c.held).
  template <class Visit>
  void for_rank_blocks(const Class& c, const Visit& visit) const {
    for (const std::uint32_t s : c.targets) {
      const CliqueTable::Target& target = table_.targets[s];
      for (std::uint32_t k = target.first_block; k < target.first_block + target.block_count; ++k)
        visit(s, k,
              static_cast<std::size_t>(
                  std::find(c.held.begin(), c.held.end(), table_.rank_blocks[k].rank) -
                  c.held.begin()));
    }
  }

  std::vector<std::vector<At>> exchange_class(const Class& c, const std::vector<Block>& results,
                                              InPlaceSum& work, Round& round) const {
    std::vector<At> subtrees;
    make_subtrees(c, subtrees);
    std::vector<std::vector<At>> pieces(c.held.size(), std::vector<At>(subtrees.size()));
    for (std::size_t k = 0; k < subtrees.size(); ++k) {
      if (subtrees[k].block.buffer.get() == nullptr) continue;
      const std::vector<At> own = cut(c, subtrees[k], c.held);
      for (std::size_t r = 0; r < c.held.size(); ++r) pieces[r][k] = own[r];
    }
    std::size_t coming = 0;
    for (const Peer& peer : c.peers) coming += subtrees_of(c, peer.takes).size() * c.held.size();
    const auto added = static_cast<std::int64_t>(subtrees.size() * c.held.size());
    if (coming != 0 && reads_in_place(c, piece_ * added)) {
      add_in_place(c, pieces, subtrees, results, work, round);
      return {};
    }
    Block staging;
    if (coming != 0) staging = fresh(c.targets.front(), piece_ * static_cast<std::int64_t>(coming));
    std::int64_t offset = 0;
    for (const Peer& peer : c.peers) {
      for (const std::size_t k : subtrees_of(c, peer.gives))
        for (const At& at : cut(c, subtrees[k], peer.held))
          round.send(peer.process, at.block, at.offset, piece_);
      for (const std::size_t k : subtrees_of(c, peer.takes)) {
        for (std::size_t r = 0; r < c.held.size(); ++r) {
          round.receive(peer.process, staging, offset, piece_);
          pieces[r][k] = {staging, offset};
          offset += piece_;
        }
      }
    }
    return pieces;
  }

  // Sends the pieces that other processes add, and adds to `work` the sums of this process's ranks.
  // own: this process's pieces.
  void add_in_place(const Class& c, const std::vector<std::vector<At>>& own,
                    const std::vector<At>& subtrees, const std::vector<Block>& results,
                    InPlaceSum& work, Round& round) const {
    std::vector<std::vector<Leaf>> leaves(c.held.size(), std::vector<Leaf>(subtrees.size()));
    for (std::size_t r = 0; r < c.held.size(); ++r)
      for (std::size_t k = 0; k < subtrees.size(); ++k)
        if (subtrees[k].block.buffer.get() != nullptr) leaves[r][k] = own_leaf(own[r][k], round);
    for (const Peer& peer : c.peers) {
      for (const std::size_t k : subtrees_of(c, peer.gives))
        for (const At& at : cut(c, subtrees[k], peer.held))
          round.send(peer.process, at.block, at.offset, piece_);
      for (const std::size_t k : subtrees_of(c, peer.takes))
        for (std::size_t r = 0; r < c.held.size(); ++r)
          leaves[r][k].parcel = round.receive(peer.process, piece_);
    }
    for_rank_blocks(c, [&](std::uint32_t, std::uint32_t k, std::size_t at) {
      work.add({leaves[at], static_cast<std::byte*>(results[k].data()), piece_ / itemsize(dtype_)});
      round.work_writes(results[k]);
    });
  }

  // The pieces of a block for `ranks`, each contiguous in memory: in place, or copied.
  std::vector<At> cut(const Class& c, const At& whole,
                      const std::vector<std::uint32_t>& ranks) const {
    std::vector<At> pieces;
    if (layout_.outer == 1) {
      for (const std::uint32_t r : ranks)
        pieces.push_back({whole.block, whole.offset + r * layout_.piece});
      return pieces;
    }
    const auto n = static_cast<std::int64_t>(ranks.size());
    const Block packed = fresh(c.targets.front(), piece_ * n);
    for (std::int64_t i = 0; i < n; ++i) pieces.push_back({packed, i * piece_});
    enqueue(c.targets.front(), piece_ * n, {whole.block}, {packed},
            [ops = &ops_, box = pieces_box(layout_, table_.ranks, 1), ranks, piece = piece_,
             step = layout_.piece, src = address(whole.block, whole.offset),
             dst = static_cast<std::byte*>(packed.data())](int part, int parts, void* native) {
              StridedCopy one = box;
              for (std::size_t i = 0; i < ranks.size(); ++i) {
                one.src = src + ranks[i] * step;
                one.dst = dst + static_cast<std::int64_t>(i) * piece;
                ops->copy_box(one, part, parts, native);
              }
            });
    return pieces;
  }

  const Interleaved layout_;
  const std::int64_t piece_;
};

}  // namespace

// `work` is constructed first, as in cross_copies.cpp: it holds the mutex under which a number is
// taken.
void AcrossProcesses::all_reduce(const GroupBlocks& g, Reduction op, DType dtype) {
  AllReduce work(g, op, dtype);
  CrossCall call(g, CollectiveKind::all_reduce, code_of(op, dtype));
  call.perform([&] { work.run(call); });
}

void AcrossProcesses::reduce_scatter(const GroupBlocks& g, const Interleaved& layout, Reduction op,
                                     DType dtype) {
  ReduceScatterCall work(g, layout, op, dtype);
  CrossCall call(g, CollectiveKind::reduce_scatter, code_of(layout, op, dtype));
  call.perform([&] { work.run(call); });
}

}  // namespace shmap
