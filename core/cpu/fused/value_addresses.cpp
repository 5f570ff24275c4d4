#include "core/cpu/fused/value_addresses.h"

#include <algorithm>
#include <map>
#include <utility>

namespace shmap::cpu {

namespace {

constexpr std::int64_t kPad = 64;  // bytes between buffers, so that they share no cache line
// The distance of larger buffers is an odd multiple of this. A load that follows a store in the
// program waits for it where their addresses are equal modulo 4096, as they would be for a buffer
// just behind another one.
constexpr std::int64_t kApart = 2048;

class ValuePlacing {
 public:
  ValuePlacing(int first_result, std::vector<LoweredValue>* values, FusedStepList* list)
      : first_result_(first_result), values_(*values), list_(*list) {}

  void run(std::span<const LoweredOp> ops) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      free_operands(ops[i], static_cast<int>(i));
      if (ops[i].result >= 0) place(value(ops[i].result));
    }
  }

 private:
  LoweredValue& value(int v) { return values_[static_cast<std::size_t>(v)]; }

  // A buffer of a full value is reused after the value's last read, by values of the same width
  // only, so that each column is read before it is overwritten.
  void free_operands(const LoweredOp& op, int at) {
    for (std::size_t k = 0; k < 3; ++k) {
      const int v = op.operands[k];
      if (v < 0 || std::find(op.operands, op.operands + k, v) != op.operands + k) continue;
      const LoweredValue& x = value(v);
      if (in_slot(x) && x.last_use == at) free_[slot_class(x)].push_back(x.address.offset);
    }
  }

  void place(LoweredValue& x) {
    const std::int64_t size = itemsize(x.dtype), tile = list_.tile_rows;
    if (x.result >= 0) {
      x.address = address_in_memory(list_, first_result_ + x.result, x.kind, size);
      return;
    }
    x.address.base = kFusedScratch;
    if (!in_slot(x)) {
      const std::int64_t n = x.kind == FusedKind::scalar ? 1
                             : x.tiled                   ? tile * list_.cols
                             : x.kind == FusedKind::col  ? list_.cols
                                                         : tile;
      x.address.offset = allocate(n * size);
      if (x.kind == FusedKind::col) x.address.col_stride = size;
      if (x.kind == FusedKind::row) x.address.tile_stride = size;
      if (x.tiled) x.address.tile_stride = list_.cols * size;
      return;
    }
    std::vector<std::int64_t>& slots = free_[slot_class(x)];
    const bool kept = slot_class(x).first;
    if (!slots.empty()) {
      x.address.offset = slots.back();
      slots.pop_back();
    } else {
      x.address.offset = allocate((kept ? list_.cols : tile * list_.block_cols) * size);
    }
    x.address.tile_stride = list_.cols * size;
    if (kept) x.address.col_stride = size;
  }

  std::int64_t allocate(std::int64_t bytes) {
    const std::int64_t at = list_.scratch;
    list_.scratch += bytes <= kApart ? (bytes + 63) / 64 * 64 + kPad
                                     : (bytes + kApart - 1) / (2 * kApart) * 2 * kApart + kApart;
    return at;
  }

  // True if the value is in a scratch buffer that several values use, one after another.
  static bool in_slot(const LoweredValue& x) {
    return x.kind == FusedKind::full && x.stage > 0 && x.result < 0;
  }
  // first: a later stage reads the value, so that it is kept for a whole row. second: its width.
  std::pair<bool, int> slot_class(const LoweredValue& x) const {
    return {list_.blocks > 1 && x.last_stage > x.stage, itemsize(x.dtype)};
  }

  const int first_result_;
  std::vector<LoweredValue>& values_;
  FusedStepList& list_;
  std::map<std::pair<bool, int>, std::vector<std::int64_t>> free_;  // offsets, by slot_class
};

}  // namespace

FusedAddress address_in_memory(const FusedStepList& list, int base, FusedKind kind,
                               std::int64_t size) {
  FusedAddress address;
  address.base = base;
  if (kind == FusedKind::full || kind == FusedKind::row) {
    address.row_stride = address.tile_stride = kind == FusedKind::full ? list.cols * size : size;
  }
  if (kind == FusedKind::full || kind == FusedKind::col) address.col_stride = size;
  return address;
}

void place_values(std::span<const LoweredOp> ops, int first_result,
                  std::vector<LoweredValue>* values, FusedStepList* list) {
  ValuePlacing(first_result, values, list).run(ops);
}

}  // namespace shmap::cpu
