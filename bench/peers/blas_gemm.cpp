// Raw library GEMMs with two threads, as a peer: `blas_gemm onednn …` or `blas_gemm
// openblas[:CORETYPE] …`, followed by the arguments of bench_main. The core type is set before
// OpenBLAS is opened, since OpenBLAS chooses kernels while it loads.
#include <dlfcn.h>
#include <dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "bench/support/data.h"
#include "bench/support/rows.h"

namespace {

using shmap::bench::Row;
using shmap::bench::Work;

constexpr int kThreads = 2;

struct Problem {
  std::size_t m, k, n;
  int repeats = 1;  // so many products one after another, each with all threads
  double flops() const { return 2.0 * double(m) * double(k) * double(n) * repeats; }
};

// The operands of a product and its latest result.
struct Operands {
  Operands(const Problem& p)
      : a(shmap::bench::random_floats(p.m * p.k, 1)),
        b(shmap::bench::random_floats(p.k * p.n, 2)),
        c(p.m * p.n) {}
  std::vector<float> a, b, c;
};

// --------------------------------------------------------------------------------------- OpenBLAS

using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                       const float* a, int lda, const float* b, int ldb, float beta, float* c,
                       int ldc);

class OpenBlas {
 public:
  explicit OpenBlas(const char* core_type) {
    if (core_type != nullptr) setenv("OPENBLAS_CORETYPE", core_type, 1);
    library_ = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    sgemm = reinterpret_cast<Sgemm>(symbol("cblas_sgemm"));
    reinterpret_cast<void (*)(int)>(symbol("openblas_set_num_threads"))(kThreads);
  }
  std::string config() { return reinterpret_cast<char* (*)()>(symbol("openblas_get_config"))(); }
  std::string core() { return reinterpret_cast<char* (*)()>(symbol("openblas_get_corename"))(); }

  Sgemm sgemm;

 private:
  void* symbol(const char* name) {
    void* address = dlsym(library_, name);
    if (address == nullptr) throw std::runtime_error(dlerror());
    return address;
  }
  void* library_;
};

Work openblas_product(OpenBlas& blas, const Problem& p) {
  auto x = std::make_shared<Operands>(p);
  constexpr int kRowMajor = 101, kNoTranspose = 111;
  auto call = [&blas, p, x] {
    for (int r = 0; r < p.repeats; ++r) {
      blas.sgemm(kRowMajor, kNoTranspose, kNoTranspose, int(p.m), int(p.n), int(p.k), 1.0f,
                 x->a.data(), int(p.k), x->b.data(), int(p.n), 0.0f, x->c.data(), int(p.n));
    }
  };
  auto check = [p, x] {
    return shmap::bench::product_difference(x->a, x->b, x->c, p.m, p.k, p.n, 1e-2);
  };
  return {call, check, {}};
}

// ----------------------------------------------------------------------------------------- oneDNN

dnnl::memory::desc plain(std::size_t rows, std::size_t columns, dnnl::memory::data_type type) {
  return {
      {dnnl::memory::dim(rows), dnnl::memory::dim(columns)}, type, dnnl::memory::format_tag::ab};
}

dnnl::matmul make_matmul(const dnnl::engine& engine, const Problem& p,
                         dnnl::memory::data_type type) {
  auto a = plain(p.m, p.k, type), b = plain(p.k, p.n, type), c = plain(p.m, p.n, type);
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(engine, a, b, c));
#else
  return dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
#endif
}

