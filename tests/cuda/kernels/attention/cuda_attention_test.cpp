// Attention whose scores stay on the chip, against plain loops in double precision.
#include "cuda/kernels/attention/attention.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "shmap/error.h"
#include "tests/cuda/kernels/attention/attention_problem.h"

namespace shmap::cuda {
namespace {

using testing::AttentionProblem;
using testing::Bytes;
using testing::DeviceBytes;
using testing::floats_from;
using testing::items_from;
using testing::of_cudnn;
using testing::on_stream;
using testing::rounded;
using Problem = AttentionProblem;

class CudaAttention : public testing::OnGpu {};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
// The depth of most problems. The kernel with wgmma takes 65 to 128.
const std::int64_t kDepth = [] {
  const char* kernel = std::getenv("SHMAP_ATTENTION_KERNEL");
  return kernel != nullptr && std::string(kernel) == "own_wgmma" ? 96 : 32;
}();

// [outer, inner, shared, q_rows, v_depth]
// kept: gets the sums, if it is not null.
std::vector<float> computed(const Problem& p, std::vector<float>* kept = nullptr) {
  Attention a = p.a;
  const auto upload = [&](DType dtype, const std::vector<float>& values) {
    return DeviceBytes(items_from(dtype, values), p.offset * itemsize(dtype));
  };
  const DeviceBytes q = upload(a.dtype, p.q), k = upload(a.dtype, p.k), v = upload(a.dtype, p.v),
                    bias = upload(a.bias_dtype, p.bias), mask(p.mask),
                    out(p.out_items * itemsize(a.out_dtype), p.offset * itemsize(a.out_dtype));
  a.q.data = q.data();
  a.k.data = k.data();
  a.v.data = v.data();
  a.out = out.data();
  const DeviceBytes scratch(attention_scratch(a));
  if (p.shares_keys) a.scratch = scratch.data();
  const DeviceBytes sums(kept ? a.sums_outer * a.outer * 4 : 0);
  if (kept) a.sums = static_cast<float*>(sums.data());
  if (!p.bias.empty()) a.bias.data = bias.data();
  if (!p.mask.empty()) a.mask.data = mask.data();
  on_stream([&](void* stream) { attention(a, stream); });
  scratch.read<float>();
  const std::vector<float> all = floats_from(a.out_dtype, out.read<std::uint8_t>());
  std::vector<float> result;
  for (const Problem::Head& h : p.heads())
    for (std::int64_t r = 0; r < a.q_rows; ++r)
      for (std::int64_t d = 0; d < a.v_depth; ++d)
        result.push_back(all[static_cast<std::size_t>(p.out_at(h, r) + d)]);
  if (kept) *kept = sums.read<float>();
  return result;
}

// sums: as Attention::sums.
std::vector<double> expected(const Problem& p, std::vector<double>* sums = nullptr) {
  const Attention& a = p.a;
  std::vector<double> result;
  const auto get = [](const auto& values, std::int64_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
  for (const Problem::Head& h : p.heads()) {
    std::vector<double> all_sums, all_greatest;
    for (std::int64_t r = 0; r < a.q_rows; ++r) {
      std::vector<double> weights;
      double greatest = -kInf, sum = 0;
      for (std::int64_t c = 0; c < a.k_rows; ++c) {
        weights.push_back(p.score(h, r, c).value);
        if (weights.back() > greatest) greatest = weights.back();
      }
      for (double& weight : weights) sum += weight = std::exp(weight - greatest);
      all_greatest.push_back(greatest);
      all_sums.push_back(sum);
      for (std::int64_t d = 0; d < a.v_depth; ++d) {
        double value = 0;
        for (std::int64_t c = 0; c < a.k_rows; ++c) {
          const double weight = weights[static_cast<std::size_t>(c)];
          // A value whose weight is zero is not looked at.
          if (weight != 0) value += weight / sum * get(p.v, p.at(a.v, h, c) + d);
        }
        result.push_back(value);
      }
    }
    if (!sums) continue;
    sums->insert(sums->end(), all_greatest.begin(), all_greatest.end());
    sums->insert(sums->end(), all_sums.begin(), all_sums.end());
  }
  return result;
}

// The tolerance for values up to 1: from the rounding of scores, weights and the result.
double tolerance(const Problem& p) {
  const Attention& a = p.a;
  return a.dtype == f32       ? 5e-7 * p.scores
         : a.dtype == f16     ? 1.5e-3
         : a.out_dtype == f32 ? 4e-3
                              : 8e-3;
}

void expect_attention(const Problem& p, const std::string& what) {
  SCOPED_TRACE(what + ", " + to_string(p.a.dtype));
  const std::vector<float> got = computed(p);
  const std::vector<double> want = expected(p);
  ASSERT_EQ(got.size(), want.size());
  int wrong = 0;
  for (std::size_t i = 0; i < want.size() && wrong < 5; ++i) {
    const bool same = std::isnan(want[i]) ? std::isnan(got[i])
                                          : got[i] == want[i] ||  // infinities too
                                                std::abs(got[i] - want[i]) <= tolerance(p);
    if (same) continue;
    ++wrong;
    const auto depth = static_cast<std::size_t>(p.a.v_depth);
    ADD_FAILURE() << "row " << i / depth << " column " << i % depth << ": " << got[i] << ", want "
                  << want[i];
  }
}

constexpr DType kDTypes[] = {f32, f16, bf16};

TEST_F(CudaAttention, MatchesLoops) {
  for (const DType dtype : kDTypes) {
    expect_attention(Problem(dtype, 130, 130, 64).fill(), "more rows than a block");
    Problem wide(dtype, 70, 90, 128);
    wide.a.inner = 1;
    expect_attention(wide.fill(), "depth 128");
    Problem widest(dtype, 40, 75, 256);
    widest.a.inner = 1;
    expect_attention(widest.fill(), "depth 256");
  }
}

TEST_F(CudaAttention, TakesAnyExtents) {
  for (const DType dtype : kDTypes) {
    expect_attention(Problem(dtype, 1, 1, 8).fill(), "one by one");
    expect_attention(Problem(dtype, 1, 200, 64).fill(), "one query");
    expect_attention(Problem(dtype, 65, 64, 40).fill(), "one row more, depth 40");
    expect_attention(Problem(dtype, 5, 63, 7).fill(), "depth 7");
    Problem other(dtype, 20, 70, 24);
    other.a.v_depth = 80;
    expect_attention(other.fill(), "values of depth 80");
    Problem narrow(dtype, 20, 70, 96);
    narrow.a.v_depth = 5;
    expect_attention(narrow.fill(), "values of depth 5");
  }
}

TEST_F(CudaAttention, ReadsSeveralBlocks) {
  for (const DType dtype : {f16, bf16}) {
    for (const std::int64_t depth : {72, 128}) {
      Problem p(dtype, 140, 400, depth);
      p.a.outer = 1;
      expect_attention(p.fill(), "four blocks of keys, of depth " + std::to_string(depth));
      p.a.causal = true;
      p.a.causal_offset = 130;
      p.a.masked = -2.0f;
      expect_attention(p, "causal, and masked scores count");
      p.a.masked = -kInf;
      expect_attention(p, "causal");
    }
  }
}

TEST_F(CudaAttention, ReadsWhatLiesOtherwise) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 33, 70, kDepth);
    p.rows_before_inner = true;
    expect_attention(p.fill(), "[outer, rows, inner, depth]");
    p.gap = 8;
    expect_attention(p.fill(), "gaps between rows");
    p.gap = 3;
    expect_attention(p.fill(), "rows at odd addresses");
    p.gap = 0;
    p.offset = 1;
    expect_attention(p.fill(), "one item behind an aligned address");
    Problem shared(dtype, 20, 70, kDepth);  // heads share keys and values
    shared.fill();
    shared.a.k.inner = shared.a.v.inner = 0;
    expect_attention(shared, "one key for all heads");
  }
}

