// OpenBLAS, opened on first use.
#include "core/cpu/kernels/matmul/address_space.h"
#include "core/cpu/kernels/matmul/gemm_engines.h"

#if SHMAP_HAVE_OPENBLAS

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "core/base/env.h"
#include "core/base/load_environment.h"
#include "core/base/signals_blocked.h"
#include "shmap/error.h"

namespace shmap::cpu {
namespace {

// The C interface of BLAS with 32-bit integers.
enum Order { row_major = 101 };
enum Transpose { plain = 111, transposed = 112 };
using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                       const float* a, int lda, const float* b, int ldb, float beta, float* c,
                       int ldc);
using Dgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                       const double* a, int lda, const double* b, int ldb, double beta, double* c,
                       int ldc);

struct Functions {
  Sgemm sgemm = nullptr;
  Dgemm dgemm = nullptr;
};

// The kernels to select where OpenBLAS may not know the CPU: releases that are older than the CPU
// choose AVX2 or less.
const char* core_type() {
#if defined(__x86_64__)
  const bool known = __builtin_cpu_is("skylake-avx512") || __builtin_cpu_is("cascadelake") ||
                     __builtin_cpu_is("cooperlake") || __builtin_cpu_is("icelake-client") ||
                     __builtin_cpu_is("icelake-server") || __builtin_cpu_is("tigerlake");
  if (!known && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return __builtin_cpu_supports("avx512bf16") ? "Cooperlake" : "SkylakeX";
  }
#endif
  return nullptr;  // OpenBLAS's own choice is right
}

// OpenBLAS reads this variable from the environment when it is opened; it must be set before, at
// load.
__attribute__((constructor)) void ask_for_core_type() {
#if defined(__x86_64__)
  __builtin_cpu_init();  // needed, since other constructors may run later
#endif
  if (const char* core = core_type()) env::set_at_load("OPENBLAS_CORETYPE", core);
}

// The size of the buffer that OpenBLAS maps for each thread that multiplies at the same time. If
// the mapping fails, OpenBLAS tries again without end.
constexpr std::size_t kBufferBytes = std::size_t{128} << 20;

// The most threads that may multiply at once: OpenBLAS's own threads, which it starts when it is
// opened, or the executor's workers, whichever are more; plus the caller.
int most_callers() {
  return std::max(static_cast<int>(env::integer(env::Var::workers)),
                  static_cast<int>(std::thread::hardware_concurrency())) +
         1;
}

// Makes OpenBLAS map that many buffers now, while there is room; OpenBLAS keeps them.
void reserve_buffers(void* library, int buffers) {
  const auto take = reinterpret_cast<void* (*)(int)>(dlsym(library, "blas_memory_alloc"));
  const auto give = reinterpret_cast<void (*)(void*)>(dlsym(library, "blas_memory_free"));
  if (take == nullptr || give == nullptr) return;
  std::vector<void*> taken(static_cast<std::size_t>(buffers));
  for (void*& p : taken) p = take(0);
  for (void* p : taken) give(p);
}

Functions open() {
  constexpr const char* kName = "libopenblas.so.0";
  Functions f;
  const bool tight = address_space_is_limited();
  const int callers = most_callers();
  // One piece more than the buffers, for the library itself.
  if (tight && !address_space_has_room(callers + 1, kBufferBytes)) return f;
  void* const loaded = dlopen(kName, RTLD_NOW | RTLD_NOLOAD);  // already opened by the program
  const SignalsBlocked blocked;                                // for the threads that OpenBLAS
                                                               // starts
  void* const library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return f;
  const auto set_threads =
      reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  if (set_threads == nullptr) return f;
  set_threads(1);
  // Ends OpenBLAS's own threads, which would never be used. If the program itself opened OpenBLAS,
  // its threads may be at work and are left alone.
  const auto end_threads = reinterpret_cast<int (*)()>(dlsym(library, "blas_thread_shutdown_"));
  if (loaded == nullptr && end_threads != nullptr) end_threads();
  if (tight) reserve_buffers(library, callers);
  f.sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  f.dgemm = reinterpret_cast<Dgemm>(dlsym(library, "cblas_dgemm"));
  return f;
}

const Functions& functions() {
  static const Functions f = open();
  return f;
}

bool supports(DType dtype, DType out) { return dtype == out && (dtype == f32 || dtype == f64); }

int as_int(std::int64_t v) {
  if (v > INT_MAX)
    throw ValueError("matmul: a dim or stride of " + std::to_string(v) +
                     " elements passes the limit of OpenBLAS, " + std::to_string(INT_MAX));
  return static_cast<int>(v);
}

void run(const Gemm& g) {
  const int ta = g.trans_a ? transposed : plain;
  const int tb = g.trans_b ? transposed : plain;
  const int m = as_int(g.m), n = as_int(g.n), k = as_int(g.k);
  const int lda = as_int(g.lda), ldb = as_int(g.ldb), ldc = as_int(g.ldc);
  if (g.dtype == f32) {
    functions().sgemm(row_major, ta, tb, m, n, k, 1.f, static_cast<const float*>(g.a), lda,
                      static_cast<const float*>(g.b), ldb, g.accumulate ? 1.f : 0.f,
                      static_cast<float*>(g.c), ldc);
  } else {
    functions().dgemm(row_major, ta, tb, m, n, k, 1., static_cast<const double*>(g.a), lda,
                      static_cast<const double*>(g.b), ldb, g.accumulate ? 1. : 0.,
                      static_cast<double*>(g.c), ldc);
  }
}

}  // namespace

const GemmLibrary* openblas_gemm() {
  static constexpr GemmLibrary library = {supports, run};
  const Functions& f = functions();
  return f.sgemm != nullptr && f.dgemm != nullptr ? &library : nullptr;
}

}  // namespace shmap::cpu

#else

namespace shmap::cpu {
const GemmLibrary* openblas_gemm() { return nullptr; }
}  // namespace shmap::cpu

#endif
