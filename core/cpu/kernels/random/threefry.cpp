#include "core/cpu/kernels/random/threefry.h"

#include <cstddef>
#include <cstring>

#include "core/cpu/kernels/vector/non_temporal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/random/threefry.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

using Word = std::uint32_t;
constexpr Word kParity = 0x1BD11BDA;

inline Word sum(Word a, Word b) { return a + b; }
inline Word sum_with(Word a, Word n) { return a + n; }
inline Word third_key(Word k0, Word k1) { return k0 ^ k1 ^ kParity; }
template <int r>
inline void round_of(Word& x0, Word& x1) {
  x0 += x1;
  x1 = x1 << r | x1 >> (32 - r);
  x1 ^= x0;
}

#if SHMAP_VECTORS
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<Word>;
using V = hn::Vec<D>;
constexpr std::int64_t kLanes = hn::MaxLanes(D{});
constexpr std::int64_t kGroup = 4 * kLanes;

HWY_INLINE V sum(V a, V b) { return hn::Add(a, b); }
HWY_INLINE V sum_with(V a, Word n) { return hn::Add(a, hn::Set(D{}, n)); }
HWY_INLINE V third_key(V k0, V k1) { return hn::Xor(hn::Xor(k0, k1), hn::Set(D{}, kParity)); }
template <int r>
HWY_INLINE void round_of(V& x0, V& x1) {
  x0 = hn::Add(x0, x1);
  x1 = hn::Xor(hn::RotateRight<32 - r>(x1), x0);
}
#endif

// Hashes the two words of a count under the two words of a key. T: Word, or V for a key and a count
// in each lane.
template <class T>
inline void hash(T k0, T k1, T& x0, T& x1) {
  const T k2 = third_key(k0, k1);
  const auto inject = [&](T a, T b, Word n) { x0 = sum(x0, a), x1 = sum(x1, sum_with(b, n)); };
  const auto first_four = [&] {
    round_of<13>(x0, x1), round_of<15>(x0, x1), round_of<26>(x0, x1), round_of<6>(x0, x1);
  };
  const auto other_four = [&] {
    round_of<17>(x0, x1), round_of<29>(x0, x1), round_of<16>(x0, x1), round_of<24>(x0, x1);
  };
  inject(k0, k1, 0);
  first_four();
  inject(k1, k2, 1);
  other_four();
  inject(k2, k0, 2);
  first_four();
  inject(k0, k1, 3);
  other_four();
  inject(k1, k2, 4);
  first_four();
  inject(k2, k0, 5);
}

template <DType to>
inline void put_one(Word x0, Word x1, std::byte* out) {
  const auto put = [&](auto value) { std::memcpy(out, &value, sizeof value); };
  if constexpr (to == DType::u8)
    put(static_cast<std::uint8_t>(x0 ^ x1));
  else if constexpr (to == DType::u16)
    put(static_cast<std::uint16_t>(x0 ^ x1));
  else if constexpr (to == DType::u32)
    put(x0 ^ x1);
  else if constexpr (to == DType::u64)
    put(std::uint64_t{x0} << 32 | x1);
  else
    std::memcpy(out, &x0, sizeof x0), std::memcpy(out + sizeof x0, &x1, sizeof x1);
}

template <DType to>
constexpr std::int64_t kItem = itemsize(to);

#if SHMAP_VECTORS
// Four vectors of hashes: the instructions of one vector run while those of another wait.
struct Four {
  V a0, a1, b0, b1, c0, c1, d0, d1;
};
template <int r>
HWY_INLINE void rounds(Four& x) {
  round_of<r>(x.a0, x.a1);
  round_of<r>(x.b0, x.b1);
  round_of<r>(x.c0, x.c1);
  round_of<r>(x.d0, x.d1);
}
HWY_INLINE void inject(Four& x, V k0, V k1) {
  x.a0 = hn::Add(x.a0, k0), x.a1 = hn::Add(x.a1, k1);
  x.b0 = hn::Add(x.b0, k0), x.b1 = hn::Add(x.b1, k1);
  x.c0 = hn::Add(x.c0, k0), x.c1 = hn::Add(x.c1, k1);
  x.d0 = hn::Add(x.d0, k0), x.d1 = hn::Add(x.d1, k1);
}

