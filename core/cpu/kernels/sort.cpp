#include "core/cpu/kernels/sort.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/element_type.h"
#include "core/cpu/kernels/sort_keys.h"
#include "shmap/error.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

using std::int64_t;

constexpr int64_t kPartElements = 16 << 10;  // less is not worth another thread
constexpr int64_t kFewLargest = 32;          // up to this k, the largest are kept in order

// From this length on, counting digits beats comparing.
template <class Key>
constexpr int64_t kRadixFrom = 32 * static_cast<int64_t>(sizeof(Key));

// A key and where it came from: with both compared, no two items are equal, and every sort is
// stable.
template <class Key>
struct Item {
  Key key;
  std::uint32_t index;
  friend bool operator<(const Item& a, const Item& b) {
    return a.key != b.key ? a.key < b.key : a.index < b.index;
  }
};

// Least significant digit first; digits that all keys share are skipped.
template <class Key>
void radix_sort(Item<Key>* items, Item<Key>* other, int64_t count) {
  constexpr int digits = static_cast<int>(sizeof(Key));
  std::vector<std::uint32_t> counts(static_cast<std::size_t>(digits) * 256);
  for (int64_t i = 0; i < count; ++i)
    for (int d = 0; d < digits; ++d)
      ++counts[static_cast<std::size_t>(d) * 256 + (items[i].key >> (8 * d) & 255)];
  Item<Key>* const home = items;
  for (int d = 0; d < digits; ++d) {
    std::uint32_t* const digit = counts.data() + d * 256;
    if (digit[items[0].key >> (8 * d) & 255] == static_cast<std::uint32_t>(count)) continue;
    std::uint32_t sum = 0;
    for (int v = 0; v < 256; ++v) {
      const std::uint32_t here = digit[v];
      digit[v] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < count; ++i) other[digit[items[i].key >> (8 * d) & 255]++] = items[i];
    std::swap(items, other);
  }
  if (items != home) std::copy(items, items + count, home);
}

// Memory for one line, kept between lines.
template <class Key>
struct Lines {
  std::vector<Item<Key>> items, other;
  std::vector<char> line;
};

