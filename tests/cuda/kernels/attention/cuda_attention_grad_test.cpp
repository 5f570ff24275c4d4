// The derivatives of attention on GPUs, against plain loops in double precision.
#include "cuda/kernels/attention/attention_grad.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "shmap/error.h"
#include "tests/cuda/kernels/attention/attention_problem.h"

namespace shmap::cuda {
namespace {

using testing::DeviceBytes;
using testing::floats_from;
using testing::items_from;
using testing::on_stream;
using testing::random_floats;
using testing::rounded;
using Problem = testing::AttentionProblem;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;

class CudaAttentionGrad : public testing::OnGpu {};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr DType kDTypes[] = {f32, f16, bf16};

double get(const Floats& values, std::int64_t i) {
  return static_cast<double>(values[static_cast<std::size_t>(i)]);
}
double& at(Doubles& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }

// The tangents and the cotangent for a problem, in the layout of its operands and its result.
struct Beside {
  Floats q_dot, k_dot, v_dot, cotangent;

  explicit Beside(const Problem& p)
      : q_dot(like(p.a.dtype, p.q, 11)),
        k_dot(like(p.a.dtype, p.k, 12)),
        v_dot(like(p.a.dtype, p.v, 13)),
        cotangent(rounded(p.a.out_dtype, random_floats(p.out_items, 1.0f, 14))) {}

