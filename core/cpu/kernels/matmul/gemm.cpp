#include "core/cpu/kernels/matmul/gemm.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "core/base/float_format.h"
#include "core/base/thread_kept.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/matmul/divided_sums.h"
#include "core/cpu/kernels/matmul/gemm_engines.h"
#include "core/cpu/kernels/matmul/vector_product.h"
#include "core/device/at_exit.h"
#include "shmap/error.h"

namespace shmap::cpu {
namespace {

void check_types(const Gemm& g) {
  const bool ok = g.dtype != prng_key && (g.out == g.dtype || (is_half(g.dtype) && g.out == f32));
  if (!ok) {
    throw TypeError(std::string("matmul: no product of ") + short_name(g.dtype) + " into " +
                    short_name(g.out) +
                    ": the result has the operands' dtype or, for f16 and bf16, f32");
  }
}

constinit std::atomic<bool> libraries_closed{false};

// Runs the product. The first product of a kind makes static objects in the library, which exit()
// destroys too: threads that may run the next product must be stopped before that.
void run_in(const GemmLibrary& library, GemmEngine engine, const Gemm& g) {
  library.run(g);
  static constinit std::atomic<bool> ran[kGemmEngines][kDTypeCount] = {};
  std::atomic<bool>& before = ran[static_cast<int>(engine)][static_cast<int>(g.dtype)];
  if (!before.load(std::memory_order_relaxed) && !before.exchange(true)) {
    detail::stop_first_at_exit();
  }
}

const GemmLibrary* library_of(GemmEngine engine) {
  switch (engine) {
    case GemmEngine::amx:
      return amx_gemm();
    case GemmEngine::avx512:
      return avx512_gemm();
    case GemmEngine::onednn:
      return onednn_gemm();
    case GemmEngine::openblas:
      return openblas_gemm();
    case GemmEngine::own:
      break;
  }
  return nullptr;
}

bool is_library(GemmEngine engine) {
  return engine == GemmEngine::onednn || engine == GemmEngine::openblas;
}

bool closed(GemmEngine engine) {
  return is_library(engine) && libraries_closed.load(std::memory_order_relaxed);
}

bool supports(GemmEngine engine, DType dtype, DType out) {
  if (engine == GemmEngine::own) return true;
  if (closed(engine)) return false;
  const GemmLibrary* const library = library_of(engine);
  return library != nullptr && library->supports(dtype, out);
}

// True on AMD's CPUs with AVX-512: Zen 4, and Zen 5, whose units are as wide as the vectors. The
// fastest libraries for them were measured separately from those for other CPUs.
bool is_amd_avx512() {
#if defined(__x86_64__)
  static const bool is =
      __builtin_cpu_is("amd") && avx512_gemm() != nullptr && avx512_gemm()->supports(f32, f32);
  return is;
#else
  return false;
#endif
}

bool is_zen5() {
#if defined(__x86_64__)
  static const bool is = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!is_amd_avx512() || __get_cpuid(1, &a, &b, &c, &d) == 0) return false;
    const unsigned family = ((a >> 8) & 0xf) + ((a >> 20) & 0xff);
    return family >= 0x1a;
  }();
  return is;
#else
  return false;
#endif
}

// For f32 on x86 oneDNN is the faster library (measured, two threads: with AVX-512 on AMD's CPUs
// 1.02 to 1.1 times as fast as OpenBLAS for squares, up to 1.4 times for results of few columns).
#if defined(__x86_64__)
constexpr bool kPrefersOneDnn = true;
#else
constexpr bool kPrefersOneDnn = false;
#endif

// True on AMD's CPUs with AVX2 and without AVX-512. Choices for them were measured on Zen 3.
bool is_amd_avx2() {
#if defined(__x86_64__)
  static const bool is = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx2") &&
                         __builtin_cpu_supports("fma") && !__builtin_cpu_supports("avx512f");
  return is;
#else
  return false;
#endif
}

