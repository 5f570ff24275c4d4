// Fused programs against the same operations one by one, to the last bit: random programs over all
// dtypes and kinds, in parts, in the memory of an operand, and past the caches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/cpu/fused_plan.h"
#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"
#include "core/runtime/fused_program.h"
#include "shmap/shmap.h"

namespace shmap {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const Array& x) {
  Bytes out(static_cast<std::size_t>(x.size() * itemsize(x.dtype())));
  if (x.dtype() == bool_) {
    const std::vector<bool> values = x.to_vector<bool>();
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = std::byte{values[i]};
    return out;
  }
  const Array bits =
      is_integer(x.dtype())      ? x
      : itemsize(x.dtype()) == 2 ? bind(bitcast_convert_type_p, x, ConvertParams(i16), {})
      : itemsize(x.dtype()) == 4 ? bind(bitcast_convert_type_p, x, ConvertParams(i32), {})
                                 : bind(bitcast_convert_type_p, x, ConvertParams(i64), {});
  // As integers of the same width, whatever the dtype.
  const auto copy = [&]<class T>(T) {
    const std::vector<T> values = bits.to_vector<T>();
    if (!out.empty()) std::memcpy(out.data(), static_cast<const void*>(values.data()), out.size());
  };
  switch (bits.dtype()) {
    case i8:
      copy(std::int8_t{});
      break;
    case u8:
      copy(std::uint8_t{});
      break;
    case i16:
      copy(std::int16_t{});
      break;
    case i32:
      copy(std::int32_t{});
      break;
    case u16:
      copy(std::uint16_t{});
      break;
    case u32:
      copy(std::uint32_t{});
      break;
    case u64:
      copy(std::uint64_t{});
      break;
    default:
      copy(std::int64_t{});
  }
  return out;
}

bool is_nan(DType dtype, const std::byte* p) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, p, static_cast<std::size_t>(itemsize(dtype)));
  switch (dtype) {
    case f16:
      return (bits & 0x7fff) > 0x7c00;
    case bf16:
      return (bits & 0x7fff) > 0x7f80;
    case f32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case f64:
      return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    default:
      return false;
  }
}

// Empty, or where two arrays differ; one NaN is as good as another.
std::string difference(DType dtype, const Bytes& got, const Bytes& want) {
  if (got.size() != want.size()) return "sizes differ";
  const auto size = static_cast<std::size_t>(itemsize(dtype));
  for (std::size_t i = 0; i < got.size(); i += size) {
    if (std::memcmp(&got[i], &want[i], size) == 0) continue;
    if (is_nan(dtype, &got[i]) && is_nan(dtype, &want[i])) continue;
    return "element " + std::to_string(i / size) + " of " + std::to_string(got.size() / size);
  }
  return {};
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(std::size_t n) { return static_cast<int>(engine_() % n); }
  bool chance(double p) { return std::uniform_real_distribution<>()(engine_) < p; }
  template <class List>
  auto one_of(const List& list) {
    return *(std::begin(list) + below(std::size(list)));
  }
  // n values of a dtype: small numbers, for floats now and then a special one.
  Array values(DType dtype, const Shape& shape) {
    std::vector<double> out(static_cast<std::size_t>(shape.num_elements()));
    for (double& x : out) {
      x = std::uniform_real_distribution<>(-4, 4)(engine_);
      if (is_unsigned_int(dtype) || dtype == bool_) x = std::abs(x);
      if (is_floating(dtype) && chance(0.01)) x = chance(0.5) ? HUGE_VAL : -0.0;
    }
    return astype(array<double>(out, shape), dtype);
  }

 private:
  std::mt19937_64 engine_;
};

// A program, and beside it the value that each of its values has where its operations run one by
// one.
struct Case {
  std::shared_ptr<FusedProgram> program;
  std::vector<Array> operands;  // of the program's call
  std::vector<Array> results;   // what is wanted
};

