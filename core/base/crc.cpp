#include "core/base/crc.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shmap {

namespace {

// tables[k][b]: the CRC of byte b followed by k zero bytes, bits reflected.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr std::uint32_t kCastagnoliPolynomial = 0x82f63b78, kZipPolynomial = 0xedb88320;

constexpr Tables make_tables(std::uint32_t polynomial) {
  Tables t{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t c = b;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ polynomial : c >> 1;
    t[0][b] = c;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b) t[k][b] = t[k - 1][b] >> 8 ^ t[0][t[k - 1][b] & 255];
  return t;
}
constexpr Tables kCastagnoli = make_tables(kCastagnoliPolynomial),
                 kZip = make_tables(kZipPolynomial);

// Takes eight bytes at a time, each of which has its own table.
std::uint32_t by_tables(const Tables& t, const unsigned char* p, std::size_t n, std::uint32_t c) {
  for (; n >= 8; n -= 8, p += 8) {
    std::uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= c;
    c = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^
        t[3][high & 255] ^ t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
  }
  for (; n > 0; --n, ++p) c = c >> 8 ^ t[0][(c ^ *p) & 255];
  return c;
}

#if defined(__x86_64__)

// The CRC instruction has a latency of three cycles and a throughput of one per cycle: three lanes
// of kLane bytes are summed at once, and joined by appending zeros to the first two.
constexpr std::size_t kLane = 1024;

// The register's value after kLane more zero bytes, in a table for each of its four bytes.
using Shift = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr Shift make_shift() {
  Shift t{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t bit = 0; bit < 8; ++bit) {
      std::uint32_t c = std::uint32_t{1} << (8 * k + bit);
      for (std::size_t n = 0; n < kLane; ++n) c = c >> 8 ^ kCastagnoli[0][c & 255];
      t[k][std::size_t{1} << bit] = c;
    }
    for (std::size_t b = 1; b < 256; ++b) {
      const std::size_t low = b & (~b + 1);
      t[k][b] = t[k][low] ^ (b == low ? 0 : t[k][b ^ low]);
    }
  }
  return t;
}
constexpr Shift kShift = make_shift();

std::uint64_t shifted(std::uint64_t c) {
  return kShift[0][c & 255] ^ kShift[1][c >> 8 & 255] ^ kShift[2][c >> 16 & 255] ^
         kShift[3][c >> 24 & 255];
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const unsigned char* p,
                                                               std::size_t n, std::uint32_t c) {
  const auto word = [](const unsigned char* at) {
    std::uint64_t w;
    std::memcpy(&w, at, 8);
    return w;
  };
  std::uint64_t first = c;
  for (; n >= 3 * kLane; n -= 3 * kLane, p += 3 * kLane) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      first = _mm_crc32_u64(first, word(p + i));
      second = _mm_crc32_u64(second, word(p + kLane + i));
      third = _mm_crc32_u64(third, word(p + 2 * kLane + i));
    }
    first = shifted(shifted(first) ^ second) ^ third;
  }
  for (; n >= 8; n -= 8, p += 8) first = _mm_crc32_u64(first, word(p));
  c = static_cast<std::uint32_t>(first);
  for (; n > 0; --n, ++p) c = _mm_crc32_u8(c, *p);
  return c;
}

// Carry-less products, 512 bytes at a time: as polynomials with bits reflected, 16 bytes L H (8
// each) may be replaced by L x^(d + 64) + H x^d, added to the 16 bytes that come d bits later. A
// product takes eight cycles but one can start in each, so that eight words are folded at once.
constexpr std::size_t kWord = 64, kWords = 8, kStep = kWords * kWord;

// x^n modulo the polynomial, in the upper half of a word: bit 63 - j is the coefficient of x^j.
constexpr std::uint64_t power(std::uint32_t polynomial, std::size_t n) {
  std::uint32_t r = 0x80000000;
  for (; n > 0; --n) r = r & 1 ? r >> 1 ^ polynomial : r >> 1;
  return std::uint64_t{r} << 32;
}
// The product of two reflected words has one factor of x too many, so that these powers have one
// less.
struct Fold {
  std::uint64_t low, high;
};
constexpr Fold make_fold(std::uint32_t polynomial, std::size_t bytes) {
  return {power(polynomial, 8 * bytes + 64 - 1), power(polynomial, 8 * bytes - 1)};
}
// Factors for distances of 8, 4 and 2 words and of 1 word.
using Folds = std::array<Fold, 4>;
constexpr Folds make_folds(std::uint32_t polynomial) {
  return {make_fold(polynomial, 8 * kWord), make_fold(polynomial, 4 * kWord),
          make_fold(polynomial, 2 * kWord), make_fold(polynomial, kWord)};
}
constexpr Folds kCastagnoliFolds = make_folds(kCastagnoliPolynomial),
                kZipFolds = make_folds(kZipPolynomial);

