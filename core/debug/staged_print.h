// debug::print in traced programs: an equation that prints when its operands are computed, in
// program order. Also the formatting that eager and staged prints share.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/array/mesh_impl.h"
#include "core/ir/primitive.h"
#include "core/ir/quoted.h"
#include "shmap/debug.h"

namespace shmap {

// PrintParams. No results, and any number of operands. In a plan, a print is a task on the
// communication stream of the first local device, so that prints keep their order. Only the end of
// the process waits for prints; a value whose computation fails is not printed.
extern Primitive debug_print_p;

struct PrintParams : ParamsOf<PrintParams> {
  std::string format;  // as for debug::print, with a {} or {:spec} for each operand
  void visit(ParamVisitor& v) const override {
    v.value("fmt", std::string_view(shmap::quoted(format, '"')));
  }
};

namespace debug::detail {

// ValueError where the number of {} is not the number of arguments, or a spec does not fit its
// argument: only numbers and arrays of rank 0 take a spec.
void check_holes(std::string_view format, std::span<const PrintArgument> arguments,
                 SourceLine source);
// The spec of each hole: ".3f" for {:.3f}, empty for {}.
std::vector<std::string> hole_specs(std::string_view format);
// The text of one element by a checked spec.
std::string text_by_spec(const std::string& spec, DType dtype, const void* element);
// The format with its holes filled, in order.
std::string fill_holes(std::string_view format, std::span<const std::string> texts);
// "(i, j,) = (0, 1,)", as JAX labels the blocks of its eager shard_map.
std::string position_text(const shmap::detail::MeshImpl& mesh, std::uint32_t local);
// Writes to standard output, without buffering.
void write_out(const std::string& text);

// Binds debug_print under the current trace. Host values become part of the format.
void stage_print(std::string_view format, const std::vector<PrintArgument>& arguments,
                 SourceLine source);

}  // namespace debug::detail
}  // namespace shmap
