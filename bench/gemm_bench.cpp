// Matrix products on two threads, ours beside the libraries' own threading, in GFLOP/s. The
// contenders take turns within each round. Prints medians, and the ratio of ours to the best
// library with the range that contains 95 % of resampled medians. Some rows of every result are
// verified against a product in double; a wrong result prints #wrong and fails.
//
//   gemm_bench [--rounds N] [--json FILE]
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/support/json.h"
#include "core/cpu/kernels/matmul/gemm.h"
#include "shmap/half.h"

#if SHMAP_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace shmap::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// A thread that runs one function at the same time as its caller. It sleeps between calls.
class Helper {
 public:
  Helper() : thread_([this] { loop(); }) {}
  ~Helper() {
    post(nullptr);
    thread_.join();
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  // Wakes the thread, which then spins until `with` is called or `sleep`.
  void wake() {
    awake_ = true;
    const std::lock_guard lock(mutex_);
    changed_.notify_one();
  }
  void sleep() { awake_ = false; }
  // Runs f on both threads at once.
  void with(const std::function<void()>& f) {
    post(&f);
    f();
    while (done_.load(std::memory_order_acquire) != posted_.load(std::memory_order_relaxed)) {
    }
  }

 private:
  void post(const std::function<void()>* f) {
    work_ = f;
    posted_.fetch_add(1, std::memory_order_release);
    if (!awake_) {
      const std::lock_guard lock(mutex_);
      changed_.notify_one();
    }
  }
  void loop() {
    for (std::uint64_t seen = 0;;) {
      while (posted_.load(std::memory_order_acquire) == seen) {
        if (awake_) continue;
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return awake_ || posted_.load() != seen; });
      }
      ++seen;
      const auto* const f = work_;
      if (f == nullptr) return;
      (*f)();
      done_.fetch_add(1, std::memory_order_release);
    }
  }
  std::atomic<std::uint64_t> posted_{0}, done_{0};
  std::atomic<bool> awake_{false};
  const std::function<void()>* work_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

struct Problem {
  DType dtype;
  std::int64_t m, n, k;
  int threads;
  Gemm gemm;
  std::vector<std::uint8_t> a, b, c;

  Problem(DType t, std::int64_t m_, std::int64_t n_, std::int64_t k_, int threads_)
      : dtype(t), m(m_), n(n_), k(k_), threads(threads_) {
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> uniform(-1.f, 1.f);
    const auto fill = [&](std::vector<std::uint8_t>& v, std::int64_t count) {
      v.resize(static_cast<std::size_t>(count * itemsize(t)));
      for (std::int64_t i = 0; i < count; ++i) {
        const float x = uniform(rng);
        if (t == f32)
          reinterpret_cast<float*>(v.data())[i] = x;
        else
          reinterpret_cast<bfloat16*>(v.data())[i] = bfloat16(x);
      }
    };
    fill(a, m * k);
    fill(b, k * n);
    c.resize(static_cast<std::size_t>(m * n * itemsize(t)));
    gemm.dtype = gemm.out = t;
    gemm.m = m, gemm.n = n, gemm.k = k;
    gemm.lda = k, gemm.ldb = n, gemm.ldc = n;
    gemm.a = a.data(), gemm.b = b.data(), gemm.c = c.data();
  }
  double operations() const {
    return 2. * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  float element(const std::vector<std::uint8_t>& v, std::int64_t i) const {
    return dtype == f32 ? reinterpret_cast<const float*>(v.data())[i]
                        : static_cast<float>(reinterpret_cast<const bfloat16*>(v.data())[i]);
  }
  // Compares some rows with sums in double. The rounding error is bounded by the sum of magnitudes.
  bool verify() const {
    const double rounding = dtype == f32 ? 1e-6 : 8e-3;
    for (std::int64_t i : {std::int64_t{0}, m / 3, m - 1}) {
      for (std::int64_t j = 0; j < n; j += 7) {
        double sum = 0, magnitude = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double term = static_cast<double>(element(a, i * k + l)) * element(b, l * n + j);
          sum += term;
          magnitude += std::abs(term);
        }
        const double got = element(c, i * n + j);
        if (!(std::abs(got - sum) <= rounding * (dtype == f32 ? magnitude : std::abs(sum) + 1)))
          return false;
      }
    }
    return true;
  }
};

using Run = std::function<void()>;

struct Contender {
  std::string name;
  Run run;
  std::vector<double> seconds;
};

