#include "collectives/nccl/nccl_communicator.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/cross_table.h"
#include "collectives/nccl/group_task.h"
#include "collectives/nccl/nccl_api.h"
#include "collectives/nccl/roll_call.h"
#include "collectives/piece_work.h"
#include "core/base/counters.h"
#include "core/base/dtype_rows.h"
#include "core/base/inline_vector.h"
#include "cuda/driver/gpus.h"

namespace shmap::nccl {

namespace {

using Clique = std::vector<std::uint32_t>;

std::byte* address(const Block& block) { return static_cast<std::byte*>(block.data()); }
const DeviceOps& ops() { return device_ops(DeviceKind::cuda); }
std::size_t count_of(std::int64_t n) { return static_cast<std::size_t>(n); }

void count_bytes(const GroupBlocks& g) {
  count(Counter::collective_bytes, g.in_bytes * g.mesh.local_count());
}

struct ReduceType {
  ncclDataType_t type;
  ncclRedOp_t op;
};

// NCCL's dtype for sums, products and extrema; none: NCCL cannot compute with the dtype.
constexpr DTypeRow<std::optional<ncclDataType_t>> kTypes[] = {
    {bool_, ncclUint8}, {i8, ncclInt8},           {i16, std::nullopt},  {i32, ncclInt32},
    {i64, ncclInt64},   {u8, ncclUint8},          {u16, std::nullopt},  {u32, ncclUint32},
    {u64, ncclUint64},  {f16, ncclFloat16},       {bf16, ncclBfloat16}, {f32, ncclFloat32},
    {f64, ncclFloat64}, {prng_key, std::nullopt},
};
static_assert(has_each_dtype(kTypes));

// NCCL's name for the reduction, where its result is the same as this library's.
std::optional<ReduceType> reduce_type(Reduction op, DType dtype) {
  const std::optional<ncclDataType_t> type = row_of(kTypes, dtype);
  if (!type) return std::nullopt;
  ReduceType t{};
  t.type = *type;
  // Bools are 0 or 1: the larger of two is `any`, the smaller `all`. NCCL has no bitwise operations
  // of integers, and its maxima and minima of floats do not propagate NaN.
  const bool bools = dtype == DType::bool_, orders = bools || is_integer(dtype);
  if (op == Reduction::sum && !bools)
    t.op = ncclSum;
  else if (op == Reduction::prod && !bools)
    t.op = ncclProd;
  else if ((op == Reduction::max && orders) || (op == Reduction::any && bools))
    t.op = ncclMax;
  else if ((op == Reduction::min && orders) || (op == Reduction::all && bools))
    t.op = ncclMin;
  else
    return std::nullopt;
  return t;
}

// The description of a collective that processes send each other before NCCL performs it
// (after_roll_call).
struct Roll {
  CollectiveKind kind;
  std::uint64_t code;
  std::span<const int> extra = {};
};

// For each clique with local ranks, prepare(clique, task) says what its task reads, writes and
// does. Then calls the roll, and enqueues the tasks: where memory is short, no other process
// has been told of the collective. Holds the submit mutex from the beginning: the collectives of
// two threads enter the streams in the order of the numbers that their roll calls take, which is
// the order in all processes. Except at the first collective of these cliques, whose communicators
// are made together with the other processes: these may first need a collective of another thread
// of this process, on a mesh without a common device.
template <class Prepare>
void each_clique(const GroupBlocks& g, const Roll& roll, Prepare prepare) {
  std::unique_lock lock(g.mesh.backend().submit_mutex());
  std::vector<GroupTask> tasks;
  tasks.reserve(g.cliques.cliques.size());
  for (const Clique& clique : g.cliques.cliques) {
    const bool here = std::any_of(clique.begin(), clique.end(),
                                  [](std::uint32_t p) { return p != Cliques::kElsewhere; });
    if (here) prepare(clique, tasks.emplace_back(g, clique));
  }
  after_roll_call(g, roll.kind, roll.code, roll.extra, [&] {
    Ref<CommSet> comms = CommSet::made_for(g.cliques);
    if (!comms) {
      lock.unlock();
      comms = CommSet::find(g.mesh, g.cliques, g.primitive, g.source);
      lock.lock();
    }
    comms->check();
    for (GroupTask& task : tasks) task.enqueue(comms);
  });
}

// Adds all local ranks of the clique, with operands and new results; returns whether there are any.
bool add_all(const GroupBlocks& g, const Clique& clique, GroupTask& task) {
  for (std::uint32_t r = 0; r < clique.size(); ++r) {
    if (clique[r] == Cliques::kElsewhere) continue;
    Rank& rank = task.add(r);
    const Block& in = g.in[rank.position];
    g.out[rank.position] = task.write(rank, g.out_bytes);
    rank.in = address(in);
    rank.out = address(g.out[rank.position]);
    task.reads(in);
  }
  return g.out_bytes != 0;
}

// The ranks of a clique in mesh order, which is the reduction order.
std::vector<std::uint32_t> mesh_order(const GroupBlocks& g, const Clique& clique) {
  if (g.cliques.cross != nullptr) {
    for (const CrossTable::Clique& across : g.cliques.cross->cliques)
      if (&g.cliques.cliques[across.index] == &clique) return across.order;
  }
  std::vector<std::uint32_t> order(clique.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return clique[a] < clique[b]; });
  return order;
}

// Writes to out[0, n) the tree over the blocks that `rank` has gathered, which are `step` bytes
// apart.
void combine_gathered(const Rank& rank, Reduction op, DType dtype, std::int64_t n,
                      std::int64_t step, const std::vector<std::uint32_t>& order) {
  InlineVector<const void*, 64> from(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) from[i] = rank.gathered + order[i] * step;
  const cuda::GpuScope gpu(rank.gpu);
  ops().combine(op, dtype, from.data(), static_cast<int>(order.size()), rank.out, 0, n,
                rank.stream);
}

void copy_box(StridedCopy box, const std::byte* src, std::byte* dst, const Rank& rank) {
  box.src = src;
  box.dst = dst;
  ops().copy_box(box, 0, 1, rank.stream);
}

// Whether elements with these strides are contiguous.
bool is_dense(const StridedCopy& box, const std::int64_t* strides) {
  std::int64_t stride = box.itemsize;
  for (int d = box.rank; d-- > 0;) {
    if (box.extent[d] != 1 && strides[d] != stride) return false;
    stride *= box.extent[d];
  }
  return true;
}

void send(const void* from, std::int64_t bytes, int peer, const Rank& rank) {
  check(api().send(from, count_of(bytes), ncclUint8, peer, rank.comm, rank.stream), "ncclSend",
        rank.comm);
}
void recv(void* to, std::int64_t bytes, int peer, const Rank& rank) {
  check(api().recv(to, count_of(bytes), ncclUint8, peer, rank.comm, rank.stream), "ncclRecv",
        rank.comm);
}
void end(Group& group, const std::vector<Rank>& ranks) {
  InlineVector<ncclComm_t, 16> comms(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) comms[i] = ranks[i].comm;
  group.end(std::span<const ncclComm_t>(comms.data(), comms.size()));
}
// Exchanges pieces of `bytes` bytes by NCCL's sends and receives, in one group: rank r sends to
// each rank q the piece at from(r) + q × from_step, and receives q's piece at to(r) + q × to_step.
template <class From, class To>
void exchange_pieces(const std::vector<Rank>& ranks, std::int64_t size, std::int64_t bytes,
                     From from, std::int64_t from_step, To to, std::int64_t to_step) {
  Group group;
  for (const Rank& r : ranks) {
    for (int q = 0; q < static_cast<int>(size); ++q) {
      send(from(r) + q * from_step, bytes, q, r);
      recv(to(r) + q * to_step, bytes, q, r);
    }
  }
  end(group, ranks);
}

// Copies `box` for each of the pieces q of each rank, from `from` + q × from_step to `to` + q ×
// to_step, in the rank's stream.
void copy_pieces(const std::vector<Rank>& ranks, std::int64_t pieces, const StridedCopy& box,
                 std::byte* Rank::*from, std::int64_t from_step, std::byte* Rank::*to,
                 std::int64_t to_step) {
  for (const Rank& r : ranks) {
    const cuda::GpuScope gpu(r.gpu);
    for (std::int64_t q = 0; q < pieces; ++q)
      copy_box(box, r.*from + q * from_step, r.*to + q * to_step, r);
  }
}

void gather_bytes(const std::vector<Rank>& ranks, std::int64_t bytes, std::byte* Rank::*to) {
  Group group;
  for (const Rank& r : ranks) {
    check(api().all_gather(r.in, r.*to, count_of(bytes), ncclUint8, r.comm, r.stream),
          "ncclAllGather", r.comm);
  }
  end(group, ranks);
}

}  // namespace