template <DType to, bool around>
HWY_INLINE void put(V x0, V x1, std::byte* out) {
  const D d;
  const auto words = reinterpret_cast<Word*>(out);
  if constexpr (to == DType::u32) {
    if constexpr (around)
      hn::Stream(hn::Xor(x0, x1), d, words);
    else
      hn::StoreU(hn::Xor(x0, x1), d, words);
  } else if constexpr (to == DType::u64) {
    hn::StoreInterleaved2(x1, x0, d, words);  // little-endian: the low word comes first
  } else if constexpr (to == DType::prng_key) {
    hn::StoreInterleaved2(x0, x1, d, words);
  } else if constexpr (to == DType::u16) {
    const hn::Rebind<std::uint16_t, D> half;
    hn::StoreU(hn::TruncateTo(half, hn::Xor(x0, x1)), half, reinterpret_cast<std::uint16_t*>(out));
  } else {
    const hn::Rebind<std::uint8_t, D> quarter;
    hn::StoreU(hn::TruncateTo(quarter, hn::Xor(x0, x1)), quarter,
               reinterpret_cast<std::uint8_t*>(out));
  }
}

// Hashes n counts, a multiple of kGroup, that have the same high word.
template <DType to, bool around>
void run_groups(const Word* key, Word high, Word low, std::byte* out, std::int64_t n) {
  const D d;
  const Word w0 = key[0], w1 = key[1], w2 = w0 ^ w1 ^ kParity;
  const V k0 = hn::Set(d, w0), k1 = hn::Set(d, w1), k2 = hn::Set(d, w2);
  const V start = hn::Set(d, high + w0);
  const V k2_1 = hn::Set(d, w2 + 1), k0_2 = hn::Set(d, w0 + 2), k1_3 = hn::Set(d, w1 + 3),
          k2_4 = hn::Set(d, w2 + 4), k0_5 = hn::Set(d, w0 + 5);
  const V step = hn::Set(d, static_cast<Word>(kLanes));
  V count = hn::Add(hn::Iota(d, low), k1);
  constexpr std::int64_t kBytes = kLanes * kItem<to>;
  for (std::int64_t i = 0; i < n; i += kGroup, out += 4 * kBytes) {
    Four x;
    x.a0 = x.b0 = x.c0 = x.d0 = start;
    x.a1 = count;
    x.b1 = count = hn::Add(count, step);
    x.c1 = count = hn::Add(count, step);
    x.d1 = count = hn::Add(count, step);
    count = hn::Add(count, step);
    rounds<13>(x), rounds<15>(x), rounds<26>(x), rounds<6>(x);
    inject(x, k1, k2_1);
    rounds<17>(x), rounds<29>(x), rounds<16>(x), rounds<24>(x);
    inject(x, k2, k0_2);
    rounds<13>(x), rounds<15>(x), rounds<26>(x), rounds<6>(x);
    inject(x, k0, k1_3);
    rounds<17>(x), rounds<29>(x), rounds<16>(x), rounds<24>(x);
    inject(x, k1, k2_4);
    rounds<13>(x), rounds<15>(x), rounds<26>(x), rounds<6>(x);
    inject(x, k2, k0_5);
    put<to, around>(x.a0, x.a1, out);
    put<to, around>(x.b0, x.b1, out + kBytes);
    put<to, around>(x.c0, x.c1, out + 2 * kBytes);
    put<to, around>(x.d0, x.d1, out + 3 * kBytes);
  }
}

