#include "core/cpu/kernels/sort/sort.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/element_type.h"
#include "core/base/thread_kept.h"
#include "core/cpu/kernels/sort/sort_keys.h"
#include "core/cpu/kernels/sort/sort_shared.h"
#include "shmap/error.h"
#include "shmap/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/sort/sort.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#include "core/cpu/kernels/sort/sort_items-inl.h"
#include "core/cpu/kernels/vector/compress-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

using std::int64_t;

// Lines of at least this length are sorted by digits (radix sort), which is then faster than
// comparing. `itemsize`: bytes of an element.
constexpr int64_t radix_from(int itemsize) { return 32 * itemsize; }

// A range of a line's sorted items: those that are not before `first` and that are before `last`.
template <class Key>
struct ItemRange {
  Item<Key> first = {0, 0};
  bool has_last = false;
  Item<Key> last = {0, 0};
};

// The range that part `part` of `parts` sorts. Its bounds are quantiles of a sample of items at
// even distances in the line, so that all parts get about as many items. key_at(i) returns the key
// of item i of `len`.
template <class Key, class KeyAt>
ItemRange<Key> range_of_part(int64_t len, int part, int parts, const KeyAt& key_at) {
  const int64_t samples = std::min<int64_t>(len, 256 * std::min(parts, 16));
  std::vector<Item<Key>> sampled(static_cast<std::size_t>(samples));
  for (int64_t k = 0; k < samples; ++k) {
    const int64_t i = len * k / samples;
    sampled[static_cast<std::size_t>(k)] = {key_at(i), static_cast<std::uint32_t>(i)};
  }
  std::sort(sampled.begin(), sampled.end());
  const auto bound = [&](int p) { return sampled[static_cast<std::size_t>(samples * p / parts)]; };
  ItemRange<Key> range;
  if (part > 0) range.first = bound(part);
  range.has_last = part + 1 < parts;
  if (range.has_last) range.last = bound(part + 1);
  return range;
}

// Takes the next items: keys[0 … n), with the indices from `index` on. Adds those in the range to
// items[*count …), which has room for kSpare more, and adds to *before the number below the range.
constexpr int64_t kSpare = 16;
template <class Key>
void add_items(const ItemRange<Key>& range, const Key* keys, int64_t index, int64_t n,
               Item<Key>* items, int64_t* count, int64_t* before) {
  int64_t k = 0, kept = *count, below = 0;
#if SHMAP_VECTORS
  if constexpr (sizeof(Key) == 4) {
    namespace hn = hwy::HWY_NAMESPACE;
    using D = hn::ScalableTag<std::uint32_t>;
    const D d;
    constexpr auto lanes = static_cast<int64_t>(hn::MaxLanes(D{}));
    static_assert(lanes <= kSpare);
    const auto first = hn::Set(d, range.first.key()), first_index = hn::Set(d, range.first.index());
    const auto last = hn::Set(d, range.last.key()), last_index = hn::Set(d, range.last.index());
    const auto unbounded = hn::Eq(hn::Set(d, range.has_last ? 1u : 0u), hn::Zero(d));
    auto at = hn::Iota(d, static_cast<std::uint32_t>(index));
    for (; k + lanes <= n; k += lanes) {
      const auto x = hn::LoadU(d, keys + k);
      // If keys are equal, the index decides.
      const auto is_below =
          hn::Or(hn::Lt(x, first), hn::And(hn::Eq(x, first), hn::Lt(at, first_index)));
      const auto is_early = hn::Or(
          unbounded, hn::Or(hn::Lt(x, last), hn::And(hn::Eq(x, last), hn::Lt(at, last_index))));
      const auto within = hn::And(is_early, hn::Not(is_below));
      const KeptLanes<D> lanes_kept(within);
      hn::StoreInterleaved2(lanes_kept.compressed(at), lanes_kept.compressed(x), d,
                            reinterpret_cast<std::uint32_t*>(items + kept));
      kept += lanes_kept.count;
      below += static_cast<int64_t>(hn::CountTrue(d, is_below));
      at = hn::Add(at, hn::Set(d, static_cast<std::uint32_t>(lanes)));
    }
  }
#endif
  for (; k < n; ++k) {  // without branches, which would be mispredicted
    const Item<Key> item = {keys[k], static_cast<std::uint32_t>(index + k)};
    const bool is_below = item < range.first;
    const bool is_late = range.has_last && !(item < range.last);
    items[kept] = item;
    kept += !(is_below | is_late);
    below += is_below;
  }
  *count = kept;
  *before += below;
}

