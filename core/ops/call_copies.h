// The strided copies that calls of shape operations are, for the adapters of both backends.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/base/strided_copy.h"
#include "core/runtime/kernel.h"

namespace shmap {

StridedCopy broadcast_copy(const KernelCall& call);
StridedCopy transpose_copy(const KernelCall& call);
StridedCopy rev_copy(const KernelCall& call);
StridedCopy slice_copy(const KernelCall& call);
// One operand's rows into the result's, `at` bytes from where these begin; both are [outer, what
// follows from the joined dim on]. The next operand's rows begin src_stride[0] bytes later.
StridedCopy concatenate_copy(const KernelCall& call, std::size_t operand, std::int64_t at);
// Of concatenate_slices: that operand's slice, whose first item is item `at` along the dimension.
StridedCopy concatenate_slice_copy(const KernelCall& call, std::size_t operand, std::int64_t at);

}  // namespace shmap
