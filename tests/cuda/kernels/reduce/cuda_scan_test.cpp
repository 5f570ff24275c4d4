// Cumulative operations by CUDA kernels, compared with the CPU's kernels.
#include "core/cpu/kernels/reduce/scan.h"

#include "cuda/kernels/reduce/scan.h"
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

class CudaScan : public testing::OnGpu {};

constexpr Cumulative kOps[] = {Cumulative::cumsum, Cumulative::cumprod, Cumulative::cummax,
                               Cumulative::cummin, Cumulative::cumlogsumexp};

Bytes scanned_on_gpu(Scan s, const Bytes& in, bool in_place) {
  const DeviceBytes from(in), to(static_cast<std::int64_t>(in.size())), scratch(scan_scratch(s));
  s.in = from.data();
  s.out = in_place ? from.data() : to.data();
  on_stream([&](void* stream) { scan(s, scratch.data(), stream); });
  scratch.read<std::uint8_t>();
  return (in_place ? from : to).read<std::uint8_t>();
}

void check(std::int64_t outer, std::int64_t len, std::int64_t inner, Items items, bool all_types) {
  for (DType dtype : kNumericDTypes) {
    if (!all_types && dtype != f32 && dtype != bf16 && dtype != i8 && dtype != f64) continue;
    for (Cumulative op : kOps) {
      const cpu::ScanFn on_cpu = cpu::scan_kernel(static_cast<Cumulative>(op), dtype);
      if (on_cpu == nullptr) continue;
      const bool product = op == Cumulative::cumprod && items == Items::small;
      const Bytes in = items_of(dtype, outer * len * inner, product ? Items::factors : items, 5);
      for (bool reverse : {false, true}) {
        Bytes want(in.size());
        on_cpu(in.data(), want.data(), outer, len, inner, reverse);
        Scan s;
        s.op = op;
        s.dtype = dtype;
        s.outer = outer;
        s.len = len;
        s.inner = inner;
        s.reverse = reverse;
        // Sums of exponentials are rounded in another order.
        const double tolerance = op != Cumulative::cumlogsumexp ? 0
                                 : itemsize(dtype) == 2         ? 1e-2
                                 : dtype == f32                 ? 1e-6
                                                                : 1e-14;
        expect_items(dtype, scanned_on_gpu(s, in, reverse), want, tolerance,
                     "scan " + std::to_string(static_cast<int>(op)) + " of " +
                         std::to_string(outer) + " x " + std::to_string(len) + " x " +
                         std::to_string(inner));
      }
    }
  }
}

TEST_F(CudaScan, Rows) {
  for (std::int64_t len : {1, 2, 5, 31, 128, 129, 1000}) check(2, len, 1, Items::small, true);
  check(1, 1025, 1, Items::small, false);
  check(3, 2049, 1, Items::small, false);
}

TEST_F(CudaScan, Columns) {
  check(2, 7, 3, Items::small, true);
  check(2, 19, 16, Items::small, true);
  check(1, 5, 300, Items::small, false);
}

TEST_F(CudaScan, NaNsAndInfinities) {
  check(3, 40, 1, Items::special, true);
  check(2, 9, 20, Items::special, true);
}

TEST_F(CudaScan, ManyPartsOfALine) {
  Scan s;
  s.outer = 1;
  s.len = 20011;
  ASSERT_GT(scan_scratch(s), 0);
  check(1, 20011, 1, Items::small, false);
  s.len = 211;
  s.inner = 17;
  ASSERT_GT(scan_scratch(s), 0);
  check(1, 211, 17, Items::small, false);
}

TEST_F(CudaScan, NothingAndWhatHasNoScan) {
  check(0, 3, 2, Items::small, false);
  check(2, 0, 3, Items::small, false);
  Scan s;
  s.op = Cumulative::cumsum;
  s.dtype = bool_;
  s.outer = s.len = 1;
  EXPECT_THROW(scan(s, nullptr, nullptr), TypeError);
  s.op = Cumulative::cumlogsumexp;
  s.dtype = i32;
  EXPECT_THROW(scan(s, nullptr, nullptr), TypeError);
  s.dtype = f32;
  s.outer = std::int64_t{1} << 32;  // as many blocks, of which a grid would have none
  EXPECT_THROW(scan(s, nullptr, nullptr), ValueError);
}

}  // namespace
}  // namespace shmap::cuda
