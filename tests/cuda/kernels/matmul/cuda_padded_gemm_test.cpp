// Products of halves from padded copies: the same results as of the operands as they lie.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "cuda/kernels/matmul/padded_gemm.h"
#include "tests/cuda/kernels/device_memory.h"
#include "tests/cuda/kernels/sample_items.h"

namespace shmap::cuda {
namespace {

using testing::DeviceBytes;
using testing::on_stream;

class CudaPaddedGemm : public testing::OnGpu {};

// Small whole numbers, whose sums are exact in any order.
int item_of(std::int64_t row, std::int64_t column, int seed) {
  return static_cast<int>((row * 7 + column * 3 + seed) % 5) - 2;
}

template <class T>
std::vector<T> stored(std::int64_t rows, std::int64_t columns, std::int64_t ld, bool transposed,
                      int seed) {
  std::vector<T> all(static_cast<std::size_t>(rows * ld), T(77.f));  // what no product may read
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      all[static_cast<std::size_t>(r * ld + c)] =
          T(static_cast<float>(transposed ? item_of(c, r, seed) : item_of(r, c, seed)));
  return all;
}

struct Sizes {
  std::int64_t m, k, n, gap;  // gap: items between rows
};

template <class T>
void expect_product(DType dtype, const Sizes& s, bool trans_a, bool trans_b) {
  SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.k) + "x" + std::to_string(s.n) +
               (trans_a ? ", a transposed" : "") + (trans_b ? ", b transposed" : ""));
  LtGemm g;
  g.dtype = dtype;
  g.out = f32;
  g.trans_a = trans_a;
  g.trans_b = trans_b;
  g.m = s.m;
  g.k = s.k;
  g.n = s.n;
  g.lda = (trans_a ? s.m : s.k) + s.gap;
  g.ldb = (trans_b ? s.k : s.n) + s.gap;
  g.ldc = s.n + s.gap;
  const std::int64_t a_rows = trans_a ? s.k : s.m, b_rows = trans_b ? s.n : s.k;
  const DeviceBytes a(stored<T>(a_rows, g.lda - s.gap, g.lda, trans_a, 1));
  const DeviceBytes b(stored<T>(b_rows, g.ldb - s.gap, g.ldb, trans_b, 2));
  const DeviceBytes c(s.m * g.ldc * 4);
  g.a = a.data();
  g.b = b.data();
  g.c = c.data();
  std::optional<PaddedGemm> copies = padded(g, 0);
  ASSERT_TRUE(copies.has_value());
  const DeviceBytes room(copies->bytes());
  const std::vector<float> before = c.read<float>();
  on_stream([&](void* stream) {
    copy_operands(g, *copies, room.data(), stream);
    cublaslt_gemm(copies->gemm, stream);
    copy_result(*copies, g, stream);
  });
  room.read<std::uint8_t>();  // nothing beside it
  const std::vector<float> got = c.read<float>();
  for (std::int64_t r = 0; r < s.m; ++r) {
    for (std::int64_t column = 0; column < g.ldc; ++column) {
      const auto at = static_cast<std::size_t>(r * g.ldc + column);
      if (column >= s.n) {  // between the rows nothing is written
        ASSERT_EQ(std::memcmp(&got[at], &before[at], 4), 0) << r << ", " << column;
        continue;
      }
      int want = 0;
      for (std::int64_t k = 0; k < s.k; ++k) want += item_of(r, k, 1) * item_of(k, column, 2);
      ASSERT_EQ(got[at], static_cast<float>(want)) << r << ", " << column;
    }
  }
}

TEST_F(CudaPaddedGemm, GivesTheProduct) {
  const Sizes all[] = {{21, 35, 27, 0}, {16, 35, 24, 0}, {21, 32, 27, 0}, {24, 40, 16, 3}};
  for (const Sizes& sizes : all) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        if (sizes.m == 16 && trans_a && !trans_b) continue;  // whose rows have 16 and 24 items
        expect_product<float16>(f16, sizes, trans_a, trans_b);
        expect_product<bfloat16>(bf16, sizes, trans_a, trans_b);
      }
    }
  }
}

TEST_F(CudaPaddedGemm, IsForRowsThatLieOddly) {
  LtGemm g;
  g.dtype = g.out = bf16;
  g.m = g.k = g.n = 1024;
  g.lda = g.ldb = g.ldc = 1024;
  EXPECT_FALSE(padded(g).has_value());
  LtGemm odd = g;
  odd.n = odd.ldb = odd.ldc = 1023;
  ASSERT_TRUE(padded(odd).has_value());
  EXPECT_FALSE(padded(odd)->copies_a);
  EXPECT_TRUE(padded(odd)->copies_b);
  EXPECT_EQ(padded(odd)->gemm.n, 1024);
  for (const auto& change :
       {+[](LtGemm& x) { x.dtype = x.out = f32; }, +[](LtGemm& x) { x.batch = 2; },
        +[](LtGemm& x) { x.function = Activation::relu; }, +[](LtGemm& x) { x.d = &x; },
        +[](LtGemm& x) { x.m = 32; }}) {
    LtGemm other = odd;
    change(other);
    EXPECT_FALSE(padded(other).has_value());
  }
}

}  // namespace
}  // namespace shmap::cuda
