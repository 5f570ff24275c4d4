// The work of the in-process communicator's tasks, on plain addresses, without buffers or devices.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "core/base/inline_vector.h"

namespace shmap {

// Work is divided at multiples of kGrainBytes, so that no two parts share a cache line.
constexpr std::int64_t kGrainBytes = 4096;

// A list of addresses that a task owns; up to kFew of them need no heap memory.
class Addresses {
 public:
  explicit Addresses(std::size_t n) {
    if (n > kFew) many_ = std::make_unique<std::byte*[]>(n);
  }
  std::byte*& operator[](std::size_t i) { return many_ ? many_[i] : few_[i]; }
  std::byte* operator[](std::size_t i) const { return many_ ? many_[i] : few_[i]; }
  const void* const* data() const {
    return reinterpret_cast<const void* const*>(many_ ? many_.get() : few_);
  }

 private:
  static constexpr std::size_t kFew = 16;
  std::byte* few_[kFew];
  std::unique_ptr<std::byte*[]> many_;
};

// The share [begin, end) of part `part` in n items, in multiples of `grain`.
std::pair<std::int64_t, std::int64_t> share(std::int64_t n, std::int64_t grain, int part,
                                            int parts);

// Estimates for a task that reads and writes `bytes` bytes: its time on one core, which decides
// whether the task is queued; and the number of parts into which it is divided among workers.
std::int64_t cost_ns_of(std::int64_t bytes);
int parts_of(std::int64_t bytes, const Backend& backend);

// The copy of one rank's pieces between blocks in which the pieces of src_ranks and of dst_ranks
// ranks are interleaved.
StridedCopy pieces_box(const Interleaved& layout, std::int64_t src_ranks, std::int64_t dst_ranks);

// The copy function for pieces of `piece` bytes where all results together have `total` bytes.
using CopyFn = decltype(DeviceOps::copy);
CopyFn copy_for(const DeviceOps& ops, std::int64_t piece, std::int64_t total);

// Equal results in several memory spaces: each byte is computed once, in the first of them, and
// copied into the others while it is in the cache. Each part of a task does so with its share.
class SameResults {
 public:
  // The results at `to`, of n items of `item` bytes each.
  SameResults(const DeviceOps& ops, Addresses to, std::size_t count, std::int64_t n,
              std::int64_t item);
  std::byte* first() const { return to_[0]; }

  // make(begin, end) writes these items of the first result.
  template <class Make>
  void write(int part, int parts, void* native, const Make& make) const {
    const auto [begin, end] =
        share(n_, std::max<std::int64_t>(1, kGrainBytes / item_), part, parts);
    for (std::int64_t at = begin; at < end; at += step_) {
      const std::int64_t stop = std::min(end, at + step_);
      make(at, stop);
      hand_out(at * item_, (stop - at) * item_, native);
    }
  }

 private:
  void hand_out(std::int64_t at, std::int64_t bytes, void* native) const;

  Addresses to_;
  std::size_t count_;
  std::int64_t n_, item_;
  std::int64_t step_;  // the items that are made before they are copied
  CopyFn copy_;
};

// An all_gather into the results of a team.
struct Gather {
  const DeviceOps* ops;
  Interleaved layout;
  std::uint32_t ranks;
  Addresses from;
  std::vector<bool> others;  // as from_other_spaces() says
  bool at_once;              // one kernel copies all blocks
  CopyFn copy;               // into the first result, past the caches if it is not read again
  SameResults to;

  // The results at `to`, in items that run() divides among its parts: bytes, or rows of the result
  // where a row's pieces are short, so that they are copied as boxes.
  static SameResults results(const DeviceOps& ops, const Interleaved& layout, std::uint32_t ranks,
                             Addresses to, std::size_t count);
  void run(int part, int parts, void* native) const;

 private:
  void copy_bytes(std::int64_t begin, std::int64_t end, void* native) const;
  void copy_rows(std::int64_t begin, std::int64_t end, void* native) const;
  void copy_at_once(void* native) const;
};

// A reduce_scatter of one target, which is split into parts.
struct ReduceScatter {
  const DeviceOps* ops;
  Reduction op;
  DType dtype;
  Interleaved parts;
  int ranks;
  std::span<const CliqueTable::RankBlock> rank_blocks;  // of the table, which is never freed
  Addresses from, to;

  void run(int part, int part_count, void* native) const;

 private:
  // Sets at[r] to from[r] + offset for all r.
  void shift(InlineVector<const void*, 64>& at, std::int64_t offset) const;
  void reduce_at_once(void* native) const;
  void reduce_pieces(int part, int part_count, void* native) const;
  void reduce_rows(int part, int part_count, void* native) const;
};

// Copies a box many times, between different addresses: as one contiguous run, as a few long runs,
// or as a strided box.
class PieceCopy {
 public:
  PieceCopy(const DeviceOps& ops, const StridedCopy& box);
  void choose(std::int64_t total);  // total: the bytes of all results
  void run(const std::byte* src, std::byte* dst, void* native) const;

 private:
  const DeviceOps* ops_;
  StridedCopy box_;
  std::int64_t run_;       // bytes that are contiguous in source and destination
  std::int64_t rows_ = 1;  // the number of such runs; 0 if they do not form one row
  bool by_runs_ = false;
  CopyFn copy_ = nullptr;
};

}  // namespace shmap
