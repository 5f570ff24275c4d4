// debug::print in programs that are traced: an equation that prints when its operands are there,
// in the order of the program; and what printing now and printing then share.
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

// No results, and any number of operands: PrintParams. In a plan it is a task on the communication
// stream of the first local device, which is why prints keep their order. Nothing waits for it but
// the end of the process, and that only where what it prints was computed: wait for results first.
extern Primitive debug_print_p;

struct PrintParams : ParamsOf<PrintParams> {
  std::string format;  // as debug::print's, with a {} or {:spec} for each operand
  void visit(ParamVisitor& v) const override {
    v.value("fmt", std::string_view(quoted(format, '"')));
  }
};

namespace debug::detail {

// ValueError where the format has not as many {} as there are arguments, or a spec is none for its
// argument: for one that is neither a number nor an array without dims, there is none.
void check_holes(std::string_view format, std::span<const PrintArgument> arguments,
                 SourceLine source);
// The spec of each hole: of {:.3f} ".3f", of {} nothing.
std::vector<std::string> hole_specs(std::string_view format);
// One element by a spec that was checked.
std::string text_by_spec(const std::string& spec, DType dtype, const void* element);
// The format with its holes filled, in order.
std::string fill_holes(std::string_view format, std::span<const std::string> texts);
// "(i, j,) = (0, 1,)", as JAX labels the blocks of its eager shard_map.
std::string position_text(const shmap::detail::MeshImpl& mesh, std::uint32_t local);
// To standard output, at once.
void write_out(const std::string& text);

// Binds debug_print under the current trace. Host values become part of the format.
void stage_print(std::string_view format, const std::vector<PrintArgument>& arguments,
                 SourceLine source);

}  // namespace debug::detail
}  // namespace shmap
