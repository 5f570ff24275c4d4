// The strided copy: GB/s of bytes copied (read and written count once), beside a memcpy of as many
// bytes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/move/copy.h"

namespace shmap::cpu {
namespace {

// Page-aligned memory, like the buffers of arrays.
class Bytes {
 public:
  explicit Bytes(std::int64_t bytes)
      : size_(static_cast<std::size_t>(bytes)),
        data_(static_cast<char*>(std::aligned_alloc(4096, (size_ + 4095) / 4096 * 4096))) {
    for (std::size_t i = 0; i < size_; ++i) data_[i] = static_cast<char>(i * 31);
  }
  ~Bytes() { std::free(data_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  char* data_;
};

void report(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

void memcpy_contiguous(benchmark::State& state) {
  const std::int64_t bytes = state.range(0) << 10;
  const Bytes src(bytes), dst(bytes);
  for (auto _ : state) {
    std::memcpy(dst.data(), src.data(), src.size());
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void copy_contiguous(benchmark::State& state) {
  const std::int64_t bytes = state.range(0) << 10;
  const Bytes src(bytes), dst(bytes);
  for (auto _ : state) {
    copy_bytes(dst.data(), src.data(), bytes);
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void fill_floats(benchmark::State& state) {
  const std::int64_t bytes = state.range(0) << 10;
  const Bytes dst(bytes);
  const float value = 1.5f;
  for (auto _ : state) {
    fill(dst.data(), &value, 4, bytes / 4);
    benchmark::ClobberMemory();
  }
  report(state, bytes);
}

void transpose_square(benchmark::State& state) {
  const int itemsize = static_cast<int>(state.range(0));
  const std::int64_t n = state.range(1);
  const Bytes src(n * n * itemsize), dst(n * n * itemsize);
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

// Copies a slice whose rows have `range(0)` bytes from an array that is twice as wide.
void slice_rows(benchmark::State& state) {
  const std::int64_t row = state.range(0), rows = (std::int64_t{1} << 20) / row;
  const Bytes src(rows * row * 2), dst(rows * row);
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
BENCHMARK(fill_floats)->Arg(64)->Arg(1 << 10)->Arg(64 << 10);
BENCHMARK(transpose_square)->ArgsProduct({{1, 2, 4, 8}, {64, 1000, 1001, 1024, 2048, 4096}});
BENCHMARK(slice_rows)->Arg(16)->Arg(64)->Arg(256)->Arg(4096);

}  // namespace
}  // namespace shmap::cpu

BENCHMARK_MAIN();