 private:
  static Floats like(DType dtype, const Floats& x, unsigned seed) {
    return rounded(dtype, random_floats(static_cast<std::int64_t>(x.size()), 1.0f, seed));
  }
};

// The derivatives in the layout of the operands and the result.
struct Derivatives {
  Doubles q_bar, k_bar, v_bar, out_dot;
};

Derivatives expected(const Problem& p, const Beside& beside) {
  const Attention& a = p.a;
  const auto scale = static_cast<double>(a.scale);
  Derivatives out{Doubles(p.q.size()), Doubles(p.k.size()), Doubles(p.v.size()),
                  Doubles(static_cast<std::size_t>(p.out_items))};
  for (const Problem::Head& h : p.heads()) {
    for (std::int64_t r = 0; r < a.q_rows; ++r) {
      std::vector<Problem::Score> scores;
      double greatest = -kInf, sum = 0;
      for (std::int64_t c = 0; c < a.k_rows; ++c) {
        scores.push_back(p.score(h, r, c));
        greatest = std::max(greatest, scores.back().value);
      }
      for (const auto& s : scores) sum += std::exp(s.value - greatest);
      // A weight's gradient and its mean; a score's tangent and its mean.
      Doubles weights, gradients, moves;
      double mean = 0, common = 0;
      for (std::int64_t c = 0; c < a.k_rows; ++c) {
        const auto& s = scores[static_cast<std::size_t>(c)];
        weights.push_back(std::exp(s.value - greatest) / sum);
        double gradient = 0, move = 0;
        for (std::int64_t d = 0; d < a.v_depth; ++d)
          gradient += get(beside.cotangent, p.out_at(h, r) + d) * get(p.v, p.at(a.v, h, c) + d);
        for (std::int64_t d = 0; d < a.depth && !s.masked; ++d) {
          move += get(beside.q_dot, p.at(a.q, h, r) + d) * get(p.k, p.at(a.k, h, c) + d) +
                  get(p.q, p.at(a.q, h, r) + d) * get(beside.k_dot, p.at(a.k, h, c) + d);
        }
        gradients.push_back(gradient);
        moves.push_back(move * scale);
        mean += weights.back() * gradient;
        common += weights.back() * moves.back();
      }
      for (std::int64_t c = 0; c < a.k_rows; ++c) {
        const auto i = static_cast<std::size_t>(c);
        const double slope = scores[i].masked ? 0 : weights[i] * (gradients[i] - mean) * scale;
        for (std::int64_t d = 0; d < a.depth; ++d) {
          at(out.q_bar, p.at(a.q, h, r) + d) += slope * get(p.k, p.at(a.k, h, c) + d);
          at(out.k_bar, p.at(a.k, h, c) + d) += slope * get(p.q, p.at(a.q, h, r) + d);
        }
        for (std::int64_t d = 0; d < a.v_depth; ++d) {
          at(out.v_bar, p.at(a.v, h, c) + d) +=
              weights[i] * get(beside.cotangent, p.out_at(h, r) + d);
          at(out.out_dot, p.out_at(h, r) + d) +=
              weights[i] * ((moves[i] - common) * get(p.v, p.at(a.v, h, c) + d) +
                            get(beside.v_dot, p.at(a.v, h, c) + d));
        }
      }
    }
  }
  return out;
}

struct Computed {
  Floats q_bar, k_bar, v_bar, out_dot;
};

// adds: the gradients of k and v are added to ones.
Computed computed(const Problem& p, const Beside& beside, bool adds = false) {
  Attention a = p.a;
  const auto upload = [&](DType dtype, const Floats& values) {
    return DeviceBytes(items_from(dtype, values), p.offset * itemsize(dtype));
  };
  const DeviceBytes q = upload(a.dtype, p.q), k = upload(a.dtype, p.k), v = upload(a.dtype, p.v),
                    bias = upload(a.bias_dtype, p.bias), mask(p.mask),
                    out(p.out_items * itemsize(a.out_dtype), p.offset * itemsize(a.out_dtype)),
                    sums(a.sums_outer * a.outer * 4), scratch(attention_grad_scratch(a)),
                    cotangent = upload(a.out_dtype, beside.cotangent);
  a.q.data = q.data();
  a.k.data = k.data();
  a.v.data = v.data();
  a.out = out.data();
  a.sums = static_cast<float*>(sums.data());
  if (!p.bias.empty()) a.bias.data = bias.data();
  if (!p.mask.empty()) a.mask.data = mask.data();
  const auto like = [](const AttentionOperand& x, const DeviceBytes& to) {
    return AttentionGradient{to.data(), x.outer, x.inner, x.row, x.member};
  };
  const auto ones = [](const Floats& x) { return Floats(x.size(), 1.0f); };
  const DeviceBytes q_bar = upload(a.dtype, ones(p.q)), k_bar = upload(a.dtype, ones(p.k)),
                    v_bar = upload(a.dtype, ones(p.v)),
                    out_dot(p.out_items * itemsize(a.out_dtype));
  AttentionGrad g;
  g.a = a;
  const AttentionOperand result{a.out, a.out_outer, a.out_inner, a.out_row, a.out_member};
  g.cotangent = result;
  g.cotangent.data = cotangent.data();
  g.q_bar = like(a.q, q_bar);
  g.k_bar = like(a.k, k_bar);
  g.v_bar = like(a.v, v_bar);
  g.adds = adds;
  g.scratch = scratch.data();
  const DeviceBytes q_dot = upload(a.dtype, beside.q_dot), k_dot = upload(a.dtype, beside.k_dot),
                    v_dot = upload(a.dtype, beside.v_dot);
  AttentionTangent t;
  t.a = a;
  t.out_dot = like(result, out_dot);
  const auto moved = [](AttentionOperand x, const Floats& values, const DeviceBytes& from) {
    x.data = values.empty() ? nullptr : from.data();
    return x;
  };
  t.q_dot = moved(a.q, beside.q_dot, q_dot);
  t.k_dot = moved(a.k, beside.k_dot, k_dot);
  t.v_dot = moved(a.v, beside.v_dot, v_dot);
  on_stream([&](void* stream) {
    attention(a, stream);
    attention_grad(g, stream);
    attention_tangent(t, stream);
  });
  scratch.read<std::uint8_t>();  // nothing beside it
  const auto read = [](DType dtype, const DeviceBytes& x) {
    return floats_from(dtype, x.read<std::uint8_t>());
  };
  return {read(a.dtype, q_bar), read(a.dtype, k_bar), read(a.dtype, v_bar),
          read(a.out_dtype, out_dot)};
}

// The tolerance for sums up to about 1, with q and k up to 1.
double tolerance(const Problem& p) {
  return p.a.dtype == f32 ? 2e-6 * p.scores : p.a.dtype == f16 ? 4e-3 : 3e-2;
}

void expect_near(const char* what, const Problem& p, const Floats& got, const Doubles& want,
                 double more = 0) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double most = 1;
  for (double x : want)
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  int wrong = 0;
  for (std::size_t i = 0; i < want.size() && wrong < 3; ++i) {
    const double wanted = want[i] + more;
    if (std::isnan(wanted) ? std::isnan(got[i])
                           : std::abs(got[i] - wanted) <= tolerance(p) * (most + more))
      continue;
    ++wrong;
    ADD_FAILURE() << what << "[" << i << "]: " << got[i] << ", want " << wanted;
  }
}

// Excludes the gaps between rows from the comparison.
Doubles with_gaps(const Floats& got, Doubles want, std::int64_t depth, std::int64_t gap) {
  for (std::size_t i = 0; i < want.size(); ++i)
    if (static_cast<std::int64_t>(i) % (depth + gap) >= depth)
      want[i] = static_cast<double>(got[i]);
  return want;
}

void expect_derivatives(const Problem& p, const std::string& what) {
  SCOPED_TRACE(what + ", " + to_string(p.a.dtype));
  const Beside beside(p);
  const Computed got = computed(p, beside);
  const Derivatives want = expected(p, beside);
  const auto check = [&](const char* name, const Floats& a, const Doubles& b, std::int64_t depth) {
    expect_near(name, p, a, with_gaps(a, b, depth, p.gap));
  };
  check("q_bar", got.q_bar, want.q_bar, p.a.depth);
  check("k_bar", got.k_bar, want.k_bar, p.a.depth);
  check("v_bar", got.v_bar, want.v_bar, p.a.v_depth);
  check("out_dot", got.out_dot, want.out_dot, p.a.v_depth);
}

TEST_F(CudaAttentionGrad, MatchesLoops) {
  for (const DType dtype : kDTypes) {
    expect_derivatives(Problem(dtype, 130, 140, 64).fill(), "more rows than a block");
    Problem wide(dtype, 70, 90, 128);
    wide.a.inner = 1;
    expect_derivatives(wide.fill(), "depth 128");
    Problem widest(dtype, 40, 75, 256);
    widest.a.outer = widest.a.inner = 1;
    expect_derivatives(widest.fill(), "depth 256");
  }
}

TEST_F(CudaAttentionGrad, TakesAnyExtents) {
  for (const DType dtype : kDTypes) {
    expect_derivatives(Problem(dtype, 1, 1, 8).fill(), "one by one");
    expect_derivatives(Problem(dtype, 1, 100, 64).fill(), "one query");
    expect_derivatives(Problem(dtype, 100, 1, 16).fill(), "one key");
    expect_derivatives(Problem(dtype, 5, 63, 7).fill(), "depth 7");
    Problem other(dtype, 20, 70, 24);
    other.a.v_depth = 80;
    expect_derivatives(other.fill(), "values of depth 80");
    Problem narrow(dtype, 20, 70, 96);
    narrow.a.v_depth = 5;
    expect_derivatives(narrow.fill(), "values of depth 5");
  }
}

TEST_F(CudaAttentionGrad, ReadsWhatLiesOtherwise) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 33, 70, 32);
    p.rows_before_inner = true;
    expect_derivatives(p.fill(), "[outer, rows, inner, depth]");
    p.gap = 8;
    expect_derivatives(p.fill(), "gaps between rows");
    p.gap = 3;
    expect_derivatives(p.fill(), "rows at odd addresses");
    p.gap = 0;
    p.offset = 1;
    expect_derivatives(p.fill(), "one item behind an aligned address");
  }
}