class Maker {
 public:
  Maker(std::uint64_t seed, std::int64_t rows, std::int64_t cols, std::vector<DType> dtypes)
      : random_(seed), rows_(rows), cols_(cols), dtypes_(std::move(dtypes)) {}

  Case make(int ops) {
    made_.program = std::make_shared<FusedProgram>(rows_, cols_);
    for (int k = random_.below(3); k >= 0; --k) add_input(FusedKind::full);
    for (int k = random_.below(3); k > 0; --k)
      add_input(random_.one_of(std::vector{FusedKind::row, FusedKind::col, FusedKind::scalar}));
    add_literal();
    for (int made = 0, tries = 0; made < ops && tries < 40 * ops; ++tries) made += add_op();
    add_outputs();
    return made_;
  }

 private:
  FusedProgram& p() { return *made_.program; }
  Shape shape(FusedKind kind) const {
    switch (kind) {
      case FusedKind::full:
        return {rows_, cols_};
      case FusedKind::row:
        return {rows_, 1};
      case FusedKind::col:
        return {1, cols_};
      default:
        return {};
    }
  }
  Array as(int v, FusedKind kind) {
    const Array& x = values_[static_cast<std::size_t>(v)];
    return p().kind(v) == kind ? x : broadcast_to(x, shape(kind));
  }

  void add_input(FusedKind kind) {
    const DType dtype = random_.one_of(dtypes_);
    p().add_input(dtype, kind);
    values_.push_back(random_.values(dtype, shape(kind)));
    made_.operands.push_back(values_.back());
  }
  void add_literal() {
    const DType dtype = random_.one_of(dtypes_);
    const Array x = random_.values(dtype, {});
    p().add_literal(dtype, bytes_of(x).data());
    values_.push_back(x);
  }
  int any() {  // of late ones rather than early ones
    const int n = p().value_count();
    return random_.chance(0.5) ? n - 1 - random_.below(static_cast<std::size_t>(std::min(n, 3)))
                               : random_.below(static_cast<std::size_t>(n));
  }

  bool add_op() {
    static const std::vector<const Primitive*> unary = {
        &neg_p, &abs_p,  &sign_p, &square_p, &not__p,     &floor_p, &exp_p,
        &log_p, &tanh_p, &sqrt_p, &rsqrt_p,  &logistic_p, &erf_p,   &is_finite_p};
    static const std::vector<const Primitive*> binary = {
        &add_p,     &sub_p,     &mul_p, &div_p, &max_p, &min_p, &rem_p,
        &bit_and_p, &bit_xor_p, &eq_p,  &ne_p,  &lt_p,  &ge_p,  &shift_left_p};
    static const std::vector<const Primitive*> reductions = {
        &reduce_sum_p, &reduce_prod_p, &reduce_max_p, &reduce_min_p, &reduce_and_p, &reduce_or_p};
    try {
      switch (random_.below(7)) {
        case 0:
          return map(*random_.one_of(unary), {any()});
        case 1:
        case 2:
          return map(*random_.one_of(binary), {any(), any()});
        case 3:
          return map(random_.chance(0.5) ? select_n_p : clamp_p, {any(), any(), any()});
        case 4:
          return map(convert_element_type_p, {any()},
                     std::make_shared<ConvertParams>(random_.one_of(dtypes_)));
        case 5:
          return reduce(*random_.one_of(reductions), any());
        default:
          return broadcast(any());
      }
    } catch (const TypeError&) {  // such operands don't go together
      return false;
    }
  }
  bool map(const Primitive& primitive, std::vector<int> operands,
           std::shared_ptr<const Params> params = nullptr) {
    const int v = p().add_map(primitive, operands, params);
    std::vector<Array> in;
    for (int x : operands) {
      const bool scalar = p().kind(x) == FusedKind::scalar;
      // clamp's second operand is an array where its result is.
      const bool kept = scalar && !(&primitive == &clamp_p && in.size() == 1);
      in.push_back(kept ? values_[static_cast<std::size_t>(x)] : as(x, p().kind(v)));
    }
    values_.push_back(bind(primitive, in, params ? *params : no_params, {}));
    return true;
  }
  bool reduce(const Primitive& primitive, int x) {
    if (p().kind(x) != FusedKind::full) return false;
    const Array in = values_[static_cast<std::size_t>(x)];
    Array out = shmap::reduce(primitive, in, Dims{1}, true, {});
    p().add_reduce(primitive, x);
    values_.push_back(std::move(out));
    return true;
  }
  bool broadcast(int x) {
    if (!random_.chance(0.5)) return false;
    const FusedKind to = random_.chance(0.8) ? FusedKind::full : FusedKind::row;
    if (joint_kind(p().kind(x), to) != to || p().kind(x) == to) return false;
    Array out = as(x, to);
    p().add_broadcast(x, to);
    values_.push_back(std::move(out));
    return true;
  }
  void add_outputs() {
    // The last ones that may be, so that little of the program is for nothing.
    int wanted = 1 + random_.below(3);
    for (int v = p().value_count() - 1; v >= 0 && wanted > 0; --v) {
      const FusedKind kind = p().kind(v);
      if (p().is_input(v) || (kind != FusedKind::full && kind != FusedKind::row)) continue;
      p().add_output(v, ShapedArray(shape(kind), p().dtype(v)));
      made_.results.push_back(values_[static_cast<std::size_t>(v)]);
      --wanted;
    }
    if (!made_.results.empty()) return;
    const int x = p().add_map(eq_p, {0, 0});
    p().add_output(x, ShapedArray(shape(p().kind(x)), bool_));
    made_.results.push_back(bind(eq_p, values_[0], values_[0], no_params, {}));
  }

