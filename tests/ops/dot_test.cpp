// shmap-test: devices
// dot_general and what is made of it (matmul, dot, outer): golden values, every dtype and order of
// dims beside a loop over indices, numbers that wrap, sharded operands outside a body, and errors.
#include "core/ops/dot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "shmap/mesh.h"
#include "shmap/ops.h"
#include "shmap/partition_spec.h"
#include "tests/support/error_text.h"
#include "tests/support/golden_array.h"

namespace shmap {
namespace {

using test::expect_error;
using Ints = std::vector<int>;

// ------------------------------------------------------------------------------- golden values

std::vector<int> narrow(const std::vector<std::int64_t>& list) {
  return std::vector<int>(list.begin(), list.end());
}

void expect_golden_products(const testing::Placer& place) {
  int ran = 0;
  for (const testing::GoldenCase& c : testing::load_golden("ops_linalg")) {
    SCOPED_TRACE(c.name);
    const std::string op = c.params.text("op");
    if (op != "matmul" && op != "dot" && op != "outer" && op != "dot_general") continue;
    const Array a = place(testing::to_array(c.inputs[0])),
                b = place(testing::to_array(c.inputs[1]));
    Array got;
    if (op == "matmul") {
      got = matmul(a, b);
    } else if (op == "dot") {
      got = dot(a, b);
    } else if (op == "outer") {
      got = outer(a, b);
    } else {
      const auto dims = [&](const char* name) { return narrow(c.params.ints(name)); };
      got = dot_general(a, b,
                        {.contracting = {dims("lhs_contracting"), dims("rhs_contracting")},
                         .batch = {dims("lhs_batch"), dims("rhs_batch")}});
    }
    // The values are small whole numbers: every order of summation gives the same bits, but for the
    // sign of a zero (a sum starts from +0), which one unit in the last place forgives.
    EXPECT_EQ(testing::golden_diff(c.outputs[0], got, 1), "");
    ++ran;
  }
  EXPECT_GT(ran, 40);
}

TEST(DotGolden, PlainArrays) {
  expect_golden_products([](const Array& x) { return x; });
}
TEST(DotGolden, SplitOverAMesh) { expect_golden_products(testing::split_over_mesh); }

// --------------------------------------------------------------------- beside a loop over indices

// One product with its dims in any order. Letters name the dims: b batch, m and n free, k
// contracted.
struct Layout {
  std::string lhs, rhs;  // as "bmk", "knb"; a letter may come in two dims as 'k' and 'K'
};

std::int64_t extent_of(char letter) {
  switch (letter) {
    case 'b':
      return 3;
    case 'B':
      return 2;
    case 'm':
      return 5;
    case 'M':
      return 4;
    case 'n':
      return 6;
    case 'N':
      return 3;
    case 'k':
      return 7;
    default:
      return 2;  // K
  }
}

Shape shape_of(const std::string& letters) {
  Shape s;
  for (char c : letters) s.push_back(extent_of(c));
  return s;
}

Ints places(const std::string& letters, const std::string& wanted) {
  Ints out;
  for (char c : wanted) out.push_back(static_cast<int>(letters.find(c)));
  return out;
}

std::string common(const std::string& a, const std::string& b, const std::string& kind) {
  std::string out;
  for (char c : a)
    if (b.find(c) != std::string::npos && kind.find(c) != std::string::npos) out += c;
  return out;
}

std::string without(const std::string& a, const std::string& b) {
  std::string out;
  for (char c : a)
    if (b.find(c) == std::string::npos) out += c;
  return out;
}

template <class T>
double as_double(T v) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(v);
  } else {
    return static_cast<double>(static_cast<float>(v));
  }
}

// The exact sum where it is an integer's (wrapped), else in double with the sum of magnitudes.
template <class T>
struct Loop {
  std::vector<std::uint64_t> wrapped;
  std::vector<double> sums, magnitudes;
  Shape shape;

