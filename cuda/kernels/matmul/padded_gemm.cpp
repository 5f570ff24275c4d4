#include "cuda/kernels/matmul/padded_gemm.h"

#include <cstddef>

#include "core/base/float_format.h"
#include "core/base/round_up.h"
#include "cuda/kernels/move/copy.h"

namespace shmap::cuda {

namespace {

constexpr std::int64_t kRowBytes = 16;                      // rows begin at multiples of this
constexpr std::int64_t kCopyAlignment = 256;                // the alignment of memory from
                                                            // cudaMalloc
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // the most bytes of all copies

struct Matrix {
  std::int64_t rows, columns, ld;
};
// The matrices as they are stored.
Matrix matrix_a(const LtGemm& g) {
  return g.trans_a ? Matrix{g.k, g.m, g.lda} : Matrix{g.m, g.k, g.lda};
}
Matrix matrix_b(const LtGemm& g) {
  return g.trans_b ? Matrix{g.n, g.k, g.ldb} : Matrix{g.k, g.n, g.ldb};
}

bool in_pieces(const void* data, std::int64_t ld, std::int64_t item) {
  return reinterpret_cast<std::uintptr_t>(data) % kRowBytes == 0 && ld * item % kRowBytes == 0;
}

void copy_matrix(const void* src, std::int64_t src_ld, void* dst, std::int64_t dst_ld,
                 const Matrix& m, std::int64_t item, void* stream) {
  StridedCopy copy;
  copy.rank = 2;
  copy.extent[0] = m.rows;
  copy.extent[1] = m.columns;
  copy.src_stride[0] = src_ld * item;
  copy.dst_stride[0] = dst_ld * item;
  copy.src_stride[1] = copy.dst_stride[1] = item;
  copy.itemsize = static_cast<int>(item);
  copy.src = src;
  copy.dst = dst;
  copy_strided(copy, stream);
}

}  // namespace

std::optional<PaddedGemm> padded(const LtGemm& g, double fewest_flops) {
  const bool plain = g.batch == 1 && g.d == nullptr && g.bias == nullptr &&
                     g.function == Activation::none && is_half(g.dtype);
  if (!plain) return std::nullopt;
  if (2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) <
      fewest_flops)
    return std::nullopt;
  const std::int64_t item = itemsize(g.dtype), out_item = itemsize(g.out), unit = kRowBytes / item;
  PaddedGemm p;
  p.gemm = g;
  LtGemm& to = p.gemm;
  if (g.trans_a) to.m = round_up(g.m, unit);
  if (!g.trans_a || g.trans_b) to.k = round_up(g.k, unit);
  to.n = round_up(g.n, unit);
  const auto copies = [&](const Matrix& from, const Matrix& padded, const void* data) {
    return from.rows != padded.rows || from.columns != padded.columns ||
           !in_pieces(data, from.ld, item);
  };
  const auto copy_bytes = [&](const Matrix& x, std::int64_t of_item) {
    return round_up(x.rows * x.columns * of_item, kCopyAlignment);
  };
  if (copies(matrix_a(g), matrix_a(to), g.a)) {
    p.copies_a = true;
    to.lda = matrix_a(to).columns;
    p.a_bytes = copy_bytes(matrix_a(to), item);
  }
  if (copies(matrix_b(g), matrix_b(to), g.b)) {
    p.copies_b = true;
    to.ldb = matrix_b(to).columns;
    p.b_bytes = copy_bytes(matrix_b(to), item);
  }
  if (to.m != g.m || to.n != g.n || !in_pieces(g.c, g.ldc, out_item)) {
    p.copies_c = true;
    to.ldc = to.n;
    p.c_bytes = copy_bytes({to.m, to.n, to.ldc}, out_item);
  }
  if (p.bytes() == 0 || p.bytes() > kMostBytes) return std::nullopt;
  return p;
}

void copy_operands(const LtGemm& from, PaddedGemm& padded, void* room, void* native_stream) {
  LtGemm& to = padded.gemm;
  auto* const begin = static_cast<std::byte*>(room);
  const std::int64_t item = itemsize(from.dtype);
  // The sum includes the padding beyond k, which therefore has to be zero; results in the padding
  // beyond m and n are not copied back.
  if (to.k != from.k) zero_bytes(begin, padded.a_bytes + padded.b_bytes, native_stream);
  if (padded.copies_a) {
    copy_matrix(from.a, from.lda, begin, to.lda, matrix_a(from), item, native_stream);
    to.a = begin;
  }
  if (padded.copies_b) {
    std::byte* const b = begin + padded.a_bytes;
    copy_matrix(from.b, from.ldb, b, to.ldb, matrix_b(from), item, native_stream);
    to.b = b;
  }
  if (padded.copies_c) to.c = begin + padded.a_bytes + padded.b_bytes;
}

void copy_result(const PaddedGemm& padded, const LtGemm& to, void* native_stream) {
  if (!padded.copies_c) return;
  copy_matrix(padded.gemm.c, padded.gemm.ldc, to.c, to.ldc, {to.m, to.n, to.ldc}, itemsize(to.out),
              native_stream);
}

}  // namespace shmap::cuda
