#include "cuda/kernels/matmul/cublaslt_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/disk_cache.h"
#include "core/base/dtype_rows.h"
#include "core/base/env.h"
#include "core/base/float_format.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"
#include "cuda/kernels/matmul/padded_gemm.h"
#include "cuda/kernels/matmul/product_tail.h"
#include "cuda/kernels/matmul/shared_timer.h"
#include "cuda/kernels/matmul/timed_choice.h"
#include "cuda/kernels/matmul/workspaces.h"
#include "cuda/libraries/cublaslt_api.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

// The largest workspace that an algorithm may use; twice what NVIDIA recommends for Hopper.
constexpr std::size_t kWorkspaceBytes = 64 << 20;
constexpr int kCandidates = 24;
// Alignments beyond kGemmAlignment bytes are not distinguished.
constexpr std::uint64_t kGemmAlignment = 16;

struct Destroy {
  void operator()(cublasLtMatmulDesc_t d) const { cublaslt().desc_destroy(d); }
  void operator()(cublasLtMatrixLayout_t l) const { cublaslt().layout_destroy(l); }
  void operator()(cublasLtMatmulPreference_t p) const { cublaslt().preference_destroy(p); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

// cuBLASLt's name for a dtype; none: there are no products of it.
constexpr DTypeRow<std::optional<cudaDataType_t>> kTypes[] = {
    {bool_, std::nullopt}, {i8, std::nullopt},       {i16, std::nullopt}, {i32, std::nullopt},
    {i64, std::nullopt},   {u8, std::nullopt},       {u16, std::nullopt}, {u32, std::nullopt},
    {u64, std::nullopt},   {f16, CUDA_R_16F},        {bf16, CUDA_R_16BF}, {f32, CUDA_R_32F},
    {f64, CUDA_R_64F},     {prng_key, std::nullopt},
};
static_assert(has_each_dtype(kTypes));

cudaDataType_t type_of(DType dtype) {
  if (const std::optional<cudaDataType_t> type = row_of(kTypes, dtype)) return *type;
  throw TypeError(std::string("cuBLASLt multiplies no matrices of ") + short_name(dtype));
}

std::uint32_t alignment(const void* address) {
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(address) | kGemmAlignment;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

struct GemmGpu {
  GpuKind kind;
  int devices = 1;  // that share the GPU
  cublasLtHandle_t handle;
};

// All properties of a product on which the choice of its algorithm depends.
using GemmKey = std::array<std::int64_t, 24>;

GemmKey key_of(const LtGemm& g, const GpuKind& kind) {
  const auto align = [&](const void* p) { return static_cast<std::int64_t>(alignment(p)); };
  const bool many = g.batch != 1;
  const bool apart = g.d != nullptr && g.d != g.c;
  return {static_cast<std::int64_t>(g.dtype),
          static_cast<std::int64_t>(g.out),
          g.trans_a | g.trans_b << 1 | g.tf32 << 2,
          g.m,
          g.n,
          g.k,
          g.lda,
          g.ldb,
          g.ldc,
          g.batch,
          many ? g.stride_a : 0,
          many ? g.stride_b : 0,
          many ? g.stride_c : 0,
          align(g.a),
          align(g.b),
          align(g.c),
          g.d == nullptr ? 0
          : apart        ? align(g.d)
                         : -1,
          apart ? g.ldd : 0,
          apart && many ? g.stride_d : 0,
          g.bias == nullptr ? 0 : align(g.bias),
          static_cast<std::int64_t>(g.function),
          kind.major,
          kind.minor,
          kind.processors};
}

std::string describe(const LtGemm& g) {
  const auto text = [](std::int64_t v) { return std::to_string(v); };
  return std::string(short_name(g.dtype)) + "[" + text(g.m) + "," + text(g.k) + "]" +
         (g.trans_a ? "ᵀ" : "") + " · " + short_name(g.dtype) + "[" + text(g.k) + "," + text(g.n) +
         "]" + (g.trans_b ? "ᵀ" : "") + " -> " + short_name(g.out) + ", batch " + text(g.batch) +
         ", rows of " + text(g.lda) + ", " + text(g.ldb) + ", " + text(g.ldc) +
         (g.d ? ", added to rows of " + text(g.ldd) : "") + (g.bias ? ", with a bias" : "") +
         (g.function == Activation::relu   ? ", relu"
          : g.function == Activation::gelu ? ", gelu"
                                           : "");
}

// The form of a choice on disk: the algorithm's bytes. They are only compared with the algorithms
// that the library proposes, so that no algorithm runs that the library does not propose now.
std::string choice_text(const cublasLtMatmulHeuristicResult_t& chosen) {
  const std::uint64_t workspace = chosen.workspaceSize;
  std::string text(sizeof chosen.algo + sizeof workspace, '\0');
  std::memcpy(text.data(), &chosen.algo, sizeof chosen.algo);
  std::memcpy(text.data() + sizeof chosen.algo, &workspace, sizeof workspace);
  return text;
}

std::string choice_key(const GemmKey& key, const GemmGpu& gpu) {
  std::string text = "product, cuBLASLt " + std::to_string(cublaslt().get_version()) + ", " +
                     gpu.kind.name + ", " + std::to_string(gpu.devices) + " devices, workspace " +
                     std::to_string(kWorkspaceBytes) + ":";
  for (const std::int64_t part : key) text += " " + std::to_string(part);
  return text;
}

// The choice between a plain product and one of padded copies, as it is kept on disk.
constexpr const char* kPadded = "padded";
constexpr const char* kPlain = "plain";

bool has_tail(const LtGemm& g) { return g.bias != nullptr || g.function != Activation::none; }

cublasLtEpilogue_t epilogue_of(const LtGemm& g) {
  const bool bias = g.bias != nullptr;
  switch (g.function) {
    case Activation::relu:
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::gelu:
      return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
      return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// cuBLASLt uses column-major order, in which a row-major matrix is its transpose. It is therefore
// asked for Cᵀ = op(B)ᵀ · op(A)ᵀ: its first operand is b, and its bias, one number for each of its
// rows, is one for each of our columns.
class Plan {
 public:
  explicit Plan(const LtGemm& g) {
    const CublasLtApi& lt = cublaslt();
    const bool wide = g.dtype == DType::f64;
    const cublasComputeType_t compute = wide ? CUBLAS_COMPUTE_64F
                                        : g.tf32 && g.dtype == DType::f32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t desc;
    check(lt.desc_create(&desc, compute, wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    desc_.reset(desc);
    set(CUBLASLT_MATMUL_DESC_TRANSA, g.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, g.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    first_ = layout(g, g.dtype, g.trans_b ? g.k : g.n, g.trans_b ? g.n : g.k, g.ldb, g.stride_b);
    second_ = layout(g, g.dtype, g.trans_a ? g.m : g.k, g.trans_a ? g.k : g.m, g.lda, g.stride_a);
    result_ = layout(g, g.out, g.n, g.m, g.ldc, g.stride_c);
    if (g.d != nullptr && g.d != g.c) added_ = layout(g, g.out, g.n, g.m, g.ldd, g.stride_d);
    if (const cublasLtEpilogue_t epilogue = epilogue_of(g); epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      const auto number = static_cast<std::uint32_t>(epilogue);
      check(lt.desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &number, sizeof(number)),
            "cublasLtMatmulDescSetAttribute");
      // The heuristics read the address's alignment; no more than this alignment may be assumed.
      if (g.bias != nullptr) {
        const void* as_aligned = reinterpret_cast<const void*>(std::uintptr_t{alignment(g.bias)});
        check(point_to_bias(as_aligned), "cublasLtMatmulDescSetAttribute");
      }
    }
    wide_ = wide;
  }

  // The algorithms that cuBLASLt proposes, the likeliest first; at least one for a product without
  // bias and function. All of them add in an order that is the same each time.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(const LtGemm& g,
                                                          const GemmGpu& gpu) const {
    const CublasLtApi& lt = cublaslt();
    cublasLtMatmulPreference_t made;
    check(lt.preference_create(&made), "cublasLtMatmulPreferenceCreate");
    const Owned<cublasLtMatmulPreference_t> preference(made);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      check(lt.preference_set(made, what, &value, sizeof(value)),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(g.d != nullptr ? g.d : g.c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(g.c));
    std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
    int count = 0;
    const cublasStatus_t status =
        lt.heuristic(gpu.handle, desc_.get(), first_.get(), second_.get(), added(), result_.get(),
                     made, kCandidates, found.data(), &count);
    found.resize(static_cast<std::size_t>(status == CUBLAS_STATUS_SUCCESS ? count : 0));
    std::erase_if(found, [](const auto& f) { return f.state != CUBLAS_STATUS_SUCCESS; });
    if (found.empty() && !has_tail(g)) {
      throw DeviceError("cuBLASLt has no algorithm for the product " + describe(g) + ": " +
                        lt.status_string(status));
    }
    return found;
  }

  void take(const cublasLtMatmulHeuristicResult_t& chosen) {
    algorithm_ = chosen.algo;
    workspace_bytes_ = chosen.workspaceSize;
    is_empty_ = false;
  }
  bool is_empty() const { return is_empty_; }  // cuBLASLt has no algorithm
  std::size_t workspace_bytes() const { return workspace_bytes_; }

  cublasStatus_t run(const LtGemm& g, const GemmGpu& gpu, void* workspace,
                     cudaStream_t stream) const {
    constexpr double kOne = 1, kZero = 0;
    constexpr float kOneF = 1, kZeroF = 0;
    const void* one = wide_ ? static_cast<const void*>(&kOne) : &kOneF;
    const void* zero = wide_ ? static_cast<const void*>(&kZero) : &kZeroF;
    if (g.bias != nullptr)
      if (const cublasStatus_t status = point_to_bias(g.bias)) return status;
    return cublaslt().matmul(gpu.handle, desc_.get(), one, g.b, first_.get(), g.a, second_.get(),
                             g.d != nullptr ? one : zero, g.d != nullptr ? g.d : g.c, added(), g.c,
                             result_.get(), &algorithm_, workspace, workspace_bytes_, stream);
  }

 private:
  cublasLtMatrixLayout_t added() const { return added_ ? added_.get() : result_.get(); }
  // cuBLASLt reads the pointer when the product is enqueued: called under the lock of the plans.
  cublasStatus_t point_to_bias(const void* bias) const {
    return cublaslt().desc_set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
  }
  void set(cublasLtMatmulDescAttributes_t what, cublasOperation_t value) {
    const auto number = static_cast<std::int32_t>(value);
    check(cublaslt().desc_set(desc_.get(), what, &number, sizeof(number)),
          "cublasLtMatmulDescSetAttribute");
  }

  static Owned<cublasLtMatrixLayout_t> layout(const LtGemm& g, DType dtype, std::int64_t rows,
                                              std::int64_t columns, std::int64_t ld,
                                              std::int64_t stride) {
    const CublasLtApi& lt = cublaslt();
    cublasLtMatrixLayout_t made;
    check(lt.layout_create(&made, type_of(dtype), static_cast<std::uint64_t>(rows),
                           static_cast<std::uint64_t>(columns), ld),
          "cublasLtMatrixLayoutCreate");
    Owned<cublasLtMatrixLayout_t> owned(made);
    if (g.batch == 1) return owned;
    const auto count = static_cast<std::int32_t>(g.batch);
    check(lt.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
          "cublasLtMatrixLayoutSetAttribute");
    check(lt.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
          "cublasLtMatrixLayoutSetAttribute");
    return owned;
  }

  Owned<cublasLtMatmulDesc_t> desc_;
  Owned<cublasLtMatrixLayout_t> first_, second_, result_;
  Owned<cublasLtMatrixLayout_t> added_;  // null: as the result's layout
  cublasLtMatmulAlgo_t algorithm_ = {};
  std::size_t workspace_bytes_ = 0;
  bool wide_ = false;
  bool is_empty_ = true;
};

// The plans, and the workspaces of streams. Never destroyed, because graphs and static objects may
// multiply until the process ends.
class Gemms {
 public:
  static Gemms& get() {
    static auto* gemms = new Gemms;
    return *gemms;
  }

  void run(const LtGemm& g, cudaStream_t stream) {
    if (g.batch > INT32_MAX) {
      throw ValueError("matmul: a batch of " + std::to_string(g.batch) +
                       " passes the limit of cuBLASLt, " + std::to_string(INT32_MAX));
    }
    int index = 0;
    check(cudaGetDevice(&index), "cudaGetDevice");
    std::lock_guard lock(mutex_);
    // cuBLASLt makes its handle, and loads the code of its heuristics and of each algorithm, at
    // their first use, which may be in a capture.
    const UncapturedCalls uncaptured;
    if (std::optional<PaddedGemm> copies = padded(g); copies && pads(g, *copies, index, stream))
      return run_padded(g, *copies, index, stream);
    if (run_whole(g, index, stream)) return;
    LtGemm plain = g;
    plain.bias = nullptr;
    plain.function = Activation::none;
    run_whole(plain, index, stream);
    product_tail(g, stream);
  }

  void drop(cudaStream_t stream) noexcept {
    std::lock_guard lock(mutex_);
    workspaces_.drop(stream);
    copies_.drop(stream);
  }

 private:
  // True if the product is made from padded copies. Measured once for each problem, by its first
  // call outside of a capture, and kept on disk; until then, and if nothing is timed, it is not.
  bool pads(const LtGemm& g, PaddedGemm& copies, int index, cudaStream_t stream) {
    const GemmGpu& gpu = gpu_at(index);
    const GemmKey key = key_of(g, gpu.kind);
    if (const auto known = pads_.find(key); known != pads_.end()) return known->second;
    if (!env::flag(env::Var::time_gemms)) return false;
    const DiskCache cache("gemm", DiskCache::default_folder());
    const std::string on_disk = "padded " + choice_key(key, gpu);
    if (std::string known; cache.load(on_disk, &known)) return pads_[key] = known == kPadded;
    if (is_capturing(stream)) return false;
    const float plain = time_of_run(
        stream, [&] { return run_whole(g, index, stream); }, 0);
    const float with_copies = time_of_run(
        stream, [&] { return run_padded(g, copies, index, stream), true; }, plain);
    const bool better = plain < 0 || with_copies < plain * kWorthwhile;
    cache.store(on_disk, better ? kPadded : kPlain);
    return pads_[key] = better;
  }

  void run_padded(const LtGemm& g, PaddedGemm& copies, int index, cudaStream_t stream) {
    void* const room = copies_.at_least(static_cast<std::size_t>(copies.bytes()), index, stream);
    copy_operands(g, copies, room, stream);
    run_whole(copies.gemm, index, stream);
    copy_result(copies, g, stream);
  }

  // Returns false, with nothing enqueued, where cuBLASLt has no algorithm for the whole product.
  bool run_whole(const LtGemm& g, int index, cudaStream_t stream) {
    const GemmGpu& gpu = gpu_at(index);
    const GemmKey key = key_of(g, gpu.kind);
    auto it = plans_.find(key);
    if (it == plans_.end()) it = plans_.emplace(key, make(g, key, gpu, index, stream)).first;
    const Plan& plan = it->second;
    if (plan.is_empty()) return false;
    void* workspace = workspace_of(plan, index, stream);
    const cublasStatus_t status = plan.run(g, gpu, workspace, stream);
    if (status != CUBLAS_STATUS_SUCCESS) {
      check(cudaPeekAtLastError(), "cublasLtMatmul");  // a lost GPU says more than cuBLASLt does
      throw DeviceError("cublasLtMatmul of " + describe(g) + ": " +
                        cublaslt().status_string(status));
    }
    return true;
  }

  const GemmGpu& gpu_at(int index) {
    const auto it = gpus_.find(index);
    if (it != gpus_.end()) return it->second;
    GemmGpu gpu{kind_of(index), devices_sharing(index), nullptr};
    check(cublaslt().create(&gpu.handle), "cublasLtCreate");
    return gpus_.emplace(index, gpu).first->second;
  }

  void* workspace_of(const Plan& plan, int gpu, cudaStream_t stream) {
    return workspaces_.at_least(plan.workspace_bytes(), gpu, stream);
  }

  Plan make(const LtGemm& g, const GemmKey& key, const GemmGpu& gpu, int index,
            cudaStream_t stream) {
    Plan plan(g);
    const auto candidates = plan.candidates(g, gpu);
    if (candidates.empty()) return plan;
    plan.take(candidates.front());
    const bool once = g.d != nullptr && g.d == g.c;  // D is C: each run adds to it again
    if (candidates.size() == 1 || once || !env::flag(env::Var::time_gemms)) return plan;
    const DiskCache cache("gemm", DiskCache::default_folder());
    const std::string on_disk = choice_key(key, gpu);
    if (std::string known; cache.load(on_disk, &known)) {
      const auto chosen = std::ranges::find(candidates, known, choice_text);
      if (chosen != candidates.end()) {
        plan.take(*chosen);
        return plan;
      }
    }
    if (is_capturing(stream)) return plan;
    const cublasLtMatmulHeuristicResult_t* best = nullptr;
    float least = 0;
    bool all_timed = true;  // but for those that cannot compute it
    SharedTimer timer(index, stream);
    for (const auto& candidate : candidates) {
      plan.take(candidate);
      const SharedTimer::Time time = timer.time(
          [&](cudaStream_t lane, void* workspace) {
            return plan.run(g, gpu, workspace, lane) == CUBLAS_STATUS_SUCCESS;
          },
          plan.workspace_bytes(), best != nullptr ? least : 0);
      all_timed = all_timed && !time.lacks_memory;
      if (time.ms < 0) continue;
      if (best != nullptr && time.ms > least * kWorthwhile) continue;
      best = &candidate;
      least = time.ms;
    }
    plan.take(best != nullptr ? *best : candidates.front());
    // A choice that was made while memory was short is for this process alone.
    if (best != nullptr && all_timed) cache.store(on_disk, choice_text(*best));
    return plan;
  }

  std::mutex mutex_;
  std::map<int, GemmGpu> gpus_;
  std::map<GemmKey, Plan> plans_;
  std::map<GemmKey, bool> pads_;
  Workspaces workspaces_{"cuBLASLt"};
  Workspaces copies_{"padded operands of cuBLASLt"};
};

}  // namespace

void cublaslt_gemm(const LtGemm& gemm, void* native_stream) {
  const bool fits = gemm.out == gemm.dtype || (gemm.out == f32 && is_half(gemm.dtype));
  if (!fits) {
    throw TypeError(std::string("cuBLASLt makes no ") + short_name(gemm.out) + " of a product of " +
                    short_name(gemm.dtype));
  }
  if (gemm.dtype == f64 && (gemm.bias != nullptr || gemm.function != Activation::none))
    throw TypeError("cuBLASLt has no bias and no function for products of f64");
  Gemms::get().run(gemm, static_cast<cudaStream_t>(native_stream));
}

void drop_gemm_workspace(void* native_stream) noexcept {
  Gemms::get().drop(static_cast<cudaStream_t>(native_stream));
}

}  // namespace shmap::cuda