  Loop(const Layout& l, const std::vector<T>& a, const std::vector<T>& b) {
    const std::string batch = common(l.lhs, l.rhs, "bB"), inner = common(l.lhs, l.rhs, "kK");
    const std::string free =
        without(l.lhs, batch + inner) + without(l.rhs, batch + inner);  // l.lhs first
    const std::string out = batch + free, all = out + inner;
    shape = shape_of(out);
    const auto n = static_cast<std::size_t>(shape.num_elements());
    wrapped.resize(n);
    sums.resize(n);
    magnitudes.resize(n);
    std::vector<std::int64_t> at(256, 0);
    const auto flat = [&](const std::string& letters) {
      std::int64_t f = 0;
      for (char c : letters) f = f * extent_of(c) + at[static_cast<unsigned char>(c)];
      return static_cast<std::size_t>(f);
    };
    const std::int64_t total = shape_of(all).num_elements();
    for (std::int64_t i = 0; i < total; ++i) {
      std::int64_t rest = i;
      for (std::size_t d = all.size(); d-- > 0;) {
        at[static_cast<unsigned char>(all[d])] = rest % extent_of(all[d]);
        rest /= extent_of(all[d]);
      }
      const T x = a[flat(l.lhs)], y = b[flat(l.rhs)];
      const std::size_t o = flat(out);
      if constexpr (std::is_integral_v<T>) {
        wrapped[o] += static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y);
      } else {
        sums[o] += as_double(x) * as_double(y);
        magnitudes[o] += std::abs(as_double(x) * as_double(y));
      }
    }
  }
};

template <class T>
std::vector<T> random_values(std::int64_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> out;
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_integral_v<T>) {
      const auto wide = static_cast<std::uint64_t>(random()) << 32 | random();
      out.push_back(static_cast<T>(wide));  // all bits: products wrap
    } else {
      out.push_back(static_cast<T>(static_cast<float>(random() % 2001) / 1000.f - 1.f));
    }
  }
  return out;
}

// Half a unit in the last place, relative.
template <class T>
double rounding() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  if constexpr (std::is_same_v<T, float16>) return 0x1p-11;
  return 0x1p-8;  // bfloat16
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"mk", "kn"},      {"km", "kn"},   {"mk", "nk"},   {"km", "nk"},       {"bmk", "bkn"},
      {"mbk", "knb"},    {"kbm", "nbk"}, {"mkb", "kbn"}, {"mKk", "Kkn"},     {"mkK", "nKk"},
      {"kmK", "Knk"},    {"mMk", "knN"}, {"mkM", "nkN"}, {"bBmk", "Bbkn"},   {"Bmbk", "nbkB"},
      {"kbmKM", "nBKk"}, {"m", "n"},     {"k", "k"},     {"bm", "b"},        {"b", "b"},
      {"k", "kn"},       {"mk", "k"},    {"bk", "bk"},   {"KmkbM", "NkbnK"},
  };
  return all;
}

template <class T>
void check_layouts() {
  std::uint32_t seed = 0;
  for (const Layout& l : layouts()) {
    SCOPED_TRACE(l.lhs + " by " + l.rhs + " in " + short_name(dtype_of<T>));
    const Shape sa = shape_of(l.lhs), sb = shape_of(l.rhs);
    const auto a = random_values<T>(sa.num_elements(), ++seed),
               b = random_values<T>(sb.num_elements(), ++seed);
    const std::string batch = common(l.lhs, l.rhs, "bB"), inner = common(l.lhs, l.rhs, "kK");
    const Array got = dot_general(array<T>(a, sa), array<T>(b, sb),
                                  {.contracting = {places(l.lhs, inner), places(l.rhs, inner)},
                                   .batch = {places(l.lhs, batch), places(l.rhs, batch)}});
    const Loop<T> want(l, a, b);
    ASSERT_EQ(got.shape(), want.shape);
    ASSERT_EQ(got.dtype(), dtype_of<T>);
    const auto values = got.to_vector<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_integral_v<T>) {
        ASSERT_EQ(values[i], static_cast<T>(want.wrapped[i])) << "element " << i;
      } else {
        // Sums in at least f32 and one rounding to the result's type.
        const double sum_error = std::max(rounding<T>() * (std::is_same_v<T, double> ? 16 : 0),
                                          std::is_same_v<T, double> ? 0 : 16 * rounding<float>());
        const double bound =
            want.magnitudes[i] * sum_error + std::abs(want.sums[i]) * 1.001 * rounding<T>();
        ASSERT_NEAR(as_double(values[i]), want.sums[i], bound) << "element " << i;
      }
    }
  }
}

