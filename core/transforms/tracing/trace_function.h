// Tracing a user's function, and the keys under which what was traced is kept.
#pragma once
#include <string>

#include "core/transforms/tracing/make_jaxpr.h"
#include "shmap/flat_call.h"

namespace shmap {

// Appends what a trace depends on: dtype, weakness, shape and variance.
void append_type_key(const ShapedArray& type, std::string& key);

// The program of `body` for arguments of these types, in the scope of the current trace. `result`
// gets the structure of what it returns.
Traced trace_function(const char* name, std::span<const ShapedArray> types, detail::BodyRef body,
                      detail::FlatTree& result, StagingOptions options, SourceLine source);

}  // namespace shmap
