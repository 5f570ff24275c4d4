// Packs the lifetimes of a program's allocations into slabs.
#include <algorithm>
#include <bit>
#include <iterator>
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

// Offsets that are taken: ranges in order, none of which touches another.
class Ranges {
 public:
  struct Range {
    std::int64_t begin, end;
  };
  std::span<const Range> all() const { return ranges_; }
  // Returns whether anything of the range was still free.
  bool add(std::int64_t begin, std::int64_t end) {
    const auto first = std::ranges::lower_bound(ranges_, begin, {}, &Range::end);
    if (first == ranges_.end() || first->begin > end) {
      ranges_.insert(first, {begin, end});
      return true;
    }
    if (first->begin <= begin && end <= first->end) return false;
    const auto after = std::ranges::upper_bound(first, ranges_.end(), end, {}, &Range::begin);
    first->begin = std::min(first->begin, begin);
    first->end = std::max(std::prev(after)->end, end);
    ranges_.erase(std::next(first), after);
    return true;
  }

 private:
  std::vector<Range> ranges_;
};

// Places one piece after another. What is taken stands in a segment tree over time, whose nodes are
// intervals of it: the life of a piece consists of a logarithmic number of them. In each node, what
// is taken is a few ranges, since pieces lie beside each other, however many there are.
class Packer {
 public:
  // `pieces`: all that may be placed.
  explicit Packer(const std::vector<Piece>& pieces) {
    for (const Piece& p : pieces) births_.push_back(p.born);
    std::ranges::sort(births_);
    leaves_ = std::bit_ceil(births_.size());
    nodes_.resize(2 * leaves_);
  }

  static constexpr std::int64_t kNoRoom = -1;
  // Returns the lowest offset that is free during the piece's whole life, and reserves it; kNoRoom
  // where the piece would end beyond `most` there.
  std::int64_t place(const Piece& p, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    const Life life{leaf(p.born), leaf(p.died) - 1};
    const std::int64_t offset = lowest(life, p.bytes);
    if (p.bytes > most - offset) return kNoRoom;
    reserve(life, offset, offset + p.bytes);
    return offset;
  }

 private:
  // Node 1 is the root, and the halves of node n are 2n and 2n + 1. A leaf is a birth: two lives
  // that meet have the later one's birth in common.
  struct Node {
    Ranges sometimes;  // taken by pieces that live at some time of the interval
    Ranges always;  // by pieces that live during all of it, and not during all of the next larger
  };
  struct Life {
    std::size_t first, last;  // leaves
  };

  std::size_t leaf(std::int64_t time) const {
    return leaves_ +
           static_cast<std::size_t>(std::ranges::lower_bound(births_, time) - births_.begin());
  }

  // Calls f for each of the largest nodes that lie within the life; together they are the life.
  template <class F>
  void for_each_node_of(const Life& life, F f) {
    for (std::size_t l = life.first, r = life.last + 1; l < r; l /= 2, r /= 2) {
      if (l % 2 != 0) f(nodes_[l++]);
      if (r % 2 != 0) f(nodes_[--r]);
    }
  }

  // A piece meets the life if it lives at some time of one of the life's nodes, or during all of a
  // node that contains one of them. Those contain the first or the last leaf of the life too.
  void find_taken(const Life& life) {
    taken_.clear();
    const auto add = [&](const Ranges& ranges) {
      if (!ranges.all().empty()) taken_.push_back(ranges.all());
    };
    for_each_node_of(life, [&](const Node& n) { add(n.sometimes); });
    for (std::size_t l = life.first, r = life.last; l > 0; l /= 2, r /= 2) {
      add(nodes_[l].always);
      if (r != l) add(nodes_[r].always);
    }
  }

  std::int64_t lowest(const Life& life, std::int64_t bytes) {
    find_taken(life);
    std::int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::span<const Ranges::Range>& rest : taken_) {
        while (!rest.empty() && rest.front().begin < offset + bytes) {
          if (rest.front().end > offset) {
            offset = rest.front().end;
            moved = true;
          }
          rest = rest.subspan(1);
        }
      }
    }
    return offset;
  }

  void reserve(const Life& life, std::int64_t begin, std::int64_t end) {
    // What is taken in a node is taken in those that contain it.
    for (const std::size_t from : {life.first, life.last})
      for (std::size_t n = from; n > 0 && nodes_[n].sometimes.add(begin, end); n /= 2) continue;
    for_each_node_of(life, [&](Node& n) {
      n.sometimes.add(begin, end);
      n.always.add(begin, end);
    });
  }

  std::vector<std::int64_t> births_;  // in order
  std::size_t leaves_;                // a power of two
  std::vector<Node> nodes_;
  std::vector<std::span<const Ranges::Range>> taken_;  // during the current piece's life
};

// The offset of each piece, in the order of the pieces, and the bytes of the slab that holds them.
struct Packed {
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
};

// The order in which pieces are placed: the largest first.
std::vector<std::size_t> order_of(const std::vector<Piece>& pieces) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) {
    const Piece& p = pieces[i];
    return std::tuple(-p.bytes, p.born, i);
  });
  return order;
}

Packed pack(const std::vector<Piece>& pieces) {
  Packer packer(pieces);
  Packed packed{std::vector<std::int64_t>(pieces.size())};
  for (const std::size_t i : order_of(pieces)) {
    packed.offsets[i] = packer.place(pieces[i]);
    packed.bytes = std::max(packed.bytes, packed.offsets[i] + pieces[i].bytes);
  }
  return packed;
}

// The number of bytes that are alive at each time.
class Profile {
 public:
  explicit Profile(const std::vector<Piece>& pieces) {
    std::int64_t end = 0;
    for (const Piece& p : pieces) end = std::max(end, p.kept);
    alive_.resize(static_cast<std::size_t>(end) + 1);
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
  std::vector<Small> open;
  for (const std::size_t i : order_of(pieces)) {
    const Piece& p = pieces[i];
    std::int64_t offset = Packer::kNoRoom;
    std::size_t k = 0;
    while (k < open.size() && (offset = open[k].packer.place(p, most)) == Packer::kNoRoom) ++k;
    if (k == open.size()) {
      open.push_back({layout.slabs.size(), Packer(pieces), {}});
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
