// The time of raw CUDA and cuBLASLt calls on one GPU: launches, graphs with the topologies of the
// replays, copies, a sum in one pass, the arithmetic of random numbers in registers, and the
// fastest algorithm that cuBLASLt proposes for a product.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/data.h"
#include "bench/support/gpu_sizes.h"
#include "bench/support/product_sample.h"
#include "bench/support/rows.h"
#include "bench/support/threefry.h"

namespace {

using namespace shmap;
using bench::ProductSize;
using bench::Row;
using bench::scaled;
using bench::Work;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

// ----------------------------------------------------------------------------------- ownership

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : size_(n) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<std::size_t>(n * sizeof(T), 16)),
          "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* get() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> read(std::size_t from, std::size_t n) const {
    std::vector<T> values(n);
    check(cudaMemcpy(values.data(), data_ + from, n * sizeof(T), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    return values;
  }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Times n calls of `call()`, each of which queues work on `stream`.
template <class Call>
double time_queued(const Stream& stream, std::int64_t n, Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t k = 0; k < n; ++k) call();
  stream.wait();
  return seconds_since(start);
}

// ---------------------------------------------------------------------------- launches, graphs

// Increments *count, or does nothing if there is no count.
__global__ void count_up(int* count) {
  if (count != nullptr) ++*count;
}

void launch(cudaStream_t stream, int* count) {
  count_up<<<1, 1, 0, stream>>>(count);
  check(cudaGetLastError(), "a launch");
}

enum class Timed { queued, host };

// Times what `call()`, which queues work on `stream`, costs the host. The wait for each call's work
// is outside of that time.
template <class Call>
double time_host(const Stream& stream, std::int64_t n, Call&& call) {
  double seconds = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const auto start = std::chrono::steady_clock::now();
    call();
    seconds += seconds_since(start);
    stream.wait();
  }
  return seconds;
}

struct Launches {
  Stream stream;
  DeviceArray<int> count{std::vector<int>(1, 0)};
};

Work launches(Timed how) {
  auto s = std::make_shared<Launches>();
  Work work;
  if (how == Timed::queued) {
    work.time_batch = [s](std::int64_t n) {
      return time_queued(s->stream, n, [&] { launch(s->stream, nullptr); });
    };
  } else {
    work.max_calls = 64;
    work.time_batch = [s](std::int64_t n) {
      return time_host(s->stream, n, [&] { launch(s->stream, nullptr); });
    };
  }
  work.check = [s]() -> std::string {
    const int before = s->count.read(0, 1)[0];
    launch(s->stream, s->count.get());
    s->stream.wait();
    return s->count.read(0, 1)[0] == before + 1 ? "" : "a launch did not run";
  };
  return work;
}

// A graph of `branches` chains of `length` kernels. Each chain counts its kernels' runs.
struct Graph {
  Stream stream;
  int branches, length;
  std::int64_t launched = 0;
  DeviceArray<int> counts;
  cudaGraphExec_t exec = nullptr;

  Graph(int branches, int length)
      : branches(branches), length(length), counts(std::vector<int>(std::size_t(branches), 0)) {
    cudaGraph_t graph = nullptr;
    check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
    for (int b = 0; b < branches; ++b) {
      cudaGraphNode_t last = nullptr;
      int* count = counts.get() + b;
      void* arguments[] = {&count};
      cudaKernelNodeParams params{};
      params.func = reinterpret_cast<void*>(&count_up);
      params.gridDim = params.blockDim = dim3(1);
      params.kernelParams = arguments;
      for (int k = 0; k < length; ++k) {
        cudaGraphNode_t node = nullptr;
        check(
            cudaGraphAddKernelNode(&node, graph, k == 0 ? nullptr : &last, k == 0 ? 0 : 1, &params),
            "cudaGraphAddKernelNode");
        last = node;
      }
    }
    const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { cudaGraphExecDestroy(exec); }

  void replay() {
    check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    ++launched;
  }
  std::string fault() const {
    for (const int count : counts.read(0, counts.size()))
      if (count != static_cast<int>(launched * length))
        return "a line ran " + std::to_string(count) + " kernels in " + std::to_string(launched) +
               " replays of " + std::to_string(length);
    return {};
  }
};

Work replays(Timed how, int branches, int length) {
  auto graph = std::make_shared<Graph>(branches, length);
  Work work;
  work.check = [graph] { return graph->fault(); };
  if (how == Timed::queued) {
    work.time_batch = [graph](std::int64_t n) {
      return time_queued(graph->stream, n, [&] { graph->replay(); });
    };
  } else {
    work.max_calls = 64;
    work.time_batch = [graph](std::int64_t n) {
      return time_host(graph->stream, n, [&] { graph->replay(); });
    };
  }
  return work;
}

// --------------------------------------------------------------------------- copies, a sum

constexpr int kThreads = 256;

__global__ void copy_vectors(const float4* from, float4* to, std::size_t n) {
  const std::size_t step = std::size_t(gridDim.x) * blockDim.x;
  for (std::size_t k = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; k < n; k += step)
    to[k] = from[k];
}

__global__ void sum_vectors(const float4* parts, float4* sum, std::size_t n, int count) {
  const std::size_t step = std::size_t(gridDim.x) * blockDim.x;
  for (std::size_t k = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; k < n; k += step) {
    float4 total = parts[k];
#pragma unroll 8
    for (int p = 1; p < count; ++p) {
      const float4 value = parts[std::size_t(p) * n + k];
      total.x += value.x, total.y += value.y, total.z += value.z, total.w += value.w;
    }
    sum[k] = total;
  }
}

int many_blocks() {
  int device = 0, processors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "the device");
  return processors * 16;
}