void NcclCommunicator::all_reduce(const GroupBlocks& g, Reduction op, DType dtype) {
  const std::int64_t n = g.out_bytes / itemsize(dtype);
  const std::optional<ReduceType> type = reduce_type(op, dtype);
  each_clique(
      g, {CollectiveKind::all_reduce, code_of(op, dtype)},
      [&](const Clique& clique, GroupTask& task) {
        if (!add_all(g, clique, task)) return;
        const auto size = static_cast<std::int64_t>(clique.size());
        if (type) {
          task.set_work(g.in_bytes * size, [type = *type, n](std::vector<Rank>& ranks) {
            Group group;
            for (const Rank& r : ranks) {
              check(
                  api().all_reduce(r.in, r.out, count_of(n), type.type, type.op, r.comm, r.stream),
                  "ncclAllReduce", r.comm);
            }
            end(group, ranks);
          });
          return;
        }
        task.gather_into_scratch(g.in_bytes * size);
        task.set_work(g.in_bytes * size, [op, dtype, n, bytes = g.in_bytes,
                                          order = mesh_order(g, clique)](std::vector<Rank>& ranks) {
          gather_bytes(ranks, bytes, &Rank::gathered);
          for (const Rank& r : ranks) combine_gathered(r, op, dtype, n, bytes, order);
        });
      });
  count_bytes(g);
}

