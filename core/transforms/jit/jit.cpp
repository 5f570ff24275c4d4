#include "core/transforms/jit/jit.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>

#include "core/array/local_devices.h"
#include "core/array/tree_paths.h"
#include "core/base/env.h"
#include "core/base/scope_names.h"
#include "core/device/host_log.h"
#include "core/ir/divergence.h"
#include "core/ir/nesting.h"
#include "core/ir/types_of.h"
#include "core/runtime/fused_program.h"
#include "core/runtime/host_transfer.h"
#include "core/runtime/plan.h"
#include "core/runtime/reshard.h"
#include "core/runtime/same_values.h"
#include "core/transforms/jit/cache.h"
#include "core/transforms/jit/rules.h"
#include "core/transforms/lowering/argument_shardings.h"
#include "core/transforms/lowering/closed_program.h"
#include "core/transforms/lowering/eval.h"
#include "core/transforms/lowering/lower.h"
#include "core/transforms/lowering/per_device.h"
#include "core/transforms/passes/dead_code.h"
#include "core/transforms/passes/pass.h"
#include "core/transforms/passes/simplify.h"
#include "core/transforms/tracing/trace_function.h"
#include "shmap/jit.h"

namespace shmap {

// ---- the primitives
namespace {

int count_results(Types, const Params& params) {
  return static_cast<int>(params_as<JitParams>(params).jaxpr->outs.size());
}

void eval_jit(Types in, const Params& params, std::span<ShapedArray> out) {
  const Jaxpr& jaxpr = *params_as<JitParams>(params).jaxpr;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].dtype() != jaxpr.binders[i]->type.dtype() ||
        !(in[i].dims() == jaxpr.binders[i]->type.dims())) {
      throw TypeError("jit: operand " + std::to_string(i) + " of type " + to_string(in[i]) +
                      " is given to an argument of type " + to_string(jaxpr.binders[i]->type));
    }
  }
  for (std::size_t o = 0; o < out.size(); ++o) out[o] = jaxpr.outs[o].type();
}

void vary_jit(Types in, const Params& params, const detail::AxisEnv&, std::span<ShapedArray>) {
  const Jaxpr& jaxpr = *params_as<JitParams>(params).jaxpr;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!jaxpr.binders[i]->type.axes().contains(in[i].axes())) {
      throw TypeError("jit: operand " + std::to_string(i) + " of type " + to_string(in[i]) +
                      " is given to an argument of type " + to_string(jaxpr.binders[i]->type));
    }
  }
}

void lower_jit(LowerCall& call) {
  const detail::MeshImpl* over = call.params.mesh();
  if (over && over != call.lowering.mesh())
    throw_other_mesh(over, call.lowering.mesh(), call.source);
  std::vector<LowerValue> results = call.lowering.program(*params_as<JitParams>(call.params).jaxpr,
                                                          {call.in.begin(), call.in.end()});
  std::move(results.begin(), results.end(), call.out.begin());
}

std::shared_ptr<const Params> with_program(const Params& params,
                                           std::span<const JaxprRef> programs) {
  return std::make_shared<JitParams>(programs[0], params.mesh());
}

void prune_jit(PruneCall& call) {
  const JaxprRef& jaxpr = params_as<JitParams>(call.params).jaxpr;
  PrunedJaxpr pruned = prune_jaxpr(*jaxpr, call.wanted, call.memo);
  if (pruned.jaxpr == jaxpr) return;
  call.pruned = std::make_shared<JitParams>(std::move(pruned.jaxpr), call.params.mesh());
  call.kept_in = std::move(pruned.kept);
  call.kept_out = call.wanted;
}

}  // namespace

// Defined below, after the functions that run programs.
static void interpret_jit(std::span<Array> in, const Params& params, std::span<Array> out,
                          SourceLine source);

constinit Primitive jit_p = [] {
  Primitive p;
  p.name = "jit";
  p.abstract_eval = eval_jit;
  p.result_count = count_results;
  p.variance = vary_jit;
  p.interpret = interpret_jit;
  p.lower = lower_jit;
  p.calls_program = true;
  p.batching = Rule<BatchFn>(batch_jit);
  p.with_programs = with_program;
  p.prune = prune_jit;
  p.jvp = Rule<JvpFn>(jvp_jit);
  p.transpose = Rule<TransposeFn>(transpose_jit);
  return p;
}();

