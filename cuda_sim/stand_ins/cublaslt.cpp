// Replaces cuBLASLt: computes products by plain loops when the stream reaches them. It is as strict
// as the library about sizes, alignment and workspaces. Its algorithms give different bits: the
// second one sums the halves of k separately, in the workspace.
#include <cublasLt.h>
#include <cuda_sim.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "shmap/half.h"

struct cublasLtContext {
  int device = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  bool transpose_a = false, transpose_b = false;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;

  bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  std::int64_t rows, columns, ld;
  std::int64_t batch = 1, stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = 7, alignment[4] = {256, 256, 256, 256};
};

namespace {

constexpr int kAlgorithms = 3;
constexpr std::size_t kCounterBytes = 4;  // of the workspace's start
// The workspace of an algorithm; for tests, all of them may need one.
std::size_t workspace_of(int algorithm) {
  return algorithm == 1 || std::getenv("SHMAP_SIM_LT_WORKSPACE") != nullptr ? 1 << 20 : 0;
}

double load(const void* at, cudaDataType type, std::int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(at)[i];
    case CUDA_R_32F:
      return static_cast<const float*>(at)[i];
    case CUDA_R_16F:
      return static_cast<float>(static_cast<const shmap::float16*>(at)[i]);
    default:
      return static_cast<float>(static_cast<const shmap::bfloat16*>(at)[i]);
  }
}

void store(void* at, cudaDataType type, std::int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(at)[i] = value;
      return;
    case CUDA_R_32F:
      static_cast<float*>(at)[i] = static_cast<float>(value);
      return;
    case CUDA_R_16F:
      static_cast<shmap::float16*>(at)[i] = shmap::float16(static_cast<float>(value));
      return;
    default:
      static_cast<shmap::bfloat16*>(at)[i] = shmap::bfloat16(static_cast<float>(value));
  }
}

// TF32 keeps ten bits of the fraction.
double rounded(double value, cublasComputeType_t compute) {
  if (compute != CUBLAS_COMPUTE_32F_FAST_TF32) return value;
  const auto narrow = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &narrow, 4);
  if ((bits >> 23 & 255u) == 255u) return value;
  bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
  float kept;
  std::memcpy(&kept, &bits, 4);
  return kept;
}

struct Product {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, d;
  const void *first, *second;
  const void* added;  // null if beta is 0
  cublasLtMatrixLayoutOpaque_t c;
  void* result;
  double alpha, beta;
  int algorithm;
  void* workspace;

  std::int64_t k() const { return desc.transpose_a ? a.rows : a.columns; }
  // One item's operand as rows of k numbers each.
  std::vector<double> rows(const void* data, const cublasLtMatrixLayoutOpaque_t& m, bool k_is_first,
                           std::int64_t item) const {
    const std::int64_t n = k_is_first ? m.columns : m.rows;
    std::vector<double> out(static_cast<std::size_t>(n * k()));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t l = 0; l < k(); ++l)
        out[static_cast<std::size_t>(i * k() + l)] = rounded(
            load(data, m.type, item * m.stride + (k_is_first ? l + i * m.ld : i + l * m.ld)),
            desc.compute);
    return out;
  }
  double sum(const double* x, const double* y, std::int64_t n) const {
    double wide_sum = 0;
    float narrow_sum = 0;
    if (desc.compute == CUBLAS_COMPUTE_64F) {
      for (std::int64_t l = 0; l < n; ++l) wide_sum += x[l] * y[l];
      return wide_sum;
    }
    for (std::int64_t l = 0; l < n; ++l) narrow_sum = static_cast<float>(narrow_sum + x[l] * y[l]);
    return narrow_sum;
  }
  double narrow(double x) const {
    return desc.compute == CUBLAS_COMPUTE_64F ? x : static_cast<float>(x);
  }
  double activated(double x) const {
    if (desc.epilogue & CUBLASLT_EPILOGUE_RELU) return x < 0 ? 0 : x;
    if (!(desc.epilogue & CUBLASLT_EPILOGUE_GELU)) return x;
    constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
    return 0.5 * x * (1 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
  }
  void run() const {
    // As cuBLASLt's kernels count their blocks in the workspace, which a fill before them clears.
    bool counts = true;
    if (workspace != nullptr) {
      constexpr unsigned char kCleared[kCounterBytes] = {};
      counts = std::memcmp(workspace, kCleared, kCounterBytes) == 0;
      std::memset(workspace, 0x5a, workspace_of(algorithm));
    }
    for (std::int64_t item = 0; item < d.batch; ++item) {
      const std::vector<double> left = rows(first, a, desc.transpose_a, item);
      const std::vector<double> right = rows(second, b, !desc.transpose_b, item);
      for (std::int64_t j = 0; j < d.columns; ++j) {
        for (std::int64_t i = 0; i < d.rows; ++i) {
          const double *x = left.data() + i * k(), *y = right.data() + j * k();
          double value;
          if (algorithm == 1) {
            const std::int64_t half = k() / 2;
            auto* parts = static_cast<double*>(workspace);
            parts[0] = sum(x, y, half);
            parts[1] = sum(x + half, y + half, k() - half);
            value = parts[0] + parts[1];
            if (desc.compute != CUBLAS_COMPUTE_64F) value = static_cast<float>(value);
          } else {
            value = sum(x, y, k());
          }
          value *= counts ? alpha : std::numeric_limits<double>::quiet_NaN();
          if (added != nullptr)
            value = narrow(value + beta * load(added, c.type, item * c.stride + i + j * c.ld));
          if (desc.has_bias()) value = narrow(value + load(desc.bias, d.type, i));
          store(result, d.type, item * d.stride + i + j * d.ld, activated(value));
        }
      }
    }
  }
};

