// The work of the in-process communicator's tasks, on plain addresses, without buffers or devices.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

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
