// The kernels of attention and of its derivatives, compared with loops in double precision: sizes
// that are not multiples of a tile, operands with gaps, biases and masks that repeat, completely
// masked rows, half types.
#include "core/cpu/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/cpu/kernels/elementwise/cast.h"
#include "shmap/half.h"

namespace shmap::cpu {
namespace {

constexpr float kMasked = -0.7f * std::numeric_limits<float>::max();

using Doubles = std::vector<double>;

// A matrix of random numbers in memory of `dtype`, with a gap between rows.
struct Matrix {
  Matrix(std::int64_t n_rows, std::int64_t n_cols, DType type, std::mt19937& engine)
      : rows(n_rows), cols(n_cols), ld(n_cols + 3), dtype(type) {
    const auto size = static_cast<std::size_t>(rows * ld);
    std::vector<float> values(size);
    for (float& x : values) x = std::uniform_real_distribution<float>(-1.5f, 1.5f)(engine);
    bytes.resize(size * 8);
    cast_kernel(f32, dtype)(values.data(), bytes.data(), rows * ld);
  }
  static Matrix like(std::int64_t n_rows, std::int64_t n_cols, DType type) {
    std::mt19937 engine(1);
    return Matrix(n_rows, n_cols, type, engine);
  }
  Doubles numbers() const {
    std::vector<float> wide(static_cast<std::size_t>(rows * ld));
    cast_kernel(dtype, f32)(bytes.data(), wide.data(), rows * ld);
    Doubles out;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        out.push_back(wide[static_cast<std::size_t>(r * ld + c)]);
    return out;
  }
  AttentionMatrix in() const { return {bytes.data(), ld}; }
  AttentionResult out() { return {bytes.data(), ld}; }
  std::int64_t rows, cols, ld;
  DType dtype;
  std::vector<std::byte> bytes;
};

struct Case {
  std::int64_t q_rows, k_rows, depth, v_depth;
  DType dtype = f32;
  bool biased = false, repeats_bias = false, masks = false, repeats_mask = false, causal = false;
  std::int64_t offset = 0;
  float masked = kMasked;
  std::string text() const {
    return std::to_string(q_rows) + "x" + std::to_string(k_rows) + " of " + std::to_string(depth) +
           " and " + std::to_string(v_depth) + " " + short_name(dtype) + (biased ? " bias" : "") +
           (masks ? " mask" : "") + (causal ? " causal " + std::to_string(offset) : "") +
           " masked " + std::to_string(masked);
  }
};

// The random operands of one head, with a reference computation in double precision.
struct Head {
  explicit Head(const Case& the, unsigned seed = 5)
      : c(the),
        engine(seed),
        q(c.q_rows, c.depth, c.dtype, engine),
        k(c.k_rows, c.depth, c.dtype, engine),
        v(c.k_rows, c.v_depth, c.dtype, engine),
        bias(c.q_rows, c.k_rows, c.dtype, engine),
        out(Matrix::like(c.q_rows, c.v_depth, c.dtype)),
        sums(static_cast<std::size_t>(2 * c.q_rows)) {
    const std::int64_t mask_row = c.repeats_mask ? 0 : c.k_rows;
    for (std::int64_t i = 0; i < c.q_rows * c.k_rows; ++i) {
      const std::int64_t row = i / c.k_rows;
      // Every seventh row (row % 7 == 2) has all its columns masked.
      keeps.push_back(engine() % 3 != 0 && (c.repeats_mask || row % 7 != 2) ? 1 : 0);
    }
    head.dtype = head.out_dtype = head.bias_dtype = c.dtype;
    head.q_rows = c.q_rows;
    head.k_rows = c.k_rows;
    head.depth = c.depth;
    head.v_depth = c.v_depth;
    head.q = q.in();
    head.k = k.in();
    head.v = v.in();
    if (c.biased) head.bias = {bias.bytes.data(), c.repeats_bias ? 0 : bias.ld, 1};
    if (c.masks) head.mask = {keeps.data(), mask_row, 1};
    head.scale = 0.375f;
    head.masked = c.masked;
    head.causal = c.causal;
    head.causal_offset = c.offset;
    head.row_block = 32;
    head.column_block = 16;
  }
  bool is_masked(std::int64_t r, std::int64_t col) const {
    const std::int64_t at = (c.repeats_mask ? 0 : r * c.k_rows) + col;
    return (c.masks && keeps[static_cast<std::size_t>(at)] == 0) ||
           (c.causal && col > r + c.offset);
  }

