#include "core/cpu/kernels/attention/attention_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "core/cpu/kernels/elementwise/vector_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/attention/attention_tiles.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#undef SHMAP_MATH_F64
#define SHMAP_MATH_F64 0
#include "core/cpu/kernels/elementwise/vector_math-inl.h"
//
#include "core/cpu/kernels/elementwise/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// The number to subtract from a row's scores; 0 where all scores are -infinity, so that the
// differences remain -infinity.
float shift_of(float most) { return most == kNothing ? 0.f : most; }

#if SHMAP_VECTOR_MATH

// e^x for x that is at most 0 up to rounding: exp_op without the cases of large numbers.
HWY_INLINE V power(V x) {
  const D d;
  const Reduced reduced = reduce_exponent(hn::Max(hn::Set(d, kExpLeast), x), kExpTerms);
  return scaled(reduced.exp(), reduced.n);
}
HWY_INLINE float sum_of(V x) { return hn::GetLane(hn::SumOfLanes(D{}, x)); }
HWY_INLINE float most_of(V x) { return hn::GetLane(hn::MaxOfLanes(D{}, x)); }

struct Soften {
  static constexpr std::int64_t kStep = static_cast<std::int64_t>(hn::MaxLanes(D{}));

  static float largest(const float* row, std::int64_t cols) {
    V a = hn::Set(D{}, kNothing), b = a;
    std::int64_t c = 0;
    for (; c + 2 * kStep <= cols; c += 2 * kStep) {
      a = hn::Max(a, hn::Load(D{}, row + c));
      b = hn::Max(b, hn::Load(D{}, row + c + kStep));
    }
    for (; c < cols; c += kStep) a = hn::Max(a, hn::Load(D{}, row + c));
    return most_of(hn::Max(a, b));
  }
  static float powers(float* row, std::int64_t cols, float scale, float shift) {
    const V by = hn::Set(D{}, scale), less = hn::Set(D{}, shift);
    V a = hn::Zero(D{}), b = a;
    std::int64_t c = 0;
    for (; c + 2 * kStep <= cols; c += 2 * kStep) {
      const V x = power(hn::MulSub(hn::Load(D{}, row + c), by, less));
      const V y = power(hn::MulSub(hn::Load(D{}, row + c + kStep), by, less));
      hn::Store(x, D{}, row + c);
      hn::Store(y, D{}, row + c + kStep);
      a = hn::Add(a, x);
      b = hn::Add(b, y);
    }
    for (; c < cols; c += kStep) {
      const V x = power(hn::MulSub(hn::Load(D{}, row + c), by, less));
      hn::Store(x, D{}, row + c);
      a = hn::Add(a, x);
    }
    return sum_of(hn::Add(a, b));
  }
};

#else

struct Soften {
  static float largest(const float* row, std::int64_t cols) {
    float most = kNothing;
    for (std::int64_t c = 0; c < cols; ++c) most = std::max(most, row[c]);
    return most;
  }
  static float powers(float* row, std::int64_t cols, float scale, float shift) {
    float sum = 0;
    for (std::int64_t c = 0; c < cols; ++c) sum += row[c] = std::exp(row[c] * scale - shift);
    return sum;
  }
};

#endif

bool soften(float* scores, std::int64_t ld, std::int64_t rows, std::int64_t cols, float scale,
            float* most, float* sum, float* kept) {
  const std::int64_t whole = (cols + kTileLanes - 1) / kTileLanes * kTileLanes;
  bool changes = false;
  for (std::int64_t r = 0; r < rows; ++r, scores += ld) {
    std::fill(scores + cols, scores + whole, kNothing);
    const float before = most[r];
    // The scale keeps the sign of -infinity.
    most[r] = std::max(before, Soften::largest(scores, whole) * scale);
    const float shift = shift_of(most[r]);
    kept[r] = before == most[r] ? 1.f : std::exp(before - shift);
    sum[r] = sum[r] * kept[r] + Soften::powers(scores, whole, scale, shift);
    changes |= kept[r] != 1.f;
  }
  return changes;
}

void unsoften(float* scores, float* gradients, std::int64_t ld, std::int64_t rows,
              std::int64_t cols, float scale, const TileColumns& by) {
  for (std::int64_t r = 0; r < rows; ++r, scores += ld, gradients += ld) {
#if SHMAP_VECTOR_MATH
    const V scales = hn::Set(D{}, scale), factor = hn::Set(D{}, by.factor);
    for (std::int64_t c = 0; c < cols; c += Soften::kStep) {
      const V s = hn::MulSub(hn::Load(D{}, scores + c), scales, hn::Load(D{}, by.most + c));
      const V w = hn::Mul(power(s), hn::Load(D{}, by.share + c));
      const V g = hn::Sub(hn::Load(D{}, gradients + c), hn::Load(D{}, by.mean + c));
      hn::Store(w, D{}, scores + c);
      hn::Store(hn::Mul(hn::Mul(w, g), factor), D{}, gradients + c);
    }
#else
    for (std::int64_t c = 0; c < cols; ++c) {
      scores[c] = std::exp(scores[c] * scale - by.most[c]) * by.share[c];
      gradients[c] = scores[c] * (gradients[c] - by.mean[c]) * by.factor;
    }
#endif
  }
}

void tangents(float* scores, float* t, std::int64_t ld, std::int64_t rows, std::int64_t cols,
              float scale, const TileRows& by) {
  for (std::int64_t r = 0; r < rows; ++r, scores += ld, t += ld) {
    float sum = 0;
    for (std::int64_t c = 0; c < cols; ++c) {
      scores[c] = std::exp(scores[c] * scale - by.most[r]) * by.share[r];
      sum += t[c] = scores[c] * t[c] * by.factor;
    }
    by.common[r] += sum;
  }
}

void scale_rows(float* values, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                const float* factor) {
  for (std::int64_t r = 0; r < rows; ++r, values += ld) {
    const float f = factor[r];
    for (std::int64_t c = 0; c < cols; ++c) values[c] *= f;
  }
}

void multiply_rows(const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                   std::int64_t rows, std::int64_t cols, float* out) {
  constexpr std::int64_t kAbreast = 16;
  for (std::int64_t r = 0; r < rows; ++r, a += lda, b += ldb) {
    float sums[kAbreast] = {};
    std::int64_t c = 0;
    for (; c + kAbreast <= cols; c += kAbreast)
      for (std::int64_t i = 0; i < kAbreast; ++i) sums[i] += a[c + i] * b[c + i];
    for (; c < cols; ++c) sums[0] += a[c] * b[c];
    for (std::int64_t half = kAbreast / 2; half > 0; half /= 2)
      for (std::int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    out[r] = sums[0];
  }
}

const AttentionTiles* find_tiles() {
  static constexpr AttentionTiles tiles = {soften, unsoften, tangents, scale_rows, multiply_rows};
  return &tiles;
}

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_tiles);
const AttentionTiles& attention_tiles() { return *SHMAP_BEST(find_tiles)(); }
}  // namespace shmap::cpu
#endif
