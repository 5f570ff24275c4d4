#include "core/ops/reduce.h"

#include <limits>
#include <utility>

#include "core/base/float_format.h"
#include "core/ops/batch_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/reduce_rules.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

std::uint32_t mask_of(const Dims& axes) {
  std::uint32_t mask = 0;
  for (std::int64_t d : axes) mask |= 1u << d;
  return mask;
}

void check_axes(const ShapedArray& in, const Dims& axes, const char* what) {
  std::int64_t last = -1;
  for (std::int64_t d : axes) {
    if (d <= last || d >= in.rank()) {
      throw ValueError(std::string(what) + ": " + to_string(ReduceParams(axes)) +
                       " of an operand of type " + to_string(in) +
                       ": wanted ascending dims, each given once, from 0 to the rank less 1");
    }
    last = d;
  }
}

void check_domain(const char* what, const ShapedArray& in, Domain domain) {
  if (in_domain(in.dtype(), domain)) return;
  throw TypeError(std::string(what) + ": an operand of type " + to_string(in) + ": wanted " +
                  domain_words(domain) + "; convert it with astype");
}

void eval_reduce(Types in, const Params& params, std::span<ShapedArray> out, const char* what) {
  const Dims& axes = params_as<ReduceParams>(params).axes;
  check_axes(in[0], axes, what);
  out[0] = ShapedArray(reduced_shape(in[0].dims(), axes), in[0].dtype(), in[0].weak(), AxisSet());
}

#define SHMAP_EVAL(name, domain, primitive)                                           \
  void eval_##primitive(Types in, const Params& params, std::span<ShapedArray> out) { \
    check_domain(#primitive, in[0], Domain::domain);                                  \
    eval_reduce(in, params, out, #primitive);                                         \
  }
SHMAP_REDUCTIONS(SHMAP_EVAL)
#undef SHMAP_EVAL

void eval_arg(Types in, const Params& params, std::span<ShapedArray> out, const char* what) {
  const auto& p = params_as<ArgReduceParams>(params);
  check_domain(what, in[0], Domain::plain);
  if (p.axes.size() != 1) {
    throw ValueError(std::string(what) + ": " + std::to_string(p.axes.size()) +
                     " axes were given: wanted one; reshape first to search several dims");
  }
  check_axes(in[0], p.axes, what);
  if (p.index_dtype != DType::i32 && p.index_dtype != DType::i64) {
    throw TypeError(std::string(what) + ": index_dtype " + short_name(p.index_dtype) +
                    ": wanted i32 or i64");
  }
  const std::int64_t extent = in[0].dims()[static_cast<std::size_t>(p.axes[0])];
  if (extent == 0) {
    throw ValueError(std::string(what) + ": dim " + std::to_string(p.axes[0]) +
                     " of an operand of type " + to_string(in[0]) +
                     " is empty: there is no element to point to");
  }
  if (p.index_dtype == DType::i32 && extent > std::numeric_limits<std::int32_t>::max()) {
    throw ValueError(std::string(what) + ": dim " + std::to_string(p.axes[0]) + " has " +
                     std::to_string(extent) +
                     " elements, more than i32 indices can tell apart: search it in parts");
  }
  out[0] = ShapedArray(reduced_shape(in[0].dims(), p.axes), p.index_dtype, false, AxisSet());
}
void eval_argmax(Types in, const Params& params, std::span<ShapedArray> out) {
  eval_arg(in, params, out, "argmax");
}
void eval_argmin(Types in, const Params& params, std::span<ShapedArray> out) {
  eval_arg(in, params, out, "argmin");
}

// Each dim of the operand is a factor; reduced dims have the kind `kind` and are not in the result.
FactorRule reduction_rule(const ShapedArray& in, const Dims& axes, FactorKind kind) {
  FactorRule rule;
  rule.operands.resize(1);
  rule.results.resize(1);
  const std::uint32_t reduced = mask_of(axes);
  for (int d = 0; d < in.rank(); ++d) {
    const bool gone = reduced >> d & 1u;
    rule.factors.push_back(
        {in.dims()[static_cast<std::size_t>(d)], gone ? kind : FactorKind::pass});
    rule.operands[0].push_back({d});
    if (!gone) rule.results[0].push_back({d});
  }
  return rule;
}

template <FactorKind kind>
FactorRule reduce_sharding(Types in, const Params& params, Types) {
  return reduction_rule(in[0], params_as<ReduceParams>(params).axes, kind);
}
// For bools, `and` is the minimum and `or` the maximum; for integers the bitwise operations are
// neither.
FactorRule and_sharding(Types in, const Params& params, Types) {
  return reduction_rule(in[0], params_as<ReduceParams>(params).axes,
                        in[0].dtype() == DType::bool_ ? FactorKind::min : FactorKind::blocked);
}
FactorRule or_sharding(Types in, const Params& params, Types) {
  return reduction_rule(in[0], params_as<ReduceParams>(params).axes,
                        in[0].dtype() == DType::bool_ ? FactorKind::max : FactorKind::blocked);
}
FactorRule arg_sharding(Types in, const Params& params, Types) {
  return reduction_rule(in[0], params_as<ArgReduceParams>(params).axes, FactorKind::blocked);
}

constexpr Rule<TransposeFn> kNotLinear = Rule<TransposeFn>::none("it is not linear");
constexpr Rule<JvpFn> kOfBits =
    Rule<JvpFn>::none("it works on bits, and integers and bools have no tangents");

#define SHMAP_NAME(name, domain, primitive) #primitive,
constexpr const char* kReductionNames[] = {SHMAP_REDUCTIONS(SHMAP_NAME)};
#undef SHMAP_NAME

constexpr Primitive reducing(const char* name, AbstractEvalFn eval, ShardingRuleFn sharding,
                             Rule<JvpFn> jvp) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval;
  p.flops = [](Types in, const Params&, Types) { return static_cast<double>(in[0].size()); };
  p.sharding = Rule<ShardingRuleFn>(sharding);
  p.jvp = jvp;
  p.transpose = kNotLinear;
  return p;
}
constexpr Primitive reduction(Reduction kind, AbstractEvalFn eval, ShardingRuleFn sharding,
                              Rule<JvpFn> jvp, Rule<TransposeFn> transpose = kNotLinear) {
  Primitive p = reducing(kReductionNames[static_cast<int>(kind)], eval, sharding, jvp);
  p.reduction = kind;
  p.transpose = transpose;
  p.batching = Rule<BatchFn>(batch_reduce);
  return p;
}
constexpr Primitive arg_reduction(const char* name, AbstractEvalFn eval, ShardingRuleFn sharding,
                                  Rule<JvpFn> jvp) {
  Primitive p = reducing(name, eval, sharding, jvp);
  p.batching = Rule<BatchFn>(batch_arg_reduce);
  return p;
}

}  // namespace

