#include "cuda/kernels/scan.h"

#include <string>

#include "cuda/kernels/scan_parts.h"
#include "shmap/error.h"

namespace shmap::cuda {

std::int64_t scan_scratch(const Scan& s) {
  if (s.outer * s.len * s.inner == 0) return 0;
  return ScanPlan(s.outer, s.len, s.inner, s.reverse).totals() * 8;
}

void scan(const Scan& s, void* scratch, void* stream) {
  if (s.outer * s.len * s.inner == 0) return;
  const ScanPlan plan(s.outer, s.len, s.inner, s.reverse);
  const bool numbers = s.op == Cumulative::cumsum || s.op == Cumulative::cumprod;
  const auto run = numbers                            ? scan_numbers
                   : s.op == Cumulative::cumlogsumexp ? scan_log_sum_exp
                                                      : scan_extremes;
  if (run(s, plan, scratch, stream)) return;
  throw TypeError("scan: " + std::string(to_string(s.op)) + " of " + to_string(s.dtype) +
                  " does not exist; cast to a dtype that has it first");
}

}  // namespace shmap::cuda
