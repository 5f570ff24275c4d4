// The limits of the machine on two threads. Rows `fma_f32:FLOPS`, `fma_f64:FLOPS` and, if the
// processor has AVX-512's products of bf16, `fma_bf16:FLOPS` multiply and add in registers.
// `memory:BYTES` copies BYTES / 2 bytes (half of BYTES is read, half written), past the caches or
// through them, whichever is faster for the size. `words:COUNT/TABLE` copies COUNT words of 4 bytes
// from random places of a table of TABLE words: one load after the other, with or without
// prefetches, or gathers of AVX-512, whichever is fastest. No program that does as much work can be
// much faster.
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/support/rows.h"

namespace {

using namespace shmap::bench;

// A second thread that spins while it waits. It lives for one batch.
class Pair {
 public:
  // Runs part(0) on this thread and part(1) on the other, n times. Returns the seconds.
  static double time(std::int64_t n, const std::function<void(int)>& part) {
    std::atomic<std::int64_t> started{0}, done{0};
    std::thread other([&] {
      for (std::int64_t k = 1; k <= n; ++k) {
        while (started.load(std::memory_order_acquire) < k) _mm_pause();
        part(1);
        done.store(k, std::memory_order_release);
      }
    });
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t k = 1; k <= n; ++k) {
      started.store(k, std::memory_order_release);
      part(0);
      while (done.load(std::memory_order_acquire) < k) _mm_pause();
    }
    const auto end = std::chrono::steady_clock::now();
    other.join();
    return std::chrono::duration<double>(end - start).count();
  }
};

// The number of accumulators: enough for two units with a latency of four or five, and few enough
// to stay in registers beside a and b (AVX-512 has 32 registers, AVX2 has 16).
template <class Vector>
constexpr int kSums = sizeof(Vector) == 64 ? 16 : 12;

template <class Vector>
[[gnu::always_inline]] inline double multiply_add(std::int64_t steps) {
  constexpr int count = kSums<Vector>;
  Vector sums[count];
  for (int k = 0; k < count; ++k) sums[k] = Vector{} + static_cast<float>(k);
  Vector a = Vector{} + 0.999f, b = Vector{} + 0.001f;
  for (std::int64_t s = 0; s < steps; ++s) {
    asm volatile("" : "+m"(sums), "+m"(a));
#pragma GCC unroll 64
    for (int round = 0; round < 64; ++round) {
#pragma GCC unroll 16
      for (int k = 0; k < count; ++k) sums[k] = sums[k] * a + b;
    }
  }
  double total = 0;
  for (const Vector& v : sums) total += static_cast<double>(v[0]);
  return total;
}

template <class T, int bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes)));
};

template <class T>
__attribute__((target("avx512f"))) double with_avx512(std::int64_t steps) {
  return multiply_add<typename VectorOf<T, 64>::type>(steps);
}
template <class T>
__attribute__((target("avx2,fma"))) double with_avx2(std::int64_t steps) {
  return multiply_add<typename VectorOf<T, 32>::type>(steps);
}

// Multiplies pairs of bf16 and adds the products to f32.
__attribute__((target("avx512f,avx512bf16"))) double with_bf16(std::int64_t steps) {
  __m512 sums[16];
  for (int k = 0; k < 16; ++k) sums[k] = _mm512_set1_ps(static_cast<float>(k));
  auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f7f3f7f));
  auto b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3a833a83));
  for (std::int64_t s = 0; s < steps; ++s) {
    asm volatile("" : "+m"(sums), "+m"(a), "+m"(b));
#pragma GCC unroll 64
    for (int round = 0; round < 64; ++round) {
#pragma GCC unroll 16
      for (int k = 0; k < 16; ++k) sums[k] = _mm512_dpbf16_ps(sums[k], a, b);
    }
  }
  double total = 0;
  for (const __m512& v : sums) total += static_cast<double>(v[0]);
  return total;
}

// Each step of `run` does a_step floating-point operations.
Work multiplier_work(double flops, double a_step, double (*run)(std::int64_t)) {
  const auto steps = static_cast<std::int64_t>(std::ceil(flops / 2 / a_step));
  auto sum = std::make_shared<std::array<double, 32>>();
  Work work;
  work.time_batch = [=](std::int64_t n) {
    return Pair::time(n,
                      [&](int part) { (*sum)[static_cast<std::size_t>(16 * part)] = run(steps); }) *
           flops / (2 * a_step * static_cast<double>(steps));
  };
  work.check = [=] { return std::isfinite((*sum)[0]) ? "" : "a sum that is not finite"; };
  return work;
}

template <class T>
Work fma_work(double flops) {
  const bool wide = __builtin_cpu_supports("avx512f");
  if (!wide && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")))
    throw std::runtime_error("no AVX2 here");
  return multiplier_work(flops, 64 * 2.0 * (wide ? 16 * 64 : 12 * 32) / sizeof(T),
                         wide ? with_avx512<T> : with_avx2<T>);
}

Work bf16_work(double flops) {
  if (!__builtin_cpu_supports("avx512bf16")) throw std::runtime_error("no products of bf16 here");
  return multiplier_work(flops, 64 * 16 * 2.0 * 32, with_bf16);
}

// Copies with stores past the caches, which are faster for large sizes.
void copy_around(char* to, const char* from, std::size_t bytes) {
  for (std::size_t k = 0; k + 64 <= bytes; k += 64) {
    for (std::size_t j = 0; j < 64; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k + j),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + k + j)));
  }
  _mm_sfence();
}

