// oneDNN, opened on first use (it takes milliseconds to load, and a program may never multiply).
// Called through its C interface; versions 2 and 3 differ in how descriptors are made.
#include "core/cpu/kernels/matmul/address_space.h"
#include "core/cpu/kernels/matmul/gemm_engines.h"

#if SHMAP_HAVE_ONEDNN

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/base/dtype_rows.h"
#include "core/base/signals_blocked.h"
#include "core/base/thread_kept.h"
#include "core/cpu/kernels/move/copy_transpose.h"
#include "core/device/at_exit.h"
#include "shmap/error.h"

#define SHMAP_STRING_(x) #x
#define SHMAP_STRING(x) SHMAP_STRING_(x)

namespace shmap::cpu {
namespace {

#define SHMAP_ONEDNN_COMMON(X)               \
  X(dnnl_sgemm)                              \
  X(dnnl_engine_create)                      \
  X(dnnl_stream_create)                      \
  X(dnnl_stream_destroy)                     \
  X(dnnl_primitive_attr_create)              \
  X(dnnl_primitive_attr_destroy)             \
  X(dnnl_primitive_attr_set_scratchpad_mode) \
  X(dnnl_primitive_attr_set_post_ops)        \
  X(dnnl_post_ops_create)                    \
  X(dnnl_post_ops_destroy)                   \
  X(dnnl_post_ops_append_sum)                \
  X(dnnl_primitive_desc_destroy)             \
  X(dnnl_primitive_desc_query_md)            \
  X(dnnl_memory_desc_get_size)               \
  X(dnnl_reorder_primitive_desc_create)      \
  X(dnnl_primitive_create)                   \
  X(dnnl_primitive_execute)                  \
  X(dnnl_primitive_destroy)                  \
  X(dnnl_memory_create)                      \
  X(dnnl_memory_set_data_handle)             \
  X(dnnl_memory_destroy)                     \
  X(dnnl_stream_wait)
#if DNNL_VERSION_MAJOR >= 3
#define SHMAP_ONEDNN_FUNCTIONS(X)         \
  SHMAP_ONEDNN_COMMON(X)                  \
  X(dnnl_memory_desc_create_with_strides) \
  X(dnnl_memory_desc_create_with_tag)     \
  X(dnnl_memory_desc_destroy)             \
  X(dnnl_matmul_primitive_desc_create)
#else
#define SHMAP_ONEDNN_FUNCTIONS(X)     \
  SHMAP_ONEDNN_COMMON(X)              \
  X(dnnl_memory_desc_init_by_strides) \
  X(dnnl_memory_desc_init_by_tag)     \
  X(dnnl_matmul_desc_init)            \
  X(dnnl_primitive_desc_create)
#endif

struct Functions {
#define SHMAP_MEMBER(name) decltype(&::name) name = nullptr;
  SHMAP_ONEDNN_FUNCTIONS(SHMAP_MEMBER)
#undef SHMAP_MEMBER
  // Functions of the OpenMP runtime that the library uses; null if it uses none.
  void (*omp_set_num_threads)(int) = nullptr;
  int (*omp_get_max_threads)() = nullptr;
  dnnl_engine_t engine = nullptr;
  bool complete = false;
};

// The first product of each kind makes static objects in the library, kernels among them. exit()
// would destroy these before it calls the handler that stops the workers, which may still be
// multiplying. So one product of each kind runs here, before the handler is registered.
void warm_up(const Functions& f) {
  const int threads = f.omp_get_max_threads ? f.omp_get_max_threads() : 1;
  if (threads != 1 && f.omp_set_num_threads) f.omp_set_num_threads(1);
  constexpr dnnl_dim_t kMost = 192;
  const std::vector<float> operand(kMost * kMost, 1.f);
  std::vector<float> product(kMost * kMost);
  for (const dnnl_dim_t n : {dnnl_dim_t{1}, dnnl_dim_t{64}, kMost}) {
    for (const char a : {'N', 'T'}) {
      for (const char b : {'N', 'T'}) {
        f.dnnl_sgemm(a, b, n, n, n, 1.f, operand.data(), n, operand.data(), n, 0.f, product.data(),
                     n);
      }
    }
  }
  if (threads != 1 && f.omp_set_num_threads) f.omp_set_num_threads(threads);
}

// The library, the code that it writes and a new thread take 100 to 150 MB of address space; other
// threads that begin to allocate meanwhile take 64 MB each.
constexpr std::size_t kRoom = std::size_t{256} << 20;

Functions open() {
  Functions f;
  if (address_space_is_limited() && !address_space_has_room(1, kRoom)) return f;
  void* library = dlopen("libdnnl.so." SHMAP_STRING(DNNL_VERSION_MAJOR), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return f;
  f.complete = true;
#define SHMAP_LOAD(name)                                               \
  f.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  f.complete &= f.name != nullptr;
  SHMAP_ONEDNN_FUNCTIONS(SHMAP_LOAD)
#undef SHMAP_LOAD
  f.omp_set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
  f.omp_get_max_threads = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
  if (f.complete) f.complete = f.dnnl_engine_create(&f.engine, dnnl_cpu, 0) == dnnl_success;
  // On a separate thread, because the OpenMP runtime keeps state for each calling thread until that
  // thread ends.
  if (f.complete) {
    std::exception_ptr failed;  // bad_alloc: the next product tries again
    const SignalsBlocked blocked;
    try {
      std::thread([&] {
        try {
          warm_up(f);
        } catch (...) {
          failed = std::current_exception();
        }
      }).join();
    } catch (const std::system_error& e) {
      throw DeviceError(
          std::string("matmul: the thread that oneDNN's first call needs could not be "
                      "started (") +
          e.what() + "): there is too little memory, or ulimit -u is too small");
    }
    if (failed) std::rethrow_exception(failed);
  }
  detail::stop_first_at_exit();
  return f;
}

const Functions& functions() {
  static const Functions f = open();  // the engine lives as long as the process
  return f;
}

// oneDNN splits a call over the OpenMP threads that its caller may use. This scope sets their
// number to one, so that no team is made.
class OneThread {
 public:
  OneThread() {
    const Functions& f = functions();
    if (f.omp_set_num_threads == nullptr || f.omp_get_max_threads == nullptr) return;
    before_ = f.omp_get_max_threads();
    if (before_ != 1) f.omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ > 1) functions().omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = 1;
};

void check(dnnl_status_t status, const char* what) {
  if (status != dnnl_success) {
    throw Error(std::string("matmul: oneDNN answered status ") +
                std::to_string(static_cast<int>(status)) + " to " + what);
  }
}

// oneDNN's name for a dtype; undef if oneDNN is never asked to multiply it.
constexpr DTypeRow<dnnl_data_type_t> kDataTypes[] = {
    {bool_, dnnl_data_type_undef},
    {i8, dnnl_data_type_undef},
    {i16, dnnl_data_type_undef},
    {i32, dnnl_data_type_undef},
    {i64, dnnl_data_type_undef},
    {u8, dnnl_data_type_undef},
    {u16, dnnl_data_type_undef},
    {u32, dnnl_data_type_undef},
    {u64, dnnl_data_type_undef},
    {f16, dnnl_f16},
    {bf16, dnnl_bf16},
    {f32, dnnl_f32},
    {f64, dnnl_data_type_undef},
    {prng_key, dnnl_data_type_undef},
};
static_assert(has_each_dtype(kDataTypes));

dnnl_data_type_t data_type(DType t) { return row_of(kDataTypes, t); }

#if DNNL_VERSION_MAJOR >= 3
using MemoryDesc = dnnl_memory_desc_t;
const_dnnl_memory_desc_t pointer(const MemoryDesc& md) { return md; }
#else
using MemoryDesc = dnnl_memory_desc_t;
const dnnl_memory_desc_t* pointer(const MemoryDesc& md) { return &md; }
#endif

// The memory descriptor of a matrix.
class Matrix {
 public:
  // rows × cols; the rows (transposed: the columns) are ld elements apart.
  Matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t ld, bool transposed) {
    const dnnl_dims_t dims = {rows, cols};
    const dnnl_dims_t strides = {transposed ? 1 : ld, transposed ? ld : 1};
#if DNNL_VERSION_MAJOR >= 3
    check(functions().dnnl_memory_desc_create_with_strides(&md, 2, dims, data_type(dtype), strides),
          "describe a matrix");
#else
    check(functions().dnnl_memory_desc_init_by_strides(&md, 2, dims, data_type(dtype), strides),
          "describe a matrix");
#endif
  }
  // rows × cols, in the layout that the library chooses.
  Matrix(DType dtype, std::int64_t rows, std::int64_t cols) {
    const dnnl_dims_t dims = {rows, cols};
#if DNNL_VERSION_MAJOR >= 3
    check(functions().dnnl_memory_desc_create_with_tag(&md, 2, dims, data_type(dtype),
                                                       dnnl_format_tag_any),
          "describe a matrix");
#else
    check(functions().dnnl_memory_desc_init_by_tag(&md, 2, dims, data_type(dtype),
                                                   dnnl_format_tag_any),
          "describe a matrix");
#endif
  }
  ~Matrix() {
#if DNNL_VERSION_MAJOR >= 3
    functions().dnnl_memory_desc_destroy(md);
#endif
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  MemoryDesc md{};
};

struct Key {
  std::int64_t m, n, k, lda, ldb, ldc;
  DType dtype, out;
  bool trans_a, trans_b, accumulate;
  friend bool operator==(const Key&, const Key&) = default;
};

Key key_of(const Gemm& g) {
  return {g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.dtype, g.out, g.trans_a, g.trans_b, g.accumulate};
}

// Bf16 products with fewer rows than this gained nothing from the preparations below (measured with
// AMX and a second-level cache of 2 MiB).
constexpr std::int64_t kManyRows = 768;

// Rows of b that are a multiple of 1 KiB apart evict each other while the library reorders them; to
// reorder all of b first is 1.1 to 1.3 times as fast.
bool packs(const Key& key) {
  const std::int64_t size = key.n * key.k;
  return key.m >= kManyRows && key.k <= 1536 && !key.trans_b && key.ldb == key.n &&
         key.ldb % 512 == 0 && size >= 900'000 && size <= 3'000'000;
}

// A large b is multiplied in blocks of columns that fit the second-level cache: 1.05 to 1.4 times
// as fast.
std::int64_t column_block(const Gemm& g) {
  if (g.m < kManyRows || g.k <= 1536) return g.n;
  const std::int64_t fitting = std::max<std::int64_t>(64, (std::int64_t{1} << 20) / g.k);
  const std::int64_t blocks = (g.n + fitting - 1) / fitting;
  return ((g.n + blocks - 1) / blocks + 63) / 64 * 64;
}

// oneDNN multiplies a large transposed a at half the speed of an a that was transposed before.
bool transposes_first(const Gemm& g) { return g.trans_a && g.m * g.k >= 600'000 && g.n >= 256; }

// A matmul primitive for one shape, with its memory objects. Used by one thread.
class Matmul {
 public:
  explicit Matmul(const Key& key) : key_(key), packs_(packs(key)) {
    const Functions& f = functions();
    dnnl_primitive_attr_t attr = nullptr;
    dnnl_post_ops_t post_ops = nullptr;
    dnnl_primitive_desc_t desc = nullptr, reorder = nullptr;
    create(&attr, &post_ops, &desc, &reorder);
    if (reorder != nullptr) f.dnnl_primitive_desc_destroy(reorder);
    if (desc != nullptr) f.dnnl_primitive_desc_destroy(desc);
    if (post_ops != nullptr) f.dnnl_post_ops_destroy(post_ops);
    if (attr != nullptr) f.dnnl_primitive_attr_destroy(attr);
  }
  ~Matmul() {
    const Functions& f = functions();
    for (dnnl_memory_t memory : {a_, b_, c_, packed_, scratch_})
      if (memory != nullptr) f.dnnl_memory_destroy(memory);
    for (dnnl_primitive_t primitive : {matmul_, pack_})
      if (primitive != nullptr) f.dnnl_primitive_destroy(primitive);
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  dnnl_status_t status() const { return status_; }
  const Key& key() const { return key_; }

  void run(const Gemm& g, dnnl_stream_t stream, GemmScratch& scratch, GemmScratch& packed) {
    check(status_, "create a matmul");
    bind(a_, const_cast<void*>(g.a));
    bind(b_, const_cast<void*>(g.b));
    bind(c_, g.c);
    if (scratch_ != nullptr) bind(scratch_, scratch.get(scratch_bytes_));
    if (packs_) {
      bind(packed_, packed.get(packed_bytes_));
      const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, b_}, {DNNL_ARG_TO, packed_}};
      check(functions().dnnl_primitive_execute(pack_, stream, 2, args), "reorder a matrix");
    }
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, a_},
                                    {DNNL_ARG_WEIGHTS, packs_ ? packed_ : b_},
                                    {DNNL_ARG_DST, c_},
                                    {DNNL_ARG_SCRATCHPAD, scratch_}};
    check(functions().dnnl_primitive_execute(matmul_, stream, scratch_ != nullptr ? 4 : 3, args),
          "run a matmul");
  }

