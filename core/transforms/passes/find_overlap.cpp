#include "core/transforms/passes/find_overlap.h"

#include <atomic>

#include "core/base/env.h"

namespace shmap {

namespace {
constinit std::atomic<FindOverlapFn> finder{nullptr};
}  // namespace

void set_find_overlap(FindOverlapFn fn) { finder = fn; }

JaxprRef find_overlap(const JaxprRef& jaxpr) {
  const FindOverlapFn find = finder;
  return find && jaxpr->env && env::flag(env::Var::find_overlap) ? find(jaxpr) : jaxpr;
}

}  // namespace shmap
