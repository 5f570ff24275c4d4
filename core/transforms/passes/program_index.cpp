#include "core/transforms/passes/program_index.h"

#include <cstring>
#include <string_view>

#include "core/ir/node.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"

namespace shmap {

ProgramIndex::ProgramIndex(const Jaxpr& jaxpr) : jaxpr_(jaxpr), gone_(jaxpr.eqns.size(), false) {
  for (int i = 0; i < static_cast<int>(jaxpr.eqns.size()); ++i) {
    for (const Atom& a : eqn(i).in) {
      if (a.is_literal()) continue;
      std::vector<int>& users = uses_[a.var()].users;
      if (users.empty() || users.back() != i) users.push_back(i);
    }
    for (const VarRef& v : eqn(i).out) uses_[v.get()].maker = i;
  }
  for (const Atom& a : jaxpr.outs)
    if (!a.is_literal()) uses_[a.var()].is_result = true;
}

int ProgramIndex::maker(const Atom& a) const {
  if (a.is_literal()) return -1;
  const auto it = uses_.find(a.var());
  if (it == uses_.end() || it->second.maker < 0) return -1;
  return gone_[static_cast<std::size_t>(it->second.maker)] ? -1 : it->second.maker;
}

const Eqn* ProgramIndex::made_by(const Atom& a, const Primitive& primitive) const {
  const int i = maker(a);
  return i >= 0 && eqn(i).primitive == &primitive ? &eqn(i) : nullptr;
}

const std::vector<int>& ProgramIndex::users(const Var* v) const {
  static const std::vector<int> none;
  const auto it = uses_.find(v);
  return it == uses_.end() ? none : it->second.users;
}

bool ProgramIndex::is_result(const Var* v) const {
  const auto it = uses_.find(v);
  return it != uses_.end() && it->second.is_result;
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

// Extents of 1 aside, both have the same: dim by dim, those of the operand lie where the result's
// do.
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
  const std::string_view name = e.primitive->name;
  if (e.in.empty() || e.in[0].is_literal()) return false;
  if (name == "pbroadcast") return true;
  if (name != "pscatter") return go_through_view(e, places);
  const Shape &from = e.in[0].type().dims(), &to = e.out[0]->type.dims();
  if (from.size() != to.size()) return false;
  for (std::size_t d = 0; d < from.size(); ++d)
    if (from[d] != to[d]) (*places)[d] = kApart;
  return true;
}

}  // namespace shmap
