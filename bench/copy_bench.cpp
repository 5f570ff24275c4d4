// The strided copy: GB/s of bytes copied (read and written count once), beside memcpy of the same.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/cpu/kernels/copy.h"

namespace shmap::cpu {
namespace {

std::vector<char> filled(std::int64_t bytes) {
  std::vector<char> v(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<char>(i * 31);
  return v;
}

void report(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

void memcpy_contiguous(benchmark::State& state) {
  const std::int64_t bytes = state.range(0) << 10;
  const auto src = filled(bytes);
  auto dst = src;
  for (auto _ : state) {
    std::memcpy(dst.data(), src.data(), src.size());
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void copy_contiguous(benchmark::State& state) {
  const std::int64_t bytes = state.range(0) << 10;
  const auto src = filled(bytes);
  auto dst = src;
  for (auto _ : state) {
    copy_bytes(dst.data(), src.data(), bytes);
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void fill(benchmark::State& state) {
  const std::int64_t bytes = state.range(0) << 10;
  auto dst = filled(bytes);
  const float value = 1.5f;
  for (auto _ : state) {
    fill_items(dst.data(), &value, 4, bytes / 4);
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void transpose_square(benchmark::State& state) {
  const int itemsize = static_cast<int>(state.range(0));
  const std::int64_t n = state.range(1);
  const auto src = filled(n * n * itemsize);
  auto dst = src;
  StridedCopy c;
  c.rank = 2;
  c.itemsize = itemsize;
  c.extent[0] = c.extent[1] = n;
  row_major_strides(2, c.extent, itemsize, c.dst_stride);
  c.src_stride[0] = itemsize, c.src_stride[1] = n * itemsize;
  c.src = src.data();
  c.dst = dst.data();
  for (auto _ : state) {
    copy_strided(c);
    benchmark::ClobberMemory();
  }
  report(state, n * n * itemsize);
}

// A slice of rows of `range(0)` bytes, of an array twice as wide.
void slice_rows(benchmark::State& state) {
  const std::int64_t row = state.range(0), rows = (std::int64_t{1} << 20) / row;
  const auto src = filled(rows * row * 2);
  auto dst = filled(rows * row);
  StridedCopy c;
  c.rank = 2;
  c.itemsize = 4;
  c.extent[0] = rows, c.extent[1] = row / 4;
  c.src_stride[0] = row * 2, c.src_stride[1] = 4;
  c.dst_stride[0] = row, c.dst_stride[1] = 4;
  c.src = src.data();
  c.dst = dst.data();
  for (auto _ : state) {
    copy_strided(c);
    benchmark::ClobberMemory();
  }
  report(state, rows * row);
}

BENCHMARK(memcpy_contiguous)->RangeMultiplier(4)->Range(4, 64 << 10);
BENCHMARK(copy_contiguous)->RangeMultiplier(4)->Range(4, 64 << 10);
BENCHMARK(fill)->Arg(64)->Arg(1 << 10)->Arg(64 << 10);
BENCHMARK(transpose_square)->ArgsProduct({{1, 2, 4, 8}, {64, 1000, 1024, 4096}});
BENCHMARK(slice_rows)->Arg(16)->Arg(64)->Arg(256)->Arg(4096);

}  // namespace
}  // namespace shmap::cpu

BENCHMARK_MAIN();