GemmEngine choose_engine(DType dtype, DType out) {
  const auto first_of = [&](GemmEngine a, GemmEngine b) {
    if (supports(a, dtype, out)) return a;
    if (supports(b, dtype, out)) return b;
    return GemmEngine::own;
  };
  if (dtype == f32 && kPrefersOneDnn) return first_of(GemmEngine::onednn, GemmEngine::openblas);
  if (dtype == f32 || dtype == f64) return first_of(GemmEngine::openblas, GemmEngine::onednn);
  if (dtype == bf16 && supports(GemmEngine::amx, dtype, out)) return GemmEngine::amx;
  if (dtype == bf16) return first_of(GemmEngine::onednn, GemmEngine::own);
  return GemmEngine::own;
}

GemmEngine f32_engine() {
  static const GemmEngine engine = choose_engine(f32, f32);
  return engine;
}
GemmEngine f64_engine() {
  static const GemmEngine engine = choose_engine(f64, f64);
  return engine;
}
GemmEngine bf16_engine() {
  static const GemmEngine engine = choose_engine(bf16, bf16);
  return engine;
}

bool has_onednn_bf16() {
  static const bool has = supports(GemmEngine::onednn, bf16, bf16);
  return has;
}

bool has_openblas_f32() {
  static const bool has = supports(GemmEngine::openblas, f32, f32);
  return has;
}

// True if OpenBLAS has kernels for small products in f32, which need AVX-512.
bool fast_openblas() {
#if defined(__x86_64__)
  static const bool small = __builtin_cpu_supports("avx512f") && has_openblas_f32();
  return small;
#else
  return false;
#endif
}

// Up to this m · n · k a call of oneDNN costs more than the product. OpenBLAS is then faster in
// f32, the own kernel in bf16 (measured, one thread). Up to a million OpenBLAS has AVX-512 kernels
// that read the operands without packing them.
constexpr std::int64_t kSmallF32 = 64 * 64 * 64, kSmallBf16 = 1024, kSmallOnAmd = 1'000'000;
constexpr std::int64_t kTinyOnAmd = 8 * 8 * 8;

bool is_small(const Gemm& g, std::int64_t limit) {
  return g.m <= limit && g.n <= limit && g.k <= limit && g.m * g.n <= limit &&
         g.m * g.n * g.k <= limit;
}

// True if the rows of a small product fill an AVX-512 vector well, or the product is so small that
// calling a library costs more than the product.
bool suits_narrow(const Gemm& g) {
  const bool filled = 2 * g.n * itemsize(g.dtype) > 64;
  return is_narrow(g) && is_small(g, filled ? kSmallOnAmd : kTinyOnAmd);
}

// True if the AVX-512 kernel is the fastest on AMD's CPUs (measured): for narrow rows; in f64 for
// sizes for which OpenBLAS has no small kernels; in f32 for a transposed b, which this kernel packs
// fastest (1.02 to 1.15 times as fast as the libraries), for short sums into wide rows, which are
// the steps of a ring of products that add to their results, and on Zen 4 for rows of a and b of
// 4 KB, for which oneDNN's kernels are slower than for other lengths (1.1 times as fast).
bool suits_avx512_on_amd(const Gemm& g) {
  if (suits_narrow(g)) return true;
  if (is_small(g, kSmallOnAmd) || g.m < 16 || g.n < 16) return false;
  if (g.dtype == f64) return true;
  constexpr std::int64_t page = 4096 / sizeof(float);
  const bool ring_step = g.k <= 256 && g.n >= 1024 && g.m >= 256 && g.m <= 512;
  const bool rows_are_pages = !is_zen5() && g.lda == page && g.ldb == page && g.m >= 256;
  return !g.trans_a && (ring_step || rows_are_pages || (g.trans_b && g.m >= 64));
}

// True if the AVX-512 kernel is the fastest, on any CPU. On Intel's: in f32 if one pass over c does
// all sums and there are enough rows to make up for packing b; in f64 if b is not much larger than
// the second-level cache, beyond which OpenBLAS reads faster.
bool suits_avx512(const Gemm& g) {
  constexpr std::int64_t volume = 1 << 21, most_b = 3 << 17;
  if (g.k <= 0) return false;
  if (is_amd_avx512()) return suits_avx512_on_amd(g);
  if (g.m * g.n < volume / g.k) return false;
  if (g.dtype == f64) return g.m >= 16 && g.n >= 16 && g.n <= most_b / g.k;
  return !g.trans_b && g.k >= 32 && g.k <= 256 && g.m >= 192 && g.n >= 128;
}