bool folds() {
  static const bool supported =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
  return supported;
}

#define SHMAP_FOLDS __attribute__((target("avx512f,vpclmulqdq")))
SHMAP_FOLDS inline __m512i factors_of(const Fold& by) {
  const auto low = static_cast<long long>(by.low), high = static_cast<long long>(by.high);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}
SHMAP_FOLDS inline __m512i fold_onto(__m512i x, __m512i factors, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(x, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(x, factors, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // the xor of the three
}

// n must be a multiple of kStep. Leaves a word in `rest` whose CRC from 0 is that of all bytes. If
// `to` is not null, also stores the bytes there, past the caches; `to` must be a multiple of 64.
template <bool copies>
SHMAP_FOLDS void fold(const Folds& by, const unsigned char* p, std::size_t n, std::uint32_t c,
                      unsigned char* to, unsigned char* rest) {
  __m512i x[kWords];
  for (std::size_t k = 0; k < kWords; ++k) {
    x[k] = _mm512_loadu_si512(p + kWord * k);
    if constexpr (copies) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + kWord * k), x[k]);
  }
  x[0] = _mm512_xor_si512(x[0], _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, c));
  __m512i factors = factors_of(by[0]);
  for (std::size_t at = kStep; at < n; at += kStep) {
    for (std::size_t k = 0; k < kWords; ++k) {
      const __m512i next = _mm512_loadu_si512(p + at + kWord * k);
      if constexpr (copies)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + kWord * k), next);
      x[k] = fold_onto(x[k], factors, next);
    }
  }
  for (std::size_t half = kWords / 2, i = 1; half > 0; half /= 2, ++i) {
    factors = factors_of(by[i]);
    for (std::size_t k = 0; k < half; ++k) x[k] = fold_onto(x[k], factors, x[k + half]);
  }
  _mm512_storeu_si512(rest, x[0]);
}

// Folds as many bytes as pay off, and advances p and n to the rest.
std::uint32_t folded(const Folds& by, const unsigned char*& p, std::size_t& n, std::uint32_t c,
                     std::uint32_t (*sum)(const unsigned char*, std::size_t, std::uint32_t)) {
  if (n < 2 * kStep || !folds()) return c;
  const std::size_t bytes = n - n % kStep;
  unsigned char rest[kWord];
  fold<false>(by, p, bytes, c, nullptr, rest);
  p += bytes;
  n -= bytes;
  return sum(rest, kWord, 0);
}

// Copies to `to`, a multiple of 16, past the caches.
void stream(unsigned char* to, const unsigned char* p, std::size_t n) {
  for (; n >= 16; n -= 16, p += 16, to += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  if (n > 0) std::memcpy(to, p, n);
}
#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    const std::uint32_t c = folded(kCastagnoliFolds, p, bytes, ~before, by_instruction);
    return ~by_instruction(p, bytes, c);
  }
#endif
  return ~by_tables(kCastagnoli, p, bytes, ~before);
}

std::uint32_t copy_crc32c(void* to, const void* from, std::size_t bytes,
                          std::uint32_t before) noexcept {
#if defined(__x86_64__)
  auto* out = static_cast<unsigned char*>(to);
  const auto* p = static_cast<const unsigned char*>(from);
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  if (address % kWord == 0 && bytes >= 2 * kStep && folds()) {
    const std::size_t n = bytes - bytes % kStep;
    unsigned char rest[kWord];
    fold<true>(kCastagnoliFolds, p, n, ~before, out, rest);
    before = ~by_instruction(rest, kWord, 0);
    out += n;
    p += n;
    bytes -= n;
  }
  constexpr std::size_t kPiece = 3 * kLane;  // still in the first-level cache when it is copied
  while (address % 16 == 0 && bytes > 0) {
    const std::size_t n = bytes < kPiece ? bytes : kPiece;
    before = crc32c(p, n, before);
    stream(out, p, n);
    out += n;
    p += n;
    bytes -= n;
  }
  _mm_sfence();  // orders the non-temporal stores before a later message about them
  to = out;
  from = p;
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
  return crc32c(from, bytes, before);
}

std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint32_t c = ~before;
#if defined(__x86_64__)
  c = folded(kZipFolds, p, bytes, c,
             [](const unsigned char* at, std::size_t n, std::uint32_t from) {
               return by_tables(kZip, at, n, from);
             });
#endif
  return ~by_tables(kZip, p, bytes, c);
}

}  // namespace shmap
