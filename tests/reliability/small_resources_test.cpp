// Threads with small stacks, an address space with a limit, and the memory that threads keep. Each
// case runs in a child, so that this process never uses a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/cpu/kernels/matmul/gemm.h"
#include "shmap/collectives.h"
#include "shmap/ops.h"
#include "shmap/shard_map.h"
#include "tests/support/child_process.h"

namespace shmap {
namespace {

using test::ChildResult;
using test::in_child;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Runs it on a thread with that stack, and rethrows what it throws.
void on_stack(std::size_t bytes, const std::function<void()>& run) {
  struct Call {
    const std::function<void()>& run;
    std::exception_ptr error;
  } call{run, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes);
  pthread_t thread;
  const int code = pthread_create(
      &thread, &attributes,
      [](void* given) -> void* {
        auto* c = static_cast<Call*>(given);
        try {
          c->run();
        } catch (...) {
          c->error = std::current_exception();
        }
        return nullptr;
      },
      &call);
  pthread_attr_destroy(&attributes);
  if (code != 0) throw Error("no thread with so small a stack: " + std::to_string(code));
  pthread_join(thread, nullptr);
  if (call.error) std::rethrow_exception(call.error);
}

void expect_equal(const Array& got, double wanted, const char* what) {
  const double value = astype(max(got), f64).item<double>();
  if (value != wanted || astype(min(got), f64).item<double>() != wanted)
    throw Error(std::string(what) + " gave " + std::to_string(value));
}

// The reductions and copies that work with the largest pieces.
void reduce_everything() {
  for (const DType dtype : {f32, f64, bf16, f16, i8}) {
    const Array x = broadcast_to(astype(ones({1, 130}), dtype), {100, 130}) * 1;
    const Array y = astype(x, dtype);
    expect_equal(sum(y, 0), 100, "a sum of columns");
    expect_equal(max(y, 1), 1, "a maximum of rows");
    expect_equal(sum(reshape(y, {13000})[range(0, 100)]), 100, "a sum");
    expect_equal(argmax(y, 0), 0, "argmax of columns");
    expect_equal(argmax(y, 1), 0, "argmax of rows");
    expect_equal(cumsum(y, 0)[99], 100, "cumsum");
    expect_equal(sort(y, 0), 1, "sort");
    expect_equal(transpose(y), 1, "transpose");
  }
  const Array long_one = astype(ones({20000}), bf16);
  expect_equal(max(long_one), 1, "a maximum of halves");
  expect_equal(argmax(long_one), 0, "argmax of halves");
  const Array bytes = ones({4096, 4096}, u8);
  expect_equal(transpose(bytes) + ones({4096, 4096}, u8), 2, "a large transpose");
  const Array integers = ones({40, 40}, i64);
  expect_equal(matmul(integers, integers), 40, "a product of integers");
}

void reduce_over_ranks() {
  const Mesh mesh = make_mesh({16}, "i");
  for (const DType dtype : {f32, bf16}) {
    const Array x = device_put(ones({16, 600}, dtype), {mesh, P("i")});
    expect_equal(shard_map([](Array b) { return psum(b, "i"); }, mesh, P("i"), P())(x), 16, "psum");
    const Array y = device_put(ones({16, 64}, dtype), {mesh, P("i")});
    expect_equal(shard_map(
                     [](Array b) {
                       return psum_scatter(transpose(b), "i",
                                           {.scatter_dimension = 0, .tiled = true});
                     },
                     mesh, P("i"), P("i"))(y),
                 16, "psum_scatter");
  }
}

TEST(SmallStack, OfAThreadThatComputes) {
  const ChildResult r = in_child({{"SHMAP_EXECUTOR", "inline"}, {"SHMAP_DEVICES", "cpu:16"}}, [] {
    on_stack(std::size_t{96} << 10, [] {
      reduce_everything();
      reduce_over_ranks();
    });
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
}

std::int64_t address_space() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

std::int64_t resident() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Sums in another dtype than the result's are kept for some thousand rows at a time.
TEST(ScratchMemory, OfAProductDoesNotGrowWithItsRows) {
  const ChildResult r = in_child({{"SHMAP_EXECUTOR", "inline"}, {"SHMAP_DEVICES", "cpu:1"}}, [] {
    constexpr std::int64_t rows = 60'000, columns = 600, terms = 4;
    for (const DType dtype : {i8, u8, f16, bf16}) {
      const auto bytes = [dtype](std::int64_t elements) {
        return std::vector<char>(static_cast<std::size_t>(elements * itemsize(dtype)), 0);
      };
      const std::vector<char> a = bytes(rows * terms), b = bytes(terms * columns);
      std::vector<char> c = bytes(rows * columns);
      cpu::Gemm g;
      g.dtype = g.out = dtype;
      g.m = 1, g.n = columns, g.k = terms, g.lda = terms, g.ldb = columns, g.ldc = columns;
      g.a = a.data(), g.b = b.data(), g.c = c.data();
      cpu::gemm_with(cpu::GemmEngine::own, g);
      const std::int64_t before = resident();
      g.m = rows;
      cpu::gemm_with(cpu::GemmEngine::own, g);
      const std::int64_t more = (resident() - before) >> 20;
      if (more > 16) std::printf("%s: %d MB more; ", short_name(dtype), static_cast<int>(more));
    }
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  EXPECT_EQ(r.output, "");
}

// A copy of 64 MB, of an operand whose dims are in an order that a product cannot read.
TEST(ScratchMemory, OfLargeCopiedOperandsIsFreed) {
  const ChildResult r = in_child({{"SHMAP_EXECUTOR", "inline"}, {"SHMAP_DEVICES", "cpu:1"}}, [] {
    const auto multiply = [](const Array& x) {
      const Array y = einsum("iaj,ijb->ab", x, ones({64, 64, 8}));
      expect_equal(y, 4096, "a product");
    };
    multiply(ones({64, 4, 64}));
    const Array large = ones({64, 4096, 64});
    large.block_until_ready();
    const std::int64_t before = resident();
    multiply(large);
    const std::int64_t more = (resident() - before) >> 20;
    if (more > 24) std::printf("%d MB more", static_cast<int>(more));
  });
  EXPECT_EQ(r.exit_code, 0) << r.output << " signal " << r.signal;
  EXPECT_EQ(r.output, "");
}

// With too little memory OpenBLAS would ask for its buffers for ever. (With even less there would
// be none for the code of the libraries.)
TEST(AddressSpace, MayBeTooSmallForLibraries) {
  for (const std::int64_t more : {120, 150, 200, 300, 600, 2000}) {
    SCOPED_TRACE(more);
    const ChildResult r = in_child(
        {{"SHMAP_EXECUTOR", "async"}, {"SHMAP_WORKERS", "2"}, {"SHMAP_DEVICES", "cpu:8"}}, [&] {
          alarm(20);
          rlimit limit{};
          limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(address_space() + (more << 20));
          setrlimit(RLIMIT_AS, &limit);
          for (const DType dtype : {f64, f32}) {
            const Array x = ones({200, 200}, dtype);
            expect_equal(matmul(x, x), 200, "a product");
          }
          std::printf("right");
        });
    EXPECT_EQ(r.signal, 0) << r.output;
    // Otherwise an error says which memory was short.
    EXPECT_THAT(r.output, AnyOf(HasSubstr("right"), HasSubstr("memory"), HasSubstr("bad_alloc")));
  }
}

}  // namespace
}  // namespace shmap
