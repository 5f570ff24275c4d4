#include "core/ir/jaxpr.h"

#include <algorithm>
#include <cstring>

#include "core/ir/nesting.h"
#include "core/ir/node.h"

namespace shmap {

const ShapedArray& Atom::type() const { return var_ ? var_->type : node_of(literal_)->type; }

bool operator==(const Atom& a, const Atom& b) {
  if (a.is_literal() != b.is_literal()) return false;
  if (!a.is_literal()) return a.var_ == b.var_;
  const auto& x = static_cast<const LiteralNode&>(*node_of(a.literal_));
  const auto& y = static_cast<const LiteralNode&>(*node_of(b.literal_));
  return x.type == y.type && x.type.weak() == y.type.weak() &&
         std::memcmp(x.value, y.value, sizeof x.value) == 0;
}

namespace {

class JaxprFinder final : public ParamFinder {
 public:
  using ParamFinder::value;
  std::vector<const Jaxpr*> found;
  void value(std::string_view, const Jaxpr& v) override { found.push_back(&v); }
};

}  // namespace

std::vector<const Jaxpr*> inner_jaxprs(const Params& params) {
  JaxprFinder finder;
  params.visit(finder);
  return std::move(finder.found);
}

namespace {

bool program_has_effect(const Jaxpr& jaxpr) {
  if (jaxpr.facts.has(JaxprFacts::effects_known)) return jaxpr.facts.has(JaxprFacts::effects);
  const PassVisit visit("effects", jaxpr);
  const bool found = std::any_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), has_effect);
  jaxpr.facts.add(JaxprFacts::effects_known | (found ? JaxprFacts::effects : 0));
  return found;
}

}  // namespace

bool has_effect(const Eqn& eqn) {
  if (eqn.primitive->has_effect) return true;
  if (!eqn.primitive->interpret) return false;
  const std::vector<const Jaxpr*> inside = inner_jaxprs(*eqn.params);
  return std::any_of(inside.begin(), inside.end(),
                     [](const Jaxpr* inner) { return program_has_effect(*inner); });
}

ClosedJaxpr close_jaxpr(JaxprRef jaxpr, std::vector<Array> consts,
                        std::vector<const Sharding*> in_shardings) {
  auto impl = std::make_shared<detail::ClosedJaxprImpl>();
  impl->jaxpr = std::move(jaxpr);
  impl->consts = std::move(consts);
  impl->in_shardings = std::move(in_shardings);
  return ClosedJaxpr(std::move(impl));
}

std::vector<ShapedArray> ClosedJaxpr::in_types() const {
  std::vector<ShapedArray> types;
  for (std::size_t i = impl_->consts.size(); i < impl_->jaxpr->binders.size(); ++i)
    types.push_back(impl_->jaxpr->binders[i]->type);
  return types;
}

std::vector<ShapedArray> ClosedJaxpr::out_types() const {
  std::vector<ShapedArray> types;
  for (const Atom& out : impl_->jaxpr->outs) types.push_back(out.type());
  return types;
}

const std::vector<Array>& ClosedJaxpr::consts() const { return impl_->consts; }

}  // namespace shmap