 private:
  static void bind(dnnl_memory_t memory, void* data) {
    check(functions().dnnl_memory_set_data_handle(memory, data), "bind a matrix");
  }
  bool ok(dnnl_status_t status) {
    status_ = status;
    return status == dnnl_success;
  }

  // Stops at the first call that fails, and leaves its status in status_.
  bool create(dnnl_primitive_attr_t* attr, dnnl_post_ops_t* post_ops, dnnl_primitive_desc_t* desc,
              dnnl_primitive_desc_t* reorder) {
    const Functions& f = functions();
    const Matrix a(key_.dtype, key_.m, key_.k, key_.lda, key_.trans_a);
    const Matrix b(key_.dtype, key_.k, key_.n, key_.ldb, key_.trans_b);
    const Matrix any_b(key_.dtype, key_.k, key_.n);
    const Matrix c(key_.out, key_.m, key_.n, key_.ldc, false);
    const MemoryDesc& used_b = packs_ ? any_b.md : b.md;
    if (!ok(f.dnnl_primitive_attr_create(attr)) ||
        !ok(f.dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user)))
      return false;
    if (key_.accumulate) {
      if (!ok(f.dnnl_post_ops_create(post_ops))) return false;
#if DNNL_VERSION_MAJOR >= 3
      if (!ok(f.dnnl_post_ops_append_sum(*post_ops, 1.f, 0, dnnl_data_type_undef))) return false;
#else
      if (!ok(f.dnnl_post_ops_append_sum(*post_ops, 1.f))) return false;
#endif
      if (!ok(f.dnnl_primitive_attr_set_post_ops(*attr, *post_ops))) return false;
    }
#if DNNL_VERSION_MAJOR >= 3
    if (!ok(f.dnnl_matmul_primitive_desc_create(desc, f.engine, a.md, used_b, nullptr, c.md,
                                                *attr)))
      return false;
#else
    dnnl_matmul_desc_t operation;
    if (!ok(f.dnnl_matmul_desc_init(&operation, &a.md, &used_b, nullptr, &c.md)) ||
        !ok(f.dnnl_primitive_desc_create(desc, &operation, *attr, f.engine, nullptr)))
      return false;
#endif
    const auto memory = [&](dnnl_memory_t* out, auto md) {
      return ok(f.dnnl_memory_create(out, md, f.engine, DNNL_MEMORY_NONE));
    };
    if (!ok(f.dnnl_primitive_create(&matmul_, *desc)) || !memory(&a_, pointer(a.md)) ||
        !memory(&b_, pointer(b.md)) || !memory(&c_, pointer(c.md)))
      return false;
    const auto scratch_md = f.dnnl_primitive_desc_query_md(*desc, dnnl_query_scratchpad_md, 0);
    scratch_bytes_ = f.dnnl_memory_desc_get_size(scratch_md);
    if (scratch_bytes_ > 0 && !memory(&scratch_, scratch_md)) return false;
    if (!packs_) return true;
    const auto packed_md = f.dnnl_primitive_desc_query_md(*desc, dnnl_query_weights_md, 0);
    packed_bytes_ = f.dnnl_memory_desc_get_size(packed_md);
    return ok(f.dnnl_reorder_primitive_desc_create(reorder, pointer(b.md), f.engine, packed_md,
                                                   f.engine, nullptr)) &&
           ok(f.dnnl_primitive_create(&pack_, *reorder)) && memory(&packed_, packed_md);
  }