  Random random_;
  std::int64_t rows_, cols_;
  std::vector<DType> dtypes_;
  Case made_;
  std::vector<Array> values_;
};

// Runs the steps in `parts` parts, last part first, and compares. `overwritten`: the operand whose
// memory result 0 is to take, or -1.
void run_and_compare(const Case& c, const std::vector<Bytes>& operands,
                     const std::vector<Bytes>& wanted, cpu::FusedWrite write,
                     std::int64_t around_bytes, int parts, int overwritten) {
  const cpu::FusedStepList list = cpu::make_fused_steps(*c.program, write, around_bytes);
  std::vector<Bytes> in = operands, out;
  for (const Bytes& w : wanted) out.emplace_back(w.size(), std::byte{0xcd});
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (const Bytes& b : in) sources.push_back(b.data());
  for (Bytes& b : out) targets.push_back(b.data());
  if (overwritten >= 0) {
    out[0] = in[static_cast<std::size_t>(overwritten)];
    targets[0] = out[0].data();
    sources[static_cast<std::size_t>(overwritten)] = out[0].data();
  }
  for (int part = parts - 1; part >= 0; --part) {
    cpu::run_fused_steps(list, sources, targets, list.units * part / parts,
                         list.units * (part + 1) / parts);
  }
  for (std::size_t o = 0; o < out.size(); ++o) {
    EXPECT_EQ(difference(c.program->outputs()[o].type.dtype(), out[o], wanted[o]), "")
        << "output " << o << " of " << c.program->text() << "; parts " << parts << ", write "
        << static_cast<int>(write) << ", overwritten " << overwritten;
  }
}

