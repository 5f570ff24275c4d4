#include "core/compiler/find_attention/traced_attention.h"

#include <algorithm>
#include <utility>

#include "core/compiler/find_attention/attention_match.h"
#include "core/compiler/passes/simplify.h"
#include "core/device/runtime.h"
#include "core/ops/dot.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// How many equations before the weights are examined, nearest first. Further equations, which
// compute a bias or a mask, count as arguments.
constexpr std::size_t kMostEquations = 96;

// Derivatives take the weights of masked scores for zero, which they are where the masked value is
// so far below the others. Masked scores themselves depend neither on q nor on k.
constexpr double kFarBelow = -1e4;

}  // namespace

TracedAttention::TracedAttention(Trace& parent) {
  if (!parent.staged() || parent.transforms()) return;
  takes_ = attention_check(runtime().backend().kind());
  if (takes_) program_ = dynamic_cast<JaxprTrace*>(&parent);
}

const Var* TracedAttention::var_of(const Array& x) const {
  const Node* node = node_of(x);
  if (!node || node->kind != NodeKind::tracer || node->trace != program_->id()) return nullptr;
  return static_cast<const TracerNode*>(node)->var.get();
}

void TracedAttention::remember_value(const Array& primal, const Array& dual) {
  if (const Var* v = var_of(primal)) duals_[v] = dual;
}

void TracedAttention::remember_operation(const Primitive& primitive, std::size_t operands,
                                         const Array& primal, std::uint64_t active) {
  if (const Var* v = var_of(primal)) operations_[v] = {&primitive, operands, active};
}

// Whether x may be the weights, by makers_: softmax ends in a division, perhaps followed by a
// conversion.
bool TracedAttention::may_be_weights(const Array& x) const {
  const Var* const v = var_of(x);
  const int* const maker = v ? makers_.find(v) : nullptr;
  if (!maker) return false;
  const Primitive* const p = program_->equations()[static_cast<std::size_t>(*maker - 1)].primitive;
  return p == &div_p || p == &convert_element_type_p;
}

void TracedAttention::index_makers() {
  const std::span<const Eqn> eqns = program_->equations();
  for (; indexed_ < eqns.size(); ++indexed_)
    for (const VarRef& v : eqns[indexed_].out) makers_[v.get()] = static_cast<int>(indexed_) + 1;
}

// Whether the operation was differentiated with respect to each operand that has a tangent.
bool TracedAttention::differentiates(const Eqn& eqn, const Operation* operation) const {
  if (operation && (operation->primitive != eqn.primitive || operation->operands != eqn.in.size() ||
                    operation->operands > 64))
    return false;
  for (std::size_t i = 0; i < eqn.in.size(); ++i) {
    const bool is_active = operation && (operation->active >> i & 1) != 0;
    const bool has_tangent = !eqn.in[i].is_literal() && duals_.find(eqn.in[i].var());
    if (has_tangent != is_active) return false;
  }
  return true;
}

// Whether all of these equations propagate tangents. The maximum of the scores may be a constant,
// because its share of the derivative is zero; equations that only compute the maximum are exempt.
bool TracedAttention::keeps_tangents(const std::vector<int>& places, const Eqn& product) const {
  const std::span<const Eqn> eqns = program_->equations();
  PointerMap<bool> for_more_than_greatest;
  const auto read = [&](const Eqn& e) {
    for (const Atom& a : e.in)
      if (!a.is_literal() && e.primitive != &reduce_max_p) for_more_than_greatest[a.var()] = true;
  };
  read(product);
  for (const int i : places) read(eqns[static_cast<std::size_t>(i)]);
  for (const int i : places) {
    const Eqn& e = eqns[static_cast<std::size_t>(i)];
    const Var* const made = e.out[0].get();
    const Operation* const operation = operations_.find(made);
    if (e.primitive == &reduce_max_p || !for_more_than_greatest.find(made)) continue;
    if (!differentiates(e, operation)) return false;
    if (operation && operation->active != 0 && !duals_.find(made)) return false;
  }
  return true;
}