  Key key_;
  bool packs_;
  dnnl_status_t status_ = dnnl_success;
  dnnl_primitive_t matmul_ = nullptr, pack_ = nullptr;
  dnnl_memory_t a_ = nullptr, b_ = nullptr, c_ = nullptr, packed_ = nullptr, scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0, packed_bytes_ = 0;
};

// The state of one thread: a stream, its scratch memory, and the primitives of the shapes used
// last.
class ThreadState {
 public:
  ThreadState() { check(functions().dnnl_stream_create(&stream_, functions().engine, 0), "start"); }
  ~ThreadState() {
    matmuls_.clear();
    functions().dnnl_stream_destroy(stream_);
  }
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  Matmul& matmul(const Key& key) {
    for (std::size_t i = 0; i < matmuls_.size(); ++i) {
      if (matmuls_[i]->key() != key) continue;
      for (; i > 0 && i >= recent; --i) matmuls_[i].swap(matmuls_[i - 1]);
      return *matmuls_[i];
    }
    if (matmuls_.size() >= limit) matmuls_.pop_back();
    matmuls_.insert(matmuls_.begin(), std::make_unique<Matmul>(key));
    return *matmuls_.front();
  }
  dnnl_stream_t stream() const { return stream_; }
  GemmScratch& scratch() { return scratch_; }
  GemmScratch& packed() { return packed_; }
  GemmScratch& plain() { return plain_; }
  GemmScratch& padded() { return padded_; }