  // Weights of all scores.
  Doubles weights() const {
    const Doubles a = q.numbers(), b = k.numbers(), added = bias.numbers();
    Doubles w(static_cast<std::size_t>(c.q_rows * c.k_rows));
    for (std::int64_t r = 0; r < c.q_rows; ++r) {
      double* const row = w.data() + r * c.k_rows;
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t j = 0; j < c.k_rows; ++j) {
        double s = 0;
        for (std::int64_t d = 0; d < c.depth; ++d)
          s += a[static_cast<std::size_t>(r * c.depth + d)] *
               b[static_cast<std::size_t>(j * c.depth + d)];
        s *= 0.375;
        if (c.biased) s += added[static_cast<std::size_t>((c.repeats_bias ? 0 : r * c.k_rows) + j)];
        row[j] = is_masked(r, j) ? c.masked : s;
        most = std::max(most, row[j]);
      }
      for (std::int64_t j = 0; j < c.k_rows; ++j) sum += row[j] = std::exp(row[j] - most);
      for (std::int64_t j = 0; j < c.k_rows; ++j) row[j] /= sum;
    }
    return w;
  }

  void run() {
    // Runs two shares of the rows, as threads would.
    const std::int64_t middle = c.q_rows > 32 ? 32 : 0;
    attention(head, 0, middle, out.out(), sums.data());
    attention(head, middle, c.q_rows, out.out(), sums.data());
  }

  Case c;
  std::mt19937 engine;
  Matrix q, k, v, bias, out;
  std::vector<char> keeps;
  std::vector<float> sums;
  AttentionHead head;
};

double tolerance(DType dtype) { return dtype == f32 ? 2e-5 : dtype == f16 ? 8e-3 : 6e-2; }

void expect_near(const char* what, const Matrix& got, const Doubles& want, double tolerance) {
  const Doubles numbers = got.numbers();
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(numbers[i])) continue;
    ASSERT_NEAR(numbers[i], want[i], tolerance * (1 + std::abs(want[i]))) << what << " " << i;
  }
}

void expect_same(const Matrix& got, const Matrix& want) {
  const Doubles a = got.numbers(), b = want.numbers();
  for (std::size_t i = 0; i < b.size(); ++i)
    ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << i;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {f32, bf16, f16}) {
    all.push_back({1, 1, 1, 1, dtype});
    all.push_back({1, 50, 8, 5, dtype});
    all.push_back({75, 50, 8, 24, dtype});
    all.push_back({75, 50, 8, 24, dtype, true, false, true});
    all.push_back({75, 50, 7, 3, dtype, true, true, true, true});
    all.push_back({64, 64, 16, 16, dtype, false, false, false, false, true});
    all.push_back({50, 75, 16, 16, dtype, false, false, true, false, true});
    all.push_back({50, 75, 16, 16, dtype, false, false, false, false, true, 20});
    // Rows before the first column that any of them attends to.
    all.push_back({75, 50, 16, 16, dtype, false, false, false, false, true, -40});
  }
  // Masked scores that count beside the others, or are larger than all others of a row; rows that
  // are -infinity throughout, which have no softmax.
  for (const float masked : {-30.f, -1.f, 0.f, 2.f, -std::numeric_limits<float>::infinity()}) {
    all.push_back({75, 50, 8, 24, f32, true, false, true, false, false, 0, masked});
    all.push_back({75, 50, 8, 24, f32, false, false, true, true, true, 20, masked});
    all.push_back({75, 50, 8, 24, f32, false, false, false, false, true, 0, masked});
    all.push_back({75, 50, 8, 24, f32, false, false, false, false, true, -40, masked});
  }
  return all;
}

