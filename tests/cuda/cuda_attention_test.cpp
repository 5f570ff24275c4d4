// Attention whose scores stay on the chip, against plain loops in double precision.
#include "cuda/kernels/attention.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "shmap/error.h"
#include "tests/cuda/device_memory.h"
#include "tests/cuda/sample_items.h"

namespace shmap::cuda {
namespace {

using testing::Bytes;
using testing::DeviceBytes;
using testing::on_stream;
using testing::with_type;

class CudaAttention : public testing::OnGpu {};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Floats as the items of a float dtype, and back.
Bytes items_from(DType dtype, const std::vector<float>& values) {
  Bytes bytes(values.size() * static_cast<std::size_t>(itemsize(dtype)));
  with_type(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T item = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &item, sizeof(T));
    }
  });
  return bytes;
}
std::vector<float> floats_from(DType dtype, const Bytes& bytes) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(itemsize(dtype)));
  with_type(dtype, [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T item;
      std::memcpy(static_cast<void*>(&item), bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = static_cast<float>(item);
    }
  });
  return values;
}
std::vector<float> rounded(DType dtype, const std::vector<float>& values) {
  return floats_from(dtype, items_from(dtype, values));
}
std::vector<float> random_floats(std::int64_t n, float most, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i)
    values.push_back(most * (static_cast<float>(random() % 2001) / 1000.0f - 1.0f));
  return values;
}

// What is to be computed, with its operands in the host's memory. The extents and options of `a`
// come first; fill() then makes the operands.
struct Problem {
  Attention a;
  bool rows_before_inner = false;  // [outer, rows, inner, depth] in memory
  std::int64_t offset = 0;         // of all operands' first items behind an aligned address
  std::int64_t gap = 0;            // items between rows
  float most = 1.0f;               // of the items of q and k
  float scores = 10.0f;            // of which size scores are, as rounded in f32
  bool shares_keys = true;         // among blocks of threads, where they would be
  std::vector<float> q, k, v, bias;
  std::vector<std::uint8_t> mask;
  std::int64_t out_items = 0;

  Problem(DType dtype, std::int64_t q_rows, std::int64_t k_rows, std::int64_t depth) {
    a.dtype = a.out_dtype = dtype;
    a.outer = 2;
    a.inner = 2;
    a.q_rows = q_rows;
    a.k_rows = k_rows;
    a.depth = a.v_depth = depth;
    a.scale = 1.0f / std::sqrt(static_cast<float>(depth));
  }

  Problem& fill() {
    q = make(a.q, a.q_rows, a.depth, most, 1);
    k = make(a.k, a.k_rows, a.depth, most, 2);
    v = make(a.v, a.k_rows, a.v_depth, 1.0f, 3);
    AttentionOperand out;
    out_items = lay_out(out, a.q_rows, a.v_depth);
    a.out_outer = out.outer;
    a.out_inner = out.inner;
    a.out_row = out.row;
    return *this;
  }
  // Elements for each of those extents that are true; the others are broadcast.
  Problem& with_bias(bool outer, bool inner, bool row, bool column, float limit = 2.0f) {
    bias =
        rounded(a.bias_dtype, random_floats(stretch(a.bias, outer, inner, row, column), limit, 4));
    return *this;
  }
  Problem& with_mask(bool outer, bool inner, bool row, bool column) {
    std::mt19937 random(5);
    mask.resize(static_cast<std::size_t>(stretch(a.mask, outer, inner, row, column)));
    for (std::uint8_t& item : mask) item = random() % 3 != 0;
    return *this;
  }

  std::int64_t at(const AttentionOperand& x, std::int64_t o, std::int64_t i, std::int64_t r) const {
    return o * x.outer + i * x.inner + r * x.row;
  }
  std::int64_t at(const ScoreOperand& x, std::int64_t o, std::int64_t i, std::int64_t r,
                  std::int64_t c) const {
    return o * x.outer + i * x.inner + r * x.row + c * x.column;
  }

 private:
  std::int64_t lay_out(AttentionOperand& x, std::int64_t rows, std::int64_t depth) const {
    const std::int64_t row = depth + gap;
    x.row = rows_before_inner ? a.inner * row : row;
    x.inner = rows_before_inner ? row : rows * row;
    x.outer = a.inner * rows * row;
    return a.outer * x.outer;
  }
  std::vector<float> make(AttentionOperand& x, std::int64_t rows, std::int64_t depth, float limit,
                          unsigned seed) const {
    return rounded(a.dtype, random_floats(lay_out(x, rows, depth), limit, seed));
  }
  std::int64_t stretch(ScoreOperand& x, bool outer, bool inner, bool row, bool column) const {
    std::int64_t items = 1;
    const auto add = [&](bool there, std::int64_t& stride, std::int64_t extent) {
      stride = there ? items : 0;
      if (there) items *= extent;
    };
    add(column, x.column, a.k_rows);
    add(row, x.row, a.q_rows);
    add(inner, x.inner, a.inner);
    add(outer, x.outer, a.outer);
    return items;
  }
};

// [outer, inner, q_rows, v_depth]
std::vector<float> computed(const Problem& p) {
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
  if (!p.bias.empty()) a.bias.data = bias.data();
  if (!p.mask.empty()) a.mask.data = mask.data();
  on_stream([&](void* stream) { attention(a, stream); });
  scratch.read<float>();
  const std::vector<float> all = floats_from(a.out_dtype, out.read<std::uint8_t>());
  std::vector<float> result;
  for (std::int64_t o = 0; o < a.outer; ++o)
    for (std::int64_t i = 0; i < a.inner; ++i)
      for (std::int64_t r = 0; r < a.q_rows; ++r)
        for (std::int64_t d = 0; d < a.v_depth; ++d)
          result.push_back(
              all[static_cast<std::size_t>(o * a.out_outer + i * a.out_inner + r * a.out_row + d)]);
  return result;
}

