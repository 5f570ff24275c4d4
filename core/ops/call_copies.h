// The strided copies that implement shape operations, and the padding of pad, for the adapters of
// both backends.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/base/padding.h"
#include "core/base/strided_copy.h"
#include "core/runtime/kernel.h"

namespace shmap {

StridedCopy broadcast_copy(const KernelCall& call);
StridedCopy transpose_copy(const KernelCall& call);
StridedCopy rev_copy(const KernelCall& call);
StridedCopy slice_copy(const KernelCall& call);
// Copies one operand's rows into the result's rows, at byte `at` of each; both are seen as [outer,
// the joined dim and all after it]. The rows of the next operand begin src_stride[0] bytes later.
StridedCopy concatenate_copy(const KernelCall& call, std::size_t operand, std::int64_t at);
// For concatenate_slices: copies that operand's slice to item `at` along the dim.
StridedCopy concatenate_slice_copy(const KernelCall& call, std::size_t operand, std::int64_t at);
Padding padding_of(const KernelCall& call);

}  // namespace shmap
