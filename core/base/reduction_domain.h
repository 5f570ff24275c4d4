// The dtypes that a reduction takes.
#pragma once
#include "core/base/op_domain.h"
#include "core/base/reduction_ops.h"

namespace shmap {

constexpr Domain domain_of(Reduction op) {
#define SHMAP_DOMAIN(name, domain, primitive) Domain::domain,
  constexpr Domain kDomains[] = {SHMAP_REDUCTIONS(SHMAP_DOMAIN)};
#undef SHMAP_DOMAIN
  return kDomains[static_cast<int>(op)];
}

}  // namespace shmap