TEST_F(CudaAttentionGrad, OfResultsInF32) {
  for (const DType dtype : {f16, bf16}) {
    Problem p(dtype, 33, 70, 32);
    p.a.out_dtype = f32;
    p.a.v_depth = 33;
    expect_derivatives(p.fill(), "f32 from halves");
  }
}

TEST_F(CudaAttentionGrad, HeadsOfQThatShareOneOfK) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 40, 70, 32);
    p.a.shared = 3;
    expect_derivatives(p.fill(), "shared by 3");
    p.a.causal = p.rows_before_inner = true;
    p.a.masked = kLowest;
    expect_derivatives(p.fill(), "and causal");
    expect_derivatives(p.with_bias(true, true, true, true).with_mask(true, true, false, true),
                       "and with a bias and a mask");
  }
}

TEST_F(CudaAttentionGrad, BiasesAndMasks) {
  for (const DType dtype : kDTypes) {
    for (const float masked : {kLowest, -1e9f, -2.0f}) {
      Problem p(dtype, 35, 70, 32);
      p.a.bias_dtype = masked == -1e9f ? f32 : dtype;
      p.a.masked = masked;
      p.fill().with_mask(true, false, true, true);
      // Row 0 is masked as a whole.
      for (std::size_t c = 0; c < 70; ++c) p.mask[c] = 0;
      expect_derivatives(p, "masked by " + std::to_string(masked));
      expect_derivatives(p.with_bias(false, true, true, true), "and biased");
    }
  }
}