struct Copy {
  Stream stream;
  std::vector<float> values;
  DeviceArray<float> from, to;
  bool by_kernel = false;
  int blocks = many_blocks();

  explicit Copy(std::size_t n) : values(bench::random_floats(n, 3)), from(values), to(n) {}
  void queue() {
    const std::size_t bytes = from.size() * sizeof(float);
    if (by_kernel) {
      copy_vectors<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const float4*>(from.get()),
                                                    reinterpret_cast<float4*>(to.get()),
                                                    from.size() / 4);
      check(cudaGetLastError(), "a launch");
    } else {
      check(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, stream),
            "cudaMemcpyAsync");
    }
  }
};

// Copies with the runtime or with a kernel, whichever is faster for the size.
Work copy_of(std::int64_t rows) {
  auto s = std::make_shared<Copy>(std::size_t(scaled(rows) * bench::kColumns));
  double best[2];
  for (const bool by_kernel : {false, true}) {
    s->by_kernel = by_kernel;
    for (int k = 0; k < 4; ++k) {
      const double seconds = time_queued(s->stream, 10, [&] { s->queue(); });
      best[by_kernel] = k == 0 ? seconds : std::min(best[by_kernel], seconds);
    }
  }
  s->by_kernel = best[1] < best[0];
  Work work;
  work.time_batch = [s](std::int64_t n) { return time_queued(s->stream, n, [&] { s->queue(); }); };
  work.check = [s] {
    const std::size_t part = std::min<std::size_t>(s->values.size(), 4096);
    const std::size_t at = s->values.size() - part;
    return bench::difference(s->to.read(at, part), std::span<const float>(s->values).subspan(at));
  };
  return work;
}

struct Sum {
  Stream stream;
  std::size_t n = std::size_t(scaled(bench::kSummandFloats));
  std::vector<float> values = bench::random_floats(bench::kSummands * n, 5);
  DeviceArray<float> parts{values}, sum{n};
  int blocks = many_blocks();
  void queue() {
    sum_vectors<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const float4*>(parts.get()),
                                                 reinterpret_cast<float4*>(sum.get()), n / 4,
                                                 static_cast<int>(bench::kSummands));
    check(cudaGetLastError(), "a launch");
  }
};

// Reads every summand once and writes the sum once.
Work psum_bound() {
  auto s = std::make_shared<Sum>();
  Work work;
  work.time_batch = [s](std::int64_t n) { return time_queued(s->stream, n, [&] { s->queue(); }); };
  work.check = [s] {
    const std::size_t part = std::min<std::size_t>(s->n, 4096), at = s->n - part;
    std::vector<double> want(part, 0.0);
    for (std::size_t d = 0; d < std::size_t(bench::kSummands); ++d)
      for (std::size_t k = 0; k < part; ++k) want[k] += s->values[d * s->n + at + k];
    return bench::difference(s->sum.read(at, part), want, 1e-5);
  };
  return work;
}

// ------------------------------------------------------------------------------ random numbers

