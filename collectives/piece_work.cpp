#include "collectives/piece_work.h"

#include <algorithm>

namespace shmap {

namespace {

// Pieces smaller than kRowBytes are combined in whole rows, see reduce_rows. If a target needs only
// few of the pieces, most of a row is wasted.
constexpr std::int64_t kRowBytes = 1024;
constexpr std::int64_t kFewRowBytes = 128;
constexpr std::int64_t kScratchBytes = 12 << 10;
// Results of at least this total size are written past the caches, if their pieces have at least
// the second size.
constexpr std::int64_t kStreamBytes = 16 << 20;
constexpr std::int64_t kStreamPiece = 4096;
// So much of a result is made before it is copied to the other results: it should be in the cache
// then, and still be worth a call.
constexpr std::int64_t kHandOutBytes = 32 << 10;

// Merges dims that are contiguous in both source and destination.
void merge_dims(StridedCopy& box) {
  int kept = 0;
  for (int d = 0; d < box.rank; ++d) {
    if (box.extent[d] == 1) continue;
    const bool joins = kept > 0 && box.src_stride[kept - 1] == box.src_stride[d] * box.extent[d] &&
                       box.dst_stride[kept - 1] == box.dst_stride[d] * box.extent[d];
    const int at = joins ? kept - 1 : kept++;
    box.extent[at] = joins ? box.extent[at] * box.extent[d] : box.extent[d];
    box.src_stride[at] = box.src_stride[d];
    box.dst_stride[at] = box.dst_stride[d];
  }
  box.rank = kept;
}

}  // namespace

std::pair<std::int64_t, std::int64_t> share(std::int64_t n, std::int64_t grain, int part,
                                            int parts) {
  if (parts == 1) return {0, n};  // saves the divisions of a small task
  const std::int64_t units = (n + grain - 1) / grain;
  return {std::min(n, units * part / parts * grain),
          std::min(n, units * (part + 1) / parts * grain)};
}

std::int64_t cost_ns_of(std::int64_t bytes) {
  constexpr double kBytesPerNs = 20;
  return static_cast<std::int64_t>(static_cast<double>(bytes) / kBytesPerNs);
}

int parts_of(std::int64_t bytes, const Backend& backend) {
  constexpr std::int64_t kPartBytes = 256 << 10;
  const std::int64_t workers = std::max(backend.workers(), 1);
  return static_cast<int>(std::clamp(bytes / kPartBytes, std::int64_t{1}, workers));
}

StridedCopy pieces_box(const Interleaved& layout, std::int64_t src_ranks, std::int64_t dst_ranks) {
  StridedCopy box;
  box.rank = 2;
  box.itemsize = layout.itemsize;
  box.extent[0] = layout.outer;
  box.extent[1] = layout.piece / layout.itemsize;
  box.src_stride[0] = layout.piece * src_ranks;
  box.dst_stride[0] = layout.piece * dst_ranks;
  box.src_stride[1] = box.dst_stride[1] = layout.itemsize;
  return box;
}

CopyFn copy_for(const DeviceOps& ops, std::int64_t piece, std::int64_t total) {
  return piece >= kStreamPiece && total >= kStreamBytes ? ops.copy_streaming : ops.copy;
}

SameResults::SameResults(const DeviceOps& ops, Addresses to, std::size_t count, std::int64_t n,
                         std::int64_t item)
    : to_(std::move(to)),
      count_(count),
      n_(n),
      item_(item),
      step_(std::max<std::int64_t>(n, 1)),
      copy_(ops.copy_between_spaces) {
  if (count == 1 || copy_ != nullptr) return;
  step_ = std::max<std::int64_t>(1, kHandOutBytes / item);
  copy_ = copy_for(ops, std::min(step_, n) * item, n * item * static_cast<std::int64_t>(count));
}

void SameResults::hand_out(std::int64_t at, std::int64_t bytes, void* native) const {
  for (std::size_t i = 1; i < count_; ++i) copy_(to_[i] + at, to_[0] + at, bytes, native);
}

static bool by_bytes(const DeviceOps& ops, const Interleaved& layout) {
  // A GPU copies all rows of a block by one call.
  return layout.outer == 1 || (ops.copy_boxes == nullptr && layout.piece >= kStreamPiece);
}

SameResults Gather::results(const DeviceOps& ops, const Interleaved& layout, std::uint32_t ranks,
                            Addresses to, std::size_t count) {
  const std::int64_t row = layout.piece * ranks;
  return by_bytes(ops, layout) ? SameResults(ops, std::move(to), count, layout.outer * row, 1)
                               : SameResults(ops, std::move(to), count, layout.outer, row);
}

void Gather::run(int part, int parts, void* native) const {
  if (at_once) {
    if (part == 0)
      to.write(0, 1, native, [&](std::int64_t, std::int64_t) { copy_at_once(native); });
  } else if (by_bytes(*ops, layout)) {
    to.write(part, parts, native,
             [&](std::int64_t begin, std::int64_t end) { copy_bytes(begin, end, native); });
  } else {
    to.write(part, parts, native,
             [&](std::int64_t begin, std::int64_t end) { copy_rows(begin, end, native); });
  }
}

void Gather::copy_bytes(std::int64_t begin, std::int64_t end, void* native) const {
  std::int64_t k = begin / layout.piece;
  for (std::int64_t at = begin; at < end; ++k) {
    const std::int64_t stop = std::min(end, (k + 1) * layout.piece);
    const auto r = static_cast<std::size_t>(k % ranks);
    const std::byte* src = from[r] + k / ranks * layout.piece + (at - k * layout.piece);
    const CopyFn by = !others.empty() && others[r] ? ops->copy_between_spaces : copy;
    by(to.first() + at, src, stop - at, native);
    at = stop;
  }
}

void Gather::copy_rows(std::int64_t begin, std::int64_t end, void* native) const {
  StridedCopy box = pieces_box(layout, 1, ranks);
  box.extent[0] = end - begin;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    box.src = from[r] + begin * layout.piece;
    box.dst = to.first() + (begin * ranks + r) * layout.piece;
    ops->copy_box(box, 0, 1, native);
  }
}

