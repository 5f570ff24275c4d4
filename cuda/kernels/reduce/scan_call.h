// scan() for each operation, run_cumsum and so on: returns false, without effect, where the dtype
// does not have the operation.
#pragma once
#include "cuda/kernels/reduce/scan.h"
#include "cuda/kernels/reduce/scan_plan.h"

namespace shmap::cuda {

// The dtypes of an operation by its row, for the static_asserts of the functions below.
constexpr Domain domain_of(Cumulative op) {
#define SHMAP_DOMAIN(name, domain) Domain::domain,
  constexpr Domain kDomains[] = {SHMAP_CUMULATIVES(SHMAP_DOMAIN)};
#undef SHMAP_DOMAIN
  return kDomains[static_cast<int>(op)];
}

#define SHMAP_RUN(name, domain) \
  bool run_##name(const Scan& s, const ScanPlan& plan, void* scratch, void* stream);
SHMAP_CUMULATIVES(SHMAP_RUN)
#undef SHMAP_RUN

}  // namespace shmap::cuda
