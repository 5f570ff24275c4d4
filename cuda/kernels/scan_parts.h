// scan() for each operation: returns false, without effect, where the dtype does not have the
// operation.
#pragma once
#include "cuda/kernels/scan.h"
#include "cuda/kernels/scan_plan.h"

namespace shmap::cuda {

bool scan_numbers(const Scan& s, const ScanPlan& plan, void* scratch, void* stream);
bool scan_extremes(const Scan& s, const ScanPlan& plan, void* scratch, void* stream);
bool scan_log_sum_exp(const Scan& s, const ScanPlan& plan, void* scratch, void* stream);

}  // namespace shmap::cuda