TEST_F(CudaAttention, HeadsOfQThatShareOneOfK) {
  for (const DType dtype : kDTypes) {
    for (const bool rows_before_inner : {false, true}) {
      Problem p(dtype, 33, 70, kDepth);
      p.a.shared = 3;
      p.a.causal = true;
      p.a.masked = kLowest;
      p.rows_before_inner = rows_before_inner;
      expect_attention(p.fill(), "shared by 3");
      expect_attention(p.with_bias(true, true, true, true).with_mask(true, true, false, true),
                       "with a bias and a mask");
      Problem parts(dtype, 3, 600, kDepth);
      parts.a.outer = 1;
      parts.a.shared = 2;
      parts.rows_before_inner = rows_before_inner;
      parts.fill();
      ASSERT_GT(attention_scratch(parts.a), 0);
      expect_attention(parts, "with keys shared out");
    }
  }
}

TEST_F(CudaAttention, KeepsSums) {
  for (const DType dtype : kDTypes) {
    const auto check = [&](const Problem& p, const std::string& what) {
      SCOPED_TRACE(what + ", " + to_string(dtype));
      std::vector<float> got;
      std::vector<double> want;
      EXPECT_EQ(computed(p, &got), computed(p));
      expected(p, &want);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double by = 2e-6 * p.scores * std::max(1.0, std::abs(want[i]));
        ASSERT_TRUE(got[i] == want[i] || std::abs(got[i] - want[i]) <= by)
            << i << ": " << got[i] << ", want " << want[i];
      }
    };
    Problem p(dtype, 70, 90, kDepth);
    p.a.shared = 2;
    check(p.fill(), "plain");
    p.a.causal = true;
    p.a.causal_offset = -20;  // rows that are masked as a whole
    p.a.masked = kLowest;
    check(p, "causal");
    check(p.with_bias(true, true, true, true).with_mask(true, false, true, true), "biased");
    Problem parts(dtype, 3, 1100, kDepth);
    parts.a.outer = 1;
    check(parts.fill(), "with keys shared out");
  }
}

