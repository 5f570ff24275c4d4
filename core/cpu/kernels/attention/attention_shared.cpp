#include "core/cpu/kernels/attention/attention_shared.h"

#include <cstddef>

#include "core/base/float_format.h"
#include "core/cpu/kernels/elementwise/cast.h"
#include "core/cpu/kernels/matmul/gemm.h"
#include "shmap/half.h"

namespace shmap::cpu {

namespace {

// Measured on tiles of attention: the AVX-512 kernel is faster than the libraries unless it has to
// transpose a.
bool prefers_avx512(const TileProduct& form) {
  static const bool has = gemm_engine_available(GemmEngine::avx512, f32);
  return has && !form.trans_a;
}

}  // namespace

FloatRows float_rows(const AttentionMatrix& m, DType dtype, std::int64_t begin, std::int64_t rows,
                     std::int64_t cols, GemmScratch& scratch) {
  const auto* const from = static_cast<const std::byte*>(m.data) + begin * m.row * itemsize(dtype);
  if (dtype == f32) return {reinterpret_cast<const float*>(from), m.row};
  const CastFn cast = cast_kernel(dtype, f32);
  const std::int64_t ld = whole_lanes(cols);
  float* const to = floats(scratch, rows * ld);
  for (std::int64_t r = 0; r < rows; ++r)
    cast(from + r * m.row * itemsize(dtype), to + r * ld, cols);
  return {to, ld};
}

void put_rows(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t cols,
              const AttentionResult& to, std::int64_t begin, DType dtype) {
  const CastFn cast = cast_kernel(f32, dtype);
  auto* const data = static_cast<std::byte*>(to.data);
  for (std::int64_t r = 0; r < rows; ++r)
    cast(from + r * ld, data + (begin + r) * to.row * itemsize(dtype), cols);
}

void multiply(TileProduct form, std::int64_t m, std::int64_t n, std::int64_t k, FloatRows a,
              FloatRows b, float* c, std::int64_t ldc, bool add) {
  Gemm g;
  g.trans_a = form.trans_a;
  g.trans_b = form.trans_b;
  g.m = m;
  g.n = n;
  g.k = k;
  g.a = a.data;
  g.lda = a.ld;
  g.b = b.data;
  g.ldb = b.ld;
  g.c = c;
  g.ldc = ldc;
  g.accumulate = add;
  constexpr std::int64_t few = 16;
  if (m >= few && n >= few && prefers_avx512(form)) return gemm_with(GemmEngine::avx512, g);
  gemm(g);
}

std::int64_t live_columns(const AttentionHead& head, std::int64_t row, std::int64_t rows) {
  if (!head.causal) return head.k_rows;
  return std::clamp<std::int64_t>(row + rows + head.causal_offset, 0, head.k_rows);
}

namespace {

// A tile as an array of contiguous lines, which are rows of q or rows of k.
struct Lines {
  std::int64_t count, length;
  float* data;
  std::int64_t ld;
};
struct LineOperand {
  const void* data;  // element for the tile's first score
  std::int64_t line, item;
};

template <class T>
void scale_and_add(const Lines& lines, float scale, const LineOperand& bias) {
  for (std::int64_t l = 0; l < lines.count; ++l) {
    float* const s = lines.data + l * lines.ld;
    const T* const b = static_cast<const T*>(bias.data) + l * bias.line;
    if (bias.item == 1) {
      for (std::int64_t i = 0; i < lines.length; ++i)
        s[i] = s[i] * scale + static_cast<float>(b[i]);
    } else {
      for (std::int64_t i = 0; i < lines.length; ++i)
        s[i] = s[i] * scale + static_cast<float>(b[i * bias.item]);
    }
  }
}

void only_scale(const Lines& lines, float scale) {
  for (std::int64_t l = 0; l < lines.count; ++l)
    for (std::int64_t i = 0; i < lines.length; ++i) lines.data[l * lines.ld + i] *= scale;
}

void select(const Lines& lines, float value, const LineOperand& mask) {
  for (std::int64_t l = 0; l < lines.count; ++l) {
    float* const s = lines.data + l * lines.ld;
    const bool* const keep = static_cast<const bool*>(mask.data) + l * mask.line;
    for (std::int64_t i = 0; i < lines.length; ++i) s[i] = keep[i * mask.item] ? s[i] : value;
  }
}

Lines lines_of(const ScoreTile& t, bool by_columns, float* data, std::int64_t ld) {
  return {by_columns ? t.columns : t.rows, by_columns ? t.rows : t.columns, data, ld};
}
LineOperand operand_of(const AttentionScoreOperand& x, DType dtype, const ScoreTile& t,
                       bool by_columns) {
  const auto* const first = static_cast<const std::byte*>(x.data) +
                            (t.row * x.row + t.column * x.column) * itemsize(dtype);
  return {first, by_columns ? x.column : x.row, by_columns ? x.row : x.column};
}

// True if the causal mask masks scores of the tile.
bool crosses(const AttentionHead& head, const ScoreTile& t) {
  return head.causal && t.column + t.columns - 1 > t.row + head.causal_offset;
}

// exp of a number below this is 0.
constexpr float kGone = -104;

}  // namespace

bool masked_counts(const AttentionHead& head, const float* most, std::int64_t rows) {
  if (!head.causal && head.mask.data == nullptr) return false;
  return std::any_of(most, most + rows, [&](float m) { return !(head.masked - m < kGone); });
}

void put_masked(const AttentionHead& head, const ScoreTile& t, bool by_columns, float value,
                float* to, std::int64_t ld) {
  const Lines lines = lines_of(t, by_columns, to, ld);
  if (head.mask.data != nullptr) select(lines, value, operand_of(head.mask, bool_, t, by_columns));
  if (!crosses(head, t)) return;
  for (std::int64_t l = 0; l < lines.count; ++l) {
    float* const s = to + l * ld;
    if (by_columns) {  // rows before the first row that attends to this column
      const std::int64_t first = t.column + l - head.causal_offset - t.row;
      std::fill(s, s + std::clamp<std::int64_t>(first, 0, t.rows), value);
    } else {
      const std::int64_t live = t.row + l + head.causal_offset + 1 - t.column;
      std::fill(s + std::clamp<std::int64_t>(live, 0, t.columns), s + t.columns, value);
    }
  }
}

float finish_scores(const AttentionHead& head, const ScoreTile& t, bool by_columns, float* scores,
                    std::int64_t ld) {
  if (!crosses(head, t) && head.bias.data == nullptr && head.mask.data == nullptr)
    return head.scale;
  const Lines lines = lines_of(t, by_columns, scores, ld);
  if (head.bias.data == nullptr) {
    only_scale(lines, head.scale);
  } else {
    const LineOperand bias = operand_of(head.bias, head.bias_dtype, t, by_columns);
    if (head.bias_dtype == f32) scale_and_add<float>(lines, head.scale, bias);
    if (head.bias_dtype == bf16) scale_and_add<bfloat16>(lines, head.scale, bias);
    if (head.bias_dtype == f16) scale_and_add<float16>(lines, head.scale, bias);
  }
  put_masked(head, t, by_columns, head.masked, scores, ld);
  return 1;
}

bool attention_takes(DType dtype) { return dtype == f32 || is_half(dtype); }

void prepare_attention() {
  Gemm g;
  g.m = g.n = g.k = 256;
  (void)gemm_engine(g);
  g.m = g.n = g.k = 16;
  (void)gemm_engine(g);
}

}  // namespace shmap::cpu