bool aligned(const void* p, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(p) % to == 0;
}

bool fits(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
          const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& d) {
  const std::int64_t m = desc.transpose_a ? a.columns : a.rows;
  const std::int64_t k = desc.transpose_a ? a.rows : a.columns;
  const std::int64_t k2 = desc.transpose_b ? b.columns : b.rows;
  const std::int64_t n = desc.transpose_b ? b.rows : b.columns;
  for (const auto* x : {&a, &b, &d})
    if (x->rows < 1 || x->columns < 1 || x->ld < x->rows || x->batch != d.batch) return false;
  if (m != d.rows || n != d.columns || k != k2 || a.type != b.type) return false;
  if (d.batch > 1 && d.stride < d.ld * (d.columns - 1) + d.rows) return false;
  const bool half = a.type == CUDA_R_16F || a.type == CUDA_R_16BF;
  if (d.type != a.type && !(half && d.type == CUDA_R_32F)) return false;
  return (a.type == CUDA_R_64F) == (desc.compute == CUBLAS_COMPUTE_64F) &&
         (a.type == CUDA_R_64F) == (desc.scale == CUDA_R_64F) &&
         (desc.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || a.type == CUDA_R_32F);
}

bool same(const cublasLtMatrixLayoutOpaque_t& a, const cublasLtMatrixLayoutOpaque_t& b) {
  return a.type == b.type && a.rows == b.rows && a.columns == b.columns && a.ld == b.ld &&
         a.batch == b.batch && (a.batch == 1 || a.stride == b.stride);
}

// The added matrix must have the result's type and extents.
bool is_added(const cublasLtMatrixLayoutOpaque_t& c, const cublasLtMatrixLayoutOpaque_t& d) {
  return c.type == d.type && c.rows == d.rows && c.columns == d.columns && c.batch == d.batch &&
         c.ld >= c.rows && (c.batch == 1 || c.stride >= c.ld * (c.columns - 1) + c.rows);
}

// The supported epilogues, for products in f32, with a bias where the epilogue needs one.
bool has_epilogue(const cublasLtMatmulDescOpaque_t& desc) {
  switch (desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return true;
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
      return desc.compute != CUBLAS_COMPUTE_64F;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      return desc.compute != CUBLAS_COMPUTE_64F && desc.bias != nullptr;
    default:
      return false;
  }
}

