// Loops and branches as equations of the current trace. All functions work on leaves.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tracing/make_jaxpr.h"
#include "core/transforms/control_flow/flow_site.h"
#include "shmap/array.h"
#include "shmap/flat_call.h"
#include "shmap/shaped_array.h"

namespace shmap {

std::vector<Array> stage_while(const FlowSite& site, detail::BodyRef test, detail::BodyRef body,
                               std::vector<Array> init);
std::vector<Array> stage_scan(const FlowSite& site, detail::BodyRef body, std::vector<Array> init,
                              std::vector<Array> xs, std::int64_t length, bool reverse);
std::vector<Array> stage_cond(const FlowSite& site, const Array& index,
                              std::span<const detail::BodyRef> branches,
                              std::span<const std::string> names, std::vector<Array> arguments);
// Gives the branches of a cond one list of arguments: the constants of all of them, each once,
// which are returned, then the others. A branch's constants are values of its first binders.
std::vector<Array> merge_constants(std::span<Traced* const> programs);
// Names of a cond's or switch's branches: "the true branch", "branch 2".
std::vector<std::string> branch_names(const ShapedArray& index, std::size_t count);

}  // namespace shmap
