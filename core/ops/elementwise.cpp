#include "core/ops/elementwise.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "core/ir/node.h"
#include "core/ops/batch_rules.h"
#include "core/ops/elementwise_rules.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "shmap/ops.h"

namespace shmap {

const Shape& elementwise_shape(Types in, const char* what) {
  const ShapedArray* widest = &in[0];
  for (const ShapedArray& t : in) {
    if (t.rank() == 0) continue;
    if (widest->rank() == 0) {
      widest = &t;
    } else if (!(t.dims() == widest->dims())) {
      throw TypeError(std::string(what) + ": operands of shapes " + to_string(widest->dims()) +
                      " and " + to_string(t.dims()) +
                      " do not match: elementwise operands have one shape, or are scalars");
    }
  }
  return widest->dims();
}

FactorRule elementwise_sharding(Types in, const Params&, Types out) {
  FactorRule rule;
  const auto per_dim = [](const ShapedArray& t) {
    std::vector<std::vector<int>> dims;
    for (int d = 0; d < t.rank(); ++d) dims.push_back({d});
    return dims;
  };
  for (std::int64_t e : out[0].dims()) rule.factors.push_back({e, FactorKind::pass});
  for (const ShapedArray& t : in) rule.operands.push_back(per_dim(t));
  rule.results.push_back(per_dim(out[0]));
  return rule;
}

namespace {

void check_same_dtype(Types in, const char* what) {
  for (const ShapedArray& t : in) {
    if (t.dtype() != in[0].dtype()) {
      throw TypeError(std::string(what) + ": operands of dtypes " + short_name(in[0].dtype()) +
                      " and " + short_name(t.dtype()) + ": convert one with astype");
    }
  }
}

void check_domain(const ShapedArray& t, Domain domain, const char* what) {
  if (in_domain(t.dtype(), domain)) return;
  throw TypeError(std::string(what) + ": an operand of type " + to_string(t) + ": wanted " +
                  domain_words(domain) +
                  (t.dtype() == DType::prng_key
                       ? ": a random key is not a number, and has no arithmetic"
                       : "; convert it with astype"));
}

// The shape of a result, and whether its type is weak.
struct Joined {
  const Shape& shape;
  bool weak;
};

[[gnu::noinline]] Joined join_unlike(Types in, const char* name, Domain domain, bool weak) {
  check_domain(in[0], domain, name);
  check_same_dtype(in, name);
  return {elementwise_shape(in, name), weak};
}

// Most operands are alike, so that one look at each of them is enough.
inline Joined join_operands(Types in, const char* name, Domain domain) {
  bool alike = in_domain(in[0].dtype(), domain), weak = in[0].weak();
  for (const ShapedArray& t : in.subspan(1)) {
    alike = alike && t.dtype() == in[0].dtype() && t.dims() == in[0].dims();
    weak = weak && t.weak();
  }
  if (!alike) [[unlikely]]
    return join_unlike(in, name, domain, weak);
  return {in[0].dims(), weak};
}

void eval_same(Types in, std::span<ShapedArray> out, const char* name, Domain domain) {
  const Joined joined = join_operands(in, name, domain);
  std::construct_at(&out[0], joined.shape, in[0].dtype(), joined.weak, AxisSet());
}
void eval_bool(Types in, std::span<ShapedArray> out, const char* name, Domain domain) {
  std::construct_at(&out[0], join_operands(in, name, domain).shape, DType::bool_, false, AxisSet());
}

// One abstract_eval for each primitive, so that errors have its name.
#define SHMAP_EVAL_SAME(op, domain, ...)                                \
  void eval_##op(Types in, const Params&, std::span<ShapedArray> out) { \
    eval_same(in, out, op##_p.name, Domain::domain);                    \
  }
#define SHMAP_EVAL_BOOL(op, domain, ...)                                \
  void eval_##op(Types in, const Params&, std::span<ShapedArray> out) { \
    eval_bool(in, out, op##_p.name, Domain::domain);                    \
  }
SHMAP_UNARY_OPS(SHMAP_EVAL_SAME)
SHMAP_BINARY_OPS(SHMAP_EVAL_SAME)
SHMAP_PREDICATE_OPS(SHMAP_EVAL_BOOL)
SHMAP_COMPARE_OPS(SHMAP_EVAL_BOOL)

void eval_select_n(Types in, const Params&, std::span<ShapedArray> out) {
  if (in[0].dtype() != DType::bool_) {
    throw TypeError(std::string("select: the predicate has dtype ") + short_name(in[0].dtype()) +
                    ": it must be bool, so compare it with something");
  }
  check_same_dtype(in.subspan(1), "select");
  out[0] = ShapedArray(elementwise_shape(in, "select"), in[1].dtype(), in[1].weak() && in[2].weak(),
                       AxisSet());
}

void eval_clamp(Types in, const Params&, std::span<ShapedArray> out) {
  eval_same(in, out, "clamp", Domain::plain);
  if (!(in[1].dims() == out[0].dims())) {
    throw ValueError("clamp: an operand of type " + to_string(in[1]) + " and bounds of types " +
                     to_string(in[0]) + " and " + to_string(in[2]) +
                     ": a bound is a scalar or has the operand's shape; broadcast the operand");
  }
}

void eval_convert(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<ConvertParams>(params);
  if (in[0].dtype() == DType::prng_key || p.new_dtype == DType::prng_key) {
    throw TypeError(std::string("astype: ") + to_string(in[0]) + " to " + short_name(p.new_dtype) +
                    ": random keys are not numbers, and are not converted to or from them");
  }
  out[0] = ShapedArray(in[0].dims(), p.new_dtype, p.weak_type, AxisSet());
}

void eval_bitcast(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<ConvertParams>(params);
  const int from = itemsize(in[0].dtype()), to = itemsize(p.new_dtype);
  const auto text = [&] {
    return "bitcast: from a value of type " + to_string(in[0]) + " to " + short_name(p.new_dtype);
  };
  if (p.new_dtype == DType::bool_ && in[0].dtype() != DType::bool_) {
    throw TypeError(text() + ": only the bytes 0 and 1 are bools; compare with 0 instead");
  }
  Shape shape = in[0].dims();
  if (from > to) shape.push_back(from / to);
  if (from < to) {
    if (shape.empty() || shape.back() != to / from) {
      throw ValueError(text() + ": an element is made of " + std::to_string(to / from) +
                       " narrower ones, and the last dim must have as many");
    }
    shape.resize(shape.size() - 1);
  }
  out[0] = ShapedArray(shape, p.new_dtype, false, AxisSet());
}

void eval_stop_gradient(Types in, const Params&, std::span<ShapedArray> out) {
  out[0] = in[0].with_axes(AxisSet());
}

// Common dims are common factors. The last dim, which only one of the two has, is not split.
FactorRule shard_bitcast(Types in, const Params&, Types out) {
  FactorRule rule;
  const std::size_t common = std::min(in[0].dims().size(), out[0].dims().size());
  rule.operands.emplace_back(in[0].dims().size());
  rule.results.emplace_back(out[0].dims().size());
  for (std::size_t d = 0; d < common; ++d) {
    rule.factors.push_back({in[0].dims()[d], FactorKind::pass});
    rule.operands[0][d].push_back(static_cast<int>(d));
    rule.results[0][d].push_back(static_cast<int>(d));
  }
  return rule;
}

// Rates relative to a copy: a transcendental function costs tens of flops per element (a quarter of
// a nanosecond with vectors of 16, more with narrower vectors).
Cost heavy_cost(Types, const Params&, Types out) {
  const auto n = static_cast<double>(out[0].size());
  return {30 * n, 2 * n * itemsize(out[0].dtype())};
}

double one_a_value(Types, const Params&, Types out) { return static_cast<double>(out[0].size()); }

constexpr Primitive elementwise(const char* name, AbstractEvalFn eval, DerivativeRules rules,
                                const ElementwiseRow* row) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval;
  p.flops = one_a_value;
  p.elementwise = true;
  p.elementwise_row = row;
  p.in_place = true;
  p.sharding = Rule<ShardingRuleFn>(elementwise_sharding);
  p.jvp = rules.jvp;
  p.transpose = rules.transpose;
  p.batching = Rule<BatchFn>(batch_elementwise);
  return p;
}

}  // namespace