template <class T>
cublasStatus_t take(T& into, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&into, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// The library loads code at the first use of its heuristics and of each algorithm, which a capture
// forbids unless its thread is in relaxed mode.
constexpr int kHeuristics = kAlgorithms;
bool loads(int part) {
  static std::atomic<bool> loaded[kAlgorithms + 1];
  if (loaded[part].load()) return true;
  if (cudaFree(nullptr) != cudaSuccess) return false;
  loaded[part].store(true);
  return true;
}

cublasStatus_t asked(const char* function) {
  return shmap_sim::injected(function) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                      : CUBLAS_STATUS_INTERNAL_ERROR;
}

template <class T>
cublasStatus_t destroy(T* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

size_t cublasLtGetVersion() { return 120405; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "the cuBLASLt of the simulator: success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "the cuBLASLt of the simulator: an unsupported value";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the cuBLASLt of the simulator: not supported";
    default:
      return "the cuBLASLt of the simulator: an error";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return cudaGetDevice(&(*handle)->device) == cudaSuccess ? asked("cublasLtCreate")
                                                          : CUBLAS_STATUS_NOT_INITIALIZED;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t bytes) {
  if (what == CUBLASLT_MATMUL_DESC_EPILOGUE) return take(desc->epilogue, value, bytes);
  if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER) return take(desc->bias, value, bytes);
  if (what != CUBLASLT_MATMUL_DESC_TRANSA && what != CUBLASLT_MATMUL_DESC_TRANSB)
    return CUBLAS_STATUS_INVALID_VALUE;
  std::int32_t op = 0;
  const cublasStatus_t status = take(op, value, bytes);
  (what == CUBLASLT_MATMUL_DESC_TRANSA ? desc->transpose_a : desc->transpose_b) = op == CUBLAS_OP_T;
  return status;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{type, static_cast<std::int64_t>(rows),
                                             static_cast<std::int64_t>(columns), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, size_t bytes) {
  if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    return take(layout->stride, value, bytes);
  std::int32_t count = 0;
  const cublasStatus_t status = take(count, value, bytes);
  layout->batch = count;
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, size_t bytes) {
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference->reductions, value, bytes);
    default:
      return take(preference->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                  bytes);
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  *count = 0;
  if (const cublasStatus_t status = asked("cublasLtMatmulAlgoGetHeuristic")) return status;
  if (!loads(kHeuristics)) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (!fits(*desc, *a, *b, *d) || !is_added(*c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!has_epilogue(*desc)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < kAlgorithms && *count < wanted; ++i) {
    const bool splits = i == 1;
    if (workspace_of(i) > preference->workspace ||
        (splits && (preference->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 0))
      continue;
    cublasLtMatmulHeuristicResult_t& found = results[(*count)++];
    found = {};
    found.algo.data[0] = static_cast<std::uint64_t>(i) + 1;
    found.algo.data[1] = preference->alignment[0];
    found.algo.data[2] = preference->alignment[1];
    found.algo.data[3] = preference->alignment[3];
    found.algo.data[4] = preference->alignment[2];
    // The alignment of the bias, from its address.
    const auto address = reinterpret_cast<std::uintptr_t>(desc->bias);
    found.algo.data[5] = desc->has_bias() ? address & (~address + 1) : 1;
    found.workspaceSize = workspace_of(i);
    found.state = CUBLAS_STATUS_SUCCESS;
  }
  return *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (const cublasStatus_t status = asked("cublasLtMatmul")) return status;
  const int algorithm = static_cast<int>(algo->data[0]) - 1;
  const auto scale = [&](const void* at) {
    return desc->scale == CUDA_R_64F ? *static_cast<const double*>(at)
                                     : static_cast<double>(*static_cast<const float*>(at));
  };
  if (algorithm < 0 || algorithm >= kAlgorithms || !fits(*desc, *a_layout, *b_layout, *d_layout) ||
      !is_added(*c_layout, *d_layout) || (c == d && !same(*c_layout, *d_layout)) ||
      !has_epilogue(*desc) || (scale(beta) != 0 && !aligned(c, algo->data[4])) ||
      (desc->has_bias() &&
       (!aligned(desc->bias, algo->data[5]) || !shmap_sim::is_device_memory(desc->bias))) ||
      !aligned(a, algo->data[1]) || !aligned(b, algo->data[2]) || !aligned(d, algo->data[3]) ||
      workspace_bytes < workspace_of(algorithm) || !aligned(workspace, 16) ||
      (workspace_of(algorithm) != 0 && !shmap_sim::is_device_memory(workspace)) ||
      shmap_sim::device_of(stream) != handle->device)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!loads(algorithm)) return CUBLAS_STATUS_EXECUTION_FAILED;
  const bool adds = scale(beta) != 0;
  const Product product{*desc,
                        *a_layout,
                        *b_layout,
                        *d_layout,
                        a,
                        b,
                        adds ? c : nullptr,
                        *c_layout,
                        d,
                        scale(alpha),
                        scale(beta),
                        algorithm,
                        workspace_of(algorithm) == 0 ? nullptr : workspace};
  std::string line = "cublasLtMatmul " + std::to_string(d_layout->rows) + "x" +
                     std::to_string(d_layout->columns) + "x" + std::to_string(product.k()) +
                     " batch " + std::to_string(d_layout->batch) + " algorithm " +
                     std::to_string(algorithm);
  if (d_layout->ld != d_layout->rows) line += " ld " + std::to_string(d_layout->ld);
  if (adds) line += c == d ? " adds in place" : " adds";
  if (desc->has_bias()) line += " bias";
  if (desc->epilogue & CUBLASLT_EPILOGUE_RELU) line += " relu";
  if (desc->epilogue & CUBLASLT_EPILOGUE_GELU) line += " gelu";
  shmap_sim::log_call(line);
  cudaError_t error = cudaSuccess;
  if (product.workspace != nullptr)
    error = cudaMemsetAsync(product.workspace, 0, kCounterBytes, stream);
  if (error == cudaSuccess)
    error = shmap_sim::enqueue(stream, "cublasLtMatmul", [product] { product.run(); });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
