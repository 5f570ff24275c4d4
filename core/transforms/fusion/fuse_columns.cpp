#include "core/transforms/fusion/fuse_columns.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/ir/node.h"
#include "core/ops/reduce.h"
#include "core/ops/reduce_groups.h"
#include "core/runtime/fused_columns.h"
#include "core/transforms/fusion/fuse_rules.h"

namespace shmap {

namespace {

// Fewer columns are added up in another order (core/cpu/kernels/reduce.h); of fewer rows, or of
// more bytes in eight rows than a near cache holds, nothing is gained.
constexpr std::int64_t kFewestCols = 64, kFewestRows = 64;
constexpr std::int64_t kMostRowBytes = 64 * 1024;

class ColumnFuser {
 public:
  explicit ColumnFuser(const JaxprRef& jaxpr) : jaxpr_(jaxpr) {}

  JaxprRef run() {
    find_uses();
    auto made = make_ref<Jaxpr>(*jaxpr_);
    std::vector<bool> gone(made->eqns.size(), false);
    bool any = false;
    for (Eqn& e : made->eqns) {
      FuseSpace space;
      const int maker = maker_of(e, &space);
      if (maker < 0) continue;
      const Eqn& from = jaxpr_->eqns[static_cast<std::size_t>(maker)];
      auto program = from.primitive == &fused_p ? copied(from, space) : lone(from, space);
      if (!program) continue;
      const Primitive* reduction = e.primitive;
      e.primitive = &fused_columns_p;
      e.params = std::make_shared<FusedColumnsParams>(std::move(program), reduction,
                                                      e.out[0]->type.with_axes(AxisSet()));
      e.in.clear();
      for (const Atom& a : from.in)
        if (from.primitive == &fused_p || !a.is_literal()) e.in.push_back(a);
      gone[static_cast<std::size_t>(maker)] = true;
      any = true;
    }
    if (!any) return jaxpr_;
    std::size_t i = 0;
    std::erase_if(made->eqns, [&](const Eqn&) { return gone[i++]; });
    check_pass(*made, "fuse_columns");
    return made;
  }

 private:
  void find_uses() {
    const auto use = [&](const Atom& a) {
      if (!a.is_literal()) ++uses_[a.var()];
    };
    for (std::size_t i = 0; i < jaxpr_->eqns.size(); ++i) {
      for (const Atom& a : jaxpr_->eqns[i].in) use(a);
      for (const VarRef& v : jaxpr_->eqns[i].out) maker_[v.get()] = static_cast<int>(i);
    }
    for (const Atom& a : jaxpr_->outs) use(a);
  }

  // The equation whose result `e` alone uses, to reduce its columns; -1: there is none.
  int maker_of(const Eqn& e, FuseSpace* space) const {
    if (fuse_role(e) != FuseRole::reduce || e.in[0].is_literal()) return -1;
    const ShapedArray& type = e.in[0].type();
    const ReduceGroups groups(type.dims(), params_as<ReduceParams>(*e.params).axes);
    if (type.dtype() == DType::f16 || groups.count != 1 || groups.kept[0] != 1 ||
        groups.kept[1] < kFewestCols || groups.reduced[0] < kFewestRows ||
        groups.kept[1] * itemsize(type.dtype()) > kMostRowBytes || uses_.at(e.in[0].var()) != 1)
      return -1;
    *space = {groups.reduced[0], groups.kept[1]};
    const auto found = maker_.find(e.in[0].var());
    if (found == maker_.end()) return -1;
    const Eqn& from = jaxpr_->eqns[static_cast<std::size_t>(found->second)];
    const bool fits = from.out.size() == 1 && from.out[0]->type.axes() == e.out[0]->type.axes() &&
                      (from.primitive == &fused_p || fuse_role(from) == FuseRole::map);
    return fits ? found->second : -1;
  }

  // A program of one operation.
  std::shared_ptr<const FusedProgram> lone(const Eqn& e, const FuseSpace& space) const {
    auto program = std::make_shared<FusedProgram>(space.rows, space.cols);
    std::vector<int> operands;
    for (const Atom& a : e.in) {
      if (a.is_literal()) {
        const auto& literal = static_cast<const LiteralNode&>(*node_of(a.literal()));
        operands.push_back(program->add_literal(literal.type.dtype(), literal.value));
      } else {
        operands.push_back(program->add_input(
            a.type().dtype(), fuse_operand_kind(e, FuseRole::map, FusedKind::full, a)));
      }
    }
    program->add_output(program->add_map(*e.primitive, std::move(operands), e.params),
                        e.out[0]->type);
    return program;
  }

  // The program of a `fused` equation in that space; null where it is of another, or draws.
  std::shared_ptr<const FusedProgram> copied(const Eqn& e, const FuseSpace& space) const {
    const FusedProgram& old = *params_as<FusedParams>(*e.params).program;
    bool any_rows = true;  // without values of rows and columns, and without parts
    for (int v = 0; v < old.value_count(); ++v)
      any_rows &= old.kind(v) == FusedKind::full || old.kind(v) == FusedKind::scalar;
    for (const FusedProgram::Input& input : old.inputs()) any_rows &= input.part.of == 0;
    const bool same = old.rows() == space.rows && old.cols() == space.cols;
    if ((!any_rows && !same) || old.kind(old.outputs()[0].value) != FusedKind::full) return nullptr;
    auto program = std::make_shared<FusedProgram>(space.rows, space.cols);
    for (int v = 0; v < old.value_count(); ++v) {
      const auto at = static_cast<std::size_t>(old.index(v));
      if (old.is_input(v)) {
        const FusedProgram::Input& input = old.inputs()[at];
        if (input.literal)
          program->add_literal(input.dtype, &input.bits);
        else if (input.part.of > 0)
          program->add_part(input.dtype, input.part);
        else
          program->add_input(input.dtype, input.kind);
        continue;
      }
      if (old.ops()[at].op == FusedProgram::OpKind::draw) return nullptr;
      program->add_like(old.ops()[at]);
    }
    program->add_output(old.outputs()[0].value, old.outputs()[0].type);
    return program;
  }

  const JaxprRef& jaxpr_;
  VarMap<int> uses_, maker_;
};

}  // namespace

JaxprRef fuse_columns(const JaxprRef& jaxpr) { return ColumnFuser(jaxpr).run(); }

}  // namespace shmap