Shape reduced_shape(const Shape& dims, const Dims& axes) {
  const std::uint32_t reduced = mask_of(axes);
  Shape out;
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (!(reduced >> d & 1u)) out.push_back(dims[d]);
  return out;
}

constinit Primitive reduce_sum_p =
    reduction(Reduction::sum, eval_reduce_sum, reduce_sharding<FactorKind::sum>, jvp_linear,
              transpose_reduce_sum);
constinit Primitive reduce_prod_p = reduction(
    Reduction::prod, eval_reduce_prod, reduce_sharding<FactorKind::blocked>, jvp_reduce_prod);
constinit Primitive reduce_max_p =
    reduction(Reduction::max, eval_reduce_max, reduce_sharding<FactorKind::max>, jvp_reduce_max);
constinit Primitive reduce_min_p =
    reduction(Reduction::min, eval_reduce_min, reduce_sharding<FactorKind::min>, jvp_reduce_min);
constinit Primitive reduce_and_p =
    reduction(Reduction::all, eval_reduce_and, and_sharding, kOfBits);
constinit Primitive reduce_or_p = reduction(Reduction::any, eval_reduce_or, or_sharding, kOfBits);
constinit Primitive argmax_p = arg_reduction("argmax", eval_argmax, arg_sharding, jvp_zero);
constinit Primitive argmin_p = arg_reduction("argmin", eval_argmin, arg_sharding, jvp_zero);

void register_reduce() {
#define SHMAP_REGISTER(name, domain, primitive) register_primitive(primitive##_p);
  SHMAP_REDUCTIONS(SHMAP_REGISTER)
#undef SHMAP_REGISTER
  register_primitive(argmax_p);
  register_primitive(argmin_p);
}

// ---- user functions

Dims reduction_axes(const Dims* axis, int rank, const char* what, SourceLine source) {
  Dims axes;
  if (axis) {
    try {
      axes = normalize_dims(*axis, rank, what);
    } catch (const ValueError& e) {
      throw ValueError(e.what() + at_line(source));
    }
  } else {
    for (int d = 0; d < rank; ++d) axes.push_back(d);
  }
  for (std::size_t i = 1; i < axes.size(); ++i)
    for (std::size_t k = i; k > 0 && axes[k] < axes[k - 1]; --k) std::swap(axes[k], axes[k - 1]);
  return axes;
}