// A vector of keys, and their counts. Of less than a whole vector, the other lanes are hashed too.
template <DType to>
HWY_INLINE void run_keys(const ThreefryKeys& keys, std::int64_t i, std::int64_t n,
                         std::uint64_t offset) {
  const D d;
  V k0, k1, high, low;
  if (n == kLanes && keys.key_step == 2 * sizeof(Word)) {
    hn::LoadInterleaved2(d, reinterpret_cast<const Word*>(keys.key) + 2 * i, k0, k1);
  } else {
    alignas(64) Word words[2 * kLanes] = {};
    for (std::int64_t j = 0; j < n; ++j)
      std::memcpy(words + 2 * j, keys.key + (i + j) * keys.key_step, 2 * sizeof(Word));
    hn::LoadInterleaved2(d, words, k0, k1);
  }
  if (keys.first == nullptr) {
    high = hn::Set(d, static_cast<Word>(offset >> 32));
    low = hn::Set(d, static_cast<Word>(offset));
  } else {
    alignas(64) Word words[2 * kLanes] = {};
    for (std::int64_t j = 0; j < n; ++j) {
      std::uint64_t count;
      std::memcpy(&count, keys.first + (i + j) * keys.first_step, sizeof count);
      count += offset;
      words[j] = static_cast<Word>(count >> 32), words[kLanes + j] = static_cast<Word>(count);
    }
    high = hn::Load(d, words), low = hn::Load(d, words + kLanes);
  }
  hash(k0, k1, high, low);
  std::byte* const out = keys.out + i * keys.out_step;
  if (n == kLanes && keys.out_step == kItem<to>) return put<to, false>(high, low, out);
  alignas(64) std::byte elements[kLanes * kItem<to>];
  put<to, false>(high, low, elements);
  for (std::int64_t j = 0; j < n; ++j)
    std::memcpy(out + j * keys.out_step, elements + j * kItem<to>, kItem<to>);
}
#endif

template <DType to>
void run_each(const ThreefryKeys& keys, std::uint64_t offset) {
#if SHMAP_VECTORS
  std::int64_t i = 0;
  for (; i + kLanes <= keys.n; i += kLanes) run_keys<to>(keys, i, kLanes, offset);
  if (i < keys.n) run_keys<to>(keys, i, keys.n - i, offset);
#else
  for (std::int64_t i = 0; i < keys.n; ++i) {
    Word key[2];
    std::uint64_t count = 0;
    std::memcpy(key, keys.key + i * keys.key_step, sizeof key);
    if (keys.first) std::memcpy(&count, keys.first + i * keys.first_step, sizeof count);
    count += offset;
    Word x0 = static_cast<Word>(count >> 32), x1 = static_cast<Word>(count);
    hash(key[0], key[1], x0, x1);
    put_one<to>(x0, x1, keys.out + i * keys.out_step);
  }
#endif
}

template <DType to>
void run_piece(const Word* key, Word high, Word low, std::byte* out, std::int64_t n, bool around) {
#if SHMAP_VECTORS
  if (n >= kLanes) {
    const std::int64_t whole = n / kGroup * kGroup;
    if (around && to == DType::u32 && reinterpret_cast<std::uintptr_t>(out) % 64 == 0)
      run_groups<to, to == DType::u32>(key, high, low, out, whole);
    else
      run_groups<to, false>(key, high, low, out, whole);
    if (whole == n) return;
    // Computes a whole group in a buffer, and copies the elements that are wanted.
    alignas(64) std::byte rest[kGroup * kItem<to>];
    run_groups<to, false>(key, high, low + static_cast<Word>(whole), rest, kGroup);
    std::memcpy(out + whole * kItem<to>, rest, static_cast<std::size_t>((n - whole) * kItem<to>));
    return;
  }
#endif
  (void)around;
  for (std::int64_t i = 0; i < n; ++i) {
    Word x0 = high, x1 = low + static_cast<Word>(i);
    hash(key[0], key[1], x0, x1);
    put_one<to>(x0, x1, out + i * kItem<to>);
  }
}

template <DType to>
void run(const Word* key, std::uint64_t first, std::byte* out, std::int64_t n, bool around) {
  constexpr std::uint64_t kCycle = std::uint64_t{1} << 32;
  while (n > 0) {
    const std::uint64_t left = kCycle - first % kCycle;  // counts that have this high word
    const std::int64_t piece =
        left < static_cast<std::uint64_t>(n) ? static_cast<std::int64_t>(left) : n;
    run_piece<to>(key, static_cast<Word>(first >> 32), static_cast<Word>(first), out, piece,
                  around);
    first += static_cast<std::uint64_t>(piece);
    out += piece * kItem<to>;
    n -= piece;
  }
}