// True if OpenBLAS is the fastest on AMD's CPUs with AVX-512 for f32 (measured): for small
// products, and on Zen 5 for a transposed a and a result of more rows than columns (1.05 to 1.2
// times as fast).
bool suits_openblas_on_amd(const Gemm& g) {
  return is_small(g, kSmallOnAmd) || (is_zen5() && g.trans_a && g.m >= 1024 && g.m >= 2 * g.n);
}

// True if this library's kernel for narrow rows is the fastest with AVX2 (measured on Zen 3, one
// thread): for 4 × 4 matrices 6 times as fast as OpenBLAS and 19 times as fast as oneDNN, for 16 ×
// 16 3 times. A transposed b is copied, which pays only in tiny products.
bool suits_narrow_by_avx2(const Gemm& g) {
#if defined(__x86_64__)
  static const bool avx2_alone = has_narrow_gemm() && !__builtin_cpu_supports("avx512f");
  constexpr std::int64_t tiny = 16 * 16 * 16;
  return avx2_alone && (g.dtype == f32 || g.dtype == f64) && has_narrow_rows(g) &&
         is_small(g, g.trans_b ? tiny : kSmallF32);
#else
  (void)g;
  return false;
#endif
}

// True if OpenBLAS is chosen over oneDNN for f32 on AMD's CPUs with AVX2 (measured on Zen 3, two
// threads): it is 1.5 times as fast if a is transposed and sums are long. The choice does not
// depend on sizes that the cut into parts or batches changes, and sums that no library cuts stay
// with oneDNN, so that values are the same to the last bit however a product is divided. (Otherwise
// OpenBLAS, 1.03 to 1.1 times as fast, would be chosen for all large products.)
bool suits_openblas_with_avx2(const Gemm& g) { return g.trans_a && g.k > 256; }

// True if OpenBLAS is faster for f32 than the library that is chosen otherwise.
bool suits_openblas(const Gemm& g) {
  if (is_amd_avx512()) return fast_openblas() && suits_openblas_on_amd(g);
  if (is_amd_avx2()) return has_openblas_f32() && suits_openblas_with_avx2(g);
  return fast_openblas() && is_small(g, kSmallF32);
}

// The kernel of GemmEngine::own for g; m, n, k > 0.
GemmFn own_kernel(const Gemm& g) {
  if (is_vector_product(g)) return vector_product;
  return suits_narrow_by_avx2(g) ? narrow_gemm : own_gemm;
}

// Chooses the engine for f16 and bf16 if none multiplies them directly. The own kernel converts
// them to floats while it packs them. On AMD's CPUs with AVX2 that is 1.1 to 1.3 times as fast as a
// library on converted copies, except for sizes in between (measured on Zen 3).
GemmEngine engine_through_f32(const Gemm& g) {
  const GemmEngine library = f32_engine();  // evaluated first, so that the library is open when
                                            // parts run
  const bool between = !is_small(g, 16 * 16 * 16) && is_small(g, 256 * 256 * 256);
  return is_amd_avx2() && !between ? GemmEngine::own : library;
}

bool has_avx512() {
  static const bool has = supports(GemmEngine::avx512, f32, f32);
  return has;
}

// True if oneDNN is faster than the AMX kernel, because packing a large b costs more than the
// product.
bool few_rows(const Gemm& g) {
  return g.m <= 64 && g.n > (1 << 17) / std::max<std::int64_t>(g.k, 1);
}

const char* element(const void* base, std::int64_t offset, DType t) {
  return static_cast<const char*>(base) + offset * itemsize(t);
}

void clear(const Gemm& g) {
  for (std::int64_t i = 0; i < g.m; ++i) {
    std::memset(const_cast<char*>(element(g.c, i * g.ldc, g.out)), 0,
                static_cast<std::size_t>(g.n * itemsize(g.out)));
  }
}