void set_openmp_threads(int n) {
  if (auto* const f = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")))
    f(n);
}

#if SHMAP_HAVE_ONEDNN
Run onednn_run(Problem& p) {
  using dnnl::memory;
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  if (p.dtype == f32) {
    return [&p] {
      set_openmp_threads(p.threads);
      dnnl::sgemm('N', 'N', p.m, p.n, p.k, 1.f, reinterpret_cast<const float*>(p.a.data()), p.k,
                  reinterpret_cast<const float*>(p.b.data()), p.n, 0.f,
                  reinterpret_cast<float*>(p.c.data()), p.n);
    };
  }
  set_openmp_threads(p.threads);
  const auto desc = [](std::int64_t rows, std::int64_t cols) {
    return memory::desc({rows, cols}, memory::data_type::bf16, memory::format_tag::ab);
  };
  const auto a = desc(p.m, p.k), b = desc(p.k, p.n), c = desc(p.m, p.n);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul matmul(dnnl::matmul::primitive_desc(engine, a, b, c));
#else
  const dnnl::matmul matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
#endif
  return [&p, matmul, ma = memory(a, engine, p.a.data()), mb = memory(b, engine, p.b.data()),
          mc = memory(c, engine, p.c.data())] {
    set_openmp_threads(p.threads);
    matmul.execute(stream, {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}});
    stream.wait();
  };
}
#endif

// The copy of OpenBLAS that the library opened and configured, set to use its own threads.
Run openblas_run(Problem& p) {
  if (p.dtype != f32 || !gemm_engine_available(GemmEngine::openblas, f32)) return nullptr;
  void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  const auto sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  return [&p, sgemm, set] {
    set(p.threads);
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    sgemm(101, 111, 111, m, n, k, 1.f, reinterpret_cast<const float*>(p.a.data()), k,
          reinterpret_cast<const float*>(p.b.data()), n, 0.f, reinterpret_cast<float*>(p.c.data()),
          n);
    set(1);
  };
}

Run our_run(Problem& p, Helper& helper) {
  if (p.threads == 1) return [&p] { gemm(p.gemm); };
  return [&p, &helper] {
    const int parts = gemm_parts(p.gemm, p.threads);
    std::atomic<int> next{0};
    helper.with([&] {
      for (int part; (part = next.fetch_add(1)) < parts;) gemm_part(p.gemm, part, parts);
    });
  };
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct Ratio {
  double value, low, high;
};

// The median over rounds of theirs / ours, and the range that contains 95 % of its bootstrap.
Ratio speed_ratio(const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> each(ours.size());
  for (std::size_t i = 0; i < each.size(); ++i) each[i] = theirs[i] / ours[i];
  std::mt19937 rng(2);
  std::vector<double> medians, sample(each.size());
  for (int i = 0; i < 1000; ++i) {
    for (double& s : sample) s = each[rng() % each.size()];
    medians.push_back(median(sample));
  }
  std::sort(medians.begin(), medians.end());
  return {median(each), medians[25], medians[974]};
}

std::vector<Contender> contenders_of(Problem& p, Helper& helper) {
  std::vector<Contender> all;
  all.push_back({"ours", our_run(p, helper), {}});
#if SHMAP_HAVE_ONEDNN
  if (gemm_engine_available(GemmEngine::onednn, p.dtype))
    all.push_back({"oneDNN", onednn_run(p), {}});
#endif
  if (Run r = openblas_run(p)) all.push_back({"OpenBLAS", std::move(r), {}});
  return all;
}

// The seconds of one of `calls` calls, after a call that wakes the contender's threads.
double seconds_of_call(const Contender& c, int calls) {
  c.run();
  const auto begin = Clock::now();
  for (int call = 0; call < calls; ++call) c.run();
  return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
}

// Times all contenders, `rounds` times in turns, after a round that verifies their results instead.
// Returns false if one was wrong.
bool take_turns(std::vector<Contender>& contenders, Problem& p, Helper& helper, int rounds) {
  const double enough = p.dtype == f32 ? 8e9 : 3e10;  // operations of some tens of milliseconds
  const int calls = std::max(1, static_cast<int>(enough / p.operations()));
  bool right = true;
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      // A different contender begins in each round.
      Contender& c = contenders[(i + static_cast<std::size_t>(round + 1)) % contenders.size()];
      // Waits until the threads that the previous contender left spinning have gone to sleep.
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      const bool with_helper = c.name == "ours" && p.threads > 1;
      if (with_helper) helper.wake();
      std::fill(p.c.begin(), p.c.end(), std::uint8_t{0xff});
      const double seconds = seconds_of_call(c, calls);
      if (with_helper) helper.sleep();
      if (round >= 0) {
        c.seconds.push_back(seconds);
      } else if (!p.verify()) {
        right = false;
        std::printf("#wrong: %s\n", c.name.c_str());
      }
    }
  }
  return right;
}