TEST(DotGeneral, EveryOrderOfDimsInF32) { check_layouts<float>(); }
TEST(DotGeneral, EveryOrderOfDimsInF64) { check_layouts<double>(); }
TEST(DotGeneral, EveryOrderOfDimsInF16) { check_layouts<float16>(); }
TEST(DotGeneral, EveryOrderOfDimsInBf16) { check_layouts<bfloat16>(); }
TEST(DotGeneral, EveryOrderOfDimsInSignedIntegers) {
  check_layouts<std::int8_t>();
  check_layouts<std::int16_t>();
  check_layouts<std::int32_t>();
  check_layouts<std::int64_t>();
}
TEST(DotGeneral, EveryOrderOfDimsInUnsignedIntegers) {
  check_layouts<std::uint8_t>();
  check_layouts<std::uint16_t>();
  check_layouts<std::uint32_t>();
  check_layouts<std::uint64_t>();
}

TEST(DotGeneral, BoolsAreOrsOfAnds) {
  const Array a = array<bool>({true, false, true, false, false, false}, {2, 3});
  const Array b = array<bool>({true, false, true, true, true, false}, {3, 2});
  EXPECT_EQ(matmul(a, b).to_vector<bool>(), (std::vector<bool>{true, false, false, false}));
}

TEST(DotGeneral, NegativeDimsCountFromTheEnd) {
  const Array a = reshape(arange(12), {3, 4}), b = reshape(arange(20), {4, 5});
  EXPECT_EQ(dot_general(a, b, {.contracting = {{-1}, {-2}}}).to_vector<float>(),
            matmul(a, b).to_vector<float>());
}

TEST(DotGeneral, HalfTypesGiveF32WhereItIsPreferred) {
  // 1 + 64 * 2^-9: in bf16 each term alone would be lost, and so would the sum's last bits.
  std::vector<bfloat16> ones(65, bfloat16(1.f)), small(65, bfloat16(0x1p-9f));
  small[0] = bfloat16(1.f);
  const Array a = array<bfloat16>(small, {1, 65}), b = array<bfloat16>(ones, {65, 1});
  DotParams p;
  p.lhs_contracting = Dims(1);
  p.rhs_contracting = Dims(0);
  p.lhs_batch = p.rhs_batch = Dims(std::vector<int>{});
  p.preferred_element_type = DType::f32;
  const Array wide = bind_dot(a, b, p, SourceLine::current());
  EXPECT_EQ(to_string(wide.type()), "f32[1,1]");
  EXPECT_EQ(wide.item<float>(), 1.125f);
  EXPECT_EQ(static_cast<float>(matmul(a, b).item<bfloat16>()), 1.125f);
  p.preferred_element_type = DType::i32;
  expect_error<TypeError>([&] { bind_dot(a, b, p, SourceLine::current()); },
                          {"bf16", "also f32", "i32"});
}

TEST(DotGeneral, OfNoTermsIsZero) {
  const Array z = matmul(zeros({2, 0}), zeros({0, 3}));
  EXPECT_EQ(z.to_vector<float>(), std::vector<float>(6, 0.f));
  EXPECT_EQ(matmul(zeros({2, 0, 4, 0}), zeros({2, 0, 0, 5})).shape(), (Shape{2, 0, 4, 5}));
  EXPECT_EQ(matmul(zeros({3, 0}, DType::i32), zeros({0}, DType::i32)).to_vector<std::int32_t>(),
            std::vector<std::int32_t>(3, 0));
}

TEST(DotGeneral, NansAndInfinitiesPass) {
  const float inf = std::numeric_limits<float>::infinity();
  const Array a = array<float>({inf, 1, 0, 1}, {2, 2}), b = array<float>({0, 1, 1, 1}, {2, 2});
  const auto c = matmul(a, b).to_vector<float>();
  EXPECT_TRUE(std::isnan(c[0]));
  EXPECT_EQ(c[1], inf);
  EXPECT_EQ(c[2], 1);
}