struct WideScratch {
  GemmScratch a, b, c;
};

// Multiplies half types through f32 copies of blocks, with a library that is fast in f32.
void half_through_f32(const Gemm& g, const GemmLibrary& library) {
  constexpr std::int64_t block = 1024;
  WideScratch& scratch = kept_by_thread<WideScratch>();
  const CastFn widen = cast_kernel(g.dtype, f32), narrow = cast_kernel(f32, g.dtype);
  const auto floats = [](GemmScratch& s, std::int64_t count) {
    return static_cast<float*>(s.get(static_cast<std::size_t>(count) * sizeof(float)));
  };
  const auto widen_rows = [&](const void* src, std::int64_t ld, std::int64_t rows,
                              std::int64_t cols, float* dst) {
    for (std::int64_t r = 0; r < rows; ++r)
      widen(element(src, r * ld, g.dtype), dst + r * cols, cols);
  };
  for (std::int64_t n0 = 0; n0 < g.n; n0 += block) {
    const std::int64_t nb = std::min(block, g.n - n0);
    for (std::int64_t m0 = 0; m0 < g.m; m0 += block) {
      const std::int64_t mb = std::min(block, g.m - m0);
      const Gemm part = gemm_block(g, m0, m0 + mb, n0, n0 + nb);
      Gemm wide = part;
      wide.dtype = wide.out = f32;
      if (g.out != f32) {
        float* const sums = floats(scratch.c, mb * nb);
        if (g.accumulate) widen_rows(part.c, g.ldc, mb, nb, sums);
        wide.c = sums;
        wide.ldc = nb;
      }
      for (std::int64_t k0 = 0; k0 < g.k; k0 += block) {
        const std::int64_t kb = std::min(block, g.k - k0);
        const void* const a = element(part.a, k0 * (g.trans_a ? g.lda : 1), g.dtype);
        const void* const b = element(part.b, k0 * (g.trans_b ? 1 : g.ldb), g.dtype);
        wide.k = kb;
        wide.lda = g.trans_a ? mb : kb;
        wide.ldb = g.trans_b ? kb : nb;
        float* const wide_a = floats(scratch.a, mb * kb);
        float* const wide_b = floats(scratch.b, kb * nb);
        widen_rows(a, g.lda, g.trans_a ? kb : mb, wide.lda, wide_a);
        widen_rows(b, g.ldb, g.trans_b ? nb : kb, wide.ldb, wide_b);
        wide.a = wide_a;
        wide.b = wide_b;
        library.run(wide);
        wide.accumulate = true;
      }
      if (g.out == f32) continue;
      for (std::int64_t i = 0; i < mb; ++i) {
        narrow(static_cast<const float*>(wide.c) + i * nb,
               const_cast<char*>(element(part.c, i * g.ldc, g.dtype)), nb);
      }
    }
  }
}

// True if the sums are divided by divided_sums.h and not by vector_product.h.
bool divides_sums(const Gemm& g) { return sum_pieces(g) > 1 && !has_long_sums(g); }

// The begin of part `part` when a dim of `size` is cut into `parts` at multiples of `unit`.
std::int64_t cut(std::int64_t size, int part, int parts, std::int64_t unit) {
  const std::int64_t units = (size + unit - 1) / unit;
  return std::min(size, units * part / parts * unit);
}

// The largest part of such a cut.
std::int64_t largest_part(std::int64_t size, int parts, std::int64_t unit) {
  std::int64_t largest = 0;
  for (int part = 0; part < parts; ++part)
    largest = std::max(largest, cut(size, part + 1, parts, unit) - cut(size, part, parts, unit));
  return largest;
}

// The unit of a cut into parts of almost the same size: at most `most`, and smaller, but at least
// `least`, where the largest part would have 1/32 more than an even share. Both are powers of two.
std::int64_t even_unit(std::int64_t size, int parts, std::int64_t most, std::int64_t least) {
  std::int64_t unit = most;
  while (unit > least && 32 * parts * largest_part(size, parts, unit) > 33 * size) unit /= 2;
  return unit;
}