void NcclCommunicator::all_gather(const GroupBlocks& g, const Interleaved& parts) {
  each_clique(g, {CollectiveKind::all_gather, code_of(parts)},
              [&](const Clique& clique, GroupTask& task) {
                if (!add_all(g, clique, task)) return;
                const auto size = static_cast<std::int64_t>(clique.size());
                if (parts.outer == 1) {
                  task.set_work(g.out_bytes * size, [bytes = g.in_bytes](std::vector<Rank>& ranks) {
                    gather_bytes(ranks, bytes, &Rank::out);
                  });
                  return;
                }
                task.gather_into_scratch(g.out_bytes);
                task.set_work(g.out_bytes * size,
                              [parts, size, bytes = g.in_bytes](std::vector<Rank>& ranks) {
                                gather_bytes(ranks, bytes, &Rank::gathered);
                                copy_pieces(ranks, size, pieces_box(parts, 1, size),
                                            &Rank::gathered, bytes, &Rank::out, parts.piece);
                              });
              });
  count_bytes(g);
}

void NcclCommunicator::reduce_scatter(const GroupBlocks& g, const Interleaved& parts, Reduction op,
                                      DType dtype) {
  const std::int64_t n = g.out_bytes / itemsize(dtype);
  const std::optional<ReduceType> type = reduce_type(op, dtype);
  each_clique(
      g, {CollectiveKind::reduce_scatter, code_of(parts, op, dtype)},
      [&](const Clique& clique, GroupTask& task) {
        if (!add_all(g, clique, task)) return;
        const bool packs = parts.outer != 1;
        if (packs) task.pack_into_scratch(g.in_bytes);
        if (!type) task.gather_into_scratch(g.in_bytes);
        const auto size = static_cast<std::int64_t>(clique.size());
        task.set_work(g.in_bytes * size, [=, bytes = g.out_bytes,
                                          order = mesh_order(g, clique)](std::vector<Rank>& ranks) {
          if (packs) {
            copy_pieces(ranks, size, pieces_box(parts, size, 1), &Rank::in, parts.piece,
                        &Rank::packed, bytes);
          }
          const auto from = [packs](const Rank& r) { return packs ? r.packed : r.in; };
          if (!type) {
            exchange_pieces(
                ranks, size, bytes, from, bytes, [](const Rank& r) { return r.gathered; }, bytes);
            for (const Rank& r : ranks) combine_gathered(r, op, dtype, n, bytes, order);
            return;
          }
          Group group;
          for (const Rank& r : ranks) {
            check(api().reduce_scatter(from(r), r.out, count_of(n), type->type, type->op, r.comm,
                                       r.stream),
                  "ncclReduceScatter", r.comm);
          }
          end(group, ranks);
        });
      });
  count_bytes(g);
}

void NcclCommunicator::all_to_all(const GroupBlocks& g, const Exchange& exchange) {
  const bool packs = !is_dense(exchange.box, exchange.box.src_stride);
  const bool unpacks = !is_dense(exchange.box, exchange.box.dst_stride);
  each_clique(
      g, {CollectiveKind::all_to_all, code_of(exchange)},
      [&](const Clique& clique, GroupTask& task) {
        if (!add_all(g, clique, task)) return;
        if (packs) task.pack_into_scratch(g.in_bytes);
        if (unpacks) task.gather_into_scratch(g.out_bytes);
        const auto size = static_cast<std::int64_t>(clique.size());
        task.set_work(
            g.out_bytes * size, [=, bytes = bytes_of(exchange.box)](std::vector<Rank>& ranks) {
              StridedCopy out = exchange.box, in = exchange.box;
              row_major_strides(out.rank, out.extent, out.itemsize, out.dst_stride);
              row_major_strides(in.rank, in.extent, in.itemsize, in.src_stride);
              if (packs)
                copy_pieces(ranks, size, out, &Rank::in, exchange.src_step, &Rank::packed, bytes);
              exchange_pieces(
                  ranks, size, bytes, [packs](const Rank& r) { return packs ? r.packed : r.in; },
                  packs ? bytes : exchange.src_step,
                  [unpacks](const Rank& r) { return unpacks ? r.gathered : r.out; },
                  unpacks ? bytes : exchange.dst_step);
              if (unpacks)
                copy_pieces(ranks, size, in, &Rank::gathered, bytes, &Rank::out, exchange.dst_step);
            });
      });
  count_bytes(g);
}

