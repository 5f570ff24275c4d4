// Packs the lifetimes of a program's allocations into slabs.
#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
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

  bool wants_more() const { return kept > died; }
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

// With more than kSome allocations, short-lived ones are found in buckets of time: a list of all
// would be searched in quadratic time. Those that live as long as a kLongShare-th of all are better
// found in the list, which is sorted already. With more than kMany allocations, long-lived ones are
// placed first too, while the list is short.
constexpr std::size_t kSome = 256, kMany = 4096;
constexpr std::int64_t kLongLife = 256, kLongShare = 32, kBucket = 64;

// Places one piece after another.
class Packer {
 public:
  Packer(std::size_t pieces, std::int64_t end_of_time)
      : many_(pieces > kMany),
        long_(pieces > kSome ? std::min(kLongLife, static_cast<std::int64_t>(pieces) / kLongShare)
                             : 0) {
    if (long_ != 0) buckets_.resize(static_cast<std::size_t>(end_of_time / kBucket + 1));
  }

  // Whether pieces of that kind are placed after all others.
  bool waits(const Piece& p) const { return many_ && p.died - p.born <= kLongLife; }

  static constexpr std::int64_t kNoRoom = -1;
  // Returns the lowest offset that is free during the piece's whole life, and reserves it; kNoRoom
  // where the piece would end beyond `most` there.
  std::int64_t place(const Piece& p, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    near_.clear();
    const auto first = static_cast<std::size_t>(p.born / kBucket);
    const auto last = static_cast<std::size_t>((p.died - 1) / kBucket);
    if (long_ != 0) {
      for (std::size_t b = first; b <= last; ++b) {
        for (const Taken& t : buckets_[b]) {
          // A range that is in several of these buckets counts in the first of them.
          const auto begins = static_cast<std::size_t>(t.born / kBucket);
          if (meet(t, p) && std::max(begins, first) == b) near_.push_back(t);
        }
      }
      std::ranges::sort(near_, {}, &Taken::offset);
    }
    const std::int64_t offset = lowest(p);
    if (p.bytes > most - offset) return kNoRoom;
    const Taken taken{offset, offset + p.bytes, p.born, p.died};
    if (listed(p)) {
      list_.insert(std::ranges::upper_bound(list_, offset, {}, &Taken::offset), taken);
    } else {
      for (std::size_t b = first; b <= last; ++b) buckets_[b].push_back(taken);
    }
    return offset;
  }

 private:
  bool listed(const Piece& p) const { return long_ == 0 || p.died - p.born > long_; }
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
  const std::int64_t long_;                  // longer lives are in the list; 0 where all are
  std::vector<Taken> list_;                  // by offset
  std::vector<std::vector<Taken>> buckets_;  // by time; a range is in each bucket in which it lives
  std::vector<Taken> near_;                  // ranges that live at the same time as the current
                                             // piece, by offset
};

// The offset of each piece, in the order of the pieces, and the bytes of the slab that holds them.
struct Packed {
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
};

std::int64_t end_of_time(const std::vector<Piece>& pieces) {
  std::int64_t end = 0;
  for (const Piece& p : pieces) end = std::max(end, p.kept);
  return end;
}

// The order in which pieces are placed: the largest first.
std::vector<std::size_t> order_of(const std::vector<Piece>& pieces, const Packer& packer) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) {
    const Piece& p = pieces[i];
    return std::tuple(packer.waits(p), -p.bytes, p.born, i);
  });
  return order;
}

Packed pack(const std::vector<Piece>& pieces) {
  Packer packer(pieces.size(), end_of_time(pieces));
  Packed packed{std::vector<std::int64_t>(pieces.size())};
  for (const std::size_t i : order_of(pieces, packer)) {
    packed.offsets[i] = packer.place(pieces[i]);
    packed.bytes = std::max(packed.bytes, packed.offsets[i] + pieces[i].bytes);
  }
  return packed;
}

// The number of bytes that are alive at each time.
class Profile {
 public:
  explicit Profile(const std::vector<Piece>& pieces)
      : alive_(static_cast<std::size_t>(end_of_time(pieces)) + 1) {
    for (const Piece& p : pieces) {
      alive_[static_cast<std::size_t>(p.born)] += p.bytes;
      alive_[static_cast<std::size_t>(p.died)] -= p.bytes;
    }
    std::partial_sum(alive_.begin(), alive_.end(), alive_.begin());
  }
  // Adds `bytes` in [begin, end) if no more than `room` are alive then. Returns whether it did.
  bool add_within(std::int64_t room, std::int64_t bytes, std::int64_t begin, std::int64_t end) {
    const auto times = std::span(alive_).subspan(static_cast<std::size_t>(begin),
                                                 static_cast<std::size_t>(end - begin));
    if (std::ranges::any_of(times, [&](std::int64_t now) { return now + bytes > room; }))
      return false;
    for (std::int64_t& now : times) now += bytes;
    return true;
  }

 private:
  std::vector<std::int64_t> alive_;
};