// Memory that a thread keeps for the items of a line.
template <class Key>
class ItemRoom {
 public:
  // Returns two arrays of `count` items, uninitialised.
  std::pair<Item<Key>*, Item<Key>*> get(int64_t count) {
    const auto wanted = static_cast<std::size_t>(count);
    if (size_ < wanted) {
      items_.reset();
      other_.reset();
      items_ = std::make_unique_for_overwrite<Item<Key>[]>(wanted);
      other_ = std::make_unique_for_overwrite<Item<Key>[]>(wanted);
      size_ = wanted;
    }
    return {items_.get(), other_.get()};
  }
  // Frees the memory of long lines, which are rare.
  void trim() {
    if (size_ * sizeof(Item<Key>) <= kMostKept) return;
    items_.reset();
    other_.reset();
    size_ = 0;
  }
  std::uint32_t* counts() { return counts_; }

 private:
  static constexpr std::size_t kMostKept = 8 << 20;  // bytes
  std::unique_ptr<Item<Key>[]> items_, other_;
  std::size_t size_ = 0;
  std::uint32_t counts_[6 << kWidestDigit];  // for 64 bits: six digits of 11 bits, or eight of 8
};

// True if a line is 0, 1, 2 …, as the payload of argsort is. After the sort such a line holds the
// items' original positions, which the items have themselves, so that the line need not be read.
inline bool counts_up(const std::int32_t* line, int64_t len, int64_t inner) {
  constexpr int64_t kBlock = 256;
  for (int64_t i = 0; i < len; i += kBlock) {
    std::int32_t differs = 0;
    for (int64_t k = i; k < std::min(len, i + kBlock); ++k)
      differs |= line[k * inner] ^ static_cast<std::int32_t>(k);
    if (differs != 0) return false;
  }
  return true;
}

// The functions and constants of sort_lines that depend on the elements' type.
template <class Key>
struct Elements {
  int itemsize;
  bool float_like;
  Key ones;  // all bits of a narrow key
  // out[i] = the key of element first + i * step, each bit of `flip` flipped
  void (*load)(const void* elements, int64_t first, int64_t step, int64_t n, Key flip, Key* out);
  // to[first + i * step] = the element of items[i], computed from its key or read from the line,
  // which begins at from[line]
  void (*store)(const Item<Key>* items, int64_t n, Key flip, const void* from, int64_t line,
                void* to, int64_t first, int64_t step);
};

template <class T>
void load_keys(const void* elements, int64_t first, int64_t step, int64_t n, WideKey<T> flip,
               WideKey<T>* out) {
  const T* const from = static_cast<const T*>(elements) + first;
  for (int64_t i = 0; i < n; ++i) out[i] = sort_key(from[i * step]) ^ flip;
}

template <class T>
void store_elements(const Item<WideKey<T>>* items, int64_t n, WideKey<T> flip, const void* from,
                    int64_t line, void* to, int64_t first, int64_t step) {
  const T* const elements = static_cast<const T*>(from) + line;
  T* const out = static_cast<T*>(to) + first;
  for (int64_t i = 0; i < n; ++i) {
    const auto key = static_cast<SortKey<T>>(items[i].key() ^ flip);
    out[i * step] =
        key_tells_element<T>(key) ? element_of_key<T>(key) : elements[items[i].index() * step];
  }
}

