#include "collectives/in_process.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/collective_site.h"
#include "collectives/give_blocks.h"
#include "collectives/piece_work.h"
#include "core/base/counters.h"
#include "core/base/inline_vector.h"
#include "core/runtime/launch.h"
#include "core/runtime/step_label.h"

namespace shmap {

namespace {

using Target = CliqueTable::Target;
using RankBlock = CliqueTable::RankBlock;
using Team = std::vector<std::uint32_t>;  // CliqueTable::teams

const DeviceOps& ops_of(const GroupBlocks& g) { return device_ops(g.mesh.backend()); }

std::byte* block_address(const Block& block) { return static_cast<std::byte*>(block.data()); }

// An entry for each rank: true if its block must be copied to the target from another memory space.
// Empty if the backend has no function for such copies.
std::vector<bool> from_other_spaces(const GroupBlocks& g, const Target& target) {
  std::vector<bool> others;
  if (ops_of(g).copy_between_spaces == nullptr) return others;
  for (std::uint32_t p : target.members) others.push_back(g.mesh.local(p).space != target.space);
  return others;
}

// True if one kernel may copy all the pieces that a target needs, because they are on the target's
// GPU. (Between GPUs copy engines are used, which leave the multiprocessors free.)
bool in_one_piece_of_work(const GroupBlocks& g, const Target& target) {
  if (ops_of(g).copy_boxes == nullptr) return false;
  const auto number = [&](std::uint32_t position) {
    return g.mesh.backend().native_number(g.mesh.local(position).index);
  };
  return std::all_of(target.members.begin(), target.members.end(),
                     [&](std::uint32_t p) { return number(p) == number(target.position); });
}

bool in_one_space(const GroupBlocks& g, const Target& target) {
  return std::all_of(target.members.begin(), target.members.end(),
                     [&](std::uint32_t p) { return g.mesh.local(p).space == target.space; });
}

void exchange_at_once(const DeviceOps& ops, const StridedCopy& box,
                      std::span<const RankBlock> rank_blocks, std::int64_t src_step,
                      std::int64_t dst_step, std::uint32_t ranks, const Addresses& from,
                      const Addresses& to, void* native) {
  const std::size_t pairs = rank_blocks.size() * ranks;
  InlineVector<const void*, 64> src(pairs);
  InlineVector<void*, 64> dst(pairs);
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const std::size_t i = pair / ranks, sender = pair % ranks;
    src[pair] = from[sender] + rank_blocks[i].rank * src_step;
    dst[pair] = to[i] + static_cast<std::int64_t>(sender) * dst_step;
  }
  ops.copy_boxes(box, src.data(), dst.data(), static_cast<int>(pairs), native);
}

// The blocks that a target reads, in some order of ranks.
struct Sources {
  Sources(const GroupBlocks& g, const std::vector<std::uint32_t>& members)
      : from(members.size()), buffers(members.size()) {
    for (std::size_t r = 0; r < members.size(); ++r) {
      const Block& block = g.in[members[r]];
      from[r] = block_address(block);
      // Ranks often share a buffer, which needs only one entry.
      if (count == 0 || buffers[count - 1] != block.buffer.get())
        buffers[count++] = block.buffer.get();
    }
  }
  std::span<Buffer* const> reads() { return buffers.span().first(count); }
  Addresses from;
  InlineVector<Buffer*, 16> buffers;
  std::size_t count = 0;
};

Block fresh_block(MemorySpace* space, std::int64_t bytes) {
  Block block;
  block.buffer = space->allocate(bytes, MemorySpace::For::tasks);
  return block;
}

// Fresh blocks for the results that one task writes.
struct Results {
  // One for each RankBlock of a target.
  Results(const GroupBlocks& g, const Target& target, std::span<Block> all)
      : Results(target.block_count) {
    for (std::uint32_t i = 0; i < target.block_count; ++i)
      add(i, all[target.first_block + i] = fresh_block(target.space, g.out_bytes));
  }
  // One for each target of a team.
  Results(const GroupBlocks& g, const Team& team, std::span<Block> all) : Results(team.size()) {
    for (std::size_t i = 0; i < team.size(); ++i)
      add(i, all[team[i]] = fresh_block(g.cliques.targets[team[i]].space, g.out_bytes));
  }
  Addresses to;
  InlineVector<Buffer*, 16> buffers;