// Extends the lives of the pieces that should stay longer, of each one that fits into `room` then.
std::vector<Piece> kept_within(std::int64_t room, std::vector<Piece> pieces) {
  Profile profile(pieces);
  for (Piece& p : pieces) {
    if (p.wants_more() && profile.add_within(room, p.bytes, p.died, p.kept)) p.died = p.kept;
  }
  return pieces;
}

std::int64_t wanting(const std::vector<Piece>& pieces) {
  std::int64_t bytes = 0;
  for (const Piece& p : pieces) bytes += p.wants_more() ? p.bytes : 0;
  return bytes;
}

// Packs pieces, some of which, the operands of collectives, should be kept for longer than they are
// alive, so that the collectives can overlap with other work. Two cases:
// - At least half of their bytes fit into the slab that is needed anyway: other values make its
//   peak. The pieces that fit are kept longer.
// - Less fits: the operands themselves make the peak, and no collective would overlap with
//   anything. All pieces are kept longer, in a larger slab.
Packed pack_kept(const std::vector<Piece>& pieces) {
  Packed plain = pack(pieces);
  const std::int64_t wanted = wanting(pieces);
  if (wanted == 0) return plain;
  Packed best;
  // Each further try leaves more of the slab to gaps between pieces.
  for (const std::int64_t sixteenths : {16, 15, 14, 12}) {
    const std::vector<Piece> some = kept_within(plain.bytes / 16 * sixteenths, pieces);
    if (2 * wanting(some) > wanted) break;
    Packed packed = pack(some);
    if (best.bytes == 0 || packed.bytes < best.bytes) best = std::move(packed);
    if (best.bytes <= plain.bytes) break;
  }
  return best.bytes != 0 ? best
                         : pack(kept_within(std::numeric_limits<std::int64_t>::max(), pieces));
}

// Adds slabs of at most `most` bytes that hold these pieces, which are all of one space.
void add_apart(MemoryLayout& layout, MemorySpace* space, std::vector<Piece> pieces,
               std::int64_t most) {
  for (Piece& p : pieces) p.died = p.kept;
  struct Small {
    std::size_t slab;
    Packer packer;
    std::vector<Piece> pieces;
  };
  const auto empty = [&] { return Packer(pieces.size(), end_of_time(pieces)); };
  std::vector<Small> open;
  for (const std::size_t i : order_of(pieces, empty())) {
    const Piece& p = pieces[i];
    std::int64_t offset = Packer::kNoRoom;
    std::size_t k = 0;
    while (k < open.size() && (offset = open[k].packer.place(p, most)) == Packer::kNoRoom) ++k;
    if (k == open.size()) {
      open.push_back({layout.slabs.size(), empty(), {}});
      layout.slabs.push_back({space, 0, 0});
      offset = open[k].packer.place(p);
    }
    open[k].pieces.push_back(p);
    MemoryLayout::Slab& slab = layout.slabs[open[k].slab];
    slab.bytes = std::max(slab.bytes, offset + p.bytes);
    layout.places[p.index].slab = static_cast<std::int32_t>(open[k].slab);
    layout.places[p.index].offset = offset;
  }
  for (const Small& small : open) layout.slabs[small.slab].lower_bound = most_alive(small.pieces);
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
  // Allocations in slabs of their own, by memory space and the most bytes of such a slab.
  std::vector<std::pair<std::pair<MemorySpace*, std::int64_t>, std::vector<Piece>>> apart;
  for (std::size_t i = 0; i < tape.size(); ++i) {
    const Allocation& a = tape[i];
    MemoryLayout::Allocation place{a.space, a.bytes, MemoryLayout::kEscapes, -1};
    const Piece piece{i, MemoryLayout::rounded(a.bytes), a.born, a.died, std::max(a.died, a.kept)};
    if (a.escapes()) {
      ++layout.escapes;
    } else if (a.apart != 0) {
      const std::pair key(a.space, a.apart);
      auto known = std::ranges::find(apart, key, [](const auto& entry) { return entry.first; });
      if (known == apart.end()) known = apart.insert(known, {key, {}});
      known->second.push_back(piece);
    } else {
      const auto known = std::ranges::find(layout.slabs, a.space, &MemoryLayout::Slab::space);
      place.slab = static_cast<std::int32_t>(known - layout.slabs.begin());
      if (known == layout.slabs.end()) {
        layout.slabs.push_back({a.space, 0, 0});
        pieces.emplace_back();
      }
      pieces[static_cast<std::size_t>(place.slab)].push_back(piece);
    }
    layout.places.push_back(place);
  }
  for (std::size_t s = 0; s < pieces.size(); ++s) {
    layout.slabs[s].lower_bound = most_alive(pieces[s]);
    const Packed packed = pack_kept(pieces[s]);
    layout.slabs[s].bytes = packed.bytes;
    for (std::size_t i = 0; i < pieces[s].size(); ++i)
      layout.places[pieces[s][i].index].offset = packed.offsets[i];
  }
  for (auto& [key, some] : apart) add_apart(layout, key.first, std::move(some), key.second);
  return layout;
}

}  // namespace shmap