// Computes n hashes, or normal numbers from them, and stores only one word a warp, the exclusive or
// of their bits, without which the compiler would drop the work. The time of the hashes' additions,
// rotations and exclusive ors is a lower bound for a kernel that stores the numbers too.
template <bool normals>
__global__ void __launch_bounds__(kThreads)
    hash_counts(std::uint32_t key0, std::uint32_t key1, std::uint32_t n, std::uint32_t* of_warps) {
  const std::uint32_t thread = blockIdx.x * kThreads + threadIdx.x, step = gridDim.x * kThreads;
  std::uint32_t seen = 0;
  for (std::uint32_t k = thread; k < n; k += step) {
    const std::uint32_t bits = bench::threefry_bits(key0, key1, k);
    if constexpr (normals)
      seen ^= __float_as_uint(1.41421356f * erfinvf(bench::symmetric_uniform(bits)));
    else
      seen ^= bits;
  }
  for (int far = 16; far > 0; far /= 2) seen ^= __shfl_xor_sync(0xffffffffu, seen, far);
  if (threadIdx.x % 32 == 0) of_warps[thread / 32] = seen;
}

struct Hashes {
  Stream stream;
  std::uint32_t n = static_cast<std::uint32_t>(scaled(bench::kRandoms));
  int blocks = many_blocks();
  DeviceArray<std::uint32_t> of_warps{std::size_t(blocks) * kThreads / 32};

  template <bool normals>
  void queue() {
    hash_counts<normals><<<blocks, kThreads, 0, stream>>>(bench::kRandomKey[0],
                                                          bench::kRandomKey[1], n, of_warps.get());
    check(cudaGetLastError(), "a launch");
  }
};

// The bits are compared with the host's. Normals are not, since the host's erf_inv gives other
// bits.
template <bool normals>
Work hashes() {
  auto s = std::make_shared<Hashes>();
  Work work;
  work.time_batch = [s](std::int64_t n) {
    return time_queued(s->stream, n, [&] { s->template queue<normals>(); });
  };
  if constexpr (normals) {
    work.check = [] { return std::string(); };
  } else {
    work.check = [s, want = std::uint32_t{0}, known = false]() mutable -> std::string {
      for (std::uint32_t k = 0; k < s->n && !known; ++k)
        want ^= bench::threefry_bits(bench::kRandomKey[0], bench::kRandomKey[1], k);
      known = true;
      std::uint32_t got = 0;
      for (const std::uint32_t of_warp : s->of_warps.read(0, s->of_warps.size())) got ^= of_warp;
      return got == want ? ""
                         : "the bits of all hashes are " + std::to_string(got) + " and not " +
                               std::to_string(want);
    };
  }
  return work;
}

// ----------------------------------------------------------------------------------- products

constexpr int kProposed = 24;
constexpr std::size_t kWorkspace = std::size_t{64} << 20;

// C = A B in bf16, added up in f32. To cuBLASLt, whose matrices are column-major, C' = B' A'.
class Product {
 public:
  explicit Product(const ProductSize& size)
      : m_(size.m),
        k_(size.k),
        n_(size.n),
        a_(std::size_t(m_ * k_)),
        b_(std::size_t(k_ * n_)),
        c_(std::size_t(m_ * n_)),
        sample_(fill()) {
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description");
    check(cublasLtMatrixLayoutCreate(&of_b_, CUDA_R_16BF, n_, k_, n_), "a layout");
    check(cublasLtMatrixLayoutCreate(&of_a_, CUDA_R_16BF, k_, m_, k_), "a layout");
    check(cublasLtMatrixLayoutCreate(&of_c_, CUDA_R_16BF, n_, m_, n_), "a layout");
    choose();
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    cublasLtMatrixLayoutDestroy(of_a_);
    cublasLtMatrixLayoutDestroy(of_b_);
    cublasLtMatrixLayoutDestroy(of_c_);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
  }

  double time(std::int64_t n) {
    return time_queued(stream_, n, [&] { check(queue(), "cublasLtMatmul"); });
  }
  std::string fault() const {
    return sample_.difference(
        [this](std::int64_t row) { return c_.read(std::size_t(row * n_), std::size_t(n_)); });
  }