TEST_F(CudaAttention, GivesF32) {
  for (const DType dtype : {f16, bf16}) {
    Problem p(dtype, 20, 70, kDepth);
    p.a.out_dtype = f32;
    p.a.v_depth = 33;
    expect_attention(p.fill(), "f32 from halves");
  }
}

TEST_F(CudaAttention, AddsABias) {
  for (const DType dtype : kDTypes) {
    for (const DType bias_dtype : {dtype, f32}) {
      Problem p(dtype, 35, 70, kDepth);
      p.a.bias_dtype = bias_dtype;
      p.fill();
      expect_attention(p.with_bias(true, true, true, true), "a bias for each score");
      expect_attention(p.with_bias(false, true, false, true), "one for heads and columns");
      expect_attention(p.with_bias(false, false, true, false), "one for rows");
    }
  }
}

TEST_F(CudaAttention, MasksScores) {
  for (const DType dtype : kDTypes) {
    for (const float masked : {-kInf, kLowest, -1e9f, -3.0f}) {
      Problem p(dtype, 35, 140, kDepth);
      p.a.masked = masked;
      p.fill();
      const std::string by = " by " + std::to_string(masked);
      expect_attention(p.with_mask(true, false, true, true), "masked" + by);
      expect_attention(p.with_mask(true, false, false, true), "columns masked" + by);
      p.with_mask(true, false, true, true).with_bias(true, true, true, true);
      expect_attention(p, "masked and biased" + by);
    }
  }
}