TEST(CpuAttention, Forward) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.text());
    Head h(c);
    h.run();
    const Doubles w = h.weights(), v = h.v.numbers();
    Doubles want;
    for (std::int64_t r = 0; r < c.q_rows; ++r)
      for (std::int64_t d = 0; d < c.v_depth; ++d) {
        double sum = 0;
        for (std::int64_t j = 0; j < c.k_rows; ++j)
          sum += w[static_cast<std::size_t>(r * c.k_rows + j)] *
                 v[static_cast<std::size_t>(j * c.v_depth + d)];
        want.push_back(sum);
      }
    expect_near("out", h.out, want, tolerance(c.dtype));
  }
}

// Adds the cotangents of one head.
void add_cotangents(const Head& h, const Matrix& cotangent, Doubles* q_bar, Doubles* k_bar,
                    Doubles* v_bar) {
  const Case& c = h.c;
  const Doubles w = h.weights(), q = h.q.numbers(), k = h.k.numbers(), v = h.v.numbers(),
                ct = cotangent.numbers();
  for (std::int64_t r = 0; r < c.q_rows; ++r) {
    Doubles w_bar(static_cast<std::size_t>(c.k_rows));
    double mean = 0;
    for (std::int64_t j = 0; j < c.k_rows; ++j) {
      const double weight = w[static_cast<std::size_t>(r * c.k_rows + j)];
      for (std::int64_t d = 0; d < c.v_depth; ++d) {
        const double x = ct[static_cast<std::size_t>(r * c.v_depth + d)];
        w_bar[static_cast<std::size_t>(j)] += x * v[static_cast<std::size_t>(j * c.v_depth + d)];
        (*v_bar)[static_cast<std::size_t>(j * c.v_depth + d)] += weight * x;
      }
      mean += weight * w_bar[static_cast<std::size_t>(j)];
    }
    for (std::int64_t j = 0; j < c.k_rows; ++j) {
      if (h.is_masked(r, j)) continue;
      const double s_bar = w[static_cast<std::size_t>(r * c.k_rows + j)] *
                           (w_bar[static_cast<std::size_t>(j)] - mean) * 0.375;
      for (std::int64_t d = 0; d < c.depth; ++d) {
        const auto at_q = static_cast<std::size_t>(r * c.depth + d),
                   at_k = static_cast<std::size_t>(j * c.depth + d);
        (*q_bar)[at_q] += s_bar * k[at_k];
        (*k_bar)[at_k] += s_bar * q[at_q];
      }
    }
  }
}

// Two heads that share k and v. One pass gives the same bits as separate passes over columns and
// over rows.
TEST(CpuAttention, Backward) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.text());
    Head first(c, 5), second(c, 6);
    second.k = first.k;
    second.v = first.v;
    second.head.k = second.k.in();
    second.head.v = second.v.in();
    std::mt19937 engine(9);
    const auto size = [](std::int64_t a, std::int64_t b) {
      return static_cast<std::size_t>(a * b);
    };
    Doubles q_bars[2], k_bar(size(c.k_rows, c.depth)), v_bar(size(c.k_rows, c.v_depth));
    std::vector<Matrix> cotangents, one, two;  // of q: one pass, two passes
    std::vector<AttentionGradHead> heads;
    for (int i = 0; i < 2; ++i) {
      cotangents.emplace_back(c.q_rows, c.v_depth, c.dtype, engine);
      one.push_back(Matrix::like(c.q_rows, c.depth, c.dtype));
      two.push_back(Matrix::like(c.q_rows, c.depth, c.dtype));
    }
    for (int i = 0; i < 2; ++i) {
      const auto at = static_cast<std::size_t>(i);
      Head& h = i == 0 ? first : second;
      h.run();
      q_bars[i].resize(size(c.q_rows, c.depth));
      add_cotangents(h, cotangents[at], &q_bars[i], &k_bar, &v_bar);
      heads.push_back({h.head, h.out.in(), cotangents[at].in(), h.sums.data(), one[at].out()});
    }
    Matrix got_k = Matrix::like(c.k_rows, c.depth, c.dtype),
           got_v = Matrix::like(c.k_rows, c.v_depth, c.dtype), other_k = got_k, other_v = got_v;
    attention_grad(heads, got_k.out(), got_v.out());
    const double allowed = 3 * tolerance(c.dtype);
    expect_near("k", got_k, k_bar, allowed);
    expect_near("v", got_v, v_bar, allowed);
    for (std::size_t i = 0; i < 2; ++i) expect_near("q", one[i], q_bars[i], allowed);

    const std::int64_t column = c.k_rows > 16 ? 16 : 0, row = c.q_rows > 32 ? 32 : 0;
    attention_grad_columns(heads, column, c.k_rows, other_k.out(), other_v.out());
    attention_grad_columns(heads, 0, column, other_k.out(), other_v.out());
    for (std::size_t i = 0; i < 2; ++i) {
      heads[i].q_bar = two[i].out();
      attention_grad_rows(heads[i], row, c.q_rows);
      attention_grad_rows(heads[i], 0, row);
      expect_same(one[i], two[i]);
    }
    expect_same(got_k, other_k);
    expect_same(got_v, other_v);
  }
}

