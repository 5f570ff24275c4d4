// Sorting and top_k by CUDA kernels, compared with the CPU's kernels.
#include "core/cpu/kernels/sort/sort.h"

#include "cuda/kernels/sort/sort.h"
#include "cuda/kernels/sort/sort_lines.h"
#include "shmap/error.h"
#include "tests/cuda/kernels/device_memory.h"
#include "tests/cuda/kernels/sample_items.h"

namespace shmap::cuda {
namespace {

using testing::Bytes;
using testing::DeviceBytes;
using testing::expect_items;
using testing::Items;
using testing::items_of;
using testing::kNumericDTypes;
using testing::on_stream;

class CudaSort : public testing::OnGpu {};

// Sorts by `keys` operands of the dtypes, all moved together. The CPU sorts by one key at a time,
// the last first.
void check(std::int64_t outer, std::int64_t len, std::int64_t inner,
           const std::vector<DType>& dtypes, int keys, unsigned seed) {
  const std::int64_t n = outer * len * inner;
  std::vector<Bytes> want;
  std::vector<DeviceBytes> in, out;
  Sort s;
  s.outer = outer;
  s.len = len;
  s.inner = inner;
  s.num_keys = keys;
  std::vector<SortOperand> operands;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    want.push_back(items_of(dtypes[i], n, Items::special, seed + static_cast<unsigned>(i)));
    in.emplace_back(want.back());
    out.emplace_back(static_cast<std::int64_t>(want.back().size()));
    operands.push_back({dtypes[i], in.back().data(), out.back().data()});
  }
  s.operands = operands;
  for (int key = keys; key-- > 0;) {
    cpu::SortPass on_cpu;
    on_cpu.dtype = dtypes[static_cast<std::size_t>(key)];
    on_cpu.outer = outer;
    on_cpu.len = len;
    on_cpu.inner = inner;
    std::vector<cpu::SortPayload> payloads;
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      if (static_cast<int>(i) == key)
        on_cpu.keys = on_cpu.sorted = want[i].data();
      else
        payloads.push_back({itemsize(dtypes[i]), want[i].data(), want[i].data()});
    }
    on_cpu.payloads = payloads;
    cpu::sort(on_cpu);
  }
  const DeviceBytes scratch(sort_scratch(s));
  on_stream([&](void* stream) { sort(s, scratch.data(), stream); });
  scratch.read<std::uint8_t>();
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    const Bytes got = out[i].read<std::uint8_t>();
    EXPECT_EQ(got, want[i]) << "operand " << i << ", " << to_string(dtypes[i]) << ", of " << outer
                            << " x " << len << " x " << inner << " by " << keys << " keys";
  }
}

TEST_F(CudaSort, EveryTypeWithItsPlaces) {
  for (DType dtype : kNumericDTypes) {
    check(3, 37, 1, {dtype, i32}, 1, 1);
    check(2, 5, 3, {dtype, i32}, 1, 2);
  }
}

TEST_F(CudaSort, Lengths) {
  for (std::int64_t len : {0, 1, 2, 3, 63, 64, 65, 513}) check(2, len, 1, {f32, u8}, 1, 3);
  check(1, 2048, 1, {f64, i16}, 1, 4);
}

TEST_F(CudaSort, LongLines) {
  for (DType dtype : {bool_, u16, f16, f32, i64, f64}) {
    check(1, 2049, 1, {dtype, i32}, 1, 5);  // alone
    check(3, 3001, 1, {dtype, i32}, 1, 6);  // one after another
    check(1, 2500, 7, {dtype, i32}, 1, 7);  // together
  }
}

TEST_F(CudaSort, SeveralKeys) {
  check(2, 100, 1, {i8, f32, i32}, 2, 8);
  check(2, 50, 3, {bool_, bf16, i8, f64, u16}, 3, 9);
  check(5, 2100, 1, {bool_, i64, i32}, 2, 10);
}

TEST_F(CudaSort, RefusesKeysWithoutOrder) {
  Sort s;
  const SortOperand operand = {prng_key, nullptr, nullptr};
  s.operands = {&operand, 1};
  EXPECT_THROW(sort_scratch(s), TypeError);
  TopK t;
  t.len = std::int64_t{1} << 31;
  EXPECT_THROW(top_k_scratch(t), ValueError);
}

TEST_F(CudaSort, RefusesMoreLinesThanAGridHasBlocks) {
  SortLines lines;
  lines.lines = std::int64_t{1} << 32;
  lines.len = 2;
  EXPECT_THROW(sort_lines(lines, nullptr, nullptr), ValueError);
  TopK t;
  t.outer = std::int64_t{1} << 32;
  t.len = 2;
  t.k = 1;
  EXPECT_THROW(top_k(t, nullptr, nullptr), ValueError);
}

void check_top_k(std::int64_t outer, std::int64_t len, std::int64_t k, DType dtype) {
  const Bytes in = items_of(dtype, outer * len, Items::special, 12);
  Bytes values(static_cast<std::size_t>(outer * k * itemsize(dtype)));
  std::vector<std::int32_t> indices(static_cast<std::size_t>(outer * k));
  TopK on_cpu;
  on_cpu.dtype = dtype;
  on_cpu.outer = outer;
  on_cpu.len = len;
  on_cpu.k = k;
  on_cpu.in = in.data();
  on_cpu.values = values.data();
  on_cpu.indices = indices.data();
  cpu::top_k(on_cpu);
  TopK t;
  t.dtype = dtype;
  t.outer = outer;
  t.len = len;
  t.k = k;
  const DeviceBytes from(in), to(static_cast<std::int64_t>(values.size())), at(outer * k * 4),
      scratch(top_k_scratch(t));
  t.in = from.data();
  t.values = to.data();
  t.indices = static_cast<std::int32_t*>(at.data());
  on_stream([&](void* stream) { top_k(t, scratch.data(), stream); });
  const std::string what = std::to_string(k) + " largest of " + std::to_string(outer) + " x " +
                           std::to_string(len) + " " + to_string(dtype);
  EXPECT_EQ(at.read<std::int32_t>(), indices) << what;
  EXPECT_EQ(to.read<std::uint8_t>(), values) << what;
}

TEST_F(CudaSort, TopK) {
  for (DType dtype : kNumericDTypes) {
    check_top_k(3, 50, 7, dtype);
    check_top_k(2, 2100, 5, dtype);
  }
  check_top_k(2, 1, 1, f32);
  check_top_k(2, 9, 9, f32);
  check_top_k(2, 9, 0, f32);
  check_top_k(0, 9, 2, f32);
  for (DType dtype : {bool_, i8, f32, f64}) {
    check_top_k(1, 3000, 2048, dtype);
    check_top_k(2, 2500, 2400, dtype);  // whole rows are sorted
  }
}

}  // namespace
}  // namespace shmap::cuda