// Sorts lines [begin, end), or only the items of part `part` of `parts` in each of them.
template <class Key>
void sort_lines(const SortPass& s, const Elements<Key>& elements, int64_t begin, int64_t end,
                int part, int parts) {
  constexpr int64_t kBlock = 1024;
  const int64_t len = s.len, inner = s.inner;
  ItemRoom<Key>& room = kept_by_thread<ItemRoom<Key>>();
  const auto [first_items, other_items] = room.get(len + kSpare);
  const Key flip = s.descending ? elements.ones : Key{0};
  std::vector<char> line;

  for (int64_t n = begin; n < end; ++n) {
    const int64_t base = n / inner * len * inner + n % inner;
    const auto load = [&](int64_t i, int64_t m, Key* out) {
      elements.load(s.keys, base + i * inner, inner, m, flip, out);
    };
    Item<Key>* items = first_items;
    int64_t count = len, before = 0;  // items in the range, and below it
    ItemRange<Key> range;
    if (parts > 1) {
      count = 0;
      range = range_of_part<Key>(len, part, parts, [&](int64_t i) {
        Key key;
        load(i, 1, &key);
        return key;
      });
    }
    Key block[kBlock];
    for (int64_t i = 0; i < len; i += kBlock) {
      const int64_t m = std::min(kBlock, len - i);
      load(i, m, block);
      if (parts > 1) {
        add_items(range, block, i, m, items, &count, &before);
      } else {
        for (int64_t k = 0; k < m; ++k)
          items[i + k] = {block[k], static_cast<std::uint32_t>(i + k)};
      }
    }
    if (count >= radix_from(elements.itemsize))
      items = radix_sort(items, other_items, count, room.counts());
    else
      std::sort(items, items + count);

    // Moves items[i] to position before + i of the line, through a copy if the line is read later.
    const auto permute = [&](const void* src, void* dst, int itemsize) {
      const auto run = [&](auto size) {
        const int64_t bytes = size;
        const char* const from = static_cast<const char*>(src) + base * bytes;
        char* const to = static_cast<char*>(dst) + (base + before * inner) * bytes;
        const auto move = [&](char* at, int64_t step) {
          for (int64_t i = 0; i < count; ++i) {
            std::memcpy(at + i * step, from + items[i].index() * inner * bytes,
                        static_cast<std::size_t>(bytes));
          }
        };
        if (src != dst) return move(to, inner * bytes);
        line.resize(static_cast<std::size_t>(len * bytes));
        move(line.data(), bytes);
        for (int64_t i = 0; i < count; ++i) {
          std::memcpy(to + i * inner * bytes, line.data() + i * bytes,
                      static_cast<std::size_t>(bytes));
        }
      };
      switch (itemsize) {
        case 1:
          return run(std::integral_constant<int64_t, 1>());
        case 2:
          return run(std::integral_constant<int64_t, 2>());
        case 4:
          return run(std::integral_constant<int64_t, 4>());
        case 8:
          return run(std::integral_constant<int64_t, 8>());
        default:
          return run(static_cast<int64_t>(itemsize));
      }
    };
    const auto store_indices = [&](void* dst) {
      std::int32_t* const to = static_cast<std::int32_t*>(dst) + base + before * inner;
      for (int64_t i = 0; i < count; ++i)
        to[i * inner] = static_cast<std::int32_t>(items[i].index());
    };
    // Looking up keys in a near cache is as fast as computing elements from keys.
    const bool is_near = len * elements.itemsize <= (16 << 10);
    if (is_near || (s.sorted == s.keys && elements.float_like)) {
      if (s.sorted != nullptr) permute(s.keys, s.sorted, elements.itemsize);
    } else if (s.sorted != nullptr) {  // computes most elements from keys, without a look-up
      elements.store(items, count, flip, s.keys, base, s.sorted, base + before * inner, inner);
    }
    if (s.indices != nullptr) store_indices(s.indices);
    for (const SortPayload& p : s.payloads) {
      if (p.itemsize == 4 && counts_up(static_cast<const std::int32_t*>(p.src) + base, len, inner))
        store_indices(p.dst);
      else
        permute(p.src, p.dst, p.itemsize);
    }
  }
  room.trim();
}

template <class T>
void sort_lines_of(const SortPass& s, int64_t begin, int64_t end, int part, int parts) {
  sort_lines<WideKey<T>>(s,
                         {static_cast<int>(sizeof(T)), is_float_like<T>,
                          static_cast<SortKey<T>>(~SortKey<T>{0}), load_keys<T>, store_elements<T>},
                         begin, end, part, parts);
}

SortLinesFn find_sort(DType dtype) {
  return with_plain(dtype, []<class T>() -> SortLinesFn { return sort_lines_of<Sorted<T>>; });
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_sort);

namespace {

using std::int64_t;

// Lines of at least this length are shared by several threads.
constexpr int64_t kSharedFrom = 32 << 10;

// True if parts may share lines: each part reads all keys of a line while others write.
bool may_share(const SortPass& s) {
  bool apart = s.len >= kSharedFrom && s.sorted != s.keys;
  for (const SortPayload& p : s.payloads) apart &= p.src != p.dst;
  return apart;
}

}  // namespace

void sort(const SortPass& s) { sort_part(s, 0, 1); }

int sort_parts(const SortPass& s, int workers) {
  const int64_t lines = s.outer * s.inner;
  const int64_t most = s.len >= kSharedFrom ? workers : std::min<int64_t>(workers, lines);
  return static_cast<int>(
      std::clamp<int64_t>(lines * s.len / kSortPart, 1, std::max<int64_t>(1, most)));
}

void sort_part(const SortPass& s, int part, int parts) {
  const SortLinesFn sort_lines = SHMAP_BEST(find_sort)(s.dtype);
  check_sort("sort", s.dtype, sort_lines != nullptr, s.len);
  const int64_t lines = s.outer * s.inner;
  const bool shared = lines < parts && may_share(s);
  const int64_t begin = shared ? 0 : lines * part / parts;
  const int64_t end = shared ? lines : lines * (part + 1) / parts;
  if (s.len > 0 && begin < end) sort_lines(s, begin, end, shared ? part : 0, shared ? parts : 1);
}

}  // namespace shmap::cpu
#endif