void check(const Case& c) {
  std::vector<Bytes> operands, wanted;
  for (const Array& x : c.operands) operands.push_back(bytes_of(x));
  for (const Array& x : c.results) wanted.push_back(bytes_of(x));
  constexpr std::int64_t kNever = INT64_MAX;
  for (const int parts : {1, 2, 5}) {
    run_and_compare(c, operands, wanted, cpu::FusedWrite::plain, kNever, parts, -1);
    run_and_compare(c, operands, wanted, cpu::FusedWrite::plain, 1, parts, -1);
  }
  const cpu::FusedStepList list = cpu::make_fused_steps(*c.program, cpu::FusedWrite::plain);
  const ShapedArray& type = c.program->outputs()[0].type;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool columns = c.operands[i].ndim() == 2 && c.operands[i].shape()[0] == 1 &&
                         c.program->rows() != 1;  // run_fused copies such
    if (columns || operands[i].size() != wanted[0].size() ||
        itemsize(c.operands[i].dtype()) != itemsize(type.dtype()))
      continue;
    const int k = static_cast<int>(i);
    run_and_compare(c, operands, wanted, cpu::FusedWrite::staged, 1, 2, k);
    if (list.may_overwrite[i])
      run_and_compare(c, operands, wanted, cpu::FusedWrite::in_place, 1, 2, k);
  }
  // And as the library runs it: in parts on its threads, in an operand's memory where it is the
  // last that holds it.
  std::vector<Array> in;
  for (const Array& x : c.operands) {
    Array copy[3] = {Array(true), x, x};
    in.push_back(bind(select_n_p, copy, no_params, {}));
  }
  const std::vector<Array> out = bind_all(fused_p, in, FusedParams(c.program), {});
  for (std::size_t o = 0; o < out.size(); ++o) {
    EXPECT_EQ(difference(out[o].dtype(), bytes_of(out[o]), wanted[o]), "")
        << "output " << o << " of " << c.program->text();
  }
}

