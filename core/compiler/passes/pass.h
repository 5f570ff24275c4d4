// The passes over a program of blocks before it is planned: a table, and one function that runs the
// passes and checks and shows the result of each.
//
// A pass is a file with a `register_pass_<name>()`, which enters the pass in the table. Its
// position among the passes is an enumerator of PassOrder.
#pragma once
#include <cstdint>
#include <string>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// The passes, in the order in which they run.
enum class PassOrder : std::uint8_t {
  inline_calls,
  simplify,
  find_overlap,
  unroll,
  flow_tasks,
  find_attention,
  fuse_gathers,
  fuse_products,
  place_slices,
  copy_for_columns,
  fuse,
  fuse_slices,
  join_slices,
  fuse_columns,
  add_into_products,
  schedule,
  rematerialize,
};

// The devices that will run the program.
struct PassContext {
  const detail::MeshImpl& mesh;
  // Receives the program as text after each pass that changed it; may be null.
  std::string* shown = nullptr;

  DeviceKind kind() const { return mesh.backend().kind(); }
};

// A pass keeps arguments, results and their types, and the order of effects and of collectives. It
// returns the program itself where there is nothing to do.
using PassFn = JaxprRef (*)(const Jaxpr& jaxpr, const PassContext& context);

// A pass that does not use its context, as a PassFn.
template <JaxprRef (*kPass)(const Jaxpr&)>
JaxprRef of_program(const Jaxpr& jaxpr, const PassContext&) {
  return kPass(jaxpr);
}

struct Pass {
  PassOrder order;
  const char* name;  // static text
  PassFn run;
  // The primitive that the pass makes: the pass runs on kinds of devices that have a kernel for it.
  // Null: on every kind.
  const Primitive* makes = nullptr;
  bool (*runs_on)(DeviceKind kind) = nullptr;  // a further condition; null: none
  // Whether the result of the pass is simplified again.
  bool simplified_after = false;
  // Whether the pass makes operations parts of other operations. Such passes do not run under
  // SHMAP_CHECK_NANS, which checks the results of each operation so that its error can name the
  // operation that made the NaN, and its line.
  bool merges = false;
};

// Adds a pass until the process ends. To be called while primitives are registered.
void register_pass(const Pass& pass);

// The program after all passes. In builds for debugging and tests, the result of each pass is
// checked (check_pass): TypeError, which names the pass.
JaxprRef run_passes(const Jaxpr& jaxpr, const PassContext& context);

}  // namespace shmap