void JitParams::visit(ParamVisitor& v) const {
  v.value("jaxpr", *jaxpr);
  if (over) v.value("mesh", std::string_view("Mesh(" + describe_axes(*over->env()) + ")"));
}

// ---- control flow inside of plans: the host decides, and programs inside are plans of their own
namespace {

struct BodyPlans final : ControlState {
  std::map<const Jaxpr*, std::unique_ptr<Plan>> plans;
  std::vector<const Plan*> in_order;  // in the order of their first runs

  std::string text() const override {
    std::string text;
    for (const Plan* plan : in_order) text += plan->text();
    return text;
  }
};

void run_control(const detail::MeshImpl& mesh, const Eqn& eqn, std::span<Array> in,
                 std::span<Array> out, std::unique_ptr<ControlState>& state);

// Whether a program that is called in an eager body may run as a plan here. Where only some devices
// come by, a plan does not know of which to print, and does not refuse collectives that only some
// devices would call.
bool may_be_planned(const Jaxpr& jaxpr) {
  if (!divergence()) return true;
  try {
    for (const DivergentScope* s = divergence(); s; s = s->outer())
      check_divergent_program(jaxpr, s->what(), s->axes());
  } catch (const CollectiveError&) {  // thrown again where the collective is reached
    return false;
  }
  return std::none_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), has_effect);
}

// Interprets an equation on blocks; each program inside of it runs as a plan.
class PlannedTrace final : public PerDeviceTrace {
 public:
  PlannedTrace(const detail::MeshImpl& mesh, BodyPlans& bodies)
      : PerDeviceTrace(&mesh, {false, false}), bodies_(bodies) {}

  bool evaluate(const Jaxpr& jaxpr, std::vector<Array>& args, std::vector<Array>& out) override {
    // Printing shows only the devices that took this branch, which a captured task could not know.
    if (divergence() && std::any_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), has_effect)) return false;
    std::unique_ptr<Plan>& plan = bodies_.plans[&jaxpr];
    if (!plan) {
      JaxprRef planned = run_passes(jaxpr, {*mesh()});
      const ProgramMark mark = make_program_mark(*mesh(), *planned);
      plan = std::make_unique<Plan>(mesh(), std::move(planned), std::vector<Array>(), mark,
                                    run_control);
      bodies_.in_order.push_back(plan.get());
    }
    admit(args, "a program inside", {});
    for (Array& x : args) x = as_stored(std::move(x), mesh());
    out = plan->run(std::move(args));
    for (std::size_t o = 0; o < out.size(); ++o) out[o] = mine(out[o], jaxpr.outs[o].type());
    return true;
  }

  // The same blocks as a value of this trace.
  Array mine(const Array& x, const ShapedArray& type) const {
    return relabel(*stored_of(x), type, nullptr, id(), true);
  }

 private:
  BodyPlans& bodies_;
};

void run_control(const detail::MeshImpl& mesh, const Eqn& eqn, std::span<Array> in,
                 std::span<Array> out, std::unique_ptr<ControlState>& state) {
  if (!state) state = std::make_unique<BodyPlans>();
  PlannedTrace trace(mesh, static_cast<BodyPlans&>(*state));
  for (Array& x : in)
    if (node_of(x)->kind != NodeKind::literal) x = trace.mine(x, node_of(x)->type);
  TraceScope scope(trace);
  eqn.primitive->interpret(in, *eqn.params, out, eqn.source);
  for (std::size_t o = 0; o < out.size(); ++o) {
    const Array x = as_stored(std::move(out[o]), &mesh);
    out[o] = relabel(*stored_of(x), eqn.out[o]->type, nullptr, 0, true);
  }
}

}  // namespace

void register_jit() { register_primitive(jit_p); }