namespace elementwise_rows {
using Form = ElementwiseRow::Form;
#define SHMAP_ROW(name, form, Op) \
  constexpr ElementwiseRow name = {#name, Form::form, static_cast<std::uint8_t>(Op::name)};
#define SHMAP_UNARY_ROW(name, ...) SHMAP_ROW(name, unary, UnaryOp)
#define SHMAP_BINARY_ROW(name, ...) SHMAP_ROW(name, binary, BinaryOp)
#define SHMAP_COMPARE_ROW(name, ...) SHMAP_ROW(name, compare, CompareOp)
SHMAP_UNARY_OPS(SHMAP_UNARY_ROW)
SHMAP_PREDICATE_OPS(SHMAP_UNARY_ROW)
SHMAP_BINARY_OPS(SHMAP_BINARY_ROW)
SHMAP_COMPARE_OPS(SHMAP_COMPARE_ROW)
#undef SHMAP_UNARY_ROW
#undef SHMAP_BINARY_ROW
#undef SHMAP_COMPARE_ROW
#undef SHMAP_ROW
constexpr ElementwiseRow select_n = {"select_n", Form::select};
constexpr ElementwiseRow clamp = {"clamp", Form::clamp};
constexpr ElementwiseRow convert_element_type = {"cast", Form::convert};
constexpr ElementwiseRow bitcast_convert_type = {"same_bits", Form::bits};
}  // namespace elementwise_rows

// Names as jaxprs print them; C++ reserves `not`.
#define SHMAP_DEFINE(name, domain, ...) \
  constinit Primitive name##_p =        \
      elementwise(#name, eval_##name, elementwise_rules::name, &elementwise_rows::name);
SHMAP_UNARY_OPS(SHMAP_DEFINE)
SHMAP_PREDICATE_OPS(SHMAP_DEFINE)
SHMAP_BINARY_OPS(SHMAP_DEFINE)
SHMAP_COMPARE_OPS(SHMAP_DEFINE)
constinit Primitive select_n_p = elementwise("select_n", eval_select_n, elementwise_rules::select_n,
                                             &elementwise_rows::select_n);
constinit Primitive clamp_p =
    elementwise("clamp", eval_clamp, elementwise_rules::clamp, &elementwise_rows::clamp);
constinit Primitive convert_element_type_p =
    elementwise("convert_element_type", eval_convert, elementwise_rules::convert_element_type,
                &elementwise_rows::convert_element_type);
constinit Primitive bitcast_convert_type_p = [] {
  Primitive p;
  p.name = "bitcast_convert_type";
  p.abstract_eval = eval_bitcast;
  p.elementwise_row = &elementwise_rows::bitcast_convert_type;
  p.sharding = Rule<ShardingRuleFn>(shard_bitcast);
  p.batching = Rule<BatchFn>(batch_bitcast);
  p.view = view_whole;
  p.jvp = elementwise_rules::bitcast_convert_type.jvp;
  p.transpose = elementwise_rules::bitcast_convert_type.transpose;
  return p;
}();
constinit Primitive stop_gradient_p = [] {
  Primitive p =
      elementwise("stop_gradient", eval_stop_gradient, elementwise_rules::stop_gradient, nullptr);
  p.flops = nullptr;
  p.in_place = false;
  p.view = view_whole;
  return p;
}();

void register_elementwise() {
  clamp_p.batching = Rule<BatchFn>(batch_clamp);
  not__p.name = "not";
  bit_and_p.name = "and";
  bit_or_p.name = "or";
  bit_xor_p.name = "xor";
#define SHMAP_COST(name, domain, work, derivative) \
  if (Work::work == Work::heavy) name##_p.cost = heavy_cost;
  SHMAP_UNARY_OPS(SHMAP_COST)
  SHMAP_BINARY_OPS(SHMAP_COST)
#define SHMAP_REGISTER(name, domain, ...) register_primitive(name##_p);
  SHMAP_UNARY_OPS(SHMAP_REGISTER)
  SHMAP_PREDICATE_OPS(SHMAP_REGISTER)
  SHMAP_BINARY_OPS(SHMAP_REGISTER)
  SHMAP_COMPARE_OPS(SHMAP_REGISTER)
  for (Primitive* p :
       {&select_n_p, &clamp_p, &convert_element_type_p, &bitcast_convert_type_p, &stop_gradient_p})
    register_primitive(*p);
}

}  // namespace shmap