// Large enough that workers share it, and of sizes that no tile divides.
TEST(DotGeneral, LargeProductsAreCutIntoParts) {
  const std::int64_t m = 301, k = 259, n = 317;
  std::vector<float> a, b;
  for (std::int64_t i = 0; i < m * k; ++i) a.push_back(static_cast<float>(i * 7 % 11 - 5));
  for (std::int64_t i = 0; i < k * n; ++i) b.push_back(static_cast<float>(i * 5 % 13 - 6));
  const Array x = array<float>(a, {m, k}), y = array<float>(b, {k, n});
  const auto c = matmul(x, y).to_vector<float>();
  const auto twisted = dot_general(transpose(y), transpose(x), {.contracting = {{1}, {0}}});
  const auto t = transpose(twisted).to_vector<float>();
  for (std::int64_t i = 0; i < m; i += 50) {
    for (std::int64_t j = 0; j < n; ++j) {
      float want = 0;
      for (std::int64_t q = 0; q < k; ++q)
        want += a[static_cast<std::size_t>(i * k + q)] * b[static_cast<std::size_t>(q * n + j)];
      ASSERT_EQ(c[static_cast<std::size_t>(i * n + j)], want) << i << ", " << j;
    }
  }
  EXPECT_EQ(c, t);
}

// --------------------------------------------------------------------------- shapes and promotion

