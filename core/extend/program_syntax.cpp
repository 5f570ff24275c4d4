// The parameters of equations with programs inside and of sharding constraints, by name.
#include "core/base/counted.h"
#include "core/compiler/lowering/sharding_constraint.h"
#include "core/extend/param_reader.h"
#include "core/extend/spec_text.h"
#include "core/ops/optimization_barrier.h"
#include "core/ops/rules.h"
#include "core/transforms/autodiff/checkpoint.h"
#include "core/transforms/autodiff/custom_rules.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/jit/jit.h"

namespace shmap {

namespace {

using Read = std::shared_ptr<const Params>;
using Reader = ParamReader;

// abstract_eval checks the types of the operands, but not how many there are.
void check_operand_count(Reader& r, const Jaxpr& program) {
  if (program.binders.size() == r.operands().size()) return;
  throw TypeError(std::string(r.primitive()) + ": the program inside takes " +
                  counted(program.binders.size(), "operand") + ", and the equation has " +
                  std::to_string(r.operands().size()));
}

Read read_jit(Reader& r) {
  auto p = std::make_shared<JitParams>(r.program("jaxpr"));
  if (r.has("mesh")) p->over = mesh_of_text(r, read_mesh(r, "mesh"));
  check_operand_count(r, *p->jaxpr);
  return p;
}

Read read_checkpoint(Reader& r) {
  auto p = std::make_shared<CheckpointParams>();
  p->differentiated = r.has("differentiated") && r.flag("differentiated");
  p->jaxpr = r.program("jaxpr");
  check_operand_count(r, *p->jaxpr);
  return p;
}

Read read_barrier(Reader& r) {
  auto p = std::make_shared<BarrierParams>();
  if (r.has("id")) p->id = r.integer("id");
  return p;
}

Read read_while(Reader& r) {
  auto p = std::make_shared<WhileParams>();
  const auto limit = static_cast<std::int64_t>(r.operands().size()) + 1;
  p->body_jaxpr = r.program("body_jaxpr");
  p->body_nconsts = r.has("body_nconsts") ? r.index("body_nconsts", limit) : 0;
  p->cond_jaxpr = r.program("cond_jaxpr");
  p->cond_nconsts = r.has("cond_nconsts") ? r.index("cond_nconsts", limit) : 0;
  if (p->body_nconsts + p->cond_nconsts >= limit)
    r.fail("'cond_nconsts' and 'body_nconsts' are together more than there are operands");
  return p;
}

Read read_scan(Reader& r) {
  auto p = std::make_shared<ScanLoopParams>();
  const auto limit = static_cast<std::int64_t>(r.operands().size()) + 1;
  p->jaxpr = r.program("jaxpr");
  p->length = r.integer("length");
  p->num_carry = r.index("num_carry", limit);
  p->num_consts = r.has("num_consts") ? r.index("num_consts", limit) : 0;
  p->reverse = r.has("reverse") && r.flag("reverse");
  if (p->length < 0) r.fail("'length' is " + std::to_string(p->length));
  if (p->num_carry + p->num_consts >= limit)
    r.fail("'num_carry' and 'num_consts' are together more than there are operands");
  check_operand_count(r, *p->jaxpr);
  if (static_cast<std::size_t>(p->num_carry) > p->jaxpr->outs.size())
    r.fail("'num_carry' is more than the program inside has results");
  return p;
}

Read read_cond(Reader& r) {
  auto p = std::make_shared<CondParams>();
  for (std::size_t b = 0; b == 0 || r.has("branches[" + std::to_string(b) + "]"); ++b)
    p->branches.push_back(r.program("branches[" + std::to_string(b) + "]"));
  return p;
}

[[noreturn]] void throw_no_rule(const char* what) {
  throw TypeError(std::string(what) +
                  ": the program was read from a text or built by hand, and has no rules for its "
                  "derivatives: a text does not hold their code");
}

template <class P>
std::shared_ptr<P> read_called(Reader& r) {
  auto p = std::make_shared<P>();
  p->jaxpr = r.program("call_jaxpr");
  check_operand_count(r, *p->jaxpr);
  p->num_consts = r.has("num_consts")
                      ? r.index("num_consts", static_cast<std::int64_t>(r.operands().size()) + 1)
                      : 0;
  return p;
}
Read read_custom_jvp(Reader& r) {
  auto p = read_called<CustomJvpParams>(r);
  p->rule.call = [](void*, std::vector<Array>&, detail::FlatTree&, void*) {
    throw_no_rule("custom_jvp_call");
  };
  return p;
}
Read read_custom_vjp(Reader& r) {
  auto p = read_called<CustomVjpParams>(r);
  p->rule.call = [](void*, std::vector<Array>&, detail::FlatTree&, void*) -> detail::RuleCode {
    throw_no_rule("custom_vjp_call");
  };
  p->arguments.kind = detail::TreeNode::list;
  p->arguments.children.resize(r.operands().size() - static_cast<std::size_t>(p->num_consts));
  return p;
}

// The result types come from the text, because the parameters do not determine them.
Read read_custom_vjp_linear(Reader& r) {
  auto p = std::make_shared<CustomVjpLinearParams>();
  p->backward.call = [](void*, std::vector<Array>&, detail::FlatTree&, void*) {
    throw_no_rule("custom_vjp_linear");
  };
  p->id = r.integer("bwd");
  p->num_residuals = r.index("num_res", static_cast<std::int64_t>(r.operands().size()) + 1);
  const Types tangents = r.operands().subspan(static_cast<std::size_t>(p->num_residuals));
  p->in_types.assign(tangents.begin(), tangents.end());
  p->active.assign(tangents.size(), true);
  p->arguments.kind = detail::TreeNode::list;
  p->arguments.children.resize(tangents.size());
  if (!r.scope().from_text)
    r.fail("only linearize can create it: its result types cannot be inferred from its operands");
  for (const ShapedArray& t : r.scope().results) {
    if (!is_differentiable(t.dtype()))
      r.fail("a result of type " + to_string(t) + ": wanted floats");
    p->y_types.push_back(t);
  }
  return p;
}

Read read_constraint(Reader& r) {
  const PartitionSpec spec = read_spec(r, "sharding");
  const detail::MeshImpl* mesh = r.scope().mesh;
  if (!mesh) {
    throw ValueError(std::string(r.primitive()) + ": its sharding " + to_string(spec) +
                     " is of a mesh that the program does not name: give parse_jaxpr one "
                     "(ParseOptions::mesh)");
  }
  validate_spec(spec, *mesh->env(), r.primitive());
  const Sharding* sharding = mesh->sharding(spec);
  sharding->block_shape(r.operands()[0].dims(), r.primitive());
  return std::make_shared<ConstraintParams>(sharding);
}

}  // namespace

void register_program_syntax() {
  const auto some = [](Primitive& p, int least, int most, ReadParamsFn read) {
    p.syntax = {least, most, read, nullptr};
  };
  some(jit_p, 0, kAnyNumber, read_jit);
  some(checkpoint_p, 0, kAnyNumber, read_checkpoint);
  some(optimization_barrier_p, 1, 1, read_barrier);
  some(while_p, 0, kAnyNumber, read_while);
  some(scan_p, 0, kAnyNumber, read_scan);
  some(cond_p, 1, kAnyNumber, read_cond);
  some(custom_jvp_call_p, 0, kAnyNumber, read_custom_jvp);
  some(custom_vjp_call_p, 0, kAnyNumber, read_custom_vjp);
  some(sharding_constraint_p, 1, 1, read_constraint);
  some(device_put_p, 1, 1, read_constraint);
  some(custom_vjp_linear_p, 0, kAnyNumber, read_custom_vjp_linear);
}

}  // namespace shmap
