// The passes over a program of blocks before it is planned: one table, run by one function, which
// checks and shows what each of them made.
//
// A pass is a file with a `register_pass_<name>()`, which enters it; its place among the others is
// a word of PassOrder.
#pragma once
#include <cstdint>
#include <string>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// In the order in which they run.
enum class PassOrder : std::uint8_t {
  inline_calls,
  simplify,
  find_overlap,
  unroll,
  flow_tasks,
  find_attention,
  fuse_gathers,
  fuse_products,
  fuse,
  fuse_slices,
  join_slices,
  fuse_columns,
  schedule,
};

// Where the program is to run.
struct PassContext {
  const detail::MeshImpl& mesh;
  // Gets the program as each pass left it that changed it, as text; null: nobody wants to see it.
  std::string* shown = nullptr;

  DeviceKind kind() const { return mesh.backend().kind(); }
};

// Arguments, results and their types stay, and so do effects and collectives, in their order. Gives
// back the program itself where there is nothing to do.
using PassFn = JaxprRef (*)(const Jaxpr& jaxpr, const PassContext& context);

// A pass that asks nothing of its context.
template <JaxprRef (*kPass)(const Jaxpr&)>
JaxprRef of_program(const Jaxpr& jaxpr, const PassContext&) {
  return kPass(jaxpr);
}

struct Pass {
  PassOrder order;
  const char* name;  // static text
  PassFn run;
  bool (*runs_on)(DeviceKind kind) = nullptr;  // null: devices of every kind
  // What it made is simplified again.
  bool simplified_after = false;
  // It makes operations parts of others. Such passes do not run where each operation's results are
  // looked at for NaNs (SHMAP_CHECK_NANS): the error names the one that made the NaN, and its line.
  bool merges = false;
};

inline bool is_cpu(DeviceKind kind) { return kind == DeviceKind::cpu; }

// For good, while primitives are registered.
void register_pass(const Pass& pass);

// The program after all passes. Where the library was built for debugging or for tests, what a pass
// made is checked (check_pass): TypeError, which names the pass.
JaxprRef run_passes(const Jaxpr& jaxpr, const PassContext& context);

}  // namespace shmap
