// CUDA's kernels that move, fill and combine memory, against the CPU's.
#include <numeric>
#include <random>

#include "core/cpu/kernels/elementwise/fill.h"
#include "core/cpu/kernels/move/copy.h"
#include "core/cpu/kernels/move/pad.h"
#include "core/cpu/kernels/reduce/combine.h"
#include "cuda/kernels/elementwise/fill.h"
#include "cuda/kernels/move/copy.h"
#include "cuda/kernels/move/pad.h"
#include "cuda/kernels/reduce/combine.h"
#include "shmap/error.h"
#include "tests/cpu/kernels/kernel_testing.h"
#include "tests/cuda/kernels/device_memory.h"
#include "tests/support/padded_extent.h"

namespace shmap::cuda {
namespace {

using namespace testing;
using cpu::testing::Element;
using cpu::testing::elements;
using cpu::testing::kIsReal;
using cpu::testing::kNumericDTypes;
using cpu::testing::to_real;
using cpu::testing::with_type;
using Bytes = std::vector<std::uint8_t>;

class CudaLayout : public OnGpu {};

Bytes random_bytes(std::int64_t n, std::mt19937& rng) {
  Bytes result(static_cast<std::size_t>(n));
  for (auto& b : result) b = static_cast<std::uint8_t>(rng());
  return result;
}

// A box with its offset in two arrays: in bytes, of the item at index 0, …, 0.
struct Box {
  std::vector<std::int64_t> extent, dst_stride, src_stride;
  std::int64_t dst_offset = 0, src_offset = 0, dst_bytes = 0, src_bytes = 0;
  int itemsize = 4;
};

template <class Copy>
Copy copy_of(const Box& box, void* dst, const void* src) {
  Copy copy;
  copy.rank = static_cast<int>(box.extent.size());
  std::copy(box.extent.begin(), box.extent.end(), copy.extent);
  std::copy(box.dst_stride.begin(), box.dst_stride.end(), copy.dst_stride);
  std::copy(box.src_stride.begin(), box.src_stride.end(), copy.src_stride);
  copy.itemsize = box.itemsize;
  copy.src = static_cast<const std::byte*>(src) + box.src_offset;
  copy.dst = static_cast<std::byte*>(dst) + box.dst_offset;
  return copy;
}

void check_copy(const Box& box, std::mt19937& rng, std::int64_t misalignment = 0) {
  const Bytes src = random_bytes(box.src_bytes, rng);
  Bytes want = random_bytes(box.dst_bytes, rng);
  const DeviceBytes from(src, misalignment), to(want, misalignment);
  cpu::copy_strided(copy_of<cpu::StridedCopy>(box, want.data(), src.data()));
  on_stream([&](void* s) { copy_strided(copy_of<StridedCopy>(box, to.data(), from.data()), s); });
  EXPECT_EQ(to.read<std::uint8_t>(), want)
      << ::testing::PrintToString(box.extent) << " of " << box.itemsize << " bytes, dst "
      << ::testing::PrintToString(box.dst_stride) << " src "
      << ::testing::PrintToString(box.src_stride);
}

// A row-major result of those extents out of a row-major operand whose dims are permuted.
Box permuted(const std::vector<std::int64_t>& extent, const std::vector<int>& order, int itemsize) {
  Box box;
  box.itemsize = itemsize;
  const std::size_t rank = extent.size();
  box.extent.resize(rank);
  box.dst_stride.resize(rank);
  box.src_stride.resize(rank);
  std::vector<std::int64_t> stride(rank);
  std::int64_t step = itemsize;
  for (std::size_t d = rank; d-- > 0; step *= extent[d]) stride[d] = step;
  box.src_bytes = box.dst_bytes = step;
  for (std::size_t d = 0; d < rank; ++d) {
    box.extent[d] = extent[static_cast<std::size_t>(order[d])];
    box.src_stride[d] = stride[static_cast<std::size_t>(order[d])];
  }
  step = itemsize;
  for (std::size_t d = rank; d-- > 0; step *= box.extent[d]) box.dst_stride[d] = step;
  return box;
}

TEST_F(CudaLayout, TransposesOfEveryOrder) {
  std::mt19937 rng(1);
  for (const int itemsize : {1, 2, 4, 8}) {
    for (const std::vector<std::int64_t>& extent : {std::vector<std::int64_t>{33, 70},
                                                    {8, 8},
                                                    {64, 32},
                                                    {130, 66},
                                                    {3, 66, 130},
                                                    {5, 40, 9},
                                                    {2, 3, 4, 5},
                                                    {7},
                                                    {1, 6, 1, 4},
                                                    {12, 1, 65}}) {
      std::vector<int> order(extent.size());
      std::iota(order.begin(), order.end(), 0);
      do {
        check_copy(permuted(extent, order, itemsize), rng);
      } while (std::next_permutation(order.begin(), order.end()));
    }
  }
}

// Odd addresses, and even extents: no two items are one word.
TEST_F(CudaLayout, TransposesOfItemsBetweenWords) {
  std::mt19937 rng(7);
  for (const std::int64_t misalignment : {0, 2})
    check_copy(permuted({130, 66}, {1, 0}, 2), rng, misalignment);
  check_copy(permuted({131, 66}, {1, 0}, 2), rng);
  check_copy(permuted({130, 67}, {1, 0}, 2), rng);
}

TEST_F(CudaLayout, BoxesBetweenManyPlaces) {
  std::mt19937 rng(8);
  struct Case {
    Box box;
    int n;
    std::int64_t step;  // bytes from one item to the next
  };
  Box row;
  row.extent = {60};
  row.dst_stride = row.src_stride = {4};
  row.src_bytes = row.dst_bytes = 240;
  for (const Case& c :
       {Case{row, 3, 240}, Case{row, 130, 256}, Case{permuted({3, 5, 4}, {1, 0, 2}, 4), 70, 240},
        Case{permuted({33, 20}, {1, 0}, 2), 5, 1320}}) {
    const std::int64_t bytes = c.n * c.step;
    const Bytes src = random_bytes(bytes, rng);
    Bytes want = random_bytes(bytes, rng);
    const DeviceBytes from(src, 0), to(want, 0);
    std::vector<const void*> reads;
    std::vector<void*> writes;
    for (int i = 0; i < c.n; ++i) {
      const std::int64_t at = i * c.step, other = (c.n - 1 - i) * c.step;
      cpu::copy_strided(copy_of<cpu::StridedCopy>(c.box, want.data() + at, src.data() + other));
      writes.push_back(static_cast<std::byte*>(to.data()) + at);
      reads.push_back(static_cast<const std::byte*>(from.data()) + other);
    }
    on_stream([&](void* s) {
      copy_strided_boxes(copy_of<StridedCopy>(c.box, nullptr, nullptr), reads.data(), writes.data(),
                         c.n, s);
    });
    EXPECT_EQ(to.read<std::uint8_t>(), want) << c.n;
  }
}

TEST_F(CudaLayout, RandomBoxes) {
  std::mt19937 rng(2);
  const auto pick = [&](int n) {
    return static_cast<std::int64_t>(rng() % static_cast<unsigned>(n));
  };
  for (int round = 0; round < 400; ++round) {
    Box box;
    constexpr int kItems[] = {1, 2, 3, 4, 8, 16, 12, 24};
    box.itemsize = kItems[pick(8)];
    const auto rank = static_cast<std::size_t>(pick(5));
    std::int64_t src_step = box.itemsize, dst_step = box.itemsize;
    box.extent.resize(rank);
    box.src_stride.resize(rank);
    box.dst_stride.resize(rank);
    // Some dims cover the array's whole dim, some a part; some are reversed, some repeat, and some
    // of src are strided.
    for (std::size_t d = rank; d-- > 0;) {
      const std::int64_t extent = pick(12) == 0 ? 40 : 1 + pick(6);
      const std::int64_t more = pick(2), every = 1 + pick(2);
      const bool repeats = pick(6) == 0, backwards = pick(4) == 0;
      box.extent[d] = extent;
      box.dst_stride[d] = dst_step;
      dst_step *= extent + more;
      box.src_stride[d] = repeats ? 0 : backwards ? -src_step * every : src_step * every;
      if (!repeats && backwards) box.src_offset += (extent - 1) * src_step * every;
      if (!repeats) src_step *= (extent - 1) * every + 1 + more;
    }
    box.src_bytes = src_step;
    box.dst_bytes = dst_step;
    check_copy(box, rng, round % 3 == 0 ? 1 + pick(8) : 0);
  }
}

TEST_F(CudaLayout, NothingToCopyAndOneItem) {
  std::mt19937 rng(3);
  Box box;
  box.src_bytes = box.dst_bytes = 4;
  check_copy(box, rng);
  box.extent = {3, 0};
  box.src_stride = box.dst_stride = {4, 4};
  check_copy(box, rng);
}

TEST_F(CudaLayout, FillsOfEverySize) {
  std::mt19937 rng(4);
  for (const int itemsize : {1, 2, 4, 8}) {
    for (const std::int64_t n : {0, 1, 31, 33, 1000}) {
      const Bytes value = random_bytes(itemsize, rng);
      Bytes want(static_cast<std::size_t>(n * itemsize));
      cpu::fill(want.data(), value.data(), itemsize, n);
      const DeviceBytes on_device(value), a(n * itemsize), b(n * itemsize, itemsize);
      on_stream([&](void* stream) {
        fill(a.data(), {value.data(), Operand::literal}, itemsize, n, stream);
        fill(b.data(), {on_device.data(), Operand::scalar}, itemsize, n, stream);
      });
      EXPECT_EQ(a.read<std::uint8_t>(), want);
      EXPECT_EQ(b.read<std::uint8_t>(), want);
    }
  }
}

TEST_F(CudaLayout, IotaOfEveryDTypeAlongAnyDim) {
  for (const DType dtype : kNumericDTypes) {
    if (dtype == DType::bool_) continue;
    SCOPED_TRACE(to_string(dtype));
    for (const auto& [outer, n, inner] :
         {std::tuple{1, 300, 1}, {3, 5, 7}, {1, 70000, 1}, {2, 0, 3}, {4, 1, 1}}) {
      const int size = itemsize(dtype);
      Bytes row(static_cast<std::size_t>(n * size)), want;
      cpu::iota(dtype, row.data(), n);
      for (int o = 0; o < outer; ++o)
        for (int i = 0; i < n; ++i)
          for (int k = 0; k < inner; ++k)
            want.insert(want.end(), row.begin() + i * size, row.begin() + (i + 1) * size);
      const DeviceBytes out(static_cast<std::int64_t>(want.size()));
      on_stream([&, outer = outer, n = n, inner = inner](void* stream) {
        iota(dtype, out.data(), outer, n, inner, stream);
      });
      EXPECT_EQ(out.read<std::uint8_t>(), want) << outer << " " << n << " " << inner;
    }
  }
}

TEST_F(CudaLayout, PadsAndCuts) {
  std::mt19937 rng(5);
  const auto pick = [&](int n) {
    return static_cast<std::int64_t>(rng() % static_cast<unsigned>(n));
  };
  for (int round = 0; round < 400; ++round) {
    cpu::Pad want_pad;
    Pad pad;
    constexpr int kItems[] = {1, 2, 4, 8};
    want_pad.itemsize = pad.itemsize = kItems[pick(4)];
    want_pad.rank = pad.rank = static_cast<int>(pick(5));
    std::int64_t src_bytes = pad.itemsize, dst_bytes = pad.itemsize;
    for (int d = 0; d < pad.rank; ++d) {
      const bool plain = pick(3) == 0;
      want_pad.extent[d] = pad.extent[d] = pick(7);
      want_pad.low[d] = pad.low[d] = plain ? 0 : pick(8) - 4;
      const std::int64_t high = plain ? 0 : pick(8) - 4;
      want_pad.interior[d] = pad.interior[d] = plain ? 0 : pick(3);
      want_pad.padded[d] = pad.padded[d] =
          shmap::testing::padded_extent(pad.extent[d], pad.low[d], high, pad.interior[d]);
      src_bytes *= pad.extent[d];
      dst_bytes *= pad.padded[d];
    }
    const Bytes src = random_bytes(src_bytes, rng), value = random_bytes(pad.itemsize, rng);
    Bytes want(static_cast<std::size_t>(dst_bytes));
    want_pad.src = src.data();
    want_pad.value = value.data();
    want_pad.dst = want.data();
    cpu::pad(want_pad);
    const DeviceBytes from(src), to(dst_bytes), on_device(value);
    pad.src = from.data();
    pad.dst = to.data();
    pad.value = round % 2 == 0 ? Operand{value.data(), Operand::literal}
                               : Operand{on_device.data(), Operand::scalar};
    on_stream([&](void* stream) { cuda::pad(pad, stream); });
    ASSERT_EQ(to.read<std::uint8_t>(), want) << "round " << round;
  }
}

constexpr struct {
  Reduction op;
  Reduction cpu_op;
} kCombines[] = {{Reduction::sum, Reduction::sum}, {Reduction::prod, Reduction::prod},
                 {Reduction::max, Reduction::max}, {Reduction::min, Reduction::min},
                 {Reduction::any, Reduction::any}, {Reduction::all, Reduction::all}};

// Combines all pieces of `length` elements of `rows` rows of `stride` elements of each rank.
template <class T>
void check_combine(Reduction op, Reduction cpu_op, DType dtype, int ranks, std::int64_t rows,
                   std::int64_t length, std::int64_t stride, std::int64_t offset) {
  using E = Element<T>;
  const std::int64_t size = sizeof(E);
  std::vector<std::vector<E>> host;
  std::vector<DeviceBytes> device;
  std::vector<const void*> addresses;
  for (int r = 0; r < ranks; ++r) {
    host.push_back(elements<T>(rows * stride, 17 + static_cast<unsigned>(r)));
    device.emplace_back(host.back(), r % 2 * offset * size);
    addresses.push_back(device.back().data());
  }
  const std::int64_t count = stride / length;
  std::vector<E> want(static_cast<std::size_t>(rows * stride));  // a piece after another
  for (std::int64_t piece = 0; piece < count; ++piece) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<const void*> from;
      for (const auto& h : host) from.push_back(h.data() + row * stride + piece * length);
      cpu::combine_ranks(cpu_op, dtype, from.data(), ranks,
                         want.data() + (piece * rows + row) * length, 0, length);
    }
  }
  const bool in_place = stride == length && offset == 0;
  const DeviceBytes apart(rows * stride * size);
  std::vector<CombinedPiece> pieces;
  for (std::int64_t piece = 0; piece < count; ++piece)
    pieces.push_back(
        {static_cast<std::byte*>(apart.data()) + piece * rows * length * size, piece * length});
  on_stream([&](void* s) {
    combine_ranks(op, dtype, addresses.data(), ranks, pieces, rows, length, stride, s);
    if (in_place) {
      const CombinedPiece whole{device.back().data(), 0};
      combine_ranks(op, dtype, addresses.data(), ranks, {&whole, 1}, rows, length, stride, s);
    }
  });
  for (const DeviceBytes* out : {&apart, static_cast<const DeviceBytes*>(&device.back())}) {
    if (out != &apart && !in_place) continue;
    const auto got = out->read<E>();
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (kIsReal<T> && to_real(want[i]) != to_real(want[i])) {
        ASSERT_NE(to_real(got[i]), to_real(got[i])) << i << " of " << ranks << " ranks";
        continue;
      }
      ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(E)), 0)
          << i << " of " << want.size() << ", " << ranks
          << " ranks: " << static_cast<double>(to_real(got[i])) << ", not "
          << static_cast<double>(to_real(want[i]));
    }
  }
}

