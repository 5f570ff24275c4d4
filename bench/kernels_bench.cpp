// Nanoseconds per element of the CPU kernels on one thread: f32 in the first-level cache (1 Ki
// elements) unless the name says otherwise. Reductions and the collectives' arithmetic also from
// memory.
#include <benchmark/benchmark.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/cpu/kernels/elementwise/binary.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/elementwise/compare.h"
#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/elementwise/select.h"
#include "core/cpu/kernels/elementwise/unary.h"
#include "core/cpu/kernels/reduce/arg_reduce.h"
#include "core/cpu/kernels/reduce/combine.h"
#include "core/cpu/kernels/reduce/reduce.h"
#include "core/cpu/kernels/reduce/scan.h"

namespace shmap::cpu {
namespace {

constexpr std::int64_t kElements = 1024;

// Memory in whole cache lines, like the library's own.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes)
      : bytes_(static_cast<std::byte*>(
            std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64)))) {
    std::memset(bytes_.get(), 0, static_cast<std::size_t>(bytes));
  }
  std::byte* data() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

// Random elements of any dtype: floats in (1, 2) or (0, 1), integers of all bits.
Buffer random_elements(DType dtype, std::int64_t n, float lowest = 0) {
  std::mt19937_64 rng(1);
  Buffer out(n * itemsize(dtype));
  if (is_floating(dtype)) {
    std::vector<float> reals(static_cast<std::size_t>(n));
    for (float& x : reals) x = lowest + (static_cast<float>(rng() >> 40) + 0.5f) * 0x1p-24f;
    cast_kernel(f32, dtype)(reals.data(), out.data(), n);
  } else {
    for (std::int64_t i = 0; i < n * itemsize(dtype); ++i)
      out.data()[i] = static_cast<std::byte>(dtype == DType::bool_ ? rng() & 1 : rng());
  }
  return out;
}

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Times `call`, which works on n elements, in the processor time of this thread.
template <class Call>
void run(benchmark::State& state, std::int64_t n, Call call) {
  const double start = thread_seconds();
  for (auto _ : state) {
    call();
    benchmark::ClobberMemory();
  }
  state.counters["ns/element"] = (thread_seconds() - start) * 1e9 /
                                 static_cast<double>(state.iterations()) / static_cast<double>(n);
}

void add_unary(const char* name, UnaryOp op, DType dtype) {
  benchmark::RegisterBenchmark(
      (std::string(name) + "/" + to_string(dtype)).c_str(), [=](benchmark::State& state) {
        const auto in = random_elements(dtype, kElements, op == UnaryOp::acosh ? 1 : 0);
        const Buffer out(kElements * 8);
        const UnaryFn kernel = unary_kernel(op, dtype);
        run(state, kElements, [&] { kernel(in.data(), out.data(), kElements); });
      });
}

void add_binary(const char* name, BinaryFn kernel, DType dtype, bool scalar = false) {
  benchmark::RegisterBenchmark(
      (std::string(name) + (scalar ? " scalar/" : "/") + to_string(dtype)).c_str(),
      [=](benchmark::State& state) {
        const auto a = random_elements(dtype, kElements), b = random_elements(dtype, kElements);
        const Buffer out(kElements * 8);
        run(state, kElements,
            [&] { kernel(a.data(), false, b.data(), scalar, out.data(), kElements); });
      });
}

void add_cast(DType from, DType to) {
  benchmark::RegisterBenchmark(
      ("cast " + to_string(from) + " to/" + to_string(to)).c_str(), [=](benchmark::State& state) {
        const auto in = random_elements(from, kElements);
        const Buffer out(kElements * 8);
        const CastFn kernel = cast_kernel(from, to);
        run(state, kElements, [&] { kernel(in.data(), out.data(), kElements); });
      });
}

void add_reduce(const char* name, DType dtype, std::int64_t outer, std::int64_t reduced,
                std::int64_t inner, Reduction op = Reduction::sum) {
  benchmark::RegisterBenchmark((std::string(name) + "/" + to_string(dtype)).c_str(),
                               [=](benchmark::State& state) {
                                 const auto in = random_elements(dtype, outer * reduced * inner);
                                 const Buffer out(outer * inner * 8);
                                 const ReduceFn kernel = reduce_kernel(op, dtype);
                                 run(state, outer * reduced * inner,
                                     [&] { kernel(in.data(), out.data(), outer, reduced, inner); });
                               });
}

void add_combine(int ranks, DType dtype, std::int64_t n, bool non_temporal) {
  const std::string name = "combine " + std::to_string(ranks) + " ranks of " +
                           std::to_string(n * itemsize(dtype) / 1024) + " KiB" +
                           (non_temporal ? " non-temporal/" : "/") + to_string(dtype);
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    std::vector<Buffer> data;
    std::vector<const void*> pointers;
    for (int r = 0; r < ranks; ++r) data.push_back(random_elements(dtype, n));
    for (const auto& d : data) pointers.push_back(d.data());
    const Buffer out(n * itemsize(dtype));
    run(state, n * ranks, [&] {  // counts an element that is read
      combine_ranks(Reduction::sum, dtype, pointers.data(), ranks, out.data(), 0, n, non_temporal);
    });
  });
}