// The fastest library, or null.
const Contender* best_library(const std::vector<Contender>& contenders) {
  const Contender* best = nullptr;
  for (const Contender& c : contenders) {
    if (c.name != "ours" && (best == nullptr || median(c.seconds) < median(best->seconds)))
      best = &c;
  }
  return best;
}

// GFLOP/s of the contender of that name, or NaN where it has not run.
double gflops_of(const char* name, const std::vector<Contender>& contenders, const Problem& p) {
  for (const Contender& c : contenders)
    if (c.name == name) return p.operations() / median(c.seconds) / 1e9;
  return std::numeric_limits<double>::quiet_NaN();
}

constexpr const char* kContenders[] = {"ours", "oneDNN", "OpenBLAS"};

void print_head() {
  std::printf("%-5s %5s %5s %5s  threads  engine    %10s %10s %10s   ours / best [95 %%]\n",
              "dtype", "m", "n", "k", "ours", "oneDNN", "OpenBLAS");
}

void print_line(const Problem& p, const std::vector<Contender>& contenders) {
  std::printf("%-5s %5d %5d %5d  %7d  %-8s ", short_name(p.dtype), static_cast<int>(p.m),
              static_cast<int>(p.n), static_cast<int>(p.k), p.threads,
              to_string(gemm_engine(p.gemm)));
  for (const char* name : kContenders) {
    const double gflops = gflops_of(name, contenders, p);
    if (std::isnan(gflops))
      std::printf(" %10s", "-");
    else
      std::printf(" %10.0f", gflops);
  }
  if (const Contender* best = best_library(contenders)) {
    const Ratio r = speed_ratio(contenders[0].seconds, best->seconds);
    std::printf("   %.3f [%.3f, %.3f]", r.value, r.low, r.high);
  }
  std::printf("\n");
  std::fflush(stdout);
}

bench::Json json_of(const Problem& p, const std::vector<Contender>& contenders, int rounds) {
  bench::Json gflops = bench::Json::object();
  for (const char* name : kContenders) gflops.set(name, gflops_of(name, contenders, p));
  bench::Json line = bench::Json::object();
  line.set("dtype", short_name(p.dtype))
      .set("m", static_cast<double>(p.m))
      .set("n", static_cast<double>(p.n))
      .set("k", static_cast<double>(p.k))
      .set("threads", p.threads)
      .set("engine", to_string(gemm_engine(p.gemm)))
      .set("rounds", rounds)
      .set("gflops", gflops);
  if (const Contender* best = best_library(contenders)) {
    const Ratio r = speed_ratio(contenders[0].seconds, best->seconds);
    line.set("best", best->name)
        .set("ratio", r.value)
        .set("ratio_95", bench::Json::list().push(r.low).push(r.high));
  }
  return line;
}

bool write_file(const char* file, const std::string& text) {
  std::FILE* const f = std::fopen(file, "w");
  if (f != nullptr && std::fputs(text.c_str(), f) >= 0 && std::fclose(f) == 0) return true;
  std::fprintf(stderr, "gemm_bench: cannot write %s\n", file);
  return false;
}

struct Size {
  DType dtype;
  std::int64_t m, n, k;
  int threads;
};
constexpr Size kSizes[] = {{f32, 1024, 1024, 1024, 2},  {f32, 1536, 1536, 1536, 2},
                           {f32, 2048, 2048, 2048, 2},  {f32, 512, 2048, 1024, 1},
                           {bf16, 1024, 1024, 1024, 2}, {bf16, 1536, 1536, 1536, 2},
                           {bf16, 2048, 2048, 2048, 2}, {bf16, 512, 2048, 1024, 1}};

int run(int rounds, const char* json_file) {
  Helper helper;
  bool right = true;
  bench::Json lines = bench::Json::list();
  print_head();
  for (const Size& size : kSizes) {
    Problem p(size.dtype, size.m, size.n, size.k, size.threads);
    std::vector<Contender> contenders = contenders_of(p, helper);
    right &= take_turns(contenders, p, helper, rounds);
    print_line(p, contenders);
    lines.push(json_of(p, contenders, rounds));
  }
  if (json_file != nullptr && !write_file(json_file, lines.text() + "\n")) return 1;
  return right ? 0 : 1;
}

}  // namespace
}  // namespace shmap::cpu

int main(int argc, char** argv) {
  int rounds = 15;
  const char* json_file = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--json" && i + 1 < argc) {
      json_file = argv[++i];
    } else {
      std::fprintf(stderr, "usage: gemm_bench [--rounds N] [--json FILE]\n");
      return 2;
    }
  }
  return shmap::cpu::run(rounds, json_file);
}