// A cut of c into rows · cols blocks.
struct Grid {
  int rows, cols;
  std::int64_t row_unit, col_unit;
};

Grid even_grid(const Gemm& g, int rows, int cols) {
  return {rows, cols, even_unit(g.m, rows, 16, 2), even_unit(g.n, cols, 64, 16)};
}

// Estimates the time of the largest block, in multiplications: its vectors are whole, and an
// element that it packs takes as long as four multiplications (measured: three to six).
double largest_block_time(const Gemm& g, const Grid& grid) {
  constexpr std::int64_t vector = 16;
  const auto m = static_cast<double>(largest_part(g.m, grid.rows, grid.row_unit));
  const auto n =
      static_cast<double>(ceil_div(largest_part(g.n, grid.cols, grid.col_unit), vector) * vector);
  return m * n + 4 * (m + n);
}

// Parts are whole rows if each part has enough of them to make up for the packing of all of b
// (measured), else the grid whose largest block takes the least time. More rows are preferred to
// more columns that are at most 2 % faster by the estimate: measured, they take 0.9 to 1.02 of the
// time.
Grid grid_by_rows(const Gemm& g, int parts) {
  constexpr std::int64_t enough = 256;
  for (int rows = parts; rows > 1; --rows)
    if (parts % rows == 0 && g.m / rows >= enough) return even_grid(g, rows, parts / rows);
  Grid best = even_grid(g, parts, 1);
  for (int rows = parts - 1; rows > 0; --rows) {
    if (parts % rows != 0) continue;
    const Grid grid = even_grid(g, rows, parts / rows);
    if (1.02 * largest_block_time(g, grid) < largest_block_time(g, best)) best = grid;
  }
  return best;
}

// With AMX, parts are whole columns if each part has enough of them to make up for the packing of
// all of a (measured), else a grid of blocks that are as square as possible.
Grid grid_by_columns(const Gemm& g, int parts) {
  constexpr std::int64_t enough = 256;
  int rows = 0;
  for (int r = 1; r < parts && rows == 0; ++r)
    if (parts % r == 0 && g.n / (parts / r) >= enough) rows = r;
  if (rows == 0) {
    rows = 1;
    const auto edge = [&](int r) {
      return static_cast<double>(g.m) / r + static_cast<double>(g.n) / (parts / r);
    };
    for (int r = 2; r <= parts; ++r)
      if (parts % r == 0 && edge(r) < edge(rows)) rows = r;
  }
  return {rows, parts / rows, 16, 64};
}

}  // namespace

const char* to_string(GemmEngine engine) {
  switch (engine) {
    case GemmEngine::amx:
      return "AMX";
    case GemmEngine::avx512:
      return "AVX-512";
    case GemmEngine::onednn:
      return "oneDNN";
    case GemmEngine::openblas:
      return "OpenBLAS";
    case GemmEngine::own:
      break;
  }
  return "own";
}

bool gemm_engine_available(GemmEngine engine, DType dtype) {
  return dtype != prng_key && supports(engine, dtype, dtype);
}

GemmEngine gemm_engine(const Gemm& g) {
  if (is_vector_product(g)) return GemmEngine::own;
  switch (g.dtype) {
    case f32:
    case f64: {
      // Evaluated even if this library is not chosen: parts of the product may choose the library,
      // and it has to be open before they run.
      const GemmEngine library = g.dtype == f64 ? f64_engine() : f32_engine();
      if (has_avx512() && suits_avx512(g)) return GemmEngine::avx512;
      if (suits_narrow_by_avx2(g)) return GemmEngine::own;
      return g.dtype == f32 && suits_openblas(g) ? GemmEngine::openblas : library;
    }
    case bf16:
      if (is_small(g, kSmallBf16)) return GemmEngine::own;
      if (bf16_engine() == GemmEngine::amx && few_rows(g) && has_onednn_bf16())
        return GemmEngine::onednn;
      return bf16_engine() != GemmEngine::own ? bf16_engine() : engine_through_f32(g);
    case f16:
      return is_small(g, kSmallBf16) ? GemmEngine::own : engine_through_f32(g);
    default:
      return GemmEngine::own;
  }
}