Array keep_dims(Array x, const Dims& axes, SourceLine source) {
  if (axes.empty()) return x;
  return expand_dims(Operand(std::move(x), source.file, source.line), axes);
}

Array reduce(const Primitive& primitive, Array x, const Dims& axes, bool keepdims,
             SourceLine source) {
  if (axes.empty()) return x;
  Array out = bind(primitive, std::move(x), ReduceParams(axes), source);
  return keepdims ? keep_dims(std::move(out), axes, source) : out;
}

Array bind_joint(const Primitive& primitive, Array a, Array b, SourceLine source) {
  Operand x(std::move(a), source.file, source.line), y(std::move(b), source.file, source.line);
  promote(x, y, primitive.name);
  broadcast(x, y, primitive.name);
  return bind(primitive, std::move(x.value), std::move(y.value), no_params, source);
}

DType accumulation_dtype(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

Array mean_of(Array x, const Dims& axes, bool keepdims, SourceLine source) {
  const DType dtype = x.dtype();
  const DType wide = accumulation_dtype(dtype);
  const Shape dims = x.shape();
  double count = 1;  // as a float, since it is a divisor
  for (std::int64_t d : axes) count *= static_cast<double>(dims[static_cast<std::size_t>(d)]);
  Array total = reduce(reduce_sum_p, convert(std::move(x), wide, source), axes, keepdims, source);
  Array mean =
      bind(div_p, std::move(total), convert(Array(count), wide, source), no_params, source);
  return convert(std::move(mean), dtype, source);
}

namespace {

Operand operand(Array x, SourceLine source) {
  return Operand(std::move(x), source.file, source.line);
}

// A bool counts as the i32 0 or 1.
Array as_number(Operand&& x, const char* what) {
  const DType t = type_of(x, what).dtype();
  return convert(std::move(x.value), t == DType::bool_ ? DType::i32 : t, x.source);
}

Array reduce_numbers(const Primitive& p, Operand&& x, const Dims* axis, bool keepdims,
                     const char* what) {
  const Dims axes = reduction_axes(axis, type_of(x, what).rank(), what, x.source);
  const SourceLine source = x.source;
  return reduce(p, as_number(std::move(x), what), axes, keepdims, source);
}

Array reduce_extremum(const Primitive& p, Operand&& x, const Dims* axis, bool keepdims,
                      const char* what) {
  const ShapedArray type = type_of(x, what);
  const Dims axes = reduction_axes(axis, type.rank(), what, x.source);
  for (std::int64_t d : axes) {
    if (type.dims()[static_cast<std::size_t>(d)] == 0) {
      throw ValueError(std::string(what) + ": dim " + std::to_string(d) + " of an array of shape " +
                       to_string(type.dims()) + " is empty, and an empty dim has no " + what +
                       ": reduce dims that have elements" + at_line(x.source));
    }
  }
  return reduce(p, std::move(x.value), axes, keepdims, x.source);
}

Array reduce_truth(const Primitive& p, Operand&& x, const Dims* axis, bool keepdims,
                   const char* what) {
  const Dims axes = reduction_axes(axis, type_of(x, what).rank(), what, x.source);
  return reduce(p, convert(std::move(x.value), DType::bool_, x.source), axes, keepdims, x.source);
}

Array mean_over(Operand&& x, const Dims* axis, bool keepdims) {
  const Dims axes = reduction_axes(axis, type_of(x, "mean").rank(), "mean", x.source);
  promote_inexact(x, "mean");
  return mean_of(std::move(x.value), axes, keepdims, x.source);
}

// The mean of the squared differences from the mean.
Array var_over(Operand&& x, const Dims* axis, bool keepdims) {
  const SourceLine s = x.source;
  const Dims axes = reduction_axes(axis, type_of(x, "var").rank(), "var", s);
  promote_inexact(x, "var");
  const DType dtype = x.value.dtype();
  Array wide = convert(std::move(x.value), accumulation_dtype(dtype), s);
  Array mean = mean_of(wide, axes, true, s);
  Array centered = bind_joint(sub_p, std::move(wide), std::move(mean), s);
  Array squares = bind(square_p, std::move(centered), no_params, s);
  return convert(mean_of(std::move(squares), axes, keepdims, s), dtype, s);
}

// log(sum(exp(x - m))) + m, where m is the maximum, or 0 where that is not finite. The result does
// not depend on m, which therefore has no derivative.
Array logsumexp_over(Operand&& x, const Dims* axis, bool keepdims) {
  const SourceLine s = x.source;
  const Dims axes = reduction_axes(axis, type_of(x, "logsumexp").rank(), "logsumexp", s);
  promote_inexact(x, "logsumexp");
  const DType dtype = x.value.dtype();
  const bool weak = x.value.type().weak();
  x.value = convert(std::move(x.value), accumulation_dtype(dtype), s, weak);
  const Array most = reduce(reduce_max_p, stop_gradient(x), axes, true, s);
  const Array zero = convert(Array(0.0), most.dtype(), s);
  Array in[3] = {bind(is_finite_p, most, no_params, s), zero, most};
  const Array shift = bind(select_n_p, in, no_params, s);
  Array shifted = bind_joint(sub_p, std::move(x.value), shift, s);
  Array total = reduce(reduce_sum_p, bind(exp_p, std::move(shifted), no_params, s), axes, true, s);
  Array out = bind(add_p, bind(log_p, std::move(total), no_params, s), shift, no_params, s);
  out = convert(std::move(out), dtype, s, weak);
  if (keepdims || axes.empty()) return out;
  return squeeze(operand(std::move(out), s), axes);
}

Array arg_reduce(const Primitive& p, Operand&& x, const Dims* axis, bool keepdims) {
  const SourceLine s = x.source;
  const ShapedArray type = type_of(x, p.name);
  if (!axis) {
    Array flat = type.rank() == 1
                     ? std::move(x.value)
                     : reshape(operand(std::move(x.value), s), Shape{type.dims().num_elements()});
    return bind(p, std::move(flat), ArgReduceParams(Dims{0}, DType::i32), s);
  }
  const Dims axes = reduction_axes(axis, type.rank(), p.name, s);
  if (axes.size() != 1) {
    throw ValueError(std::string(p.name) + ": over " + std::to_string(axes.size()) +
                     " dims of an array of rank " + std::to_string(type.rank()) +
                     ": wanted one dim, or none for the index into the flattened array" +
                     at_line(s));
  }
  Array out = bind(p, std::move(x.value), ArgReduceParams(axes, DType::i32), s);
  return keepdims ? keep_dims(std::move(out), axes, s) : out;
}

Array sum_over(Operand&& x, const Dims* axis, bool keepdims) {
  return reduce_numbers(reduce_sum_p, std::move(x), axis, keepdims, "sum");
}
Array prod_over(Operand&& x, const Dims* axis, bool keepdims) {
  return reduce_numbers(reduce_prod_p, std::move(x), axis, keepdims, "prod");
}
Array max_over(Operand&& x, const Dims* axis, bool keepdims) {
  return reduce_extremum(reduce_max_p, std::move(x), axis, keepdims, "max");
}
Array min_over(Operand&& x, const Dims* axis, bool keepdims) {
  return reduce_extremum(reduce_min_p, std::move(x), axis, keepdims, "min");
}
Array any_over(Operand&& x, const Dims* axis, bool keepdims) {
  return reduce_truth(reduce_or_p, std::move(x), axis, keepdims, "any");
}
Array all_over(Operand&& x, const Dims* axis, bool keepdims) {
  return reduce_truth(reduce_and_p, std::move(x), axis, keepdims, "all");
}
Array argmax_over(Operand&& x, const Dims* axis, bool keepdims) {
  return arg_reduce(argmax_p, std::move(x), axis, keepdims);
}
Array argmin_over(Operand&& x, const Dims* axis, bool keepdims) {
  return arg_reduce(argmin_p, std::move(x), axis, keepdims);
}

}  // namespace

#define SHMAP_REDUCTION(name)                                                 \
  Array name(Operand x) { return name##_over(std::move(x), nullptr, false); } \
  Array name(Operand x, Dims axis, bool keepdims) {                           \
    return name##_over(std::move(x), &axis, keepdims);                        \
  }
SHMAP_REDUCTION(sum)
SHMAP_REDUCTION(prod)
SHMAP_REDUCTION(max)
SHMAP_REDUCTION(min)
SHMAP_REDUCTION(mean)
SHMAP_REDUCTION(var)
SHMAP_REDUCTION(any)
SHMAP_REDUCTION(all)
SHMAP_REDUCTION(argmax)
SHMAP_REDUCTION(argmin)
SHMAP_REDUCTION(logsumexp)
#undef SHMAP_REDUCTION

}  // namespace shmap
