// What the tasks of the in-process communicator do with addresses; they know no buffers and no
// devices.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "collectives/communicator.h"
#include "core/base/inline_vector.h"

namespace shmap {

// Parts are cut at multiples of this, so that none shares a cache line.
constexpr std::int64_t kGrainBytes = 4096;

// Addresses that move into a task; few of them need no heap.
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

// One part's share of n items, in multiples of `grain`.
std::pair<std::int64_t, std::int64_t> share(std::int64_t n, std::int64_t grain, int part,
                                            int parts);

// How pieces of `piece` bytes are copied where all results have `total`.
using CopyFn = decltype(DeviceOps::copy);
CopyFn copy_for(const DeviceOps& ops, std::int64_t piece, std::int64_t total);

// A reduce_scatter of one site, in parts.
struct ReduceScatter {
  const DeviceOps* ops;
  Reduction op;
  DType dtype;
  Interleaved parts;
  int ranks;
  std::span<const CliqueTable::Slot> slots;  // of the table, which lives for ever
  Addresses from, to;

  void run(int part, int part_count, void* native) const;

 private:
  // from[r] + offset for all r.
  void shift(InlineVector<const void*, 64>& at, std::int64_t offset) const;
  void reduce_at_once(void* native) const;
  void reduce_pieces(int part, int part_count, void* native) const;
  void reduce_rows(int part, int part_count, void* native) const;
};

// The copy of a box, made many times between different places: as one run, as a few long ones, or
// as the box that it is.
class PieceCopy {
 public:
  PieceCopy(const DeviceOps& ops, const BoxCopy& box);
  void choose(std::int64_t total);  // the bytes of all results
  void run(const std::byte* src, std::byte* dst, void* native) const;

 private:
  const DeviceOps* ops_;
  BoxCopy box_;
  std::int64_t run_;       // bytes that lie side by side in both places
  std::int64_t rows_ = 1;  // how many runs; 0 where they are no row of runs
  bool by_runs_ = false;
  CopyFn copy_ = nullptr;
};

}  // namespace shmap