void add_all() {
  const struct {
    const char* name;
    UnaryOp op;
  } unary[] = {{"neg", UnaryOp::neg},       {"floor", UnaryOp::floor},
               {"round", UnaryOp::round},   {"exp", UnaryOp::exp},
               {"exp2", UnaryOp::exp2},     {"expm1", UnaryOp::expm1},
               {"log", UnaryOp::log},       {"log1p", UnaryOp::log1p},
               {"sin", UnaryOp::sin},       {"cos", UnaryOp::cos},
               {"tan", UnaryOp::tan},       {"tanh", UnaryOp::tanh},
               {"asin", UnaryOp::asin},     {"atan", UnaryOp::atan},
               {"sinh", UnaryOp::sinh},     {"asinh", UnaryOp::asinh},
               {"acosh", UnaryOp::acosh},   {"atanh", UnaryOp::atanh},
               {"sqrt", UnaryOp::sqrt},     {"rsqrt", UnaryOp::rsqrt},
               {"cbrt", UnaryOp::cbrt},     {"logistic", UnaryOp::logistic},
               {"erf", UnaryOp::erf},       {"erf_inv", UnaryOp::erf_inv},
               {"square", UnaryOp::square}, {"is_finite", UnaryOp::is_finite}};
  for (const auto& u : unary) add_unary(u.name, u.op, f32);
  for (const DType dtype : {f64, bf16, f16}) {
    add_unary("neg", UnaryOp::neg, dtype);
    add_unary("sin", UnaryOp::sin, dtype);
    add_unary("exp", UnaryOp::exp, dtype);
  }
  add_unary("erf_inv", UnaryOp::erf_inv, f64);
  const struct {
    const char* name;
    BinaryOp op;
  } binary[] = {{"add", BinaryOp::add},    {"mul", BinaryOp::mul}, {"div", BinaryOp::div},
                {"max", BinaryOp::max},    {"rem", BinaryOp::rem}, {"pow", BinaryOp::pow},
                {"atan2", BinaryOp::atan2}};
  for (const auto& b : binary) add_binary(b.name, binary_kernel(b.op, f32), f32);
  add_binary("mul", binary_kernel(BinaryOp::mul, f32), f32, true);
  for (const DType dtype : {f64, bf16, f16, i32, i64, i8})
    add_binary("add", binary_kernel(BinaryOp::add, dtype), dtype);
  for (const DType dtype : {i8, i32, i64})
    add_binary("div", binary_kernel(BinaryOp::div, dtype), dtype);
  add_binary("rem", binary_kernel(BinaryOp::rem, i32), i32);
  for (const DType dtype : {f32, bf16, i32})
    add_binary("less", compare_kernel(CompareOp::lt, dtype), dtype);
  add_cast(f32, bf16);
  add_cast(bf16, f32);
  add_cast(f32, f16);
  add_cast(f32, i32);
  add_cast(f32, f64);
  add_cast(i32, f32);
  add_cast(f32, DType::bool_);
  benchmark::RegisterBenchmark("select/f32", [](benchmark::State& state) {
    const auto pred = random_elements(DType::bool_, kElements);
    const auto t = random_elements(f32, kElements), f = random_elements(f32, kElements);
    const Buffer out(kElements * 4);
    run(state, kElements, [&] {
      select(pred.data(), false, t.data(), false, f.data(), false, out.data(), 4, kElements);
    });
  });
  for (const std::int64_t n : {kElements, std::int64_t{16} << 20}) {
    benchmark::RegisterBenchmark(("fill of " + std::to_string(n * 4 / 1024) + " KiB/f32").c_str(),
                                 [=](benchmark::State& state) {
                                   const Buffer out(n * 4);
                                   const float value = 1.5f;
                                   run(state, n, [&] { fill(out.data(), &value, 4, n); });
                                 });
    benchmark::RegisterBenchmark(
        ("memcpy of " + std::to_string(n * 4 / 1024) + " KiB/f32").c_str(),
        [=](benchmark::State& state) {
          const Buffer in(n * 4), out(n * 4);
          run(state, n,
              [&] { std::memcpy(out.data(), in.data(), static_cast<std::size_t>(n * 4)); });
        });
  }
  for (const DType dtype : {f32, bf16, f64, i32}) {
    add_reduce("sum of a run of 1 Ki", dtype, 1, 1024, 1);
    add_reduce("sum of rows of 1 Ki of 4 Mi", dtype, 4096, 1024, 1);
    add_reduce("sum of columns of 4 Ki x 1 Ki", dtype, 1, 4096, 1024);
  }
  add_reduce("sum of rows of 16", f32, 1024, 16, 1);
  add_reduce("sum of columns of 4 Ki x 4", f32, 1, 4096, 4);
  add_reduce("max of a run of 1 Ki", f32, 1, 1024, 1, Reduction::max);
  benchmark::RegisterBenchmark("argmax of a run of 1 Ki/f32", [](benchmark::State& state) {
    const auto in = random_elements(f32, kElements);
    std::int32_t out;
    const ArgReduceFn kernel = arg_reduce_kernel(ArgReduction::argmax, f32, i32);
    run(state, kElements, [&] { kernel(in.data(), &out, 1, kElements, 1); });
  });
  benchmark::RegisterBenchmark("cumsum of a run of 1 Ki/f32", [](benchmark::State& state) {
    const auto in = random_elements(f32, kElements);
    const Buffer out(kElements * 4);
    const ScanFn kernel = scan_kernel(Cumulative::cumsum, f32);
    run(state, kElements, [&] { kernel(in.data(), out.data(), 1, kElements, 1, false); });
  });
  for (const int ranks : {2, 4, 8}) add_combine(ranks, f32, 256, false);
  add_combine(8, bf16, 512, false);
  add_combine(6, f32, 256, false);
  add_combine(8, f32, 256 << 10, false);
  add_combine(8, f32, 256 << 10, true);
  add_combine(8, f32, 4 << 20, false);
  add_combine(8, f32, 4 << 20, true);
  add_combine(8, bf16, 8 << 20, true);
}

}  // namespace
}  // namespace shmap::cpu

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  shmap::cpu::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