// A matmul primitive on plain row-major operands, and a function that runs it and waits.
struct OnednnProduct {
  OnednnProduct(const Problem& p, dnnl::memory::data_type type)
      : matmul(make_matmul(engine, p, type)),
        a(plain(p.m, p.k, type), engine),
        b(plain(p.k, p.n, type), engine),
        c(plain(p.m, p.n, type), engine),
        arguments({{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}) {}
  void run() {
    matmul.execute(stream, arguments);
    stream.wait();
  }
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul matmul;
  dnnl::memory a, b, c;
  std::unordered_map<int, dnnl::memory> arguments;
};

std::vector<float> widened(const dnnl::memory& memory, std::size_t count) {
  const auto* halves = static_cast<const std::uint16_t*>(memory.get_data_handle());
  std::vector<float> values(count);
  for (std::size_t k = 0; k < count; ++k) {
    std::uint32_t bits = std::uint32_t{halves[k]} << 16;
    std::memcpy(&values[k], &bits, sizeof bits);
  }
  return values;
}

double seconds_of(const std::function<void()>& f) {
  f();
  double best = 1e9;
  for (int k = 0; k < 3; ++k) {
    auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// oneDNN has two functions for an f32 product, the GEMM function and the matmul primitive. Uses the
// faster one for this size.
Work onednn_f32(const Problem& p) {
  auto x = std::make_shared<Operands>(p);
  auto product = std::make_shared<OnednnProduct>(p, dnnl::memory::data_type::f32);
  product->a.set_data_handle(x->a.data());
  product->b.set_data_handle(x->b.data());
  product->c.set_data_handle(x->c.data());
  auto function = [p, x] {
    dnnl_status_t status = dnnl_sgemm('N', 'N', dnnl_dim_t(p.m), dnnl_dim_t(p.n), dnnl_dim_t(p.k),
                                      1.0f, x->a.data(), dnnl_dim_t(p.k), x->b.data(),
                                      dnnl_dim_t(p.n), 0.0f, x->c.data(), dnnl_dim_t(p.n));
    if (status != dnnl_success) throw std::runtime_error("dnnl_sgemm failed");
  };
  auto primitive = [product] { product->run(); };
  bool by_function = seconds_of(function) < seconds_of(primitive);
  std::function<void()> one = primitive;
  if (by_function) one = function;
  auto call = [one, p] {
    for (int r = 0; r < p.repeats; ++r) one();
  };
  auto check = [p, x, product] {
    return shmap::bench::product_difference(x->a, x->b, x->c, p.m, p.k, p.n, 1e-2);
  };
  return {call, check, {}};
}

Work onednn_bf16(const Problem& p) {
  auto x = std::make_shared<Operands>(p);
  x->a = shmap::bench::rounded_to_bf16(std::move(x->a));
  x->b = shmap::bench::rounded_to_bf16(std::move(x->b));
  auto product = std::make_shared<OnednnProduct>(p, dnnl::memory::data_type::bf16);
  auto narrow = [](const std::vector<float>& from, const dnnl::memory& to) {
    auto* halves = static_cast<std::uint16_t*>(to.get_data_handle());
    for (std::size_t k = 0; k < from.size(); ++k) {
      std::uint32_t bits;
      std::memcpy(&bits, &from[k], sizeof bits);
      halves[k] = static_cast<std::uint16_t>(bits >> 16);
    }
  };
  narrow(x->a, product->a);
  narrow(x->b, product->b);
  auto call = [product] { product->run(); };
  auto check = [p, x, product] {
    return shmap::bench::product_difference(x->a, x->b, widened(product->c, p.m * p.n), p.m, p.k,
                                            p.n, 1.0);
  };
  return {call, check, {}};
}

// ------------------------------------------------------------ the products of a transformer layer

// The six matrix products of the layer of bench/support/transformer_layer.h, on all of its rows at
// once, each as one product of both threads. Those of attention, 4 % of the layer's flops, are left
// out: they are small, and a library that splits each among threads would be slow at them.
std::vector<Problem> layer_products() {
  constexpr std::size_t rows = 8 * 128, embedding = 512, heads = 8 * 64, hidden = 2048;
  return {{rows, embedding, heads}, {rows, embedding, heads},  {rows, embedding, heads},
          {rows, heads, embedding}, {rows, embedding, hidden}, {rows, hidden, embedding}};
}

// The layer's products and, for each, those of its backward pass, the cotangents of A and of B:
// C = A B with C and B, or A and C, in the place of the operands.
std::vector<Problem> layer_grad_products() {
  std::vector<Problem> all = layer_products();
  for (const Problem& p : layer_products()) {
    all.push_back({p.m, p.n, p.k});
    all.push_back({p.k, p.m, p.n});
  }
  return all;
}

// Adds a row that does the problems one after another.
template <class MakeWork>
void add_sequence(std::vector<Row>& rows, const char* name, const std::vector<Problem>& problems,
                  MakeWork make_work) {
  double flops = 0;
  for (const Problem& p : problems) flops += p.flops();
  rows.push_back({name, {.flops = flops}, [problems, make_work] {
                    std::vector<Work> works;
                    for (const Problem& p : problems) works.push_back(make_work(p));
                    const auto call = [works] {
                      for (const Work& work : works) work.call();
                    };
                    const auto check = [works] {
                      std::string wrong;
                      for (const Work& work : works) wrong += work.check();
                      return wrong;
                    };
                    return Work{call, check, {}};
                  }});
}

template <class MakeWork>
void add_layer_rows(std::vector<Row>& rows, MakeWork make_work) {
  add_sequence(rows, "layer_products", layer_products(), make_work);
  add_sequence(rows, "layer_grad_products", layer_grad_products(), make_work);
}

}  // namespace

int main(int argc, char** argv) {
  std::string library = argc > 1 ? argv[1] : "";
  std::vector<Row> rows;
  const std::pair<const char*, Problem> f32_problems[] = {{"sgemm_1024", {1024, 1024, 1024}},
                                                          {"sgemm_2048", {2048, 2048, 2048}},
                                                          {"gemm_cm", {4096, 2048, 1024}},
                                                          {"gemm_cm_x8", {4096, 2048, 1024, 8}}};
  if (library == "onednn") {
    for (const auto& [name, p] : f32_problems)
      rows.push_back({name, {.flops = p.flops()}, [p = p] { return onednn_f32(p); }});
    add_layer_rows(rows, onednn_f32);
    for (std::size_t n : {std::size_t{1024}, std::size_t{2048}}) {
      Problem p{n, n, n};
      rows.push_back({"bf16_matmul_" + std::to_string(n), {.flops = p.flops()}, [p] {
                        return onednn_bf16(p);
                      }});
    }
    const dnnl_version_t* v = dnnl_version();
    std::string version =
        std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
    return shmap::bench::bench_main(argc - 1, argv + 1, "onednn", rows, {{"oneDNN", version}});
  }
  if (library.rfind("openblas", 0) == 0) {
    std::size_t colon = library.find(':');
    OpenBlas blas(colon == std::string::npos ? nullptr : library.c_str() + colon + 1);
    for (const auto& [name, p] : f32_problems)
      rows.push_back(
          {name, {.flops = p.flops()}, [p = p, &blas] { return openblas_product(blas, p); }});
    add_layer_rows(rows, [&blas](const Problem& p) { return openblas_product(blas, p); });
    return shmap::bench::bench_main(argc - 1, argv + 1, "openblas", rows,
                                    {{"OpenBLAS", blas.config()}, {"core", blas.core()}});
  }
  std::fprintf(stderr, "usage: %s onednn|openblas[:CORETYPE] [arguments of a benchmark]\n",
               argv[0]);
  return 2;
}