void bits(DType to, const Word* key, std::uint64_t first, std::byte* out, std::int64_t n,
          bool around) {
  switch (to) {
    case DType::u8:
      return run<DType::u8>(key, first, out, n, around);
    case DType::u16:
      return run<DType::u16>(key, first, out, n, around);
    case DType::u32:
      return run<DType::u32>(key, first, out, n, around);
    case DType::u64:
      return run<DType::u64>(key, first, out, n, around);
    default:
      return run<DType::prng_key>(key, first, out, n, around);
  }
}

void each(DType to, const ThreefryKeys& keys, std::uint64_t offset) {
  switch (to) {
    case DType::u8:
      return run_each<DType::u8>(keys, offset);
    case DType::u16:
      return run_each<DType::u16>(keys, offset);
    case DType::u32:
      return run_each<DType::u32>(keys, offset);
    case DType::u64:
      return run_each<DType::u64>(keys, offset);
    default:
      return run_each<DType::prng_key>(keys, offset);
  }
}

void pairs(const Word* k0, const Word* k1, const Word* x0, const Word* x1, unsigned one, Word* out0,
           Word* out1, std::int64_t n) {
  const std::int64_t s0 = one & 1u ? 0 : 1, s1 = one & 2u ? 0 : 1, t0 = one & 4u ? 0 : 1,
                     t1 = one & 8u ? 0 : 1;
  std::int64_t i = 0;
#if SHMAP_VECTORS
  const D d;
  const auto words = [&](const Word* p, std::int64_t step) {
    return step == 0 ? hn::Set(d, *p) : hn::LoadU(d, p + i);
  };
  for (; i + kLanes <= n; i += kLanes) {
    V y0 = words(x0, t0), y1 = words(x1, t1);
    hash(words(k0, s0), words(k1, s1), y0, y1);
    hn::StoreU(y0, d, out0 + i);
    hn::StoreU(y1, d, out1 + i);
  }
#else
  if (one == 3u) {  // many counts under one key, which the compiler makes vectors of
    const Word a = *k0, b = *k1;
    SHMAP_INDEPENDENT
    for (; i < n; ++i) {
      Word y0 = x0[i], y1 = x1[i];
      hash(a, b, y0, y1);
      out0[i] = y0, out1[i] = y1;
    }
  }
#endif
  for (; i < n; ++i) {
    Word y0 = x0[i * t0], y1 = x1[i * t1];
    hash(k0[i * s0], k1[i * s1], y0, y1);
    out0[i] = y0, out1[i] = y1;
  }
}

using BitsFn = decltype(&bits);
using EachFn = decltype(&each);
using PairsFn = decltype(&pairs);
BitsFn find_bits() { return bits; }
EachFn find_each() { return each; }
PairsFn find_pairs() { return pairs; }

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {

SHMAP_KERNELS(find_bits);
SHMAP_KERNELS(find_each);
SHMAP_KERNELS(find_pairs);

void threefry_bits(DType to, const std::uint32_t* key, std::uint64_t first, void* out,
                   std::int64_t n, bool around) {
  static const auto run = SHMAP_BEST(find_bits)();
  run(to, key, first, static_cast<std::byte*>(out), n, around);
  if (around) non_temporal_fence();
}

void threefry_each(DType to, const ThreefryKeys& keys, std::uint64_t offset) {
  static const auto run = SHMAP_BEST(find_each)();
  run(to, keys, offset);
}

void threefry_pairs(const std::uint32_t* k0, const std::uint32_t* k1, const std::uint32_t* x0,
                    const std::uint32_t* x1, unsigned one, std::uint32_t* out0, std::uint32_t* out1,
                    std::int64_t n) {
  static const auto run = SHMAP_BEST(find_pairs)();
  run(k0, k1, x0, x1, one, out0, out1, n);
}

}  // namespace shmap::cpu
#endif
