// OpenBLAS, opened on first use: which of its kernels it takes is decided while it loads, and older
// versions decide for AVX2 on CPUs with AVX-512 that they do not know.
#include "core/cpu/kernels/gemm_engines.h"

#if SHMAP_HAVE_OPENBLAS

#include <dlfcn.h>

#include <climits>
#include <cstdlib>

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

// Sets a variable for as long as it lives, where it was unset.
class TemporaryVariable {
 public:
  TemporaryVariable(const char* name, const char* value) : name_(name) {
    if (value != nullptr && std::getenv(name) == nullptr) set_ = setenv(name, value, 0) == 0;
  }
  ~TemporaryVariable() {
    if (set_) unsetenv(name_);
  }
  TemporaryVariable(const TemporaryVariable&) = delete;
  TemporaryVariable& operator=(const TemporaryVariable&) = delete;

 private:
  const char* name_;
  bool set_ = false;
};

const char* core_type() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return __builtin_cpu_supports("avx512bf16") ? "Cooperlake" : "SkylakeX";
  }
#endif
  return nullptr;  // its own choice is right
}

Functions open() {
  Functions f;
  const TemporaryVariable core("OPENBLAS_CORETYPE", core_type());
  const TemporaryVariable threads("OPENBLAS_NUM_THREADS", "1");  // start no pool of its own
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return f;
  const auto set_threads =
      reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  if (set_threads == nullptr) return f;
  set_threads(1);
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