// Every combination of tangents.
TEST(CpuAttention, Tangents) {
  for (const Case& c : cases()) {
    for (int which = 1; which < 8; ++which) {
      SCOPED_TRACE(c.text() + ", tangents " + std::to_string(which));
      Head h(c);
      h.run();
      std::mt19937 engine(11);
      const Matrix moved[] = {Matrix(c.q_rows, c.depth, c.dtype, engine),
                              Matrix(c.k_rows, c.depth, c.dtype, engine),
                              Matrix(c.k_rows, c.v_depth, c.dtype, engine)};
      AttentionTangentHead t{h.head, h.out.in(), {}, {}, {}, h.sums.data()};
      Doubles dots[3];
      AttentionMatrix* const to[] = {&t.q_dot, &t.k_dot, &t.v_dot};
      for (int i = 0; i < 3; ++i) {
        dots[i] = moved[i].numbers();
        if (which & (1 << i))
          *to[i] = moved[i].in();
        else
          dots[i].assign(dots[i].size(), 0);
      }
      const Doubles w = h.weights(), q = h.q.numbers(), k = h.k.numbers(), v = h.v.numbers();
      Doubles want(static_cast<std::size_t>(c.q_rows * c.v_depth));
      for (std::int64_t r = 0; r < c.q_rows; ++r) {
        Doubles s_dot(static_cast<std::size_t>(c.k_rows));
        double mean = 0;
        for (std::int64_t j = 0; j < c.k_rows; ++j) {
          if (h.is_masked(r, j)) continue;
          double& s = s_dot[static_cast<std::size_t>(j)];
          for (std::int64_t d = 0; d < c.depth; ++d) {
            const auto at_q = static_cast<std::size_t>(r * c.depth + d),
                       at_k = static_cast<std::size_t>(j * c.depth + d);
            s += 0.375 * (dots[0][at_q] * k[at_k] + q[at_q] * dots[1][at_k]);
          }
          mean += w[static_cast<std::size_t>(r * c.k_rows + j)] * s;
        }
        for (std::int64_t j = 0; j < c.k_rows; ++j) {
          const double weight = w[static_cast<std::size_t>(r * c.k_rows + j)];
          const double w_dot = weight * (s_dot[static_cast<std::size_t>(j)] - mean);
          for (std::int64_t d = 0; d < c.v_depth; ++d) {
            const auto at = static_cast<std::size_t>(j * c.v_depth + d);
            want[static_cast<std::size_t>(r * c.v_depth + d)] +=
                w_dot * v[at] + weight * dots[2][at];
          }
        }
      }
      Matrix got = Matrix::like(c.q_rows, c.v_depth, c.dtype);
      const std::int64_t middle = c.q_rows > 32 ? 32 : 0;
      attention_tangent(t, middle, c.q_rows, got.out());
      attention_tangent(t, 0, middle, got.out());
      expect_near("tangent", got, want, 3 * tolerance(c.dtype));
    }
  }
}

}  // namespace
}  // namespace shmap::cpu