void Gather::copy_at_once(void* native) const {
  InlineVector<void*, 64> out(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) out[r] = to.first() + r * layout.piece;
  ops->copy_boxes(pieces_box(layout, 1, ranks), from.data(), out.data(), static_cast<int>(ranks),
                  native);
}

void ReduceScatter::shift(InlineVector<const void*, 64>& at, std::int64_t offset) const {
  for (std::size_t r = 0; r < at.size(); ++r) at[r] = from[r] + offset;
}

void ReduceScatter::run(int part, int part_count, void* native) const {
  if (ops->combine_pieces) return reduce_at_once(native);
  const bool few = 2 * rank_blocks.size() <= static_cast<std::size_t>(ranks);
  if (parts.piece >= (few ? kFewRowBytes : kRowBytes) || (few && parts.outer == 1)) {
    reduce_pieces(part, part_count, native);
  } else {
    reduce_rows(part, part_count, native);
  }
}

// One call for the results of all ranks.
void ReduceScatter::reduce_at_once(void* native) const {
  const std::int64_t length = parts.piece / parts.itemsize;
  InlineVector<CombinedPiece, 16> pieces(rank_blocks.size());
  for (std::size_t i = 0; i < rank_blocks.size(); ++i)
    pieces[i] = {to[i], rank_blocks[i].rank * length};
  ops->combine_pieces(op, dtype, from.data(), ranks, {pieces.data(), pieces.size()}, parts.outer,
                      length, ranks * length, native);
}

// Long pieces: each is combined in place.
void ReduceScatter::reduce_pieces(int part, int part_count, void* native) const {
  InlineVector<const void*, 64> at(static_cast<std::size_t>(ranks));
  const std::int64_t length = parts.piece / parts.itemsize;
  const auto [begin, end] =
      share(parts.outer * length, kGrainBytes / parts.itemsize, part, part_count);
  for (std::size_t i = 0; i < rank_blocks.size(); ++i) {
    for (std::int64_t at_row = begin; at_row < end;) {
      const std::int64_t row = at_row / length;
      const std::int64_t stop = std::min(end, (row + 1) * length);
      shift(at, (row * ranks + rank_blocks[i].rank) * parts.piece);
      ops->combine(op, dtype, at.data(), ranks, to[i] + row * parts.piece, at_row - row * length,
                   stop - row * length, native);
      at_row = stop;
    }
  }
}

// Short pieces: a few whole rows are combined in a scratch buffer that stays in cache, and copied
// from there. A call per piece would cost more than its arithmetic.
void ReduceScatter::reduce_rows(int part, int part_count, void* native) const {
  InlineVector<const void*, 64> at(static_cast<std::size_t>(ranks));
  alignas(64) std::byte few[kScratchBytes];
  std::unique_ptr<std::byte[]> many;
  const std::int64_t row_bytes = ranks * parts.piece;
  const std::int64_t tile = std::max<std::int64_t>(1, kScratchBytes / row_bytes);
  if (row_bytes > kScratchBytes)
    many = std::make_unique<std::byte[]>(static_cast<std::size_t>(row_bytes));
  std::byte* scratch = many ? many.get() : few;
  const auto [begin, end] = share(parts.outer, tile, part, part_count);
  for (std::int64_t row = begin; row < end; row += tile) {
    const std::int64_t rows = std::min(tile, end - row);
    shift(at, row * row_bytes);
    ops->combine(op, dtype, at.data(), ranks, scratch, 0, rows * row_bytes / parts.itemsize,
                 native);
    StridedCopy box = pieces_box({rows, parts.piece, parts.itemsize}, ranks, 1);
    for (std::size_t i = 0; i < rank_blocks.size(); ++i) {
      box.src = scratch + rank_blocks[i].rank * parts.piece;
      box.dst = to[i] + row * parts.piece;
      if (rows == 1) {
        ops->copy(box.dst, box.src, parts.piece, native);
      } else {
        ops->copy_box(box, 0, 1, native);
      }
    }
  }
}

PieceCopy::PieceCopy(const DeviceOps& ops, const StridedCopy& box) : ops_(&ops), box_(box) {
  merge_dims(box_);
  const int inner = box_.rank - 1;
  run_ = box_.itemsize;
  if (box_.rank == 0) return;
  if (box_.src_stride[inner] == box_.itemsize && box_.dst_stride[inner] == box_.itemsize) {
    run_ *= box_.extent[inner];
    rows_ = box_.rank == 1 ? 1 : box_.rank == 2 ? box_.extent[0] : 0;
  } else {
    rows_ = 0;
  }
}

void PieceCopy::choose(std::int64_t total) {
  copy_ = copy_for(*ops_, run_, total);
  by_runs_ = rows_ == 1 || (rows_ > 1 && copy_ == ops_->copy_streaming);
}

void PieceCopy::run(const std::byte* src, std::byte* dst, void* native) const {
  if (!by_runs_) {
    StridedCopy box = box_;
    box.src = src;
    box.dst = dst;
    ops_->copy_box(box, 0, 1, native);
    return;
  }
  for (std::int64_t row = 0; row < rows_; ++row) {
    copy_(dst, src, run_, native);
    if (row + 1 == rows_) break;
    src += box_.src_stride[0];
    dst += box_.dst_stride[0];
  }
}

}  // namespace shmap