 private:
  explicit Results(std::size_t n) : to(n), buffers(n) {}
  void add(std::size_t i, const Block& block) {
    to[i] = block_address(block);
    buffers[i] = block.buffer.get();
  }
};

// Whose memory a task reads and writes besides its own device's.
struct Partners {
  std::span<const std::uint32_t> senders;    // positions
  std::span<const std::uint32_t> team = {};  // targets, the first of them the task's own
};

// The moves that a task of this device makes between memory spaces, for a timeline.
std::vector<std::pair<int, int>> moves_of(const GroupBlocks& g, std::uint32_t position,
                                          const Partners& partners) {
  const LocalDevice& own = g.mesh.local(position);
  std::vector<std::pair<int, int>> moves;
  for (std::uint32_t p : partners.senders) {
    const LocalDevice& from = g.mesh.local(p);
    if (from.space != own.space) moves.emplace_back(from.index, own.index);
  }
  for (std::uint32_t s : partners.team) {
    const LocalDevice& to = g.mesh.local(g.cliques.targets[s].position);
    if (to.space != own.space) moves.emplace_back(own.index, to.index);
  }
  return moves;
}

// A task on the communication stream of a device that reads and writes `bytes`.
LaunchSpec task_at(const GroupBlocks& g, std::uint32_t position, std::int64_t bytes,
                   const Partners& partners) {
  LaunchSpec at;
  at.stream = g.mesh.local(position).comm;
  at.name = labels_tasks()
                ? collective_task_name(g.primitive.name, g.number, moves_of(g, position, partners))
                : g.primitive.name;
  at.bytes = bytes;
  at.cost_ns = cost_ns_of(bytes);
  at.parts = parts_of(bytes, g.mesh.backend());
  return at;
}

CollectiveSite site_at(const GroupBlocks& g, std::uint32_t position) {
  return {{&g.primitive, &g.mesh, position, g.number, g.source}, &g.cliques};
}

// Enqueues `work` as one task (task_at). What it throws names the collective.
template <class Work>
void enqueue(const GroupBlocks& g, std::uint32_t position, std::int64_t bytes,
             const Partners& partners, std::span<Buffer* const> reads,
             std::span<Buffer* const> writes, Work work) {
  launch(task_at(g, position, bytes, partners), reads, writes,
         [site = site_at(g, position), work = std::move(work)](int part, int parts, void* native) {
           try {
             reach_collective(site, part);
             work(part, parts, native);
           } catch (...) {
             rethrow_from(site);
           }
         });
}

void count_bytes(const GroupBlocks& g) {
  count(Counter::collective_bytes, g.in_bytes * g.mesh.local_count());
}

}  // namespace

Block copy_to_space(const GroupBlocks& g, const Block& from, std::uint32_t sender,
                    std::uint32_t position) {
  const LocalDevice& device = g.mesh.local(position);
  Block to = fresh_block(device.space, g.out_bytes);
  if (g.out_bytes == 0) return to;
  Buffer* reads[] = {from.buffer.get()};
  Buffer* writes[] = {to.buffer.get()};
  count(Counter::collective_bytes, g.out_bytes);
  if (const auto start = ops_of(g).start_space_copy; start != nullptr) {
    const SpaceCopy copy{block_address(to), block_address(from), g.out_bytes,
                         g.mesh.local(sender).index, device.index};
    launch_later(task_at(g, position, g.out_bytes, {{&sender, 1}}), reads, writes,
                 [site = site_at(g, position), start, copy](TaskEnd* end) {
                   try {
                     reach_collective(site, 0);
                     start(copy, end);
                   } catch (...) {
                     rethrow_from(site);
                   }
                 });
    return to;
  }
  enqueue(g, position, g.out_bytes, {{&sender, 1}}, reads, writes,
          [ops = &ops_of(g), src = block_address(from), dst = block_address(to),
           bytes = g.out_bytes](int part, int parts, void* native) {
            if (ops->copy_between_spaces != nullptr && parts == 1)
              return ops->copy_between_spaces(dst, src, bytes, native);
            const auto [begin, end] = share(bytes, kGrainBytes, part, parts);
            if (begin < end) ops->copy(dst + begin, src + begin, end - begin, native);
          });
  return to;
}