TEST_F(CudaAttention, RowsThatAreMaskedWhole) {
  for (const DType dtype : kDTypes) {
    for (const float masked : {-kInf, kLowest}) {
      Problem p(dtype, 20, 150, kDepth);
      p.a.masked = masked;
      p.fill();
      expect_attention(p.with_mask(true, false, true, false), "rows, " + std::to_string(masked));
      // The first blocks of keys are masked, the following ones are not.
      p.with_mask(false, false, false, true);
      for (std::size_t c = 0; c < p.mask.size(); ++c) p.mask[c] = c >= 130;
      expect_attention(p, "the first 130 columns, " + std::to_string(masked));
      Problem biased(dtype, 20, 150, kDepth);
      biased.a.bias_dtype = f32;
      biased.fill().with_bias(false, false, true, true);
      for (std::size_t c = 0; c < 3 * 150 + 70; ++c) biased.bias[c] = masked;  // 3 rows and a half
      if (!of_cudnn()) expect_attention(biased, "by the bias, " + std::to_string(masked));
    }
  }
}

TEST_F(CudaAttention, Causal) {
  for (const DType dtype : kDTypes) {
    for (const float masked : {-kInf, kLowest, -1e9f, -2.0f}) {
      for (const std::int64_t offset : {std::int64_t{0}, std::int64_t{60}, std::int64_t{-50},
                                        std::numeric_limits<std::int64_t>::max(),
                                        std::numeric_limits<std::int64_t>::lowest()}) {
        // -50: the first rows attend to no key; if `masked` is finite, they are a mean of all
        // values.
        Problem p(dtype, 140, 150, kDepth);
        p.a.outer = 1;
        p.a.causal = true;
        p.a.causal_offset = offset;
        p.a.masked = masked;
        if (offset != 0) p.a.inner = 1;
        expect_attention(
            p.fill(), "offset " + std::to_string(offset) + ", masked by " + std::to_string(masked));
      }
    }
    Problem p(dtype, 70, 150, kDepth);
    p.a.causal = true;
    p.a.causal_offset = 80;
    p.a.masked = -1e9f;
    p.fill().with_mask(true, true, true, true).with_bias(true, false, true, true);
    for (std::size_t c = 0; c < 150; ++c) p.mask[c] = 0;  // row 0 is a mean of all
    expect_attention(p, "with a mask and a bias");
  }
}

// With few rows and few heads, several blocks of threads share the keys.
TEST_F(CudaAttention, SharesKeysOut) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 3, 1100, kDepth);
    p.a.outer = 1;
    p.a.v_depth = 41;
    p.fill();
    ASSERT_GT(attention_scratch(p.a), 0);
    expect_attention(p, "shared");
    p.shares_keys = false;
    expect_attention(p, "not shared");
    p.shares_keys = true;
    EXPECT_EQ(computed(p), computed(p));
    for (const float masked : {-kInf, kLowest, -2.0f}) {
      Problem hidden = p;
      hidden.a.masked = masked;
      hidden.with_mask(false, true, true, true);
      for (std::size_t c = 0; c < 1100; ++c) {
        hidden.mask[c] = c > 1050;             // row 0 has the last part alone
        hidden.mask[1100 + c] = 0;             // row 1 has nothing
        hidden.mask[2200 + c] = c / 300 == 1;  // row 2 has the middle
      }
      expect_attention(hidden, "masked by " + std::to_string(masked));
      for (const std::int64_t offset : {1097, 500, -1, -2000}) {
        Problem causal = p;
        causal.a.masked = masked;
        causal.a.causal = true;
        causal.a.causal_offset = offset;
        expect_attention(causal, "causal, offset " + std::to_string(offset) + ", masked by " +
                                     std::to_string(masked));
      }
    }
    Problem growing = p;
    growing.a.bias_dtype = f32;
    growing.scores = 200.0f;
    growing.with_bias(false, false, true, true, 90.0f);
    growing.bias[2 * 1100 + 700] = kInf;
    growing.bias[1100 + 900] = NAN;
    expect_attention(growing, "with a bias, an infinity and a NaN");
    Problem wide(dtype, 1, 600, 136);
    wide.a.out_dtype = f32;
    expect_attention(wide.fill(), "one query of depth 136");
  }
}

