// Chains of operations of fused programs, which keep their values in registers, against the same
// operations one by one, to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu/fused/fused_plan.h"
#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/shape_params.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"
#include "tests/support/fused_check.h"

namespace shmap {
namespace {

using testing::check_fused_case;
using testing::Random;
using Case = testing::FusedCase;

std::size_t steps_of(const FusedProgram& program) {
  return cpu::make_fused_steps(program).steps.size();
}

// The operations that chains of a dtype have.
struct OpsOfChains {
  DType dtype;
  std::vector<const Primitive*> binary, unary;
};
std::vector<OpsOfChains> ops_of_chains() {
  const std::vector<const Primitive*> floats = {&add_p, &sub_p, &mul_p, &div_p, &max_p, &min_p};
  const std::vector<const Primitive*> of_floats = {&neg_p,  &abs_p,   &square_p, &exp_p,
                                                   &sqrt_p, &floor_p, &ceil_p,   &round_p};
  const std::vector<const Primitive*> integers = {&add_p,
                                                  &sub_p,
                                                  &mul_p,
                                                  &max_p,
                                                  &min_p,
                                                  &bit_and_p,
                                                  &bit_or_p,
                                                  &bit_xor_p,
                                                  &shift_left_p,
                                                  &shift_right_logical_p,
                                                  &shift_right_arithmetic_p};
  const std::vector<const Primitive*> of_integers = {&neg_p, &abs_p, &square_p, &not__p};
  return {{f32, floats, of_floats},
          {bf16, floats, of_floats},
          {i32, integers, of_integers},
          {u32, integers, of_integers}};
}

// Every operation of a chain in every form, one after another.
void check_chain(const OpsOfChains& ops, const Primitive& only, std::int64_t rows,
                 std::int64_t cols, Random& random) {
  const DType dtype = ops.dtype;
  Case c;
  c.program = std::make_shared<FusedProgram>(rows, cols);
  FusedProgram& p = *c.program;
  const Shape shape = {rows, cols};
  using Value = std::pair<int, Array>;
  const auto input = [&](FusedKind kind, const Shape& of) {
    c.operands.push_back(random.values(dtype, of));
    return Value{p.add_input(dtype, kind), c.operands.back()};
  };
  Value y = input(FusedKind::full, shape);
  const Value full = input(FusedKind::full, shape), one = input(FusedKind::scalar, {1, 1});
  // If tiles have several rows, a chain with these operands is called for each row.
  const Value column = input(FusedKind::row, {rows, 1}), row = input(FusedKind::col, {1, cols});
  const auto apply = [&](const Primitive& primitive, const Value& a, const Value& b) {
    const int result = p.add_map(primitive, {a.first, b.first});
    y = {result, bind(primitive, broadcast_to(a.second, shape), broadcast_to(b.second, shape),
                      no_params, {})};
  };
  const auto apply_one = [&](const Primitive& primitive) {
    y = {p.add_map(primitive, {y.first}), bind(primitive, y.second, no_params, {})};
  };
  for (const Primitive* other : {&only, random.one_of(ops.binary)}) {
    apply(*other, y, full);
    apply(only, one, y);
    apply(*other, y, y);
    apply(only, full, y);
    apply(*other, y, one);
    apply(*other, y, row);
    apply(only, column, y);
    apply_one(*random.one_of(ops.unary));
    // Values that a chain keeps: one that two later operations read, and one that is read while
    // another one is kept.
    const Value kept = y;
    apply(only, y, one);
    apply_one(*random.one_of(ops.unary));
    apply(*other, kept, y);
    apply(*other, y, kept);
    const Value outer = y;
    apply_one(*random.one_of(ops.unary));
    const Value inner = y;
    apply(*other, y, one);
    apply(only, inner, y);
    apply(*other, outer, y);
  }
  p.add_output(y.first, ShapedArray(shape, dtype));
  c.results.push_back(y.second);
  check_fused_case(c);
}

TEST(FusedChains, ChainsGiveWhatTheirOperationsGive) {
  Random random(7);
  const std::vector<std::pair<std::int64_t, std::int64_t>> spaces = {
      {1, 1},    {1, 63},   {1, 64},   {1, 127}, {1, 128}, {1, 1025},
      {3, 4096}, {5, 2050}, {40, 100}, {7, 769}, {3, 4201}};
  for (const OpsOfChains& ops : ops_of_chains()) {
    for (const Primitive* only : ops.binary) {
      for (const auto& [rows, cols] : spaces) {
        SCOPED_TRACE(to_string(ops.dtype) + " " + only->name);
        check_chain(ops, *only, rows, cols, random);
        if (HasFailure()) return;
      }
    }
  }
}

// Divisions and remainders by constants, between other operations of a chain: all signs, powers of
// two, the least and the largest numbers, and 0, which stays out of chains.
TEST(FusedChains, ChainsDivideByConstants) {
  const std::vector<std::uint32_t> divisors = {
      0,           1,           2,           3,           5,           7,
      10,          12,          64,          641,         1000,        65535,
      65536,       100003,      0x55555555,  0x7fffffff,  0x80000000u, 0x80000001u,
      0xaaaaaaabu, 0xc0000000u, 0xfffffff9u, 0xfffffffeu, 0xffffffffu};
  const std::vector<std::pair<std::int64_t, std::int64_t>> spaces = {
      {1, 4099}, {40, 100}, {3, 769}};
  for (const DType dtype : {i32, u32}) {
    for (const Primitive* op : {&div_p, &rem_p}) {
      for (const std::uint32_t by : divisors) {
        SCOPED_TRACE(to_string(dtype) + " " + op->name + " " + std::to_string(by));
        const auto [rows, cols] = spaces[by % spaces.size()];
        std::vector<std::uint32_t> bits;
        std::uint32_t random = by;
        for (std::int64_t k = 0; k < rows * cols; ++k) {
          random = random * 1664525u + 1013904223u;
          const std::uint32_t near = by * (random >> 28) + static_cast<std::uint32_t>(k % 3) - 1u;
          const std::uint32_t edges[] = {0u, 1u, 0x7fffffffu, 0x80000000u, 0x80000001u, ~0u};
          bits.push_back(k % 5 == 0 ? near : k % 7 == 0 ? edges[k / 7 % 6] : random);
        }
        Case c;
        c.program = std::make_shared<FusedProgram>(rows, cols);
        FusedProgram& p = *c.program;
        const Array words = array<std::uint32_t>(bits, {rows, cols});
        const Array x = bind(bitcast_convert_type_p, words, ConvertParams(dtype), {});
        const Array one =
            bind(bitcast_convert_type_p, array<std::uint32_t>(std::vector{1u}, {1, 1}),
                 ConvertParams(dtype), {});
        const Array divisor =
            bind(bitcast_convert_type_p, array<std::uint32_t>(std::vector{by}, {1, 1}),
                 ConvertParams(dtype), {});
        c.operands = {x, one};
        const int in = p.add_input(dtype, FusedKind::full);
        const int same = p.add_map(mul_p, {in, p.add_input(dtype, FusedKind::scalar)});
        const int divided = p.add_map(*op, {same, p.add_literal(dtype, &by)});
        const int sum = p.add_map(add_p, {p.add_map(neg_p, {divided}), divided});
        p.add_output(p.add_map(sub_p, {sum, divided}), ShapedArray({rows, cols}, dtype));
        // One operation alone takes another way than chains.
        c.results = {-bind(*op, x, broadcast_to(divisor, {rows, cols}), no_params, {})};
        check_fused_case(c);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(FusedChains, RemaindersArePartsOfChains) {
  if (!cpu::chain_kernel(i32)) GTEST_SKIP() << "this build or CPU has no kernel for chains";
  FusedProgram modulo(1, 1000);
  const std::int32_t three = 3, seven = 7;
  const int scaled = modulo.add_map(
      mul_p, {modulo.add_input(i32, FusedKind::full), modulo.add_literal(i32, &three)});
  const int rest = modulo.add_map(rem_p, {scaled, modulo.add_literal(i32, &seven)});
  modulo.add_output(modulo.add_map(abs_p, {rest}), ShapedArray({1, 1000}, i32));
  EXPECT_EQ(steps_of(modulo), 1u);
}

// A clamp, and a conversion to integers of 8 bits, in a chain: as in a quantisation. NaNs,
// infinities and values beyond the limits.
TEST(FusedChains, ChainsClampAndNarrow) {
  Random random(9);
  for (const DType from : {f32, bf16}) {
    for (const DType to : {i8, u8, i16}) {
      for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {1, 1}, {1, 37}, {1, 4099}, {3, 4096}, {40, 100}, {7, 769}}) {
        SCOPED_TRACE(to_string(from) + to_string(to) + std::to_string(cols));
        Case c;
        c.program = std::make_shared<FusedProgram>(rows, cols);
        FusedProgram& p = *c.program;
        const Array odd = reshape(arange(rows * cols), {rows, cols}) % 5 == 3;
        const Array x = astype(where(odd, NAN, random.values(f32, {rows, cols})), from);
        const Array least = random.values(from, {rows, 1}), most = random.values(from, {1, cols});
        c.operands = {x, least, most};
        const int in = p.add_input(from, FusedKind::full);
        const int low = p.add_input(from, FusedKind::row), high = p.add_input(from, FusedKind::col);
        const float many = 96;
        const int scale = p.add_literal(from, from == f32 ? static_cast<const void*>(&many)
                                                          : static_cast<const void*>("\xc0\x42"));
        const int scaled = p.add_map(mul_p, {in, scale});
        const int clamped = p.add_map(clamp_p, {low, scaled, high});
        const int again = p.add_map(round_p, {p.add_map(mul_p, {clamped, scale})});
        const auto convert = std::make_shared<ConvertParams>(to);
        p.add_output(p.add_map(convert_element_type_p, {again}, convert),
                     ShapedArray({rows, cols}, to));
        Array operands[] = {broadcast_to(least, x.shape()), x * many,
                            broadcast_to(most, x.shape())};
        const Array limited = bind(clamp_p, operands, no_params, {});
        c.results.push_back(astype(round(limited * many), to));
        check_fused_case(c);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(FusedChains, AChainKeepsAValueThatIsReadAgain) {
  if (!cpu::chain_kernel(u32)) GTEST_SKIP() << "this build or CPU has no kernel for chains";
  // A generator of random numbers by Marsaglia ("Xorshift RNGs", 2003).
  FusedProgram xorshift(1, 100000);
  int x = xorshift.add_input(u32, FusedKind::full);
  const std::pair<const Primitive*, std::uint32_t> shifts[] = {
      {&shift_left_p, 13}, {&shift_right_logical_p, 17}, {&shift_left_p, 5}};
  for (const auto& [shift, bits] : shifts) {
    const int shifted = xorshift.add_map(*shift, {x, xorshift.add_literal(u32, &bits)});
    x = xorshift.add_map(bit_xor_p, {x, shifted});
  }
  xorshift.add_output(x, ShapedArray({1, 100000}, u32));
  EXPECT_EQ(steps_of(xorshift), 1u);

  // A value that an operation reads which is not in the chain is stored, not kept.
  FusedProgram stores(1, 1000);
  const int y = stores.add_map(neg_p, {stores.add_input(f32, FusedKind::full)});
  const int z = stores.add_map(sqrt_p, {y});
  stores.add_output(stores.add_map(mul_p, {stores.add_map(sin_p, {z}), y}),
                    ShapedArray({1, 1000}, f32));
  EXPECT_EQ(steps_of(stores), 4u);
}

// All values of bf16, including NaNs and infinities: the rounding that knows the preceding
// operation gives the same bits as the one that does not.
TEST(FusedChains, RoundingAfterAnOperationOnHalvesKeepsNans) {
  if (!cpu::chain_kernel(f32)) GTEST_SKIP() << "this build or CPU has no kernel for chains";
  constexpr std::int64_t kAll = 65536;
  std::vector<std::uint16_t> x(kAll);
  std::vector<float> y(kAll);
  for (std::uint32_t i = 0; i < kAll; ++i) {
    x[i] = static_cast<std::uint16_t>(i);
    y[i] = std::bit_cast<float>(i * 40503u << 16);
  }
  for (const cpu::ChainCode code : {cpu::ChainCode::add, cpu::ChainCode::mul, cpu::ChainCode::div,
                                    cpu::ChainCode::sub, cpu::ChainCode::sqrt}) {
    const auto form = code == cpu::ChainCode::sqrt ? cpu::ChainForm::self : cpu::ChainForm::vector;
    std::vector<std::uint16_t> out[2];
    for (const bool known : {false, true}) {
      const cpu::ChainOp ops[] = {{cpu::ChainCode::widen, cpu::ChainForm::self, nullptr},
                                  {code, form, y.data()},
                                  {known ? cpu::ChainCode::quiet_to_bf16 : cpu::ChainCode::to_bf16,
                                   cpu::ChainForm::self, nullptr},
                                  {cpu::ChainCode::narrow, cpu::ChainForm::self, nullptr}};
      out[known].resize(kAll);
      cpu::chain_kernel(f32)(ops, 4, x.data(), out[known].data(), false, kAll);
    }
    for (std::size_t i = 0; i < kAll; ++i)
      ASSERT_EQ(out[1][i], out[0][i]) << i << ", operation " << static_cast<int>(code);
  }
}

// Rounding to bf16 and narrowing at the end of a chain, which some processors do by one
// instruction: values of every exponent, subnormal ones too, ties, infinities and NaNs.
TEST(FusedChains, ChainsRoundToBf16AsConversionsDo) {
  if (!cpu::chain_kernel(f32)) GTEST_SKIP() << "this build or CPU has no kernel for chains";
  const cpu::ChainOp ops[] = {{cpu::ChainCode::to_bf16, cpu::ChainForm::self, nullptr},
                              {cpu::ChainCode::narrow, cpu::ChainForm::self, nullptr}};
  std::vector<float> x;
  for (std::uint32_t upper = 0; upper < 65536; ++upper)
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
  const auto check_all = [&](std::int64_t n) {
    std::vector<std::uint16_t> got(static_cast<std::size_t>(n));
    cpu::chain_kernel(f32)(ops, 2, x.data(), got.data(), false, n);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], std::bit_cast<std::uint16_t>(bfloat16(x[i])))
          << std::hex << std::bit_cast<std::uint32_t>(x[i]) << " of " << n << " elements";
    }
  };
  const auto all = static_cast<std::int64_t>(x.size());
  check_all(all);  // groups of one exponent or two
  std::mt19937 rng(5);
  std::shuffle(x.begin(), x.end(), rng);
  for (const std::int64_t n : {all, all - 1, all - 77}) check_all(n);
  for (std::int64_t n = 1; n < 300; ++n) check_all(n);
}

// Sums of f32 that are rounded to bf16. Operands of f32 may have NaNs which, rounded as numbers,
// would become a zero or an infinity; operands of bf16 may have NaNs that are not quiet.
TEST(FusedChains, NansOfAllBitsAreRoundedToNans) {
  constexpr std::int64_t kCols = 515;
  const std::vector<std::uint32_t> nans = {0x7fffffff, 0xffffffff, 0x7f800001, 0xff80ffff,
                                           0x7fc00000, 0x7f810000, 0xff810000, 0x7fff0000};
  std::vector<std::uint32_t> bits;
  for (std::size_t i = 0; i < kCols; ++i)
    bits.push_back(i % 3 == 1 ? nans[i / 3 % nans.size()]
                              : std::bit_cast<std::uint32_t>(0.37f * i));
  const Array wide =
      bind(bitcast_convert_type_p, array<std::uint32_t>(bits, {1, kCols}), ConvertParams(f32), {});
  // Their NaNs are at other places, since a sum of two NaNs is the first one.
  std::vector<std::uint16_t> upper = {0x3f80};
  for (std::size_t i = 1; i < kCols; ++i)
    upper.push_back(static_cast<std::uint16_t>(bits[i - 1] >> 16));
  const Array half = bind(bitcast_convert_type_p, array<std::uint16_t>(upper, {1, kCols}),
                          ConvertParams(bf16), {});
  const auto to_half = std::make_shared<ConvertParams>(bf16);
  const auto to_wide = std::make_shared<ConvertParams>(f32);
  for (const bool only_half : {false, true}) {
    for (const Primitive* op : {&add_p, &mul_p, &max_p}) {
      SCOPED_TRACE(std::string(op->name) + (only_half ? " of bf16" : " of f32"));
      Case c;
      c.program = std::make_shared<FusedProgram>(1, kCols);
      FusedProgram& p = *c.program;
      c.operands = {half, only_half ? half : wide};
      const int x =
          p.add_map(convert_element_type_p, {p.add_input(bf16, FusedKind::full)}, to_wide);
      const int in = p.add_input(only_half ? bf16 : f32, FusedKind::full);
      const int y = only_half ? p.add_map(convert_element_type_p, {in}, to_wide) : in;
      const float one = 1;
      const int z = p.add_map(*op, {p.add_map(*op, {x, p.add_literal(f32, &one)}), y});
      p.add_output(p.add_map(convert_element_type_p, {z}, to_half), ShapedArray({1, kCols}, bf16));
      const Array inner = bind(*op, astype(half, f32), full({1, kCols}, 1.f), no_params, {});
      c.results = {astype(bind(*op, inner, astype(c.operands[1], f32), no_params, {}), bf16)};
      check_fused_case(c);
      if (HasFailure()) return;
    }
  }
}

TEST(FusedChains, LongChainsAreCut) {
  constexpr int kLinks = 2 * cpu::kMostChainOps + 3;
  Case c;
  c.program = std::make_shared<FusedProgram>(1, 1000);
  Random random(8);
  c.operands.push_back(random.values(f32, {1, 1000}));
  int y = c.program->add_input(f32, FusedKind::full);
  const float step = 0.37f;
  const int literal = c.program->add_literal(f32, &step);
  Array want = c.operands[0];
  for (int k = 0; k < kLinks; ++k) {
    y = c.program->add_map(k % 2 ? add_p : mul_p, {y, literal});
    want = k % 2 ? want + step : want * step;
  }
  c.program->add_output(y, ShapedArray({1, 1000}, f32));
  c.results.push_back(want);
  check_fused_case(c);
  const cpu::FusedStepList list = cpu::make_fused_steps(*c.program);
  EXPECT_EQ(list.steps.size(), cpu::chain_kernel(f32) ? 3u : std::size_t{kLinks});
}

}  // namespace
}  // namespace shmap