TEST(Matmul, BatchDimsBroadcastFromTheLast) {
  const struct {
    Shape a, b, c;
  } cases[] = {
      {{4}, {4}, {}},
      {{3, 4}, {4}, {3}},
      {{4}, {4, 5}, {5}},
      {{2, 3, 4}, {4, 5}, {2, 3, 5}},
      {{3, 4}, {2, 4, 5}, {2, 3, 5}},
      {{2, 1, 3, 4}, {6, 4, 5}, {2, 6, 3, 5}},
      {{1, 6, 3, 4}, {2, 1, 4, 5}, {2, 6, 3, 5}},
      {{2, 6, 3, 4}, {4}, {2, 6, 3}},
      {{4}, {2, 6, 4, 5}, {2, 6, 5}},
      {{1, 3, 4}, {1, 4, 5}, {1, 3, 5}},
      {{2, 1, 6, 3, 4}, {2, 7, 1, 4, 5}, {2, 7, 6, 3, 5}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(to_string(c.a) + " by " + to_string(c.b));
    const std::int64_t na = c.a.num_elements(), nb = c.b.num_elements();
    const Array a = reshape(arange(na), c.a), b = reshape(arange(nb), c.b);
    const Array got = matmul(a, b);
    ASSERT_EQ(got.shape(), c.c);
    // The same by a loop: offsets of each batch item by broadcasting strides.
    const bool row = c.a.size() == 1, column = c.b.size() == 1;
    const std::int64_t k = c.a.back(), m = row ? 1 : c.a[c.a.size() - 2],
                       n = column ? 1 : c.b.back();
    Shape batch;
    const std::size_t matrix_dims =
        static_cast<std::size_t>(!row) + static_cast<std::size_t>(!column);
    for (std::size_t d = 0; d + matrix_dims < c.c.size(); ++d) batch.push_back(c.c[d]);
    const auto item = [&](const Shape& s, std::size_t tail, std::int64_t index) {
      std::int64_t offset = 0, stride = 1;
      for (std::size_t d = batch.size(); d-- > 0;) {
        const std::int64_t at = index % batch[d];
        index /= batch[d];
        if (s.size() < tail + (batch.size() - d)) continue;
        const std::int64_t e = s[s.size() - tail - (batch.size() - d)];
        if (e != 1) offset += at * stride;
        stride *= e;
      }
      return offset;
    };
    const auto values = got.to_vector<float>();
    std::size_t at = 0;
    for (std::int64_t i = 0; i < batch.num_elements(); ++i) {
      const std::int64_t ia = row ? 0 : item(c.a, 2, i) * m * k,
                         ib = column ? 0 : item(c.b, 2, i) * k * n;
      for (std::int64_t r = 0; r < m; ++r) {
        for (std::int64_t s = 0; s < n; ++s) {
          float want = 0;
          for (std::int64_t q = 0; q < k; ++q)
            want += static_cast<float>((ia + r * k + q) * (ib + q * n + s));
          ASSERT_EQ(values[at++], want) << "item " << i << ", row " << r << ", column " << s;
        }
      }
    }
  }
}

TEST(Matmul, PromotesAsArithmeticDoes) {
  const auto type = [](const Array& a, const Array& b) { return to_string(matmul(a, b).type()); };
  const auto of = [](DType t) { return ones({2, 2}, t); };
  EXPECT_EQ(type(of(DType::i32), of(DType::f32)), "f32[2,2]");
  EXPECT_EQ(type(of(DType::bf16), of(DType::f16)), "f32[2,2]");
  EXPECT_EQ(type(of(DType::bf16), of(DType::bf16)), "bf16[2,2]");
  EXPECT_EQ(type(of(DType::i8), of(DType::u8)), "i16[2,2]");
  EXPECT_EQ(type(of(DType::bool_), of(DType::i32)), "i32[2,2]");
  EXPECT_EQ(type(of(DType::i64), of(DType::f16)), "f16[2,2]");
}

TEST(Dot, OfScalarsMultiplies) {
  const Array x = reshape(arange(6), {2, 3});
  EXPECT_EQ(dot(2, x).to_vector<float>(), (x * 2).to_vector<float>());
  EXPECT_EQ(dot(x, 3.f).shape(), (Shape{2, 3}));
  EXPECT_EQ(dot(full({}, 2.f), full({}, 4.f)).item<float>(), 8.f);
}

TEST(Outer, Flattens) {
  const Array c = outer(reshape(arange(4), {2, 2}), arange(3));
  ASSERT_EQ(c.shape(), (Shape{4, 3}));
  const auto v = c.to_vector<float>();
  for (int i = 0; i < 12; ++i) EXPECT_EQ(v[static_cast<std::size_t>(i)], float(i / 3 * (i % 3)));
}

TEST(Outer, ProductsOfBoolsAreAnds) {
  const Array a = array<bool>({true, false}, {2}), b = array<bool>({false, true}, {2});
  EXPECT_EQ(outer(a, b).to_vector<bool>(), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(dot(true, b).to_vector<bool>(), (std::vector<bool>{false, true}));
}

TEST(Matmul, MayConsumeItsOperands) {
  Array a = reshape(arange(9), {3, 3}), b = reshape(arange(9), {3, 3});
  const auto want = matmul(a, b).to_vector<float>();
  const Array kept = a;
  EXPECT_EQ(matmul(std::move(a), std::move(b)).to_vector<float>(), want);
  EXPECT_EQ(kept.to_vector<float>(), reshape(arange(9), {3, 3}).to_vector<float>());
  expect_error<ValueError>([&] { matmul(b, kept); }, {"matmul", "empty Array", "dot_test.cpp"});
}

// -------------------------------------------------------------------------------- known numbers

// C = A @ B for A = arange(4096 * 2048) and B = arange(2048 * 1024) in i32, which wraps around.
TEST(Matmul, ThirtyTwoBitIntegersWrapAround) {
  const std::int64_t k = 2048, n = 1024;
  const Array b = reshape(arange(0, k * n, 1, DType::i32), {k, n});
  const auto row = [&](std::int64_t r) { return arange(r * k, (r + 1) * k, 1, DType::i32); };
  const auto at = [&](std::int64_t r, std::size_t c) {
    return matmul(row(r), b).to_vector<std::int32_t>()[c];
  };
  EXPECT_EQ(at(0, 0), 716177408);
  EXPECT_EQ(at(0, 1), 718273536);
  EXPECT_EQ(at(1, 0), -1431306240);
  EXPECT_EQ(at(2048, 512), 1789394944);
  EXPECT_EQ(at(4095, 1023), 717227008);
}

Mesh mesh_ij() { return make_mesh({4, 2}, {"i", "j"}); }
Array placed(const Array& x, const PartitionSpec& spec) {
  return device_put(x, NamedSharding(mesh_ij(), spec));
}

TEST(Matmul, TheBasicExampleOutsideABody) {
  const Array a = placed(reshape(arange(8 * 16), {8, 16}), P("i", "j"));
  const Array b = placed(reshape(arange(16 * 32), {16, 32}), P("j", none));
  const Array c = matmul(a, b);
  EXPECT_EQ(to_string(c.type()), "f32[8,32]");
  EXPECT_EQ(c.sharding(), NamedSharding(mesh_ij(), P("i", none)));
  const auto v = c.to_vector<float>();
  EXPECT_EQ(v[0], 39680);
  EXPECT_EQ(v[7 * 32 + 31], 529032);
  EXPECT_EQ(v[3 * 32 + 17], 239096);
  double total = 0;
  for (float x : v) total += static_cast<double>(x);
  EXPECT_EQ(total, 69239808);
}

// ----------------------------------------------------------------------------- sharded operands

template <class T>
void check_sharded(DType dtype) {
  std::vector<T> va, vb;
  for (int i = 0; i < 8 * 16; ++i) va.push_back(static_cast<T>(static_cast<float>(i * 7 % 11)));
  for (int i = 0; i < 16 * 24; ++i) vb.push_back(static_cast<T>(static_cast<float>(i * 5 % 7)));
  const Array a = array<T>(va, {8, 16}), b = array<T>(vb, {16, 24});
  const auto want = matmul(a, b).template to_vector<T>();
  const PartitionSpec specs[] = {P(),
                                 P("i", none),
                                 P(none, "i"),
                                 P("j", none),
                                 P("i", "j"),
                                 P("j", "i"),
                                 P(none, "j"),
                                 P(axes("i", "j"), none),
                                 P(none, axes("j", "i"))};
  for (const PartitionSpec& sa : specs) {
    for (const PartitionSpec& sb : specs) {
      SCOPED_TRACE(to_string(sa) + " by " + to_string(sb) + " in " + short_name(dtype));
      const Array c = matmul(placed(a, sa), placed(b, sb));
      ASSERT_EQ(c.shape(), (Shape{8, 24}));
      ASSERT_EQ(c.dtype(), dtype);
      ASSERT_EQ(c.template to_vector<T>(), want);
      // Every device's shard is the part of the result that its index says.
      for (const Shard& shard : c.addressable_shards()) {
        const auto block = shard.data.template to_vector<T>();
        std::size_t q = 0;
        for (std::int64_t r = shard.index[0].start; r < shard.index[0].stop; ++r)
          for (std::int64_t s = shard.index[1].start; s < shard.index[1].stop; ++s)
            ASSERT_EQ(block[q++], want[static_cast<std::size_t>(r * 24 + s)]);
      }
    }
  }
}

TEST(ShardedDot, EverySpecGivesTheUnshardedProduct) {
  check_sharded<float>(DType::f32);
  check_sharded<std::int32_t>(DType::i32);
  check_sharded<bfloat16>(DType::bf16);
}

TEST(ShardedDot, ResultsAreShardedByTheRule) {
  const Array a = ones({8, 16}), b = ones({16, 24});
  const auto spec = [&](const PartitionSpec& sa, const PartitionSpec& sb) {
    return matmul(placed(a, sa), placed(b, sb)).sharding();
  };
  const auto want = [](const PartitionSpec& s) { return NamedSharding(mesh_ij(), s); };
  EXPECT_EQ(spec(P("i", none), P(none, "j")), want(P("i", "j")));
  EXPECT_EQ(spec(P("i", "j"), P("j", none)), want(P("i", none)));
  EXPECT_EQ(spec(P(none, "i"), P("i", "j")), want(P(none, "j")));
  EXPECT_EQ(spec(P(none, axes("i", "j")), P(axes("i", "j"), none)), want(P()));
  EXPECT_EQ(spec(P(), P()), want(P()));
}

TEST(ShardedDot, BatchDimsStaySharded) {
  const Array a = reshape(arange(4 * 2 * 3 * 5), {4, 2, 3, 5}),
              b = reshape(arange(4 * 2 * 5 * 3), {4, 2, 5, 3});
  const auto want = matmul(a, b).to_vector<float>();
  const Array c = matmul(placed(a, P("i", "j")), placed(b, P("i", none)));
  EXPECT_EQ(c.sharding(), NamedSharding(mesh_ij(), P("i", "j", none, none)));
  EXPECT_EQ(c.to_vector<float>(), want);
  EXPECT_EQ(matmul(placed(a, P("i", "j")), b).to_vector<float>(), want);
}

TEST(ShardedDot, MixesPlacedAndFreshOperands) {
  const Array a = reshape(arange(32), {8, 4}), b = reshape(arange(16), {4, 4});
  const auto want = matmul(a, b).to_vector<float>();
  EXPECT_EQ(matmul(placed(a, P("i", "j")), b).to_vector<float>(), want);
  EXPECT_EQ(matmul(a, placed(b, P("i", "j"))).to_vector<float>(), want);
  EXPECT_EQ(dot(placed(a, P("i")), 2.f).to_vector<float>(), (a * 2.f).to_vector<float>());
  EXPECT_EQ(outer(placed(arange(8), P("i")), arange(3)).to_vector<float>(),
            outer(arange(8), arange(3)).to_vector<float>());
}

// ---------------------------------------------------------------------------------------- errors

TEST(DotErrors, SayWhatIsWrongAndWhere) {
  const Array a = ones({3, 4}), b = ones({5, 6});
  expect_error<ValueError>([&] { matmul(a, b); },
                           {"matmul", "f32[3,4]", "f32[5,6]", "size 4", "size 5", "dot_test.cpp:"});
  expect_error<ValueError>([&] { dot(a, b); },
                           {"dot", "f32[3,4]", "f32[5,6]", "size 4", "size 5", "dot_test.cpp:"});
  expect_error<ValueError>([&] { matmul(a, 2.f); }, {"matmul", "scalar", "a * b", "dot_test.cpp:"});
  expect_error<ValueError>(
      [&] {
        matmul(ones({2, 3, 4}), ones({3, 4, 5}));
      },
      {"matmul", "batch dims", "2 and 3", "do not broadcast", "dot_test.cpp:"});
  expect_error<ValueError>(
      [&] {
        dot_general(a, b, {.contracting = {{0}, {0}}});
      },
      {"dot_general", "contracting dims 0", "size 3", "size 5", "one size", "dot_test.cpp:"});
  expect_error<ValueError>(
      [&] {
        dot_general(a, b, {.contracting = {{0, 1}, {0}}});
      },
      {"dot_general", "2 contracting dims", "1 of the right one"});
  expect_error<ValueError>(
      [&] {
        dot_general(a, a, {.contracting = {{1}, {1}}, .batch = {{0}, {}}});
      },
      {"dot_general", "1 batch dim of the left one is given", "0 of the right one"});
  expect_error<ValueError>(
      [&] {
        dot_general(a, a, {.contracting = {{2}, {1}}});
      },
      {"dot_general", "2"});
  expect_error<ValueError>(
      [&] {
        dot_general(a, a, {.contracting = {{1, 1}, {0, 1}}});
      },
      {"dot_general", "twice"});
  expect_error<ValueError>(
      [&] {
        dot_general(a, a, {.contracting = {{1}, {1}}, .batch = {{1}, {1}}});
      },
      {"dot_general", "dim 1", "both"});
  expect_error<ValueError>([&] { matmul(Array(), a); }, {"matmul", "empty Array"});
}

TEST(DotErrors, LeaveTheOperandsUsable) {
  const Array a = ones({3, 4}), b = ones({5, 6});
  expect_error<ValueError>([&] { matmul(a, b); }, {"matmul"});
  EXPECT_EQ(matmul(a, ones({4, 1})).to_vector<float>(), std::vector<float>(3, 4.f));
}

}  // namespace
}  // namespace shmap
