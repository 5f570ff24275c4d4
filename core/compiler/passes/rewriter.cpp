#include "core/compiler/passes/rewriter.h"

namespace shmap {

void Rewriter::become(const Var* v, Atom value) {
  anew_ = true;
  names_[v] = static_cast<std::uint32_t>(values_.size());
  values_.push_back(std::move(value));
}

void Rewriter::put(int i, Eqn e) {
  remove(i);
  put_.insert_or_assign(i, std::move(e));
}

void Rewriter::remove(int i) {
  gone_.resize(from_.eqns.size());
  gone_[static_cast<std::size_t>(i)] = true;
}

void Rewriter::write_edited() {
  eqns_.reserve(from_.eqns.size());
  for (int i = 0; i < static_cast<int>(from_.eqns.size()); ++i) {
    if (!is_gone(i)) {
      eqns_.push_back(from_.eqns[static_cast<std::size_t>(i)]);
    } else if (const auto it = put_.find(i); it != put_.end()) {
      eqns_.push_back(std::move(it->second));
    }
  }
}

JaxprRef Rewriter::finish() {
  std::vector<Atom> outs = from_.outs;
  for (Atom& a : outs) rename(a);
  return finish(from_.binders, std::move(outs));
}

JaxprRef Rewriter::finish(std::vector<VarRef> binders, std::vector<Atom> outs) {
  if (!anew_) write_edited();
  return jaxpr_like(from_, std::move(binders), std::move(eqns_), std::move(outs));
}

}  // namespace shmap