// A rank that keeps its own block shares it with its operand, and takes no part.
void NcclCommunicator::permute(const GroupBlocks& g, std::span<const int> source) {
  std::vector<int> target(source.size(), -1);
  std::int64_t moves = 0;
  for (std::size_t r = 0; r < source.size(); ++r) {
    if (source[r] < 0 || source[r] == static_cast<int>(r)) continue;
    target[static_cast<std::size_t>(source[r])] = static_cast<int>(r);
    ++moves;
  }
  struct Peers {
    int from, to;  // -1: none
  };
  each_clique(g, {CollectiveKind::permute, 0, source}, [&](const Clique& clique, GroupTask& task) {
    std::vector<Peers> peers;
    for (std::uint32_t r = 0; r < clique.size(); ++r) {
      const std::uint32_t p = clique[r];
      if (p == Cliques::kElsewhere) continue;
      if (source[r] == static_cast<int>(r)) {
        g.out[p] = g.in[p];
        continue;
      }
      Rank& rank = task.add(r);
      g.out[p] = task.write(rank, g.out_bytes);
      rank.out = address(g.out[p]);
      if (target[r] >= 0) {
        task.reads(g.in[p]);
        rank.in = address(g.in[p]);
      }
      peers.push_back({source[r], target[r]});
      task.note_move(source[r] >= 0 ? clique[static_cast<std::size_t>(source[r])]
                                    : static_cast<std::uint32_t>(Cliques::kElsewhere),
                     p);
    }
    if (g.out_bytes == 0) return;
    task.set_work(g.out_bytes * moves,
                  [peers, moves, bytes = g.out_bytes](std::vector<Rank>& ranks) {
                    for (std::size_t i = 0; i < ranks.size(); ++i) {
                      if (peers[i].from >= 0) continue;
                      const cuda::GpuScope gpu(ranks[i].gpu);
                      ops().zero(ranks[i].out, bytes, ranks[i].stream);
                    }
                    if (moves == 0) return;
                    Group group;
                    for (std::size_t i = 0; i < ranks.size(); ++i) {
                      const auto [from, to] = peers[i];
                      if (to >= 0) send(ranks[i].in, bytes, to, ranks[i]);
                      if (from >= 0) recv(ranks[i].out, bytes, from, ranks[i]);
                    }
                    end(group, ranks);
                  });
  });
  count(Counter::collective_bytes,
        g.out_bytes * moves * static_cast<std::int64_t>(g.cliques.cliques.size()));
}

// The source rank's result is its operand.
void NcclCommunicator::broadcast(const GroupBlocks& g, std::uint32_t root) {
  each_clique(g, {CollectiveKind::broadcast, root}, [&](const Clique& clique, GroupTask& task) {
    for (std::uint32_t r = 0; r < clique.size(); ++r) {
      if (clique[r] == Cliques::kElsewhere) continue;
      Rank& rank = task.add(r);
      if (r == root) {
        g.out[rank.position] = g.in[rank.position];
        task.reads(g.in[rank.position]);
      } else {
        g.out[rank.position] = task.write(rank, g.out_bytes);
      }
      rank.out = address(g.out[rank.position]);
    }
    if (g.out_bytes == 0) return;
    task.set_work(g.out_bytes * static_cast<std::int64_t>(clique.size() - 1),
                  [root, bytes = g.out_bytes](std::vector<Rank>& ranks) {
                    Group group;
                    for (const Rank& r : ranks) {
                      check(api().broadcast(r.out, r.out, count_of(bytes), ncclUint8,
                                            static_cast<int>(root), r.comm, r.stream),
                            "ncclBroadcast", r.comm);
                    }
                    end(group, ranks);
                  });
  });
  count(Counter::collective_bytes,
        g.out_bytes * static_cast<std::int64_t>((g.cliques.ranks - 1) * g.cliques.cliques.size()));
}

}  // namespace shmap::nccl
