// Calls of jitted functions: JitCache (shmap/jit.h).
#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/array/tree_paths.h"
#include "core/base/env.h"
#include "core/base/scope_names.h"
#include "core/device/host_log.h"
#include "core/ir/types_of.h"
#include "core/runtime/host_transfer.h"
#include "core/tracing/trace_function.h"
#include "core/transforms/jit/cache.h"
#include "core/transforms/jit/jit.h"
#include "core/transforms/jit/planned_entry.h"
#include "core/transforms/jit/planned_trace.h"
#include "shmap/jit.h"

namespace shmap::detail {

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

}  // namespace shmap::detail