// The numbers of the equations that may be part of attention, in order: equations before the
// weights, back to the operands of the scores, and transpositions of operands.
std::vector<int> TracedAttention::makers_of(std::span<const Atom> operands,
                                            std::span<const Array> primals) const {
  const std::span<const Eqn> eqns = program_->equations();
  struct Visit {
    const Atom* atom;
    bool is_operand;  // of a product: only transpositions of it are followed
  };
  std::vector<Visit> visits;
  for (std::size_t i = 0; i < 2; ++i) visits.push_back({&operands[i], !may_be_weights(primals[i])});
  std::vector<int> taken;
  PointerMap<bool> seen;
  for (std::size_t next = 0; next < visits.size() && taken.size() < kMostEquations; ++next) {
    const Visit visit = visits[next];
    if (visit.atom->is_literal()) continue;
    const int* const maker = makers_.find(visit.atom->var());
    if (!maker || seen.find(visit.atom->var())) continue;
    const Eqn& e = eqns[static_cast<std::size_t>(*maker - 1)];
    if (e.out.size() != 1 || e.primitive->group || has_effect(e) ||
        !inner_jaxprs(*e.params).empty() || (visit.is_operand && e.primitive != &transpose_p))
      continue;
    seen[visit.atom->var()] = true;
    taken.push_back(*maker - 1);
    const bool is_product = e.primitive == &dot_general_p;
    for (const Atom& a : e.in) visits.push_back({&a, visit.is_operand || is_product});
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

std::optional<TracedAttention::Call> TracedAttention::find(std::span<const Array> primals,
                                                           const Params& dot, std::uint64_t active,
                                                           SourceLine source) {
  index_makers();
  if (!may_be_weights(primals[0]) && !may_be_weights(primals[1])) return std::nullopt;
  Eqn product{&dot_general_p, {}, nullptr, {}, source};
  ShapedArray in_types[2], type;
  for (std::size_t i = 0; i < 2; ++i) {
    product.in.push_back(program_->atom(primals[i], "dot_general", source));
    in_types[i] = product.in[i].type();
  }
  if (!(in_types[0].axes() == in_types[1].axes())) return std::nullopt;
  infer_types(dot_general_p, in_types, dot, program_->axis_env(), {&type, 1});
  product.params = dot.clone();
  product.out.push_back(make_ref<const Var>(type));
  const Operation differentiated{&dot_general_p, 2, active};
  if (!differentiates(product, &differentiated)) return std::nullopt;
  const std::vector<int> places = makers_of(product.in, primals);
  if (places.empty() || !keeps_tangents(places, product)) return std::nullopt;

  std::vector<VarRef> binders;
  std::vector<Eqn> eqns;
  PointerMap<bool> made;
  const auto add = [&](const Eqn& e) {
    for (const Atom& a : e.in) {
      if (a.is_literal() || made.find(a.var())) continue;
      made[a.var()] = true;
      binders.push_back(a.ref());
    }
    for (const VarRef& v : e.out) made[v.get()] = true;
    eqns.push_back(e);
  };
  for (const int i : places) add(program_->equations()[static_cast<std::size_t>(i)]);
  add(product);
  const JaxprRef simple =
      simplify(*program_->part(std::move(binders), std::move(eqns), {Atom(product.out[0])}));
  const ProgramIndex index(*simple);
  const int last = index.maker(simple->outs[0]);
  if (last < 0 || index.eqn(last).primitive != &dot_general_p) return std::nullopt;
  auto match = match_attention(index, last, takes_);
  if (!match) return std::nullopt;
  Call call{{}, std::move(match->eqn.params)};
  const auto& params = params_as<AttentionParams>(*call.params);
  const bool masks = params.causal || !params.mask_dims.empty();
  if (masks && params.masked > kFarBelow) return std::nullopt;
  const int bias = attention_bias(params);
  for (std::size_t i = 0; i < match->eqn.in.size(); ++i) {
    const VarRef& v = match->eqn.in[i].ref();
    if (const Array* const dual = duals_.find(v.get())) {
      if (static_cast<int>(i) == bias) return std::nullopt;
      call.in.push_back(*dual);
    } else if (made.find(v.get())) {
      call.in.push_back(program_->value(v));
    } else {
      return std::nullopt;  // a value that only the simplified program has
    }
  }
  return call;
}

}  // namespace shmap
