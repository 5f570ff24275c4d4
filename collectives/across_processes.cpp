#include "collectives/across_processes.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/collective_site.h"
#include "collectives/cross_table.h"
#include "collectives/exchange_task.h"
#include "collectives/piece_work.h"
#include "core/base/counters.h"
#include "core/runtime/launch.h"

namespace shmap {

namespace {

// Estimates of one core; whether a task is queued, and in how many parts, hangs on them.
constexpr double kBytesPerNs = 20;
constexpr std::int64_t kPartBytes = 256 << 10;
// Of more than two processes: a larger sum is made in shares, each by one of them, and handed
// around; a smaller one by each of them. Processes have to agree on it.
constexpr std::int64_t kShareBytes = 32 << 10;

using Class = CrossTable::Class;
using Peer = CrossTable::Peer;
using Round = CrossCall::Round;

constexpr std::uint32_t kElsewhere = Cliques::kElsewhere;

const std::byte* address(const Block& block, std::int64_t offset = 0) {
  return static_cast<const std::byte*>(block.data()) + offset;
}
std::byte* address_of(Block& block, std::int64_t offset = 0) {
  return static_cast<std::byte*>(block.data()) + offset;
}

// One call: its blocks, and how its local work gets into streams. Holds the submit mutex.
class CallBase {
 public:
  explicit CallBase(const GroupBlocks& g)
      : g_(g),
        table_(g.cliques),
        cross_(*g.cliques.cross),
        ops_(device_ops(g.mesh.backend())),
        lock_(g.mesh.backend().submit_mutex()) {}

 protected:
  Block fresh(std::uint32_t site, std::int64_t bytes) const {
    Block block;
    block.buffer = table_.sites[site].space->allocate(bytes, MemorySpace::For::tasks);
    return block;
  }