TEST(FusedKernels, RandomProgramsGiveWhatTheirOperationsGive) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> spaces = {
      {0, 5},   {5, 0},    {1, 1},    {1, 7},    {7, 1},     {50, 2},  {60, 4},
      {33, 16}, {3, 5},    {13, 17},  {64, 64},  {97, 31},   {40, 96}, {9, 200},
      {300, 3}, {5, 1000}, {2, 2049}, {3, 4099}, {1, 10007}, {2, 8192}};
  const std::vector<std::vector<DType>> dtypes = {
      {f32, f32, bool_}, {f32, f64, i32}, {bf16, f32},    {f16, f32, bool_},
      {i32, i64, bool_}, {u8, i16, f32},  {f64, i8, u64}, {f32}};
  std::uint64_t seed = 1;
  for (const auto& [rows, cols] : spaces) {
    for (const auto& types : dtypes) {
      for (const int ops : {2, 6, 14}) {
        check(Maker(seed++, rows, cols, types).make(ops));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(FusedKernels, LargePrograms) {
  std::uint64_t seed = 5000;
  for (const auto& [rows, cols] :
       {std::pair{600, 1024}, std::pair{1, 700001}, std::pair{12, 65536}, std::pair{70001, 8}}) {
    for (const int ops : {5, 10}) {
      check(Maker(seed++, rows, cols, {f32, f32, bool_}).make(ops));
      if (HasFailure()) return;
    }
  }
}

// Every operation of a chain in every form, one after another.
TEST(FusedKernels, ChainsGiveWhatTheirOperationsGive) {
  Random random(7);
  const std::vector<const Primitive*> binary = {&add_p, &sub_p, &mul_p, &div_p, &max_p, &min_p};
  const std::vector<const Primitive*> unary = {&neg_p, &abs_p, &square_p, &sqrt_p};
  for (const auto& [rows, cols] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {1, 63}, {1, 64}, {1, 127}, {1, 128}, {1, 1025}, {3, 4096}, {5, 2050}}) {
    for (const Primitive* only : binary) {
      Case c;
      c.program = std::make_shared<FusedProgram>(rows, cols);
      FusedProgram& p = *c.program;
      const Shape shape = {rows, cols};
      const auto input = [&](FusedKind kind, const Shape& of) {
        c.operands.push_back(random.values(f32, of));
        return std::pair{p.add_input(f32, kind), c.operands.back()};
      };
      std::pair<int, Array> y = input(FusedKind::full, shape);
      const auto full = input(FusedKind::full, shape), one = input(FusedKind::scalar, {1, 1});
      const auto apply = [&](const Primitive& primitive, std::pair<int, Array> a,
                             std::pair<int, Array> b) {
        y.first = p.add_map(primitive, {a.first, b.first});
        y.second = bind(primitive, broadcast_to(a.second, shape), broadcast_to(b.second, shape),
                        no_params, {});
      };
      for (const Primitive* other : {only, binary[std::size_t(random.below(6))]}) {
        apply(*other, y, full);
        apply(*only, one, y);
        apply(*other, y, y);
        apply(*only, full, y);
        apply(*other, y, one);
        const Primitive& next = *random.one_of(unary);
        y.first = p.add_map(next, {y.first});
        y.second = bind(next, y.second, no_params, {});
      }
      p.add_output(y.first, ShapedArray(shape, f32));
      c.results.push_back(y.second);
      check(c);
      if (HasFailure()) return;
    }
  }
}

TEST(FusedKernels, LongChainsAreCut) {
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
  check(c);
  const cpu::FusedStepList list = cpu::make_fused_steps(*c.program, cpu::FusedWrite::plain);
  EXPECT_EQ(list.steps.size(), cpu::chain_kernel() ? 3u : std::size_t{kLinks});
}

TEST(FusedKernels, AChainTakesTheMemoryOfADonatedOperand) {
  FusedProgram program(1, 1000);
  const int x = program.add_input(f32, FusedKind::full);
  program.add_output(program.add_map(neg_p, {program.add_map(exp_p, {x})}),
                     ShapedArray({1000}, f32));
  EXPECT_TRUE(cpu::make_fused_steps(program, cpu::FusedWrite::plain).may_overwrite[0]);
}

TEST(FusedKernels, AnOperandReadAfterTheResultIsNotOverwritten) {
  FusedProgram program(1, 1000);
  const int x = program.add_input(f32, FusedKind::full);
  const int y = program.add_map(exp_p, {x});
  const int z = program.add_map(add_p, {y, x});
  program.add_output(y, ShapedArray({1000}, f32));
  program.add_output(z, ShapedArray({1000}, f32));
  EXPECT_FALSE(cpu::make_fused_steps(program, cpu::FusedWrite::plain).may_overwrite[0]);
}

TEST(FusedProgram, PrintsItself) {
  FusedProgram program(4, 8);
  const int x = program.add_input(f32, FusedKind::full);
  const int scale = program.add_input(f32, FusedKind::col);
  const float two = 2;
  const int doubled = program.add_map(mul_p, {x, program.add_literal(f32, &two)});
  const int most = program.add_reduce(reduce_max_p, doubled);
  const int less = program.add_map(sub_p, {doubled, most});
  const int half = program.add_map(convert_element_type_p, {program.add_map(mul_p, {less, scale})},
                                   std::make_shared<ConvertParams>(bf16));
  program.add_output(half, ShapedArray({4, 8}, bf16));
  program.add_output(most, ShapedArray({4}, f32));
  EXPECT_EQ(program.text(),
            "[4,8] (a:f32 b:f32/col) c:f32 = mul a 2.0; d:f32/row = reduce_max c; e:f32 = sub c d; "
            "f:f32 = mul e b; g:bf16 = convert_element_type[new_dtype=bfloat16 weak_type=False] f "
            "-> g d");
}

TEST(FusedProgram, RefusesWhatDoesNotFit) {
  FusedProgram program(4, 8);
  const int x = program.add_input(f32, FusedKind::full);
  const int n = program.add_input(i32, FusedKind::full);
  EXPECT_THROW(program.add_map(add_p, {x, n}), TypeError);
  EXPECT_THROW(program.add_output(x, ShapedArray({4, 8}, f32)), ValueError);
  const int most = program.add_reduce(reduce_max_p, x);
  EXPECT_THROW(program.add_reduce(reduce_max_p, most), ValueError);
  EXPECT_THROW(program.add_output(most, ShapedArray({5}, f32)), ValueError);
  EXPECT_THROW(program.add_broadcast(x, FusedKind::row), ValueError);
}

}  // namespace
}  // namespace shmap
