#include "cuda/kernels/reduce/scan.h"

#include <string>

#include "cuda/kernels/reduce/scan_call.h"
#include "shmap/error.h"

namespace shmap::cuda {

std::int64_t scan_scratch(const Scan& s) {
  if (s.outer * s.len * s.inner == 0) return 0;
  return ScanPlan(s.outer, s.len, s.inner, s.reverse).totals() * 8;
}

void scan(const Scan& s, void* scratch, void* stream) {
  if (s.outer * s.len * s.inner == 0) return;
  const ScanPlan plan(s.outer, s.len, s.inner, s.reverse);
  const auto done = [&] {
    switch (s.op) {
#define SHMAP_CASE(name, domain) \
  case Cumulative::name:         \
    return run_##name(s, plan, scratch, stream);
      SHMAP_CUMULATIVES(SHMAP_CASE)
#undef SHMAP_CASE
    }
    return false;
  };
  if (done()) return;
  throw TypeError("scan: " + std::string(to_string(s.op)) + " of " + to_string(s.dtype) +
                  " does not exist; cast to a dtype that has it first");
}

}  // namespace shmap::cuda
