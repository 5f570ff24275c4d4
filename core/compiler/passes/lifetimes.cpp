#include "core/compiler/passes/lifetimes.h"

#include <algorithm>

#include "collectives/primitives.h"
#include "core/runtime/kernel.h"

namespace shmap {

bool is_view(const Eqn& e) {
  if (e.in.empty() || e.in[0].is_literal() || e.primitive->moves_data()) return false;
  if (e.primitive == &pscatter_p) return params_as<ScatterParams>(*e.params).dimension == 0;
  return e.primitive->view && e.primitive->view(e.in[0].type(), *e.params, e.out[0]->type) >= 0;
}

void Lifetimes::find_deaths() {
  const auto use = [&](const Atom& a, int at) {
    if (a.is_literal()) return;
    Held& held = held_[static_cast<std::size_t>(number(a.var()))];
    held.last = std::max(held.last, at);
  };
  for (int i = 0; i < program_.size(); ++i)
    for (const Atom& a : program_.eqn(i).in) use(a, i);
  for (const Atom& a : program_.jaxpr().outs) use(a, kToTheEnd);
  steps_.resize(static_cast<std::size_t>(program_.size()));
  for (const Held& held : held_) {
    if (!held.is_owned()) continue;
    steps_[static_cast<std::size_t>(held.born)].made += held.bytes;
    if (held.last != kToTheEnd) steps_[static_cast<std::size_t>(held.last)].dying += held.bytes;
  }
  for (int i = 0; i < program_.size(); ++i)
    steps_[static_cast<std::size_t>(i)].taken_over = find_taken_over(i);
}

std::int64_t Lifetimes::find_taken_over(int i) const {
  const Eqn& e = program_.eqn(i);
  if (!e.primitive->in_place) return 0;
  std::int64_t bytes = 0;
  std::vector<const Held*> taken;
  for (const VarRef& out : e.out) {
    const auto o = static_cast<std::size_t>(&out - e.out.data());
    const Held& made = of(out.get());
    for (std::size_t k = 0; k < e.in.size(); ++k) {
      if (e.in[k].is_literal() ||
          !may_overwrite(*e.primitive, e.primitive->kernel(kind_), *e.params, o, out->type.dtype(),
                         k, e.in[k].type().dtype()))
        continue;
      const Held& held = of(e.in[k].var());
      if (!held.is_owned() || held.last != i || held.bytes != made.bytes ||
          std::find(taken.begin(), taken.end(), &held) != taken.end())
        continue;
      bytes += held.bytes;
      taken.push_back(&held);
      break;
    }
  }
  return bytes;
}

}  // namespace shmap