template <class T>
void sort_lines(const SortPass& s, int64_t begin, int64_t end) {
  using Key = SortKey<T>;
  const int64_t len = s.len, inner = s.inner;
  Lines<Key> memory;
  memory.items.resize(static_cast<std::size_t>(len));
  if (len >= kRadixFrom<Key>) memory.other.resize(static_cast<std::size_t>(len));
  Item<Key>* const items = memory.items.data();
  const auto* const keys = static_cast<const T*>(s.keys);

  // item[i] of the line goes where items[i].index points; through a copy, since src may be dst.
  const auto permute = [&](const void* src, void* dst, int itemsize, int64_t base) {
    memory.line.resize(static_cast<std::size_t>(len * itemsize));
    char* const line = memory.line.data();
    const auto run = [&](auto size) {
      const int64_t bytes = size;
      const char* const from = static_cast<const char*>(src) + base * bytes;
      char* const to = static_cast<char*>(dst) + base * bytes;
      for (int64_t i = 0; i < len; ++i) {
        std::memcpy(line + i * bytes, from + items[i].index * inner * bytes,
                    static_cast<std::size_t>(bytes));
      }
      for (int64_t i = 0; i < len; ++i)
        std::memcpy(to + i * inner * bytes, line + i * bytes, static_cast<std::size_t>(bytes));
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

  for (int64_t n = begin; n < end; ++n) {
    const int64_t base = n / inner * len * inner + n % inner;
    for (int64_t i = 0; i < len; ++i) {
      const Key key = sort_key(keys[base + i * inner]);
      items[i] = {s.descending ? static_cast<Key>(~key) : key, static_cast<std::uint32_t>(i)};
    }
    if (len >= kRadixFrom<Key>)
      radix_sort(items, memory.other.data(), len);
    else
      std::sort(items, items + len);
    if (s.sorted != nullptr) permute(s.keys, s.sorted, sizeof(T), base);
    if (s.indices != nullptr) {
      for (int64_t i = 0; i < len; ++i)
        s.indices[base + i * inner] = static_cast<std::int32_t>(items[i].index);
    }
    for (const SortPayload& p : s.payloads) permute(p.src, p.dst, p.itemsize, base);
  }
}

// best[0 … k) become the k largest of a row, by insertion: most items are only compared with the
// last.
template <class T>
void few_largest(const T* row, int64_t len, int64_t k, Item<SortKey<T>>* best) {
  using Key = SortKey<T>;
  for (int64_t i = 0; i < len; ++i) {
    const Key key = static_cast<Key>(~sort_key(row[i]));
    int64_t at = std::min(i, k);
    if (at == k && !(key < best[k - 1].key)) continue;
    if (at == k) --at;
    for (; at > 0 && key < best[at - 1].key; --at) best[at] = best[at - 1];
    best[at] = {key, static_cast<std::uint32_t>(i)};
  }
}

template <class T>
void top_k_rows(const TopK& t, int64_t begin, int64_t end) {
  using Key = SortKey<T>;
  std::vector<Item<Key>> items(static_cast<std::size_t>(t.k <= kFewLargest ? t.k : t.len));
  for (int64_t n = begin; n < end; ++n) {
    const T* const row = static_cast<const T*>(t.in) + n * t.len;
    if (t.k <= kFewLargest) {
      few_largest(row, t.len, t.k, items.data());
    } else {
      for (int64_t i = 0; i < t.len; ++i)
        items[static_cast<std::size_t>(i)] = {static_cast<Key>(~sort_key(row[i])),
                                              static_cast<std::uint32_t>(i)};
      const auto kth = items.begin() + t.k;
      if (t.k < t.len) std::nth_element(items.begin(), kth, items.end());
      std::sort(items.begin(), kth);
    }
    for (int64_t i = 0; i < t.k; ++i) {
      const std::uint32_t from = items[static_cast<std::size_t>(i)].index;
      if (t.values != nullptr) static_cast<T*>(t.values)[n * t.k + i] = row[from];
      if (t.indices != nullptr) t.indices[n * t.k + i] = static_cast<std::int32_t>(from);
    }
  }
}

// f(T{}) with T the C++ type of t; bools are sorted as bytes.
template <class F>
void with_type(DType t, const char* what, const F& f) {
  if (t == prng_key) throw TypeError(std::string(what) + ": " + short_name(t) + " has no order");
  with_plain(t,
             [&]<class T>() { f(std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>{}); });
}

void check_length(int64_t len, const char* what) {
  if (len > INT32_MAX) {
    throw ValueError(std::string(what) + ": a dim of " + std::to_string(len) +
                     " items passes 2^31 - 1, the most that i32 indices can tell apart");
  }
}

}  // namespace

void sort(const SortPass& s) { sort_part(s, 0, 1); }

int sort_parts(const SortPass& s, int workers) {
  const int64_t lines = s.outer * s.inner;
  const int64_t most = std::max<int64_t>(1, std::min<int64_t>(workers, lines));
  return static_cast<int>(std::clamp<int64_t>(lines * s.len / kPartElements, 1, most));
}

void sort_part(const SortPass& s, int part, int parts) {
  check_length(s.len, "sort");
  const int64_t lines = s.outer * s.inner;
  const int64_t begin = lines * part / parts, end = lines * (part + 1) / parts;
  with_type(s.dtype, "sort", [&](auto type) {
    if (s.len > 0 && begin < end) sort_lines<decltype(type)>(s, begin, end);
  });
}

void top_k(const TopK& t) { top_k_part(t, 0, 1); }

int top_k_parts(const TopK& t, int workers) {
  const int64_t most = std::max<int64_t>(1, std::min<int64_t>(workers, t.outer));
  return static_cast<int>(std::clamp<int64_t>(t.outer * t.len / kPartElements, 1, most));
}

void top_k_part(const TopK& t, int part, int parts) {
  check_length(t.len, "top_k");
  const int64_t begin = t.outer * part / parts, end = t.outer * (part + 1) / parts;
  with_type(t.dtype, "top_k", [&](auto type) {
    if (t.k > 0 && begin < end) top_k_rows<decltype(type)>(t, begin, end);
  });
}

}  // namespace shmap::cpu
