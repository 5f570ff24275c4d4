#include "core/ops/attention_grad.h"

#include "shmap/error.h"

namespace shmap {

namespace {

void check_count(const char* what, Types in, std::size_t wanted) {
  if (in.size() == wanted) return;
  throw ValueError(std::string(what) + ": " + std::to_string(in.size()) +
                   " operands were given, and " + std::to_string(wanted) + " are wanted");
}

ShapedArray plain(const ShapedArray& t) {
  return ShapedArray(t.shape(), t.dtype(), false, AxisSet());
}

void check_like(const char* what, const ShapedArray& t, const ShapedArray& wanted) {
  if (t.shape() == wanted.shape() && t.dtype() == wanted.dtype()) return;
  throw ValueError(std::string(what) + ": an operand has type " + to_string(t) + ", and " +
                   to_string(plain(wanted)) + " is wanted");
}

// Checks the operands and the kept results of attention.
void check_kept(const char* what, Types in, const AttentionParams& p) {
  const std::size_t count = attention_operands(p);
  AttentionParams keeps = p;
  keeps.keeps_sums = true;
  ShapedArray results[2];
  attention_p.abstract_eval(in.first(count), keeps, std::span<ShapedArray>(results));
  for (std::size_t i = 0; i < 2; ++i) check_like(what, in[count + i], results[i]);
}

void eval_tangent(Types in, const Params& params, std::span<ShapedArray> out) {
  const AttentionParams& p = params_as<AttentionParams>(params);
  const std::size_t first = attention_operands(p);
  check_count("attention_tangent", in, first + 2 + p.tangents.size());
  check_kept("attention_tangent", in, p);
  for (std::size_t i = 0; i < p.tangents.size(); ++i)
    check_like("attention_tangent", in[first + 2 + i], in[static_cast<std::size_t>(p.tangents[i])]);
  out[0] = plain(in[first]);
}

void eval_grad(Types in, const Params& params, std::span<ShapedArray> out) {
  const AttentionParams& p = params_as<AttentionParams>(params);
  const std::size_t first = attention_operands(p);
  check_count("attention_grad", in, first + 3);
  check_kept("attention_grad", in, p);
  check_like("attention_grad", in[first + 2], in[first]);
  for (std::size_t i = 0; i < 3; ++i) out[i] = plain(in[i]);
}

// The cost of `depths` products over features of q, `v_depths` over features of v, and the scores.
Cost cost_of(Types in, const Params& params, Types out, double depths, double v_depths) {
  const AttentionExtents n = attention_extents(in, params_as<AttentionParams>(params));
  const double products =
      depths * static_cast<double>(n.depth) + v_depths * static_cast<double>(n.v_depth);
  Cost cost{static_cast<double>(n.scores.num_elements()) * (2 * products + 8), 0};
  for (const ShapedArray& t : in) cost.bytes += static_cast<double>(t.nbytes());
  for (const ShapedArray& t : out) cost.bytes += static_cast<double>(t.nbytes());
  return cost;
}
Cost tangent_cost(Types in, const Params& p, Types out) { return cost_of(in, p, out, 3, 2); }
Cost grad_cost(Types in, const Params& p, Types out) { return cost_of(in, p, out, 3, 2); }
double tangent_flops(Types in, const Params& p, Types out) {
  return tangent_cost(in, p, out).flops;
}
double grad_flops(Types in, const Params& p, Types out) { return grad_cost(in, p, out).flops; }

// The factors of the sharding rules: batch dims, rows of q, rows of k, features of q and k,
// features of v, and the two sums.
class Factors {
 public:
  Factors(Types in, const AttentionParams& p, std::size_t results) : p_(p) {
    const AttentionExtents n = attention_extents(in, p);
    for (std::int64_t e : n.scores) rule_.factors.push_back({e, FactorKind::pass});
    const auto blocked = [&](std::int64_t size) {
      rule_.factors.push_back({size, FactorKind::blocked});
      return static_cast<int>(rule_.factors.size()) - 1;
    };
    columns_ = static_cast<int>(n.scores.size()) - 1;
    rows_ = columns_ - 1;
    rule_.factors[static_cast<std::size_t>(columns_)].kind = FactorKind::blocked;
    if (p.causal) block_rows();
    depth_ = blocked(n.depth);
    v_depth_ = blocked(n.v_depth);
    sums_ = blocked(2);
    for (const ShapedArray& t : in) rule_.operands.emplace_back(static_cast<std::size_t>(t.rank()));
    place(rule_.operands[0], p.q_dims, rows_, depth_);
    place(rule_.operands[1], p.k_dims, columns_, depth_);
    place(rule_.operands[2], p.v_dims, columns_, v_depth_);
    if (const int i = attention_bias(p); i >= 0)
      place(rule_.operands[static_cast<std::size_t>(i)], p.bias_dims, rows_, columns_);
    if (const int i = attention_mask(p); i >= 0)
      place(rule_.operands[static_cast<std::size_t>(i)], p.mask_dims, rows_, columns_);
    rule_.results.resize(results);
  }
  using Side = std::vector<std::vector<int>>;
  // The gradients of k and v add up over the rows of q, and over the heads that share k and v.
  void block_rows() { rule_.factors[static_cast<std::size_t>(rows_)].kind = FactorKind::blocked; }
  void block_shared() {
    for (std::size_t i = 0; i + 2 < p_.k_dims.size(); ++i)
      if (p_.k_dims[i] < 0) rule_.factors[i].kind = FactorKind::blocked;
  }
  void like_out(Side& side) {
    side.resize(p_.out_dims.size());
    place(side, p_.out_dims, rows_, v_depth_);
  }
  void like_sums(Side& side) {
    side.clear();
    for (int i = 0; i < rows_; ++i) side.push_back({i});
    side.push_back({sums_});
    side.push_back({rows_});
  }
  FactorRule rule_;