// ---- calls
namespace detail {

namespace {

// The folder for texts of programs (SHMAP_DUMP); empty: none are written.
const std::string& dump_folder() {
  static const std::string folder = env::text(env::Var::dump);
  return folder;
}

// passes: the program after each pass, as text.
void dump(const Entry& entry, const std::string& passes) {
  const std::string& folder = dump_folder();
  if (folder.empty()) return;
  static std::atomic<int> count{0};
  const std::string path = folder + "/jit" + std::to_string(count.fetch_add(1)) + ".txt";
  std::ofstream file(path);
  file << "traced:\n" << to_string(*entry.traced.jaxpr) << "\n" << passes;
  if (entry.plan)
    file << "\nplanned:\n" << to_string(entry.plan->jaxpr()) << "\n\n" << entry.plan->text();
  file.close();
  if (!file) {
    throw ValueError("SHMAP_DUMP: cannot write " + path +
                     ": the folder must exist and be writable");
  }
}

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

// shown: see PassContext.
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

// The trace of the body of a shard_map in which the program is called eagerly; null elsewhere.
PerDeviceTrace* body_of(const Scope& scope) {
  return scope.kind == Scope::body ? &static_cast<PerDeviceTrace&>(current_trace()) : nullptr;
}

std::vector<Array> run_entry(Entry& entry, std::vector<Array>&& leaves, PerDeviceTrace* body,
                             SourceLine source) {
  return body ? run_body(entry, std::move(leaves), *body, source)
              : run_global(entry, std::move(leaves), source);
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

// Plans the program where it is called eagerly, and compares the arguments of its first call.
void plan_entry(Entry& entry, const FlatTree& arguments, PerDeviceTrace* body, SourceLine source,
                std::string* shown = nullptr) {
  if (entry.scope.kind == Scope::eager) plan_global(entry, source, shown);
  if (body) plan_body(entry, *body, arguments.leaves, source, shown);
  compare_first_arguments(entry, arguments.leaves, body, source);
}

// An entry without a program, for calls with such arguments.
std::shared_ptr<Entry> make_entry(const void* tag, const Scope& scope, const MeshImpl* mesh,
                                  const FlatTree& arguments) {
  auto entry = std::make_shared<Entry>();
  entry->tag = tag;
  entry->scope = scope;
  entry->mesh = mesh;
  entry->key = arguments.key;
  for (const Array& x : arguments.leaves) entry->arguments.push_back(signature_of(*node_of(x)));
  return entry;
}

std::shared_ptr<Entry> trace_entry(const JitCache::Call& call, const Scope& scope,
                                   const FlatTree& arguments) {
  const std::shared_ptr<Entry> entry = make_entry(call.tag, scope, call.mesh, arguments);
  const std::vector<ShapedArray> types = types_of(std::span<const Array>(arguments.leaves));
  StagingOptions staging;
  staging.check_variance = scope.check_variance;
  staging.auto_pbroadcast = scope.auto_pbroadcast;
  const HostSpanScope logged("trace", "jit");
  const ScopesHidden hidden;  // the program serves calls from other scopes, too
  FlatTree result;
  entry->traced = trace_function("jit", types, call.body, result, staging, call.source);
  entry->like = call.like(call.flat_call);
  entry->out_types = types_of(entry->traced.jaxpr->outs);
  return entry;
}

// Whether two arrays are the same object, or two copies of equal host data.
bool is_same_value(const Array& a, const Array& b) {
  if (a.node() == b.node()) return true;
  const StoredNode *x = stored_of(a), *y = stored_of(b);
  return x && y && x->trace == 0 && y->trace == 0 && x->sharding == y->sharding &&
         copy_to_host(a, "jit") == copy_to_host(b, "jit");
}

// SHMAP_CHECK_CAPTURES: traces the program again and compares it, constants included.
void check_captures(const Entry& entry, const JitCache::Call& call, const Scope& scope,
                    const FlatTree& arguments) {
  const auto again = trace_entry(call, scope, arguments);
  const std::string was = to_string(*entry.traced.jaxpr), is = to_string(*again->traced.jaxpr);
  if (was != is) {
    throw ValueError(
        "jit: the function depends on something that changed since it was traced, and that jit "
        "does not see (a captured host value, a global): pass it as an argument. Traced now:\n" +
        is + "\nTraced before:\n" + was + at_line(call.source));
  }
  for (std::size_t i = 0; i < again->traced.consts.size(); ++i) {
    if (is_same_value(again->traced.consts[i], entry.traced.consts[i])) continue;
    throw ValueError("jit: captured array " + std::to_string(i) + " of type " +
                     to_string(node_of(again->traced.consts[i])->type) +
                     " differs from when the function was traced, and captures are read once: "
                     "pass it as an argument" +
                     at_line(call.source));
  }
}

}  // namespace

static JitCache::Result call_program(JitCacheImpl& programs, const JitCache::Call& call,
                                     FlatTree arguments) {
  static const bool checks_captures = env::flag(env::Var::check_captures);
  static const bool explains = env::flag(env::Var::explain_retrace);
  ensure_started();
  for (std::size_t i = 0; i < arguments.leaves.size(); ++i) {
    const Node* node = node_of(arguments.leaves[i]);
    if (node && (node->trace == 0 || is_active(node->trace))) continue;
    const std::string what = "jit: " + leaf_paths(arguments.node, "args")[i];
    throw_escaped(checked_node(arguments.leaves[i], what.c_str(), call.source), what.c_str(),
                  call.source);
  }
  const Scope scope = scope_here();
  PerDeviceTrace* const body = body_of(scope);
  std::shared_ptr<Entry> entry = programs.find(call.tag, scope, arguments);
  if (!entry) {
    if (explains) programs.explain(arguments, scope, call.source);
    entry = trace_entry(call, scope, arguments);
    std::string passes;
    plan_entry(*entry, arguments, body, call.source, dump_folder().empty() ? nullptr : &passes);
    dump(*entry, passes);
    // A program with closed-over values of a surrounding trace cannot be used after that trace.
    const bool is_closed = std::all_of(entry->traced.consts.begin(), entry->traced.consts.end(),
                                       [](const Array& x) { return node_of(x)->trace == 0; });
    if (is_closed) programs.insert(entry);
  } else if (checks_captures) {
    check_captures(*entry, call, scope, arguments);
  }
  JitCache::Result result;
  if (scope.kind == Scope::staged || (body && !may_be_planned(*entry->traced.jaxpr))) {
    std::vector<Array> operands = entry->traced.consts;
    for (Array& x : arguments.leaves) operands.push_back(std::move(x));
    result.leaves =
        bind_all(jit_p, operands, JitParams(entry->traced.jaxpr, call.mesh), call.source);
  } else {
    result.leaves = run_entry(*entry, std::move(arguments.leaves), body, call.source);
  }
  // result.like keeps the whole entry alive; moving `entry` there changes no count of owners.
  const void* like = entry->like.get();
  result.like = std::shared_ptr<const void>(std::move(entry), like);
  return result;
}

JitCache::Result JitCache::call(const Call& call, FlatTree arguments) {
  try {
    return call_program(*impl_, call, std::move(arguments));
  } catch (const OutOfMemory& e) {
    rethrow_at(e, "jit", call.source);
  }
}

}  // namespace detail

namespace {

// Called programs (jit_p) that run eagerly, by the address of the program: the program that a
// transform makes of a jitted function (grad(jit(f))) gets a plan too.
detail::JitCacheImpl& called_programs() {
  static auto* programs = new detail::JitCacheImpl();  // arrays may be used until the very end
  return *programs;
}

}  // namespace

static void interpret_jit(std::span<Array> in, const Params& params, std::span<Array> out,
                          SourceLine source) {
  const JaxprRef& jaxpr = params_as<JitParams>(params).jaxpr;
  if (params.mesh() && params.mesh()->is_abstract()) {
    throw DeviceError("jit: the mesh " + describe_axes(*params.mesh()->env()) +
                      " is abstract and has no devices, so the program cannot run" +
                      at_line(source));
  }
  detail::FlatTree arguments;
  arguments.leaves.assign(std::make_move_iterator(in.begin()), std::make_move_iterator(in.end()));
  const detail::Scope scope = detail::scope_here();
  std::vector<Array> results;
  // No plan where operands vary over other axes than the program's binders (outside of a body, for
  // example).
  bool planned = scope.kind != detail::Scope::staged && may_be_planned(*jaxpr);
  for (std::size_t i = 0; i < jaxpr->binders.size(); ++i)
    planned =
        planned && node_of(arguments.leaves[i])->type.axes() == jaxpr->binders[i]->type.axes();
  if (!planned) {
    results = eval_jaxpr(*jaxpr, std::move(arguments.leaves));
  } else {
    PerDeviceTrace* const body = detail::body_of(scope);
    if (body) body->admit(arguments.leaves, "jit: an argument", source);
    std::shared_ptr<detail::Entry> entry = called_programs().find(jaxpr.get(), scope, arguments);
    if (!entry) {
      entry = detail::make_entry(jaxpr.get(), scope, params.mesh(), arguments);
      entry->traced.jaxpr = jaxpr;
      entry->out_types = types_of(jaxpr->outs);
      detail::plan_entry(*entry, arguments, body, source);
      called_programs().insert(entry);
    }
    results = detail::run_entry(*entry, std::move(arguments.leaves), body, source);
  }
  std::move(results.begin(), results.end(), out.begin());
}

}  // namespace shmap