void InProcessCommunicator::all_reduce(const GroupBlocks& g, Reduction op, DType dtype) {
  const CliqueTable& table = g.cliques;
  const std::int64_t item = itemsize(dtype), n = g.out_bytes / item;
  const int ranks = static_cast<int>(table.ranks);
  InlineVector<Block, 8> results(table.targets.size());
  {
    std::lock_guard lock(g.mesh.backend().submit_mutex());
    for (const Team& team : table.teams) {
      Results out(g, team, results.span());
      if (n == 0) continue;
      const Target& root = table.targets[team.front()];
      Sources sources(g, root.folded);
      const std::int64_t copied = g.out_bytes * static_cast<std::int64_t>(team.size() - 1);
      enqueue(g, root.position, g.in_bytes * ranks + copied, {root.folded, team}, sources.reads(),
              out.buffers.span(),
              [ops = &ops_of(g), op, dtype, ranks, from = std::move(sources.from),
               to = SameResults(ops_of(g), std::move(out.to), team.size(), n, item)](
                  int part, int parts, void* native) {
                to.write(part, parts, native, [&](std::int64_t begin, std::int64_t end) {
                  ops->combine(op, dtype, from.data(), ranks, to.first(), begin, end, native);
                });
              });
    }
  }
  give_results(g.cliques, results.span(), g.out);
  count_bytes(g);
}

void InProcessCommunicator::all_gather(const GroupBlocks& g, const Interleaved& layout) {
  const CliqueTable& table = g.cliques;
  InlineVector<Block, 8> results(table.targets.size());
  {
    std::lock_guard lock(g.mesh.backend().submit_mutex());
    for (const Team& team : table.teams) {
      Results out(g, team, results.span());
      if (g.out_bytes == 0) continue;
      const Target& root = table.targets[team.front()];
      Sources sources(g, root.members);
      enqueue(
          g, root.position, g.out_bytes * static_cast<std::int64_t>(team.size()),
          {root.members, team}, sources.reads(), out.buffers.span(),
          [work = Gather{
               &ops_of(g), layout, table.ranks, std::move(sources.from), from_other_spaces(g, root),
               in_one_piece_of_work(g, root) && in_one_space(g, root),
               team.size() == 1 ? copy_for(ops_of(g), layout.piece, g.out_bytes) : ops_of(g).copy,
               Gather::results(ops_of(g), layout, table.ranks, std::move(out.to),
                               team.size())}](int part, int parts, void* native) {
            work.run(part, parts, native);
          });
    }
  }
  give_results(g.cliques, results.span(), g.out);
  count_bytes(g);
}

void InProcessCommunicator::reduce_scatter(const GroupBlocks& g, const Interleaved& layout,
                                           Reduction op, DType dtype) {
  const CliqueTable& table = g.cliques;
  InlineVector<Block, 16> results(table.rank_blocks.size());
  {
    std::lock_guard lock(g.mesh.backend().submit_mutex());
    for (const Target& target : table.targets) {
      Results out(g, target, results.span());
      if (g.out_bytes == 0) continue;
      Sources sources(g, target.folded);
      ReduceScatter work{
          &ops_of(g),
          op,
          dtype,
          layout,
          static_cast<int>(table.ranks),
          std::span(table.rank_blocks).subspan(target.first_block, target.block_count),
          std::move(sources.from),
          std::move(out.to)};
      const std::int64_t bytes = g.out_bytes * table.ranks * target.block_count;
      enqueue(g, target.position, bytes, {target.folded}, sources.reads(), out.buffers.span(),
              [work = std::move(work)](int part, int parts, void* native) {
                work.run(part, parts, native);
              });
    }
  }
  give_rank_blocks(g.cliques, results.span(), g.out);
  count_bytes(g);
}