void gemm_with(GemmEngine engine, const Gemm& g) {
  check_types(g);
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    if (!g.accumulate) clear(g);
    return;
  }
  if (engine == GemmEngine::own) return own_kernel(g)(g);
  const GemmLibrary* const library = library_of(engine);
  if (library != nullptr && library->supports(g.dtype, g.out)) return run_in(*library, engine, g);
  if (library != nullptr && is_half(g.dtype) && library->supports(f32, f32)) {
    return half_through_f32(g, *library);
  }
  throw TypeError(std::string("matmul: ") + to_string(engine) + " has no product of " +
                  short_name(g.dtype) + " here");
}

void gemm_by(GemmEngine engine, const Gemm& g) {
  gemm_with(closed(engine) ? GemmEngine::own : engine, g);
}

void gemm(const Gemm& g) {
  check_types(g);
  if (divides_sums(g)) return divided_product(g);
  gemm_by(gemm_engine(g), g);
}

GemmFn gemm_of(const Gemm& g) {
  check_types(g);
  if (g.m == 0 || g.n == 0 || g.k == 0 || divides_sums(g)) return gemm;
  const GemmEngine engine = gemm_engine(g);
  if (engine == GemmEngine::own) return own_kernel(g);
  return engine == GemmEngine::avx512 && is_narrow(g) ? narrow_gemm : gemm;
}

void close_gemm_libraries() noexcept { libraries_closed.store(true); }

bool gemm_accumulates_exactly(const Gemm& g) {
  if (is_integer(g.dtype)) return true;
  // Measured: the libraries cut sums of more than `uncut` terms, and some sums of products of a
  // matrix and a vector; oneDNN's AVX2 kernels cut sums of a transposed a after 96 terms.
  constexpr std::int64_t uncut = 256, uncut_transposed = 96;
  if (g.dtype != f32 || g.out != f32 || g.k > uncut || g.m <= 1 || g.n <= 1) return false;
  const GemmEngine engine = gemm_engine(g);
  if (engine == GemmEngine::onednn && g.trans_a && g.k > uncut_transposed) return false;
  return is_library(engine) || engine == GemmEngine::avx512;
}

Gemm gemm_block(const Gemm& g, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1) {
  Gemm part = g;
  part.m = m1 - m0;
  part.n = n1 - n0;
  part.a = element(g.a, m0 * (g.trans_a ? 1 : g.lda), g.dtype);
  part.b = element(g.b, n0 * (g.trans_b ? g.ldb : 1), g.dtype);
  part.c = const_cast<char*>(element(g.c, m0 * g.ldc + n0, g.out));
  return part;
}

int gemm_parts(const Gemm& g, int workers) {
  if (divides_sums(g)) return static_cast<int>(std::min<std::int64_t>(sum_pieces(g), workers));
  const double operations =
      2. * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  constexpr double worth_a_part = 1e6;  // flops; some microseconds of work
  return static_cast<int>(std::clamp(operations / worth_a_part, 1., static_cast<double>(workers)));
}

Gemm gemm_part_block(const Gemm& g, int part, int parts) {
  const Grid grid =
      gemm_engine(g) == GemmEngine::amx ? grid_by_columns(g, parts) : grid_by_rows(g, parts);
  const int i = part / grid.cols, j = part % grid.cols;
  return gemm_block(
      g, cut(g.m, i, grid.rows, grid.row_unit), cut(g.m, i + 1, grid.rows, grid.row_unit),
      cut(g.n, j, grid.cols, grid.col_unit), cut(g.n, j + 1, grid.cols, grid.col_unit));
}

void gemm_part(const Gemm& g, int part, int parts) {
  if (parts <= 1) return gemm(g);
  const Gemm block = gemm_part_block(g, part, parts);
  if (block.m <= 0 || block.n <= 0) return;
  // On AMD's CPUs with AVX2 sizes decide between engines whose sums differ in the last bit. A part
  // is computed by the engine of the whole product there, so that values do not depend on the
  // number of threads.
  gemm_by(gemm_engine(is_amd_avx2() ? g : block), block);
}

}  // namespace shmap::cpu