Work memory_work(double bytes) {
  // Each thread copies half of the bytes, in whole cache lines.
  const auto half = std::max<std::size_t>(64, static_cast<std::size_t>(bytes / 4) / 64 * 64);
  const std::size_t huge = std::size_t{2} << 20;
  const std::size_t room = (2 * half + huge - 1) / huge * huge;
  const auto memory = [room] {
    return std::shared_ptr<char>(static_cast<char*>(std::aligned_alloc(huge, room)), std::free);
  };
  const std::shared_ptr<char> from = memory(), to = memory();
  for (std::size_t k = 0; k < room; ++k) from.get()[k] = static_cast<char>(k * 37 >> 3);
  std::memset(to.get(), 0, room);
  const auto run = [=](std::int64_t n, bool around) {
    return Pair::time(n, [&](int part) {
      const std::size_t at = static_cast<std::size_t>(part) * half;
      if (around)
        copy_around(to.get() + at, from.get() + at, half);
      else
        std::memcpy(to.get() + at, from.get() + at, half);
    });
  };
  double best[2] = {1e30, 1e30};
  const auto n = std::max<std::int64_t>(1, static_cast<std::int64_t>(1e7 / bytes));
  for (int round = 0; round < 5; ++round)
    for (int around = 0; around < 2; ++around)
      best[around] = std::min(best[around], run(n, around == 1));
  Work work;
  work.time_batch = [run, around = best[1] < best[0]](std::int64_t n) { return run(n, around); };
  work.check = [from, to, half] {
    return std::memcmp(from.get(), to.get(), 2 * half) == 0 ? "" : "the copy differs";
  };
  return work;
}

// Memory that begins at a huge page, where the system has such pages.
std::shared_ptr<std::uint32_t> words_of(std::size_t count) {
  const std::size_t huge = std::size_t{2} << 20;
  const std::size_t room = (4 * count + huge - 1) / huge * huge;
  return {static_cast<std::uint32_t*>(std::aligned_alloc(huge, room)), std::free};
}

using TakeWords = void (*)(const std::uint32_t* table, const std::uint32_t* at, std::size_t count,
                           std::uint32_t* out);
template <std::size_t ahead>
void take_words(const std::uint32_t* table, const std::uint32_t* at, std::size_t count,
                std::uint32_t* out) {
  for (std::size_t k = 0; k < count; ++k) {
    if (ahead > 0 && k + ahead < count) __builtin_prefetch(table + at[k + ahead]);
    out[k] = table[at[k]];
  }
}
__attribute__((target("avx512f"))) void take_vectors(const std::uint32_t* table,
                                                     const std::uint32_t* at, std::size_t count,
                                                     std::uint32_t* out) {
  std::size_t k = 0;
  for (; k + 16 <= count; k += 16) {
    const __m512i places = _mm512_loadu_si512(at + k);
    const __m512i words =
        _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, places, table, 4);
    _mm512_storeu_si512(out + k, words);
  }
  take_words<0>(table, at + k, count - k, out + k);
}

Work words_work(std::size_t count, std::size_t size) {
  const auto table = words_of(size), at = words_of(count), out = words_of(count);
  std::mt19937 random(1);
  for (std::size_t k = 0; k < size; ++k) table.get()[k] = random();
  for (std::size_t k = 0; k < count; ++k) {
    at.get()[k] = static_cast<std::uint32_t>(random() % size);
    out.get()[k] = 0;
  }
  const auto run = [=](std::int64_t n, TakeWords take) {
    return Pair::time(n, [&](int part) {
      const std::size_t begin = part == 0 ? 0 : count / 2, end = part == 0 ? count / 2 : count;
      take(table.get(), at.get() + begin, end - begin, out.get() + begin);
    });
  };
  std::vector<TakeWords> ways = {take_words<0>, take_words<16>, take_words<64>};
  if (__builtin_cpu_supports("avx512f")) ways.push_back(take_vectors);
  std::vector<double> best(ways.size(), 1e30);
  const auto n = std::max<std::int64_t>(1, static_cast<std::int64_t>(1e6 / double(count)));
  for (int round = 0; round < 7; ++round)
    for (std::size_t w = 0; w < ways.size(); ++w) best[w] = std::min(best[w], run(n, ways[w]));
  const auto fastest = std::min_element(best.begin(), best.end()) - best.begin();
  Work work;
  work.time_batch = [run, take = ways[static_cast<std::size_t>(fastest)]](std::int64_t batch) {
    return run(batch, take);
  };
  work.check = [=] {
    for (std::size_t k = 0; k < count; ++k)
      if (out.get()[k] != table.get()[at.get()[k]]) return "a word differs";
    return "";
  };
  return work;
}

std::optional<Row> row_named(const std::string& name) {
  const std::size_t colon = name.find(':');
  if (colon == name.npos) return std::nullopt;
  const std::string kind = name.substr(0, colon);
  if (kind == "words") {
    const std::size_t slash = name.find('/', colon);
    if (slash == name.npos) return std::nullopt;
    const auto count = static_cast<std::size_t>(std::stod(name.substr(colon + 1)));
    const auto size = static_cast<std::size_t>(std::stod(name.substr(slash + 1)));
    return Row{name, {}, [=] { return words_work(count, size); }};
  }
  const double amount = std::stod(name.substr(colon + 1));
  if (kind == "memory") return Row{name, {}, [amount] { return memory_work(amount); }};
  if (kind == "fma_f32") return Row{name, {}, [amount] { return fma_work<float>(amount); }};
  if (kind == "fma_f64") return Row{name, {}, [amount] { return fma_work<double>(amount); }};
  if (kind == "fma_bf16") return Row{name, {}, [amount] { return bf16_work(amount); }};
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Row> rows;
  for (const char* name :
       {"fma_f32:1e8", "fma_f64:1e8", "memory:1e5", "memory:1e8", "words:1e6/1e6"})
    rows.push_back(*row_named(name));
  return bench_main(argc, argv, "machine_limit", rows, {}, row_named);
}
