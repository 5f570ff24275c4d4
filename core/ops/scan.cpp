#include "core/ops/scan.h"

#include "core/ops/batch_rules.h"
#include "core/ops/promote.h"
#include "core/ops/scan_rules.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

void eval_scan(Types in, const Params& params, std::span<ShapedArray> out, const char* what,
               Domain domain) {
  const std::int64_t axis = params_as<ScanParams>(params).axis;
  if (!in_domain(in[0].dtype(), domain)) {
    throw TypeError(std::string(what) + ": an operand of type " + to_string(in[0]) + ": wanted " +
                    domain_words(domain) + "; convert it with astype");
  }
  if (axis < 0 || axis >= in[0].rank()) {
    throw ValueError(std::string(what) + ": axis " + std::to_string(axis) +
                     " of an operand of type " + to_string(in[0]) +
                     ": wanted a dim from 0 to the rank less 1");
  }
  out[0] = in[0].with_axes(AxisSet());
}

#define SHMAP_EVAL(name, domain)                                                 \
  void eval_##name(Types in, const Params& params, std::span<ShapedArray> out) { \
    eval_scan(in, params, out, #name, Domain::domain);                           \
  }
SHMAP_CUMULATIVES(SHMAP_EVAL)
#undef SHMAP_EVAL

// Each running result depends on the one before it, which prevents vectorisation.
Cost scan_cost(Types in, const Params&, Types) {
  const auto n = static_cast<double>(in[0].size());
  return {50 * n, 2 * n * itemsize(in[0].dtype())};
}

FactorRule scan_sharding(Types in, const Params& params, Types) {
  const std::int64_t axis = params_as<ScanParams>(params).axis;
  FactorRule rule;
  rule.operands.resize(1);
  for (int d = 0; d < in[0].rank(); ++d) {
    rule.factors.push_back({in[0].dims()[static_cast<std::size_t>(d)],
                            d == axis ? FactorKind::blocked : FactorKind::pass});
    rule.operands[0].push_back({d});
  }
  rule.results = rule.operands;
  return rule;
}

constexpr Primitive cumulative(
    const char* name, AbstractEvalFn eval, JvpFn jvp,
    Rule<TransposeFn> transpose = Rule<TransposeFn>::none("it is not linear")) {
  Primitive p;
  p.name = name;
  p.abstract_eval = eval;
  p.cost = scan_cost;
  p.flops = [](Types in, const Params&, Types) { return static_cast<double>(in[0].size()); };
  p.in_place = true;
  p.sharding = Rule<ShardingRuleFn>(scan_sharding);
  p.jvp = jvp;
  p.transpose = transpose;
  p.batching = Rule<BatchFn>(batch_cumulative);
  return p;
}

}  // namespace

constinit Primitive cumsum_p = cumulative("cumsum", eval_cumsum, jvp_linear, transpose_cumsum);
constinit Primitive cumprod_p = cumulative("cumprod", eval_cumprod, jvp_cumprod);
constinit Primitive cummax_p = cumulative("cummax", eval_cummax, jvp_cummax);
constinit Primitive cummin_p = cumulative("cummin", eval_cummin, jvp_cummin);
constinit Primitive cumlogsumexp_p =
    cumulative("cumlogsumexp", eval_cumlogsumexp, jvp_cumlogsumexp);

void register_scan() {
#define SHMAP_REGISTER(name, domain) register_primitive(name##_p);
  SHMAP_CUMULATIVES(SHMAP_REGISTER)
#undef SHMAP_REGISTER
}

// ---- user functions

namespace {

Array scan(const Primitive& p, Operand&& x, int axis, bool bools_count) {
  const ShapedArray& type = type_of(x, p.name);
  int dim = 0;
  try {
    dim = normalize_dim(axis, type.rank(), p.name);
  } catch (const ValueError& e) {
    throw ValueError(e.what() + at_line(x.source));
  }
  const bool as_int = bools_count && type.dtype() == DType::bool_;
  Array value = as_int ? convert(std::move(x.value), DType::i32, x.source) : std::move(x.value);
  return bind(p, std::move(value), ScanParams(dim), x.source);
}

}  // namespace

Array cumsum(Operand x, int axis) { return scan(cumsum_p, std::move(x), axis, true); }
Array cumprod(Operand x, int axis) { return scan(cumprod_p, std::move(x), axis, true); }
Array cummax(Operand x, int axis) { return scan(cummax_p, std::move(x), axis, false); }
Array cummin(Operand x, int axis) { return scan(cummin_p, std::move(x), axis, false); }
Array cumlogsumexp(Operand x, int axis) {
  promote_inexact(x, "cumlogsumexp");
  return scan(cumlogsumexp_p, std::move(x), axis, false);
}

}  // namespace shmap
