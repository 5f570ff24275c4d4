// Loops and branches that run at once, operation by operation. All functions work on leaves.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/transforms/control_flow/flow_site.h"
#include "shmap/array.h"
#include "shmap/control_flow.h"
#include "shmap/flat_call.h"

namespace shmap {

std::vector<Array> run_while(const FlowSite& site, detail::BodyRef test, detail::BodyRef body,
                             std::vector<Array> carry);
// Returns the carry, then ys.
std::vector<Array> run_scan(const FlowSite& site, detail::BodyRef body, std::vector<Array> carry,
                            std::vector<Array> xs, std::int64_t length, bool reverse);
// Whether the host cannot decide by this value, because it is batched (vmap) or its blocks differ
// between devices. Such control flow stays an equation.
bool is_beyond_host(const Array& x);
// names: the branches' names, for errors.
detail::BranchLeaves run_cond(const FlowSite& site, const Array& index,
                              std::span<const detail::BodyRef> branches,
                              std::span<const std::string> names, std::vector<Array> arguments);

}  // namespace shmap
