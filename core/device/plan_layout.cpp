// Packs the lifetimes of a program's allocations into slabs.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "core/device/plan_memory.h"

namespace shmap {
namespace {

struct Piece {
  std::size_t index;  // on the tape
  std::int64_t bytes, born, died;
  std::int64_t kept;  // at least `died`

  // The piece with the life that it should have.
  Piece with_wanted_life() const { return {index, bytes, born, kept, kept}; }
};

// A range of a slab that is in use.
struct Taken {
  std::int64_t offset, end, born, died;
};

std::int64_t most_alive(const std::vector<Piece>& pieces) {
  struct Change {
    std::int64_t time, bytes;
  };
  std::vector<Change> changes;
  changes.reserve(2 * pieces.size());
  for (const Piece& p : pieces) {
    changes.push_back({p.born, p.bytes});
    changes.push_back({p.died, -p.bytes});
  }
  // At equal times, deaths come before births.
  std::ranges::sort(changes, [](const Change& a, const Change& b) {
    return std::tie(a.time, a.bytes) < std::tie(b.time, b.bytes);
  });
  std::int64_t alive = 0, most = 0;
  for (const Change& c : changes) most = std::max(most, alive += c.bytes);
  return most;
}

// With more allocations than this, long-lived ones are placed first, and the others search for
// conflicts in buckets of time: otherwise planning would take seconds.
constexpr std::size_t kMany = 4096;
constexpr std::int64_t kLongLife = 256, kBucket = 64;

// Places one piece after another.
class Packer {
 public:
  Packer(std::size_t pieces, std::int64_t end_of_time) : many_(pieces > kMany) {
    if (many_) buckets_.resize(static_cast<std::size_t>(end_of_time / kBucket + 1));
  }

  bool listed(const Piece& p) const { return !many_ || p.died - p.born > kLongLife; }

  // The lowest offset that is free during the piece's whole life.
  std::int64_t find(const Piece& p) {
    near_.clear();
    if (!listed(p)) {
      for (std::size_t b = first_bucket(p); b <= last_bucket(p); ++b) {
        for (const Taken& t : buckets_[b]) {
          if (meet(t, p)) near_.push_back(t);
        }
      }
      std::ranges::sort(near_, {}, &Taken::offset);
    }
    return lowest(p);
  }

  void reserve(const Piece& p, std::int64_t offset) {
    const Taken taken{offset, offset + p.bytes, p.born, p.died};
    if (listed(p)) {
      list_.insert(std::ranges::upper_bound(list_, offset, {}, &Taken::offset), taken);
    } else {
      for (std::size_t b = first_bucket(p); b <= last_bucket(p); ++b) buckets_[b].push_back(taken);
    }
  }

 private:
  static std::size_t first_bucket(const Piece& p) {
    return static_cast<std::size_t>(p.born / kBucket);
  }
  static std::size_t last_bucket(const Piece& p) {
    return static_cast<std::size_t>((p.died - 1) / kBucket);
  }
  static bool meet(const Taken& t, const Piece& p) { return p.born < t.died && t.born < p.died; }

  // Merges both sorted lists up to the first gap that is large enough.
  std::int64_t lowest(const Piece& p) const {
    std::int64_t offset = 0;
    auto listed = list_.begin();
    auto near = near_.begin();
    for (;;) {
      while (listed != list_.end() && !meet(*listed, p)) ++listed;
      const bool from_list =
          listed != list_.end() && (near == near_.end() || listed->offset < near->offset);
      if (!from_list && near == near_.end()) return offset;
      const Taken& t = from_list ? *listed++ : *near++;
      if (t.offset >= offset + p.bytes) return offset;
      offset = std::max(offset, t.end);
    }
  }

  const bool many_;
  std::vector<Taken> list_;                  // by offset
  std::vector<std::vector<Taken>> buckets_;  // by time; a range is in each bucket in which it lives
  std::vector<Taken> near_;                  // ranges that live at the same time as the current
                                             // piece, by offset
};

// Offsets of pieces, and the bytes of the slab that has them.
struct Packed {
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
};

// Places the largest pieces first. A piece is kept as long as it should be where it then ends
// within `room` bytes.
Packed pack(std::vector<Piece>& pieces, std::int64_t room) {
  std::int64_t end_of_time = 0;
  for (const Piece& p : pieces) end_of_time = std::max(end_of_time, p.kept);
  Packer packer(pieces.size(), end_of_time);
  const auto key = [&](const Piece& p) {
    return std::tuple(!packer.listed(p), -p.bytes, p.born, p.index);
  };
  std::ranges::sort(pieces, {}, key);
  Packed packed;
  for (const Piece& p : pieces) {
    Piece placed = p.with_wanted_life();
    std::int64_t offset = packer.find(placed);
    if (offset + p.bytes > room) {
      placed = p;
      offset = packer.find(p);
    }
    packer.reserve(placed, offset);
    packed.offsets.push_back(offset);
    packed.bytes = std::max(packed.bytes, offset + p.bytes);
  }
  return packed;
}

// Returns the bytes of the slab.
std::int64_t pack(std::vector<Piece>& pieces, std::vector<MemoryLayout::Allocation>& places) {
  Packed packed = pack(pieces, 0);
  if (std::ranges::any_of(pieces, [](const Piece& p) { return p.kept > p.died; })) {
    Packed kept = pack(pieces, packed.bytes);
    if (kept.bytes <= packed.bytes) packed = std::move(kept);
  }
  for (std::size_t i = 0; i < pieces.size(); ++i)
    places[pieces[i].index].offset = packed.offsets[i];
  return packed.bytes;
}

}  // namespace

std::int64_t MemoryLayout::rounded(std::int64_t bytes) noexcept {
  return (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

std::vector<std::int64_t> MemoryLayout::escaping() const {
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].slab < 0) indices.push_back(static_cast<std::int64_t>(i));
  }
  return indices;
}

MemoryLayout plan_layout(std::span<const Allocation> tape) {
  MemoryLayout layout;
  layout.places.reserve(tape.size());
  std::vector<std::vector<Piece>> pieces;  // by slab
  for (std::size_t i = 0; i < tape.size(); ++i) {
    const Allocation& a = tape[i];
    MemoryLayout::Allocation place{a.space, a.bytes, MemoryLayout::kEscapes, -1};
    if (a.escapes()) {
      ++layout.escapes;
    } else {
      const auto known = std::ranges::find(layout.slabs, a.space, &MemoryLayout::Slab::space);
      place.slab = static_cast<std::int32_t>(known - layout.slabs.begin());
      if (known == layout.slabs.end()) {
        layout.slabs.push_back({a.space, 0, 0});
        pieces.emplace_back();
      }
      pieces[static_cast<std::size_t>(place.slab)].push_back(
          {i, MemoryLayout::rounded(a.bytes), a.born, a.died, std::max(a.died, a.kept)});
    }
    layout.places.push_back(place);
  }
  for (std::size_t s = 0; s < pieces.size(); ++s) {
    layout.slabs[s].lower_bound = most_alive(pieces[s]);
    layout.slabs[s].bytes = pack(pieces[s], layout.places);
  }
  return layout;
}

}  // namespace shmap
