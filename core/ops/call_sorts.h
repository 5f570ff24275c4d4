// The calls of sort and top_k, for the adapters of both backends.
#pragma once
#include <vector>

#include "core/base/sorts.h"
#include "core/runtime/kernel.h"

namespace shmap {

struct SortCall {
  Sort sort;
  std::vector<SortOperand> operands;

  explicit SortCall(const KernelCall& call);
  SortCall(const SortCall&) = delete;  // `sort` refers to `operands`
  SortCall& operator=(const SortCall&) = delete;
};

TopK top_k_of(const KernelCall& call);

}  // namespace shmap