 private:
  bench::ProductSample fill() {
    const std::vector<bfloat16> a = bench::random_bf16(a_.size(), 1);
    const std::vector<bfloat16> b = bench::random_bf16(b_.size(), 2);
    const auto copy = [](const DeviceArray<bfloat16>& to, const std::vector<bfloat16>& from) {
      check(
          cudaMemcpy(to.get(), from.data(), from.size() * sizeof(bfloat16), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    };
    copy(a_, a);
    copy(b_, b);
    return bench::ProductSample(a, b, m_, k_, n_);
  }

  // Times every proposed algorithm and keeps the fastest.
  void choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    std::size_t most = kWorkspace;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &most, sizeof most);
    cublasLtMatmulHeuristicResult_t proposed[kProposed] = {};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, operation_, of_b_, of_a_, of_c_, of_c_, preference, kProposed, proposed, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    double best = 0;
    cublasLtMatmulAlgo_t fastest{};
    for (int k = 0; k < count; ++k) {
      algorithm_ = proposed[k].algo;
      if (queue() != CUBLAS_STATUS_SUCCESS) continue;  // proposed, but not supported
      stream_.wait();
      const double once = time(1);
      const auto calls = std::clamp<std::int64_t>(std::int64_t(2e-3 / once), 2, 100);
      const double seconds = std::min(time(calls), time(calls)) / double(calls);
      if (best == 0 || seconds < best) best = seconds, fastest = algorithm_;
    }
    if (best == 0) throw std::runtime_error("cuBLASLt proposes no algorithm that runs");
    algorithm_ = fastest;
  }

  cublasStatus_t queue() {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle_, operation_, &one, b_.get(), of_b_, a_.get(), of_a_, &zero,
                          c_.get(), of_c_, c_.get(), of_c_, &algorithm_, workspace_.get(),
                          kWorkspace, stream_);
  }

  std::int64_t m_, k_, n_;
  Stream stream_;
  DeviceArray<bfloat16> a_, b_, c_;
  DeviceArray<char> workspace_{kWorkspace};
  bench::ProductSample sample_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t of_a_ = nullptr, of_b_ = nullptr, of_c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

Work product(const ProductSize& size) {
  auto p = std::make_shared<Product>(size.small());
  Work work;
  work.time_batch = [p](std::int64_t n) { return p->time(n); };
  work.check = [p] { return p->fault(); };
  return work;
}

std::vector<Row> all_rows() {
  using bench::kBranches, bench::kChained;
  std::vector<Row> rows = {
      {"launch", {}, [] { return launches(Timed::queued); }},
      {"launch:host", {}, [] { return launches(Timed::host); }},
      {"replay_line", {}, [] { return replays(Timed::queued, 1, kChained); }},
      {"replay_line:host", {}, [] { return replays(Timed::host, 1, kChained); }},
      {"replay_branches", {}, [] { return replays(Timed::queued, kBranches, kChained); }},
      {"replay_branches:host", {}, [] { return replays(Timed::host, kBranches, kChained); }},
      {"replay_serial", {}, [] { return replays(Timed::queued, 1, kBranches * kChained); }},
  };
  for (const std::int64_t n : bench::matrix_rows())
    rows.push_back({"copy_" + std::to_string(n),
                    {.bytes = 8.0 * double(scaled(n)) * bench::kColumns},
                    [n] { return copy_of(n); }});
  rows.push_back({"psum_64mb", {.bytes = 4.0 * double(scaled(bench::kSummandFloats))}, psum_bound});
  rows.push_back({"random_bits_16m", {}, hashes<false>});
  rows.push_back({"random_normal_16m", {}, hashes<true>});
  const auto add = [&rows](const std::string& name, const ProductSize& size) {
    rows.push_back({name, {.flops = size.small().flops()}, [size] { return product(size); }});
  };
  for (const ProductSize& size : bench::square_products()) add(size.name(), size);
  for (const ProductSize& size : bench::odd_products()) add(size.name(), size);
  for (const bench::RingProduct& ring : bench::ring_products()) add(ring.name(), ring.whole());
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    cudaDeviceProp device{};
    check(cudaGetDeviceProperties(&device, 0), "device 0");
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    return bench::bench_main(argc, argv, "floor", all_rows(),
                             {{"gpu", device.name},
                              {"runtime", std::to_string(runtime)},
                              {"cublasLt", std::to_string(cublasLtGetVersion())}});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cuda_floor: %s\n", e.what());
    return 1;
  }
}
