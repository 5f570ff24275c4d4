#include "core/compiler/passes/program_index.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"

namespace shmap {

ProgramIndex::ProgramIndex(const Jaxpr& jaxpr)
    : jaxpr_(jaxpr), numbers_(jaxpr.eqns.size()), gone_(jaxpr.eqns.size(), false) {
  values_.reserve(jaxpr.eqns.size() + jaxpr.binders.size());
  struct Read {
    std::uint32_t value;
    int eqn;
  };
  std::vector<Read> reads;  // has each pair of a value and an equation once
  reads.reserve(2 * jaxpr.eqns.size());
  for (int i = 0; i < size(); ++i) {
    const Eqn& e = eqn(i);
    const std::size_t own = reads.size();
    int depth = 0;
    for (const Atom& a : e.in) {
      if (a.is_literal()) continue;
      const std::uint32_t n = add(a.var());
      Value& v = values_[n];
      ++v.reads;
      depth = std::max(depth, v.depth);
      const auto same = [n](const Read& r) { return r.value == n; };
      if (std::any_of(reads.begin() + static_cast<std::ptrdiff_t>(own), reads.end(), same))
        continue;
      ++v.users;
      reads.push_back({n, i});
    }
    if (e.primitive->moves_data() || e.primitive->interpret) ++depth;
    for (const VarRef& out : e.out) {
      Value& v = values_[add(out.get())];
      v.maker = i;
      v.depth = depth;
    }
  }
  for (const Atom& a : jaxpr.outs) {
    if (a.is_literal()) continue;
    Value& v = values_[add(a.var())];
    ++v.reads;
    v.is_result = true;
  }
  std::uint32_t at = 0;
  for (Value& v : values_) {
    v.first_user = at;
    at += static_cast<std::uint32_t>(std::exchange(v.users, 0));
  }
  users_.resize(at);
  for (const Read& r : reads) {
    Value& v = values_[r.value];
    users_[v.first_user + static_cast<std::uint32_t>(v.users++)] = r.eqn;
  }
}

std::uint32_t ProgramIndex::add(const Var* v) {
  std::uint32_t& n = numbers_[v];
  if (n == 0) {
    values_.emplace_back();
    n = static_cast<std::uint32_t>(values_.size());
  }
  return n - 1;
}

const ProgramIndex::Value* ProgramIndex::find(const Var* v) const {
  const std::uint32_t* n = numbers_.find(v);
  return n ? &values_[*n - 1] : nullptr;
}

int ProgramIndex::number(const Var* v) const {
  const std::uint32_t* n = numbers_.find(v);
  return n ? static_cast<int>(*n) - 1 : -1;
}

int ProgramIndex::maker(const Atom& a) const {
  const Value* v = a.is_literal() ? nullptr : find(a.var());
  return !v || v->maker < 0 || gone_[static_cast<std::size_t>(v->maker)] ? -1 : v->maker;
}

const Eqn* ProgramIndex::made_by(const Atom& a) const {
  const int i = maker(a);
  return i >= 0 ? &eqn(i) : nullptr;
}

const Eqn* ProgramIndex::made_by(const Atom& a, const Primitive& primitive) const {
  const Eqn* e = made_by(a);
  return e && e->primitive == &primitive ? e : nullptr;
}

std::span<const int> ProgramIndex::users(const Var* v) const {
  const Value* value = find(v);
  if (!value) return {};
  return std::span(users_).subspan(value->first_user, static_cast<std::size_t>(value->users));
}

int ProgramIndex::reads(const Var* v) const {
  const Value* value = find(v);
  return value ? value->reads : 0;
}

int ProgramIndex::only_user(const Var* v) const {
  const Value* value = find(v);
  return value && value->reads == 1 && value->users == 1 ? users_[value->first_user] : -1;
}

bool ProgramIndex::is_result(const Var* v) const {
  const Value* value = find(v);
  return value && value->is_result;
}

int ProgramIndex::depth(const Atom& a) const {
  const Value* v = a.is_literal() ? nullptr : find(a.var());
  return v ? v->depth : 0;
}

bool literal_number(const Atom& a, double* value) {
  if (!a.is_literal() || a.type().dtype() == DType::prng_key) return false;
  const Array wide = convert(a.literal(), DType::f64, {});
  std::memcpy(value, static_cast<const LiteralNode&>(*node_of(wide)).value, sizeof *value);
  return true;
}

IntList own_places(int n) {
  IntList places;
  for (int d = 0; d < n; ++d) places.push_back(d);
  return places;
}

namespace {

// Succeeds where both shapes have the same extents, in the same order, apart from extents of 1.
bool go_through_reshape(const Shape& from, const Shape& to, IntList* places) {
  IntList made;
  std::size_t t = 0;
  for (std::int64_t extent : from) {
    if (extent == 1) {
      made.push_back(-1);
      continue;
    }
    while (t < to.size() && to[t] == 1) ++t;
    if (t == to.size() || to[t] != extent) return false;
    made.push_back((*places)[t++]);
  }
  for (; t < to.size(); ++t)
    if (to[t] != 1) return false;
  *places = made;
  return true;
}

}  // namespace

bool go_through_view(const Eqn& e, IntList* places) {
  if (e.in.empty() || e.in[0].is_literal()) return false;
  const Shape &from = e.in[0].type().dims(), &to = e.out[0]->type.dims();
  if (e.primitive == &reshape_p) return go_through_reshape(from, to, places);
  IntList made;
  made.resize(from.size());
  if (e.primitive == &transpose_p) {
    const Dims& permutation = params_as<TransposeParams>(*e.params).permutation;
    for (std::size_t d = 0; d < made.size(); ++d)
      made[static_cast<std::size_t>(permutation[d])] = (*places)[d];
  } else if (e.primitive == &broadcast_in_dim_p) {
    const Dims& dims = params_as<BroadcastParams>(*e.params).dims;
    for (std::size_t d = 0; d < made.size(); ++d)
      made[d] = from[d] == 1 ? -1 : (*places)[static_cast<std::size_t>(dims[d])];
  } else {
    return false;
  }
  *places = made;
  return true;
}

bool go_through_repetition(const Eqn& e, IntList* places) {
  const Primitive& p = *e.primitive;
  if (e.in.empty() || e.in[0].is_literal()) return false;
  // A collective that moves no data and whose result varies over more axes: each device's result is
  // the operand, or a part of it.
  const ShapedArray &from = e.in[0].type(), &to = e.out[0]->type;
  if (!p.group || p.moves_data() || !to.axes().contains(from.axes()))
    return go_through_view(e, places);
  if (from.rank() != to.rank()) return false;
  for (std::size_t d = 0; d < from.dims().size(); ++d)
    if (from.dims()[d] != to.dims()[d]) (*places)[d] = kApart;
  return true;
}

}  // namespace shmap
