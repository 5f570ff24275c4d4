#include "core/tracing/stage_in_body.h"

#include <iterator>
#include <utility>

#include "core/ir/node.h"
#include "core/tracing/trace_function.h"

namespace shmap {

namespace {

// Traces the one program of an equation again for the operands, so that the program of a called
// function (custom_jvp, checkpoint) keeps its rules for derivatives. The new program has no
// constants: its values come from its arguments and from literals.
std::vector<Array> call_again(const Eqn& e, std::vector<Array>& in) {
  const std::vector<const Jaxpr*> called = inner_jaxprs(*e.params);
  if (called.size() != 1 || called[0]->binders.size() != in.size() ||
      !e.primitive->programs.replace)
    return bind_all(*e.primitive, in, *e.params, e.source);
  StagedBody body(*called[0]);
  std::vector<ShapedArray> types;
  for (const Array& x : in) types.push_back(node_of(x)->type);
  detail::FlatTree result;
  Traced traced = trace_function(e.primitive->name, types, detail::BodyRef(body), result,
                                 inherited_options(), e.source);
  const std::vector<JaxprRef> programs{std::move(traced.jaxpr)};
  return bind_all(*e.primitive, in, *e.primitive->programs.replace(*e.params, programs), e.source);
}

std::vector<Array> stage_eqn(const Eqn& e, std::vector<Array> in) {
  bool changed = false;
  for (std::size_t i = 0; i < in.size(); ++i)
    changed = changed || !(node_of(in[i])->type.axes() == e.in[i].type().axes());
  if (changed && e.primitive->group && e.primitive->view) {
    // A cast of a value that varies over the axes already is dropped.
    const AxisSet missing = e.out[0]->type.axes() - node_of(in[0])->type.axes();
    if (missing.empty()) return {in[0]};
    return {cast_to_varying(in[0], missing, e.source)};
  }
  if (!changed || !e.primitive->interpret) return bind_all(*e.primitive, in, *e.params, e.source);
  if (!e.primitive->programs.widen) return call_again(e, in);
  std::vector<Array> out(e.out.size());
  WidenCall call{e, in, out};
  e.primitive->programs.widen(call);
  return out;
}

}  // namespace

std::vector<Array> stage_in_body(const Jaxpr& jaxpr, std::vector<Array> args) {
  VarMap<Array> values;
  for (std::size_t i = 0; i < args.size(); ++i)
    values.emplace(jaxpr.binders[i].get(), std::move(args[i]));
  const auto read = [&](const Atom& a) {
    return a.is_literal() ? a.literal() : values.at(a.var());
  };
  for (const Eqn& e : jaxpr.eqns) {
    std::vector<Array> in;
    for (const Atom& a : e.in) in.push_back(read(a));
    std::vector<Array> out = stage_eqn(e, std::move(in));
    for (std::size_t o = 0; o < out.size(); ++o) values.emplace(e.out[o].get(), std::move(out[o]));
  }
  std::vector<Array> outs;
  for (const Atom& a : jaxpr.outs) outs.push_back(read(a));
  return outs;
}

void StagedBody::operator()(std::vector<Array>& leaves, detail::FlatTree& result) const {
  std::vector<Array> args(consts_.begin(), consts_.end());
  args.insert(args.end(), std::make_move_iterator(leaves.begin()),
              std::make_move_iterator(leaves.end()));
  leaves.clear();
  result.leaves = stage_in_body(jaxpr_, std::move(args));
  result.node.kind = detail::TreeNode::list;
  result.node.children.resize(result.leaves.size());
}

}  // namespace shmap