 private:
  static constexpr std::size_t limit = 64;  // a search through so few takes less time than any
                                            // product
  static constexpr std::size_t recent = 8;
  dnnl_stream_t stream_ = nullptr;
  std::vector<std::unique_ptr<Matmul>> matmuls_;
  GemmScratch scratch_, packed_, plain_, padded_;
};

ThreadState& thread_state() { return kept_by_thread<ThreadState>(); }

// True if the library has a matmul of these dtypes; tested once with a small product.
bool has_matmul(DType dtype, DType out) {
  const OneThread one;
  return Matmul({32, 32, 32, 32, 32, 32, dtype, out, false, false, false}).status() == dnnl_success;
}

bool cpu_has_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool supports(DType dtype, DType out) {
  if (dtype == f32) return out == f32;
  // Without bf16 instructions the library emulates bf16, which is slower than a product in f32.
  if (dtype == bf16 && cpu_has_bf16()) {
    static const bool narrow = has_matmul(bf16, bf16), wide = has_matmul(bf16, f32);
    return out == f32 ? wide : narrow;
  }
  return false;
}

void run_matmul(const Gemm& g) {
  ThreadState& state = thread_state();
  const std::int64_t block = column_block(g);
  for (std::int64_t n = 0; n < g.n; n += block) {
    const Gemm part = gemm_block(g, 0, g.m, n, std::min(g.n, n + block));
    state.matmul(key_of(part)).run(part, state.stream(), state.scratch(), state.packed());
  }
  check(functions().dnnl_stream_wait(state.stream()), "finish a matmul");
}