std::vector<double> expected(const Problem& p) {
  const Attention& a = p.a;
  std::vector<double> result;
  const auto get = [](const auto& values, std::int64_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
  for (std::int64_t o = 0; o < a.outer; ++o)
    for (std::int64_t i = 0; i < a.inner; ++i)
      for (std::int64_t r = 0; r < a.q_rows; ++r) {
        std::vector<double> weights;
        double greatest = -kInf, sum = 0;
        for (std::int64_t c = 0; c < a.k_rows; ++c) {
          double score = 0;
          for (std::int64_t d = 0; d < a.depth; ++d)
            score += get(p.q, p.at(a.q, o, i, r) + d) * get(p.k, p.at(a.k, o, i, c) + d);
          score *= a.scale;
          if (!p.bias.empty()) score += get(p.bias, p.at(a.bias, o, i, r, c));
          const bool masked = (!p.mask.empty() && get(p.mask, p.at(a.mask, o, i, r, c)) == 0) ||
                              (a.causal && c - r > a.causal_offset);
          if (masked) score = a.masked;
          weights.push_back(score);
          if (score > greatest) greatest = score;
        }
        for (double& weight : weights) sum += weight = std::exp(weight - greatest);
        for (std::int64_t d = 0; d < a.v_depth; ++d) {
          double value = 0;
          for (std::int64_t c = 0; c < a.k_rows; ++c) {
            const double weight = weights[static_cast<std::size_t>(c)];
            // A value whose weight vanishes is not looked at.
            if (weight != 0) value += weight / sum * get(p.v, p.at(a.v, o, i, c) + d);
          }
          result.push_back(value);
        }
      }
  return result;
}

// Of values up to 1: by the rounding of scores, weights and the result.
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

TEST_F(CudaAttention, ReadsWhatLiesOtherwise) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 33, 70, 32);
    p.rows_before_inner = true;
    expect_attention(p.fill(), "[outer, rows, inner, depth]");
    p.gap = 8;
    expect_attention(p.fill(), "gaps between rows");
    p.gap = 3;
    expect_attention(p.fill(), "rows at odd addresses");
    p.gap = 0;
    p.offset = 1;
    expect_attention(p.fill(), "one item behind an aligned address");
    Problem shared(dtype, 20, 70, 32);  // heads share keys and values
    shared.fill();
    shared.a.k.inner = shared.a.v.inner = 0;
    expect_attention(shared, "one key for all heads");
  }
}

TEST_F(CudaAttention, GivesF32) {
  for (const DType dtype : {f16, bf16}) {
    Problem p(dtype, 20, 70, 32);
    p.a.out_dtype = f32;
    p.a.v_depth = 33;
    expect_attention(p.fill(), "f32 from halves");
  }
}

TEST_F(CudaAttention, AddsABias) {
  for (const DType dtype : kDTypes) {
    for (const DType bias_dtype : {dtype, f32}) {
      Problem p(dtype, 35, 70, 32);
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
      Problem p(dtype, 35, 140, 32);
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
      Problem p(dtype, 20, 150, 32);
      p.a.masked = masked;
      p.fill();
      expect_attention(p.with_mask(true, false, true, false), "rows, " + std::to_string(masked));
      // The first blocks of keys are masked, what follows is not.
      p.with_mask(false, false, false, true);
      for (std::size_t c = 0; c < p.mask.size(); ++c) p.mask[c] = c >= 130;
      expect_attention(p, "the first 130 columns, " + std::to_string(masked));
      Problem biased(dtype, 20, 150, 32);
      biased.a.bias_dtype = f32;
      biased.fill().with_bias(false, false, true, true);
      for (std::size_t c = 0; c < 3 * 150 + 70; ++c) biased.bias[c] = masked;  // 3 rows and a half
      expect_attention(biased, "by the bias, " + std::to_string(masked));
    }
  }
}

TEST_F(CudaAttention, Causal) {
  for (const DType dtype : kDTypes) {
    for (const float masked : {-kInf, kLowest, -1e9f, -2.0f}) {
      for (const std::int64_t offset : {std::int64_t{0}, std::int64_t{60}, std::int64_t{-50},
                                        std::numeric_limits<std::int64_t>::max(),
                                        std::numeric_limits<std::int64_t>::lowest()}) {
        // -50: the first rows see nothing, and are a mean of all where `masked` is finite.
        Problem p(dtype, 140, 150, 32);
        p.a.outer = 1;
        p.a.causal = true;
        p.a.causal_offset = offset;
        p.a.masked = masked;
        if (offset != 0) p.a.inner = 1;
        expect_attention(
            p.fill(), "offset " + std::to_string(offset) + ", masked by " + std::to_string(masked));
      }
    }
    Problem p(dtype, 70, 150, 32);
    p.a.causal = true;
    p.a.causal_offset = 80;
    p.a.masked = -1e9f;
    p.fill().with_mask(true, true, true, true).with_bias(true, false, true, true);
    for (std::size_t c = 0; c < 150; ++c) p.mask[c] = 0;  // row 0 is a mean of all
    expect_attention(p, "with a mask and a bias");
  }
}

// Few rows of few heads: several blocks of threads have parts of the keys.
TEST_F(CudaAttention, SharesKeysOut) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 3, 1100, 32);
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
    expect_attention(p, "in the bias");
  }
}

TEST_F(CudaAttention, RepeatsItsBits) {
  for (const DType dtype : kDTypes) {
    Problem p(dtype, 40, 100, 32);
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