 private:
  static void place(Side& side, const Dims& dims, int row, int last) {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] < 0) continue;
      const int factor = i + 2 == dims.size()   ? row
                         : i + 1 == dims.size() ? last
                                                : static_cast<int>(i);
      side[static_cast<std::size_t>(dims[i])] = {factor};
    }
  }
  const AttentionParams& p_;
  int rows_, columns_, depth_, v_depth_, sums_;
};

FactorRule attention_sharding(Types in, const Params& params, Types) {
  const AttentionParams& p = params_as<AttentionParams>(params);
  Factors f(in, p, p.keeps_sums ? 2 : 1);
  f.like_out(f.rule_.results[0]);
  if (p.keeps_sums) f.like_sums(f.rule_.results[1]);
  return std::move(f.rule_);
}

FactorRule tangent_sharding(Types in, const Params& params, Types) {
  const AttentionParams& p = params_as<AttentionParams>(params);
  Factors f(in, p, 1);
  const std::size_t first = attention_operands(p);
  f.like_out(f.rule_.operands[first]);
  f.like_sums(f.rule_.operands[first + 1]);
  for (std::size_t i = 0; i < p.tangents.size(); ++i)
    f.rule_.operands[first + 2 + i] = f.rule_.operands[static_cast<std::size_t>(p.tangents[i])];
  f.like_out(f.rule_.results[0]);
  return std::move(f.rule_);
}

FactorRule grad_sharding(Types in, const Params& params, Types) {
  const AttentionParams& p = params_as<AttentionParams>(params);
  Factors f(in, p, 3);
  f.block_rows();
  f.block_shared();
  const std::size_t first = attention_operands(p);
  f.like_out(f.rule_.operands[first]);
  f.like_sums(f.rule_.operands[first + 1]);
  f.like_out(f.rule_.operands[first + 2]);
  for (std::size_t i = 0; i < 3; ++i) f.rule_.results[i] = f.rule_.operands[i];
  return std::move(f.rule_);
}

}  // namespace

constinit Primitive attention_tangent_p = [] {
  Primitive p;
  p.name = "attention_tangent";
  p.abstract_eval = eval_tangent;
  p.cost = tangent_cost;
  p.flops = tangent_flops;
  p.sharding = Rule<ShardingRuleFn>(tangent_sharding);
  return p;
}();

constinit Primitive attention_grad_p = [] {
  Primitive p;
  p.name = "attention_grad";
  p.abstract_eval = eval_grad;
  p.result_count = [](Types, const Params&) { return 3; };
  p.cost = grad_cost;
  p.flops = grad_flops;
  p.sharding = Rule<ShardingRuleFn>(grad_sharding);
  return p;
}();

// The rules that call other operations are set in core/transforms/attention/attention_rules.cpp.
void register_attention_grad() {
  attention_p.sharding = Rule<ShardingRuleFn>(attention_sharding);
  register_primitive(attention_tangent_p);
  register_primitive(attention_grad_p);
}

}  // namespace shmap