constexpr std::int64_t kMostCopied = 4 << 20;  // elements of an operand at a time

// The rows of a, or columns of b, that are copied at a time.
std::int64_t copied_lines(std::int64_t lines, std::int64_t k) {
  return std::min(lines, std::max<std::int64_t>(64, kMostCopied / k));
}

// Copies the lines (rows of a, or columns of b) to dst, with zeros up to padded_k elements.
// `across`: element l of each line is in row l of src, otherwise the lines are rows.
void copy_padded(const void* src, std::int64_t ld, std::int64_t lines, std::int64_t k, bool across,
                 std::int64_t padded_k, std::int64_t size, char* dst) {
  const std::int64_t rows = across ? k : lines, row = (across ? lines : k) * size;
  const std::int64_t padded = across ? row : padded_k * size;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(dst + r * padded, static_cast<const char*>(src) + r * ld * size,
                static_cast<std::size_t>(row));
    std::memset(dst + r * padded + row, 0, static_cast<std::size_t>(padded - row));
  }
  if (across) std::memset(dst + k * row, 0, static_cast<std::size_t>((padded_k - k) * row));
}

// The library sums products in pairs along k. Of an odd k most of its kernels (2.6, with bf16
// instructions) multiply the last element of a by that of b and by a zero too, so that an infinity
// there gives a NaN. So both operands are copied, with a zero at the end of each line.
void run_odd(const Gemm& g) {
  const std::int64_t size = itemsize(g.dtype), k = g.k + 1;
  const std::int64_t rows = copied_lines(g.m, k), cols = copied_lines(g.n, k);
  ThreadState& state = thread_state();
  const auto get = [&](GemmScratch& scratch, std::int64_t lines) {
    return static_cast<char*>(scratch.get(static_cast<std::size_t>(lines * k * size)));
  };
  char* const padded_a = get(state.plain(), rows);
  char* const padded_b = get(state.padded(), cols);
  const bool transposes = transposes_first(g);
  for (std::int64_t n = 0; n < g.n; n += cols) {
    const Gemm columns = gemm_block(g, 0, g.m, n, std::min(g.n, n + cols));
    copy_padded(columns.b, g.ldb, columns.n, g.k, !g.trans_b, k, size, padded_b);
    for (std::int64_t m = 0; m < g.m; m += rows) {
      Gemm part = gemm_block(columns, m, std::min(g.m, m + rows), 0, columns.n);
      // Where all rows fit they are copied once.
      if (n == 0 || rows < g.m) {
        if (transposes) {
          transpose(padded_a, k * size, static_cast<const char*>(part.a), g.lda * size, part.m, g.k,
                    size);
          for (std::int64_t i = 0; i < part.m; ++i)
            std::memset(padded_a + ((i + 1) * k - 1) * size, 0, static_cast<std::size_t>(size));
        } else {
          copy_padded(part.a, g.lda, part.m, g.k, g.trans_a, k, size, padded_a);
        }
      }
      part.a = padded_a;
      part.b = padded_b;
      part.k = k;
      part.trans_a = g.trans_a && !transposes;
      part.lda = part.trans_a ? part.m : k;
      part.ldb = g.trans_b ? k : part.n;
      run_matmul(part);
    }
  }
}

