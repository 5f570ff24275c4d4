#include "core/compiler/lowering/lower.h"

#include <algorithm>
#include <optional>

#include "core/base/scope_names.h"
#include "core/compiler/lowering/argument_shardings.h"
#include "core/compiler/lowering/partition.h"
#include "core/compiler/lowering/scattered_sums.h"
#include "core/ir/nesting.h"
#include "core/ir/types_of.h"

namespace shmap {

namespace {

// Variance of blocks is inferred: no casts, and no errors, since the global program was checked
// when it was traced.
StagingOptions inferred() {
  StagingOptions options;
  options.check_variance = false;
  options.auto_pbroadcast = false;
  return options;
}

}  // namespace

void throw_other_mesh(const detail::MeshImpl* wanted, const detail::MeshImpl* mesh,
                      SourceLine source) {
  throw OtherMesh("a part of the program works on " + to_string(Mesh(wanted)) +
                  ", and the rest on " + to_string(Mesh(mesh)) + at_line(source));
}

Lowering::Lowering(const detail::MeshImpl* mesh, LowerLog* log)
    : Lowering(mesh, std::make_shared<LowerMemo>()) {
  memo_->log = log;
}

Lowering::Lowering(const detail::MeshImpl* mesh, std::shared_ptr<LowerMemo> memo)
    : mesh_(mesh), trace_("lowering", mesh->env(), inferred()), memo_(std::move(memo)) {}

LoweredProgram Lowering::inner(const Jaxpr& jaxpr, const std::vector<const Sharding*>& arguments,
                               SourceLine source) {
  const auto known = memo_->programs.find({&jaxpr, arguments});
  if (known != memo_->programs.end()) {
    if (memo_->log) memo_->log->known_program(jaxpr, arguments);
    return known->second.lowered;
  }
  Lowering lowering(mesh_, memo_);
  std::vector<LowerValue> args;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    args.push_back(lowering.argument(jaxpr.binders[i]->type, arguments[i]));
  LoweredProgram made;
  std::vector<Array> blocks;
  for (const LowerValue& x : lowering.program(jaxpr, std::move(args))) {
    made.results.push_back(x.sharding ? x.sharding : mesh_->replicated());
    blocks.push_back(x.block);
  }
  made.traced = lowering.trace_.build(blocks, "lowering", source);
  made.traced.jaxpr = scatter_sums(made.traced.jaxpr, memo_->log);
  memo_->programs[{&jaxpr, arguments}] = {JaxprRef(&jaxpr), made};
  return made;
}

LoweredProgram Lowering::with_results(const Jaxpr& jaxpr, LoweredProgram lowered,
                                      const std::vector<const Sharding*>& targets,
                                      SourceLine source) {
  const Jaxpr& blocks = *lowered.traced.jaxpr;
  const auto moves = [&](std::size_t o) {
    return o < targets.size() && targets[o] && targets[o] != lowered.results[o] &&
           !blocks.outs[o].is_literal();
  };
  bool any = false;
  for (std::size_t o = 0; o < lowered.results.size(); ++o) any = any || moves(o);
  if (!any) return lowered;
  Lowering lowering(mesh_, memo_);
  std::vector<Array> args = lowered.traced.consts, results;
  for (std::size_t i = args.size(); i < blocks.binders.size(); ++i)
    args.push_back(lowering.trace_.argument(blocks.binders[i]->type));
  {
    TraceScope scope(lowering.trace_);
    results = eval_jaxpr(blocks, std::move(args));
  }
  for (std::size_t o = 0; o < results.size(); ++o) {
    if (!moves(o)) continue;
    const LowerValue x{results[o], lowered.results[o], jaxpr.outs[o].type()};
    results[o] = lowering.reshard(x, targets[o], "a result", source).block;
    lowered.results[o] = targets[o];
  }
  lowered.traced = lowering.trace_.build(results, "lowering", source);
  lowered.traced.jaxpr = scatter_sums(lowered.traced.jaxpr, memo_->log);
  return lowered;
}

LowerValue Lowering::argument(const ShapedArray& type, const Sharding* sharding) {
  return {trace_.argument(block_type(type, sharding, "an argument")), sharding, type};
}

LowerValue Lowering::literal(const Array& literal) const {
  return {literal, nullptr, node_of(literal)->type};
}

LowerValue Lowering::reshard(const LowerValue& x, const Sharding* target, const std::string& what,
                             SourceLine source) {
  if (!x.sharding || x.sharding == target) return x;
  target->block_shape(x.type.dims(), what);
  const std::size_t before = trace_.equations().size();
  LowerValue moved{{}, target, x.type};
  {
    TraceScope scope(trace_);
    moved.block = resharded_block(x, target, source);
  }
  if (memo_->log) memo_->log->moved(x, target, what, trace_.equations().subspan(before));
  return moved;
}

Array Lowering::resharded_block(const LowerValue& x, const Sharding* target, SourceLine source) {
  if (x.sharding->is_replicated() && !target->is_replicated()) {
    const auto it = remade_.find(x.block.node());
    if (it != remade_.end()) return *random_part(x.block, target);
  }
  return reshard_block(x.block, x.sharding, target, x.type.dims().size(), source);
}

std::vector<LowerValue> Lowering::eqn(const Primitive& primitive, std::vector<LowerValue> in,
                                      const Params& params, std::span<const ShapedArray> out,
                                      SourceLine source) {
  std::vector<LowerValue> results(out.size());
  for (std::size_t o = 0; o < out.size(); ++o) results[o].type = out[o];
  if (primitive.lower) {
    LowerCall call{*this, params, in, out, results, source};
    primitive.lower(call);
    return results;
  }
  std::vector<ShapedArray> in_types;
  std::vector<const Sharding*> given;
  for (const LowerValue& x : in) {
    in_types.push_back(x.type);
    given.push_back(x.sharding);
  }
  PartitionReasons reasons;
  const Partition plan =
      partition(primitive, in_types, out, params, given, mesh_, memo_->log ? &reasons : nullptr);
  if (memo_->log) memo_->log->planned(plan, reasons);
  std::vector<Array> blocks, local(out.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (plan.operands[i]) {
      in[i] = reshard(in[i], plan.operands[i],
                      std::string(primitive.name) + ": operand " + std::to_string(i), source);
    }
    blocks.push_back(in[i].block);
  }
  TraceScope scope(trace_);
  run_partitioned(trace_, primitive, plan, blocks, params, local, source);
  for (std::size_t o = 0; o < out.size(); ++o) {
    results[o].block = std::move(local[o]);
    results[o].sharding = plan.results[o];
  }
  if (out.size() == 1) note_random(primitive, in, params, results[0], source);
  return results;
}

std::vector<LowerValue> Lowering::program(const Jaxpr& jaxpr, std::vector<LowerValue> args) {
  const PassVisit visit("lowering", jaxpr);
  LowerLog* const log = memo_->log;
  if (log) log->begin_program(jaxpr, args);
  VarMap<LowerValue> values;
  for (std::size_t i = 0; i < args.size(); ++i) values[jaxpr.binders[i].get()] = std::move(args[i]);
  const auto read = [&](const Atom& a) {
    return a.is_literal() ? literal(a.literal()) : values.at(a.var());
  };
  for (const Eqn& e : jaxpr.eqns) {
    std::vector<LowerValue> in;
    for (const Atom& a : e.in) in.push_back(read(a));
    const std::vector<ShapedArray> out = types_of(e.out);
    std::optional<ScopesOf> inside;
    if (e.primitive->interpret) inside.emplace(e.source);
    const std::size_t before = trace_.equations().size();
    if (log) log->begin_eqn(e, in);
    std::vector<LowerValue> results = eqn(*e.primitive, std::move(in), *e.params, out, e.source);
    if (log) log->end_eqn(e, results, trace_.equations().subspan(before));
    for (std::size_t o = 0; o < out.size(); ++o) values[e.out[o].get()] = std::move(results[o]);
  }
  std::vector<LowerValue> results;
  for (const Atom& a : jaxpr.outs) results.push_back(read(a));
  if (log) log->end_program(jaxpr, results);
  return results;
}

Lowered lower(const Jaxpr& jaxpr, std::span<const Array> consts, const detail::MeshImpl* mesh,
              std::span<const Sharding* const> shardings, LowerLog* log) {
  Lowering lowering(mesh, log);
  std::vector<LowerValue> args;
  Lowered lowered;
  lowered.mesh = mesh;
  const std::vector<const Sharding*> made =
      constant_shardings(jaxpr, consts.size(), mesh, shardings);
  for (std::size_t i = 0; i < jaxpr.binders.size(); ++i) {
    const Sharding* s = i < consts.size() ? made[i] : shardings[i - consts.size()];
    args.push_back(lowering.argument(jaxpr.binders[i]->type, s));
    if (log) log->argument(i, args.back());
    if (i >= consts.size()) lowered.in.push_back(s);
  }
  std::vector<Array> results;
  for (const LowerValue& x : lowering.program(jaxpr, std::move(args))) {
    results.push_back(x.block);
    lowered.out.push_back(x.sharding ? x.sharding : mesh->replicated());
  }
  Traced traced = lowering.trace().build(results, "lowering", {});
  lowered.jaxpr = scatter_sums(traced.jaxpr, log);
  lowered.consts = std::move(traced.consts);
  lowered.const_in.assign(lowered.consts.size(), mesh->replicated());
  lowered.const_in.insert(lowered.const_in.end(), made.begin(), made.end());
  lowered.consts.insert(lowered.consts.end(), consts.begin(), consts.end());
  return lowered;
}

}  // namespace shmap
