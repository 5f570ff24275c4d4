#include "core/compiler/fusion/fuse_columns.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/compiler/fusion/column_rules.h"
#include "core/compiler/fusion/fuse_rules.h"
#include "core/compiler/fusion/fused_from_fused.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/program_index.h"
#include "core/compiler/passes/rewriter.h"
#include "core/ops/reduce.h"
#include "core/ops/reduce_groups.h"
#include "core/runtime/fused_columns.h"

namespace shmap {

namespace {

// With fewer columns the kernel adds in another order (core/cpu/kernels/reduce/reduce.h). With
// fewer rows, or when eight rows exceed a near cache, fusing gains nothing.
constexpr std::int64_t kFewestCols = 64, kFewestReduced = 64;
constexpr std::int64_t kMostRowBytes = 64 * 1024;

class ColumnFuser {
 public:
  explicit ColumnFuser(const Jaxpr& jaxpr) : program_(jaxpr), made_(jaxpr) {}

  JaxprRef run() {
    for (int i = 0; i < program_.size(); ++i) {
      Eqn e = program_.eqn(i);
      FuseSpace space;
      const int maker = maker_of(e, &space);
      if (maker < 0) continue;
      const Eqn& from = program_.eqn(maker);
      auto program = from.primitive == &fused_p ? copied(from, space) : program_of_one(from, space);
      if (!program) continue;
      e.params = std::make_shared<FusedColumnsParams>(std::move(program), e.primitive,
                                                      e.out[0]->type.with_axes(AxisSet()));
      e.primitive = &fused_columns_p;
      e.in.clear();
      for (const Atom& a : from.in)
        if (from.primitive == &fused_p || !a.is_literal()) e.in.push_back(a);
      made_.put(i, std::move(e));
      made_.remove(maker);
    }
    return made_.is_edited() ? made_.finish() : JaxprRef(&program_.jaxpr());
  }

 private:
  // The equation that computes the operand of e, if e is a reduction of columns and the operand's
  // only reader; otherwise -1.
  int maker_of(const Eqn& e, FuseSpace* space) const {
    if (!reduces_columns(e, space) || program_.reads(e.in[0].var()) != 1) return -1;
    const int maker = program_.maker(e.in[0]);
    if (maker < 0) return -1;
    const Eqn& from = program_.eqn(maker);
    const bool fits = from.out.size() == 1 && from.out[0]->type.axes() == e.out[0]->type.axes() &&
                      (from.primitive == &fused_p || fuse_role(from) == FuseRole::map);
    return fits ? maker : -1;
  }

  // Copies the program of a `fused` equation; null if its space is not `space`, or if it draws
  // random bits.
  std::shared_ptr<const FusedProgram> copied(const Eqn& e, const FuseSpace& space) const {
    const FusedProgram& old = *params_as<FusedParams>(*e.params).program;
    const bool same = old.rows() == space.rows && old.cols() == space.cols;
    if ((!same && !fits_any_rows(old)) || old.kind(old.outputs()[0].value) != FusedKind::full)
      return nullptr;
    auto program = std::make_shared<FusedProgram>(space.rows, space.cols);
    for (int v = 0; v < old.value_count(); ++v) {
      const auto at = static_cast<std::size_t>(old.index(v));
      if (old.is_input(v)) {
        program->add_input_like(old.inputs()[at]);
        continue;
      }
      if (old.ops()[at].op == FusedProgram::OpKind::draw) return nullptr;
      program->add_like(old.ops()[at]);
    }
    program->add_output(old.outputs()[0].value, old.outputs()[0].type);
    return program;
  }

  const ProgramIndex program_;
  Rewriter made_;
};

}  // namespace

bool reduces_columns(const Eqn& e, FuseSpace* space) {
  if (fuse_role(e) != FuseRole::reduce || e.in[0].is_literal()) return false;
  const ShapedArray& type = e.in[0].type();
  const ReduceGroups groups(type.dims(), params_as<ReduceParams>(*e.params).axes);
  if (type.dtype() == DType::f16 || groups.count != 1 || groups.kept[0] != 1 ||
      groups.kept[1] < kFewestCols || groups.reduced[0] < kFewestReduced ||
      groups.kept[1] * itemsize(type.dtype()) > kMostRowBytes)
    return false;
  *space = {groups.reduced[0], groups.kept[1]};
  return true;
}

JaxprRef fuse_columns(const Jaxpr& jaxpr) { return ColumnFuser(jaxpr).run(); }

void register_pass_fuse_columns() {
  register_pass({.order = PassOrder::fuse_columns,
                 .name = "fuse_columns",
                 .run = of_program<fuse_columns>,
                 .makes = &fused_columns_p,
                 .merges = true});
}

}  // namespace shmap
