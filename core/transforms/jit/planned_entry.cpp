#include "core/transforms/jit/planned_entry.h"

#include <memory>
#include <span>
#include <utility>

#include "core/array/local_devices.h"
#include "core/base/scope_names.h"
#include "core/compiler/lowering/argument_shardings.h"
#include "core/compiler/lowering/closed_program.h"
#include "core/compiler/lowering/eval.h"
#include "core/compiler/lowering/lower.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/simplify.h"
#include "core/device/host_log.h"
#include "core/runtime/repeatable_call.h"
#include "core/runtime/reshard.h"
#include "core/runtime/same_values.h"
#include "core/transforms/jit/planned_trace.h"

namespace shmap::detail {

namespace {

// The mesh of the committed arguments; otherwise the mesh that the program names; otherwise the
// mesh of other arguments; otherwise the default device. Null where committed arguments have
// different meshes: the program then runs operation by operation, which throws the error that
// explains it.
const MeshImpl* choose_mesh(const Entry& entry) {
  const MeshImpl* wanted = entry.mesh ? entry.mesh : mesh_of(*entry.traced.jaxpr);
  const MeshImpl* placed = nullptr;
  const MeshImpl* fresh = nullptr;
  const auto look_at = [&](const Signature& s) {
    if (!s.mesh) return true;
    if (!s.committed) {
      if (!fresh) fresh = s.mesh;
      return true;
    }
    if (s.mesh->is_single() && wanted) return true;
    if (placed && placed != s.mesh) return false;
    placed = s.mesh;
    return true;
  };
  for (const Signature& s : entry.arguments)
    if (!look_at(s)) return nullptr;
  for (const Array& x : entry.traced.consts)
    if (!look_at(signature_of(*node_of(x)))) return nullptr;
  if (placed && wanted && placed != wanted) return nullptr;
  return placed ? placed : wanted ? wanted : fresh ? fresh : MeshImpl::default_device();
}

void plan_global(Entry& entry, SourceLine source, std::string* shown = nullptr) {
  const MeshImpl* mesh = choose_mesh(entry);
  if (!mesh || mesh->is_abstract()) return;
  want_local_devices(*mesh, "jit", source);
  const HostSpanScope logged("plan", "jit");
  const ScopesHidden hidden;
  // The sharding of an argument that is not on the mesh; null where argument_shardings chooses it.
  const Sharding* const unplaced = entry.mesh ? nullptr : mesh->replicated();
  std::vector<const Sharding*> shardings;
  for (const Signature& s : entry.arguments)
    shardings.push_back(s.mesh == mesh && s.sharding ? s.sharding : unplaced);
  try {
    const JaxprRef program = simplify_global(*entry.traced.jaxpr);
    if (entry.mesh)
      shardings = argument_shardings(*program, entry.traced.consts.size(), mesh, shardings);
    Lowered lowered = lower(*program, entry.traced.consts, mesh, shardings);
    std::vector<Array> consts;
    for (std::size_t i = 0; i < lowered.consts.size(); ++i)
      consts.push_back(reshard(lowered.consts[i], lowered.const_in[i], "a captured array", source));
    entry.in = std::move(lowered.in);
    entry.out = std::move(lowered.out);
    entry.committed = !mesh->env()->sizes.empty();
    for (const Signature& s : entry.arguments) entry.committed = entry.committed || s.committed;
    JaxprRef planned = run_passes(*lowered.jaxpr, {*mesh, shown});
    const ProgramMark mark = compare_program(*mesh, *planned, consts, source);
    entry.plan =
        std::make_unique<Plan>(mesh, std::move(planned), std::move(consts), mark, run_control);
  } catch (const OtherMesh&) {  // the program is interpreted instead
  }
}

// The program operation by operation, where it has no plan.
std::vector<Array> run_unplanned(const Entry& entry, std::vector<Array> leaves) {
  std::vector<Array> args = entry.traced.consts;
  for (Array& x : leaves) args.push_back(std::move(x));
  return eval_jaxpr(*entry.traced.jaxpr, std::move(args));
}

std::vector<Array> run_global(Entry& entry, std::vector<Array> leaves, SourceLine source) {
  if (!entry.plan) return run_unplanned(entry, std::move(leaves));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const StoredNode* node = stored_of(leaves[i]);
    if (!node || node->sharding != entry.in[i])
      leaves[i] = reshard(leaves[i], entry.in[i], "jit: args[" + std::to_string(i) + "]", source);
  }
  std::vector<Array> blocks = entry.plan->run(std::move(leaves));
  for (std::size_t o = 0; o < blocks.size(); ++o)
    blocks[o] = relabel(std::move(blocks[o]), entry.out_types[o], entry.out[o], 0, entry.committed);
  return blocks;
}

// The program of a body with automatic axes as a program of blocks, and the shardings of its
// arguments and results over these axes. consts: values of the body, which get the shardings that
// the program takes them in.
JaxprRef lower_body(Entry& entry, PerDeviceTrace& trace, std::vector<Array>& consts,
                    std::span<const Array> arguments, SourceLine source) {
  const MeshImpl* mesh = trace.mesh();
  std::vector<Array> values(arguments.begin(), arguments.end());
  trace.admit(values, "jit: an argument", source);
  std::vector<const Sharding*> shardings;
  for (const Array& x : values) {
    const StoredNode* node = stored_of(x);
    shardings.push_back(node ? node->sharding : mesh->replicated());
  }
  Lowered lowered = lower(*simplify_global(*entry.traced.jaxpr), consts, mesh, shardings);
  consts = std::move(lowered.consts);
  trace.admit(consts, "jit: a captured value", {});
  for (std::size_t i = 0; i < consts.size(); ++i)
    consts[i] = reshard_array(consts[i], lowered.const_in[i], "jit: a captured value", source);
  entry.in = std::move(lowered.in);
  entry.out = std::move(lowered.out);
  return lowered.jaxpr;
}

void plan_body(Entry& entry, PerDeviceTrace& trace, std::span<const Array> arguments,
               SourceLine source, std::string* shown = nullptr) {
  const HostSpanScope logged("plan", "jit");
  const ScopesHidden hidden;
  std::vector<Array> consts = entry.traced.consts;
  trace.admit(consts, "jit: a captured value", {});
  JaxprRef program = entry.traced.jaxpr;
  try {
    if (trace.automatic() != 0) program = lower_body(entry, trace, consts, arguments, source);
  } catch (const OtherMesh&) {  // the program is interpreted instead
    return;
  }
  JaxprRef planned = run_passes(*program, {*trace.mesh(), shown});
  const ProgramMark mark = compare_program(*trace.mesh(), *planned, consts, source);
  entry.plan = std::make_unique<Plan>(trace.mesh(), std::move(planned), std::move(consts), mark,
                                      run_control);
}

std::vector<Array> run_body(Entry& entry, std::vector<Array> leaves, PerDeviceTrace& trace,
                            SourceLine source) {
  trace.admit(leaves, "jit: an argument", source);
  if (!entry.plan) return run_unplanned(entry, std::move(leaves));
  for (Array& x : leaves) x = as_stored(std::move(x), trace.mesh());
  std::vector<Array> blocks = entry.plan->run(std::move(leaves));
  for (std::size_t o = 0; o < blocks.size(); ++o) {
    const Sharding* const out = trace.automatic() != 0 ? entry.out[o] : nullptr;
    blocks[o] = relabel(std::move(blocks[o]), entry.out_types[o], out, trace.id(), true);
  }
  return blocks;
}

// For the first call of a plan: compares arguments that are host data between the processes
// (core/runtime/same_values.h). body: the trace of the body around the call; null if there is none.
void compare_first_arguments(const Entry& entry, std::span<const Array> arguments,
                             const PerDeviceTrace* body, SourceLine source) {
  if (!entry.plan) return;
  if (body)
    compare_arguments(*body->mesh(), arguments, {}, source);
  else if (!entry.in.empty())
    compare_arguments(*entry.in.front()->mesh(), arguments, entry.in, source);
}

}  // namespace

PerDeviceTrace* body_of(const Scope& scope) {
  return scope.kind == Scope::body ? &static_cast<PerDeviceTrace&>(current_trace()) : nullptr;
}

std::vector<Array> run_entry(Entry& entry, std::vector<Array>&& leaves, PerDeviceTrace* body,
                             SourceLine source) {
  return run_repeatable([&] {
    return body ? run_body(entry, std::move(leaves), *body, source)
                : run_global(entry, std::move(leaves), source);
  });
}

void plan_entry(Entry& entry, const FlatTree& arguments, PerDeviceTrace* body, SourceLine source,
                std::string* shown) {
  if (entry.scope.kind == Scope::eager) plan_global(entry, source, shown);
  if (body) plan_body(entry, *body, arguments.leaves, source, shown);
  compare_first_arguments(entry, arguments.leaves, body, source);
}

}  // namespace shmap::detail
