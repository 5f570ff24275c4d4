#include "core/transforms/fusion/fuse_slices.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/ops/slicing.h"
#include "core/runtime/fused_program.h"

namespace shmap {

namespace {

// Shorter rows are not worth a call each.
constexpr std::int64_t kShortestRow = 256;  // bytes

// A slice as rows of one pitch.
struct Rows {
  std::int64_t rows = 1, cols = 1;
  FusedProgram::Part part;
};

bool as_rows(const Eqn& e, Rows* out) {
  if (e.primitive != &slice_p || e.in[0].is_literal()) return false;
  const auto& p = params_as<SliceParams>(*e.params);
  const Shape &whole = e.in[0].type().dims(), &taken = e.out[0]->type.dims();
  if (taken.num_elements() == 0 || slice_p.view(e.in[0].type(), p, e.out[0]->type) >= 0)
    return false;
  *out = {};
  out->part.of = whole.num_elements();
  std::int64_t stride = 1;
  bool in_row = true;  // the dims further in are taken whole
  for (std::size_t d = whole.size(); d-- > 0; stride *= whole[d]) {
    if (p.strides[d] != 1 && taken[d] != 1) return false;
    out->part.first += p.start_indices[d] * stride;
    if (taken[d] == 1 && (!in_row || whole[d] != 1)) {
      in_row = false;  // what lies outside of it is further apart
      continue;
    }
    if (in_row) {
      out->cols *= taken[d];
      in_row = taken[d] == whole[d];
    } else if (out->part.pitch == 0) {
      out->part.pitch = stride;
      out->rows = taken[d];
    } else if (stride == out->part.pitch * out->rows) {
      out->rows *= taken[d];
    } else {
      return false;
    }
  }
  return out->part.pitch >= out->cols &&
         out->cols * itemsize(e.in[0].type().dtype()) >= kShortestRow;
}

class SliceFuser {
 public:
  explicit SliceFuser(const JaxprRef& jaxpr) : jaxpr_(jaxpr) {}

  JaxprRef run() {
    for (const Eqn& e : jaxpr_->eqns) {
      Rows rows;
      if (as_rows(e, &rows)) slices_.emplace(e.out[0].get(), Slice{rows, &e.in[0]});
    }
    if (slices_.empty()) return jaxpr_;
    leave_those_used_otherwise();
    auto made = make_ref<Jaxpr>(*jaxpr_);
    bool any = false;
    for (Eqn& e : made->eqns)
      if (e.primitive == &fused_p) any |= take_slices(e);
    if (!any) return jaxpr_;
    remove_unused(*made);
    check_pass(*made, "fuse_slices");
    return made;
  }

 private:
  struct Slice {
    Rows rows;
    const Atom* of;
  };

  // A slice that has to be made for others is as good to read as the array.
  void leave_those_used_otherwise() {
    for (const Eqn& e : jaxpr_->eqns) {
      if (e.primitive == &fused_p) continue;
      for (const Atom& a : e.in)
        if (!a.is_literal()) slices_.erase(a.var());
    }
    for (const Atom& a : jaxpr_->outs)
      if (!a.is_literal()) slices_.erase(a.var());
  }

  bool take_slices(Eqn& e) const {
    const FusedProgram& old = *params_as<FusedParams>(*e.params).program;
    // Without values of rows and columns a program may have any rows.
    bool any_rows = true;
    for (int v = 0; v < old.value_count(); ++v)
      any_rows &= old.kind(v) == FusedKind::full || old.kind(v) == FusedKind::scalar;
    std::int64_t rows = any_rows ? 0 : old.rows(), cols = any_rows ? 0 : old.cols();
    std::vector<const Slice*> taken(e.in.size(), nullptr);
    bool any = false;
    std::size_t operand = 0;
    for (const FusedProgram::Input& input : old.inputs()) {
      if (input.literal) continue;
      const std::size_t i = operand++;
      if (input.kind != FusedKind::full || input.part.of > 0) continue;
      const auto found = slices_.find(e.in[i].var());
      if (found == slices_.end()) continue;
      const Rows& r = found->second.rows;
      if (rows == 0) rows = r.rows, cols = r.cols;
      if (r.rows != rows || r.cols != cols) continue;
      taken[i] = &found->second;
      any = true;
    }
    if (!any) return false;
    auto program = std::make_shared<FusedProgram>(rows, cols);
    operand = 0;
    for (int v = 0; v < old.value_count(); ++v) {
      const auto at = static_cast<std::size_t>(old.index(v));
      if (old.is_input(v)) {
        const FusedProgram::Input& input = old.inputs()[at];
        if (input.literal) {
          program->add_literal(input.dtype, &input.bits);
        } else if (const Slice* slice = taken[operand]) {
          e.in[operand++] = *slice->of;
          program->add_part(input.dtype, slice->rows.part);
        } else {
          ++operand;
          program->add_input(input.dtype, input.kind);
        }
        continue;
      }
      program->add_like(old.ops()[at]);
    }
    for (const FusedProgram::Output& output : old.outputs())
      program->add_output(output.value, output.type);
    e.params = std::make_shared<FusedParams>(std::move(program));
    return true;
  }

  void remove_unused(Jaxpr& jaxpr) const {
    VarMap<int> uses;
    for (const Eqn& e : jaxpr.eqns)
      for (const Atom& a : e.in)
        if (!a.is_literal()) ++uses[a.var()];
    std::erase_if(jaxpr.eqns, [&](const Eqn& e) {
      return e.primitive == &slice_p && slices_.count(e.out[0].get()) != 0 &&
             uses.count(e.out[0].get()) == 0;
    });
  }

  const JaxprRef& jaxpr_;
  VarMap<Slice> slices_;
};

}  // namespace

JaxprRef fuse_slices(const JaxprRef& jaxpr) { return SliceFuser(jaxpr).run(); }

}  // namespace shmap