TEST_F(CudaLayout, CombinesWithTheCpusBits) {
  for (const DType dtype : kNumericDTypes) {
    for (const auto& [op, cpu_op] : kCombines) {
      const bool arithmetic = op == Reduction::sum || op == Reduction::prod;
      const bool bitwise = op == Reduction::any || op == Reduction::all;
      if ((dtype == DType::bool_ && arithmetic) || (is_floating(dtype) && bitwise)) continue;
      SCOPED_TRACE(to_string(dtype) + " op " + std::to_string(static_cast<int>(op)));
      with_type(dtype, [&, op = op, cpu_op = cpu_op]<class T>() {
        for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 11, 16})
          check_combine<T>(op, cpu_op, dtype, ranks, 1, 33, 33, 0);
        check_combine<T>(op, cpu_op, dtype, 8, 1, 1000, 1000, 1);
        check_combine<T>(op, cpu_op, dtype, 6, 4, 16, 48, 0);
        check_combine<T>(op, cpu_op, dtype, 3, 5, 3, 9, 0);
        check_combine<T>(op, cpu_op, dtype, 8, 2, 4, 4 * (2 * kMaxPieces + 1), 0);
      });
    }
  }
  for (const int ranks : {17, 32, 40, 100})
    check_combine<float16>(Reduction::sum, Reduction::sum, f16, ranks, 1, 40, 40, 0);
}

TEST_F(CudaLayout, CombineSaysWhatItCannotDo) {
  const DeviceBytes a(8);
  const void* ranks[] = {a.data(), a.data()};
  const auto combine = [&](Reduction op, DType dtype, int n) {
    const CombinedPiece whole{a.data(), 0};
    on_stream([&](void* stream) {
      combine_ranks(op, dtype, ranks, n, {&whole, 1}, 1, 2, 2, stream);
    });
  };
  EXPECT_THROW(combine(Reduction::any, f32, 2), TypeError);
  EXPECT_THROW(combine(Reduction::sum, DType::bool_, 2), TypeError);
  EXPECT_THROW(combine(Reduction::sum, f32, kMaxRanks + 1), ValueError);
}

}  // namespace
}  // namespace shmap::cuda
