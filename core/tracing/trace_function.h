// Traces a user's function, and makes keys for caches of traced programs.
#pragma once
#include <string>

#include "core/tracing/make_jaxpr.h"
#include "shmap/flat_call.h"

namespace shmap {

// Appends the parts of a type on which a trace depends: dtype, weakness, shape and variance.
void append_type_key(const ShapedArray& type, std::string& key);

// Traces `body` for arguments of these types, in the axis scope of the current trace. `result` gets
// the structure of its result.
Traced trace_function(const char* name, std::span<const ShapedArray> types, detail::BodyRef body,
                      detail::FlatTree& result, StagingOptions options, SourceLine source);

}  // namespace shmap