  // Work of one site, which reads and writes those blocks.
  template <class Work>
  void enqueue(std::uint32_t site, std::int64_t bytes, const std::vector<Block>& reads,
               const std::vector<Block>& writes, Work work) const {
    const std::uint32_t position = table_.sites[site].position;
    LaunchSite at;
    at.stream = g_.mesh.local(position).comm;
    at.name = g_.primitive.name;
    at.bytes = bytes;
    at.cost_ns = static_cast<std::int64_t>(static_cast<double>(bytes) / kBytesPerNs);
    const std::int64_t workers = g_.mesh.backend().workers();
    at.parts = static_cast<int>(
        std::clamp(bytes / kPartBytes, std::int64_t{1}, std::max<std::int64_t>(workers, 1)));
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

  // The same bytes to the other sites of a class.
  void fan_out(const Class& c, std::vector<Block>& sites) const {
    Block& first = sites[c.sites.front()];
    for (std::size_t i = 1; i < c.sites.size(); ++i) {
      Block& to = sites[c.sites[i]];
      enqueue(c.sites[i], g_.out_bytes, {first}, {to},
              [ops = &ops_, src = address(first), dst = address_of(to), bytes = g_.out_bytes](
                  int part, int parts, void* native) {
                const auto [begin, end] = share(bytes, kGrainBytes, part, parts);
                if (begin < end) ops->copy(dst + begin, src + begin, end - begin, native);
              });
    }
  }

  void share_sites(const std::vector<Block>& sites) const {
    for (std::size_t p = 0; p < g_.out.size(); ++p) g_.out[p] = sites[table_.site_of[p]];
  }
  void share_slots(const std::vector<Block>& slots) const {
    for (std::size_t p = 0; p < g_.out.size(); ++p) g_.out[p] = slots[table_.slot_of[p]];
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

// A place in a block.
struct At {
  Block block;
  std::int64_t offset = 0;
};

// ------------------------------------------------------------------------------------- sums

class SumCall : public CallBase {
 public:
  SumCall(const GroupBlocks& g, Reduction op, DType dtype) : CallBase(g), op_(op), dtype_(dtype) {}

 protected:
  // How many ranks in a row are added before they travel. What is rounded after each addition, as
  // halves would be, is not.
  std::uint32_t run_of(const Class& c) const {
    return dtype_ == DType::f16 || dtype_ == DType::bf16 ? 1 : c.run;
  }

  // This process's parts of the tree, by the index of their first rank in mesh order: what a device
  // has, or the sum of a run of them.
  void make_parts(const Class& c, std::vector<At>& parts) const {
    const std::uint32_t run = run_of(c);
    parts.assign(c.folded.size() / run, At{});
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (c.local[c.folded[k * run]] == kElsewhere) continue;
      if (run == 1) {
        parts[k] = {block_of(c, c.folded[k]), 0};
        continue;
      }
      std::vector<Block> leaves;
      for (std::uint32_t i = 0; i < run; ++i) leaves.push_back(block_of(c, c.folded[k * run + i]));
      parts[k].block = fresh(c.sites.front(), g_.in_bytes);
      combine(c.sites.front(), at_start(leaves), parts[k], 0, g_.in_bytes / itemsize(dtype_));
    }
  }

  // Which parts go to a peer or come from it, by their index.
  std::vector<std::size_t> parts_of(const Class& c, const std::vector<std::uint32_t>& ranks) const {
    const std::uint32_t run = run_of(c);
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < ranks.size(); i += run)
      indices.push_back(static_cast<std::size_t>(
          (std::find(c.folded.begin(), c.folded.end(), ranks[i]) - c.folded.begin()) / run));
    return indices;
  }

  // to[begin, end) = the tree over the parts, in elements; to and the parts lie at their offsets.
  void combine(std::uint32_t site, const std::vector<At>& from, const At& to, std::int64_t begin,
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
    enqueue(site, n * item * static_cast<std::int64_t>(from.size()), reads, {to.block},
            [ops = &ops_, op = op_, dtype = dtype_, leaves = std::move(leaves),
             ranks = static_cast<int>(from.size()), out, n, begin,
             item](int part, int parts, void* native) {
              const auto [first, last] = share(n, kGrainBytes / item, part, parts);
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
    std::vector<Block> sites(table_.sites.size());
    for (std::uint32_t s = 0; s < sites.size(); ++s) sites[s] = fresh(s, g_.out_bytes);
    if (n_ != 0) {
      Round first, second;
      std::vector<std::vector<At>> parts(cross_.classes.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        make_parts(cross_.classes[i], parts[i]);
        add_first(cross_.classes[i], parts[i], first);
      }
      count_sent(first);
      call.enqueue(std::move(first));
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const Class& c = cross_.classes[i];
        if (!in_shares(c)) {
          for (const std::uint32_t s : c.sites) combine(s, parts[i], {sites[s], 0}, 0, n_);
          continue;
        }
        const auto [begin, end] = share_of(c, c.own);
        const Block& result = sites[c.sites.front()];
        std::vector<At> shifted = parts[i];
        combine(c.sites.front(), shifted, {result, 0}, begin, end);
        for (const Peer& peer : c.peers) {
          const auto [from, to] = share_of(c, index_of(c, peer.process));
          if (begin < end) second.send(peer.process, result, begin * item_, (end - begin) * item_);
          if (from < to) second.receive(peer.process, result, from * item_, (to - from) * item_);
        }
      }
      count_sent(second);
      call.enqueue(std::move(second));
      for (const Class& c : cross_.classes)
        if (in_shares(c)) fan_out(c, sites);
    }
    share_sites(sites);
  }

 private:
  bool in_shares(const Class& c) const {
    return c.even && c.processes.size() > 2 && g_.out_bytes > kShareBytes;
  }
  std::pair<std::int64_t, std::int64_t> share_of(const Class& c, std::size_t index) const {
    return share(n_, kGrainBytes / item_, static_cast<int>(index),
                 static_cast<int>(c.processes.size()));
  }
  static std::size_t index_of(const Class& c, int process) {
    return static_cast<std::size_t>(std::find(c.processes.begin(), c.processes.end(), process) -
                                    c.processes.begin());
  }

  // The parts that this process has go to whoever adds them, and those that it adds come: whole, or
  // its share of them. `parts` gets where they will lie.
  void add_first(const Class& c, std::vector<At>& parts, Round& round) const {
    const bool shares = in_shares(c);
    const auto [begin, end] =
        shares ? share_of(c, c.own) : std::pair<std::int64_t, std::int64_t>(0, n_);
    std::size_t coming = 0;
    for (const Peer& peer : c.peers) coming += parts_of(c, peer.takes).size();
    const std::int64_t bytes = (end - begin) * item_;
    Block staging;
    if (coming != 0 && bytes != 0)
      staging = fresh(c.sites.front(), bytes * static_cast<std::int64_t>(coming));
    std::int64_t offset = 0;
    for (const Peer& peer : c.peers) {
      const auto [from, to] = shares ? share_of(c, index_of(c, peer.process))
                                     : std::pair<std::int64_t, std::int64_t>(0, n_);
      for (const std::size_t k : parts_of(c, peer.gives))
        if (from < to)
          round.send(peer.process, parts[k].block, parts[k].offset + from * item_,
                     (to - from) * item_);
      for (const std::size_t k : parts_of(c, peer.takes)) {
        if (bytes == 0) continue;
        round.receive(peer.process, staging, offset, bytes);
        // As if the whole began that much earlier.
        parts[k] = {staging, offset - begin * item_};
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
    std::vector<Block> slots(table_.slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i)
      slots[i] = fresh(table_.slots[i].site, g_.out_bytes);
    if (piece_ != 0) {
      Round round;
      // [class][rank that is here][part of the tree] -> its piece
      std::vector<std::vector<std::vector<At>>> pieces;
      for (const Class& c : cross_.classes) pieces.push_back(exchange_class(c, round));
      count_sent(round);
      call.enqueue(std::move(round));
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Class& c = cross_.classes[i];
        for (const std::uint32_t s : c.sites) {
          const CliqueTable::Site& site = table_.sites[s];
          for (std::uint32_t k = site.first_slot; k < site.first_slot + site.slot_count; ++k) {
            const auto at = static_cast<std::size_t>(
                std::find(c.held.begin(), c.held.end(), table_.slots[k].rank) - c.held.begin());
            combine(s, pieces[i][at], {slots[k], 0}, 0, piece_ / itemsize(dtype_));
          }
        }
      }
    }
    share_slots(slots);
  }

 private:
  std::vector<std::vector<At>> exchange_class(const Class& c, Round& round) const {
    std::vector<At> parts;
    make_parts(c, parts);
    std::vector<std::vector<At>> pieces(c.held.size(), std::vector<At>(parts.size()));
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (parts[k].block.buffer.get() == nullptr) continue;
      const std::vector<At> own = cut(c, parts[k], c.held);
      for (std::size_t r = 0; r < c.held.size(); ++r) pieces[r][k] = own[r];
    }
    std::size_t coming = 0;
    for (const Peer& peer : c.peers) coming += parts_of(c, peer.takes).size() * c.held.size();
    Block staging;
    if (coming != 0) staging = fresh(c.sites.front(), piece_ * static_cast<std::int64_t>(coming));
    std::int64_t offset = 0;
    for (const Peer& peer : c.peers) {
      for (const std::size_t k : parts_of(c, peer.gives))
        for (const At& at : cut(c, parts[k], peer.held))
          round.send(peer.process, at.block, at.offset, piece_);
      for (const std::size_t k : parts_of(c, peer.takes)) {
        for (std::size_t r = 0; r < c.held.size(); ++r) {
          round.receive(peer.process, staging, offset, piece_);
          pieces[r][k] = {staging, offset};
          offset += piece_;
        }
      }
    }
    return pieces;
  }

  // The pieces of a block for those ranks, each in one run of memory: where they lie, or copied.
  std::vector<At> cut(const Class& c, const At& whole,
                      const std::vector<std::uint32_t>& ranks) const {
    std::vector<At> pieces;
    if (layout_.outer == 1) {
      for (const std::uint32_t r : ranks)
        pieces.push_back({whole.block, whole.offset + r * layout_.piece});
      return pieces;
    }
    const auto n = static_cast<std::int64_t>(ranks.size());
    const Block packed = fresh(c.sites.front(), piece_ * n);
    BoxCopy box;
    box.rank = 2;
    box.itemsize = layout_.itemsize;
    box.extent[0] = layout_.outer;
    box.extent[1] = layout_.piece / layout_.itemsize;
    box.src_stride[0] = layout_.piece * table_.ranks;
    box.dst_stride[0] = layout_.piece;
    box.src_stride[1] = box.dst_stride[1] = layout_.itemsize;
    for (std::int64_t i = 0; i < n; ++i) pieces.push_back({packed, i * piece_});
    enqueue(c.sites.front(), piece_ * n, {whole.block}, {packed},
            [ops = &ops_, box, ranks, piece = piece_, step = layout_.piece,
             src = address(whole.block, whole.offset),
             dst = static_cast<std::byte*>(packed.data())](int part, int parts, void* native) {
              BoxCopy one = box;
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

// ------------------------------------------------------------------------------------- copies

// Copies of boxes, as one task.
struct Boxes {
  std::vector<BoxCopy> list;
  std::vector<Block> reads;
  void add(BoxCopy box, const At& from, std::int64_t src, Block& to, std::int64_t dst) {
    box.src = address(from.block, from.offset + src);
    box.dst = address_of(to, dst);
    list.push_back(box);
    reads.push_back(from.block);
  }
};

class AllGather : public CallBase {
 public:
  AllGather(const GroupBlocks& g, const Interleaved& layout) : CallBase(g), layout_(layout) {}

  void run(CrossCall& call) {
    std::vector<Block> sites(table_.sites.size());
    for (std::uint32_t s = 0; s < sites.size(); ++s) sites[s] = fresh(s, g_.out_bytes);
    if (g_.out_bytes != 0) {
      Round round;
      std::vector<std::vector<At>> blocks;
      for (const Class& c : cross_.classes)
        blocks.push_back(exchange_class(c, sites[c.sites.front()], round));
      count_sent(round);
      call.enqueue(std::move(round));
      for (std::size_t i = 0; i < blocks.size(); ++i) put_together(i, blocks[i], sites);
    }
    share_sites(sites);
  }

 private:
  // Where each rank's block is or will be. A block that lies in one run of the result comes
  // straight to its place in the first site's.
  std::vector<At> exchange_class(const Class& c, const Block& result, Round& round) const {
    const bool direct = layout_.outer == 1;
    std::vector<At> blocks(table_.ranks);
    std::size_t coming = 0;
    for (const Peer& peer : c.peers) coming += peer.takes.size();
    Block staging;
    if (coming != 0 && !direct)
      staging = fresh(c.sites.front(), g_.in_bytes * static_cast<std::int64_t>(coming));
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
    return blocks;
  }

  void put_together(std::size_t index, const std::vector<At>& blocks,
                    std::vector<Block>& sites) const {
    const Class& c = cross_.classes[index];
    BoxCopy box;
    box.rank = 2;
    box.itemsize = layout_.itemsize;
    box.extent[0] = layout_.outer;
    box.extent[1] = layout_.piece / layout_.itemsize;
    box.src_stride[0] = layout_.piece;
    box.dst_stride[0] = layout_.piece * table_.ranks;
    box.src_stride[1] = box.dst_stride[1] = layout_.itemsize;
    for (const std::uint32_t s : c.sites) {
      Boxes boxes;
      for (std::uint32_t r = 0; r < table_.ranks; ++r) {
        if (blocks[r].block.buffer.get() == sites[s].buffer.get()) continue;
        boxes.add(box, blocks[r], 0, sites[s], r * layout_.piece);
      }
      if (boxes.list.empty()) continue;
      enqueue(s, g_.out_bytes, boxes.reads, {sites[s]},
              [ops = &ops_, list = std::move(boxes.list)](int part, int parts, void* native) {
                for (const BoxCopy& b : list) ops->copy_box(b, part, parts, native);
              });
    }
  }

  const Interleaved layout_;
};

class AllToAll : public CallBase {
 public:
  AllToAll(const GroupBlocks& g, const Exchange& exchange)
      : CallBase(g), exchange_(exchange), bytes_(exchange.box.itemsize) {
    for (int d = 0; d < exchange.box.rank; ++d) bytes_ *= exchange.box.extent[d];
    packed_ = exchange.box;
    std::int64_t stride = packed_.itemsize;
    for (int d = packed_.rank; d-- > 0;) {
      packed_.src_stride[d] = packed_.dst_stride[d] = stride;
      stride *= packed_.extent[d];
    }
  }

  void run(CrossCall& call) {
    std::vector<Block> slots(table_.slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i)
      slots[i] = fresh(table_.slots[i].site, g_.out_bytes);
    if (g_.out_bytes != 0) {
      Round round;
      std::vector<Block> staged;
      for (const Class& c : cross_.classes) staged.push_back(exchange_class(c, round));
      count_sent(round);
      call.enqueue(std::move(round));
      for (std::size_t i = 0; i < staged.size(); ++i) hand_out(cross_.classes[i], staged[i], slots);
    }
    share_slots(slots);
  }

 private:
  // Packs what goes to the peers, and returns where what comes will lie: by peer, by the rank that
  // it comes from, by the rank here that it is for.
  Block exchange_class(const Class& c, Round& round) const {
    std::size_t going = 0, coming = 0;
    for (const Peer& peer : c.peers) {
      going += peer.gives.size() * peer.held.size();
      coming += peer.takes.size() * c.held.size();
    }
    Block out, in;
    if (going != 0) out = fresh(c.sites.front(), bytes_ * static_cast<std::int64_t>(going));
    if (coming != 0) in = fresh(c.sites.front(), bytes_ * static_cast<std::int64_t>(coming));
    BoxCopy box = exchange_.box;
    std::copy_n(packed_.dst_stride, box.rank, box.dst_stride);
    Boxes boxes;
    std::int64_t sent = 0, received = 0;
    for (const Peer& peer : c.peers) {
      for (const std::uint32_t q : peer.gives) {
        for (const std::uint32_t r : peer.held) {
          boxes.add(box, {block_of(c, q), 0}, r * exchange_.src_step, out, sent);
          round.send(peer.process, out, sent, bytes_);
          sent += bytes_;
        }
      }
      for (std::size_t i = 0; i < peer.takes.size() * c.held.size(); ++i) {
        round.receive(peer.process, in, received, bytes_);
        received += bytes_;
      }
    }
    if (!boxes.list.empty()) copy(c.sites.front(), std::move(boxes), {out}, sent);
    return in;
  }

  void hand_out(const Class& c, const Block& staged, std::vector<Block>& slots) const {
    // Where the pieces of a rank begin that came.
    std::vector<std::int64_t> came(table_.ranks, -1);
    std::int64_t offset = 0;
    for (const Peer& peer : c.peers) {
      for (const std::uint32_t q : peer.takes) {
        came[q] = offset;
        offset += bytes_ * static_cast<std::int64_t>(c.held.size());
      }
    }
    BoxCopy unpacked = exchange_.box;
    std::copy_n(packed_.src_stride, unpacked.rank, unpacked.src_stride);
    for (const std::uint32_t s : c.sites) {
      const CliqueTable::Site& site = table_.sites[s];
      Boxes boxes;
      std::vector<Block> writes;
      for (std::uint32_t k = site.first_slot; k < site.first_slot + site.slot_count; ++k) {
        const std::uint32_t r = table_.slots[k].rank;
        const auto at = std::find(c.held.begin(), c.held.end(), r) - c.held.begin();
        for (std::uint32_t q = 0; q < table_.ranks; ++q) {
          if (came[q] < 0) {
            boxes.add(exchange_.box, {block_of(c, q), 0}, r * exchange_.src_step, slots[k],
                      q * exchange_.dst_step);
          } else {
            boxes.add(unpacked, {staged, 0}, came[q] + at * bytes_, slots[k],
                      q * exchange_.dst_step);
          }
        }
        writes.push_back(slots[k]);
      }
      copy(s, std::move(boxes), writes, g_.out_bytes * site.slot_count);
    }
  }

  void copy(std::uint32_t site, Boxes boxes, const std::vector<Block>& writes,
            std::int64_t bytes) const {
    enqueue(site, bytes, boxes.reads, writes,
            [ops = &ops_, list = std::move(boxes.list)](int part, int parts, void* native) {
              const auto [begin, end] =
                  share(static_cast<std::int64_t>(list.size()), 1, part, parts);
              for (std::int64_t i = begin; i < end; ++i)
                ops->copy_box(list[static_cast<std::size_t>(i)], 0, 1, native);
            });
  }

  const Exchange exchange_;
  std::int64_t bytes_;
  BoxCopy packed_;
};

// Whole blocks go from rank to rank: permutations and broadcasts.
class Moves : public CallBase {
 public:
  using CallBase::CallBase;

  // out of rank r = the block of rank source[r]; zeros where that is -1.
  void permute(CrossCall& call, std::span<const int> source) {
    std::vector<Block> slots(table_.slots.size());
    Round round;
    // What came, by class and the rank that it is of: the first slot that gets it has it.
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
          block = fresh(site_of(c, r), g_.out_bytes);
          if (g_.out_bytes != 0) round.receive(peer.process, block, 0, g_.out_bytes);
        }
      }
    }
    count_sent(round);
    call.enqueue(std::move(round));
    for (std::size_t i = 0; i < cross_.classes.size(); ++i) {
      const Class& c = cross_.classes[i];
      for (const std::uint32_t s : c.sites) {
        const CliqueTable::Site& site = table_.sites[s];
        for (std::uint32_t k = site.first_slot; k < site.first_slot + site.slot_count; ++k) {
          const int q = source[table_.slots[k].rank];
          if (q < 0) {
            slots[k] = zeros(s);
            continue;
          }
          const auto rank = static_cast<std::uint32_t>(q);
          slots[k] = here(s, c.local[rank] != kElsewhere ? local_block(c, s, rank) : come[i][rank]);
        }
      }
    }
    share_slots(slots);
  }

  void broadcast(CrossCall& call, std::uint32_t rank) {
    std::vector<Block> sites(table_.sites.size());
    Round round;
    for (const Class& c : cross_.classes) {
      Block block;
      if (c.local[rank] != kElsewhere) block = block_of(c, rank);
      for (const Peer& peer : c.peers) {
        if (contains(peer.gives, static_cast<int>(rank)) && g_.out_bytes != 0)
          round.send(peer.process, block, 0, g_.out_bytes);
        if (!contains(peer.takes, static_cast<int>(rank))) continue;
        block = fresh(c.sites.front(), g_.out_bytes);
        if (g_.out_bytes != 0) round.receive(peer.process, block, 0, g_.out_bytes);
      }
      for (const std::uint32_t s : c.sites) sites[s] = block;
    }
    count_sent(round);
    call.enqueue(std::move(round));
    for (const Class& c : cross_.classes) {
      for (const std::uint32_t s : c.sites)
        sites[s] = here(s, c.local[rank] != kElsewhere ? local_block(c, s, rank) : sites[s]);
    }
    share_sites(sites);
  }

 private:
  static bool contains(const std::vector<std::uint32_t>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), static_cast<std::uint32_t>(rank)) != ranks.end();
  }
  std::uint32_t site_of(const Class& c, std::uint32_t rank) const {
    return table_.site_of[c.local[rank]];
  }
  // A rank's block, from that memory space where it has one.
  const Block& local_block(const Class& c, std::uint32_t site, std::uint32_t rank) const {
    const std::uint32_t member = table_.sites[site].members[rank];
    return g_.in[member != kElsewhere ? member : c.local[rank]];
  }

  // That block, or a copy of it where it lies in another memory space.
  Block here(std::uint32_t site, const Block& from) const {
    if (&from.buffer->space() == table_.sites[site].space) return from;
    Block to = fresh(site, g_.out_bytes);
    if (g_.out_bytes == 0) return to;
    enqueue(site, g_.out_bytes, {from}, {to},
            [ops = &ops_, src = address(from), dst = address_of(to), bytes = g_.out_bytes](
                int part, int parts, void* native) {
              const auto [begin, end] = share(bytes, kGrainBytes, part, parts);
              if (begin < end) ops->copy(dst + begin, src + begin, end - begin, native);
            });
    return to;
  }

  Block zeros(std::uint32_t site) {
    MemorySpace* space = table_.sites[site].space;
    for (const auto& [known, block] : zeros_)
      if (known == space) return block;
    Block block = fresh(site, g_.out_bytes);
    if (g_.out_bytes != 0) {
      enqueue(site, g_.out_bytes, {}, {block},
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

std::uint64_t code(Reduction op, DType dtype) {
  return static_cast<std::uint64_t>(op) << 8 | static_cast<std::uint64_t>(dtype);
}

class AcrossProcesses final : public Communicator {
 public:
  void all_reduce(const GroupBlocks& g, Reduction op, DType dtype) override {
    CrossCall call(g, CollectiveKind::all_reduce, code(op, dtype), short_name(dtype));
    AllReduce(g, op, dtype).run(call);
  }
  void all_gather(const GroupBlocks& g, const Interleaved& parts) override {
    CrossCall call(g, CollectiveKind::all_gather, static_cast<std::uint64_t>(parts.piece), "");
    AllGather(g, parts).run(call);
  }
  void reduce_scatter(const GroupBlocks& g, const Interleaved& parts, Reduction op,
                      DType dtype) override {
    CrossCall call(g, CollectiveKind::reduce_scatter,
                   code(op, dtype) << 32 ^ static_cast<std::uint64_t>(parts.piece),
                   short_name(dtype));
    ReduceScatterCall(g, parts, op, dtype).run(call);
  }
  void all_to_all(const GroupBlocks& g, const Exchange& exchange) override {
    CrossCall call(g, CollectiveKind::all_to_all,
                   static_cast<std::uint64_t>(exchange.src_step * 31 + exchange.dst_step), "");
    AllToAll(g, exchange).run(call);
  }
  void permute(const GroupBlocks& g, std::span<const int> source) override {
    CrossCall call(g, CollectiveKind::permute, 0, "", source);
    Moves(g).permute(call, source);
  }
  void broadcast(const GroupBlocks& g, std::uint32_t rank) override {
    CrossCall call(g, CollectiveKind::broadcast, rank, "");
    Moves(g).broadcast(call, rank);
  }
};

}  // namespace

Communicator& across_processes() {
  static auto& all = *new AcrossProcesses();  // static variables may still compute at exit
  return all;
}

}  // namespace shmap
