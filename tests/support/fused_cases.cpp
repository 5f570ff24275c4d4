#include "tests/support/fused_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"
#include "shmap/shmap.h"

namespace shmap::testing {

Bytes bytes_of(const Array& x) {
  if (x.dtype() == DType::prng_key) return bytes_of(bind(random_unwrap_p, x, no_params, {}));
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
  // Copies integers of the same width, whatever the dtype.
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

static bool is_nan(DType dtype, const std::byte* p) {
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

Array Random::values(DType dtype, const Shape& shape) {
  std::vector<double> out(static_cast<std::size_t>(shape.num_elements()));
  for (double& x : out) {
    x = std::uniform_real_distribution<>(-4, 4)(engine_);
    if (is_unsigned_int(dtype) || dtype == bool_) x = std::abs(x);
    if (is_floating(dtype) && chance(0.01)) x = chance(0.5) ? HUGE_VAL : -0.0;
  }
  return astype(array<double>(out, shape), dtype);
}

namespace {

class Maker {
 public:
  Maker(std::uint64_t seed, const FusedCaseOptions& options)
      : random_(seed),
        rows_(options.rows),
        cols_(options.cols),
        dtypes_(options.dtypes),
        sums_of_floats_(options.sums_of_floats) {}

  FusedCase make(int ops) {
    made_.program = std::make_shared<FusedProgram>(rows_, cols_);
    for (int k = random_.below(3); k >= 0; --k) add_input(FusedKind::full);
    for (int k = random_.below(3); k > 0; --k)
      add_input(random_.one_of(std::vector{FusedKind::row, FusedKind::col, FusedKind::scalar}));
    for (int k = random_.below(6) - 3; k > 0; --k) add_repeated();
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
  // An operand whose rows serve again, full or of rows.
  void add_repeated() {
    if (rows_ < 2) return;
    const auto divisor = [&](std::int64_t n) {
      std::vector<std::int64_t> of_n;
      for (std::int64_t d = 1; d <= n; ++d)
        if (n % d == 0) of_n.push_back(d);
      return random_.one_of(of_n);
    };
    const DType dtype = random_.one_of(dtypes_);
    const FusedKind kind = random_.chance(0.7) ? FusedKind::full : FusedKind::row;
    const std::int64_t every = random_.chance(0.4) ? 1 : divisor(rows_),
                       count = divisor(rows_ / every), cols = kind == FusedKind::full ? cols_ : 1;
    p().add_repeated(dtype, kind, {every, count});
    const Array x = random_.values(dtype, {1, count, 1, cols});
    values_.push_back(
        reshape(broadcast_to(x, {rows_ / every / count, count, every, cols}), {rows_, cols}));
    made_.operands.push_back(x);
  }
  void add_literal() {
    const DType dtype = random_.one_of(dtypes_);
    const Array x = random_.values(dtype, {});
    p().add_literal(dtype, bytes_of(x).data());
    values_.push_back(x);
  }
  int any() {
    int v = any_value();
    while (p().dtype(v) == DType::prng_key) v = any_value();
    return v;
  }
  int any_value() {  // prefers late values
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
      switch (random_.below(8)) {
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
        case 6:
          return draw(random_.chance(0.5) ? FusedKind::row : FusedKind::scalar);
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
    values_.push_back(shmap::bind(primitive, in, params ? *params : no_params, {}));
    return true;
  }
  bool reduce(const Primitive& primitive, int x) {
    if (p().kind(x) != FusedKind::full) return false;
    const bool sums = &primitive == &reduce_sum_p || &primitive == &reduce_prod_p;
    if (sums && !sums_of_floats_ && is_floating(p().dtype(x))) return false;
    const Array in = values_[static_cast<std::size_t>(x)];
    Array out = shmap::reduce(primitive, in, Dims{1}, true, {});
    p().add_reduce(primitive, x);
    values_.push_back(std::move(out));
    return true;
  }
  // Random bits of a key, or of a key for each row; now and then a block of a larger array.
  bool draw(FusedKind keys) {
    auto params = std::make_shared<RandomBitsParams>();
    params->bit_width = random_.one_of(std::vector{8, 16, 32, 64});
    params->shape = keys == FusedKind::row ? Shape{cols_} : Shape{rows_, cols_};
    const Shape each = keys == FusedKind::row ? Shape{rows_} : Shape();
    std::vector<Array> operands;
    const auto add = [&](const Array& x) {
      values_.push_back(reshape(x, shape(keys)));
      made_.operands.push_back(values_.back());
      operands.push_back(x);
      return p().add_input(x.dtype(), keys);
    };
    Shape words = each;
    words.push_back(2);
    std::vector<int> in = {
        add(bind(random_wrap_p, astype(random_.values(f32, words) * 1e6f, u32), no_params, {}))};
    if (random_.chance(0.4)) {
      if (keys == FusedKind::scalar) params->of = {rows_ + 2, cols_ + 5};
      in.push_back(add(astype(random_.values(u8, each), i64)));
    }
    p().add_draw(random_bits_p, in, params);
    values_.push_back(reshape(shmap::bind(random_bits_p, operands, *params, {}), {rows_, cols_}));
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
    // Takes the last possible values as results, so that little of the program is unused.
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
  bool sums_of_floats_;
  FusedCase made_;
  std::vector<Array> values_;
};

}  // namespace

FusedCase random_fused_case(std::uint64_t seed, const FusedCaseOptions& options) {
  return Maker(seed, options).make(options.ops);
}

std::string run_fused_case(const FusedCase& c) {
  std::vector<Array> in;
  for (const Array& x : c.operands) {
    Array copy[3] = {Array(true), x, x};
    in.push_back(bind(select_n_p, copy, no_params, {}));
  }
  const std::vector<Array> out = bind_all(fused_p, in, FusedParams(c.program), {});
  for (std::size_t o = 0; o < out.size(); ++o) {
    const std::string differs =
        difference(out[o].dtype(), bytes_of(out[o]), bytes_of(c.results[o]));
    if (!differs.empty())
      return differs + ", output " + std::to_string(o) + " of " + c.program->text();
  }
  return {};
}

}  // namespace shmap::testing