void InProcessCommunicator::all_to_all(const GroupBlocks& g, const Exchange& exchange) {
  const CliqueTable& table = g.cliques;
  PieceCopy piece(ops_of(g), exchange.box);
  InlineVector<Block, 16> results(table.rank_blocks.size());
  {
    std::lock_guard lock(g.mesh.backend().submit_mutex());
    for (const Target& target : table.targets) {
      Results out(g, target, results.span());
      if (g.out_bytes == 0) continue;
      Sources sources(g, target.members);
      const auto rank_blocks =
          std::span(table.rank_blocks).subspan(target.first_block, target.block_count);
      if (in_one_piece_of_work(g, target)) {
        enqueue(g, target.position, g.out_bytes * target.block_count, {target.members},
                sources.reads(), out.buffers.span(),
                [ops = &ops_of(g), box = exchange.box, rank_blocks, src_step = exchange.src_step,
                 dst_step = exchange.dst_step, ranks = table.ranks, from = std::move(sources.from),
                 to = std::move(out.to)](int part, int, void* native) {
                  if (part == 0)
                    exchange_at_once(*ops, box, rank_blocks, src_step, dst_step, ranks, from, to,
                                     native);
                });
        continue;
      }
      piece.choose(g.out_bytes * target.block_count);
      enqueue(g, target.position, g.out_bytes * target.block_count, {target.members},
              sources.reads(), out.buffers.span(),
              [piece, rank_blocks, src_step = exchange.src_step, dst_step = exchange.dst_step,
               ranks = table.ranks, from = std::move(sources.from),
               to = std::move(out.to)](int part, int parts, void* native) {
                const auto [begin, end] =
                    share(static_cast<std::int64_t>(rank_blocks.size()) * ranks, 1, part, parts);
                for (std::int64_t pair = begin; pair < end; ++pair) {
                  const auto i = static_cast<std::size_t>(pair / ranks);
                  const std::int64_t sender = pair % ranks;
                  piece.run(from[static_cast<std::size_t>(sender)] + rank_blocks[i].rank * src_step,
                            to[i] + sender * dst_step, native);
                }
              });
    }
  }
  give_rank_blocks(g.cliques, results.span(), g.out);
  count_bytes(g);
}

void InProcessCommunicator::permute(const GroupBlocks& g, std::span<const int> source) {
  const CliqueTable& table = g.cliques;
  InlineVector<Block, 16> results(table.rank_blocks.size());
  std::vector<std::pair<MemorySpace*, Block>> zeros;
  {
    std::lock_guard lock(g.mesh.backend().submit_mutex());
    const auto zeros_at = [&](std::uint32_t position) -> const Block& {
      const LocalDevice& device = g.mesh.local(position);
      for (const auto& [space, block] : zeros)
        if (space == device.space) return block;
      Block block = fresh_block(device.space, g.out_bytes);
      if (g.out_bytes != 0) {
        Buffer* writes[] = {block.buffer.get()};
        enqueue(g, position, g.out_bytes, {}, {}, writes,
                [ops = &ops_of(g), dst = block_address(block), bytes = g.out_bytes](
                    int part, int parts, void* native) {
                  const auto [begin, end] = share(bytes, kGrainBytes, part, parts);
                  if (begin < end) ops->zero(dst + begin, end - begin, native);
                });
      }
      return zeros.emplace_back(device.space, std::move(block)).second;
    };
    for (std::size_t i = 0; i < table.rank_blocks.size(); ++i) {
      const RankBlock& to = table.rank_blocks[i];
      const LocalDevice& device = g.mesh.local(to.position);
      const int from = source[to.rank];
      if (from < 0) {
        results[i] = zeros_at(to.position);
        continue;
      }
      const std::uint32_t position =
          table.targets[to.target].members[static_cast<std::size_t>(from)];
      const bool here = g.mesh.local(position).space == device.space;
      results[i] = here ? g.in[position] : copy_to_space(g, g.in[position], position, to.position);
    }
  }
  give_rank_blocks(g.cliques, results.span(), g.out);
}

void InProcessCommunicator::broadcast(const GroupBlocks& g, std::uint32_t rank) {
  const CliqueTable& table = g.cliques;
  InlineVector<Block, 8> results(table.targets.size());
  {
    std::lock_guard lock(g.mesh.backend().submit_mutex());
    for (std::size_t s = 0; s < table.targets.size(); ++s) {
      const Target& target = table.targets[s];
      const std::uint32_t position = target.members[rank];
      if (g.mesh.local(position).space == target.space) {
        results[s] = g.in[position];
        continue;
      }
      results[s] = copy_to_space(g, g.in[position], position, target.position);
    }
  }
  give_results(g.cliques, results.span(), g.out);
}

}  // namespace shmap