void run(const Gemm& g) {
  const OneThread one;
  if (g.dtype == f32) {
    check(functions().dnnl_sgemm(g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, 1.f,
                                 static_cast<const float*>(g.a), g.lda,
                                 static_cast<const float*>(g.b), g.ldb, g.accumulate ? 1.f : 0.f,
                                 static_cast<float*>(g.c), g.ldc),
          "run an sgemm");
    return;
  }
  if (g.k % 2 != 0) return run_odd(g);
  if (!transposes_first(g)) return run_matmul(g);
  const std::int64_t rows = copied_lines(g.m, g.k);
  const std::int64_t row_bytes = g.k * itemsize(g.dtype);
  char* const plain =
      static_cast<char*>(thread_state().plain().get(static_cast<std::size_t>(rows * row_bytes)));
  for (std::int64_t m = 0; m < g.m; m += rows) {
    Gemm part = gemm_block(g, m, std::min(g.m, m + rows), 0, g.n);
    transpose(plain, row_bytes, static_cast<const char*>(part.a), g.lda * itemsize(g.dtype), part.m,
              g.k, itemsize(g.dtype));
    part.a = plain;
    part.lda = g.k;
    part.trans_a = false;
    run_matmul(part);
  }
}

}  // namespace

const GemmLibrary* onednn_gemm() {
  static constexpr GemmLibrary library = {supports, run};
  return functions().complete ? &library : nullptr;
}

}  // namespace shmap::cpu

#else

namespace shmap::cpu {
const GemmLibrary* onednn_gemm() { return nullptr; }
}  // namespace shmap::cpu

#endif