TEST_F(CudaAttentionGrad, Causal) {
  for (const DType dtype : kDTypes) {
    for (const float masked : {-kInf, kLowest, -1e9f, -2.0f}) {
      for (const std::int64_t offset : {std::int64_t{0}, std::int64_t{60}, std::int64_t{-50},
                                        std::numeric_limits<std::int64_t>::max(),
                                        std::numeric_limits<std::int64_t>::lowest()}) {
        // Rows that are completely masked would be NaNs, and so would all of k_bar and v_bar.
        if (masked == -kInf && offset < 0) continue;
        Problem p(dtype, 140, 150, 32);
        p.a.outer = p.a.inner = 1;
        p.a.causal = true;
        p.a.causal_offset = offset;
        p.a.masked = masked;
        expect_derivatives(
            p.fill(), "offset " + std::to_string(offset) + ", masked by " + std::to_string(masked));
      }
    }
    Problem p(dtype, 70, 150, 32);
    p.a.inner = 1;
    p.a.causal = true;
    p.a.causal_offset = 80;
    p.a.masked = -1e9f;
    p.fill().with_mask(true, true, true, true).with_bias(true, false, true, true);
    for (std::size_t c = 0; c < 150; ++c) p.mask[c] = 0;  // row 0 is a mean of all
    expect_derivatives(p, "with a mask and a bias");
  }
}

TEST_F(CudaAttentionGrad, RowsOfWhichNothingIsLeftAreNaNs) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 70, 90, 32);
    p.a.outer = p.a.inner = 1;
    p.a.causal = true;
    p.a.causal_offset = -40;
    p.a.masked = -kInf;
    p.fill();
    const Computed got = computed(p, Beside(p));
    for (std::int64_t r = 0; r < 70; ++r)
      EXPECT_EQ(std::isnan(got.out_dot[static_cast<std::size_t>(r * 32)]), r < 40) << r;
    for (std::int64_t c = 0; c < 90; ++c)
      EXPECT_TRUE(std::isnan(got.v_bar[static_cast<std::size_t>(c * 32)])) << c;
  }
}

TEST_F(CudaAttentionGrad, LargeScores) {
  for (const DType dtype : kDTypes) {
    for (const float scale : {1.0f, 2.5f, -1.0f, 0.0f}) {
      Problem p(dtype, 20, 100, 16);
      p.a.scale = scale;
      p.most = 3.0f;
      p.scores = 200.0f;
      expect_derivatives(p.fill(), "scale " + std::to_string(scale));
    }
  }
}

TEST_F(CudaAttentionGrad, SomeTangentsAlone) {
  for (const DType dtype : kDTypes) {
    const Problem p = Problem(dtype, 33, 70, 32).fill();
    for (int only = 0; only < 3; ++only) {
      Beside given(p), full(p);
      Floats* const of_given[] = {&given.q_dot, &given.k_dot, &given.v_dot};
      Floats* const of_full[] = {&full.q_dot, &full.k_dot, &full.v_dot};
      for (int i = 0; i < 3; ++i) {
        if (i == only) continue;
        of_given[i]->clear();
        of_full[i]->assign(of_full[i]->size(), 0.0f);
      }
      expect_near("out_dot", p, computed(p, given).out_dot, expected(p, full).out_dot);
    }
  }
}

TEST_F(CudaAttentionGrad, AddsToWhatIsThere) {
  for (const DType dtype : kDTypes) {
    const Problem p = Problem(dtype, 33, 70, 40).fill();
    const Beside beside(p);
    const Computed got = computed(p, beside, true);
    const Derivatives want = expected(p, beside);
    expect_near("q_bar", p, got.q_bar, want.q_bar);
    expect_near("k_bar", p, got.k_bar, want.k_bar, 1);
    expect_near("v_bar", p, got.v_bar, want.v_bar, 1);
  }
}

TEST_F(CudaAttentionGrad, RepeatsItsBits) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 70, 100, 32);
    p.a.shared = 2;
    p.fill();
    const Beside beside(p);
    const Computed first = computed(p, beside);
    p.offset = 1;  // read another way, summed in the same order
    const Computed second = computed(p, beside);
    EXPECT_EQ(second.q_bar, first.q_bar);
    EXPECT_EQ(second.k_bar, first.k_bar);
    EXPECT_EQ(second.v_bar, first.v_bar);
    EXPECT_EQ(second.out_dot, first.out_dot);
  }
}

TEST_F(CudaAttentionGrad, SaysWhatItTakes) {
  AttentionGrad g;
  g.a = Problem(bf16, 5, 6, 64).fill().a;
  AttentionTangent t;
  g.a.depth = 257;
  t.a = g.a;
  EXPECT_THROW(attention_grad(g, nullptr), TypeError);
  EXPECT_THROW(attention_tangent(t, nullptr), TypeError);
  g.a.depth = 64;
  g.a.inner = 0;  // of no heads: nothing is touched
  t.a = g.a;
  EXPECT_NO_THROW(attention_grad(g, nullptr));
  EXPECT_NO_THROW(attention_tangent(t, nullptr));
}

}  // namespace
}  // namespace shmap::cuda