TEST_F(CudaAttention, LargeScores) {
  for (const DType dtype : kDTypes) {
    for (const float scale : {0.25f, 1.0f, 2.5f, -1.0f, 0.0f}) {
      Problem p(dtype, 20, 200, 16);
      p.a.scale = scale;
      p.most = 3.0f;
      p.scores = 200.0f;
      p.fill();
      // Later keys are longer, so that each block brings greater scores than the last.
      for (std::int64_t c = 0; c < 200; ++c)
        for (std::int64_t i = 0; i < 4; ++i)
          for (std::int64_t d = 0; d < 16; ++d)
            p.k[static_cast<std::size_t>((i * 200 + c) * 16 + d)] *= static_cast<float>(1 + c / 40);
      p.k = rounded(dtype, p.k);
      Problem by_bias = p;
      by_bias.a.bias_dtype = f32;
      by_bias.with_bias(false, false, true, true, 90.0f);
      expect_attention(p, "scale " + std::to_string(scale));
      expect_attention(by_bias, "bias to 90, scale " + std::to_string(scale));
    }
  }
}

TEST_F(CudaAttention, NaNsAndInfinities) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 20, 150, 16);
    p.fill();
    p.q[3 * 16 + 2] = NAN;  // row 3: NaN
    p.q[5 * 16] = kInf;     // row 5: infinities of both signs
    expect_attention(p, "in q");
    p.fill();
    p.k[100 * 16 + 1] = kInf;   // +infinity for some rows, -infinity for others
    p.k[(150 + 7) * 16] = NAN;  // all rows of head 1
    expect_attention(p, "in k");
    p.fill();
    p.v[140 * 16 + 3] = NAN;
    p.v[2 * 16 + 4] = kInf;
    expect_attention(p, "in v");
    p.a.bias_dtype = f32;
    p.fill().with_bias(false, false, true, true);
    p.bias[4 * 150 + 80] = kInf;
    p.bias[6 * 150 + 80] = NAN;
    for (std::size_t c = 0; c < 150; ++c) p.bias[8 * 150 + c] = -kInf;
    if (!of_cudnn()) expect_attention(p, "in the bias");
  }
}

TEST_F(CudaAttention, RepeatsItsBits) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 40, 100, kDepth);
    p.fill();
    const std::vector<float> first = computed(p);
    EXPECT_EQ(computed(p), first);
    p.offset = 1;  // read another way, summed in the same order
    EXPECT_EQ(computed(p), first);
  }
}

TEST_F(CudaAttention, SaysWhatItTakes) {
  const Attention good = Problem(bf16, 5, 6, 64).fill().a;
  EXPECT_TRUE(takes_attention(good));
  const auto refuses = [&](const std::function<void(Attention&)>& change) {
    Attention bad = good;
    change(bad);
    EXPECT_FALSE(takes_attention(bad));
    EXPECT_THROW(attention(bad, nullptr), TypeError);
  };
  refuses([](Attention& a) { a.dtype = f64; });
  refuses([](Attention& a) { a.out_dtype = f16; });
  refuses([](Attention& a) { a.bias_dtype = i32; });
  refuses([](Attention& a) { a.depth = 257; });
  refuses([](Attention& a) { a.v_depth = 0; });
  refuses([](Attention& a) { a.k_rows = 0; });
  refuses([](Attention& a) { a.q_rows = std::int64_t{1} << 31; });
  Attention none = good;  // of no heads: nothing is touched
  none.inner = 0;
  EXPECT_TRUE(takes_attention(none));
  EXPECT_NO_THROW(attention(none, nullptr));
}

}  // namespace
}  // namespace shmap::cuda
