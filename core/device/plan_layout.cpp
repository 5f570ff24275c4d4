// Packs the lifetimes of a program's allocations into slabs.
#include <algorithm>
#include <tuple>
#include <vector>

#include "core/device/plan_memory.h"

namespace shmap {
namespace {

struct Piece {
  std::size_t index;  // on the tape
  std::int64_t bytes, born, died;
};

// In a slab; ordered by offset.
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
  // At one time those that die go first.
  std::ranges::sort(changes, [](const Change& a, const Change& b) {
    return std::tie(a.time, a.bytes) < std::tie(b.time, b.bytes);
  });
  std::int64_t alive = 0, most = 0;
  for (const Change& c : changes) most = std::max(most, alive += c.bytes);
  return most;
}

// The largest first, each at the lowest offset that is free for all its life. Returns the bytes of
// the slab.
std::int64_t pack(std::vector<Piece>& pieces, std::vector<MemoryLayout::Place>& places) {
  std::ranges::sort(pieces, [](const Piece& a, const Piece& b) {
    return std::tuple(-a.bytes, a.born, a.index) < std::tuple(-b.bytes, b.born, b.index);
  });
  std::vector<Taken> taken;
  taken.reserve(pieces.size());
  std::int64_t slab = 0;
  for (const Piece& p : pieces) {
    std::int64_t offset = 0;
    for (const Taken& t : taken) {
      if (t.died <= p.born || p.died <= t.born) continue;
      if (t.offset >= offset + p.bytes) break;
      offset = std::max(offset, t.end);
    }
    places[p.index].offset = offset;
    const auto at = std::ranges::upper_bound(taken, offset, {}, &Taken::offset);
    taken.insert(at, {offset, offset + p.bytes, p.born, p.died});
    slab = std::max(slab, offset + p.bytes);
  }
  return slab;
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
    MemoryLayout::Place place{a.space, a.bytes, MemoryLayout::kEscapes, -1};
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
          {i, MemoryLayout::rounded(a.bytes), a.born, a.died});
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
